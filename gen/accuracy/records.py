"""What ``rtlstm accuracy`` finds: errors of layers and outputs, what they come from, what would help."""

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import Field

from rtlstm.spec.options import option_text
from rtlstm.spec.record import Record

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


class WidthErrors(Record):
    """Errors of the outputs with one width changed by a bit, measured with the golden model.

    They are those of the build that ``rtlstm generate`` makes with these options and the same other ones.
    """

    option: str
    """The option of ``rtlstm generate``, by its name in Python."""
    bits: int
    """Its value instead of the build's."""
    change: Literal[-1, 1]
    rms_error: float | None
    """None if the network cannot be quantised so."""
    max_abs_error: float | None
    refusal: str = ""
    """Why it cannot."""
    also: Mapping[str, int | float | str] = Field(default_factory=dict)
    """Options that were changed with it: the range of c that was searched for the build, which is stated
    then, and gates as wide as the data."""
    less: tuple[str, ...] = ()
    """Options of the build that were left out."""

    @property
    def change_text(self) -> str:
        """What to change in the options of ``rtlstm generate``."""
        less = f" without {', '.join(f'`{name}`' for name in self.less)}" if self.less else ""
        return option_text({self.option: self.bits, **self.also}) + less


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
    score: Score | None = None
    verdict: str
    """The conclusion, a sentence or two."""
    remarks: tuple[str, ...] = ()


def largest_part(errors: LayerErrors) -> PartErrors | None:
    """Return the part whose rounding costs most: with it in float the error is least."""
    return min(errors.parts, key=lambda each: (each.without, -each.alone), default=None)
