"""A benchmark network in hardware: its build, predicted and measured cycles, and clock; STAC-ML's terms."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.bench.records import Clock, HardwareFigures, Instances, LayerFigures, StacResult, StacShape
from rtlstm.bench.shapes import Shape, find_shapes
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import estimate
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host import Accelerator
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.manifest import Manifest, read_verilog
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import offer_cycles
from rtlstm.spec.program.sections import plan_program
from rtlstm.spec.program.step import Program
from rtlstm.spec.progress import Progress, counted
from rtlstm.spec.record import filled
from rtlstm.spec.registers import Register
from rtlstm.tools.toolchain import compiler, verilator

SETTLE_STEPS = 8
"""Steps at the start of a sequence that are not yet back to back."""


class Latencies(NamedTuple):
    """Cycles from a step's last input beat to its last output beat."""

    first_step: int
    """Latency of the first step after a reset."""
    warm: int
    """Latency of a step whose recurrent part was ready."""


def wait_for_core(accelerator: Accelerator) -> None:
    """Wait until the core has finished what it computes after a step."""
    # Every bus read takes a cycle or more.
    cycles = accelerator.manifest.settling_cycles
    accelerator.device.transport.read(Register.CYCLES, cycles)


def measure_latencies(accelerator: Accelerator, x: ArrayLike) -> Latencies:
    """Run ``x``, one step's inputs, twice on a new stream."""
    with accelerator.stream() as stream:
        stream.step(x)
        first_step = accelerator.measured_latency_cycles
        wait_for_core(accelerator)
        stream.step(x)
        return Latencies(first_step, accelerator.measured_latency_cycles)


def last_intervals(accelerator: Accelerator) -> set[int]:
    """Cycles from step to step in the last exchange of one stream, once steps are back to back."""
    device = accelerator.device.transport
    assert isinstance(device, SimulatedDevice)
    return set(np.diff(device.last_cycles.offered)[SETTLE_STEPS - 1 :].tolist())


_STREAMS, _ROUNDS = 4, 32
"""Sequences of the prediction for several streams, in turns, and the number of turns."""
_INTERVALS = 8
"""Steps back to back whose interval is measured."""


def check_simulator() -> None:
    """Raise ToolError if RTL cannot be simulated here."""
    verilator()
    compiler()


def predict_cycles(shape: Shape) -> Manifest:
    """Return a network's manifest, made with weights of 0: no cycle depends on their values."""
    return shape.manifest(blank=True)


def build_shape(shape: Shape, folder: Path, progress: Progress | None = None) -> Manifest:
    """Generate a network's build, unless it is there already: it may have been placed and routed.

    A build of the same network with other Verilog was made by an older version, and is generated again.

    Raises BuildError if ``folder`` holds something else.
    """
    wanted = shape.manifest()
    try:
        there = Manifest.load(folder)
        verilog = read_verilog(folder, there)
        if there.build_hash == wanted.build_hash and verilog == core_to_verilog(wanted):
            return there
    except BuildError:
        pass
    return generate_build(
        shape.network(), folder, name=shape.name, settings=shape.settings, progress=progress, **shape.hardware
    )


def with_streams(manifest: Manifest, streams: int) -> tuple[Program, Parameters]:
    """Return program and parameters of a build as it would be with so many streams."""
    parameters = manifest.parameters.replace(streams=streams, wave_front=False)
    return plan_program(manifest.layers, parameters, manifest.timing), parameters


def _use_with_streams(manifest: Manifest) -> float:
    if manifest.spatial is not None:
        return 0.0
    program, parameters = with_streams(manifest, _STREAMS)
    turns = list(range(_STREAMS)) * _ROUNDS
    offered = offer_cycles(program, parameters, len(turns), first_step=False, streams=turns)
    half = len(turns) // 2
    work = manifest.cycles.array_cycles + manifest.cycles.recurrent_cycles
    return work * half / (offered[-1] - offered[-1 - half])


