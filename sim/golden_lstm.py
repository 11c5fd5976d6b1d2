"""The golden model of what the fused LSTM gate unit computes, in exact floats at BLAS speed.

Its bits are those of :mod:`rtlstm.sim.golden_cells`.

Every quantity is an integer, or an integer divided by a power of two, held in a float. Floats hold
such numbers exactly as long as they have few enough significant bits, so matrix products run at
BLAS speed and still give every bit:

- A sum of products is at most the accumulator's bound, whatever the order of its terms, and so is
  every sum on the way. Up to ``2**24`` a layer's sums are float32, beyond that float64; the formats
  keep them below ``2**48``. A row's right shift is folded into its weights, and so are all other
  scales into tables: scaling by a power of two is exact.
- The gate unit's sums are float64. :class:`~rtlstm.spec.numerics.Numerics` refuses formats whose
  sums need more than 52 bits inside the range of the cell state; what lies outside saturates.
- All values are finite. BLAS may set the flag of an invalid operation for lanes of a vector that
  hold no value, so numpy ignores it, once for a whole step: at each product it would cost a tenth of
  a small network's time.
- Converting to an integer drops the fraction of a number that is not negative, and so rounds it
  down. Table indices have their table's centre added first; a negative one means the first entry.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import (
    GUARD_BITS,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    QuantizedRecurrent,
)
from rtlstm.spec.sum_bounds import bound_sums

__all__ = ["LstmNetwork", "LstmStream"]

Floats = NDArray[np.float64]
AnyFloats = NDArray[Any]
"""float32 or float64, as a layer's sums are."""
Mask = NDArray[np.bool_]

_DROP_GUARD = 0.5**GUARD_BITS
_FLOAT32_EXACT = 1 << 24
"""All integers up to this magnitude are float32 numbers."""
_FLOAT64_EXACT = 1 << 53
_BLOCK_VALUES = 1 << 17
"""Partial sums of inputs that are computed at once: so many stay in the processor's cache."""


def _spell_out(table: ActivationTable, scale: int) -> NDArray[np.float32]:
    """A ``middle`` table's values for all inputs, from the most negative on, times ``2**scale``.

    Values have at most 18 bits, which float32 holds. Looked up at random, a table is as fast as its
    share of the processor's cache.
    """
    most = table.input.maximum
    values = table.compute(np.arange(~most, most + 1))
    return np.ldexp(values.astype(np.float32), scale)


class _Sums:
    """Base of LSTM and dense layers: a float type that holds the layer's sums exactly."""

    def __init__(self, layer: QuantizedLayer, shape: LayerShape, numerics: Numerics) -> None:
        bounds = bound_sums([layer], numerics.input, numerics.accumulator.align)
        self.centre = (numerics.preactivation.maximum + 1) << GUARD_BITS
        """Offset of a table's centre, which is added to the partial sums of its indices."""
        self.partial_bound = bounds.partial.magnitude + self.centre
        small = max(bounds.lane.magnitude, self.partial_bound) <= _FLOAT32_EXACT
        self.type: type[np.floating[Any]] = np.float32 if small else np.float64
        self._align = numerics.accumulator.align
        self._relu = shape.input_relu

    def scaled(self, weights: IntArray, shift: IntArray) -> AnyFloats:
        """Weights transposed, each row divided by two to the shift that its sums undergo."""
        return np.ldexp(weights.astype(np.float64).T, self._align - shift).astype(self.type)

    def read(self, x: NDArray[Any]) -> AnyFloats:
        """Return the layer's inputs in the layer's float type."""
        values = x.astype(self.type, copy=False)
        return np.maximum(values, 0) if self._relu else values


