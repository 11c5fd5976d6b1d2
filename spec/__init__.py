"""Contracts that all other layers use: networks, formats, programs, manifests. Needs numpy and pydantic."""
