"""What an exploration finds."""

from collections.abc import Mapping

from rtlstm.explore.space import Choice
from rtlstm.spec.numerics import LayerShape, Numerics
from rtlstm.spec.parameters import TableMemory
from rtlstm.spec.program.passes import Passes
from rtlstm.spec.record import Record


class Errors(Record):
    """How far a network's outputs are from float ones."""

    rms: float
    largest: float
    metric: float | None = None
    """What the user's metric says; None without one."""


class Numbers(Record):
    """Formats of a network, and their errors: what estimates need of a quantised network."""

    shapes: tuple[LayerShape, ...]
    numerics: Numerics
    passes: Passes
    errors: Errors


class Proof(Record):
    """What building, simulating and routing a point gave."""

    words: int
    """Output words and words of final states whose RTL and golden model were compared."""
    words_different: int
    cycles_different: int
    """Steps that are not offered in the predicted cycle."""
    step_latency_cycles: int
    """What the build's manifest has."""
    passed: bool
    """Whether no word and no cycle differs, and the build has the point's cycles."""
    fmax_mhz: float | None = None
    """Routed, the median of the seeds; None without a route, as those that follow."""
    step_latency_us: float | None = None
    luts: int | None = None
    multipliers: float | None = None
    block_rams: float | None = None
    refusal: str = ""
    """Why the tools did not route it."""


class Point(Record):
    """A build that fits its device: exact cycles and errors, and estimates before synthesis."""

    choice: Choice
    lanes: int
    macs: int
    gate_units: int
    pipeline: str
    table_memory: TableMemory
    """What holds the tables: ``rom`` where the device lacks block RAM."""
    step_latency_cycles: int
    step_interval_cycles: int
    latency_us: float
    interval_us: float
    fmax_mhz: float
    luts: int
    ffs: int
    multipliers: int | float
    block_rams: int
    large_rams: int
    energy_nj: float | None
    """Estimated energy of a step, one after another without a pause; None without published figures."""
    share: float
    """How much is used of what is fullest, in percent of what may be: of logic cells, carry chains and memory
    blocks, and of multipliers where logic cannot replace them."""
    limited_by: str
    errors: Errors
    proof: Proof | None = None


class Refusal(Record):
    """A choice that cannot be built, and why."""

    choice: Choice
    why: str
    fits: bool
    """Whether there are such numbers, but no array of them fits the device."""
    share: float | None = None
    """What the nearest array needs of the resource that it exceeds most, more than 1; None if not known."""


Outcome = Point | Refusal


class Exploration(Record):
    """The whole result."""

    size: int
    """How many choices there are."""
    tried: int
    """How many were tried, earlier calls included."""
    too_large: int
    """How many of these do not fit their device."""
    impossible: int
    """How many of these have formats that cannot be built."""
    front: tuple[Point, ...]
    """The points that meet the limits and that no other such point of their device beats, the best first."""
    within: int
    """How many points meet the limits."""
    metric: str
    metric_meaning: str
    """What its values are."""
    larger_is_better: bool
    """Whether larger values of the metric are better."""
    float_metric: float | None
    """The metric of the float network; None if it compares with that."""
    goal: str
    limits: tuple[str, ...]
    ruled_out: tuple[str, ...]
    """Which limits rule all out, and by how much; empty if some points meet them."""
    new: int
    """How many choices this call tried."""
    seconds: float
    """How long this call took for them."""
    workers: str
    without_build: Mapping[str, str]
    """Devices that have no build, and why the last choice that was tried for them is none."""
    beyond_limits: Mapping[str, tuple[str, ...]]
    """Devices whose builds all miss limits that others meet, and which limits rule them out."""
    refusals: Mapping[str, int]
    """Why choices cannot be built, and how often."""

    @property
    def points_per_hour(self) -> float | None:
        """How many choices this call tried in an hour; None if it tried none."""
        return self.new / self.seconds * 3600 if self.new else None
