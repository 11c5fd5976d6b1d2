"""The FPGAs that rtlstm knows: their sizes, and what their tools call them."""

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FamilyName
from rtlstm.spec.record import Record

__all__ = ["DEVICES", "Architecture", "Chosen", "FpgaDevice", "Memory", "device_label", "find_device"]

Architecture = Literal["ecp5", "ice40", "nexus", "gowin", "xilinx", "xilinx-ultrascale-plus", "intel"]
"""Whose synthesis and cells a device has; those of xilinx and intel have no open place and route here."""


class Memory(Record):
    """Memory blocks of one sort, beside the block RAM."""

    name: str
    count: Annotated[int, Field(ge=1)]
    kibit: Annotated[int, Field(ge=1)]


class FpgaDevice(Record):
    """An FPGA: what is on it, and how its tools name it.

    The sizes of devices with place and route are those that nextpnr reports.
    """

    name: str
    architecture: Architecture
    family: FamilyName
    """Of the build that fits it best."""
    luts: Annotated[int, Field(ge=1)]
    """Four-input tables; six-input ones on Xilinx, adaptive logic modules on Intel."""
    ffs: Annotated[int, Field(ge=1)]
    multipliers: Annotated[int, Field(ge=0)]
    """18 x 18 (iCE40: 16 x 16; Xilinx and Intel: DSP blocks)."""
    block_rams: Annotated[int, Field(ge=0)]
    block_ram_kibit: Annotated[int, Field(ge=1)]
    large_ram: Memory | None = None
    options: tuple[str, ...] = ()
    """What selects it in nextpnr; ``{package}`` and ``{grade}`` are filled in."""
    grades: tuple[str, ...] = ()
    """Speed grades; the first is the default, and the slowest."""
    pins: Mapping[str, tuple[str, ...]] = {}
    """Packages, the default first, and pins for a clock, an input and an output where nextpnr
    does not choose them itself."""
    aliases: tuple[str, ...] = ()
    block_ram_mhz: Mapping[str, float] = {}
    """Per speed grade, the highest clock that the block RAM's data sheet allows. nextpnr does not
    check it."""
    target_mhz: Mapping[str, float] = {}
    """Per speed grade, the clock to aim at if the user names none."""

    @property
    def chain_tiles(self) -> int | None:
        """Tiles that carry chains can begin in, of eight tables each; None where they are no limit."""
        return self.luts // 8 if self.architecture == "ecp5" else None

    @property
    def routable(self) -> bool:
        """Whether there is a place and route tool for it."""
        return bool(self.options)


def device_label(name: str, grade: str) -> str:
    """Return a name for people and for a folder; ``grade`` may be empty."""
    return (f"{name}-{grade}" if grade else name).replace("/", "-").lower()


class Chosen(Record):
    """A device with its package and speed grade."""

    device: FpgaDevice
    package: str
    grade: str

    @property
    def label(self) -> str:
        """A name for people and for a folder, such as ``lfe5u-85f-8``."""
        return device_label(self.device.name, self.grade)

    @property
    def options(self) -> tuple[str, ...]:
        """nextpnr's options that select it."""
        return tuple(part.format(package=self.package, grade=self.grade) for part in self.device.options)

    @property
    def pins(self) -> tuple[str, ...]:
        """Pins for a clock, an input and an output; none if nextpnr chooses them."""
        return self.device.pins.get(self.package, ())

    @property
    def block_ram_mhz(self) -> float | None:
        """The block RAM's limit at this grade."""
        return self.device.block_ram_mhz.get(self.grade)

    @property
    def target_mhz(self) -> float:
        """The clock to aim at if the user names none."""
        return self.device.target_mhz.get(self.grade, 100.0)


def _ecp5(size: str, luts: int, multipliers: int, block_rams: int, packages: str) -> FpgaDevice:
    return FpgaDevice(
        name=f"lfe5u-{size}f",
        architecture="ecp5",
        family="ecp5",
        luts=luts,
        ffs=luts,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=18,
        options=(f"--{size}k", "--package", "{package}", "--speed", "{grade}", "--lpf-allow-unconstrained"),
        grades=("6", "7", "8"),
        pins=dict.fromkeys(packages.split(), ()),
        aliases=(f"ecp5-{size}f", f"ecp5-{size}k"),
        block_ram_mhz={"6": 212, "7": 254, "8": 271},
        target_mhz={"6": 160, "7": 190, "8": 230},
    )


