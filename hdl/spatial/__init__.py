"""Cores in which every layer has logic of its own, and weights are constants of it."""
