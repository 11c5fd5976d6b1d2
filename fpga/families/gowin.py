"""Gowin."""

from pathlib import Path

from rtlstm.spec.family import Family, Pipeline

__all__ = ["Gowin"]


class Gowin(Family):
    """GW1N and GW2A devices."""

    name = "gowin"
    pipeline = Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    )
    pll_models = (Path(__file__).absolute().with_name("gowin_pll.v"),)
