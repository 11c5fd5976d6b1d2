"""Cells in PyTorch, in the hardware's integers and in floats, and rounding that lets gradients through.

A value ``n * 2**-f`` is a float as long as ``n`` has few enough bits, so that real numbers hold the
hardware's integers exactly. Gradients are straight-through: that of a rounded value is that of the value
before, and that of a saturated one is 0.

The LSTM layer of the fused gate unit runs over whole sequences, with its gradients written out. Its bits are
those of :mod:`rtlstm.sim.golden_lstm`, its gradients those of the same cell's graph. A step takes two dozen
operations on ``(N, units)``, and keeps what its gradient needs; all products with inputs and all gradients
of weights are one matrix product each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rtlstm.spec.activations.functions import ActivationFunction, Lines, PiecewiseLinear
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.evaluate import Reals, normalised
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.fixed import Format, HiddenRounding
from rtlstm.spec.norms import Normalisation
from rtlstm.spec.numerics import GUARD_BITS

FLOAT32_BITS = 24
"""Bits of integers that float32 holds exactly."""


def straight_through(value: Any, differentiable: Any) -> Any:
    """Return ``value``, exactly, with the gradient of ``differentiable``."""
    return value.detach() + (differentiable - differentiable.detach())


def rounded(values: Any, x: Any, low: float, high: float, log_range: Any = None, middle: float = 0.0) -> Any:
    """Return rounded values, saturated, with the gradients of rounding.

    ``values`` is ``x`` rounded, not yet saturated at ``low`` and ``high``. ``log_range`` is the logarithm of
    the format's range, if that is trained. Its gradient is that of Jain et al., "Trained quantization
    thresholds", arXiv 1903.08066, equations 5 to 8. ``middle`` is how much more than ``values`` the rounded
    ones stand for: half a step if they were rounded down.
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

    The bits are the golden model's, the gradients those of the values before they are rounded. ``ranges`` are
    the logarithms of the trained ranges to which values are rounded, by the node that rounds.
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


_ORDER = [0, 1, 3, 2]
"""Gates i, f, o, g: the sigmoids side by side. The order is its own inverse."""


@dataclass(frozen=True)
class FusedLayer:
    """Formats and tables of an LSTM layer."""

    target: int
    """Fraction bits of the rows' sums."""
    single: bool
    """Whether float32 holds all sums exactly; it is twice as fast."""
    sigmoid: LookUp
    tanh: LookUp
    cell_tanh: LookUp
    cell: Format
    hidden: Format
    rounding: HiddenRounding
    """How h is rounded."""


def run_fused(
    layer: FusedLayer, x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, bias: Any, alive: Any
) -> tuple[Any, Any, Any]:
    """Run ``(T, N, inputs)`` from a state; return the outputs ``(T, N, units)`` and the final state.

    All tensors are real numbers, multiples of their formats' steps. Rows are gate by gate: i, f, g, o.
    Sequences keep their state where they are not ``alive``, ``(T, N, 1)``; None if all are.
    """
    outputs: tuple[Any, Any, Any] = _FusedLstm.apply(x, h, c, w_ih, w_hh, bias, alive, layer)
    return outputs


def _ordered(rows: Any, units: int) -> Any:
    """Change the order of gates, there or back."""
    return rows.reshape(4, units, *rows.shape[1:])[_ORDER].reshape(rows.shape)


class _FusedLstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Any,
        h: Any,
        c: Any,
        w_ih: Any,
        w_hh: Any,
        bias: Any,
        alive: Any,
        layer: FusedLayer,
    ) -> tuple[Any, Any, Any]:
        with torch.autocast(x.device.type, enabled=False):
            return _forward(ctx, x, h, c, w_ih, w_hh, bias, alive, layer)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        with torch.autocast(gradients[0].device.type, enabled=False):
            return _backward(ctx, *gradients)


