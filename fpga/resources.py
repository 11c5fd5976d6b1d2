"""Utilisation of a device by a synthesised design, whether it fits, and how full a device may be."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rtlstm.fpga.families.base import Cells, fpga_family
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.netlist.ecp5 import count_chains
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.program.spatial import MOST_LOOP_REGISTERS, SpatialPlan
from rtlstm.spec.record import Record

BLOCK_RAMS = "block RAMs"
"""What messages call them."""


class Resources(Record):
    """Used resources, counted or estimated, in the units of the device's sizes."""

    luts: int
    ffs: int
    multipliers: float
    block_rams: float
    large_rams: int


class Counts(Resources):
    """Resources of a synthesised design."""

    cells: Mapping[str, int]
    """Number of cells by the tool's names."""

    def __mul__(self, times: int) -> "Counts":
        return Counts(
            luts=times * self.luts,
            ffs=times * self.ffs,
            multipliers=round(times * self.multipliers, 2),
            block_rams=round(times * self.block_rams, 2),
            large_rams=times * self.large_rams,
            cells={name: times * count for name, count in self.cells.items()},
        )

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            luts=self.luts + other.luts,
            ffs=self.ffs + other.ffs,
            multipliers=self.multipliers + other.multipliers,
            block_rams=self.block_rams + other.block_rams,
            large_rams=self.large_rams + other.large_rams,
            cells=Counter(self.cells) + Counter(other.cells),
        )