def _sequence(manifest: Manifest, steps: int) -> int:
    """Cycles of a sequence whose inputs are all ready, and of which only the last output is wanted."""
    if manifest.spatial is not None:
        # No step waits for outputs there.
        return manifest.spatial_schedule.steps([0] * steps)[-1][1]
    suppress = [True] * (steps - 1) + [False]
    return offer_cycles(manifest.program, manifest.parameters, steps, first_step=False, suppress=suppress)[-1]


def describe(manifest: Manifest, sequence: int, not_simulated: str, **measured: Any) -> HardwareFigures:
    """Return predicted and measured cycles; ``sequence`` is the number of steps of a sequence."""
    cycles = manifest.cycles
    pairs = zip(cycles.layers, manifest.layers, strict=True)
    return filled(
        HardwareFigures,
        manifest.parameters,
        cycles,
        pipeline=manifest.parameters.family,
        loop_registers=None if manifest.spatial is None else manifest.spatial.loop_registers,
        predicted_latency=cycles.step_latency_cycles,
        predicted_interval=cycles.step_interval_cycles,
        predicted_sequence=_sequence(manifest, sequence),
        predicted_first_step_latency=cycles.first_step_latency_cycles,
        layers=tuple(filled(LayerFigures, layer, kind=shape.kind) for layer, shape in pairs),
        use=round(cycles.use, 4),
        use_with_streams=round(_use_with_streams(manifest), 4),
        not_simulated=not_simulated,
        **measured,
    )


def measure_cycles(
    shape: Shape, folder: Path, steps: int, progress: Progress | None = None
) -> HardwareFigures:
    """Run a build's RTL against the golden model, word by word and cycle by cycle."""
    manifest = Manifest.load(folder)
    numerics = manifest.numerics
    x = numerics.read_input(numerics.quantise_input(shape.input_values(steps)))
    found, _ = compare(folder, x, simulator="verilator", progress=progress)
    with Accelerator.open(folder, "verilator", verify=False, progress=progress) as accelerator:
        latencies = measure_latencies(accelerator, x[0])
        with accelerator.stream() as stream:
            stream.steps(np.resize(x, (SETTLE_STEPS + _INTERVALS, shape.inputs)))
        intervals = last_intervals(accelerator)
    return describe(
        manifest,
        shape.steps,
        "",
        measured_latency=latencies.warm,
        measured_first_step_latency=latencies.first_step,
        measured_interval=intervals.pop() if len(intervals) == 1 else None,
        steps=found.steps,
        words_compared=found.output_words + found.state_words,
        words_different=found.output_different + found.state_different,
        steps_off_cycle=found.cycles_different,
        simulated_steps_per_second=round(found.steps_per_second, 1),
    )


def post_route(folder: Path, devices: tuple[str, ...] = ()) -> Clock | None:
    """Return a build's Fmax after place and route, or None if it was not placed and routed.

    ``folder`` is the build; its report holds what ``rtlstm implement`` found. ``devices`` are the only ones
    whose clock is taken; any is taken if there are none.
    """
    try:
        report = json.loads((folder / "report.json").read_text())
    except (OSError, ValueError):
        return None
    found = report.get("implementations") if isinstance(report, dict) else None
    # The last one is the newest.
    for entry in reversed(found if isinstance(found, list) else []):
        if not isinstance(entry, dict) or (devices and entry.get("device") not in devices):
            continue
        # Several cores side by side say little of one alone.
        if entry.get("cores", 1) != 1:
            continue
        clock = entry.get("fmax_median_mhz")
        if isinstance(clock, int | float) and clock > 0:
            parts = (entry.get("device"), entry.get("speed_grade"))
            return Clock(mhz=clock, source="post-route", device=" grade ".join(str(p) for p in parts if p))
    return None


