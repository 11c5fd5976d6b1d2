"""The golden model of any network: its cells' graphs, node by node, in integers.

Sums are floats that hold integers exactly, as in :mod:`rtlstm.sim.golden_lstm`; all later values are int64.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.evaluate import Arithmetic, evaluate
from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.fixed import IntArray, round_odd, saturate
from rtlstm.spec.numerics import (
    GUARD_BITS,
    SKIPS,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    joins_sums,
    scale_factors,
)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Integers(Arithmetic[Node, IntArray]):
    """Computes a graph in the integers of its nodes' formats."""

    def __init__(self, graph: CellGraph, numerics: Numerics) -> None:
        super().__init__(graph)
        self._numerics = numerics

    def _drop(self, at: int, arg: int) -> int:
        """Return the fraction bits that a node has fewer than one that it reads."""
        return self.operations[arg].format.fraction - self.operations[at].format.fraction

    def constant(self, at: int) -> IntArray:
        """Return a constant."""
        return np.asarray(self.operations[at].value, dtype=np.int64)

    def align(self, at: int, terms: list[IntArray]) -> list[IntArray]:
        """Return the two terms of a sum or difference in its unit."""
        args = self.operations[at].args
        return [term << -self._drop(at, arg) for term, arg in zip(terms, args, strict=True)]

    def clip(self, at: int, x: IntArray) -> IntArray:
        """Clip to a magnitude."""
        limit = self.operations[at].value
        return np.clip(x, -limit, limit)

    def apply(self, at: int, x: IntArray) -> IntArray:
        """Look up in a table, or compute a piecewise linear function."""
        function = self._numerics.function(self.operations[at])
        return function.look_up(x) if isinstance(function, ActivationTable) else function.compute(x)

    def normalise(self, at: int, x: IntArray, gain: IntArray | None) -> IntArray:
        """Normalise over the units."""
        norm = self._numerics.norms[self.operations[at].index]
        return norm.normalise(x, self._numerics.tables[norm.table], gain)

    def round(self, at: int, x: IntArray) -> IntArray:
        """Narrow to the node's format."""
        node = self.operations[at]
        drop = self._drop(at, node.args[0])
        if node.kind == "odd":
            return round_odd(x, drop)
        if node.kind == "floor":
            dropped: IntArray = x >> drop if drop >= 0 else x << -drop
            return np.clip(dropped, ~node.format.maximum, node.format.maximum)
        return saturate(self.unlimited(at, x), node.format.bits)

    def unlimited(self, at: int, x: IntArray) -> IntArray:
        """Round half up to a node's format, without its limit."""
        form = self.operations[at].format
        return form.round_codes(x, form.fraction + self._drop(at, self.operations[at].args[0]))


