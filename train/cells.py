"""Cells in PyTorch: in the hardware's integers with gradients, and in floats."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.activations.piecewise import PiecewiseLinear
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.train.functions import activate
from rtlstm.train.rounding import floor_to, odd_to, round_to, straight_through

__all__ = ["LookUp", "evaluate_cell", "evaluate_graph"]


def evaluate_graph(
    graph: CellGraph,
    tables: Sequence["LookUp"],
    pieces: Sequence[PiecewiseLinear],
    gates: Sequence[Any],
    state: Any,
    constants: Any,
    ranges: Mapping[int, Any] | None = None,
) -> list[Any]:
    """Compute every node of a graph as real numbers in float64; the bits are the golden model's.

    Parameters
    ----------
    gates
        Pre-activations, ``(..., units)`` each, multiples of their format's step.
    state
        The kept values, ``(..., units)``.
    constants
        Per-unit constants, ``(units, K)``, multiples of their format's step.
    ranges
        Logarithms of the trained ranges to which values are rounded, by the node that rounds.
    """
    values: list[Any] = []
    trained = ranges or {}
    for position, node in enumerate(graph.nodes):
        args = [values[arg] for arg in node.args]
        match node.kind:
            case "gate":
                value = gates[node.index]
            case "state":
                value = state
            case "parameter":
                value = constants[:, node.index]
            case "constant":
                value = gates[0].new_tensor(node.value * 2.0**-node.format.fraction)
            case "multiply":
                value = args[0] * args[1]
            case "add":
                value = args[0] + args[1]
            case "subtract":
                value = args[0] - args[1]
            case "clamp":
                limit = node.value * 2.0**-node.format.fraction
                value = args[0].clamp(-limit, limit)
            case "table":
                value = tables[node.index](args[0])
            case "pieces":
                value = _of_pieces(pieces[node.index], args[0])
            case "odd":
                value = odd_to(args[0], node.format)
            case "narrow":
                value = round_to(args[0], node.format, trained.get(position))
            case "floor":
                value = floor_to(args[0], node.format, trained.get(position))
        values.append(value)
    return values


def evaluate_cell(cell: Cell, gates: Sequence[Any], state: Any, constants: Any) -> list[Any]:
    """Compute every step of a cell's description, in the floats' own arithmetic."""
    values: list[Any] = []
    for step in cell.steps:
        args = [values[arg] for arg in step.args]
        match step.kind:
            case "gate":
                value = gates[step.index]
            case "state":
                value = state
            case "parameter":
                value = constants[:, step.index]
            case "constant":
                value = gates[0].new_tensor(step.value)
            case "multiply":
                value = args[0] * args[1]
            case "add":
                value = args[0] + args[1]
            case "subtract":
                value = args[0] - args[1]
            case "apply":
                assert step.function is not None
                value = activate(step.function, args[0])
            case "clip":
                value = args[0].clamp(-step.value, step.value)
            case "keep":
                value = args[0]
        values.append(value)
    return values


class LookUp(torch.nn.Module):
    """An activation table: exact values, with the function's derivative as gradient."""

    values: Any

    def __init__(self, table: ActivationTable) -> None:
        super().__init__()
        self.table = table
        most = table.input.maximum
        self.lowest = ~most if table.middle else -most
        """The most negative input code, that of the first value."""
        codes = table.compute(np.arange(self.lowest, most + 1))
        self.register_buffer("values", torch.from_numpy(table.output.to_floats(codes)), persistent=False)

    def forward(self, x: Any) -> Any:
        """Return the values for multiples of the input's step."""
        fraction = self.table.input.fraction
        index = x.detach() * 2.0**fraction - self.lowest
        # A table of the middles stands for what was half a step more, on average, before it was rounded down.
        middle = 0.5 * 2.0**-fraction if self.table.middle else 0.0
        values = self.values[index.long()].to(x.dtype)
        return straight_through(values, activate(self.table.function, x + middle))


def _of_pieces(pieces: PiecewiseLinear, x: Any) -> Any:
    codes = (x.detach() * 2.0**pieces.input.fraction).cpu().numpy().astype(np.int64)
    value = torch.from_numpy(pieces.output.to_floats(pieces.compute(codes))).to(x)
    low, high = pieces.output.to_floats([pieces.lowest, pieces.highest]).tolist()
    return straight_through(value, activate(pieces.function, x).clamp(low, high))
