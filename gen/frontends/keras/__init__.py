"""Reads Keras models."""
