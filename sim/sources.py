"""Which Verilog files a simulator needs for a build: its own, and models of its family's cells.

The primitives of some families are instances of hard blocks that no simulator knows. The models
of ``models/`` stand in for them; what they do not know of a block ends the simulation.
"""

from importlib.resources import files
from pathlib import Path

from rtlstm.spec.parameters import Family

__all__ = ["cell_models", "simulation_sources"]

MODELLED: tuple[Family, ...] = ("ecp5", "ice40")
"""Families whose primitives are hard blocks."""


def cell_models(family: Family) -> list[Path]:
    """Return the files with the models of a family's hard blocks; none if it has no need of any."""
    if family not in MODELLED:
        return []
    return [Path(str(files("rtlstm.sim").joinpath("models", f"{family}.v"))).absolute()]


def simulation_sources(verilog: Path, family: Family) -> list[Path]:
    """Return the files to simulate a build's Verilog from, the build's own first."""
    return [verilog.absolute(), *cell_models(family)]
