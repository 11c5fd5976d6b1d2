"""Chooses by measurement what formulas leave open: candidates are built and run, and the best is taken."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.calibration import Calibration, run_golden, run_reference
from rtlstm.gen.quantise.plan import FormatChoices, Trial
from rtlstm.gen.quantise.ranges import FORMULAS, Candidate, search_sample
from rtlstm.gen.quantise.rounding import Moments
from rtlstm.sim.golden import GoldenResult, ObservedGolden
from rtlstm.sim.golden_cells import CellNetwork, GraphLayer
from rtlstm.sim.golden_lstm import LstmNetwork, WatchedLstmNetwork
from rtlstm.sim.reference import run_float
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import few_digits

Floats = NDArray[np.float64]

_HELD, _FEW_HELD, _FEW_STEPS = 4, 2, 2048
"""One of so many sequences, or of so many parts of a single one, is held back from the ranges: of a few steps
more, as errors of fewer say little."""
_LEAST_STEPS = 16
"""Steps that the part held back has at least; else candidates are tried on all data."""
_MOMENT_STEPS, _MOMENT_PIECE = 4096, 64
"""Steps of which moments are taken, at most, and steps of a piece of them."""
_TRIAL_PIECE = 256
"""Steps of a piece in trials: errors may grow from step to step, so it is long."""


_Step = tuple[str, str, dict[str, Any], float]
_TRIED: tuple[_Step, ...] = (
    ("all", "by formulas", {}, 1.0),
    ("rounding of weights", "cancelling", {"cancelling": True}, 1.1),
    ("bits of h", "1 more", {"more_hidden_bits": 1}, 0.95),
    ("ranges of h", "layer by layer", {"hidden_share": 1.0}, 0.9),
    ("ranges of h", "layer by layer, twice as wide", {"hidden_share": 2.0}, 0.9),
    ("factors of input features", "none", {"factor_share": 0.0}, 0.98),
    ("factors of input features", "half", {"factor_share": 0.5}, 0.98),
    ("factors of input features", "powers of two", {"factor_share": 1.0}, 0.98),
    ("factors of input features", "no powers of two", {"input_fit": "balanced", "factor_share": 1.0}, 0.95),
    ("factors of input features", "as large as fits", {"input_fit": "full"}, 0.95),
    ("ranges of h", "layer by layer, 7/8 of the data's", {"hidden_share": 0.7}, 0.9),
    ("zeros of input features", "in the middle of their values", {"zero_points": True}, 0.9),
    ("range of inputs", "double", {"input_share": 2.0}, 1.05),
    ("ranges of results", "double", {"result_share": 2.0}, 1.05),
    ("ranges of c", "layer by layer", {"cells_apart": True}, 0.9),
    ("ranges of c", "double", {"cell_share": 2.0}, 1.05),
    ("bits of c", "2 more", {"more_cell_bits": 2}, 0.8),
    ("bits of c", "4 more", {"more_cell_bits": 4}, 0.8),
    ("bits of c", "6 more", {"more_cell_bits": 6}, 0.8),
    ("bits of c", "8 more", {"more_cell_bits": 8}, 0.8),
    ("bits of gates", "2 more", {"more_gate_bits": 2}, 0.8),
    ("bits of gates", "4 more", {"more_gate_bits": 4}, 0.8),
    ("range of pre-activations", "double", {"preactivation_share": 2.0}, 0.98),
    ("digits of weights", "fewer", {"fewer_terms": True}, 1.05),
)
"""What is tried one after the other, and the share of the error that it must leave at most to be taken.
Other data may have larger values: a wide range that costs nothing is taken, a narrow one must gain more, and
so must bits that cost memory. Rounding that cancels is preferred: it keeps rare large errors down, too. An
adder less in the loop of a spatial build may cost a little."""
_AGAIN = 0.5
"""What was refused is tried again if later choices leave less than this share of the error that there was:
it may have hidden what a choice gains."""


def hold_back(network: Network, data: Calibration) -> tuple[Calibration, Calibration]:
    """Return the part of the data that sets ranges, and the part on which candidates are tried.

    They are sequences of their own, or the beginning and the end of a single one. If there are too few data,
    both are all of them.
    """
    part = _HELD if data.total_steps >= _FEW_STEPS else _FEW_HELD
    if data.sequences >= part:
        held = np.arange(data.sequences) % part == part - 1
        if data.lengths[held].sum() >= _LEAST_STEPS:
            return data.take(np.flatnonzero(~held), data.steps), data.take(np.flatnonzero(held), data.steps)
    elif data.sequences == 1 and data.steps >= part * _LEAST_STEPS:
        return cut_in_time(network, data, data.steps - data.steps // part)
    return data, data


def cut_in_time(network: Network, data: Calibration, first: int) -> tuple[Calibration, Calibration]:
    """Return the ``first`` steps of a single sequence, and the others, which begin in the float state."""
    fit, state = data.take(np.array([0]), first), None
    if not network.whole_sequences:
        reached = run_reference(network, fit)
        state = reached.h, reached.c
    return fit, Calibration(data.x[first:], data.lengths - first, state)


def in_pieces(network: Network, data: Calibration, steps: int) -> Calibration:
    """Cut a single long sequence into pieces of so many steps, which run side by side and so much faster.

    Each begins in the state that the float network reaches there.
    """
    count = data.steps // steps
    if data.sequences > 1 or count < 2 or network.whole_sequences:
        return data
    states, state = [], data.state
    for first in range(0, count * steps, steps):
        x = data.x[first : first + steps]
        if state is None:
            begun = run_float(network, x[:0])
            state = begun.h, begun.c
        states.append(state)
        reached = run_float(network, x, state)
        state = reached.h, reached.c
    x = data.x[: count * steps, 0].reshape(count, steps, -1).swapaxes(0, 1)
    h, c = (
        tuple(np.concatenate(layer) for layer in zip(*part, strict=True))
        for part in zip(*states, strict=True)
    )
    return Calibration(x, np.full(count, steps), (h, c))


class Search:
    """Coordinate descent over the candidates.

    ``choose`` returns the choices of a candidate, with ranges from ``data``, those of the calibration;
    ``formats`` returns the formats that choices give. ``build`` quantises with choices; ``fine`` asks for
    formats so fine that they are like floats. ``leave`` says whether final states are results, too.
    """

    def __init__(
        self,
        network: Network,
        data: Calibration,
        choose: Callable[[Candidate, Calibration], FormatChoices],
        formats: Callable[[FormatChoices], tuple[object, ...]],
        build: Callable[[FormatChoices, bool], QuantizedNetwork],
        leave: bool,
        progress: Progress | None = None,
    ) -> None:
        self._network, self._data = network, data
        self._choose, self._formats, self._build = choose, formats, build
        self._fit, held = hold_back(network, data)
        self._held = in_pieces(network, search_sample(network, held), _TRIAL_PIECE)
        self._wanted = run_reference(network, self._held)
        self._leave, self._progress = leave, progress
        self._moments: dict[tuple[Any, ...], tuple[Moments, ...]] = {}

    def best(self) -> tuple[FormatChoices, tuple[Trial, ...]]:
        """Return the choices of the best candidate, with ranges from all data, and what was tried."""
        best, least = FORMULAS, math.inf
        trials: list[Trial] = []
        tried: set[tuple[bool, tuple[object, ...]]] = set()
        refused: list[tuple[_Step, float]] = []
        steps: Sequence[_Step] = _TRIED
        while steps:
            for number, step in enumerate(steps):
                if self._progress:
                    self._progress("try formats", number, len(steps))
                choice, value, change, share = step
                candidate = best.replace(**change)
                choices = self._choose(candidate, self._fit)
                try:
                    made = candidate.cancelling, self._formats(choices)
                    if made in tried:
                        refused.append((step, least))
                        continue
                    network = self._build(self._with_moments(choices, self._fit), False)
                    # An existing device may hold the ranges of a part of the data, and not those of all.
                    self._formats(self._choose(candidate, self._data))
                except ConfigurationError:
                    if not trials:  # The settings themselves cannot be built.
                        raise
                    continue
                tried.add(made)
                error = self._error(network)
                taken = error < share * least or not trials
                trials.append(Trial(choice=choice, value=value, error=error, taken=taken))
                if taken:
                    best, least = candidate, error
                else:
                    refused.append((step, least))
            steps, refused = [step for step, then in refused if least < _AGAIN * then], []
        return self._with_moments(self._choose(best, self._data), self._data), tuple(trials)

    def _with_moments(self, choices: FormatChoices, data: Calibration) -> FormatChoices:
        if not choices.candidate.cancelling:
            return choices
        key = id(data), choices.input_factors, choices.input_offsets
        if key not in self._moments:
            self._moments[key] = measure_moments(self._network, self._build(choices, True), data)
        return replace(choices, moments=self._moments[key])

    def _error(self, network: QuantizedNetwork) -> float:
        return few_digits(self._relative_error(network, run_golden(network, self._held)))

    def _relative_error(self, network: QuantizedNetwork, found: GoldenResult) -> float:
        alive, wanted = self._held.alive, self._wanted
        y = network.shapes[-1].output.to_floats(found.y)
        errors = [_relative(y[alive], wanted.y[alive])]
        if self._leave:
            # A GRU's state is its h.
            kept = [shape for shape in network.shapes if shape.has_state]
            c = [
                shape.state.to_floats(codes)
                for shape, codes in zip(kept, found.c, strict=True)
                if shape.kind == "lstm" and shape.state is not None
            ]
            errors += [_relative(*pair) for pair in zip(c, wanted.c, strict=True)]
        return float(np.sqrt(np.mean(np.square(errors))))


def _relative(found: Floats, wanted: Floats) -> float:
    """Return the rms error relative to the spread of each value, or to the largest one without a spread."""
    spread = np.sqrt(wanted.var(axis=0).mean()) or np.abs(wanted).max(initial=0.0) or 1.0
    return float(np.sqrt(np.mean((found - wanted) ** 2)) / spread)


class _Watched(GraphLayer):
    """A layer that keeps what its rows multiply."""

    def __init__(self, *layer: Any) -> None:
        super().__init__(*layer)
        self.reads: list[list[IntArray]] = [[], []] if self.shape.recurrent else [[]]
        """The values of each vector that it reads, in each step, ``(N, values)``."""

    def sums(self, x: IntArray, h: IntArray | None, partials: Floats | None) -> Floats:
        """Compute the rows' sums, and keep what they read."""
        self.reads[0].append((np.maximum(x, 0) if self.shape.input_relu else x)[:, : self.shape.inputs])
        if h is not None:
            self.reads[1].append(h)
        return super().sums(x, h, partials)


