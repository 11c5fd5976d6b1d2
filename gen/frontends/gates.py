"""Gate orders of other tools, and their conversion to the project's order."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

GateOrder = Literal["torch", "onnx", "keras", "cudnn"]
CellKind = Literal["lstm", "gru", "rnn", "peephole"]

PROJECT_ORDERS: dict[CellKind, str] = {"lstm": "ifgo", "gru": "rzn", "rnn": "h", "peephole": "ifo"}

GATE_ORDERS: dict[GateOrder, str] = {
    "torch": "ifgo",
    "onnx": "iofg",  # ONNX calls the candidate c.
    "keras": "ifgo",  # Keras calls the candidate c.
    "cudnn": "ifgo",
}
"""The order in which each tool stacks an LSTM's four gates; g is the candidate for the cell."""

CELL_ORDERS: dict[CellKind, dict[GateOrder, str]] = {
    "lstm": GATE_ORDERS,
    "gru": {"torch": "rzn", "onnx": "zrn", "keras": "zrn", "cudnn": "rzn"},  # ONNX and Keras: h for n
    "rnn": dict.fromkeys(GATE_ORDERS, "h"),
    "peephole": {"onnx": "iof"},
}
"""The same for every cell; n is a GRU's candidate. ``peephole`` is an LSTM's weights from c to its gates."""


def reorder(
    array: NDArray[np.float64], from_order: GateOrder, cell: CellKind = "lstm"
) -> NDArray[np.float64]:
    """Return ``array``, whose first axis stacks the gates of a cell, in the project's order."""
    order = CELL_ORDERS[cell][from_order]
    if array.shape[0] % len(order):
        count = {4: "four", 3: "three"}[len(order)]
        raise ValueError(f"the first axis must stack {count} gates, not have {array.shape[0]} rows")
    blocks = dict(zip(order, np.split(array, len(order)), strict=True))
    return np.concatenate([blocks[gate] for gate in PROJECT_ORDERS[cell]])
