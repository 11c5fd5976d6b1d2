"""What a core will take of a device and how fast it will be there, before any synthesis.

Multipliers and block RAM are exact (:mod:`rtlstm.fpga.blocks`). Tables, flip-flops and carry chains are
sums over the parts of the core (:mod:`rtlstm.fpga.core_parts`) times what synthesis makes of such a part;
the clock is what the family's pipeline reaches at a speed grade, less what a full device costs. These factors
are measured and stand here. What a board's top adds is in :mod:`rtlstm.fpga.top_sizes`, how full a device
may be in :mod:`rtlstm.fpga.fill`.
"""

from collections.abc import Iterator, Mapping

from rtlstm.fpga.blocks import count_blocks
from rtlstm.fpga.core_parts import chain_parts, ff_parts, lut_parts
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.families.device import Chosen, FpgaDevice
from rtlstm.fpga.fill import fill_limits
from rtlstm.fpga.resources import ESTIMATED, Resources, large_name, resource_uses, way_out
from rtlstm.fpga.top_sizes import TOP_CHAIN_TILES, top_sizes
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.options import option
from rtlstm.spec.record import Record

__all__ = [
    "CHAIN_FACTORS",
    "ESTIMATED",
    "FF_FACTORS",
    "LUT_FACTORS",
    "MARGIN",
    "ClockModel",
    "Estimate",
    "check_estimate",
    "clock_model",
    "estimate",
    "estimate_devices",
    "usable",
]

MARGIN = 0.15
"""How far tables and flip-flops of an estimate may be off, as a share; ``bench/estimates.py`` measures it."""
_UNSURE = ("lookup tables", "flip-flops")

LUT_FACTORS: Mapping[str, Mapping[str, float]] = {
    "ecp5": {
        "LUTRAM": 1.41,
        "registers": 0.7,
        "banks": 0.949,
        "read back": 4.4,
        "collect": 0.826,
        "shift": 0.801,
        "round": 2.11,
        "gates": 3.29,
        "slopes": 0.765,
        "vector": 0.894,
        "window": 5.2,
        "rows": 5.37,
        "core": 261,
    },
    "ice40": {
        "LUTRAM": 1,
        "registers": 1.1,
        "banks": 0.69,
        "read back": 4.59,
        "collect": 0.915,
        "shift": 1.12,
        "round": 1.57,
        "gates": 1.81,
        "slopes": 0.5,
        "vector": 3.61,
        "window": 2.75,
        "rows": 6.8,
        "core": 207,
    },
}
"""Tables for each unit of :func:`~rtlstm.fpga.core_parts.lut_parts`; those left out count one to one. Least
squares over the builds of ``rtlstm bench --estimates``, which fits them again; Yosys 0.70."""


FF_FACTORS: Mapping[str, Mapping[str, float]] = {
    "ecp5": {
        "sums": 1,
        "products": 1,
        "banks": 1.17,
        "passed": 0.984,
        "vector": 0.829,
        "collected": 1.17,
        "memories": 0.864,
        "pre-activations": 1.16,
        "gates": 3.93,
        "window": 3.3,
        "items": 0.779,
        "core": 502,
    },
    "ice40": {
        "sums": 1.15,
        "products": 1.02,
        "banks": 1.05,
        "passed": 1.03,
        "vector": 0.985,
        "collected": 1.02,
        "memories": 0.829,
        "pre-activations": 1.08,
        "gates": 2.92,
        "window": 2.93,
        "items": 0.719,
        "core": 403,
    },
}
"""Flip-flops for each unit of :func:`~rtlstm.fpga.core_parts.ff_parts`, fitted in the same way."""

LONE_FLIP_FLOPS: Mapping[str, float] = {"ice40": 0.62}
"""Share of the flip-flops that no table feeds alone, so that each takes a logic cell to itself, where
those have one table and one flip-flop: nextpnr's packing of the up5k, and cells that only carry."""
TOP_LONE_FLIP_FLOPS: Mapping[str, float] = {"ice40": 0.4}
"""The same of a board's top: its counters and states come from tables more often."""