def _watch(part: QuantizedNetwork, _: int) -> tuple[LstmNetwork | CellNetwork, list[Any]]:
    """Return a model whose layers keep what their rows multiply, and where they do."""
    unit = part.numerics.unit
    if isinstance(unit, FusedUnit):
        model = WatchedLstmNetwork(part, unit)
        return model, model.reads
    layers = [_Watched(*layer, part.numerics) for layer in zip(part.layers, part.shapes, strict=True)]
    return CellNetwork(part, layers), [layer.reads for layer in layers]


def measure_moments(model: Network, network: QuantizedNetwork, data: Calibration) -> tuple[Moments, ...]:
    """Return the moments of what each layer's rows multiply, in real units, on a sample of the data.

    ``network`` is the model in fine formats.
    """
    data = in_pieces(model, data.sample(_MOMENT_STEPS), _MOMENT_PIECE)
    golden = ObservedGolden(network, _watch)
    golden.run(network.numerics.quantise_input(data.x), data.integer_state(network), data.lengths)

    def values(index: int, reads: Any, reverse: bool) -> Floats:
        """Return what a layer reads in steps that are valid, in its order: ``(steps, columns)``."""
        alive, sources = data.alive[:: -1 if reverse else 1], network.sources(index)
        parts = zip(sources, reads, strict=True)
        return np.concatenate([form.to_floats(np.asarray(read)[alive]) for form, read in parts], axis=1)

    return tuple(
        Moments.of(values(index, reads, reverse)) for index, (reads, reverse) in enumerate(golden.observed())
    )
