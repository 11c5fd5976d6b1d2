"""The golden model: the numbers that the RTL must produce, on every bit.

Every quantity is an integer held in float64. Products and sums stay below ``2**52`` (the formats
guarantee it), so float64 matrix products are exact and a whole batch runs at BLAS speed. A row's
right shift is folded into its weights: scaling by a power of two is exact as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.activation import ActivationTable
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.numerics import (
    GUARD_BITS,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLstm,
    QuantizedNetwork,
)

__all__ = ["Golden", "GoldenResult"]

Floats = NDArray[np.float64]
State = tuple[Sequence[IntArray], Sequence[IntArray]]


@dataclass(frozen=True)
class GoldenResult:
    """Integers of a run over ``(T, N, inputs)``."""

    y: IntArray
    """Outputs, ``(T, N, outputs)``; zero past a sequence's length."""
    h: tuple[IntArray, ...]
    """h of each LSTM layer after the last valid step, ``(N, units)``."""
    c: tuple[IntArray, ...]
    """c of each LSTM layer after the last valid step, ``(N, units)``."""
    cell_saturations: int
    """Cell states that were limited."""


def _narrow(value: Floats, shift: int, limit: int) -> Floats:
    """Divide by ``2**shift`` rounding half up, then limit to ``+-limit``."""
    return np.clip(np.floor(np.ldexp(value, -shift) + 0.5), -limit, limit)


def _round_partial(partial: Floats, limit: int) -> Floats:
    """Drop the guard bits, then limit; the bias holds the half that makes it round half up."""
    return np.clip(np.floor(np.ldexp(partial, -GUARD_BITS)), -limit, limit)


class _Lookup:
    """A table spelled out: one float64 per input integer."""

    def __init__(self, table: ActivationTable) -> None:
        self._centre = table.input.maximum
        domain = np.arange(-self._centre, self._centre + 1)
        self._values = table.compute(domain).astype(np.float64)

    def __call__(self, value: Floats) -> Floats:
        return self._values[value.astype(np.int64) + self._centre]


def _scaled(weights: IntArray, shift: IntArray, align: int) -> Floats:
    """Weights transposed, each row divided by two to the shift that its sums undergo."""
    return np.ldexp(weights.astype(np.float64).T, align - shift)


class _LstmLayer:
    def __init__(self, layer: QuantizedLstm, shape: LayerShape, numerics: Numerics) -> None:
        align = numerics.accumulator.align
        self.relu = shape.input_relu
        self.units = shape.outputs
        self._w_ih = _scaled(layer.w_ih, layer.shift_ih, align)
        self._w_hh = _scaled(layer.w_hh, layer.shift_hh, align)
        self._bias = layer.bias.astype(np.float64)
        self._numerics = numerics
        self._sigmoid = _Lookup(numerics.sigmoid)
        self._tanh = _Lookup(numerics.tanh)
        self._cell_tanh = _Lookup(numerics.cell_tanh)

    def input_part(self, x: Floats) -> Floats:
        """Return the input's share of the partial sums, for all steps at once."""
        x = np.maximum(x, 0.0) if self.relu else x
        return np.floor(x @ self._w_ih)

    def recurrent_part(self, h: Floats) -> Floats:
        """Return what the hardware parks: the recurrent share and the bias."""
        return np.floor(h @ self._w_hh) + self._bias

    def step(self, part: Floats, h: Floats, c: Floats) -> tuple[Floats, Floats, Floats]:
        """Return new h, new c and which cells were limited."""
        numerics, units = self._numerics, self.units
        pre = _round_partial(part + self.recurrent_part(h), numerics.preactivation.maximum)
        i = self._sigmoid(pre[:, :units])
        f = self._sigmoid(pre[:, units : 2 * units])
        g = self._tanh(pre[:, 2 * units : 3 * units])
        o = self._sigmoid(pre[:, 3 * units :])
        fraction = numerics.cell_sum_fraction
        total = np.ldexp(f * c, fraction - numerics.gate.fraction - numerics.cell.fraction)
        total += np.ldexp(i * g, fraction - 2 * numerics.gate.fraction)
        free = np.floor(np.ldexp(total, numerics.cell.fraction - fraction) + 0.5)
        c = np.clip(free, -numerics.cell.maximum, numerics.cell.maximum)
        argument = numerics.cell_argument
        t = self._cell_tanh(_narrow(total, fraction - argument.fraction, argument.maximum))
        hidden = numerics.hidden
        h = _narrow(o * t, 2 * numerics.gate.fraction - hidden.fraction, hidden.maximum)
        return h, c, free != c


