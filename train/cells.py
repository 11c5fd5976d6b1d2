"""Cells in PyTorch: in the hardware's integers with gradients, and in floats."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rtlstm.spec.activations.functions import ActivationFunction, Lines, PiecewiseLinear
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.evaluate import Reals
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.train.rounding import floor_to, odd_to, round_to, straight_through


class Floats(Reals):
    """Computes a description in the floats' own arithmetic."""

    def __init__(self, cell: Cell | CellGraph, like: Any) -> None:
        super().__init__(cell)
        self._like = like

    def constant(self, at: int) -> Any:
        """Return a constant."""
        return self._like.new_tensor(self.number(at))

    def apply(self, at: int, x: Any) -> Any:
        """Compute an activation function."""
        return activate(self.operations[at].function, x)


class StraightThrough(Floats):
    """Computes a graph as real numbers in float64, which are multiples of their formats' steps.

    The bits are the golden model's, the gradients those of the values before they are rounded.

    Parameters
    ----------
    ranges
        Logarithms of the trained ranges to which values are rounded, by the node that rounds.
    """

    def __init__(
        self,
        graph: CellGraph,
        like: Any,
        tables: Sequence["LookUp"],
        pieces: Sequence[PiecewiseLinear],
        ranges: Mapping[int, Any],
    ) -> None:
        super().__init__(graph, like)
        self._tables, self._pieces, self._ranges = tables, pieces, ranges

    def apply(self, at: int, x: Any) -> Any:
        """Look up in a table, or compute a piecewise linear function."""
        node = self.operations[at]
        if node.kind == "table":
            return self._tables[node.index](x)
        pieces = self._pieces[node.index]
        codes = (x.detach() * 2.0**pieces.input.fraction).cpu().numpy().astype(np.int64)
        value = torch.from_numpy(pieces.output.to_floats(pieces.compute(codes))).to(x)
        low, high = pieces.output.to_floats([pieces.lowest, pieces.highest]).tolist()
        return straight_through(value, activate(pieces.function, x).clamp(low, high))

    def round(self, at: int, x: Any) -> Any:
        """Narrow to the node's format."""
        node = self.operations[at]
        if node.kind == "odd":
            return odd_to(x, node.format)
        return (floor_to if node.kind == "floor" else round_to)(x, node.format, self._ranges.get(at))


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


_STEP = 1e-6
"""Distance of the two points that give a derivative."""


def activate(function: ActivationFunction, x: Any) -> Any:
    """Return a function's values, whose gradients are its derivative's."""
    if function.name in ("relu", "sigmoid", "tanh"):
        return getattr(torch, function.name)(x)
    if function.name == "identity":
        return x
    lines = function.lines
    return _Formula.apply(x, function) if lines is None else _piecewise(lines, x)


def _piecewise(lines: Lines, x: Any) -> Any:
    starts = torch.tensor(lines.starts, dtype=x.dtype, device=x.device)
    piece = torch.bucketize(x.detach().contiguous(), starts, right=not lines.exclusive)
    slopes, offsets = (x.new_tensor(values)[piece] for values in zip(*lines.lines, strict=True))
    return (slopes * x + offsets).clamp(lines.low, lines.high)


class _Formula(torch.autograd.Function):
    """A function that is known by its formula in NumPy: any that has a table, also a plug-in's."""

    @staticmethod
    def forward(ctx: Any, x: Any, function: ActivationFunction) -> Any:
        points = x.detach().cpu().double().numpy()
        rise = function(points + _STEP) - function(points - _STEP)
        ctx.save_for_backward(_like(rise / (2.0 * _STEP), x))
        return _like(function(points), x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def _like(values: np.ndarray[Any, Any], x: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(values)).to(x)
