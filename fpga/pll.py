"""Clocks from the boards' PLLs: an exact search over the dividers of a family's cell.

All frequencies are whole hertz or fractions of them, so that a clock is what it is said to be. The limits
are those of the data sheets; where speed grades differ, of the slowest.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from rtlstm.spec.errors import ConfigurationError

__all__ = ["MEGA", "Dividers", "Pll", "PllSearch", "megahertz"]

MEGA = 1_000_000
Dividers = tuple[int, ...]
"""What a PLL is set to; the first divides the input, the rest is up to the family."""


@dataclass(frozen=True)
class Pll:
    """A PLL's cell with all that is set in it.

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
    """Output and input between which a wire closes the loop outside of the cell."""


def megahertz(clock: Fraction) -> str:
    """Return a frequency in MHz, exact if it has up to six decimals."""
    return f"{float(clock / MEGA):.6f}".rstrip("0").rstrip(".")


class PllSearch(ABC):
    """What a family's PLL can be set to."""

    middle_hz: int
    """The middle of its oscillator's range."""

    @abstractmethod
    def candidates(self, source: int) -> Iterator[tuple[Fraction, Fraction, Dividers]]:
        """Yield clock, oscillator and dividers, from a source of so many hertz."""

    @abstractmethod
    def cell(self, source: int, clock: Fraction, vco: Fraction, dividers: Dividers) -> Pll:
        """Return the cell that is set to one of the candidates."""

    def has_second_output(self, dividers: Dividers) -> bool:
        """Whether the clock is another output than the loop's."""
        return False

    def find(self, source_hz: int, wanted_hz: Fraction) -> Pll:
        """Return the PLL whose clock is nearest to the wanted one and not above it.

        Of several with the same clock: one whose loop needs no output of its own, then the quickest phase
        detector, then the oscillator nearest to the middle of its range.

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
