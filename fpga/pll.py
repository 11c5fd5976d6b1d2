"""Clocks from the boards' PLLs: an exact search over the dividers of a family's cell.

All frequencies are integers or fractions in Hz, so they are exact. The limits are those of the data sheets;
if speed grades differ, those of the slowest.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from rtlstm.spec.errors import ConfigurationError

__all__ = ["MEGA", "Dividers", "Pll", "PllSearch", "megahertz"]

MEGA = 1_000_000
Dividers = tuple[int, ...]
"""Dividers of a PLL; the first divides the input, the others depend on the family."""


@dataclass(frozen=True)
class Pll:
    """A PLL's cell with its settings.

    ``parameters``, ``attributes`` and ``constants`` are the cell's own; constants are the bits of inputs.
    """

    cell: str
    input_hz: int
    vco_hz: Fraction
    output_hz: Fraction
    parameters: Mapping[str, int | str]
    attributes: Mapping[str, str]
    constants: Mapping[str, str]
    input_port: str
    output_port: str
    lock_port: str
    feedback: tuple[str, str] | None = None
    """Output and input of the feedback loop, if a wire outside the cell closes it."""


def megahertz(clock: Fraction) -> str:
    """Return a frequency in MHz, exact if it has up to six decimals."""
    return f"{float(clock / MEGA):.6f}".rstrip("0").rstrip(".")


class PllSearch(ABC):
    """The possible settings of a family's PLL."""

    middle_hz: int
    """The middle of the oscillator's range."""

    @abstractmethod
    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        """Yield clock, oscillator and dividers, for a source of ``source_hz``."""

    @abstractmethod
    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        """Return the cell with the settings of a candidate."""

    def has_second_output(self, dividers: Dividers) -> bool:
        """Whether the clock comes from another output than the feedback."""
        return False

    def find(self, source_hz: int, wanted_hz: Fraction) -> Pll:
        """Return the PLL whose clock is nearest to the wanted one and not above it.

        Of several with the same clock, it prefers one whose feedback needs no output of its own, then the
        fastest phase detector, then the oscillator nearest to the middle of its range.

        Raises
        ------
        ConfigurationError
            If the wanted clock is outside the PLL's range.
        """
        found = list(self.candidates(source_hz))
        below = [item for item in found if item[0] <= wanted_hz]
        highest = max(item[0] for item in found)
        if not below or wanted_hz > highest:
            lowest = min(item[0] for item in found)
            raise ConfigurationError(
                f"the clock must be {megahertz(lowest)} to {megahertz(highest)} MHz, which is what the "
                f"board's PLL makes of {megahertz(Fraction(source_hz))} MHz, not {megahertz(wanted_hz)}"
            )
        best = max(item[0] for item in below)
        same = [item for item in below if item[0] == best]
        clock, vco, dividers = min(
            same,
            key=lambda item: (self.has_second_output(item[2]), item[2][0], abs(item[1] - self.middle_hz)),
        )
        return self.cell(source_hz, clock, vco, dividers)
