"""The program of a step, whole sequences, and their exact cycle counts."""
