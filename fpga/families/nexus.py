"""Lattice Nexus."""

from rtlstm.spec.family import Family, Pipeline

__all__ = ["Nexus"]


class Nexus(Family):
    """CrossLink-NX devices."""

    name = "nexus"
    pipeline = Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    )
    large_memory = True
