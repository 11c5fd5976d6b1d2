"""The results of a benchmark run, as records; together they are its JSON."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from rtlstm.spec.record import Record

Kind = Literal["read", "quoted", "derived", "recalled"]
Timed = Literal["on chip", "on chip, estimated", "on chip, simulated", "end to end", "in process"]
"""On chip: from the first to the last bit on the device. End to end: through a host and back.
In process: a call in a program."""
PeerUnit = Literal["step", "sequence"]
"""What was timed: one step with the state kept, or all the network's steps."""


class Machine(Record):
    """The machine on which times were measured."""

    processor: str
    cores: int
    pinned_core: int | None
    """The core that every program was pinned to; None if the system cannot do that."""
    load_average: float
    """Load average of the minute before."""
    python: str
    numpy: str


class Clock(Record):
    """A frequency and its source."""

    mhz: float
    source: Literal["post-route", "estimated", "assumed"]
    device: str = ""
    """The device, for a clock that is not assumed."""

    @property
    def label(self) -> str:
        """The clock, as text."""
        if self.source == "assumed":
            return f"{self.mhz:g} MHz assumed"
        return f"{self.mhz:g} MHz {self.source}, {self.device}"


class LayerFigures(Record):
    """Cycles of one layer on the path from input to output."""

    name: str
    kind: str
    array_cycles: int
    overhead_cycles: int


class HardwareFigures(Record):
    """Cycles of a step: predicted and, in RTL simulation, measured."""

    pipeline: str
    """The family whose pipeline the build has."""
    lanes: int
    macs: int
    gate_units: int
    loop_registers: int | None = None
    """Registers in the loop of a spatial build, which has no array; else None."""
    predicted_latency: int
    predicted_interval: int
    predicted_sequence: int
    """From the first input beat to the last step's output, of a sequence with other outputs suppressed."""
    predicted_first_step_latency: int
    array_cycles: int
    """Least possible cycles from input to output: words of the array on that path."""
    overhead_cycles: int
    layers: tuple[LayerFigures, ...]
    use: float
    """Share of the cycles in which the array works, in a long sequence; predicted."""
    use_with_streams: float
    """The same with four sequences in turns, for which the build needs four streams; predicted."""
    measured_latency: int | None = None
    measured_interval: int | None = None
    """None if it was not simulated, or not constant."""
    measured_first_step_latency: int | None = None
    steps: int = 0
    """Steps simulated and compared."""
    words_compared: int = 0
    """Words of y, h and c that were compared with the golden model."""
    words_different: int = 0
    steps_off_cycle: int = 0
    """Steps whose output was not offered in the predicted cycle."""
    simulated_steps_per_second: float | None = None
    not_simulated: str = ""
    """Why no cycles were measured; empty if they were."""

    @property
    def agrees(self) -> bool:
        """Whether every simulated word and cycle is as predicted; True if nothing was simulated."""
        if self.not_simulated:
            return True
        measured = (self.measured_latency, self.measured_interval, self.measured_first_step_latency)
        predicted = (self.predicted_latency, self.predicted_interval, self.predicted_first_step_latency)
        return measured == predicted and not self.words_different and not self.steps_off_cycle


class CpuTime(Record):
    """Time of one step of one sequence on the processor, state carried, one thread."""

    engine: str
    p50_us: float | None = None
    p99_us: float | None = None
    mean_us: float | None = None
    ready_us: float | None = None
    """From input to output, median, if the recurrent product was computed before; of the C++ loops."""
    kernel: str = ""
    """What the C++ loops multiply with: ``float``, or the processor's instructions for integers."""
    steps: int = 0
    rms_error: float | None = None
    max_error: float | None = None
    """Root of the mean square, and the largest, of the differences from the float reference in the first
    steps."""
    missing: str = ""
    """The package to install, if nothing could be measured."""


