"""Lattice iCE40."""

from pathlib import Path

from rtlstm.fpga.families.base import LOGIC_MULTIPLIERS
from rtlstm.spec.family import Family, NetlistScript, Pipeline

__all__ = ["Ice40"]

_HERE = Path(__file__).absolute()


class Ice40(Family):
    """UltraPlus and HX devices."""

    name = "ice40"
    pipeline = Pipeline(multiplier=2, tree_levels=2, collect=1, narrow=3, table=1, result=1)
    large_memory = True
    primitives = (_HERE.with_name("ice40.v"), LOGIC_MULTIPLIERS)
    cell_models = (_HERE.with_name("ice40_cells.v"),)
    pll_models = (_HERE.with_name("ice40_pll.v"),)
    netlist = NetlistScript(
        # Without -dsp, which takes the registers out of multiplier blocks that are instances.
        synthesis="synth_ice40 -top {top}",
        cells="read_verilog -D EQUIV +/ice40/cells_sim.v\nblackbox SB_MAC16 SB_RAM40_4K SB_SPRAM256KA",
    )
