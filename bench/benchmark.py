"""Runs the whole benchmark, and if asked for, compares it with the project's targets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rtlstm.bench.hardware import (
    build_shape,
    check_simulator,
    describe,
    estimated_clock,
    measure_cycles,
    post_route,
    predict_cycles,
)
from rtlstm.bench.jobs import Journal, code_digest, open_journal
from rtlstm.bench.peers import ENGINES
from rtlstm.bench.records import (
    ANCHORS,
    BenchResult,
    Clock,
    CpuTime,
    GoldenSpeed,
    HardwareFigures,
    Machine,
    ShapeResult,
    Target,
)
from rtlstm.bench.shapes import SHAPES, Shape
from rtlstm.bench.worker import Row, describe_machine, start
from rtlstm.spec.errors import ToolError
from rtlstm.spec.progress import Progress, counted, tell
from rtlstm.spec.record import filled
from rtlstm.tools.cache import digest
from rtlstm.tools.work import open_workers

_TOOL_SHAPE, _BIG_SHAPE, _DEVICE_SHAPE = "vad128", "stac_b", "stac_a"
"""The networks whose golden model and simulation are timed, whose generation is timed, and whose overhead is
compared with the target."""


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    shapes: Sequence[Shape]
    folder: Path
    """Folder of the builds, one folder each."""
    quick: bool = False
    rtl: bool = True
    goals: bool = False
    """Whether to time the tools, too, and to compare all with the project's targets."""
    devices: tuple[str, ...] = ()
    """Take post-route clocks of these devices only; of any if empty."""
    assumed_mhz: float = 100.0
    """Clock of a build that has not been placed and routed."""
    workers: int | None = 1
    """Processes that build and simulate networks; None for as many as processors."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers do that instead; its hosts share the folder."""

    @property
    def seconds(self) -> float:
        """How long each program is timed."""
        return 0.05 if self.quick else 1.0

    @property
    def steps(self) -> int:
        """Steps to simulate of each network."""
        return 24 if self.quick else 200


def run_bench(plan: Plan, progress: Progress | None = None) -> BenchResult:
    """Measure everything that the plan names.

    Networks that were built and simulated are kept until the end, so that after an interruption the same call
    does the others only. Times are always measured by this process, when the workers are gone.

    Raises RtlstmError if a part fails. The result says which packages are not installed.
    """
    machine = describe_machine()
    with open_journal(plan.folder / "bench.journal", _about(plan)) as journal:
        hardware = _all_hardware(plan, journal, progress)
        return _timed(plan, machine, hardware, progress)


def _about(plan: Plan) -> str:
    """What the figures of the hardware depend on."""
    return digest(code_digest(), repr((plan.rtl, plan.steps, [shape.name for shape in plan.shapes])))


def _all_hardware(plan: Plan, journal: Journal, progress: Progress | None) -> dict[str, HardwareFigures]:
    """Build and simulate the networks on the plan's workers."""
    found: dict[str, HardwareFigures] = {}
    with open_workers(plan.workers, plan.scheduler) as workers:
        # Another process cannot tell this one how far a network is.
        alone = plan.workers == 1 and plan.scheduler is None
        shared = plan, progress if alone else None
        jobs = {shape.name: shape for shape in plan.shapes}
        for name, figures in journal.run(workers, _measure_hardware, shared, jobs):
            found[name] = HardwareFigures(**figures)
            if not alone:
                tell(progress, "build and simulate networks", len(found), len(jobs))
    return found


def _timed(
    plan: Plan, machine: Machine, hardware: Mapping[str, HardwareFigures], progress: Progress | None
) -> BenchResult:
    """Time the processor and the tools, and put all together."""
    names = [shape.name for shape in plan.shapes]
    times: dict[str, list[CpuTime]] = {name: [] for name in names}
    for engine in counted(progress, "time a step on the processor", ENGINES):
        for line in start("engine", engine=engine, names=names, seconds=plan.seconds):
            times[line["shape"]].append(CpuTime(**line["time"]))
    golden = _measure_golden(plan, progress) if plan.goals and _TOOL_SHAPE in names else ()
    generated = _measure_generate(progress) if plan.goals and _BIG_SHAPE in names else None
    shapes = tuple(
        _put_together(shape, hardware[shape.name], times[shape.name], plan) for shape in plan.shapes
    )
    return BenchResult(
        quick=plan.quick,
        machine=machine,
        shapes=shapes,
        other_anchors=tuple(anchor for anchor in ANCHORS if anchor.shape is None)
        if SHAPES.keys() <= set(names)
        else (),
        golden=golden,
        targets=_targets(shapes, golden, generated) if plan.goals else (),
        passed=all(found.agrees for found in hardware.values()),
    )


def _measure_hardware(shared: tuple[Plan, Progress | None], shape: Shape) -> Row:
    """Return a network's figures of the hardware, as JSON's values."""
    return _figures(shape, *shared).model_dump(mode="json")


def _figures(shape: Shape, plan: Plan, progress: Progress | None) -> HardwareFigures:
    why = shape.without_rtl
    if not plan.rtl:
        why = why or "not asked for (--no-rtl)"
    if not why:
        try:
            check_simulator()
        except ToolError as missing:
            why = str(missing)
    if why:
        return describe(predict_cycles(shape), shape.steps, why)
    folder = plan.folder / shape.name
    build_shape(shape, folder, progress)
    return measure_cycles(shape, folder, plan.steps, progress)


