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
  hold no value. Products are made with ``dot``, which does not look at it.
- Converting to an integer drops the fraction of a number that is not negative, and so rounds it
  down. Table indices have their table's centre added first; a negative one means the first entry.
"""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.golden_cells import GraphLayer
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
    bound_sums,
    scale_factors,
)

Floats = NDArray[np.float64]
AnyFloats = NDArray[Any]
"""float32 or float64, as a layer's sums are."""
Mask = NDArray[np.bool_]

_DROP_GUARD = 0.5**GUARD_BITS
_HALF = np.array(0.5)
"""Array scalars, here and below, are read faster than Python's."""
_FLOAT32_EXACT = 1 << 24
"""All integers up to this magnitude are float32 numbers."""
_FLOAT64_EXACT = 1 << 53
_BLOCK_VALUES = 1 << 17
"""Partial sums of inputs that are computed at once: so many stay in the processor's cache."""


# The search of formats makes many models with the same tables.
@lru_cache(maxsize=32)
def _spell_out(table: ActivationTable, scale: int) -> Floats:
    """A ``middle`` table's values for all inputs, from the most negative on, times ``2**scale``."""
    found: Floats = np.ldexp(table.spelled_out.astype(np.float64), scale)
    found.setflags(write=False)
    return found


class _Sums:
    """Base of LSTM and dense layers: a float type that holds the layer's sums exactly."""

    def __init__(self, layer: QuantizedLayer, shape: LayerShape, numerics: Numerics) -> None:
        self._align = numerics.accumulator.align
        bounds = bound_sums([layer], numerics.vector, self._align)
        self.centre = (numerics.preactivation.maximum + 1) << GUARD_BITS
        """Offset of a table's centre, which is added to the partial sums of its indices."""
        self.partial_bound = bounds.partial.magnitude + self.centre
        small = max(bounds.lane.magnitude, self.partial_bound) <= _FLOAT32_EXACT and not numerics.scale_bits
        self.type: type[np.floating[Any]] = np.float32 if small else np.float64
        self._exact = _FLOAT32_EXACT if small else _FLOAT64_EXACT
        self._relu = shape.input_relu
        self.drop_guard = np.array(_DROP_GUARD, dtype=self.type)

    def scaled(self, weights: IntArray, shift: IntArray) -> AnyFloats:
        """Weights transposed, each row divided by two to the shift that its sums undergo."""
        return np.ldexp(weights.astype(np.float64).T, self._align - shift).astype(self.type)

    def scale(self, part: AnyFloats, scale: AnyFloats | None) -> None:
        """Multiply a part by its rows' scales, if there are some, and round it down before and behind."""
        if scale is not None:
            np.floor(part, part)
            np.multiply(part, scale, part)
            np.floor(part, part)

    def fraction(self, shift: IntArray) -> int:
        """Fraction bits of sums that are not rounded yet."""
        return max(0, int(shift.max()) - self._align)

    def fits(self, fraction: int) -> bool:
        """Whether partial sums with so many fraction bits are exact."""
        return self.partial_bound << fraction <= self._exact

    def read(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return what the layer's weights are multiplied with."""
        return np.maximum(x, 0) if self._relu else x


class _LstmLayer(_Sums):
    """Constants of a layer. Gates are in the order i, f, o, g: sigmoids side by side."""

    def __init__(
        self, layer: QuantizedRecurrent, shape: LayerShape, numerics: Numerics, unit: FusedUnit
    ) -> None:
        super().__init__(layer, shape, numerics)
        self.units = shape.outputs
        given, recurrent = self.fraction(layer.shift_ih), self.fraction(layer.shift_hh)
        scales = [scale_factors(scale) for scale in (layer.scale_ih, layer.scale_hh)]
        self.input_scale, self.recurrent_scale = map(self._by_gate_of, scales)
        scales_rows = bool(numerics.scale_bits)
        self.joint = not scales_rows and not (given and recurrent) and self.fits(max(given, recurrent))
        """Whether one product gives a row's whole sum: rounding it down once gives the same, if only
        one part has a fraction."""
        self.round_recurrent = not scales_rows and not self.fits(recurrent)
        """Whether the recurrent share must be rounded down before it is added to a partial sum, which is
        an integer: else rounding the sum down gives the same."""
        scale = _DROP_GUARD if self.joint else 1
        parts = self.scaled(layer.w_ih, layer.shift_ih), self.scaled(layer.w_hh, layer.shift_hh)
        rows = np.concatenate(parts).reshape(-1, 4, self.units)[:, [0, 1, 3, 2]].reshape(-1, 4 * self.units)
        self.weights = np.ascontiguousarray(rows * scale)
        """Rows of x and of h; columns gate by gate. A joint sum is the table's index."""
        bias = (layer.bias + self.centre).astype(self.type) * scale
        self.bias = bias.reshape(4, 1, self.units)[[0, 1, 3, 2]]
        """Offset that turns the partial sums into table indices."""
        self.inputs = layer.w_ih.shape[1]
        assert shape.state is not None
        gate, cell, argument = numerics.gate, shape.state, numerics.cell_argument
        # f c + i g is in units of c, and o tanh(c) in units of h.
        self.sigmoid = _spell_out(unit.sigmoid, -gate.fraction)
        self.tanh = _spell_out(unit.tanh, cell.fraction - gate.fraction)
        self.cell_tanh = _spell_out(unit.cell_tanh, shape.output.fraction - gate.fraction)
        # c' is rounded half up, and its tanh's index rounded down.
        self.cell_scales = np.array([1.0, 2.0 ** (argument.fraction - cell.fraction)])[:, None, None]
        self.cell_offsets = np.array([0.5, argument.maximum + 1.0])[:, None, None]
        self.cell_limit = float(cell.maximum)
        self.most_sigmoid = float(np.abs(self.sigmoid).max())
        self.most_added = self.most_sigmoid * float(np.abs(self.tanh).max()) + 1.0
        """Bound of ``i g``, and of what rounding adds to c'."""
        most = math.floor(float(self.sigmoid.max()) * float(self.cell_tanh.max()) + 0.5)
        self.odd = numerics.hidden_rounding == "odd"
        if self.odd:
            # Products are in units of two codes: their middles are the odd ones.
            self.cell_tanh = self.cell_tanh * 0.5
        self.hidden_limit = float(shape.output.maximum)
        self.hidden_fits = most <= self.hidden_limit
        """Whether h cannot saturate: the product of gates with as many bits as h is below h's limit."""

    def _by_gate_of(self, values: AnyFloats | None) -> AnyFloats | None:
        """Return rows' values as ``(4, 1, units)``, in the order of the gates here."""
        return None if values is None else values.reshape(4, 1, self.units)[[0, 1, 3, 2]]

    @cached_property
    def _by_gate(self) -> AnyFloats:
        """The weights with gates as a leading axis."""
        rows = self.weights.reshape(-1, 4, self.units)
        return np.ascontiguousarray(rows.transpose(1, 0, 2))

    def products(self, rows: slice, out: AnyFloats) -> "_Products":
        """Products of these rows that give ``out``, ``(4, N, units)``; one if it has the weights' order."""
        if out.shape[1] == 1 and out.flags.c_contiguous:
            return [(self.weights[rows], out.reshape(1, -1))]
        return list(zip(self._by_gate[:, rows], out, strict=True))

    def input_part(self, x: AnyFloats, products: "_Products", part: AnyFloats) -> None:
        """Compute ``part``, ``W_ih x + b`` for any number of rows; its products are those of ``W_ih``."""
        _multiply(x, products)
        self.scale(part, self.input_scale)
        if not self.joint:
            np.floor(part, part)
        np.add(part, self.bias, part)


_Products = list[tuple[AnyFloats, AnyFloats]]
"""Factors and where their products with a matrix go."""


def _multiply(x: AnyFloats, products: _Products) -> None:
    # Unlike matmul, dot does not look at the processor's flags.
    for weights, out in products:
        x.dot(weights, out)


class _LstmState:
    """State of ``batch`` sequences in a layer, and buffers for a step's values: a step allocates nothing."""

    def __init__(self, layer: _LstmLayer, h: IntArray, c: IntArray) -> None:
        self._layer = layer
        shape, inputs = h.shape, layer.inputs
        self._read = np.empty((len(h), len(layer.weights)), dtype=layer.type)
        self._x = self._read[:, :inputs]
        self._joint = layer.joint and len(h) == 1
        # Many rows are multiplied faster where they follow each other in memory.
        self.h = np.ascontiguousarray(self._read[:, inputs:])
        self._sums, self._part = np.empty((2, 4, *shape), dtype=layer.type)
        self._whole = layer.products(slice(None), self._sums)
        self._input = layer.products(slice(inputs), self._part)
        self._recurrent = layer.products(slice(inputs, None), self._sums)
        self._index = np.empty((4, *shape), dtype=np.intp)
        # Indexing takes as long as arithmetic: all parts are named here.
        self._sigmoid_index, self._tanh_index = self._index[:3], self._index[3]
        values = np.empty((5, *shape))
        self._gates, self._factors = values[:2], values[3:]
        """The gates i and f; what these are multiplied with, g and c."""
        self._sigmoids, self._o, self._tanh, self.c = values[:3], values[2], values[3], values[4]
        self._products, self._new = np.empty((2, 2, *shape))
        self._work = np.empty(shape)
        self.h[...], self.c[...] = h, c
        self._most = float(np.abs(self.c).max(initial=0.0))
        """A bound of all c: below the limit, they need not be compared with it."""
        self.cell_saturations = 0
        """Number of cell states that saturated."""

    def step(self, x: NDArray[Any]) -> None:
        """Advance by one step, ``(N, inputs)``."""
        layer = self._layer
        self._x[...] = layer.read(x)
        if self._joint:
            _multiply(self._read, self._whole)
            np.add(self._sums, layer.bias, self._sums)
            self._advance()
        else:
            layer.input_part(self._x, self._input, self._part)
            self.step_on(self._part)

    def step_on(self, part: AnyFloats, alive: Mask | None = None) -> None:
        """Advance by one step, whose input part is given; sequences not ``alive`` keep their state."""
        # The recurrent share is rounded down separately, because the hardware stores it as partial sums.
        _multiply(self.h, self._recurrent)
        self._layer.scale(self._sums, self._layer.recurrent_scale)
        if self._layer.round_recurrent:
            np.floor(self._sums, self._sums)
        np.add(self._sums, part, self._sums)
        self._advance(alive)

    def _advance(self, alive: Mask | None = None) -> None:
        """Turn the rows' sums into the new state."""
        layer, work, new = self._layer, self._work, self._new
        where: Any = True if alive is None else alive
        if not layer.joint:
            np.multiply(self._sums, layer.drop_guard, self._sums)
        self._index[...] = self._sums
        layer.sigmoid.take(self._sigmoid_index, None, self._sigmoids, "clip")
        layer.tanh.take(self._tanh_index, None, self._tanh, "clip")
        # c' = f c + i g, exact, in units of c; tanh reads it before it is rounded
        np.multiply(self._gates, self._factors, self._products)
        np.add(self._products[0], self._products[1], work)
        np.multiply(work, layer.cell_scales, new)
        np.add(new, layer.cell_offsets, new)
        c, self._tanh_index[...] = new
        layer.cell_tanh.take(self._tanh_index, None, work, "clip")
        # h' = o tanh(c')
        np.multiply(self._o, work, work)
        if layer.odd:
            # Toward zero, then half a unit, of two codes, outward. -0 + 0 is 0, which counts as positive.
            np.add(work, 0.0, work)
            np.multiply(np.trunc(work) + np.copysign(0.5, work), 2.0, out=self.h, where=where)
        else:
            np.add(work, _HALF, work)
            if not layer.hidden_fits:
                np.clip(work, -layer.hidden_limit, layer.hidden_limit + 0.5, out=work)
            np.floor(work, out=self.h, where=where)
        self._most = self._most * layer.most_sigmoid + layer.most_added
        if self._most > layer.cell_limit:
            self._limit(c, alive)
        np.floor(c, out=self.c, where=where)

    def _limit(self, c: Floats, alive: Mask | None) -> None:
        """Round and saturate cell states, and count those of sequences that are ``alive``."""
        limit = self._layer.cell_limit
        magnitudes = np.abs(np.floor(c, c))
        self._most = float(magnitudes.max(initial=0.0))
        if self._most > limit:
            beyond = magnitudes > limit
            self.cell_saturations += int(np.count_nonzero(beyond if alive is None else beyond & alive))
            np.clip(c, -limit, limit, out=c)
        if self._most > limit or alive is not None:
            self._most = limit


class _DenseLayer(_Sums):
    def __init__(self, layer: QuantizedDense, shape: LayerShape, numerics: Numerics, unit: FusedUnit) -> None:
        super().__init__(layer, shape, numerics)
        self._scale = scale_factors(layer.scale)
        self._round = self._scale is not None or not self.fits(self.fraction(layer.shift))
        # Without a guard, unless parts must be rounded with it.
        scale = 1 if self._round else self.drop_guard
        self._weight = self.scaled(layer.weight, layer.shift) * scale
        bias, limit = layer.bias, shape.output.maximum
        table = {"sigmoid": unit.sigmoid, "tanh": unit.tanh}.get(shape.activation)
        self._table: Floats | None = None
        if table is not None:
            values = _spell_out(table, shape.output.fraction - numerics.gate.fraction)
            self._table = np.clip(np.floor(values + 0.5), -limit, limit)
            bias = bias + self.centre
        self._bias = bias.astype(self.type) * scale
        lowest = 0 if shape.activation == "relu" else -limit
        self._limits = np.array(lowest, dtype=self.type), np.array(limit, dtype=self.type)

    def __call__(self, x: AnyFloats) -> AnyFloats:
        total: AnyFloats = self.read(x).astype(self.type, copy=False).dot(self._weight)
        self.scale(total, self._scale)
        if self._round:
            np.floor(total, total)
        np.add(total, self._bias, total)
        if self._round:
            np.multiply(total, self.drop_guard, total)
        if self._table is not None:
            return self._table.take(total.astype(np.intp), mode="clip")
        np.floor(total, total)
        lowest, highest = self._limits
        np.minimum(total, highest, out=total)
        np.maximum(total, lowest, out=total)
        return total


class _NormLayer:
    """A norm, whose cell no other unit computes either."""

    def __init__(self, layer: QuantizedDense, shape: LayerShape, numerics: Numerics) -> None:
        self._layer = GraphLayer(layer, shape, numerics)

    def __call__(self, x: AnyFloats) -> AnyFloats:
        found, _, _ = self._layer.results(self._layer.sums(self.read(x), None, None), None)
        return found.astype(np.float64)

    def read(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


class LstmStream:
    """``batch`` sequences, step by step, with their state kept between."""

    def __init__(
        self, layers: Sequence[_LstmLayer | _DenseLayer | _NormLayer], h: list[IntArray], c: list[IntArray]
    ) -> None:
        lstm = [layer for layer in layers if isinstance(layer, _LstmLayer)]
        self.states = [_LstmState(*each) for each in zip(lstm, h, c, strict=True)]
        states = iter(self.states)
        self._layers = [next(states) if isinstance(layer, _LstmLayer) else layer for layer in layers]

    def step(self, x: IntArray) -> IntArray:
        """Compute a step: integers of the input format, ``(N, inputs)``, to ``(N, outputs)``.

        ``x`` is not checked: see :meth:`rtlstm.sim.golden.Golden.check`.
        """
        values: NDArray[Any] = x
        for layer in self._layers:
            if isinstance(layer, _LstmState):
                layer.step(values)
                values = layer.h
            else:
                values = layer(values)
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
            else _NormLayer(layer, shape, network.numerics)
            if shape.kind == "norm"
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

    def run(
        self, x: IntArray, h: list[IntArray], c: list[IntArray], alive: Mask | None
    ) -> tuple[IntArray, LstmStream]:
        """Run ``(T, N, inputs)``, where ``alive``, ``(T, N, 1)``; return y and the final state."""
        stream = self.stream(h, c)
        values: NDArray[Any] = x
        states = iter(stream.states)
        for layer in self._layers:
            state = next(states) if isinstance(layer, _LstmLayer) else None
            values = self._results(layer, state, values, alive)
        return values.astype(np.int64, copy=False), stream

    def _results(
        self,
        layer: _LstmLayer | _DenseLayer | _NormLayer,
        state: _LstmState | None,
        x: NDArray[Any],
        alive: Mask | None,
    ) -> NDArray[Any]:
        """Return what a layer makes of ``(T, N, inputs)``."""
        if isinstance(layer, _LstmLayer):
            assert state is not None
            return _run_layer(layer, state, x, alive)
        return layer(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:2], -1)


class WatchedLstmNetwork(LstmNetwork):
    """The same network, which keeps what the rows of its layers multiply; for one run."""

    def __init__(self, network: QuantizedNetwork, unit: FusedUnit) -> None:
        super().__init__(network, unit)
        self.reads: list[list[NDArray[Any]]] = [[] for _ in self._layers]
        """What each layer reads in all steps, ``(T, N, values)``: what it is given, and its h."""
        self._next = iter(self.reads)

    def _results(
        self,
        layer: _LstmLayer | _DenseLayer | _NormLayer,
        state: _LstmState | None,
        x: NDArray[Any],
        alive: Mask | None,
    ) -> NDArray[Any]:
        begin = None if state is None else state.h[None].copy()
        found = super()._results(layer, state, x, alive)
        reads = next(self._next)
        reads.append(layer.read(x))
        if begin is not None:
            reads.append(np.concatenate([begin, found[:-1]]))
        return found


def _run_layer(layer: _LstmLayer, state: _LstmState, x: NDArray[Any], alive: Mask | None) -> IntArray:
    """Run all steps of an LSTM layer; the input parts of a block of steps are one large matrix product."""
    steps, batch, inputs = x.shape
    outputs = np.empty((steps, batch, layer.units), dtype=np.int64)
    block = min(steps, max(1, _BLOCK_VALUES // max(1, 4 * layer.units * batch)))
    parts = np.empty((4, block * batch, layer.units), dtype=layer.type)
    for begin in range(0, steps, block):
        rows = min(block, steps - begin) * batch
        part = parts[:, :rows]
        read = layer.read(x[begin : begin + block].reshape(-1, inputs)).astype(layer.type, copy=False)
        layer.input_part(read, layer.products(slice(inputs), part), part)
        for first in range(0, rows, batch):
            now = begin + first // batch
            state.step_on(parts[:, first : first + batch], None if alive is None else alive[now])
            outputs[now] = state.h
    return outputs
