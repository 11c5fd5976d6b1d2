"""Finds a published model by name, builds it, verifies it and measures what its users judge it by."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.boards.catalogue import find_target
from rtlstm.fpga.estimate import Estimate, check_estimate, estimate
from rtlstm.fpga.families.device import Chosen
from rtlstm.gen.builds.compare import Comparison
from rtlstm.gen.builds.compiled import Build, compile
from rtlstm.sim.reference import run_float
from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.errors import ConfigurationError, suggest
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import Record, filled
from rtlstm.zoo.entry import Entry, Floats, Subject
from rtlstm.zoo.gait import GAIT
from rtlstm.zoo.silero import SILERO
from rtlstm.zoo.taggers import SEGMENTER, UZMORPH


class ZooResult(Record):
    """What a model's build is, and what was measured of it."""

    version: str
    """The release of rtlstm."""
    model: str
    package: str
    device: str | None
    weight_bits: int
    data_bits: int
    lanes: int
    macs: int
    metric: str
    in_float: float
    built: float
    """The metric of the golden model, whose bits are the hardware's."""
    metric_holds: bool
    """Whether that is worse than in float by no more than the model's margin."""
    rms_error: float
    """The difference of all outputs from float."""
    largest_error: float
    sequence_steps: int | None
    """Steps of the longest sequence, whose the latency is then; None if a step has its own."""
    latency_cycles: int
    interval_cycles: int
    clock_mhz: float | None
    """Estimated; None without a device."""
    latency_us: float | None
    luts: int | None = None
    multipliers: int | float | None = None
    block_rams: int | float | None = None
    comparison: Comparison
    """What Verilog and golden model gave for a stretch of the data."""

    @property
    def passed(self) -> bool:
        """Whether the Verilog is the golden model's in words and cycles, and the metric holds."""
        return self.comparison.passed and self.metric_holds


def check_model(
    entry: Entry,
    folder: Path,
    *,
    fit: str | None = None,
    simulator: Simulator = "verilator",
    numbers: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> ZooResult:
    """Fetch a model, build it in a folder, simulate a stretch of its data, and measure its metric on all.

    ``fit`` is a device or board to build it for, instead of the entry's. ``simulator`` is what runs the
    Verilog. ``numbers`` are options of :func:`rtlstm.compile` for the formats, instead of the entry's. Raises
    RtlstmError if something cannot be fetched, is missing, or cannot be built.
    """
    subject = entry.load(progress)
    target = entry.device if fit is None else fit
    chosen = None if target is None else find_target(target).chosen
    build = compile(
        subject.model,
        folder=folder,
        name=entry.name.replace("-", "_"),
        progress=progress,
        **subject.calibration,
        **{**_array(entry, target, chosen), **entry.options, **(numbers or {})},
    )
    estimated = None if chosen is None else estimate(build.manifest, chosen)
    if chosen is not None and estimated is not None:
        check_estimate(build.name, estimated, chosen.device)
    x, lengths = subject.stretch(entry.stretch)
    comparison = build.simulate(x, lengths, batch_first=False, simulator=simulator, progress=progress)
    return _result(entry, subject, build, comparison, estimated)


def _array(entry: Entry, target: str | None, chosen: Chosen | None) -> dict[str, Any]:
    """What :func:`rtlstm.compile` is told of a device: to fit it, or its family if the array is given."""
    if chosen is None:
        return {}
    return {"family": chosen.device.family} if "lanes" in entry.options else {"fit": target}


def _result(
    entry: Entry, subject: Subject, build: Build, comparison: Comparison, estimated: Estimate | None
) -> ZooResult:
    y = np.asarray(build.run(subject.x, subject.lengths, batch_first=False)[0])
    wanted = run_float(subject.model.network, subject.x, lengths=subject.lengths).y
    in_float, built = subject.judge(wanted, 0), subject.judge(y, 0)
    errors = _valid(np.abs(y - wanted), subject)
    manifest = build.manifest
    return filled(
        ZooResult,
        manifest.parameters,
        estimated,
        version=version("rtlstm"),
        model=entry.name,
        package=entry.package.requirement,
        device=None if estimated is None else estimated.device,
        weight_bits=manifest.numerics.weight_bits,
        data_bits=manifest.numerics.input.bits,
        metric=entry.metric.name,
        in_float=in_float,
        built=built,
        metric_holds=entry.metric.holds(in_float, built),
        rms_error=float(np.sqrt(np.mean(errors**2))),
        largest_error=float(errors.max()),
        sequence_steps=manifest.parameters.max_steps or None,
        latency_cycles=manifest.cycles.step_latency_cycles,
        interval_cycles=manifest.cycles.step_interval_cycles,
        clock_mhz=None if estimated is None else estimated.fmax_mhz,
        latency_us=None if estimated is None else estimated.step_latency_us,
        comparison=comparison,
    )


def _valid(errors: Floats, subject: Subject) -> Floats:
    """The errors of the steps that sequences have, ``(steps, O)``."""
    if subject.lengths is None:
        return errors.reshape(-1, errors.shape[-1])
    return errors[np.arange(len(errors))[:, None] < subject.lengths]


ENTRIES: dict[str, Entry] = {entry.name: entry for entry in (SILERO, GAIT, UZMORPH, SEGMENTER)}


def find_entry(name: str) -> Entry:
    """Return a model by its name. Raises ConfigurationError if there is none of this name."""
    if name in ENTRIES:
        return ENTRIES[name]
    raise ConfigurationError(f"the zoo has no model {name!r}; {suggest(name, ENTRIES)}")
