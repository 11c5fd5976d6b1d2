"""The golden model: the numbers that the RTL must produce, on every bit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.golden_cells import CellNetwork, CellStream
from rtlstm.sim.golden_lstm import LstmNetwork, LstmStream
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.program.passes import part_layers, reverse_valid

Mask = NDArray[np.bool_]
Observed = TypeVar("Observed")
Make = Callable[[QuantizedNetwork, int], tuple[LstmNetwork | CellNetwork, Sequence[Observed]]]
GoldenState = tuple[Sequence[IntArray], Sequence[IntArray]]


@dataclass(frozen=True)
class GoldenResult:
    """Integers of a run over ``(T, N, inputs)``."""

    y: IntArray
    """Outputs, ``(T, N, outputs)``; zero past a sequence's length."""
    h: tuple[IntArray, ...]
    """h of each recurrent layer after the last valid step, ``(N, values)``."""
    c: tuple[IntArray, ...]
    """Cell state of each layer that keeps one after the last valid step, ``(N, units)``."""
    cell_saturations: int
    """Number of cell states that saturated."""


class Golden:
    """Bit-exact model of a quantised network.

    ``network`` has integers and formats: what the weight image of a build holds.
    """

    def __init__(self, network: QuantizedNetwork) -> None:
        self.network = network
        self._passes = [
            [(part, self._part(layers)) for part, layers in zip(parts, indices, strict=True)]
            for parts, indices in zip(network.passes, part_layers(network.passes), strict=True)
        ]
        if not self._passes:
            self._model = self._layers()

    def _part(self, layers: range) -> "Golden":
        """Return the model of some layers, as they go through a sequence forward."""
        return Golden(self.network.part(layers))

    def _layers(self) -> LstmNetwork | CellNetwork:
        """Return the model of all layers, which go forward."""
        unit = self.network.numerics.unit
        if isinstance(unit, FusedUnit):
            return LstmNetwork(self.network, unit)
        return CellNetwork(self.network)

    def stream(self, batch: int = 1, state: GoldenState | None = None) -> LstmStream | CellStream:
        """Begin ``batch`` sequences that are computed step by step; ``state`` as in :meth:`run`.

        Raises InputError if a layer needs a sequence's last step first.
        """
        if self._passes:
            raise InputError("a network with a reverse direction takes whole sequences, not steps: use run")
        return self._model.stream(*self._begin(batch, state))

    def run(
        self, x: IntArray, state: GoldenState | None = None, lengths: IntArray | None = None
    ) -> GoldenResult:
        """Run whole sequences.

        ``x`` are integers of the input format, ``(T, N, inputs)``. ``state`` is h of each recurrent layer and
        the cell state of each that keeps one, ``(N, units)`` integers each; zeros if None. ``lengths`` are
        valid steps of each sequence, ``(N,)``; all if None. Raises InputError if ``x`` has another shape, or
        values beyond the input format's.
        """
        self.check(x)
        steps = len(x)
        alive = None
        if lengths is not None:
            alive = np.arange(steps)[:, None, None] < np.asarray(lengths)[None, :, None]
        return self._run(x, state, alive)

    def _run(self, x: IntArray, state: GoldenState | None, alive: Mask | None) -> GoldenResult:
        """Run whole sequences where they are ``alive``, ``(T, N, 1)``."""
        if self._passes:
            return self._run_passes(x, state, alive)
        y, stream = self._model.run(x, *self._begin(x.shape[1], state), alive)
        if alive is not None:
            y[~alive[:, :, 0]] = 0
        return GoldenResult(y, stream.h, stream.c, stream.cell_saturations)

    def _run_passes(self, x: IntArray, state: GoldenState | None, alive: Mask | None) -> GoldenResult:
        """Run pass after pass: backward, a sequence is not alive until its last step, and so begins there."""
        values, results = x, []
        given = None if state is None else (iter(state[0]), iter(state[1]))
        for parts in self._passes:
            found = []
            for part, golden in parts:
                order = slice(None, None, -1 if part.reverse else 1)
                shapes = golden.network.shapes
                mine = None
                if given is not None:
                    h = [next(given[0]) for shape in shapes if shape.has_h]
                    mine = h, [next(given[1]) for shape in shapes if shape.has_state]
                result = golden._run(values[order], mine, None if alive is None else alive[order])
                y = result.y[order]
                if part.reversed_output:
                    whole = np.full(x.shape[1], len(x))
                    y = reverse_valid(y, whole if alive is None else alive[:, :, 0].sum(axis=0))
                found.append(y)
                results.append(result)
            values = np.concatenate(found, axis=-1)
        return GoldenResult(
            values,
            tuple(one for result in results for one in result.h),
            tuple(one for result in results for one in result.c),
            sum(result.cell_saturations for result in results),
        )

    def check(self, x: IntArray) -> None:
        """Raise InputError unless ``x`` is ``(T, N, inputs)`` integers of the input format."""
        form = self.network.numerics.input
        if x.ndim != 3 or x.shape[2] != self.network.inputs:
            raise InputError(f"x must be (T, N, {self.network.inputs}), not {x.shape}")
        form.check("x", x, form.lowest)

    def _begin(self, batch: int, state: GoldenState | None) -> tuple[list[IntArray], list[IntArray]]:
        return self._model.zeros(batch) if state is None else (list(state[0]), list(state[1]))


class ObservedGolden(Golden, Generic[Observed]):
    """The golden model with layers that keep what they see, or compute otherwise; for one run.

    ``make`` returns the model of a part of the network, and what is observed of each of its layers. It is
    given the part and the index of the part's first layer.
    """

    def __init__(self, network: QuantizedNetwork, make: Make[Observed], first: int = 0) -> None:
        self._make, self._first = make, first
        self._parts: list[ObservedGolden[Observed]] = []
        self._observed: Sequence[Observed] = ()
        super().__init__(network)

    def _part(self, layers: range) -> "ObservedGolden[Observed]":
        self._parts.append(ObservedGolden(self.network.part(layers), self._make, layers.start))
        return self._parts[-1]

    def _layers(self) -> LstmNetwork | CellNetwork:
        model, self._observed = self._make(self.network, self._first)
        return model

    def observed(self) -> Iterator[tuple[Observed, bool]]:
        """Yield what is observed of each layer, and whether it goes through sequences backward."""
        orders = [part.reverse for parts in self.network.passes for part in parts] or [False]
        for model, reverse in zip(self._parts or [self], orders, strict=True):
            yield from ((each, reverse) for each in model._observed)
