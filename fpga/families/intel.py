"""Intel."""

from rtlstm.spec.family import Family, Pipeline

__all__ = ["Intel"]


class Intel(Family):
    """Cyclone V devices."""

    name = "intel"
    pipeline = Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    )
