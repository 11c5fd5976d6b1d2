"""What a core will take of a device and how fast it will be there, before any synthesis.

Multipliers and block RAM are exact (:mod:`rtlstm.fpga.blocks`). LUTs, flip-flops and carry chains are
sums over the parts of the core (:mod:`rtlstm.fpga.core_parts`) times what synthesis makes of such a part;
the clock is what the family's pipeline reaches at a speed grade, less what a full device costs. These
factors are measured and stand with the family. What a board's top adds is in :mod:`rtlstm.fpga.top_sizes`,
how full a device may be in :mod:`rtlstm.fpga.fill`.
"""

from collections.abc import Iterator, Mapping

from rtlstm.fpga.blocks import count_blocks
from rtlstm.fpga.core_parts import chain_parts, ff_parts, lut_parts
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import Chosen, FpgaDevice
from rtlstm.fpga.fill import fill_limits
from rtlstm.fpga.resources import Resources, fit_advice, large_name, percent, resource_uses
from rtlstm.fpga.top_sizes import top_sizes
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.options import option

__all__ = [
    "MARGIN",
    "Estimate",
    "check_estimate",
    "estimate",
    "estimate_devices",
    "usable",
]

MARGIN = 0.15
"""How far tables and flip-flops of an estimate may be off, as a share; ``bench/estimates.py`` measures it."""
_UNSURE = ("LUTs", "flip-flops")


class Estimate(Resources):
    """What a core, or a core in a board's top, is expected to take of a device and to reach there."""

    device: str
    """With its speed grade, as ``rtlstm implement`` takes it."""
    board: str = ""
    """The board whose top, with its link, is counted in; empty for the core alone."""
    multipliers: int
    block_rams: int
    wrapper_block_rams: int = 0
    """Block RAMs of the bus wrapper's FIFOs, besides those of the core. A board's top has no wrapper."""
    cells: int
    """Logic cells, each a LUT and a flip-flop."""
    cell_share: float
    """Share of the device's logic cells in percent."""
    chain_tiles: int | None = None
    """Tiles that carry chains take; None where they are no limit."""
    chain_share: float | None = None
    """Share of the device's tiles in percent."""
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
    family = fpga_family(device.family).estimates
    # What synthesis makes of the portable primitives is not known well enough.
    if family is None or manifest.parameters.family != device.family:
        return None
    hard = multipliers and device.multipliers > 0
    luts = _total(family.luts, lut_parts(manifest, family, hard))
    ffs = _total(family.ffs, ff_parts(manifest, family, hard))
    lone = (family.lone_ffs or 0) * ffs
    blocks = count_blocks(manifest, family, hard)
    block_rams = blocks.block_rams
    tiles = None
    if device.chain_tiles is not None:
        tiles = _total(family.chain_tiles, chain_parts(manifest, hard))
    if board:
        top = top_sizes(manifest, family)
        luts, ffs, block_rams = luts + top.luts, ffs + top.ffs, block_rams + int(top.block_rams)
        lone += family.top_lone_ffs * top.ffs
        tiles = None if tiles is None else tiles + family.top_chain_tiles
    cells = luts + round(lone) if family.lone_ffs is not None else max(luts, ffs)
    logic_slopes = hard and manifest.parameters.slope_multipliers == "lut"
    clock = family.clock(device.name).mhz(
        chosen.grade, cells / device.luts, manifest.numerics.accumulator.bits, logic_slopes
    )
    clock = chosen.usable_mhz(clock, blocks.block_rams)
    found = Estimate(
        device=chosen.label,
        board=board,
        luts=luts,
        ffs=ffs,
        cells=cells,
        cell_share=percent(cells, device.luts),
        chain_tiles=tiles,
        chain_share=None if tiles is None else percent(tiles, device.chain_tiles or 0),
        fits=True,
        multipliers=blocks.multipliers,
        block_rams=block_rams,
        wrapper_block_rams=0 if board else blocks.wrapper_block_rams,
        large_rams=blocks.large_rams,
        fmax_mhz=round(clock, 1),
        step_latency_us=round(manifest.cycles.step_latency_cycles / clock, 4),
    )
    return found.replace(fits=all(used <= there for _, used, there in usable(found, device)))


def usable(found: Estimate, device: FpgaDevice) -> Iterator[tuple[str, float, float]]:
    """Yield each resource that limits designs: its name, how much is taken, how much may be.

    Hard blocks may all be taken, with those of the wrapper; logic cells and carry chains as far as is known
    to be routed.
    """
    limits = fill_limits(fpga_family(device.family).need_estimates())
    yield "multipliers", found.multipliers, device.multipliers
    yield "block RAMs", found.block_rams + found.wrapper_block_rams, device.block_rams
    yield large_name(device), found.large_rams, 0 if device.large_ram is None else device.large_ram.count
    yield "logic cells", found.cells, int(limits.cells * device.luts)
    if found.chain_tiles is not None and device.chain_tiles is not None and limits.chains is not None:
        yield "tiles for carry chains", found.chain_tiles, int(limits.chains * device.chain_tiles)


def _total(factors: Mapping[str, float], parts: Mapping[str, float]) -> int:
    return round(sum(factors.get(name, 1.0) * size for name, size in parts.items()))


def estimate_devices(manifest: Manifest) -> tuple[Estimate, ...]:
    """Estimate a core on every device of its family, in its slowest grade; none without estimates."""
    found = (estimate(manifest, find_device(name)) for name in devices())
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
            f"{fit_advice(device, found.board, other)}"
        )
    full = [f"{used:,} {what} (of {there:,})" for what, used, there in usable(found, device) if used > there]
    if full and not insist:
        raise ConfigurationError(
            f"{whole} is fuller than any design known to have been routed on such a device: by its estimate "
            f"it takes {', '.join(full)}; {fit_advice(device, found.board)}; "
            f"{option('insist', True)} does it all the same"
        )