class _LstmLayer(_Sums):
    """Constants of a layer. Gates are a leading axis, in the order i, f, o, g: sigmoids side by side."""

    def __init__(
        self, layer: QuantizedRecurrent, shape: LayerShape, numerics: Numerics, unit: FusedUnit
    ) -> None:
        super().__init__(layer, shape, numerics)
        self.units = shape.outputs
        self.w_ih = self._gates(self.scaled(layer.w_ih, layer.shift_ih))
        self.w_hh = self._gates(self.scaled(layer.w_hh, layer.shift_hh))
        self.bias = self._gates((layer.bias[None] + self.centre).astype(self.type))
        """Offset that turns the partial sums into table indices with guard bits."""
        gate, cell, argument = numerics.gate, numerics.cell, numerics.cell_argument
        # f c + i g is in units of c, and o tanh(c) in units of h.
        self.sigmoid = _spell_out(unit.sigmoid, -gate.fraction)
        self.tanh = _spell_out(unit.tanh, cell.fraction - gate.fraction)
        self.cell_tanh = _spell_out(unit.cell_tanh, numerics.hidden.fraction - gate.fraction)
        self.argument_scale = 2.0 ** (argument.fraction - cell.fraction)
        self.argument_centre = argument.maximum + 1.0
        self.cell_limit = float(cell.maximum)
        most = math.floor(float(self.sigmoid.max()) * float(self.cell_tanh.max()) + 0.5)
        self.odd = numerics.hidden_rounding == "odd"
        if self.odd:
            # Products are in units of two codes: their middles are the odd ones.
            self.cell_tanh *= np.float32(0.5)
        self.hidden_limit = float(numerics.hidden.maximum)
        self.hidden_fits = most <= self.hidden_limit
        """Whether h cannot saturate: the product of gates with as many bits as h is below h's limit."""
        fraction = max(0, int(np.max(layer.shift_hh)) - numerics.accumulator.align)
        exact = _FLOAT32_EXACT if self.type is np.float32 else _FLOAT64_EXACT
        self.sums_are_exact = self.partial_bound << fraction <= exact
        """Whether a recurrent share that is not rounded yet can be added to a partial sum: rounding
        the sum down gives the same, since the partial sum is an integer."""

    def _gates(self, columns: AnyFloats) -> AnyFloats:
        """Turn ``(rows, 4 * units)``, gates i, f, g, o, into ``(4, rows, units)``."""
        parts = columns.reshape(len(columns), 4, self.units).transpose(1, 0, 2)
        return np.ascontiguousarray(parts[[0, 1, 3, 2]])

    def input_part(self, x: AnyFloats, out: AnyFloats) -> None:
        """Compute ``W_ih x + b`` for any number of rows."""
        np.matmul(x, self.w_ih, out=out)
        np.floor(out, out=out)
        np.add(out, self.bias, out=out)