class ClockModel(Record):
    """Clock in MHz per speed grade of a family's pipeline, in a device that is hardly filled."""

    base_mhz: Mapping[str, float]
    """Per speed grade."""
    filled: float
    """Share of the clock that is lost in a device whose logic cells are all taken."""
    narrow_bits: int
    """Widest sum of a lane that costs nothing."""
    wide_bit: float
    """Share of the clock that each further bit of it costs."""
    logic_slopes: float
    """Share of it that slope multipliers of tables cost, which have one stage, where the device has
    multiplier blocks."""

    def mhz(self, grade: str, fill: float, sum_bits: int, logic_slopes: bool = False) -> float:
        """Clock of a core at a speed grade; ``fill`` is the share of the logic cells it takes."""
        base = self.base_mhz.get(grade, min(self.base_mhz.values()))
        wide = max(0, sum_bits - self.narrow_bits) * self.wide_bit
        lost = self.filled * min(1.0, fill) + self.logic_slopes * logic_slopes
        return base * (1 - lost) / (1 + wide)


CLOCKS: Mapping[str, ClockModel] = {
    "ecp5": ClockModel(
        base_mhz={"6": 162, "7": 181, "8": 200}, filled=0.2, narrow_bits=24, wide_bit=0.01, logic_slopes=0.2
    ),
    "up5k": ClockModel(base_mhz={"": 52}, filled=0.25, narrow_bits=24, wide_bit=0.01, logic_slopes=0.2),
    "hx8k": ClockModel(base_mhz={"": 86}, filled=0.25, narrow_bits=24, wide_bit=0.01, logic_slopes=0.2),
}
"""By family or, where one family has devices of different speed, by device.

Clocks in MHz that the bases stand for. ECP5: stac_a, 40 x 4, 8 bits, on the 85F 194 (grade 8, aiming at
230, median of three seeds); the other grades in proportion to what an earlier state of the hardware
reached in grades 6 and 8. With 4 gate units and 156 multipliers an LFE5U-85F reached 130, far from the
estimate. up5k: traffic20 and toptag, 4 x 1, 8 bits, 40.6 and 40.0 with 91 % of the cells taken. hx8k: an
earlier state, traffic20, 4 x 1, 6 bits, 73.2 with 65 %. The losses are assumptions.
"""


def clock_model(device: FpgaDevice) -> ClockModel:
    """What is known of the clock on a device of an estimated family."""
    return CLOCKS.get(device.name) or CLOCKS[device.architecture]


CHAIN_FACTORS: Mapping[str, float] = {"core": 37}
"""Tiles of carry chains on ECP5 for each unit of :func:`~rtlstm.fpga.core_parts.chain_parts`; those left
out are tiles."""


class Estimate(Resources):
    """What a core, or a core in a board's top, is expected to take of a device and to reach there."""

    device: str
    """With its speed grade, as ``rtlstm implement`` takes it."""
    board: str = ""
    """The board whose top, with its link, is counted in; empty for the core alone."""
    multipliers: int
    block_rams: int
    cells: int
    """Logic cells: places of a table and a flip-flop."""
    cell_share: float
    """Of the device's, in percent."""
    chain_tiles: int | None = None
    """Tiles that carry chains take; None where they are no limit."""
    chain_share: float | None = None
    """Of the device's, in percent."""
    fits: bool
    """Whether the device has all of it, and is no fuller than is known to be routed."""
    fmax_mhz: float
    step_latency_us: float
    """Cycles of a step, which are exact, at that clock."""


