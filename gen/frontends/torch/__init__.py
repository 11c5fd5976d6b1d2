"""Reads PyTorch modules, TorchScript files and exported programs."""