def count_cells(counted: Mapping[str, int], cells: Cells) -> Counts:
    """Add up cells, by name and count, as a family's resources."""

    def total(costs: Mapping[str, float]) -> float:
        return round(sum(costs.get(name, 0) * count for name, count in counted.items()), 2)

    return Counts(
        luts=-int(-total(cells.luts) // 1),
        ffs=sum(count for name, count in counted.items() if name.startswith(cells.flip_flops)),
        multipliers=total(cells.multipliers),
        block_rams=total(cells.block_rams),
        large_rams=int(total(cells.large_rams)),
        cells={name: count for name, count in sorted(counted.items()) if not name.startswith("$")},
    )


def design_name(name: str, cores: int) -> str:
    """Return what messages call a design of so many cores of a build."""
    return name if cores == 1 else f"{name} with `cores={cores}`"


def count_text(count: float) -> str:
    """Write a count of a resource, which may end in a half."""
    return f"{round(count, 2):,.10g}"


def whole(count: float) -> int | float:
    """Return a count as an integer, unless it ends in a half."""
    return int(count) if count == int(count) else count


def without_blocks(board: str = "") -> str:
    """Return the remedy of a core that needs too many DSP blocks; empty on a board, which has none."""
    return "" if board else "implement it with `multipliers=False`"


def percent(used: float, there: float) -> float:
    """Return the utilisation of a resource in percent; 0 if the device has none of it."""
    return round(100 * used / there, 1) if there else 0.0


def large_name(device: FpgaDevice) -> str:
    """Return the name of a device's largest memories."""
    return "large memory blocks" if device.large_ram is None else f"{device.large_ram.name} blocks"


def resource_uses(sizes: Resources, device: FpgaDevice) -> Iterator[tuple[str, float, int]]:
    """Yield each resource of a device: its name, how much is used, how much there is."""
    yield fpga_family(device.family).cells.logic, sizes.luts, device.luts
    yield "flip-flops", sizes.ffs, device.ffs
    yield "multipliers", sizes.multipliers, device.multipliers
    yield BLOCK_RAMS, sizes.block_rams, device.block_rams
    large = device.large_ram
    if large is not None or sizes.large_rams:
        yield large_name(device), sizes.large_rams, 0 if large is None else large.count


_ARRAY_SIZE, _SPATIAL_SIZE = "fewer `lanes` or `macs`", "fewer `weight_bits`"
"""The options of a smaller build, which is also faster."""


def faster(spatial: SpatialPlan | None) -> str:
    """Return advice for a build, with an array or of this plan, whose clock is too slow."""
    if spatial is None:
        return f"generate the build with {_ARRAY_SIZE}"
    more = "more `loop_registers` or " if spatial.loop_registers < MOST_LOOP_REGISTERS else ""
    return f"generate the build with {more}{_SPATIAL_SIZE}"


def fit_advice(
    device: FpgaDevice, board: str = "", other: str = "", cores: int = 1, spatial: bool = False
) -> str:
    """Return advice for a design that is too large for a device or board; ``other`` is another remedy."""
    family = fpga_family(device.family).estimates
    several = ["implement it with fewer `cores`"] if cores > 1 else []
    if spatial:
        known = family is not None and family.spatial_clocks is not None and cores == 1
        chosen = f"`fit={board or device.name!r}`, which chooses its registers and memory of tables, or"
        fitted = f"{chosen} with" if known else "`table_memory='rom'` for fewer block RAMs, or with"
        remedies = [*several, f"generate it with {fitted} {_SPATIAL_SIZE}", *([other] if other else [])]
        return f"{', '.join(remedies)}, or without `array='spatial'`, or choose a larger device"
    fewer = f"with {_ARRAY_SIZE}"
    # An array that is chosen for the device leaves no room for a second core.
    alone = cores == 1 and family is not None
    clock = " and `clock_mhz`" if fpga_family(device.family).assumes_clock else ""
    fitted = f"with `fit={board or device.name!r}`{clock}, which chooses its array, or " if alone else ""
    remedies = [*several, f"generate it {fitted}{fewer}", *([other] if other else [])]
    return f"{', '.join(remedies)}, or choose a larger device"


def check_fit(
    name: str, counts: Counts, device: FpgaDevice, board: str = "", cores: int = 1, spatial: bool = False
) -> None:
    """Check that so many cores of these counts fit a device; ``board`` is the design's board, or empty.

    Raises ConfigurationError if it does not fit; the message names every resource of which there is too
    little.
    """
    lacking = [
        f"{count_text(used)} {what} (it has {there:,})"
        for what, used, there in resource_uses(counts * cores, device)
        if used > there
    ]
    if lacking:
        raise ConfigurationError(
            f"{design_name(name, cores)} does not fit {device.name}: it takes {', '.join(lacking)}; "
            f"{fit_advice(device, board, cores=cores, spatial=spatial)}"
        )


RESERVE = 0.03
"""Share of a device by which an estimate of the logic cells is often too low."""


@dataclass(frozen=True)
class FillLimits:
    """Largest estimated shares of a device that a design may take."""

    cells: float
    chains: float | None
    """None if the family does not limit carry chains."""
    multipliers: float = 1.0
    memories: float = 1.0
    """The share of block RAM, and that of large memories."""

    def most_multipliers(self, device: FpgaDevice) -> float:
        """Return the DSP blocks of a device that may be used, to the half."""
        return int(2 * self.multipliers * device.multipliers) / 2

    def most_memories(self, there: int) -> int:
        """Return how many may be used of so many memory blocks of a kind."""
        return int(self.memories * there)


def fill_limits(family: Estimates, spatial: bool = False) -> FillLimits:
    """Return the largest shares of the routed designs of a family: of spatial builds, or of others.

    No device can be filled completely. On ECP5, tiles for carry chains run out first
    (:mod:`rtlstm.fpga.netlist.ecp5`): nextpnr places the longest chains near their logic and then finds no
    gaps of two or three tiles for the others. So ``--fit`` offers no design that is fuller than the fullest
    one that was routed.

    The share of cells is reduced by :data:`RESERVE`; chains are estimated almost exactly, blocks exactly.
    Where none was routed, shares are assumed.
    """
    good = [each for each in family.routed if each.mhz is not None]
    chains = [each.chain_share for each in good if each.chain_share is not None]
    cells = max((each.cell_share for each in good), default=0.0)
    if spatial and family.spatial_clocks is not None:
        # Counted with their harness, which estimates leave out.
        cells = 100 * RESERVE + max(each.cell_share for each in family.spatial_clocks.routed)
    blocks = [each.multiplier_share for each in good if each.multiplier_share is not None]
    return FillLimits(
        cells=max(family.assumed_fill, round(cells / 100 - RESERVE, 3)),
        chains=max(chains) / 100 if chains else None,
        multipliers=max(blocks) / 100 if blocks else family.assumed_blocks,
        memories=family.assumed_blocks,
    )


def check_chains(
    name: str,
    netlist: Path,
    device: FpgaDevice,
    *,
    insist: bool = False,
    board: str = "",
    cores: int = 1,
    spatial: bool = False,
) -> None:
    """Check the carry chains of a synthesised design: place and route could search for hours in vain.

    ``netlist`` is that of the whole design, in Yosys's JSON. With ``insist`` only designs are refused for
    which the device has too few tiles. ``board`` is the board's name, or empty; ``cores`` stand side by side,
    and are ``spatial`` builds or not, for the advice. Raises ConfigurationError if the design has more chains
    than any that was routed.
    """
    if device.chain_tiles is None:
        return
    estimates = fpga_family(device.family).estimates
    limit = (None if estimates is None else fill_limits(estimates).chains) or 1.0
    taken = count_chains(json.loads(netlist.read_text())).tiles
    most = device.chain_tiles if insist else int(limit * device.chain_tiles)
    if taken > most:
        known = "" if insist else " that designs known to be routed take"
        more = "" if insist else "; `insist=True` does it all the same"
        raise ConfigurationError(
            f"{design_name(name, cores)} does not fit {device.name}: its carry chains take {taken:,} tiles "
            f"(of {most:,}{known}); {fit_advice(device, board, cores=cores, spatial=spatial)}{more}"
        )