def _forward(
    ctx: Any, x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, bias: Any, alive: Any, layer: FusedLayer
) -> tuple[Any, Any, Any]:
    steps, batch, _ = x.shape
    units = h.shape[1]
    centre = -(layer.sigmoid.lowest << GUARD_BITS)
    scale = 2.0**layer.target
    rows_x = _ordered(w_ih, units).double() * scale
    rows_h = _ordered(w_hh, units).double() * scale
    offset = _ordered(bias, units).double() * scale + centre
    exact = torch.float32 if layer.single else torch.float64
    part = (x.to(exact) @ rows_x.to(exact).T).floor_().add_(offset.to(exact))
    into_rows = rows_h.to(exact).T.contiguous()

    gates = x.new_empty((steps, batch, 4 * units), dtype=torch.float32)
    index = torch.empty(gates.shape, dtype=torch.int32, device=x.device)
    cells = torch.empty((steps + 1, batch, units), dtype=torch.float64, device=x.device)
    hidden = torch.empty((steps + 1, batch, units), dtype=exact, device=x.device)
    tanhs = torch.empty((steps, batch, units), dtype=torch.float32, device=x.device)
    # One table behind the other: one look-up gives all gates.
    tables = torch.cat([layer.sigmoid.values, layer.tanh.values]).to(torch.float32)
    cell_tanh = layer.cell_tanh.values.to(torch.float32)
    cells[0], hidden[0] = c, h
    argument = layer.cell_tanh.table.input
    top, last = len(layer.sigmoid.values) - 1, len(cell_tanh) - 1
    first = torch.tensor([0, 0, 0, top + 1], dtype=exact, device=x.device).repeat_interleave(units)
    cell_step, cell_limit = 2.0**layer.cell.fraction, float(layer.cell.maximum)
    hidden_step, hidden_limit = 2.0**layer.hidden.fraction, float(layer.hidden.maximum)
    for step in range(steps):
        sums = torch.mm(hidden[step], into_rows).floor_().add_(part[step]).mul_(0.5**GUARD_BITS)
        mine, chosen = gates[step], index[step]
        # What is not negative loses its fraction when it becomes an integer: it is rounded down.
        chosen.copy_(sums.clamp_(0, top).add_(first))
        torch.index_select(tables, 0, chosen.view(-1), out=mine.view(-1))
        i, f, o, g = mine.double().split(units, dim=1)
        total = (f * cells[step]).addcmul_(i, g)
        read = (total * 2.0**argument.fraction - layer.cell_tanh.lowest).clamp_(0, last)
        torch.index_select(cell_tanh, 0, read.int().view(-1), out=tanhs[step].view(-1))
        new_h = (o * tanhs[step]).mul_(hidden_step)
        if layer.rounding == "odd":
            new_h = odd_codes(new_h)
        else:
            new_h.add_(0.5).floor_().clamp_(-hidden_limit, hidden_limit)
        new_c = total.mul_(cell_step).add_(0.5).floor_().clamp_(-cell_limit, cell_limit)
        new_h.mul_(1.0 / hidden_step)
        new_c.mul_(1.0 / cell_step)
        if alive is None:
            hidden[step + 1], cells[step + 1] = new_h, new_c
        else:
            hidden[step + 1] = torch.where(alive[step], new_h, hidden[step].double())
            cells[step + 1] = torch.where(alive[step], new_c, cells[step])
    lowest = first.int()
    inside = (index > lowest) & (index < lowest + top)
    ctx.layer, ctx.alive = layer, alive
    ctx.save_for_backward(x, w_ih, w_hh, gates, inside, cells.to(_least_type(layer.cell)), tanhs, hidden)
    return hidden[1:].to(x.dtype), hidden[-1].to(x.dtype), cells[-1].to(c.dtype)


def _least_type(form: Format) -> Any:
    """Return a float type that holds a format's values, for what waits for the gradients."""
    return torch.float32 if form.bits <= FLOAT32_BITS else torch.float64


def _limit(form: Format, rounded: float) -> float:
    """Return the magnitude from which values saturate in a format, ``rounded`` units beyond its maximum."""
    return (form.maximum + rounded) * 2.0**-form.fraction


def _backward(ctx: Any, of_y: Any, of_h: Any, of_c: Any) -> tuple[Any, ...]:
    x, w_ih, w_hh, gates, inside, cells, tanhs, hidden = ctx.saved_tensors
    layer, alive = ctx.layer, ctx.alive
    steps, batch, units = tanhs.shape
    kind = x.dtype
    i, f, o, g = gates.to(kind).split(units, dim=2)
    before, tanh = cells[:-1].to(kind), tanhs.to(kind)
    # Straight through what is rounded, nothing through what has saturated.
    total = (f * before).addcmul_(i, g).abs_()
    cell_inside = (total < _limit(layer.cell, 0.5)).to(kind)
    through = (1.0 - tanh * tanh).mul_(total < _limit(layer.cell_tanh.table.input, 1.0))
    # Odd codes have no limit.
    most = math.inf if layer.rounding == "odd" else _limit(layer.hidden, 0.5)
    hidden_inside = ((o * tanh).abs_() < most).to(kind)
    through.mul_(o).mul_(hidden_inside)
    slopes = torch.stack([g * i * (1.0 - i), before * f * (1.0 - f), i * (1.0 - g * g)], dim=2)
    inner = inside.reshape(steps, batch, 4, units)
    slopes *= inner[:, :, [0, 1, 3]]
    of_o = hidden_inside.mul_(tanh).mul_(o * (1.0 - o)).mul_(inner[:, :, 2])
    of_rows = x.new_empty((steps, batch, 4, units))
    of_h, of_c = of_h.clone(), of_c.to(kind).clone()
    for step in reversed(range(steps)):
        mine = of_rows[step]
        whole = of_h + of_y[step] if alive is None else (of_h + of_y[step]) * alive[step]
        kept = of_c if alive is None else of_c * alive[step]
        of_total = torch.addcmul(kept * cell_inside[step], whole, through[step])
        torch.mul(of_total[:, None], slopes[step], out=mine[:, :3])
        torch.mul(whole, of_o[step], out=mine[:, 3])
        back_h, back_c = mine.reshape(batch, -1) @ w_hh, of_total * f[step]
        of_h = back_h if alive is None else torch.where(alive[step], back_h, of_h)
        of_c = back_c if alive is None else torch.where(alive[step], back_c, of_c)
    flat = of_rows.reshape(steps * batch, 4 * units)
    of_x = (flat @ w_ih).reshape(x.shape) if ctx.needs_input_grad[0] else None
    of_w_ih = flat.T @ x.reshape(steps * batch, -1)
    of_w_hh = flat.T @ hidden[:-1].reshape(steps * batch, -1).to(kind)
    return of_x, of_h, of_c, of_w_ih, of_w_hh, flat.sum(dim=0), None, None
