"""Which Verilog a simulator needs for a build: its own file, and models of its family's cells.

The primitives of some families are instances of hard cells. There are two ways to simulate them:

- With :data:`SIMULATION` defined, the build's own file describes what they do. That is several
  times faster, and what the driver's backends do.
- Without it, the family's models stand in for the cells, pin by pin: in the testbench, and
  always in a netlist, where there are only cells. What the models do not know of a cell ends the simulation.

The tests show that both are the same in every cycle.
"""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from rtlstm.spec.family import FAMILIES

__all__ = ["SIMULATION", "board_models", "cell_models", "copy_sources", "own_file", "simulation_sources"]

SIMULATION = "RTLSTM_SIMULATION"
"""Macro that turns hard cells into descriptions of them."""


def own_file(*names: str) -> Path:
    """Return a file of this package that is no Python."""
    return Path(str(files("rtlstm.sim").joinpath(*names))).absolute()


def cell_models(family: str) -> list[Path]:
    """Return the files with the models of a family's hard cells; none if it has no need of any."""
    return list(FAMILIES.named(family).cell_models)


def board_models(family: str) -> list[Path]:
    """Return the files with the models of what a board's top has besides: the PLL of its device's family."""
    return [own_file("pll.v"), *FAMILIES.named(family).pll_models]


def simulation_sources(verilog: Path, family: str) -> list[Path]:
    """Return the files to simulate a build or its netlist from, its own first."""
    return [verilog.absolute(), *cell_models(family)]


def copy_sources(sources: Sequence[Path], folder: Path) -> list[str]:
    """Copy sources into a folder and return their names there.

    Compilers that run in the folder then see no other path: some cannot take every one.
    """
    names = []
    for index, path in enumerate(sources):
        names.append(f"{index}_{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}.v")
        (folder / names[-1]).write_bytes(path.read_bytes())
    return names