def _gowin(
    name: str, part: str, family: str, sizes: tuple[int, int, int, int], pins: Mapping[str, tuple[str, ...]]
) -> FpgaDevice:
    luts, ffs, multipliers, block_rams = sizes
    return FpgaDevice(
        name=name,
        architecture="gowin",
        family="gowin",
        luts=luts,
        ffs=ffs,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=18,
        options=("--device", part, "--vopt", f"family={family}"),
        grades=(part.partition("{package}")[2],),
        pins=pins,
        target_mhz={part.partition("{package}")[2]: 60},
    )


def _nexus(size: int, luts: int, multipliers: int, block_rams: int, large: Memory, pins: str) -> FpgaDevice:
    package, *places = pins.split()
    return FpgaDevice(
        name=f"lifcl-{size}",
        architecture="nexus",
        family="nexus",
        luts=luts,
        ffs=luts,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=18,
        large_ram=large,
        options=("--device", f"LIFCL-{size}-{{grade}}{{package}}C"),
        grades=("7", "8", "9"),
        pins={package: tuple(places)},
        aliases=(f"nexus-{size}", f"crosslink-nx-{size}"),
        target_mhz={"7": 100, "8": 120, "9": 140},
    )


def _other(
    name: str,
    architecture: Architecture,
    sizes: tuple[int, int, int, int],
    kibit: int,
    large: Memory | None = None,
) -> FpgaDevice:
    luts, ffs, multipliers, block_rams = sizes
    return FpgaDevice(
        name=name,
        architecture=architecture,
        family="intel" if architecture == "intel" else "xilinx",
        luts=luts,
        ffs=ffs,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=kibit,
        large_ram=large,
    )


_ALL = (
    # nextpnr and the bitstream tools use all of the 12F's die, which is the 25F's; the data sheet
    # promises 12 k tables and 32 block RAMs.
    _ecp5("12", 24288, 28, 56, "CABGA381 CABGA256 CSFBGA285 TQFP144"),
    _ecp5("25", 24288, 28, 56, "CABGA381 CABGA256 CSFBGA285 TQFP144"),
    _ecp5("45", 43848, 72, 108, "CABGA381 CABGA256 CABGA554 CSFBGA285 TQFP144"),
    _ecp5("85", 83640, 156, 208, "CABGA381 CABGA554 CABGA756 CSFBGA285"),
    FpgaDevice(
        name="up5k",
        architecture="ice40",
        family="ice40",
        luts=5280,
        ffs=5280,
        multipliers=8,
        block_rams=30,
        block_ram_kibit=4,
        large_ram=Memory(name="SPRAM", count=4, kibit=256),
        options=("--up5k", "--package", "{package}"),
        pins={"sg48": (), "uwg30": ()},
        aliases=("ice40up5k", "ice40-up5k", "ice40up5k-sg48", "up5k-sg48"),
        target_mhz={"": 30},
    ),
    FpgaDevice(
        name="hx8k",
        architecture="ice40",
        family="ice40",
        luts=7680,
        ffs=7680,
        multipliers=0,
        block_rams=32,
        block_ram_kibit=4,
        options=("--hx8k", "--package", "{package}"),
        pins=dict.fromkeys(("ct256", "cb132", "cm225", "bg121", "tq144:4k"), ()),
        aliases=("ice40hx8k", "ice40-hx8k", "ice40hx8k-ct256", "hx8k-ct256"),
        target_mhz={"": 80},
    ),
    _nexus(17, 13824, 24, 24, Memory(name="LRAM", count=5, kibit=512), "SG72 60 59 58"),
    _nexus(40, 32256, 56, 84, Memory(name="LRAM", count=2, kibit=512), "SG72 60 59 58"),
    _gowin("gw1n-9", "GW1N-LV9{package}C6/I5", "GW1N-9C", (8640, 6480, 20, 26), {"QN88": ("52", "11", "10")}),
    _gowin(
        "gw1nr-9", "GW1NR-LV9{package}C6/I5", "GW1N-9C", (8640, 6480, 20, 26), {"QN88P": ("52", "11", "10")}
    ),
    _gowin(
        "gw2a-18",
        "GW2A-LV18{package}C8/I7",
        "GW2A-18",
        (20736, 15552, 48, 46),
        {"PG256": ("H11", "L14", "L16")},
    ),
    _gowin(
        "gw2ar-18",
        "GW2AR-LV18{package}C8/I7",
        "GW2A-18C",
        (20736, 15552, 48, 46),
        {"QN88": ("4", "16", "15")},
    ),
    _other("xc7a35t", "xilinx", (20800, 41600, 90, 50), 36),
    _other("xc7a100t", "xilinx", (63400, 126800, 240, 135), 36),
    _other("xc7a200t", "xilinx", (134600, 269200, 740, 365), 36),
    _other("xc7z020", "xilinx", (53200, 106400, 220, 140), 36),
    _other("xc7k325t", "xilinx", (203800, 407600, 840, 445), 36),
    _other("xczu3eg", "xilinx-ultrascale-plus", (70560, 141120, 360, 216), 36),
    _other(
        "xczu7ev",
        "xilinx-ultrascale-plus",
        (230400, 460800, 1728, 312),
        36,
        Memory(name="UltraRAM", count=96, kibit=288),
    ),
    _other(
        "xcku5p",
        "xilinx-ultrascale-plus",
        (216960, 433920, 1824, 480),
        36,
        Memory(name="UltraRAM", count=64, kibit=288),
    ),
    _other(
        "xcvu9p",
        "xilinx-ultrascale-plus",
        (1182240, 2364480, 6840, 2160),
        36,
        Memory(name="UltraRAM", count=960, kibit=288),
    ),
    _other("5cseba6", "intel", (41910, 166036, 112, 553), 10),
    _other("5csema5", "intel", (32070, 128300, 87, 397), 10),
)

