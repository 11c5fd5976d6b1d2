"""An FPGA: its record, and the choice of its package and speed grade."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from rtlstm.spec.record import Record

__all__ = ["Chosen", "FpgaDevice", "Memory", "Pins", "PowerFigures", "device_label"]


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
