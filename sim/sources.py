"""Which Verilog a simulator needs for a build: its own file, and models of its family's cells.

The primitives of some families are instances of hard cells. There are two ways to simulate them:

- With :data:`SIMULATION` defined, the build's own file describes their behaviour. That is several
  times faster. The driver's backends and cocotb tests use it.
- Without it, the family's models replace the cells, pin by pin. Every netlist, which has only cells, needs
  them. A model that does not know a parameter or a pin ends the simulation.

The tests show that both are the same in every cycle.
"""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal

from rtlstm.spec.family import FAMILIES

Simulator = Literal["verilator", "icarus"]

SIMULATION = "RTLSTM_SIMULATION"
"""Macro that replaces hard cells by descriptions of their behaviour."""


def own_file(*names: str) -> Path:
    """Return the path of a file of this package that is not Python."""
    return Path(str(files("rtlstm.sim").joinpath(*names))).absolute()


def cell_models(family: str) -> list[Path]:
    """Return the files with the models of a family's hard cells; none if the family has no hard cells."""
    return list(FAMILIES.named(family).cell_models)


def board_models(family: str) -> list[Path]:
    """Return the files with models of a board's other cells: the PLL of the device's family."""
    return [own_file("pll.v"), *FAMILIES.named(family).pll_models]


def simulation_sources(verilog: Path, family: str) -> list[Path]:
    """Return the files to simulate a build or its netlist from; the build's own file is the first."""
    return [verilog.absolute(), *cell_models(family)]


def copy_sources(sources: Sequence[Path], folder: Path) -> list[str]:
    """Copy sources into a folder and return their names there.

    The compilers then get only plain file names, because some of them fail on other paths.
    """
    names = []
    for index, path in enumerate(sources):
        names.append(f"{index}_{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}.v")
        (folder / names[-1]).write_bytes(path.read_bytes())
    return names