DEVICES: dict[str, FpgaDevice] = {device.name: device for device in _ALL}
"""All devices by name."""

_CODES = {
    "bg256": "CABGA256",
    "bg381": "CABGA381",
    "bg554": "CABGA554",
    "bg756": "CABGA756",
    "mg285": "CSFBGA285",
    "tg144": "TQFP144",
}
"""Packages in the order codes of ECP5 parts."""


def find_device(name: str, package: str | None = None, grade: str | None = None) -> Chosen:
    """Find a device by its name, which may end in a speed grade or be an ECP5 part's order code.

    Raises
    ------
    ConfigurationError
        If there is none of this name, or it has no such package or speed grade.
    """
    device, code, own_grade = _split(name.strip().lower())
    if device is None:
        raise ConfigurationError(_unknown(name))
    if grade is not None and own_grade is not None and grade.lower() != own_grade.lower():
        raise ConfigurationError(
            f"--speed-grade must agree with the device's name, but they say {grade} and {own_grade}"
        )
    grade = own_grade if grade is None else grade
    return Chosen(
        device=device,
        package=_choose(device, "package", tuple(device.pins), package or code),
        grade=_choose(device, "speed grade", device.grades, grade),
    )


def _split(text: str) -> tuple[FpgaDevice | None, str | None, str | None]:
    """Return a device, and the package and speed grade that its name holds."""
    aliases = {alias: device for device in DEVICES.values() for alias in (device.name, *device.aliases)}
    if text in aliases:
        return aliases[text], None, None
    for alias, device in aliases.items():
        for grade in device.grades:
            rest = text.removeprefix(f"{alias}-{grade.lower()}")
            if rest == text:
                continue
            if not rest:
                return device, None, grade
            order = re.fullmatch(r"([a-z]+\d+)[ci]?", rest)
            if order and order[1] in _CODES:
                return device, _CODES[order[1]], grade
    return None, None, None


def _choose(device: FpgaDevice, what: str, offered: tuple[str, ...], wanted: str | None) -> str:
    if wanted is None:
        return offered[0] if offered else ""
    for name in offered:
        if name.lower() == wanted.lower():
            return name
    have = f"must be one of {', '.join(offered)}" if offered else "cannot be chosen"
    raise ConfigurationError(f"the {what} of {device.name} {have}, not {wanted!r}")


def _with_grades(devices: list[FpgaDevice], text: str) -> str:
    """Name devices with the speed grade that ``text`` ends in; if it is none, say the first one's grades."""
    typed = [grade for grade in devices[0].grades if text.endswith(f"-{grade.lower()}")]
    names = [
        f"{device.name}-{grade}" if grade in device.grades else device.name
        for device in devices
        for grade in typed or [""]
    ]
    offered = [f"{devices[0].name}-{grade}" for grade in devices[0].grades]
    hint = f"; with a speed grade: {', '.join(offered)}" if len(offered) > 1 and not typed else ""
    return ", ".join(names) + hint


def _unknown(name: str) -> str:
    names = {alias: device.name for device in DEVICES.values() for alias in (device.name, *device.aliases)}
    near = difflib.get_close_matches(name.strip().lower(), names, n=6, cutoff=0.5)
    found = [DEVICES[each] for each in dict.fromkeys(names[alias] for alias in near)][:3]
    if found:
        return f"there is no device {name!r}; near names: {_with_grades(found, name.strip().lower())}"
    return f"there is no device {name!r}; known ones: {', '.join(DEVICES)}"
