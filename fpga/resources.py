"""What a synthesised design takes of a device, and whether it fits."""

from collections.abc import Iterator, Mapping

from rtlstm.fpga.devices import FpgaDevice
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Record

__all__ = [
    "ESTIMATED",
    "Counts",
    "Resources",
    "check_fit",
    "count_cells",
    "large_name",
    "resource_uses",
    "way_out",
]

ESTIMATED = ("ecp5", "ice40")
"""Families whose parts are known well enough to be estimated, and to choose an array by that."""

_LARGE_RAMS = {"SB_SPRAM256KA": 1, "PDPSC512K": 1, "DPSC512K": 1, "SP512K": 1, "URAM288": 1}
_LUTS: dict[str, float] = {
    # ECP5 and Nexus. A 16 x 4 distributed RAM keeps one and a half slice pairs.
    "LUT4": 1,
    "CCU2C": 2,
    "CCU2": 2,
    "TRELLIS_DPR16X4": 6,
    "DPR16X4": 6,
    "WIDEFN9": 2,
    "INV": 1,
    # iCE40
    "SB_LUT4": 1,
    # Gowin
    "LUT1": 1,
    "LUT2": 1,
    "LUT3": 1,
    "ALU": 1,
    "RAM16SDP4": 4,
    "RAM16SDP2": 4,
    "RAM16SDP1": 4,
    "RAM16S4": 4,
    # Xilinx
    "LUT5": 1,
    "LUT6": 1,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "SRL16E": 1,
    "SRLC32E": 1,
    # Intel: halves of an adaptive logic module
    "MISTRAL_ALUT6": 1,
    "MISTRAL_ALUT5": 0.5,
    "MISTRAL_ALUT4": 0.5,
    "MISTRAL_ALUT3": 0.5,
    "MISTRAL_ALUT2": 0.5,
    "MISTRAL_NOT": 0.5,
    "MISTRAL_ALUT_ARITH": 0.5,
    "MISTRAL_MLAB": 0.5,
}

_MULTIPLIERS: dict[str, float] = {
    "MULT18X18D": 1,
    "MULT9X9D": 0.5,
    "SB_MAC16": 1,
    "MULT9X9": 0.5,
    "MULT18X18": 1,
    "MULT18X36": 2,
    "MULT36X36": 4,
    "MULTADDSUB9X9WIDE": 2,
    "MULTADDSUB18X18": 1,
    "MULTALU18X18": 2,
    "MULTADDALU18X18": 2,
    "DSP48E1": 1,
    "DSP48E2": 1,
    "MISTRAL_MUL9X9": 1 / 3,
    "MISTRAL_MUL18X18": 0.5,
    "MISTRAL_MUL27X27": 1,
}

_BLOCK_RAMS: dict[str, float] = {
    "DP16KD": 1,
    "PDPW16KD": 1,
    "SB_RAM40_4K": 1,
    "SB_RAM40_4KNR": 1,
    "SB_RAM40_4KNW": 1,
    "SB_RAM40_4KNRNW": 1,
    "DP16K": 1,
    "PDP16K": 1,
    "PDPSC16K": 1,
    "SP16K": 1,
    "SP": 1,
    "SPX9": 1,
    "SDPB": 1,
    "SDPX9B": 1,
    "DPB": 1,
    "DPX9B": 1,
    "pROM": 1,
    "pROMX9": 1,
    "RAMB18E1": 0.5,
    "RAMB18E2": 0.5,
    "RAMB36E1": 1,
    "RAMB36E2": 1,
    "MISTRAL_M10K": 1,
}

_FFS = ("TRELLIS_FF", "SB_DFF", "FD1P3", "DFF", "FD", "LD", "MISTRAL_FF")
"""How the names of flip-flops begin."""


class Resources(Record):
    """What is taken of a device, counted or estimated, in the units of the device's own sizes."""

    luts: int
    ffs: int
    multipliers: float
    block_rams: float
    large_rams: int


class Counts(Resources):
    """What a synthesised design takes of a device."""

    cells: Mapping[str, int]
    """The tool's own cells."""


def count_cells(cells: Mapping[str, int]) -> Counts:
    """Sum up cells by what they take."""

    def total(costs: Mapping[str, float]) -> float:
        return round(sum(costs.get(name, 0) * count for name, count in cells.items()), 2)

    known = _LUTS.keys() | _MULTIPLIERS.keys() | _BLOCK_RAMS.keys() | _LARGE_RAMS.keys()
    return Counts(
        luts=-int(-total(_LUTS) // 1),
        ffs=sum(count for name, count in cells.items() if name.startswith(_FFS) and name not in known),
        multipliers=total(_MULTIPLIERS),
        block_rams=total(_BLOCK_RAMS),
        large_rams=int(total(_LARGE_RAMS)),
        cells={name: count for name, count in sorted(cells.items()) if not name.startswith("$")},
    )


def large_name(device: FpgaDevice) -> str:
    """What a device's largest memories are called."""
    return "large memory blocks" if device.large_ram is None else f"{device.large_ram.name} blocks"


def resource_uses(sizes: Resources, device: FpgaDevice) -> Iterator[tuple[str, float, int]]:
    """Yield each resource of a device: its name, how much is taken, how much there is."""
    yield "lookup tables" if device.architecture != "intel" else "logic modules", sizes.luts, device.luts
    yield "flip-flops", sizes.ffs, device.ffs
    yield "multipliers", sizes.multipliers, device.multipliers
    yield "block RAMs", sizes.block_rams, device.block_rams
    large = device.large_ram
    if large is not None or sizes.large_rams:
        yield large_name(device), sizes.large_rams, 0 if large is None else large.count


def way_out(device: FpgaDevice, board: str = "", other: str = "") -> str:
    """What to do about a build that is too large for a device or board; ``other`` is one way more."""
    ways = ["generate it with fewer --lanes or --macs", *([other] if other else [])]
    if device.architecture in ESTIMATED:
        ways.insert(0, f"let 'rtlstm generate --fit {board or device.name}' choose its array")
    return f"{', '.join(ways)}, or choose a larger device"


def check_fit(name: str, counts: Counts, device: FpgaDevice, board: str = "") -> None:
    """Check a design's counts against a device; ``board`` is the board that it is on, or empty.

    Raises
    ------
    ConfigurationError
        If there is too little of something; the message names all of it.
    """
    lacking = [
        f"{used:g} {what} (it has {there:,})"
        for what, used, there in resource_uses(counts, device)
        if used > there
    ]
    if lacking:
        raise ConfigurationError(
            f"{name} does not fit {device.name}: it takes {', '.join(lacking)}; {way_out(device, board)}"
        )
