"""How full a device may be, by designs that were placed and routed and by some that could not be.

No device can be used up. On ECP5 places for carry chains run out first (:mod:`rtlstm.fpga.netlist.chains`):
nextpnr puts the longest chains wherever their logic wants them and then finds no gaps of two or three tiles
for the others. So ``--fit`` offers no design that is fuller than all that are known to have been routed.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.fpga.netlist.chains import count_chains
from rtlstm.fpga.resources import way_out
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.options import option

__all__ = ["RESERVE", "ROUTED", "FillLimits", "RoutedDesign", "check_chains", "fill_limits"]


@dataclass(frozen=True)
class RoutedDesign:
    """A design that nextpnr was given, and what became of it.

    Shares are of the device, in percent: as synthesised; of the design that failed, as estimated. What it
    stood in is counted in for a board only.
    """

    device: str
    what: str
    cell_share: float
    """Logic cells: on ECP5 the larger of tables and flip-flops, on iCE40 what nextpnr packs them into."""
    chain_share: float | None
    """Tiles that carry chains take; None where they are no limit."""
    mhz: float | None
    """The clock that it reached; None if it could not be placed or routed."""


ROUTED: tuple[RoutedDesign, ...] = (
    RoutedDesign("lfe5u-25f-8", "64 -> 64, 8 bits, 16 x 8, 7 of tables", 72.0, 68.0, 201.7),
    RoutedDesign(
        "lfe5u-85f-8", "100 -> 100 twice, 8 bits, 80 x 8, 7 of tables, 4 gate units", 88.8, 96.5, None
    ),
    RoutedDesign("up5k", "toptag with the iCEBreaker's top, 8 bits, 4 x 1", 95.5, None, 22.5),
)


RESERVE = 0.03
"""Share of a device by which an estimate of the cells may well be too low."""


@dataclass(frozen=True)
class FillLimits:
    """Shares of a device that a design may be estimated at."""

    cells: float
    chains: float | None
    """None where carry chains are no limit."""


def fill_limits(architecture: str) -> FillLimits:
    """Return the largest shares among the designs of an estimated family that were routed.

    Those of cells less :data:`RESERVE`; chains are estimated almost exactly.
    """
    family = (each for each in ROUTED if find_device(each.device).device.architecture == architecture)
    good = [each for each in family if each.mhz is not None]
    chains = [each.chain_share for each in good if each.chain_share is not None]
    cells = max(each.cell_share for each in good)
    return FillLimits(round(cells / 100 - RESERVE, 3), max(chains) / 100 if chains else None)


def check_chains(
    name: str, netlist: Path, device: FpgaDevice, *, insist: bool = False, board: str = ""
) -> None:
    """Check the carry chains of a synthesised design, before place and route looks for places for hours.

    Parameters
    ----------
    netlist
        Of the whole design, in Yosys's JSON.
    insist
        Refuse only what the device has too few tiles for.
    board
        The board that it is on, or empty.

    Raises
    ------
    ConfigurationError
        If the design has more chains than any that is known to be routed.
    """
    if device.chain_tiles is None:
        return
    limit = fill_limits(device.architecture).chains or 1.0
    taken = count_chains(json.loads(netlist.read_text())).tiles
    most = device.chain_tiles if insist else int(limit * device.chain_tiles)
    if taken > most:
        known = "" if insist else " that designs known to be routed take"
        more = "" if insist else f"; {option('insist', True)} does it all the same"
        raise ConfigurationError(
            f"{name} does not fit {device.name}: its carry chains take {taken:,} tiles (of {most:,}{known}); "
            f"{way_out(device, board)}{more}"
        )