class _DenseLayer:
    def __init__(self, layer: QuantizedDense, shape: LayerShape, numerics: Numerics) -> None:
        self._shape = shape
        self._numerics = numerics
        self._weight = _scaled(layer.weight, layer.shift, numerics.accumulator.align)
        self._bias = layer.bias.astype(np.float64)
        tables = {"sigmoid": numerics.sigmoid, "tanh": numerics.tanh}
        table = tables.get(shape.activation)
        self._lookup = None if table is None else _Lookup(table)

    def __call__(self, x: Floats) -> Floats:
        x = np.maximum(x, 0.0) if self._shape.input_relu else x
        total = np.floor(x @ self._weight) + self._bias
        output: Format = self._shape.output
        if self._lookup is None:
            value = _round_partial(total, output.maximum)
            return np.maximum(value, 0.0) if self._shape.activation == "relu" else value
        numerics = self._numerics
        value = self._lookup(_round_partial(total, numerics.preactivation.maximum))
        return _narrow(value, numerics.gate.fraction - output.fraction, output.maximum)


class Golden:
    """Bit-exact model of a quantised network.

    Parameters
    ----------
    network
        Integers and formats; what the weight image of a build holds.
    """

    def __init__(self, network: QuantizedNetwork) -> None:
        self.network = network
        pairs = list(zip(network.layers, network.shapes, strict=True))
        self._lstm = [
            _LstmLayer(layer, shape, network.numerics)
            for layer, shape in pairs
            if isinstance(layer, QuantizedLstm)
        ]
        self._dense = [
            _DenseLayer(layer, shape, network.numerics)
            for layer, shape in pairs
            if isinstance(layer, QuantizedDense)
        ]

    def run(self, x: IntArray, state: State | None = None, lengths: IntArray | None = None) -> GoldenResult:
        """Run whole sequences.

        Parameters
        ----------
        x
            Integers of the input format, ``(T, N, inputs)``.
        state
            h and c of each LSTM layer, ``(N, units)`` integers each; zeros if None.
        lengths
            Valid steps of each sequence, ``(N,)``; all if None.

        Raises
        ------
        InputError
            If ``x`` has another shape.
        """
        if x.ndim != 3 or x.shape[2] != self.network.inputs:
            raise InputError(f"x must be (T, N, {self.network.inputs}), not {x.shape}")
        steps, batch, _ = x.shape
        valid = None
        if lengths is not None:
            valid = np.arange(steps)[:, None] < np.asarray(lengths)[None, :]
        values = x.astype(np.float64)
        finals_h, finals_c, saturations = [], [], 0
        for index, layer in enumerate(self._lstm):
            h = np.zeros((batch, layer.units)) if state is None else state[0][index].astype(np.float64)
            c = np.zeros((batch, layer.units)) if state is None else state[1][index].astype(np.float64)
            values, h, c, limited = self._recur(layer, values, h, c, valid)
            finals_h.append(h.astype(np.int64))
            finals_c.append(c.astype(np.int64))
            saturations += limited
        for dense in self._dense:
            values = dense(values)
        y = values.astype(np.int64)
        if valid is not None:
            y[~valid] = 0
        return GoldenResult(y, tuple(finals_h), tuple(finals_c), saturations)

    @staticmethod
    def _recur(
        layer: _LstmLayer, x: Floats, h: Floats, c: Floats, valid: NDArray[np.bool_] | None
    ) -> tuple[Floats, Floats, Floats, int]:
        parts = layer.input_part(x)
        outputs = np.empty((*x.shape[:2], layer.units))
        saturations = 0
        for step, part in enumerate(parts):
            new_h, new_c, limited = layer.step(part, h, c)
            if valid is not None:
                alive = valid[step][:, None]
                new_h, new_c = np.where(alive, new_h, h), np.where(alive, new_c, c)
                limited = limited & alive
            h, c = new_h, new_c
            outputs[step] = h
            saturations += int(np.count_nonzero(limited))
        return outputs, h, c, saturations
