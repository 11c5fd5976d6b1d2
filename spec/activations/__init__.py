"""Activation functions: in floats, and as integers of golden model and hardware."""