def estimated_clock(shape: Shape, devices: tuple[str, ...] = ()) -> Clock | None:
    """Return the estimated clock of a spatial build, on the first of the devices that has one; else None.

    By default on the largest ECP5 in its fastest grade.
    """
    if shape.loop_registers is None:
        return None
    manifest = shape.manifest()
    for name in devices or (_LARGEST,):
        found = estimate(manifest, find_device(name))
        if found is not None and found.fmax_mhz is not None:
            return Clock(mhz=found.fmax_mhz, source="estimated", device=found.device)
    return None


_LARGEST = "lfe5u-85f-8"
PROFILE = ("stac_a", "stac_b", "stac_c")
"""Its networks: LSTM_A, LSTM_B and LSTM_C."""
INSTANCES = (1, 2, 4, 8)
"""Numbers of instances that share a core, each with a stream of its own."""


def run_profile(
    names: list[str] | None,
    folder: Path,
    devices: tuple[str, ...],
    assumed_mhz: float,
    progress: Progress | None,
) -> StacResult:
    """Work out the latencies of the named networks of STAC-ML Markets, or of all three, and a window's error.

    It borrows networks and terms; it is neither a STAC benchmark nor audited. Latencies are those on chip,
    from the input to the last output beat, in cycles of the exact schedule, at the clock of a core with one
    stream, also for several instances: cores with as many streams were not placed and routed. ``names`` are
    those of networks of :data:`PROFILE`. ``folder`` may hold builds that were placed and routed, whose clock
    is taken; of ``devices``, if any are given. ``assumed_mhz`` is the clock of the others. ``progress`` is
    called with what is done. Raises ConfigurationError if a network is not one of these.
    """
    for name in names or ():
        if name not in PROFILE:
            raise ConfigurationError(
                f"a network of this profile must be one of {', '.join(PROFILE)}, not {name!r}"
            )
    found = []
    for shape in counted(progress, "schedule and error of a window", find_shapes(list(names or PROFILE))):
        clock = post_route(folder / shape.name, devices) or Clock(mhz=assumed_mhz, source="assumed")
        found.append(_measure(shape, clock))
    return StacResult(shapes=tuple(found))


def _measure(shape: Shape, clock: Clock) -> StacShape:
    manifest = predict_cycles(shape)
    error, largest = _errors(shape)
    return StacShape(
        name=shape.name,
        steps=shape.steps,
        clock=clock,
        instances=tuple(
            count_instances(manifest, count, steps, clock.mhz)
            for steps in (1, shape.steps)
            for count in INSTANCES
        ),
        rms_error=error,
        largest_error=largest,
    )


def count_instances(manifest: Manifest, instances: int, steps: int, mhz: float) -> Instances:
    """Return the latencies of instances whose inputs are all there in the same cycle.

    An instance's latency includes its wait for those before it, step by step in turns. With one step, its
    state is kept from the step before, and its recurrent part is ready; with several, it is a whole window
    that begins with a zero state, and only its last output is wanted.
    """
    program, parameters = with_streams(manifest, instances)
    streams = list(range(instances)) * steps
    suppress = [True] * (instances * (steps - 1)) + [False] * instances
    offered = offer_cycles(
        program, parameters, len(streams), first_step=steps > 1, streams=streams, suppress=suppress
    )
    latencies = np.array(offered[-instances:]) / mhz
    p50, p99 = np.percentile(latencies, (50, 99), method="inverted_cdf")
    return Instances(
        instances=instances,
        steps=steps,
        p50_us=round(float(p50), 4),
        p99_us=round(float(p99), 4),
        max_us=round(float(latencies.max()), 4),
    )


def _errors(shape: Shape) -> tuple[float, float]:
    """The rms and the largest error of a window's outputs against float64."""
    network, x = shape.network(), shape.input_values(shape.steps)[:, None].astype(np.float64)
    quantised = quantise(network, shape.settings)
    golden = Golden(quantised).run(quantised.numerics.quantise_input(x))
    error = quantised.shapes[-1].output.to_floats(golden.y) - run_float(network, x).y
    rms, largest = np.sqrt(np.mean(error**2)), np.abs(error).max()
    return float(f"{rms:.4g}"), float(f"{largest:.4g}")
