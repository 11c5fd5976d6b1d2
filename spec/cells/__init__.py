"""Cells: the functions from a unit's pre-activations and old state to its result and new state."""
