"""AMD Xilinx."""

from rtlstm.spec.family import Family, Pipeline

__all__ = ["Xilinx"]


class Xilinx(Family):
    """Series 7 and UltraScale+ devices."""

    name = "xilinx"
    pipeline = Pipeline(
        operand=3, multiplier=3, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    )
    large_memory = True
