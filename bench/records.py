"""What a run of the benchmarks finds, as records; together they are its JSON."""

from typing import Literal

from rtlstm.bench.anchors import Anchor
from rtlstm.spec.record import Record

__all__ = [
    "BenchResult",
    "Clock",
    "CpuTime",
    "GoldenSpeed",
    "HardwareFigures",
    "LayerFigures",
    "Machine",
    "ShapeResult",
    "Target",
]


class Machine(Record):
    """Where the programs' times were measured."""

    processor: str
    cores: int
    pinned_core: int | None
    """The core that every program was held on; None where the system cannot do that."""
    load_average: float
    """Processes that were running in the minute before."""
    python: str
    numpy: str


class Clock(Record):
    """A frequency, and where it comes from."""

    mhz: float
    source: Literal["post-route", "assumed"]
    device: str = ""
    """Device of a post-route clock."""

    @property
    def label(self) -> str:
        """The clock, for people."""
        if self.source == "assumed":
            return f"{self.mhz:g} MHz assumed"
        return f"{self.mhz:g} MHz post-route, {self.device}"


class LayerFigures(Record):
    """Cycles of one layer on the way from input to output."""

    name: str
    kind: str
    array_cycles: int
    overhead_cycles: int


class HardwareFigures(Record):
    """Cycles of a step: predicted and, in RTL simulation, measured."""

    pipeline: str
    """The family whose pipeline the cycles are of."""
    lanes: int
    macs: int
    gate_units: int
    predicted_latency: int
    predicted_interval: int
    predicted_sequence: int
    """From the first input beat to the last step's output, of a sequence of which no other is wanted."""
    predicted_first_step_latency: int
    array_cycles: int
    """Least cycles from input to output: words of the array on that path."""
    overhead_cycles: int
    layers: tuple[LayerFigures, ...]
    use: float
    """Share of the cycles in which the array works, in a long sequence; predicted."""
    use_with_streams: float
    """The same with four sequences by turns, for which the build needs four streams; predicted."""
    measured_latency: int | None = None
    measured_interval: int | None = None
    """None if it was not simulated, or if steps were not all as far apart."""
    measured_first_step_latency: int | None = None
    steps: int = 0
    """Steps simulated and compared."""
    words_compared: int = 0
    """Words of y, h and c that RTL and golden model both computed."""
    words_different: int = 0
    steps_off_cycle: int = 0
    """Steps whose output was not offered in the predicted cycle."""
    simulated_steps_per_second: float | None = None
    not_simulated: str = ""
    """Why there are no measured cycles; empty if there are."""

    @property
    def agrees(self) -> bool:
        """Whether simulation gave every word and every cycle as predicted, or there was none."""
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
    steps: int = 0
    max_error: float | None = None
    """Largest difference from the float reference in the first steps."""
    missing: str = ""
    """What to install, if it could not be measured."""


class GoldenSpeed(Record):
    """The golden model on the processor, one thread."""

    weight_bits: int
    data_bits: int
    batch: int
    steps: int
    golden_ms: float
    onnxruntime_ms: float | None
    """float32, the same batch and sequence; None if it is not installed."""
    step_us: float
    """One step of one sequence, median."""
    backend_step_us: float
    """The same through the driver and the golden backend."""

    @property
    def ratio(self) -> float | None:
        """Golden time over onnxruntime's."""
        return None if self.onnxruntime_ms is None else self.golden_ms / self.onnxruntime_ms


class ShapeResult(Record):
    """A shape: its hardware, and the same step elsewhere."""

    name: str
    origin: str
    inputs: int
    lstm: tuple[int, ...]
    dense: tuple[int, ...]
    steps: int
    weights: int
    lstm_macs: int
    dense_macs: int
    input_path_macs: int
    hardware: HardwareFigures
    clock: Clock
    latency_us: float
    interval_us: float
    sequence_us: float
    """All steps, one behind the other, from the last input beat of the first."""
    cpu: tuple[CpuTime, ...]
    anchors: tuple[Anchor, ...]


class Target(Record):
    """A quantity that the project has set itself."""

    what: str
    value: float | None
    unit: str
    must: str
    aim: str
    verdict: Literal["aim", "must", "missed", "not measured"]
    note: str = ""


class BenchResult(Record):
    """Everything."""

    schema_version: Literal[1] = 1
    quick: bool
    machine: Machine
    shapes: tuple[ShapeResult, ...]
    other_anchors: tuple[Anchor, ...]
    """Anchors of networks that are not among the shapes."""
    golden: tuple[GoldenSpeed, ...]
    targets: tuple[Target, ...]
    passed: bool
    """Whether every predicted cycle was measured, and every word of the RTL is the golden model's."""
