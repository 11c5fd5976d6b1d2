"""The family without devices: portable Verilog."""

from rtlstm.spec.family import GENERIC, Family, OpenSynthesis, Pipeline


class Generic(Family):
    """Portable Verilog with few registers, for any tool."""

    name = GENERIC
    # Any of Yosys' targets does.
    open_synthesis = OpenSynthesis("generic", {"tool": "yosys", "arch": "xilinx", "output_format": "json"})
    pipeline = Pipeline(multiplier=2, tree_levels=2)
    large_memory = True


PORTABLE = Generic()
