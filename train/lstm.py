"""The LSTM layer of the fused gate unit over whole sequences, with its gradients written out.

The bits are those of :mod:`rtlstm.sim.golden_lstm`, the gradients those of the same cell's graph in
:mod:`rtlstm.train.cells`. A step takes two dozen operations on ``(N, units)``, and keeps what its gradient
needs; all products with inputs and all gradients of weights are one matrix product each.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from rtlstm.spec.fixed import Format, HiddenRounding
from rtlstm.spec.numerics import GUARD_BITS
from rtlstm.train.cells import FLOAT32_BITS, LookUp, odd_codes

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
