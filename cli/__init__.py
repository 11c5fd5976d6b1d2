"""The command line, on top of everything: one module a command, and what the commands share."""