class GraphLayer:
    """Constants of a layer, and its step: sums, then what its cell makes of them."""

    def __init__(self, layer: QuantizedLayer, shape: LayerShape, numerics: Numerics) -> None:
        self.shape = shape
        self.numerics = numerics
        self.graph = numerics.cells[shape.cell]
        self._cell = Integers(self.graph, numerics)
        self._align = numerics.accumulator.align
        self._maximum = (1 << (numerics.sum_bits(shape.cell) - 1)) - 1
        self._w_rec: Floats | None = None
        self._recurrent_scale: Floats | None = None
        if isinstance(layer, QuantizedDense):
            self._w_in = self._scaled(layer.weight, layer.shift)
            self._scale = scale_factors(layer.scale)
        else:
            self._w_in = self._scaled(layer.w_ih, layer.shift_ih)
            self._w_rec = self._scaled(layer.w_hh, layer.shift_hh)
            self._scale = scale_factors(layer.scale_ih)
            self._recurrent_scale = scale_factors(layer.scale_hh)
        self._constants = () if layer.parameters is None else [*layer.parameters.T]
        self._bias = layer.bias.astype(np.float64)

    def _scaled(self, weights: IntArray, shift: IntArray) -> Floats:
        return np.ldexp(weights.astype(np.float64).T, self._align - shift)

    def sums(self, x: IntArray, h: IntArray | None, partials: Floats | None) -> Floats:
        """Return the rows' sums, with guard bits; input part and recurrent part are rounded separately."""
        # A layer that recalls h may read fewer values than there are.
        read = (np.maximum(x, 0) if self.shape.input_relu else x)[:, : self.shape.inputs]
        # BLAS may set the flag of an invalid operation for lanes of a vector that hold no value.
        if self.shape.kind == "norm":
            return np.ldexp(read.astype(np.float64), GUARD_BITS)
        with np.errstate(invalid="ignore"):
            total = self._part(read @ self._w_in, self._scale)
            if self._w_rec is not None:
                assert h is not None
                total = total + self._part(h @ self._w_rec, self._recurrent_scale)
        return np.asarray(total + self._bias + (0.0 if partials is None else partials))

    def _part(self, sums: Floats, scale: Floats | None) -> Floats:
        part = self.round_down(sums)
        return part if scale is None else self.round_down(part * scale)

    @staticmethod
    def round_down(sums: Floats) -> Floats:
        """Round a part's sums, as the hardware does when it shifts them."""
        return np.floor(sums)

    def preactivations(self, sums: Floats) -> IntArray:
        """Return the rows' pre-activations in units of their format, saturated."""
        return np.clip(np.floor(sums * 0.5**GUARD_BITS), ~self._maximum, self._maximum).astype(np.int64)

    def by_gate(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Split the rows' values, ``(N, rows)``, into those of each gate, ``(N, units)``."""
        units = self.shape.outputs
        return [rows[:, first : first + units] for first in range(0, rows.shape[1], units)]

    def results(self, sums: Floats, state: IntArray | None) -> tuple[IntArray, IntArray | None, Mask]:
        """Return results, the new state, and which of its values saturated."""
        values = evaluate(self._cell, self.by_gate(self.preactivations(sums)), state, self._constants)
        shape, at = (len(sums), self.shape.outputs), self.graph.state
        kept, saturated = None, np.zeros(shape, dtype=np.bool_)
        if at is not None:
            kept, node = np.broadcast_to(values[at], shape), self.graph.nodes[at]
            limit = node.format.maximum
            # Only a value at the limit can be one that was beyond.
            if node.kind == "narrow" and (kept.max(initial=0) == limit or kept.min(initial=0) == -limit):
                saturated = self._cell.unlimited(at, values[node.args[0]]) != kept
        return np.broadcast_to(values[self.graph.result], shape), kept, saturated


class CellStream:
    """``batch`` sequences, step by step, with their state kept between."""

    def __init__(self, network: "CellNetwork", h: Sequence[IntArray], c: Sequence[IntArray]) -> None:
        self._network = network
        self._h = list(h)
        self._c = list(c)
        self.cell_saturations = 0

    @property
    def h(self) -> tuple[IntArray, ...]:
        """h of each recurrent layer, ``(N, values)``."""
        return tuple(self._h)

    @property
    def c(self) -> tuple[IntArray, ...]:
        """The cell state of each layer that keeps one, ``(N, units)``."""
        return tuple(self._c)

    def step(self, x: IntArray, alive: Mask | None = None) -> IntArray:
        """Compute a step, ``(N, inputs)`` to ``(N, outputs)``; sequences not ``alive`` keep their state."""
        given: list[IntArray] = []
        partials, shapes = None, self._network.shapes
        c_number = -1
        feeds = self._network.h_numbers
        for index, layer in enumerate(self._network.layers):
            shape, h = layer.shape, None
            if shape.recurrent:
                h = self._h[feeds[index + shape.feedback]]
            c_number += shape.has_state
            stateful = layer.graph.reads_state or layer.graph.state is not None
            state = self._c[c_number] if stateful and c_number >= 0 else None
            values = given[index - shape.before] if index else x
            partials = layer.sums(values, h, partials if joins_sums(shapes, index) else None)
            if shape.kind in SKIPS:
                given.append(values)
                continue
            values, kept, saturated = layer.results(partials, state)
            given.append(values)
            if kept is not None:
                self.cell_saturations += int((saturated if alive is None else saturated & alive).sum())
                self._c[c_number] = _where(alive, kept, self._c[c_number])
            if index in feeds:
                # The old h is not read again in this step.
                self._h[feeds[index]] = _where(alive, values, self._h[feeds[index]])
        return given[-1]


def _zeros(batch: int, sizes: list[int]) -> list[IntArray]:
    return [np.zeros((batch, size), dtype=np.int64) for size in sizes]


def _where(alive: Mask | None, new: IntArray, old: IntArray) -> IntArray:
    return np.array(new) if alive is None else np.where(alive, new, old)


class CellNetwork:
    """All layers of a network, with their initial state; ``layers`` may compute them otherwise."""

    def __init__(self, network: QuantizedNetwork, layers: Sequence[GraphLayer] = ()) -> None:
        pairs = zip(network.layers, network.shapes, strict=True)
        self.layers = layers or [GraphLayer(layer, shape, network.numerics) for layer, shape in pairs]
        self.shapes = network.shapes
        ends = [index + shape.feedback for index, shape in enumerate(self.shapes) if shape.has_h]
        self.h_numbers = {end: number for number, end in enumerate(ends)}
        """Number of the h that a layer's results are, by the layer's index."""

    def zeros(self, batch: int) -> tuple[list[IntArray], list[IntArray]]:
        """Return the zero state."""
        shapes = [layer.shape for layer in self.layers]
        h = [shapes[i + shape.feedback].outputs for i, shape in enumerate(shapes) if shape.has_h]
        c = [shape.outputs for shape in shapes if shape.has_state]
        return _zeros(batch, h), _zeros(batch, c)

    def stream(self, h: list[IntArray], c: list[IntArray]) -> CellStream:
        """Begin sequences with a state."""
        return CellStream(self, h, c)

    def run(
        self, x: IntArray, h: list[IntArray], c: list[IntArray], alive: Mask | None
    ) -> tuple[IntArray, CellStream]:
        """Run ``(T, N, inputs)``, where ``alive``, ``(T, N, 1)``; return y and the final state."""
        stream = self.stream(h, c)
        y = [stream.step(now, None if alive is None else alive[t]) for t, now in enumerate(x)]
        return np.stack(y), stream