def _measure_golden(plan: Plan, progress: Progress | None) -> tuple[GoldenSpeed, ...]:
    batch, steps = 16, 60 if plan.quick else 500
    found = []
    lines = start("golden", name=_TOOL_SHAPE, batch=batch, steps=steps, seconds=plan.seconds)
    tell(progress, "time the golden model", 0, 2)
    for line in lines:
        found.append(GoldenSpeed(**line["golden"]))
        tell(progress, "time the golden model", len(found), 2)
    return tuple(found)


def _measure_generate(progress: Progress | None) -> Row:
    tell(progress, f"time the generation of {_BIG_SHAPE}", 0, 1)
    (line,) = start("generate", threads=True, name=_BIG_SHAPE)
    tell(progress, f"time the generation of {_BIG_SHAPE}", 1, 1)
    return line


def _put_together(shape: Shape, hardware: HardwareFigures, times: list[CpuTime], plan: Plan) -> ShapeResult:
    clock = post_route(plan.folder / shape.name, plan.devices)
    clock = clock or estimated_clock(shape, plan.devices) or Clock(mhz=plan.assumed_mhz, source="assumed")
    return filled(
        ShapeResult,
        shape,
        weights=shape.weight_count,
        hardware=hardware,
        clock=clock,
        latency_us=round(hardware.predicted_latency / clock.mhz, 4),
        interval_us=round(hardware.predicted_interval / clock.mhz, 4),
        sequence_us=round(hardware.predicted_sequence / clock.mhz, 4),
        cpu=tuple(times),
        anchors=tuple(anchor for anchor in ANCHORS if anchor.shape == shape.name),
    )


def _target(
    what: str, value: float | None, unit: str, must: float, aim: float, most: bool = True, note: str = ""
) -> Target:
    """Judge a value; ``most`` says that the bounds are the largest good values, else the smallest."""
    verdict: Literal["aim", "must", "missed", "not measured"] = "not measured"
    if value is not None:
        sign = 1 if most else -1
        verdict = "missed" if sign * value > sign * must else "must"
        verdict = "aim" if sign * value <= sign * aim else verdict
    relation = "at most" if most else "at least"
    texts = (f"{relation} {bound:g}" for bound in (must, aim))
    return Target(
        what=what,
        value=value if value is None else round(value, 3),
        unit=unit,
        must=next(texts),
        aim=next(texts),
        verdict=verdict,
        note=note,
    )


def _with_pipeline(name: str, hardware: Mapping[str, HardwareFigures]) -> str:
    """Return the name of a network with that of its pipeline, for which its cycles hold."""
    return f"{name} with the {hardware[name].pipeline} pipeline"


def _targets(
    shapes: tuple[ShapeResult, ...], golden: tuple[GoldenSpeed, ...], generated: Row | None
) -> tuple[Target, ...]:
    hardware = {shape.name: shape.hardware for shape in shapes}
    targets = [*_hardware_targets(hardware), *_golden_targets(golden)]
    if _TOOL_SHAPE in hardware:
        speed = hardware[_TOOL_SHAPE].simulated_steps_per_second
        what = f"RTL simulation of {_with_pipeline(_TOOL_SHAPE, hardware)}"
        targets.append(_target(what, speed, "steps/s", 200, 1000, most=False))
    if generated is not None:
        note = f"{generated['peak_mb']} MB at most, {_BIG_SHAPE}"
        targets.append(_target("generate a million weights", generated["seconds"], "s", 10, 3, note=note))
    return tuple(targets)


def _hardware_targets(hardware: Mapping[str, HardwareFigures]) -> Iterator[Target]:
    """Yield the targets of networks' RTL, by the networks' names."""
    simulated = [found for found in hardware.values() if not found.not_simulated]
    off = sum(not found.agrees for found in simulated) if simulated else None
    yield _target("networks whose RTL differs from golden model or predicted cycles", off, "", 0, 0)
    arrays = {name: found for name, found in hardware.items() if found.loop_registers is None}
    if not arrays:
        return
    overheads = {
        name: max(layer.overhead_cycles for layer in found.layers if layer.kind in ("lstm", "gru"))
        for name, found in arrays.items()
    }
    worst = max(overheads, key=lambda name: overheads[name])
    device = _DEVICE_SHAPE if _DEVICE_SHAPE in overheads else worst
    yield _target(
        f"overhead of a recurrent layer, {_with_pipeline(device, hardware)}",
        overheads[device],
        "cycles",
        24,
        16,
        note=f"most: {overheads[worst]}, {_with_pipeline(worst, hardware)}",
    )
    uses = {name: max(found.use, found.use_with_streams) for name, found in arrays.items()}
    least = min(uses, key=lambda name: uses[name])
    long = _TOOL_SHAPE if _TOOL_SHAPE in uses else least
    yield _target(
        f"array in use, long sequence or four streams, {_with_pipeline(long, hardware)}",
        100 * uses[long],
        "%",
        95,
        99,
        most=False,
        note=f"least: {100 * uses[least]:.1f} %, {_with_pipeline(least, hardware)}",
    )


def _golden_targets(golden: tuple[GoldenSpeed, ...]) -> Iterator[Target]:
    """Yield the targets of the golden model's speed."""
    for found in golden:
        bits = f"{found.weight_bits}-bit weights, {found.data_bits}-bit data"
        how = f"{bits}, {found.batch} x {found.steps} steps"
        yield _target("golden model over float onnxruntime", found.ratio, "times", 4, 1, note=how)
        yield _target("golden model, one step", found.step_us, "us", 300, 60, note=bits)
        yield _target("golden backend, one step", found.backend_step_us, "us", 300, 60, note=bits)
