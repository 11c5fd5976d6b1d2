"""Cells: what becomes of a unit's pre-activations."""
