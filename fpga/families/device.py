"""An FPGA: its record, the choice of its package and speed grade, and clocks from its PLL."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Record

Pins = tuple[()] | tuple[str, str, str]
"""Pins for a clock, an input and an output; empty if nextpnr chooses them."""


class Memory(Record):
    """Memory blocks of another kind than block RAM."""

    name: str
    count: Annotated[int, Field(ge=1)]
    kibit: Annotated[int, Field(ge=1)]


class PowerFigures(Record):
    """Currents of a device's core that somebody has measured and published."""

    source: str
    """Where, so that anybody finds it."""
    volts: float
    static_ua: float
    """At rest, without a clock."""
    clock_ua_mhz: float
    """What a running clock adds for each MHz."""
    cell_ua_mhz: float
    """What a logic cell of counters adds for each MHz."""
    block_ua_mhz: float
    """What a multiplier block adds for each MHz, with a product in each cycle."""
    bit_product_ua_mhz: float
    """The same of a multiplier made of LUTs, for each bit times bit."""


class FpgaDevice(Record):
    """An FPGA: its resources, and its names in the tools.

    The sizes of devices with place and route are those that nextpnr reports.
    """

    name: str
    family: str
    """Name of its family, whose tools it has, and for which builds fit it best."""
    architecture: str
    """Name of its synthesis and cells: the family's, unless the family has several architectures."""
    luts: Annotated[int, Field(ge=1)]
    """Four-input LUTs; six-input ones on Xilinx, adaptive logic modules on Intel."""
    ffs: Annotated[int, Field(ge=1)]
    multipliers: Annotated[int, Field(ge=0)]
    """Multipliers of 18 x 18 bits (iCE40: 16 x 16; Xilinx and Intel: DSP blocks)."""
    block_rams: Annotated[int, Field(ge=0)]
    block_ram_kibit: Annotated[int, Field(ge=1)]
    large_ram: Memory | None = None
    die_of: str = ""
    """The device that has the same die; empty if it has one of its own."""
    options: tuple[str, ...] = ()
    """nextpnr's options that select it; ``{package}`` and ``{grade}`` are replaced."""
    grades: tuple[str, ...] = ()
    """Speed grades; the first is the default, and the slowest."""
    pins: Mapping[str, Pins] = {}
    """Packages, the default first, and their pins for a core in the harness."""
    aliases: tuple[str, ...] = ()
    order_codes: Mapping[str, str] = {}
    """Codes of packages in order codes, where they may follow the speed grade."""
    chain_tiles: int | None = None
    """Tiles in which carry chains can begin; None if they are no limit."""
    block_ram_mhz: Mapping[str, float] = {}
    """For each speed grade, the highest clock of the block RAM by the data sheet. nextpnr does not
    check it."""
    target_mhz: Mapping[str, float] = {}
    """For each speed grade, the target clock if the user gives none."""
    power: PowerFigures | None = None
    """Measured currents; None if none are known to be published."""
    note: str = ""
    """What to know before it is chosen; shown by all commands that state its clock or size. Mostly empty."""

    @property
    def routable(self) -> bool:
        """Whether there is a place and route tool for it."""
        return bool(self.options)

    @property
    def die(self) -> str:
        """The name of its die."""
        return self.die_of or self.name


def device_label(name: str, grade: str) -> str:
    """Return a name for messages and folders; ``grade`` may be empty."""
    return (f"{name}-{grade}" if grade else name).replace("/", "-").lower()


class Chosen(Record):
    """A device with its package and speed grade."""

    device: FpgaDevice
    package: str
    grade: str

    @property
    def label(self) -> str:
        """A name for messages and folders, such as ``lfe5u-85f-8``."""
        return device_label(self.device.name, self.grade)

    @property
    def options(self) -> tuple[str, ...]:
        """nextpnr's options that select it."""
        return tuple(part.format(package=self.package, grade=self.grade) for part in self.device.options)

    @property
    def pins(self) -> Pins:
        """Pins for a clock, an input and an output; none if nextpnr chooses them."""
        return self.device.pins.get(self.package, ())

    @property
    def block_ram_mhz(self) -> float | None:
        """The block RAM's highest clock at this grade."""
        return self.device.block_ram_mhz.get(self.grade)

    def usable_mhz(self, fmax_mhz: float, block_rams: float) -> float:
        """Return the usable clock of a design: Fmax, or the limit of its ``block_rams`` if that is lower."""
        limit = self.block_ram_mhz if block_rams else None
        return fmax_mhz if limit is None else min(fmax_mhz, limit)

    @property
    def target_mhz(self) -> float:
        """The target clock if the user gives none."""
        return self.device.target_mhz.get(self.grade, 100.0)


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
    pass_port: str | None = None
    """Output that passes the source on, where the PLL alone can read its pin."""


def megahertz(clock: Fraction) -> str:
    """Return a frequency in MHz, exact if it has up to six decimals."""
    return f"{float(clock / MEGA):.6f}".rstrip("0").rstrip(".")


class PllSearch(ABC):
    """The possible settings of a family's PLL: the search is exact, over the dividers of its cell.

    All frequencies are integers or fractions in Hz. The limits are those of the data sheets; if speed grades
    differ, those of the slowest.
    """

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

    def alike(self, dividers: Dividers) -> bool:
        """Whether this setting differs from the others of which this is true in parameters alone."""
        return True

    def range(self, source_hz: int) -> tuple[Fraction, Fraction]:
        """Return the lowest and the highest clock of the settings that are alike."""
        clocks = [clock for clock, _, dividers in self.candidates(source_hz) if self.alike(dividers)]
        return min(clocks), max(clocks)

    def find(self, source_hz: int, wanted_hz: Fraction, *, alike: bool = False) -> Pll:
        """Return the PLL whose clock is nearest to the wanted one and not above it.

        Of several with the same clock, it prefers one whose feedback needs no output of its own, then the
        fastest phase detector, then the oscillator nearest to the middle of its range.

        With ``alike``, it takes only settings that are alike, so that a placed design can get another clock.
        Raises ConfigurationError if the wanted clock is outside the PLL's range.
        """
        found = [item for item in self.candidates(source_hz) if self.alike(item[2]) or not alike]
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
