"""Piecewise linear activation functions: their integers and exact results."""

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, IntArray, round_shift
from rtlstm.spec.record import Record


class PiecewiseLinear(Record):
    """``(slope * x + offset) / 2**extra`` of the piece that ``x`` is in, rounded half up and saturated.

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

    @property
    def slope_bits(self) -> int:
        """Width of a slope, signed."""
        return max(2, *(slope.bit_length() + 1 for slope in self.slopes))

    def compute(self, integers: IntArray) -> IntArray:
        """Return the function's value, in units of ``output``, for integers of ``input``."""
        x = np.asarray(integers, dtype=np.int64)
        piece = np.searchsorted(np.asarray(self.thresholds, dtype=np.int64), x, side="right")
        slope, offset = (np.asarray(values, dtype=np.int64)[piece] for values in (self.slopes, self.offsets))
        return np.clip(round_shift(slope * x + offset, self.extra), self.lowest, self.highest)


def design_pieces(function: ActivationFunction, input: Format, output: Format) -> PiecewiseLinear:
    """Choose integers for a piecewise linear function: exact ones where possible."""
    made_of = function.lines
    if made_of is None:
        raise ConfigurationError(f"activation {function} is not piecewise linear; it needs a table")
    lines = made_of.lines
    starts = [math.ldexp(start, input.fraction) for start in made_of.starts]
    added_fraction = output.fraction - input.fraction
    most = input.bits + max(0, -added_fraction)
    extra = next((e for e in range(most) if _exact(lines, output.fraction, added_fraction, e)), most)
    return PiecewiseLinear(
        function=function,
        input=input,
        output=output,
        thresholds=tuple(math.floor(x) + 1 if made_of.exclusive else math.ceil(x) for x in starts),
        slopes=tuple(round(np.ldexp(slope, added_fraction + extra)) for slope, _ in lines),
        offsets=tuple(round(np.ldexp(offset, output.fraction + extra)) for _, offset in lines),
        extra=extra,
        lowest=int(output.to_integers(max(made_of.low, -1e18))),
        highest=int(output.to_integers(min(made_of.high, 1e18))),
    )


def _exact(lines: tuple[tuple[float, float], ...], fraction: int, added_fraction: int, extra: int) -> bool:
    """Return whether slopes and offsets are integers with this number of extra bits."""
    return all(
        float(np.ldexp(slope, added_fraction + extra)).is_integer()
        and float(np.ldexp(offset, fraction + extra)).is_integer()
        for slope, offset in lines
    )
