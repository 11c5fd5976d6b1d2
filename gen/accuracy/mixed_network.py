"""A quantised network of which some parts are in float; with none, the bits of the golden model."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.accuracy.float_layers import (
    FloatLayer,
    gate_format,
    unit_constants,
)
from rtlstm.gen.accuracy.mixed_cell import MixedCell, Part, reads_table
from rtlstm.sim.golden_cells import CellNetwork, CellStream, GraphLayer
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import GUARD_BITS, QuantizedNetwork
from rtlstm.spec.program.passes import part_layers, reverse_valid

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LayerValues:
    """A layer's results, real values, and how many of its values saturated."""

    results: Floats
    """``(T, N, outputs)``; zero past a sequence's length."""
    row_saturations: Counts
    """Pre-activations that saturated, of each row, gate by gate; 0 where they are in float."""
    state_saturations: Counts
    """States that saturated, of each unit."""
    result_saturations: Counts
    """Results that saturated, of each unit: that were more than a unit beyond their format's limit."""


@dataclass(frozen=True)
class MixedRun:
    """Real values of a run."""

    y: Floats
    """``(T, N, outputs)``; zero past a sequence's length."""
    layers: tuple[LayerValues, ...]


class _MixedLayer(GraphLayer):
    """A layer of which ``exact`` parts are in float.

    Results, and what layers read, are in units of their formats; states are real values.
    """

    def __init__(
        self, network: QuantizedNetwork, index: int, floats: FloatLayer, exact: Collection[Part]
    ) -> None:
        shape, numerics, integers = network.shapes[index], network.numerics, network.layers[index]
        graph = numerics.cells[shape.cell]
        rows: Part = "tables" if reads_table(graph, numerics) else "activations"
        self._exact_rows = rows in exact
        offsets, nothing = floats.offsets, np.zeros_like(floats.offsets)
        if "weights" in exact:
            used, constants = floats.layer, floats.constants
            more = nothing if self._exact_rows else offsets
        else:
            used, constants = integers, unit_constants(network, index)
            more = -offsets if self._exact_rows else nothing
        super().__init__(replace(used, bias=used.bias + more), shape, numerics)
        self._reals = constants
        self._mixed = MixedCell(floats.cell, floats.nodes, graph, numerics, exact)
        self._fraction = gate_format(network, index).fraction
        self.alive: Mask | None = None
        """The sequences that a step is valid in, ``(N, 1)``; all if None."""
        self.seen: list[Floats] = []
        units = shape.outputs
        self.row_saturations = np.zeros(shape.rows, dtype=np.int64)
        self.state_saturations, self.result_saturations = np.zeros((2, units), dtype=np.int64)

    def round_down(self, sums: Floats) -> Floats:  # type: ignore[override]
        """Round a part's sums, unless they are in float."""
        return sums if self._exact_rows else GraphLayer.round_down(sums)

    def results(self, sums: Floats, state: Any) -> tuple[Any, Any, Any]:
        """Return results, the new state, and which of its values saturated."""
        pre = np.ldexp(sums, -self._fraction - GUARD_BITS)
        if not self._exact_rows:
            codes = self.preactivations(sums)
            limited = np.abs(np.floor(sums * 0.5**GUARD_BITS)) > np.abs(codes)
            self.row_saturations += self._count(limited)
            pre = np.ldexp(codes.astype(np.float64), -self._fraction)
        found = self._mixed.compute(self.by_gate(pre), state, self._reals)
        self.state_saturations += self._count(found.state_saturated)
        self.result_saturations += self._count(found.result_saturated)
        self.seen.append(found.result)
        return np.ldexp(found.result, self.shape.output.fraction), found.state, found.state_saturated

    def _count(self, which: Mask) -> Counts:
        valid = which if self.alive is None else which & self.alive
        counts: Counts = valid.sum(axis=0, dtype=np.int64)
        return counts


class _MixedStream(CellStream):
    def step(self, x: IntArray, alive: Mask | None = None) -> IntArray:
        """Compute a step; layers count where sequences are ``alive``."""
        for layer in self._network.layers:
            cast(_MixedLayer, layer).alive = alive
        return super().step(x, alive)


class _MixedPart(CellNetwork):
    """Consecutive layers that go through a sequence together."""

    def __init__(self, layers: Sequence[_MixedLayer]) -> None:
        self.layers = list(layers)

    def stream(self, h: list[IntArray], c: list[IntArray]) -> CellStream:
        """Begin sequences with a state."""
        return _MixedStream(self, h, c)


class MixedNetwork:
    """A quantised network of which ``exact`` parts are in float.

    Parameters
    ----------
    network
        Integers and formats.
    floats
        Its layers in float.
    exact
        What is not rounded. With all parts, the network in float; with none, the golden model.
    """

    def __init__(
        self, network: QuantizedNetwork, floats: Sequence[FloatLayer], exact: Collection[Part]
    ) -> None:
        self._network, self._floats, self._exact = network, floats, frozenset(exact)

    def run(self, x: Floats, lengths: Counts) -> MixedRun:
        """Run real inputs, ``(T, N, inputs)``, from the zero state.

        ``lengths`` are the valid steps of each sequence, ``(N,)``.
        """
        numerics = self._network.numerics
        values: NDArray[Any] = (
            np.ldexp(x, numerics.input.fraction + numerics.input_shift)
            if "activations" in self._exact
            else numerics.quantise_input(x)
        )
        alive: Mask = np.arange(len(x))[:, None, None] < lengths[None, :, None]
        found: list[LayerValues] = []
        y: list[Floats] = []
        for parts in self._parts():
            outputs, y = [], []
            for indices, reverse, reversed_output in parts:
                layers = [
                    _MixedLayer(self._network, index, self._floats[index], self._exact) for index in indices
                ]
                order = slice(None, None, -1 if reverse else 1)
                out = self._run_part(layers, values[order], alive[order])[order]
                end = self._network.shapes[indices[-1]].output
                mine = [_values(layer, order, alive) for layer in layers]
                if reversed_output:
                    out = reverse_valid(out, lengths)
                found += mine
                outputs.append(out)
                y.append(np.ldexp(out.astype(np.float64), -end.fraction))
            values = np.concatenate(outputs, axis=-1)
        return MixedRun(np.concatenate(y, axis=-1), tuple(found))

    def _parts(self) -> Iterator[list[tuple[range, bool, bool]]]:
        """Yield the parts of each pass: their layers, and whether they and their outputs are in reverse."""
        passes = self._network.passes
        if not passes:
            yield [(range(len(self._network.shapes)), False, False)]
        for parts, indices in zip(passes, part_layers(passes), strict=True):
            yield [
                (some, part.reverse, part.reversed_output) for part, some in zip(parts, indices, strict=True)
            ]

    @staticmethod
    def _run_part(layers: list[_MixedLayer], x: NDArray[Any], alive: Mask) -> NDArray[Any]:
        part = _MixedPart(layers)
        y, _ = part.run(x, *part.zeros(x.shape[1]), None if alive.all() else alive)
        return np.where(alive, y, 0)


def _values(layer: _MixedLayer, order: slice, alive: Mask) -> LayerValues:
    results = np.where(alive, np.stack(layer.seen)[order], 0.0)
    return LayerValues(results, layer.row_saturations, layer.state_saturations, layer.result_saturations)
