"""Comparison of networks that were read from several forms of one model."""

from typing import Any

import numpy as np

from rtlstm.spec.network import Network


def without_names(network: Network) -> dict[str, Any]:
    """The network's dump without its name and those of layers, which each form has in its own way."""
    dump = network.model_dump(exclude={"name": ..., "layers": {"__all__": {"name": ...}}})
    for layer in dump["layers"]:
        for part in ("forward", "backward"):
            layer.get(part, {}).pop("name", None)
    return dump


def same(one: Any, other: Any) -> bool:
    """Whether two dumps have the same values."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)
