"""Cells in PyTorch, in the hardware's integers and in floats, and rounding that lets gradients through.

A value ``n * 2**-f`` is a float as long as ``n`` has few enough bits, so that real numbers hold the
hardware's integers exactly. Gradients are straight-through: that of a rounded value is that of the value
before, and that of a saturated one is 0.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rtlstm.spec.activations.functions import ActivationFunction, Lines, PiecewiseLinear
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.evaluate import Reals, normalised
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.fixed import Format
from rtlstm.spec.norms import Normalisation

FLOAT32_BITS = 24
"""Bits of integers that float32 holds exactly."""


def straight_through(value: Any, differentiable: Any) -> Any:
    """Return ``value``, exactly, with the gradient of ``differentiable``."""
    return value.detach() + (differentiable - differentiable.detach())


def rounded(values: Any, x: Any, low: float, high: float, log_range: Any = None, middle: float = 0.0) -> Any:
    """Return rounded values, saturated, with the gradients of rounding.

    Parameters
    ----------
    values
        ``x`` rounded, not yet saturated at ``low`` and ``high``.
    log_range
        The logarithm of the format's range, if that is trained. Its gradient is that of Jain et al., "Trained
        quantization thresholds", arXiv 1903.08066, equations 5 to 8.
    middle
        How much more than ``values`` the rounded ones stand for: half a step if they were rounded down.
    """
    saturated = values.clamp(low, high)
    through = x.clamp(low, high)
    if log_range is not None:
        change = torch.where(values == saturated, values + (middle - x.detach()), saturated)
        through = through + change * (math.log(2.0) * log_range.to(x.dtype))
    return straight_through(saturated, through)


def round_to(x: Any, form: Format, log_range: Any = None) -> Any:
    """Round half up to a format, and saturate symmetrically; ``log_range`` as in :func:`rounded`."""
    limit = math.ldexp(form.maximum, -form.fraction)
    values = torch.floor(x.detach() * 2.0**form.fraction + 0.5) * 2.0**-form.fraction
    return rounded(values, x, -limit, limit, log_range)


def odd_codes(values: Any) -> Any:
    """Return odd integers: the middles of the two steps that values lie in; 0 counts as positive."""
    return 2.0 * torch.trunc(0.5 * values) + torch.where(values < 0.0, -1.0, 1.0).to(values.dtype)


def odd_to(x: Any, form: Format) -> Any:
    """Round what is within a format's range to its odd codes."""
    return straight_through(odd_codes(x.detach() * 2.0**form.fraction) * 2.0**-form.fraction, x)


def floor_to(x: Any, form: Format, log_range: Any = None) -> Any:
    """Round down to a format, and saturate at its lowest and its highest code."""
    low, high = (math.ldexp(code, -form.fraction) for code in (~form.maximum, form.maximum))
    values = torch.floor(x.detach() * 2.0**form.fraction) * 2.0**-form.fraction
    return rounded(values, x, low, high, log_range, 0.5 * 2.0**-form.fraction)


def row_codes(weights: Any, fractions: Any, maximum: int) -> tuple[Any, Any, Any]:
    """Return weights ``(rows, columns)`` in units of their rows' steps, these rounded half up and saturated,
    and the units in a weight of 1, ``(rows, 1)``; all in float64."""
    scale = torch.exp2(fractions.double())[:, None]
    scaled = weights.double() * scale
    return scaled, torch.floor(scaled + 0.5).clamp(-maximum, maximum), scale


class RoundedRows(torch.autograd.Function):
    """Rounds weights half up to each row's power of two, and saturates them.

    Gradients of the rows' limits are those of Jain et al., "Trained quantization thresholds",
    arXiv 1903.08066, equations 5 to 8.
    """

    @staticmethod
    def forward(ctx: Any, weights: Any, log_limits: Any, fractions: Any, maximum: int) -> Any:
        """Round ``(rows, columns)``; ``fractions`` ``(rows,)`` follow from ``log_limits``."""
        scaled, codes, scale = row_codes(weights, fractions, maximum)
        ctx.save_for_backward(scaled, codes, scale)
        return (codes / scale).to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        """Return the gradients of weights and limits."""
        scaled, codes, scale = ctx.saved_tensors
        inside = torch.floor(scaled + 0.5) == codes
        of_limit = torch.where(inside, codes - scaled, codes) / scale * math.log(2.0)
        of_limits = (gradient * of_limit).sum(dim=1).to(gradient.dtype)
        return gradient * inside, of_limits, None, None


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
        norms: Sequence[Normalisation],
        ranges: Mapping[int, Any],
    ) -> None:
        super().__init__(graph, like)
        self._tables, self._pieces, self._norms, self._ranges = tables, pieces, norms, ranges

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

    def normalise(self, at: int, x: Any, gain: Any) -> Any:
        """Normalise over the units."""
        node = self.operations[at]
        norm, source = self._norms[node.index], self.operations[node.args[0]].format
        given = [(x, source), *([] if norm.gain is None else [(gain, norm.gain)])]
        codes = [
            (value.detach() * 2.0**form.fraction).round().cpu().numpy().astype(np.int64)
            for value, form in given
        ]
        value = norm.normalise(codes[0], self._tables[norm.table].table, *codes[1:])
        smooth = normalised(x, norm.centre, norm.real_epsilon(source))
        return straight_through(
            torch.from_numpy(node.format.to_floats(value)).to(x), smooth if gain is None else smooth * gain
        )

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


_STEEP = 10.0
"""How fast the gradient of heaviside falls beside its step: to a quarter in a distance of a tenth."""
_STEP = 1e-6
"""Distance of the two points that give a derivative."""


def activate(function: ActivationFunction, x: Any) -> Any:
    """Return a function's values, whose gradients are its derivative's."""
    if function.name in ("relu", "sigmoid", "tanh"):
        return getattr(torch, function.name)(x)
    if function.name == "identity":
        return x
    lines = function.lines
    if function.name == "heaviside":  # Its derivative is 0, so spiking networks train with that of a slope.
        slope = torch.nn.functional.softsign(_STEEP * (x - function.alpha)) / _STEEP
        return straight_through((x > function.alpha).to(x), slope)
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
