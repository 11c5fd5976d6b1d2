"""Rare cases of arithmetic and of control: builds that can reach them, and plays that do.

A play tells a simulated core and the golden device the same, and the second model beside them. That model
counts which rare cases the core was given.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.host.state import StateLayout
from rtlstm.spec.activations.functions import SIGMOID, TANH
from rtlstm.spec.cells.description import CellBuilder
from rtlstm.spec.family import Pipeline
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Custom, Dense, Gru, Layer, Lstm, Network
from rtlstm.spec.numerics import QuantizedDense, QuantizedNetwork, QuantizedRecurrent
from rtlstm.spec.packing import pack
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import step_cycles
from support.device_pair import Pair
from support.random_builds import write_build
from support.second_model import SecondModel, State, limit_events, rounding_events

__all__ = ["BUILDS", "CONTROL", "Play", "RareBuild", "play_all"]

INPUTS, UNITS, STEPS = 2, 3, 200
NARROW = QuantizationSettings(
    weight_bits=6, data_bits=4, gate_bits=6, cell_bits=9, cell_range=2.0, input_range=1.0
)
"""So few bits that a few thousand draws meet every tie and limit."""

CONTROL = {
    "state written",
    "stream reset",
    "other weights loaded",
    "output not wanted",
    "input waits for an output that is held",
}
"""What happens between and beside steps."""

_PREACTIVATION = limit_events("pre-activation")
# No product of two values below 1 is half a unit beyond h's largest.
_H = rounding_events("h") - {"h: tie at +max", "h: tie at -max"}
_ODD = {f"h: at the end of two steps, {sign}" for sign in ("positive", "negative")}
_ODD |= {f"h: nothing of a negative argument, by {factor}" for factor in ("o", "tanh")}
_LSTM = rounding_events("c") | limit_events("tanh's argument") | _H | _PREACTIVATION
_POSITIVE = {
    event for event in rounding_events("dense sigmoid") if "-max" not in event and "negative" not in event
}


@dataclass(frozen=True)
class RareBuild:
    """A network, the hardware that computes it, and the rare cases that it can meet."""

    network: QuantizedNetwork
    manifest: Manifest
    cases: frozenset[str]

    def write(self, folder: Path) -> Path:
        """Write the build folder."""
        return write_build(folder, self.network, self.manifest)

    @property
    def retrained(self) -> QuantizedNetwork:
        """Other weights of the same sizes: all of the other sign."""
        layers = []
        for layer in self.network.layers:
            if isinstance(layer, QuantizedRecurrent):
                layers.append(replace(layer, w_ih=-layer.w_ih, w_hh=-layer.w_hh))
            else:
                assert isinstance(layer, QuantizedDense)
                layers.append(replace(layer, weight=-layer.weight))
        return replace(self.network, layers=tuple(layers))


def _lstm(rng: Generator) -> Lstm:
    shapes = (4 * UNITS, INPUTS), (4 * UNITS, UNITS), (4 * UNITS,)
    w_ih, w_hh, bias = (rng.normal(size=shape) * 2.5 for shape in shapes)
    return Lstm(w_ih=w_ih, w_hh=w_hh, bias=bias)


def _dense(rng: Generator, inputs: int, outputs: int, activation: str, scale: float = 3.0) -> Dense:
    weight = rng.normal(size=(outputs, inputs)) * scale
    return Dense(weight=weight, bias=np.zeros(outputs), activation=activation)


def _own(rng: Generator) -> Custom:
    """Its c is so far from zero that a unit that is not there would be limited."""
    cell = CellBuilder()
    share = cell.apply(SIGMOID, cell.gate(0))
    kept = cell.keep(share * cell.state() + (cell.gate(1) + 3.0))
    built = cell.build("offset", cell.apply(TANH, cell.gate(2)) * cell.apply(TANH, kept))
    rows = 3 * UNITS
    w_ih, w_hh = rng.normal(size=(rows, INPUTS)) * 8, rng.normal(size=(rows, UNITS)) * 0.5
    return Custom(cell=built, w_ih=w_ih, w_hh=w_hh, bias=np.zeros(rows))


def _gru(rng: Generator) -> Gru:
    shapes = (3 * UNITS, UNITS), (3 * UNITS, UNITS), (3 * UNITS,), (3 * UNITS,)
    w_ih, w_hh, bias_ih, bias_hh = (rng.normal(size=shape) * 2 for shape in shapes)
    return Gru(w_ih=w_ih, w_hh=w_hh, bias_ih=bias_ih, bias_hh=bias_hh)


def _build(
    name: str,
    layers: list[Layer],
    parameters: Parameters,
    cases: set[str],
    settings: QuantizationSettings = NARROW,
) -> RareBuild:
    """Calibrated on small inputs, so that dense layers are limited on large ones."""
    data = np.random.default_rng(5).uniform(-0.2, 0.2, (6, 2, INPUTS))
    network = quantise(Network(layers=tuple(layers)), settings, data)
    manifest = Manifest.create(name, network.shapes, parameters, network.numerics)
    return RareBuild(network, manifest, frozenset(cases | {"input: lowest code"}))


def _builds() -> Iterator[RareBuild]:
    rng = np.random.default_rng(1)
    two = {"gate_units": 2, "macs": 2, "lanes": 8, "streams": 2}
    relu = {f"relu: {case}" for case in ("negative", "zero", "tie, positive", "at +max", "one beyond +max")}
    yield _build(
        "relu", [_lstm(rng), _dense(rng, UNITS, 3, "relu")], Parameters(**two, beat_out=2), _LSTM | relu
    )
    deep = Pipeline(cell=4, result=2, narrow=4, collect=2)
    yield _build(
        "identity",
        [_lstm(rng), _dense(rng, UNITS, 3, "identity")],
        Parameters(lanes=4, macs=1, streams=3, pipeline=deep),
        _LSTM | limit_events("identity") | {f"identity: tie, {sign}" for sign in ("positive", "negative")},
    )
    yield _build(
        "activated",
        [_lstm(rng), _dense(rng, UNITS, 2, "sigmoid"), _dense(rng, 2, 12, "tanh", 1.5)],
        Parameters(lanes=4, macs=2, streams=2, beat_out=4),
        _LSTM | _POSITIVE | rounding_events("dense tanh"),
    )
    yield _build(
        "odd",
        [_lstm(rng), _dense(rng, UNITS, 3, "tanh", 1.5)],
        Parameters(**two, beat_out=2, pipeline=Pipeline(result=1)),
        (_LSTM - _H) | _ODD,
        NARROW.replace(hidden_rounding="odd", data_bits=6),
    )
    yield _build(
        "cells",
        [_own(rng), _gru(rng)],
        Parameters(**two, beat_out=2),
        _PREACTIVATION | rounding_events("kept value") | rounding_events("narrowed value"),
    )


BUILDS = {build.manifest.name: build for build in _builds()}


class Play:
    """A core and its golden device, and the second model, told the same one after the other."""

    def __init__(self, build: RareBuild, both: Pair) -> None:
        self.build = build
        self.both = both
        self.events: Counter[str] = Counter()
        self._model = self._second(build.network)
        self._layout = StateLayout(build.manifest)
        streams = build.manifest.parameters.streams
        self._states = [self._model.zeros() for _ in range(streams)]
        self._warm: set[int] = set()

    def _second(self, network: QuantizedNetwork) -> SecondModel:
        model = SecondModel(network)
        model.events = self.events
        return model

    @property
    def cases(self) -> frozenset[str]:
        """All rare cases that the build can meet."""
        return self.build.cases | CONTROL

    @property
    def met(self) -> dict[str, int]:
        """How often the core was given each of them."""
        return {case: self.events[case] for case in sorted(self.cases)}

    def write_state(self, stream: int, state: State) -> None:
        """Give a stream its state."""
        self.both.write_state(stream, [np.array(h) for h in state.h], [np.array(c) for c in state.c])
        self._states[stream] = state.copy()
        self._warm.discard(stream)
        self.events["state written"] += 1

    def reset(self, stream: int) -> None:
        """Set a stream's state to zero."""
        for accelerator in self.both.both:
            accelerator.device.reset([stream])
        self.both.check_flags()
        self._states[stream] = self._model.zeros()
        self._warm.discard(stream)
        self.events["stream reset"] += 1

    def load(self, network: QuantizedNetwork) -> None:
        """Load other weights; the streams keep their states."""
        image = pack(network, self.build.manifest)
        for accelerator in self.both.both:
            accelerator.device.load(image, verify=False, keep_states=True)
        self.both.check_flags()
        saturations = self._model.saturations
        self._model = self._second(network)
        self._model.saturations = saturations
        self._warm.clear()
        self.events["other weights loaded"] += 1

    def exchange(self, streams: IntArray, x: IntArray, suppress: IntArray | None = None) -> None:
        """Run steps; every output, state and register is what all three say."""
        found = self.both.exchange(streams, x, suppress)
        for step, stream in enumerate(streams.tolist()):
            y = self._model.step(x[step].tolist(), self._states[stream])
            silent = suppress is not None and bool(suppress[step])
            assert found[step].tolist() == ([0] * len(y) if silent else y)
            self.events["output not wanted"] += silent
        golden = self.both.both[1].device
        for stream, state in enumerate(self._states):
            h, c = golden.read_state(stream)
            assert [part.tolist() for part in h] == state.h
            assert [part.tolist() for part in c] == state.c
        self.both.check_saturations(self._model.saturations)
        self._count_waits(streams, suppress)
        self._warm.update(streams.tolist())

    def _count_waits(self, streams: IntArray, suppress: IntArray | None) -> None:
        """Count steps that the core took later than it could: outputs were held, with no room for more."""
        manifest, cycles = self.build.manifest, self.both.transport.last_cycles
        suppressed = None if suppress is None else suppress.tolist()
        free = step_cycles(manifest.program, manifest.parameters, streams.tolist(), self._warm, suppressed)
        accepted = cycles.accepted - cycles.begun[0]
        late = accepted > np.array([first for first, _ in free])
        assert self.both.stalled or not late.any()
        self.events["input waits for an output that is held"] += int(np.count_nonzero(late))

    def meet(self, seed: int, most: int = 4000) -> None:
        """Write states from which a single step meets a rare case, until all were met, and take those steps.

        Inputs and states are drawn, the cell states of some units are solved for ties at limits, and the
        second model says what the step meets.
        """
        rng, numerics = np.random.default_rng(seed), self.build.network.numerics
        missing, trial = set(self.build.cases), SecondModel(self.build.network)
        for _ in range(most):
            x = rng.integers(numerics.input.lowest, numerics.input.maximum, INPUTS, endpoint=True)
            for state in self._draw(rng, trial, x.tolist()):
                trial.events.clear()
                trial.step(x.tolist(), state.copy())
                if missing.isdisjoint(trial.events):
                    continue
                missing -= set(trial.events)
                stream = int(rng.integers(len(self._states)))
                self.write_state(stream, state)
                self.exchange(np.array([stream]), x[None])
            if not missing:
                return

    def _draw(self, rng: Generator, trial: SecondModel, x: list[int]) -> Iterator[State]:
        """Yield a random state, and then those that put a unit half a step or a step beyond a limit."""
        h_most, c_most = self.build.network.numerics.input.maximum, self.build.network.numerics.cell.maximum
        h = [rng.integers(-h_most, h_most, size, endpoint=True) for size in self._layout.sizes]
        c = [rng.integers(-c_most, c_most, size, endpoint=True) for size in self._layout.cell_sizes]
        state = State.of(h, c)
        yield state.copy()
        # What is rounded of a unit is linear in its cell state: two steps tell the line.
        lines = []
        for value in (0, 1):
            trial.rounded.clear()
            state.c[0] = [value] * len(state.c[0])
            trial.step(x, state.copy())
            lines.append(list(trial.rounded))
        for at_zero, at_one in zip(*lines, strict=True):
            slope, most = at_one.value - at_zero.value, 2 ** (at_zero.bits - 1) - 1
            for halves in (2 * most + 1, 2 * most + 2) if slope and at_zero.drop > 0 else ():
                for side in (-1, 1):
                    wanted = side * halves * 2 ** (at_zero.drop - 1)
                    solved = (wanted - at_zero.value) // slope
                    if abs(solved) <= c_most:
                        near = state.copy()
                        near.c[0][at_zero.unit] = solved
                        yield near


def play_all(build: RareBuild, both: Pair) -> Play:
    """Give a core every rare case, and then steps, stalls, resets and other weights; return what was met."""
    form, count = build.network.numerics.input, build.manifest.parameters.streams
    rng = np.random.default_rng(7)

    def steps(number: int) -> tuple[IntArray, IntArray]:
        x = rng.integers(form.lowest, form.maximum, (number, INPUTS), endpoint=True)
        return rng.integers(0, count, number), x

    play = Play(build, both)
    play.meet(seed=3)
    play.exchange(*steps(STEPS))
    play.reset(0)
    play.exchange(*steps(20))
    streams, x = steps(60)
    play.exchange(streams, x, rng.random(60) < 0.5)
    # Each beat of the output is held for a hundred cycles: longer than steps take.
    both.stalls(1, 0.0, 0.99)
    play.exchange(*steps(30))
    both.stalls(1, 0.5, 0.5)
    play.exchange(*steps(30))
    both.stalls(0, 0.0, 0.0)
    play.load(build.retrained)
    play.exchange(*steps(60))
    play.reset(count - 1)
    play.exchange(*steps(5))
    return play
