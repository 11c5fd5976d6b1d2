"""Lattice ECP5."""

from pathlib import Path

from rtlstm.fpga.families.base import LOGIC_MULTIPLIERS
from rtlstm.spec.family import Family, NetlistScript, Pipeline

__all__ = ["Ecp5"]

_HERE = Path(__file__).absolute()


class Ecp5(Family):
    """LFE5U devices."""

    name = "ecp5"
    pipeline = Pipeline(
        operand=4,
        multiplier=2,
        tree_levels=1,
        collect=2,
        narrow=4,
        table=2,
        cell=4,
        window=2,
        accept=1,
        result=2,
    )
    primitives = (_HERE.with_name("ecp5.v"), LOGIC_MULTIPLIERS)
    cell_models = (_HERE.with_name("ecp5_cells.v"),)
    pll_models = (_HERE.with_name("ecp5_pll.v"),)
    netlist = NetlistScript(
        synthesis="synth_ecp5 -top {top}",
        cells="read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v\nread_verilog -lib +/ecp5/cells_bb.v",
    )

    def pipeline_for(self, lut_macs: int = 0, direct_tables: bool = False) -> Pipeline:
        """Return the pipeline of an array.

        With two registers in multipliers of LUTs, the path from the vector's register through the first
        adders is the longest of all. With direct tables, data of 12 bits at most are shifted at once.
        """
        return self.pipeline.replace(multiplier=3 if lut_macs else 2, narrow=3 if direct_tables else 4)

    def shares_multipliers(self, weight_bits: int, data_bits: int) -> bool:
        """Two weights must stand far enough apart in one factor of 18 bits."""
        return 2 * weight_bits + data_bits < 18