class GoldenSpeed(Record):
    """The golden model on the processor, one thread."""

    weight_bits: int
    data_bits: int
    batch: int
    steps: int
    golden_ms: float
    onnxruntime_ms: float | None
    """onnxruntime in float32, the same batch and sequence; None if it is not installed."""
    step_us: float
    """One step of one sequence, median."""
    backend_step_us: float
    """The same through the driver and the golden backend."""

    @property
    def ratio(self) -> float | None:
        """The golden model's time divided by onnxruntime's."""
        return None if self.onnxruntime_ms is None else self.golden_ms / self.onnxruntime_ms


class Anchor(Record):
    """A published figure of another project, measured on its device; never mixed with ours.

    It was *read* in the source itself, *quoted* in a text that quotes it, *derived* by arithmetic
    from what was read, or *recalled* from a paper without its text at hand.
    """

    shape: str | None = None
    """Name of the benchmark network; None for a network that is not measured here."""
    network: str = ""
    """The network, if it is not measured here."""
    who: str
    device: str = ""
    clock_mhz: float | None = None
    """None if it is unknown or has no meaning."""
    timed: Timed
    unit: PeerUnit
    lowest_us: float | None = None
    """None if the figure is only an upper bound."""
    highest_us: float
    statistic: str = ""
    """p99 if the source gives that; empty for a constant time or a mean."""
    source: str
    kind: Kind

    @property
    def figure(self) -> str:
        """The time in us, as text."""
        if self.lowest_us is None:
            text = f"< {self.highest_us:g}"
        elif self.lowest_us != self.highest_us:
            text = f"{self.lowest_us:g} to {self.highest_us:g}"
        else:
            text = f"{self.highest_us:g}"
        return f"{text} {self.statistic}".strip()


class ShapeResult(Record):
    """A benchmark network: its hardware, and the same step elsewhere."""

    name: str
    origin: str
    inputs: int
    cell: Literal["lstm", "gru"]
    units: tuple[int, ...]
    dense: tuple[int, ...]
    steps: int
    weights: int
    recurrent_macs: int
    dense_macs: int
    input_path_macs: int
    hardware: HardwareFigures
    clock: Clock
    latency_us: float
    interval_us: float
    sequence_us: float
    """All steps back to back, from the last input beat of the first."""
    cpu: tuple[CpuTime, ...]
    anchors: tuple[Anchor, ...]


class Target(Record):
    """A target of the project, and what was measured."""

    what: str
    value: float | None
    unit: str
    must: str
    aim: str
    verdict: Literal["aim", "must", "missed", "not measured"]
    note: str = ""


class BenchResult(Record):
    """The result of a whole benchmark run."""

    schema_version: Literal[1] = 1
    quick: bool
    machine: Machine
    shapes: tuple[ShapeResult, ...]
    other_anchors: tuple[Anchor, ...]
    """Figures of networks that are not measured here; of a run of all networks alone."""
    golden: tuple[GoldenSpeed, ...]
    targets: tuple[Target, ...]
    """The project's own, if they were asked for."""
    passed: bool
    """Whether every cycle is as predicted, and every word of the RTL equals the golden model's."""


class Instances(Record):
    """Latencies of instances of a network that share a core; their inputs come in the same cycle."""

    instances: int
    steps: int
    """1 if the state is kept from step to step; else the steps of a window that begins with a zero state."""
    p50_us: float
    p99_us: float
    max_us: float


class StacShape(Record):
    """A network of STAC-ML Markets: latencies of its instances, and the error of a window."""

    name: str
    steps: int
    """Steps of a window."""
    clock: Clock
    instances: tuple[Instances, ...]
    rms_error: float
    largest_error: float
    """The largest error of a window's outputs against float64."""


class StacResult(Record):
    """The result of ``rtlstm bench --profile stac``."""

    schema_version: Literal[1] = 1
    shapes: tuple[StacShape, ...]


def _read(file: Path) -> Iterator[Anchor]:
    with file.open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            fields: dict[str, Any] = {name: value for name, value in row.items() if value}
            yield Anchor(**fields)


ANCHORS = tuple(_read(Path(__file__).with_name("anchors.csv")))
"""Figures of the networks that are measured here, and a few of others for orientation."""