class _LstmState:
    """State of ``batch`` sequences in a layer, and buffers for a step's values: a step allocates nothing."""

    def __init__(self, layer: _LstmLayer, h: IntArray, c: IntArray) -> None:
        self._layer = layer
        self.h = h.astype(layer.type)
        self.c = c.astype(np.float64)
        self.cell_saturations = 0
        """Number of cell states that saturated."""
        self._sums = np.empty((4, *h.shape), dtype=layer.type)
        self._index = np.empty((4, *h.shape), dtype=np.intp)
        self._gates = np.empty((3, *h.shape), dtype=np.float32)
        self._tanh, self._cell_tanh = np.empty((2, *h.shape), dtype=np.float32)
        self._total, self._work, self._half = np.empty((3, *h.shape))

    def step(self, part: AnyFloats, alive: Mask | None = None) -> None:
        """Advance by one step, whose input part is given; sequences not ``alive`` keep their state."""
        layer, total, work, index = self._layer, self._total, self._work, self._index
        i, f, o = self._gates
        where: Any = True if alive is None else alive
        # The recurrent share is rounded down separately, because the hardware stores it as partial sums.
        np.matmul(self.h, layer.w_hh, out=self._sums)
        if not layer.sums_are_exact:
            np.floor(self._sums, out=self._sums)
        np.add(self._sums, part, out=self._sums)
        np.multiply(self._sums, _DROP_GUARD, out=self._sums)
        np.copyto(index, self._sums, casting="unsafe")
        layer.sigmoid.take(index[:3], out=self._gates, mode="clip")
        layer.tanh.take(index[3], out=self._tanh, mode="clip")
        # c' = f c + i g, exact, in units of c
        np.multiply(i, self._tanh, out=work, dtype=np.float64)
        np.multiply(f, self.c, out=total)
        np.add(total, work, out=total)
        # h' = o tanh(c'), where tanh reads c' before it is rounded
        np.multiply(total, layer.argument_scale, out=work)
        np.add(work, layer.argument_centre, out=work)
        np.copyto(index[0], work, casting="unsafe")
        layer.cell_tanh.take(index[0], out=self._cell_tanh, mode="clip")
        np.multiply(o, self._cell_tanh, out=work, dtype=np.float64)
        if layer.odd:
            self._round_odd(work, where)
        else:
            self._round_half_up(work, where)
        np.add(total, 0.5, out=total)
        np.floor(total, out=total)
        if total.max(initial=0.0) > layer.cell_limit or total.min(initial=0.0) < -layer.cell_limit:
            self._limit(total, alive)
        np.copyto(self.c, total, where=where)

    def _round_half_up(self, work: Floats, where: Any) -> None:
        """Keep h from products in its units."""
        limit = self._layer.hidden_limit
        np.add(work, 0.5, out=work)
        if self._layer.hidden_fits:
            np.floor(work, out=self.h, where=where)
        else:
            np.floor(work, out=work)
            np.minimum(work, limit, out=work)
            np.maximum(work, -limit, out=self.h, where=where)

    def _round_odd(self, work: Floats, where: Any) -> None:
        """Keep h from products in units of two codes: toward zero, then half such a unit outward."""
        # -0 + 0 is 0, which counts as positive.
        np.add(work, 0.0, out=work)
        np.copysign(0.5, work, out=self._half)
        np.trunc(work, out=work)
        np.add(work, self._half, out=work)
        np.multiply(work, 2.0, out=self.h, where=where)

    def _limit(self, c: Floats, alive: Mask | None) -> None:
        """Saturate cell states, and count those of sequences that are ``alive``."""
        beyond = np.abs(c) > self._layer.cell_limit
        self.cell_saturations += int(np.count_nonzero(beyond if alive is None else beyond & alive))
        np.clip(c, -self._layer.cell_limit, self._layer.cell_limit, out=c)


class _DenseLayer(_Sums):
    def __init__(self, layer: QuantizedDense, shape: LayerShape, numerics: Numerics, unit: FusedUnit) -> None:
        super().__init__(layer, shape, numerics)
        self.weight = self.scaled(layer.weight, layer.shift)
        bias, limit = layer.bias, shape.output.maximum
        table = {"sigmoid": unit.sigmoid, "tanh": unit.tanh}.get(shape.activation)
        self._table: NDArray[np.float32] | None = None
        if table is not None:
            values = _spell_out(table, shape.output.fraction - numerics.gate.fraction)
            self._table = np.clip(np.floor(values + 0.5), -limit, limit)
            bias = bias + self.centre
        self._bias = bias.astype(self.type)
        self._limits = (0 if shape.activation == "relu" else -limit), limit

    def __call__(self, x: AnyFloats) -> AnyFloats:
        """Compute any number of rows."""
        total: AnyFloats = self.read(x) @ self.weight
        np.floor(total, out=total)
        np.add(total, self._bias, out=total)
        np.multiply(total, _DROP_GUARD, out=total)
        if self._table is not None:
            return self._table.take(total.astype(np.intp), mode="clip")
        np.floor(total, out=total)
        lowest, highest = self._limits
        np.minimum(total, highest, out=total)
        np.maximum(total, lowest, out=total)
        return total


