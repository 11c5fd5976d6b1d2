"""Piecewise linear activation functions: their integers and golden result."""

from typing import Annotated

import numpy as np
from pydantic import Field

from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.fixed import Format, IntArray, round_shift
from rtlstm.spec.record import Record

__all__ = ["LINEAR_FUNCTIONS", "PiecewiseLinear", "design_pieces"]

LINEAR_FUNCTIONS = frozenset(
    {"identity", "relu", "hard_sigmoid", "hard_tanh", "leaky_relu", "thresholded_relu", "affine"}
)
"""Functions that are made of straight lines and need no table."""


class PiecewiseLinear(Record):
    """``(slope * x + offset) / 2**extra`` of the piece that ``x`` is in, rounded half up and limited.

    Piece ``k`` is where ``k`` of the ``thresholds`` are at most ``x``. Integers of ``input`` and ``output``.
    """

    function: ActivationFunction
    input: Format
    output: Format
    thresholds: tuple[int, ...]
    slopes: tuple[int, ...]
    offsets: tuple[int, ...]
    extra: Annotated[int, Field(ge=0, le=48)]
    lowest: int
    highest: int

    def compute(self, integers: IntArray) -> IntArray:
        """Return the function's value, in units of ``output``, for integers of ``input``."""
        x = np.asarray(integers, dtype=np.int64)
        piece = np.searchsorted(np.asarray(self.thresholds, dtype=np.int64), x, side="right")
        slope, offset = (np.asarray(values, dtype=np.int64)[piece] for values in (self.slopes, self.offsets))
        return np.clip(round_shift(slope * x + offset, self.extra), self.lowest, self.highest)


def design_pieces(function: ActivationFunction, input: Format, output: Format) -> PiecewiseLinear:
    """Choose integers for a function of :data:`LINEAR_FUNCTIONS`: exact where they can be."""
    alpha, beta = function.alpha, function.beta
    thresholds: tuple[float, ...] = ()
    lines: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    low, high = -np.inf, np.inf
    match function.name:
        case "relu":
            low = 0.0
        case "hard_sigmoid":
            lines, low, high = ((alpha, beta),), 0.0, 1.0
        case "hard_tanh":
            low, high = alpha, beta
        case "affine":
            lines = ((alpha, beta),)
        case "leaky_relu":
            thresholds, lines = (0.0,), ((alpha, 0.0), (1.0, 0.0))
        case "thresholded_relu":
            # Strictly above alpha: from the next integer on.
            thresholds = ((np.floor(np.ldexp(alpha, input.fraction)) + 1) * input.step,)
            lines = ((0.0, 0.0), (1.0, 0.0))
    places = output.fraction - input.fraction
    most = input.bits + max(0, -places)
    extra = next((e for e in range(most) if _exact(lines, output.fraction, places, e)), most)
    return PiecewiseLinear(
        function=function,
        input=input,
        output=output,
        thresholds=tuple(int(np.ceil(np.ldexp(t, input.fraction))) for t in thresholds),
        slopes=tuple(round(np.ldexp(slope, places + extra)) for slope, _ in lines),
        offsets=tuple(round(np.ldexp(offset, output.fraction + extra)) for _, offset in lines),
        extra=extra,
        lowest=int(output.to_integers(max(low, -1e18))),
        highest=int(output.to_integers(min(high, 1e18))),
    )


def _exact(lines: tuple[tuple[float, float], ...], fraction: int, places: int, extra: int) -> bool:
    """Whether slopes and offsets are integers with so many extra bits."""
    return all(
        float(np.ldexp(slope, places + extra)).is_integer()
        and float(np.ldexp(offset, fraction + extra)).is_integer()
        for slope, offset in lines
    )
