"""Gate orders of other tools, and the one place that turns them into the project's i, f, g, o."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["GATE_ORDERS", "GateOrder", "reorder"]

GateOrder = Literal["torch", "onnx", "keras", "cudnn"]

PROJECT_ORDER = "ifgo"

GATE_ORDERS: dict[GateOrder, str] = {
    "torch": "ifgo",
    "onnx": "iofg",  # ONNX calls the candidate c
    "keras": "ifgo",  # Keras calls the candidate c
    "cudnn": "ifgo",
}
"""The order in which each tool stacks the four gates; g is the candidate for the cell."""


def reorder(array: NDArray[np.float64], from_order: GateOrder) -> NDArray[np.float64]:
    """Return ``array``, whose first axis stacks four gates, in the order i, f, g, o."""
    order = GATE_ORDERS[from_order]
    if array.shape[0] % 4:
        raise ValueError(f"the first axis must stack four gates, not have {array.shape[0]} rows")
    blocks = dict(zip(order, np.split(array, 4), strict=True))
    return np.concatenate([blocks[gate] for gate in PROJECT_ORDER])
