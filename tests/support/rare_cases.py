"""Rare cases of arithmetic and of control: builds that can reach them, and scripts that do.

A script is what a core is told and how it must answer, as golden device and second model do. The second model
counts which rare cases the core is given. Each core that plays the script is compared with it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from rtlstm import Accelerator, CellBuilder, Manifest, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.host.device import Device
from rtlstm.host.state import StateLayout
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.spec.activations.functions import SIGMOID, TANH
from rtlstm.spec.family import Pipeline
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.network import Custom, Dense, Gru, Layer, Lstm, Network, Norm
from rtlstm.spec.numerics import QuantizedDense, QuantizedNetwork, QuantizedRecurrent
from rtlstm.spec.packing import pack
from rtlstm.spec.program.schedule import step_cycles
from rtlstm.spec.program.spatial import SpatialPlan
from rtlstm.spec.registers import Command, Region, Register
from support.random_builds import write_build
from support.second_model import SecondModel, State, limit_events, of_unit, rounding_events

STATE_FLAGS = 3
"""Bits of FLAGS that do not depend on time: the state is zero; the recurrent part is not ready."""

INPUTS, UNITS, STEPS = 2, 4, 200
NARROW = QuantizationSettings(
    weight_bits=6,
    data_bits=4,
    output_bits=4,
    gate_bits=6,
    cell_bits=9,
    cell_range=2.0,
    input_range=1.0,
    quick=True,
)
"""So few bits that a few thousand draws meet every tie and limit."""

LOADED = {"other weights loaded", "weights read back"}
CONTROL = {
    "state written",
    "stream reset",
    "stream reset while it computes",
    *LOADED,
    "input stalls",
    "output not wanted",
    "input waits for an output that is held",
    "registers read",
}
"""What happens between and beside steps; weights are loaded where they are no constants."""

CONSTANT = (Register.ID, Register.BUILD, Register.VERSION, Register.SHAPE, Register.CAPACITY)
COUNTED = 1 << 12
"""Reads of the counter of cycles, one after the other: it passes 2**14."""
MARCH = (1 << 15) + 1000
"""Steps of a march: the counter of steps passes 2**15."""

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

    @property
    def control(self) -> set[str]:
        """What of :data:`CONTROL` it can meet."""
        return CONTROL - (set() if self.manifest.spatial is None else LOADED)

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
                # Only norms have constants here, and no weights.
                constants = layer.parameters
                other = {"weight": -layer.weight} if constants is None else {"parameters": -constants}
                layers.append(replace(layer, **other))
        return replace(self.network, layers=tuple(layers))


def _lstm(rng: Generator, inputs: int = INPUTS) -> Lstm:
    shapes = (4 * UNITS, inputs), (4 * UNITS, UNITS), (4 * UNITS,)
    w_ih, w_hh, bias = (rng.normal(size=shape) * 2.5 for shape in shapes)
    return Lstm(w_ih=w_ih, w_hh=w_hh, bias=bias)


def _dense(rng: Generator, inputs: int, outputs: int, activation: str, scale: float = 3.0) -> Dense:
    weight = rng.normal(size=(outputs, inputs)) * scale
    return Dense(weight=weight, bias=np.zeros(outputs), activation=activation)


def _own(rng: Generator) -> Custom:
    """Its c is so far from zero that a unit that is not there would be limited."""
    cell = CellBuilder()
    kept = cell.keep(cell.apply(SIGMOID, cell.gate(0)) * cell.state() + (cell.gate(1) + 3.0))
    built = cell.build("offset", cell.apply(TANH, cell.gate(2)) * cell.apply(TANH, kept))
    rows = 3 * UNITS
    w_ih, w_hh = rng.normal(size=(rows, INPUTS)) * 8, rng.normal(size=(rows, UNITS)) * 0.5
    return Custom(cell=built, w_ih=w_ih, w_hh=w_hh, bias=np.zeros(rows))


def _norm(rng: Generator, centre: bool, epsilon: float) -> Norm:
    gain, bias = rng.normal(size=UNITS), rng.normal(size=UNITS) * 0.2
    return Norm(values=UNITS, gain=gain, bias=bias, centre=centre, epsilon=epsilon)


def _gru(rng: Generator, inputs: int = UNITS, reset_after: bool = True) -> Gru:
    shapes = (3 * UNITS, inputs), (3 * UNITS, UNITS), (3 * UNITS,), (3 * UNITS,)
    w_ih, w_hh, bias_ih, bias_hh = (rng.normal(size=shape) * 2 for shape in shapes)
    return Gru(w_ih=w_ih, w_hh=w_hh, bias_ih=bias_ih, bias_hh=bias_hh, reset_after=reset_after)


def _build(
    name: str,
    layers: list[Layer],
    parameters: Parameters,
    cases: set[str],
    settings: QuantizationSettings = NARROW,
    loop_registers: int | None = None,
) -> RareBuild:
    """Calibrated on small inputs, so that dense layers are limited on large ones; in space, if it has
    ``loop_registers``."""
    data = np.random.default_rng(5).uniform(-0.2, 0.2, (6, 2, INPUTS))
    network = quantise(Network(layers=tuple(layers)), settings, data)
    plan = None if loop_registers is None else SpatialPlan.of(network, loop_registers)
    manifest = Manifest.of(name, network, parameters, spatial=plan)
    units = parameters.gate_units
    every = {of_unit(case, unit, units) for case in cases for unit in range(units)}
    return RareBuild(network, manifest, frozenset(every | {"input: lowest code"}))


_TWO = {"gate_units": 2, "macs": 2, "lanes": 8, "streams": 2}
_BETWEEN = {event for event in rounding_events("kept value") if not re.search("beyond|tie at", event)}
_SPACE = {"lanes": 4, "macs": 2, "beat_out": 2, "tables": "direct"}
_RELU = {f"relu: {case}" for case in ("negative", "zero", "tie, positive", "at +max", "one beyond +max")}
_IDENTITY = limit_events("identity") | {f"identity: tie, {sign}" for sign in ("positive", "negative")}
_MADE: dict[str, Callable[[Generator], RareBuild]] = {
    "relu": lambda rng: _build(
        "relu",
        [_lstm(rng), _lstm(rng, UNITS), _dense(rng, UNITS, 3, "relu")],
        Parameters(**_TWO, beat_out=2),
        _LSTM | _RELU,
        # The output gate is shifted for the second layer, and c for the first.
        NARROW.replace(hidden_range="1,0.25", cell_range="4,1"),
    ),
    "identity": lambda rng: _build(
        "identity",
        [_lstm(rng), _dense(rng, UNITS, 3, "identity")],
        Parameters(lanes=4, macs=1, streams=3, pipeline=Pipeline(cell=4, result=2, narrow=4, collect=2)),
        _LSTM | _IDENTITY,
    ),
    "activated": lambda rng: _build(
        "activated",
        [_lstm(rng), _dense(rng, UNITS, 2, "sigmoid"), _dense(rng, 2, 12, "tanh", 1.5)],
        Parameters(lanes=4, macs=2, streams=2, beat_out=4),
        _LSTM | _POSITIVE | rounding_events("dense tanh"),
    ),
    "odd": lambda rng: _build(
        "odd",
        [_lstm(rng), _dense(rng, UNITS, 3, "tanh", 1.5)],
        Parameters(**_TWO, beat_out=2, pipeline=Pipeline(result=1)),
        (_LSTM - _H) | _ODD,
        NARROW.replace(hidden_rounding="odd", data_bits=6, output_bits=6),
    ),
    "cells": lambda rng: _build(
        "cells",
        [_own(rng), _gru(rng)],
        Parameters(**_TWO, beat_out=2),
        _PREACTIVATION | rounding_events("kept value") | rounding_events("narrowed value"),
    ),
    "norms": lambda rng: _build(
        "norms",
        [_lstm(rng), _norm(rng, False, 0.0), _lstm(rng, UNITS), _norm(rng, True, 1.0)],
        Parameters(**_TWO, beat_out=2),
        _PREACTIVATION | rounding_events("c"),
        # Outputs of few bits would hide the last ones of variances and roots. With so large an epsilon, the
        # small inputs of the calibration give a range that others leave.
        NARROW.replace(data_bits=6, output_bits=16),
    ),
    "space": lambda rng: _build(
        "space",
        [_lstm(rng), _dense(rng, UNITS, 3, "identity")],
        Parameters(**_SPACE, streams=2),
        _LSTM | _IDENTITY,
        NARROW.replace(tables="direct"),
        loop_registers=3,
    ),
    "space_gru": lambda rng: _build(
        "space_gru",
        [_gru(rng, INPUTS, reset_after=False)],
        Parameters(**_SPACE, streams=1),
        _PREACTIVATION | _BETWEEN | rounding_events("narrowed value"),
        NARROW.replace(tables="direct"),
        loop_registers=6,
    ),
}
BUILDS = tuple(_MADE)
"""Names of :func:`rare_build`."""


@cache
def rare_build(name: str) -> RareBuild:
    """Return a build: made when a test first asks, since every process of pytest imports this."""
    return _MADE[name](np.random.default_rng(5))


@dataclass(frozen=True)
class Act:
    """A call of a device, its arguments, and what the device shows afterwards."""

    call: str
    arguments: tuple[Any, ...]
    shown: dict[str, Any]


def act(device: Device, call: str, *arguments: Any) -> dict[str, Any]:
    """Call a device that is at rest; return what it shows when it is at rest again."""
    shown: dict[str, Any] = {}
    count = device.manifest.parameters.streams
    match call:
        case "exchange":
            shown["y"] = device.exchange(*arguments).tolist()
        case "reset while it computes":
            # The driver waits for steps whose outputs nobody wants. So the last one, which begins at once,
            # and the command behind it pass the driver by: in space, it computes for a few cycles.
            streams, x = arguments
            if len(x) > 1:
                device.exchange(streams[:-1], x[:-1], np.ones(len(x) - 1, np.bool_))
            device.transport.write(Register.STREAM, [int(streams[-1])])
            device.transport.exchange(streams[-1:], x[-1:], np.ones(1, np.bool_))
            device.transport.write(Register.COMMAND, [Command.RESET])
        case "load":
            device.load(*arguments, keep_states=True)
        case "reset":
            device.reset(arguments)
        case "write_state":
            device.write_state(*arguments)
        case "read registers":
            shown |= {register.name: device.register(register) for register in CONSTANT}
    if call == "exchange" and device.manifest.spatial is not None and 0 in arguments[0]:
        # As the bus gives it: bits that decoding leaves out are 0. Arrays have rows that nobody wrote.
        row = device.layout.vector_span[0]
        shown["row"] = device.read_rows(Region.VECTORS, 0, row, 1).tolist()
    if call.startswith(("exchange", "reset while")):
        states = [device.read_state(stream) for stream in range(count)]
        shown["states"] = [[part.tolist() for part in (*h, *c)] for h, c in states]
        for register in (Register.STEPS, Register.CELL_SATURATIONS, Register.LATENCY):
            shown[register.name] = device.register(register)
    shown["flags"] = []
    for stream in range(count):
        device.transport.write(Register.STREAM, [stream])
        shown["flags"].append(device.register(Register.FLAGS) & STATE_FLAGS)
    return shown


class Script:
    """Acts that meet every rare case of a build, played on the golden device and the second model.

    A short one draws so few states that it meets some of them, and takes few steps. At the end, a build in
    space takes ``march`` steps more, which the golden device alone computes: its counters reach further.
    """

    def __init__(self, build: RareBuild, device: Device, short: bool = False, march: int = 0) -> None:
        self.build = build
        self.acts: list[Act] = []
        self.events: Counter[str] = Counter()
        self._device = device
        self._model = self._second(build.network)
        self._layout = StateLayout(build.manifest)
        self._states = [self._model.zeros() for _ in range(build.manifest.parameters.streams)]
        self._write(short)
        if march and build.manifest.spatial is not None:
            self._add("exchange", *self._steps(np.random.default_rng(9), march), None)

    def _second(self, network: QuantizedNetwork) -> SecondModel:
        model = SecondModel(network, self.build.manifest.parameters.gate_units)
        model.events = self.events
        return model

    def _add(self, call: str, *arguments: Any) -> dict[str, Any]:
        shown = act(self._device, call, *arguments)
        self.acts.append(Act(call, arguments, shown))
        return shown

    def _write_state(self, stream: int, state: State) -> None:
        self._add("write_state", stream, [np.array(h) for h in state.h], [np.array(c) for c in state.c])
        self._states[stream] = state.copy()
        self.events["state written"] += 1

    def _reset(self, stream: int) -> None:
        self._add("reset", stream)
        self._states[stream] = self._model.zeros()
        self.events["stream reset"] += 1

    def _load(self, network: QuantizedNetwork, verify: bool) -> None:
        """Load other weights, unless they are constants; the streams keep their states."""
        if self.build.manifest.spatial is not None:
            return
        self._add("load", pack(network, self.build.manifest), verify)
        saturations = self._model.saturations
        self._model = self._second(network)
        self._model.saturations = saturations
        self.events["other weights loaded"] += 1
        self.events["weights read back"] += verify

    def _stalls(self, p_in: float, p_out: float) -> None:
        """Hold back inputs and requests, and outputs, from now on."""
        self.acts.append(Act("stalls", (p_in, p_out), {}))
        self.events["input stalls"] += p_in > 0

    def _exchange(self, streams: IntArray, x: IntArray, suppress: IntArray | None = None) -> None:
        """Run steps: golden device and second model give the same outputs, states and counts."""
        shown = self._add("exchange", streams, x, suppress)
        for step, y in enumerate(self._step(streams, x)):
            silent = suppress is not None and bool(suppress[step])
            assert shown["y"][step] == ([0] * len(y) if silent else y)
            self.events["output not wanted"] += silent
        self._compare(shown)

    def _reset_meanwhile(self, streams: IntArray, x: IntArray) -> None:
        """Reset the last step's stream while the core computes that step."""
        shown = self._add("reset while it computes", streams, x)
        self._step(streams, x)
        self._states[streams[-1]] = self._model.zeros()
        self._compare(shown)
        self.events["stream reset while it computes"] += 1

    def _step(self, streams: IntArray, x: IntArray) -> list[list[int]]:
        pairs = zip(x.tolist(), streams.tolist(), strict=True)
        return [self._model.step(row, self._states[stream]) for row, stream in pairs]

    def _compare(self, shown: dict[str, Any]) -> None:
        assert shown["states"] == [[*state.h, *state.c] for state in self._states]
        assert shown[Register.CELL_SATURATIONS.name] == self._model.saturations

    def _steps(self, rng: Generator, number: int) -> tuple[IntArray, IntArray]:
        """Draw streams and inputs of steps."""
        form = self.build.network.numerics.input
        x = rng.integers(form.lowest, form.maximum, (number, INPUTS), endpoint=True)
        return rng.integers(0, self.build.manifest.parameters.streams, number), x

    def _write(self, short: bool) -> None:
        """Meet every rare case, and then take steps, with stalls, resets and other weights."""
        count, rng = self.build.manifest.parameters.streams, np.random.default_rng(7)

        def steps(number: int) -> tuple[IntArray, IntArray]:
            return self._steps(rng, -(-number // 10) if short else number)

        self._meet(seed=3, most=20 if short else 4000)
        if self.build.manifest.spatial is not None:
            # Each unit has tables and sums of its own, so that a bit of one matters in few states.
            self._roam(rng, 30 if short else 300)
        self._exchange(*steps(STEPS))
        self._reset(0)
        self._exchange(*steps(20))
        streams, x = steps(60)
        self._exchange(streams, x, rng.random(len(x)) < 0.5)
        # Each beat of the output is held for a hundred cycles: longer than steps take.
        for number, stalls in ((30, (0.0, 0.99)), (30, (0.5, 0.5)), (30, (0.9, 0.0))):
            self._stalls(*stalls)
            self._exchange(*steps(number))
        self._load(self.build.retrained, verify=True)
        self._stalls(0.0, 0.0)
        self._exchange(*steps(60))
        for number in (1, 2, 3):
            self._reset_meanwhile(*steps(number))
            self._exchange(*steps(5))
        self._load(self.build.network, verify=False)
        self._add("read registers")
        self.events["registers read"] += 1
        self._exchange(*steps(20))
        self._reset(count - 1)
        self._exchange(*steps(5))

    def _meet(self, seed: int, most: int) -> None:
        """Write states from which a single step meets a rare case, until all were met, and take those steps.

        Inputs and states are drawn, the cell states of some units are solved for ties at limits, and the
        second model says what the step meets.
        """
        rng, numerics = np.random.default_rng(seed), self.build.network.numerics
        missing = set(self.build.cases)
        trial = SecondModel(self.build.network, self.build.manifest.parameters.gate_units)
        for _ in range(most):
            x = rng.integers(numerics.input.lowest, numerics.input.maximum, INPUTS, endpoint=True)
            if rng.integers(2):
                x = np.where(x < 0, numerics.input.lowest, numerics.input.maximum)
            for state in self._draw(rng, trial, x.tolist()):
                trial.events.clear()
                trial.step(x.tolist(), state.copy())
                if missing.isdisjoint(trial.events):
                    continue
                missing -= set(trial.events)
                stream = int(rng.integers(len(self._states)))
                self._write_state(stream, state)
                self._exchange(np.array([stream]), x[None])
            if not missing:
                return

    def _roam(self, rng: Generator, count: int) -> None:
        """Take two steps from each of so many drawn states."""
        form, trial = self.build.network.numerics.input, self._second(self.build.network)
        trial.events = Counter()
        for number in range(count):
            x = rng.integers(form.lowest, form.maximum, (2, INPUTS), endpoint=True)
            stream = number % len(self._states)
            self._write_state(stream, next(self._draw(rng, trial, x[0].tolist())))
            self._exchange(np.full(2, stream), x)

    def _draw(self, rng: Generator, trial: SecondModel, x: list[int]) -> Iterator[State]:
        """Yield a random state, at its limits or within, and then those that put a unit half a step or a step
        beyond a limit."""
        h_most, c_most = self.build.network.numerics.input.maximum, self.build.network.numerics.cell.maximum

        def values(most: int, size: int) -> IntArray:
            drawn = rng.integers(-most, most, size, endpoint=True)
            return most * np.sign(drawn) if extreme else drawn

        extreme = bool(rng.integers(2))
        h = [values(h_most, size) for size in self._layout.sizes]
        state = State.of(h, [values(c_most, size) for size in self._layout.cell_sizes])
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


def write_script(build: RareBuild, folder: Path, short: bool = False, march: int = 0) -> Script:
    """Write a build's folder, and the script that its cores play."""
    with Accelerator.open(build.write(folder), "golden") as golden:
        return Script(build, golden.device, short, march)


def play(script: Script, core: Accelerator) -> dict[str, int]:
    """Play a script on a simulated core, which shows the same; return how often each case was met."""
    transport, manifest = core.device.transport, script.build.manifest
    assert isinstance(transport, SimulatedDevice)
    held, stalled, warm = 0, False, set[int]()
    for each in script.acts:
        if each.call == "stalls":
            transport.stalls(1, *each.arguments)
            stalled = max(each.arguments) > 0
            continue
        shown = act(core.device, each.call, *each.arguments)
        different = {name for name in shown if shown[name] != each.shown[name]}
        assert not different - ({Register.LATENCY.name} if stalled else set()), f"{each.call}: {different}"
        if each.call == "exchange":
            streams, _, suppress = each.arguments
            # Steps that the core took later than it could: outputs were held, with no room for more.
            cycles = transport.last_cycles
            silent = None if suppress is None else suppress.tolist()
            free = (
                step_cycles(manifest.program, manifest.parameters, streams.tolist(), warm, silent)
                if manifest.spatial is None
                else manifest.spatial_schedule.steps(streams.tolist())
            )
            late = cycles.accepted - cycles.begun[0] > np.array([first for first, _ in free])
            assert stalled or not late.any()
            held += int(np.count_nonzero(late))
            warm.update(streams.tolist())
        elif each.call == "reset while it computes":
            warm.update(each.arguments[0].tolist())
            warm.discard(int(each.arguments[0][-1]))
        elif each.call == "load":
            warm.clear()
        elif each.call == "read registers":
            assert len(set(np.diff(transport.read(Register.CYCLES, COUNTED)))) == 1
        else:
            warm.discard(each.arguments[0])
    met = script.events | {"input waits for an output that is held": held}
    return {case: met.get(case, 0) for case in sorted(script.build.cases | script.build.control)}
