"""The golden model of any network: its cells' graphs, node by node, in integers.

Sums are floats that hold integers exactly, as in :mod:`rtlstm.sim.golden_lstm`; all later values are int64.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.fixed import IntArray, round_odd, saturate
from rtlstm.spec.numerics import (
    GUARD_BITS,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
)

__all__ = ["CellNetwork", "CellStream", "GraphLayer", "evaluate"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def evaluate(
    graph: CellGraph,
    numerics: Numerics,
    gates: Sequence[IntArray],
    state: IntArray | None,
    unit_constants: IntArray | None,
) -> tuple[list[IntArray], IntArray]:
    """Compute every node of a graph.

    Parameters
    ----------
    gates
        Pre-activations in units of their format, ``(..., units)`` each.
    state
        The kept values, ``(..., units)``.
    unit_constants
        Per-unit constants, ``(units, K)``.

    Returns
    -------
    Each node's integers, and for each unit whether the kept value saturated.
    """
    values: list[IntArray] = []
    saturated = np.zeros(gates[0].shape, dtype=np.int64)
    for position, node in enumerate(graph.nodes):
        args = [values[arg] for arg in node.args]
        formats = [graph.nodes[arg].format for arg in node.args]
        match node.kind:
            case "gate":
                value = gates[node.index]
            case "state":
                assert state is not None
                value = state
            case "parameter":
                assert unit_constants is not None
                value = unit_constants[:, node.index]
            case "constant":
                value = np.asarray(node.value, dtype=np.int64)
            case "multiply":
                value = args[0] * args[1]
            case "add" | "subtract":
                a, b = (
                    arg << (node.format.fraction - form.fraction)
                    for arg, form in zip(args, formats, strict=True)
                )
                value = a + b if node.kind == "add" else a - b
            case "clamp":
                value = np.clip(args[0], -node.value, node.value)
            case "table":
                value = numerics.tables[node.index].compute(args[0])
            case "pieces":
                value = numerics.pieces[node.index].compute(args[0])
            case "floor":
                drop = formats[0].fraction - node.format.fraction
                dropped = args[0] >> drop if drop >= 0 else args[0] << -drop
                value = np.clip(dropped, ~node.format.maximum, node.format.maximum)
            case "odd":
                value = round_odd(args[0], formats[0].fraction - node.format.fraction)
            case "narrow":
                rounded = node.format.round_codes(args[0], formats[0].fraction)
                value = saturate(rounded, node.format.bits)
                if position == graph.state:
                    saturated = (rounded != value).astype(np.int64)
        values.append(np.asarray(value, dtype=np.int64))
    return values, saturated


class GraphLayer:
    """Constants of a layer, and its step: sums, then what its cell makes of them."""

    def __init__(self, layer: QuantizedLayer, shape: LayerShape, numerics: Numerics) -> None:
        self.shape = shape
        self.numerics = numerics
        self.graph = numerics.cells[shape.cell]
        self._align = numerics.accumulator.align
        self._maximum = numerics.preactivation.maximum
        self._w_rec: Floats | None = None
        self._unit_constants: IntArray | None = None
        if isinstance(layer, QuantizedDense):
            self._w_in = self._scaled(layer.weight, layer.shift)
        else:
            self._w_in = self._scaled(layer.w_ih, layer.shift_ih)
            self._w_rec = self._scaled(layer.w_hh, layer.shift_hh)
            self._unit_constants = layer.parameters
        self._bias = layer.bias.astype(np.float64)

    def _scaled(self, weights: IntArray, shift: IntArray) -> Floats:
        return np.ldexp(weights.astype(np.float64).T, self._align - shift)

    def sums(self, x: IntArray, h: IntArray | None, partials: Floats | None) -> Floats:
        """Return the rows' sums, with guard bits; input part and recurrent part are rounded separately."""
        read = np.maximum(x, 0) if self.shape.input_relu else x
        # BLAS may set the flag of an invalid operation for lanes of a vector that hold no value.
        with np.errstate(invalid="ignore"):
            total = self.round_down(read @ self._w_in)
            if self._w_rec is not None:
                assert h is not None
                total = total + self.round_down(h @ self._w_rec)
        return np.asarray(total + (self._bias if partials is None else partials))

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

    def results(self, sums: Floats, state: IntArray | None) -> tuple[IntArray, IntArray | None, IntArray]:
        """Return results, the new state, and which of its values saturated."""
        gates, units = self.by_gate(self.preactivations(sums)), self.shape.outputs
        values, saturated = evaluate(self.graph, self.numerics, gates, state, self._unit_constants)
        kept = None if self.graph.state is None else values[self.graph.state]
        shape = (len(sums), units)
        return np.broadcast_to(values[self.graph.result], shape), kept, np.broadcast_to(saturated, shape)


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
        partials = None
        h_number, c_number = 0, -1
        feeds: dict[int, int] = {}
        for index, layer in enumerate(self._network.layers):
            shape, h = layer.shape, None
            if shape.recurrent:
                h = self._h[h_number]
                feeds[index + shape.feedback] = h_number
                h_number += 1
            c_number += shape.has_state
            stateful = layer.graph.reads_state or layer.graph.state is not None
            state = self._c[c_number] if stateful else None
            values = given[index - shape.before] if index else x
            sums = layer.sums(values, h, partials if shape.continues else None)
            values, kept, saturated = layer.results(sums, state)
            given.append(values)
            partials = sums
            if kept is not None:
                self.cell_saturations += int(_where(alive, saturated, np.zeros_like(saturated)).sum())
                self._c[c_number] = _where(alive, kept, self._c[c_number])
            if index in feeds:
                # The old h is not read again in this step.
                self._h[feeds[index]] = _where(alive, values, self._h[feeds[index]])
        return given[-1]


def _zeros(batch: int, sizes: list[int]) -> list[IntArray]:
    return [np.zeros((batch, size), dtype=np.int64) for size in sizes]


def _where(alive: Mask | None, new: IntArray, old: IntArray) -> IntArray:
    return np.array(new if alive is None else np.where(alive, new, old))


class CellNetwork:
    """All layers of a network, with their initial state."""

    def __init__(self, network: QuantizedNetwork) -> None:
        pairs = zip(network.layers, network.shapes, strict=True)
        self.layers = [GraphLayer(layer, shape, network.numerics) for layer, shape in pairs]

    def zeros(self, batch: int) -> tuple[list[IntArray], list[IntArray]]:
        """Return the zero state."""
        shapes = [layer.shape for layer in self.layers]
        h = [shapes[i + shape.feedback].outputs for i, shape in enumerate(shapes) if shape.recurrent]
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