class LstmStream:
    """``batch`` sequences, step by step, with their state kept between."""

    def __init__(
        self, layers: Sequence[_LstmLayer | _DenseLayer], h: list[IntArray], c: list[IntArray]
    ) -> None:
        lstm = [layer for layer in layers if isinstance(layer, _LstmLayer)]
        self.states = [_LstmState(*each) for each in zip(lstm, h, c, strict=True)]
        self._layers = [
            (layer, state, np.empty((4, *state.h.shape), dtype=layer.type))
            for layer, state in zip(lstm, self.states, strict=True)
        ]
        self._dense = [layer for layer in layers if isinstance(layer, _DenseLayer)]

    @np.errstate(invalid="ignore")
    def step(self, x: IntArray) -> IntArray:
        """Compute a step: integers of the input format, ``(N, inputs)``, to ``(N, outputs)``.

        ``x`` is not checked: see :meth:`rtlstm.sim.golden.Golden.check`.
        """
        values: NDArray[Any] = x
        for layer, state, part in self._layers:
            layer.input_part(layer.read(values), part)
            state.step(part)
            values = state.h
        for dense in self._dense:
            values = dense(values)
        return values.astype(np.int64)

    @property
    def h(self) -> tuple[IntArray, ...]:
        """h of each LSTM layer, ``(N, units)``."""
        return tuple(state.h.astype(np.int64) for state in self.states)

    @property
    def c(self) -> tuple[IntArray, ...]:
        """c of each LSTM layer, ``(N, units)``."""
        return tuple(state.c.astype(np.int64) for state in self.states)

    @property
    def cell_saturations(self) -> int:
        """Number of cell states that have saturated."""
        return sum(state.cell_saturations for state in self.states)


class LstmNetwork:
    """All layers of a network that the fused unit computes, with their initial state."""

    def __init__(self, network: QuantizedNetwork, unit: FusedUnit) -> None:
        pairs = zip(network.layers, network.shapes, strict=True)
        self._layers = [
            _LstmLayer(layer, shape, network.numerics, unit)
            if isinstance(layer, QuantizedRecurrent)
            else _DenseLayer(layer, shape, network.numerics, unit)
            for layer, shape in pairs
        ]

    def zeros(self, batch: int) -> tuple[list[IntArray], list[IntArray]]:
        """Return the zero state."""
        units = [layer.units for layer in self._layers if isinstance(layer, _LstmLayer)]
        zeros = [np.zeros((batch, count), dtype=np.int64) for count in units]
        return zeros, zeros

    def stream(self, h: list[IntArray], c: list[IntArray]) -> LstmStream:
        """Begin sequences with a state."""
        return LstmStream(self._layers, h, c)

    @np.errstate(invalid="ignore")
    def run(
        self, x: IntArray, h: list[IntArray], c: list[IntArray], alive: Mask | None
    ) -> tuple[IntArray, LstmStream]:
        """Run ``(T, N, inputs)``, where ``alive``, ``(T, N, 1)``; return y and the final state."""
        stream = self.stream(h, c)
        values: NDArray[Any] = x
        states = iter(stream.states)
        for layer in self._layers:
            if isinstance(layer, _LstmLayer):
                values = _run_layer(layer, next(states), values, alive)
            else:
                values = layer(values)
        return values.astype(np.int64, copy=False), stream


def _run_layer(layer: _LstmLayer, state: _LstmState, x: NDArray[Any], alive: Mask | None) -> IntArray:
    """Run all steps of an LSTM layer; the input parts of a block of steps are one large matrix product."""
    steps, batch, inputs = x.shape
    outputs = np.empty((steps, batch, layer.units), dtype=np.int64)
    block = max(1, _BLOCK_VALUES // max(1, 4 * layer.units * batch))
    parts = np.empty((4, min(block, steps) * batch, layer.units), dtype=layer.type)
    for begin in range(0, steps, block):
        ahead = min(block, steps - begin)
        part = parts[:, : ahead * batch]
        layer.input_part(layer.read(x[begin : begin + ahead].reshape(-1, inputs)), part)
        for step in range(ahead):
            now = begin + step
            state.step(part[:, step * batch : (step + 1) * batch], None if alive is None else alive[now])
            outputs[now] = state.h
    return outputs
