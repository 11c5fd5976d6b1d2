"""What ``rtlstm accuracy`` finds: errors of layers and outputs, what they come from, what would help."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from rtlstm.spec.record import Record, option_text

Part = Literal["weights", "activations", "tables", "state"]
"""What is rounded: weights with biases and peepholes; activations, which are inputs, h and dense results;
tables with what they read and give; the state that a cell keeps."""
PARTS: tuple[Part, ...] = get_args(Part)


class PartErrors(Record):
    """Root mean square errors with one part in float, and with nothing but that part rounded."""

    part: Part
    alone: float
    """Error if this part is rounded and all others are in float."""
    without: float
    """Error if this part is in float and all others are rounded."""
    steps: tuple[float, ...]
    """Errors over time if this part is rounded and all others are in float; see ``LayerErrors.steps``."""


class LayerErrors(Record):
    """Errors of a layer's results, or of the network's outputs, against float."""

    name: str
    kind: str
    """The kind of layer; ``output`` for the network's outputs."""
    rms_signal: float
    """Root mean square of the values in float."""
    rms_error: float
    max_abs_error: float
    snr_db: float | None
    """Signal-to-noise ratio in dB; None if there is no error, or no signal."""
    parts: tuple[PartErrors, ...]
    steps: tuple[float, ...]
    """Root mean square errors over time: of each step, or of each ``steps_per_point`` steps."""

    @property
    def percent(self) -> float | None:
        """The error as a percentage of the signal; None without a signal."""
        return self.relative(self.rms_error)

    def relative(self, error: float) -> float | None:
        """Return an error as a percentage of the signal; None without a signal."""
        return 100 * error / self.rms_signal if self.rms_signal else None


class Saturations(Record):
    """How many values of a quantity saturated."""

    name: str
    """The layer; empty for the network's input."""
    quantity: Literal["input", "pre-activations", "state", "results"]
    """``results`` count where they are more than a unit beyond the limit: 1 of a sigmoid is within it."""
    values: int
    """Values in all valid steps."""
    saturated: int
    counts: tuple[int, ...]
    """The number for each feature, row (gate by gate) or unit."""

    @property
    def percent(self) -> float:
        """Percentage of the values that saturated."""
        return 100 * self.saturated / self.values if self.values else 0.0

    @property
    def worst(self) -> int:
        """Index of the feature, row or unit that saturated most often."""
        return max(range(len(self.counts)), key=self.counts.__getitem__)


class Cost(Record):
    """What a build takes."""

    device: str = ""
    """The device that LUTs and block RAMs are estimated for; empty if its family has no estimates."""
    luts: int | None = None
    block_rams: int | None = None
    memory_bits: int
    """Bits of all memories."""
    step_latency_cycles: int
    """Cycles of a step; of a sequence if the network takes whole ones."""

    def growth(self, now: "Cost") -> float:
        """Return by how much it is more than another cost: the sum of what each size grows, by its share."""
        memories = (self.memory_bits, now.memory_bits)
        pairs = [(self.step_latency_cycles, now.step_latency_cycles), (self.luts or 0, now.luts or 0)]
        pairs.append((self.block_rams or 0, now.block_rams or 0) if self.device else memories)
        return sum(then / max(size, 1) - 1 for then, size in pairs)

    def change_text(self, now: "Cost") -> str:
        """Say what is taken now, and with this cost."""
        pairs = {
            "LUTs": (now.luts, self.luts),
            "block RAMs": (now.block_rams, self.block_rams),
            "bits of memory": (None, None) if self.device else (now.memory_bits, self.memory_bits),
            "cycles": (now.step_latency_cycles, self.step_latency_cycles),
        }
        parts = [
            f"{then:,} {name}" if then == size else f"{size:,} -> {then:,} {name}"
            for name, (size, then) in pairs.items()
            if size is not None and then is not None
        ]
        return ", ".join(parts) + (f" on {self.device}" if self.device else "")


class WidthErrors(Record):
    """Errors of the outputs with other widths, and what they cost.

    They are those of the build that ``rtlstm generate`` makes with these options and the same other ones.
    """

    changes: Mapping[str, int | float | str]
    """Options of ``rtlstm generate`` by their names in Python, and their values instead of the build's."""
    bits: int
    """Bits more, or fewer if negative, of the first one; 0 for a range."""
    rms_error: float | None
    """None if there is no such build."""
    max_abs_error: float | None
    uncertainty: float | None = None
    """As in :class:`ErrorReport`."""
    cost: Cost | None = None
    measured: bool = True
    """Whether the build was quantised as ``generate`` does it; else the error is that of the formulas'
    formats, in the ratio of this build's to theirs with its widths."""
    refusal: str = ""
    """Why there is no such build."""

    @property
    def change_text(self) -> str:
        """What to change in the options of ``rtlstm generate``."""
        return option_text(self.changes)


class Advice(Record):
    """The change that is worth most for what it costs."""

    changes: Mapping[str, int | float | str]
    """Options to change."""
    options: Mapping[str, Any]
    """All options of the new build, as :func:`rtlstm.compile` takes them, but for data and how the model is
    read."""
    rms_error: float
    max_abs_error: float
    uncertainty: float | None = None
    """As in :class:`ErrorReport`, with the change."""
    cost: Cost
    cost_now: Cost

    @property
    def text(self) -> str:
        """What it gives, and what it costs."""
        takes, sure = self.cost.change_text(self.cost_now), ""
        if self.uncertainty is not None:
            sure = f" (+-{100 * self.uncertainty:.2g} % on other data like these)"
        return f"{option_text(self.changes)} gives {self.rms_error:.3g} rms{sure} and takes {takes}"


class Score(Record):
    """How float and fixed outputs agree with labels."""

    measure: Literal["accuracy", "mean absolute error"]
    labels: int
    """Decisions, or values, that were compared."""
    float_score: float
    fixed_score: float
    changed: int | None
    """Decisions of the fixed outputs that are not those of the float ones; None for targets."""
    classes: int | None = None
    """Different classes among the labels; None for targets."""


class ErrorReport(Record):
    """Errors of a build against float, and where they come from."""

    model: bool
    """Whether float is the model; else it is the network of the build's rounded weights."""
    sequences: int
    steps: int
    """Steps of the longest sequence."""
    total_steps: int
    """Valid steps of all sequences."""
    steps_per_point: int
    """Steps that a value of ``LayerErrors.steps`` is of."""
    output: LayerErrors
    layers: tuple[LayerErrors, ...]
    saturations: tuple[Saturations, ...]
    widths: tuple[WidthErrors, ...]
    advice: Advice | None = None
    """None if nothing that was tried is worth it."""
    uncertainty: float | None = None
    """Standard error of ``output.rms_error`` by its share, from sequence to sequence, or from part to part of
    a single one: how far the error on other data like these may be off; None of a few steps."""
    score: Score | None = None
    verdict: str
    """The conclusion, a sentence or two."""
    remarks: tuple[str, ...] = ()


def largest_part(errors: LayerErrors) -> PartErrors | None:
    """Return the part whose rounding costs most: with it in float the error is least."""
    return min(errors.parts, key=lambda each: (each.without, -each.alone), default=None)


GAIN = 0.95
"""What is worth naming leaves at most this share of the error."""


def named_part(errors: LayerErrors) -> PartErrors | None:
    """Return the part that most of the error is from; None if no part alone."""
    part = largest_part(errors)
    return part if part is not None and part.without <= GAIN * errors.rms_error else None