def estimate(
    manifest: Manifest, chosen: Chosen, multipliers: bool = True, board: str = ""
) -> Estimate | None:
    """Estimate a core on a device; None if the core or the device is of a family without estimates.

    ``multipliers`` says whether the device's multiplier blocks are used. ``board`` is the name of a board,
    whose top is counted in, or empty.

    Raises
    ------
    ConfigurationError
        If there is a board, and its link cannot carry the core's steps.
    """
    device = chosen.device
    family = device.architecture
    # What synthesis makes of the portable primitives is not known well enough.
    if family not in ESTIMATED or manifest.parameters.family != family:
        return None
    hard = multipliers and device.multipliers > 0
    luts = _total(LUT_FACTORS[family], lut_parts(manifest, family, hard))
    ffs = _total(FF_FACTORS[family], ff_parts(manifest, family, hard))
    lone = LONE_FLIP_FLOPS.get(family, 0) * ffs
    blocks = count_blocks(manifest, family, hard)
    block_rams = blocks.block_rams
    tiles = _chain_tiles(manifest, device, hard)
    if board:
        top = top_sizes(manifest, family)
        luts, ffs, block_rams = luts + top.luts, ffs + top.ffs, block_rams + int(top.block_rams)
        lone += TOP_LONE_FLIP_FLOPS.get(family, 0) * top.ffs
        tiles = None if tiles is None else tiles + TOP_CHAIN_TILES
    cells = luts + round(lone) if family in LONE_FLIP_FLOPS else max(luts, ffs)
    logic_slopes = hard and manifest.parameters.slope_multipliers == "lut"
    clock = clock_model(device).mhz(
        chosen.grade, cells / device.luts, manifest.numerics.accumulator.bits, logic_slopes
    )
    if chosen.block_ram_mhz is not None and blocks.block_rams:
        clock = min(clock, chosen.block_ram_mhz)
    found = Estimate(
        device=chosen.label,
        board=board,
        luts=luts,
        ffs=ffs,
        cells=cells,
        cell_share=round(100 * cells / device.luts, 1),
        chain_tiles=tiles,
        chain_share=None if tiles is None else _percent(tiles, device.chain_tiles),
        fits=True,
        multipliers=blocks.multipliers,
        block_rams=block_rams,
        large_rams=blocks.large_rams,
        fmax_mhz=round(clock, 1),
        step_latency_us=round(manifest.cycles.step_latency_cycles / clock, 4),
    )
    return found.replace(fits=all(used <= there for _, used, there in usable(found, device)))


def _percent(used: int, there: int | None) -> float:
    return round(100 * used / there, 1) if there else 0.0


def _chain_tiles(manifest: Manifest, device: FpgaDevice, multipliers: bool) -> int | None:
    if device.chain_tiles is None:
        return None
    return _total(CHAIN_FACTORS, chain_parts(manifest, multipliers))


def usable(found: Estimate, device: FpgaDevice) -> Iterator[tuple[str, float, float]]:
    """Yield each resource that limits designs: its name, how much is taken, how much may be.

    Hard blocks may all be taken, logic cells and carry chains as far as is known to be routed.
    """
    limits = fill_limits(device.architecture)
    yield "multipliers", found.multipliers, device.multipliers
    yield "block RAMs", found.block_rams, device.block_rams
    yield large_name(device), found.large_rams, 0 if device.large_ram is None else device.large_ram.count
    yield "logic cells", found.cells, int(limits.cells * device.luts)
    if found.chain_tiles is not None and device.chain_tiles is not None and limits.chains is not None:
        yield "tiles for carry chains", found.chain_tiles, int(limits.chains * device.chain_tiles)


def _total(factors: Mapping[str, float], parts: Mapping[str, float]) -> int:
    return round(sum(factors.get(name, 1.0) * size for name, size in parts.items()))


def estimate_devices(manifest: Manifest) -> tuple[Estimate, ...]:
    """Estimate a core on every device of its family, in its slowest grade; none without estimates."""
    chosen = [find_device(name) for name, device in devices().items() if device.architecture in ESTIMATED]
    found = (estimate(manifest, each) for each in chosen)
    return tuple(each for each in found if each is not None)


def check_estimate(name: str, found: Estimate, device: FpgaDevice, insist: bool = False) -> None:
    """Refuse a core, or a core in a board's top, of which an estimate says that it does not fit.

    Parameters
    ----------
    insist
        Refuse only what cannot fit: if multipliers or block RAM, which are exact, are too few, or if tables
        or flip-flops are by more than :data:`MARGIN`; not what is only fuller than any design known to be
        routed.

    Raises
    ------
    ConfigurationError
        The message names all that lacks.
    """
    whole = f"{name} with its link" if found.board else name
    lacking = [
        f"{used:,} {what} (it has {there:,})"
        for what, used, there in resource_uses(found, device)
        if used * (1 - MARGIN if what in _UNSURE else 1) > there
    ]
    if lacking:
        other = option("multipliers", "lut") if found.multipliers > device.multipliers else ""
        raise ConfigurationError(
            f"{whole} does not fit {device.name}: by its estimate it takes {', '.join(lacking)}; "
            f"{way_out(device, found.board, other)}"
        )
    full = [f"{used:,} {what} (of {there:,})" for what, used, there in usable(found, device) if used > there]
    if full and not insist:
        raise ConfigurationError(
            f"{whole} is fuller than any design known to have been routed on such a device: by its estimate "
            f"it takes {', '.join(full)}; {way_out(device, found.board)}; "
            f"{option('insist', True)} does it all the same"
        )
