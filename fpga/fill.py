"""How full a device may be: limits from designs that were placed and routed and from some that failed.

No device can be filled completely. On ECP5, tiles for carry chains run out first
(:mod:`rtlstm.fpga.netlist.chains`): nextpnr places the longest chains near their logic and then finds no gaps
of two or three tiles for the others. So ``--fit`` offers no design that is fuller than the fullest one that
was routed.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.netlist.chains import count_chains
from rtlstm.fpga.resources import design_name, fit_advice
from rtlstm.spec.errors import ConfigurationError

__all__ = ["RESERVE", "FillLimits", "check_chains", "fill_limits"]


RESERVE = 0.03
"""Share of a device by which an estimate of the logic cells is often too low."""


@dataclass(frozen=True)
class FillLimits:
    """Largest estimated shares of a device that a design may take."""

    cells: float
    chains: float | None
    """None if the family does not limit carry chains."""
    multipliers: float = 1.0

    def most_multipliers(self, device: FpgaDevice) -> float:
        """Return the DSP blocks of a device that may be used, to the half."""
        return int(2 * self.multipliers * device.multipliers) / 2


def fill_limits(family: Estimates) -> FillLimits:
    """Return the largest shares of the routed designs of a family.

    The share of cells is reduced by :data:`RESERVE`; chains are estimated almost exactly, blocks exactly.
    """
    good = [each for each in family.routed if each.mhz is not None]
    chains = [each.chain_share for each in good if each.chain_share is not None]
    cells = max(each.cell_share for each in good)
    blocks = [each.multiplier_share for each in good if each.multiplier_share is not None]
    return FillLimits(
        cells=max(family.assumed_fill, round(cells / 100 - RESERVE, 3)),
        chains=max(chains) / 100 if chains else None,
        multipliers=max(blocks) / 100 if blocks else 1.0,
    )


def check_chains(
    name: str, netlist: Path, device: FpgaDevice, *, insist: bool = False, board: str = "", cores: int = 1
) -> None:
    """Check the carry chains of a synthesised design: place and route could search for hours in vain.

    Parameters
    ----------
    netlist
        The netlist of the whole design, in Yosys's JSON.
    insist
        Refuse only designs for which the device has too few tiles.
    board
        The board's name, or empty.
    cores
        The design's cores side by side.

    Raises
    ------
    ConfigurationError
        If the design has more chains than any that was routed.
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
            f"(of {most:,}{known}); {fit_advice(device, board, cores=cores)}{more}"
        )
