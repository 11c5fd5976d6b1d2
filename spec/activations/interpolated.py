"""Interpolated activation functions: design of the table, its integers and its exact results.

The input's magnitude selects a segment by its high bits; inside a segment the function is a
straight line, ``(base + slope * low_bits) >> extra``. The table gives the function's magnitude; all
inputs of one sign have results of one sign. An odd function, like tanh, uses the same segments for negative
inputs; other functions, like sigmoid, have separate segments for them.
The design is the smallest table that passes the exhaustive check of :func:`design_table`.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from rtlstm.spec.activations.functions import ActivationFunction, FunctionDefinition, FunctionName
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, IntArray, round_half_up
from rtlstm.spec.record import Record

_EXTRA_MAX = 24
_SPELLED_BITS = 18
"""Bits of inputs up to which all values are kept: two megabytes."""
VALUE_BITS = 18
"""Largest width of a table's values."""
DIRECT_BITS = 12
"""Largest input width of a table with one entry per input."""


def _named(function: ActivationFunction | FunctionName) -> ActivationFunction:
    return ActivationFunction.of(function) if isinstance(function, str) else function


def correctly_rounded(
    function: ActivationFunction | FunctionName, x: NDArray[np.float64], output: Format
) -> IntArray:
    """Return ``function(x)`` rounded half up to ``output`` and saturated, as integers."""
    return output.to_integers(_named(function)(x))


@dataclass(frozen=True, eq=False)
class _Lines:
    """Arrays of a table; without ``==``, so that tables are compared by their fields."""

    base: IntArray
    slope: IntArray


class ActivationTable(Record):
    """A piecewise linear table, exact integers.

    ``compute`` gives, for an input integer ``n`` of format ``input``, the function's value in
    format ``output``. In hardware: one table read, one product, one sum.
    """

    function: Annotated[ActivationFunction, BeforeValidator(_named)]
    input: Format
    output: Format
    segment_bits: Annotated[int, Field(ge=0)]
    extra: Annotated[int, Field(ge=0, le=_EXTRA_MAX)]
    base: tuple[int, ...]
    slope: tuple[int, ...]
    middle: bool = False
    """Inputs were rounded down: each stands for the middle between it and the next one."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.segment_bits > self.magnitude_bits:
            raise ValueError(f"segment_bits must be at most {self.magnitude_bits}")
        if not len(self.base) == len(self.slope) == self.halves << self.segment_bits:
            raise ValueError(
                f"a {self.function} table with {self.segment_bits} segment bits needs "
                f"{self.halves << self.segment_bits} bases and slopes, not "
                f"{len(self.base)} and {len(self.slope)}"
            )
        if min(self.base) < 0:
            raise ValueError("bases must not be negative")
        return self

    @property
    def halves(self) -> int:
        """Sets of segments: 1 if negative inputs use those of positive ones, else 2."""
        return 1 if self.function.definition.odd else 2

    @cached_property
    def negates(self) -> tuple[bool, bool]:
        """Whether values are negative for non-negative inputs, and for negative ones.

        This also depends on a parameter's sign: for scaled tanh, and for elu with negative inputs.
        """
        above, below = self.function(np.array([1.0, -1.0])) < 0.0
        return bool(above), bool(below)

    @property
    def magnitude_bits(self) -> int:
        """Bits of the input's magnitude."""
        return self.input.bits - 1

    @property
    def low_bits(self) -> int:
        """Bits of the position inside a segment."""
        return self.magnitude_bits - self.segment_bits

    @property
    def direct(self) -> bool:
        """Whether there is one entry per input."""
        return self.low_bits == 0

    @property
    def rows(self) -> int:
        """Entries of the table."""
        return len(self.base)

    @cached_property
    def base_bits(self) -> int:
        """Width of a base, unsigned."""
        return max(1, max(self.base).bit_length())

    @cached_property
    def slope_bits(self) -> int:
        """Width of a slope, signed."""
        return 1 + max((~value if value < 0 else value).bit_length() for value in self.slope)

    @property
    def word_bits(self) -> int:
        """Width of a row as the hardware has it."""
        return self.base_bits + self.slope_bits

    @property
    def words(self) -> tuple[int, ...]:
        """Rows as the hardware has them: the base in the low bits, and the slope above it."""
        slopes = (slope % (1 << self.slope_bits) for slope in self.slope)
        return tuple(base | slope << self.base_bits for base, slope in zip(self.base, slopes, strict=True))

    @cached_property
    def lines(self) -> "_Lines":
        """Bases and slopes as arrays."""
        return _Lines(np.array(self.base, dtype=np.int64), np.array(self.slope, dtype=np.int64))

    def magnitude(self, negative: NDArray[np.bool_], magnitude: IntArray) -> IntArray:
        """Return the value without its sign, as the hardware's table pipeline does."""
        lines = self.lines
        index = magnitude >> self.low_bits
        if self.halves == 2:
            index = index + (negative.astype(np.int64) << self.segment_bits)
        low = magnitude & ((1 << self.low_bits) - 1)
        value: IntArray = (lines.base[index] + lines.slope[index] * low) >> self.extra
        return value

    @cached_property
    def spelled_out(self) -> IntArray:
        """The values of :meth:`compute` for all inputs, from the lowest on."""
        most = self.input.maximum
        return self.compute(np.arange(~most if self.middle else -most, most + 1))

    def look_up(self, integers: IntArray) -> IntArray:
        """Return what :meth:`compute` returns, in less time for many calls."""
        if self.input.bits > _SPELLED_BITS:
            return self.compute(integers)
        values: IntArray = self.spelled_out.take(integers + (self.input.maximum + self.middle))
        return values

    def compute(self, integers: IntArray) -> IntArray:
        """Return the function's value, in units of ``output``, for integers of ``input``.

        Inputs must be within ``+-input.maximum`` (saturation is symmetric); a ``middle`` table also has one
        for the format's lowest code.
        """
        integers = np.asarray(integers, dtype=np.int64)
        negative = integers < 0
        # The middle of -1 and 0 is as far from 0 as that of 0 and 1.
        magnitude = np.where(negative, ~integers, integers) if self.middle else np.abs(integers)
        value = self.magnitude(negative, magnitude)
        above, below = self.negates
        return np.where(np.where(negative, below, above), -value, value)


def design_table(
    function: ActivationFunction | FunctionName,
    input: Format,
    output: Format,
    direct: bool = False,
    middle: bool = False,
) -> ActivationTable:
    """Find the smallest table within 1 unit in the last place, checked over every input.

    The lines are the best (minimax) ones of each segment, from the chord's slope. The output of a function
    within -1 .. 1 must have ``bits - 1`` fraction bits. A ``direct`` table has one entry per input
    instead, the correctly rounded value: this needs no multiplier or adder, but is large. A ``middle`` table
    has the function's values between two inputs.

    Raises ConfigurationError if the formats are outside 4 to 20 input bits, 6 to 18 output bits.
    """
    named = _named(function)
    return _design_table(named, named.definition, input, output, direct, middle)


@lru_cache(maxsize=64)
def _design_table(
    named: ActivationFunction,
    definition: FunctionDefinition,
    input: Format,
    output: Format,
    direct: bool,
    middle: bool,
) -> ActivationTable:
    """Design a table; the definition is a parameter because a program may give a name another one."""
    if not 4 <= input.bits <= 20 or not 6 <= output.bits <= VALUE_BITS:
        raise ConfigurationError(
            "an activation table takes 4 to 20 input bits and gives 6 to 18 output bits, "
            f"not {input.bits} and {output.bits}"
        )
    if named.within_one and output.fraction != output.bits - 1:
        raise ConfigurationError(
            f"an activation's output must have {output.bits - 1} fraction bits, not {output.fraction}"
        )
    if direct and input.bits > DIRECT_BITS:
        raise ConfigurationError(
            f"a direct activation table takes at most {DIRECT_BITS} input bits, not {input.bits}"
        )
    x = np.ldexp(np.arange(1 << (input.bits - 1)) + (0.5 if middle else 0.0), -input.fraction)
    both = x[None] if definition.odd else np.stack([x, -x])
    values = np.abs(named(both))
    correct = output.to_integers(values)
    exact = np.minimum(np.ldexp(values, output.fraction), output.maximum)
    if direct:
        return ActivationTable(
            function=named,
            input=input,
            output=output,
            segment_bits=input.bits - 1,
            extra=0,
            base=tuple(correct.reshape(-1).tolist()),
            slope=(0,) * correct.size,
            middle=middle,
        )
    for segment_bits in range(input.bits):
        table = _fit(named, input, output, segment_bits, exact, correct, middle)
        if table is not None:
            return table
    raise AssertionError("a table with one entry per input is always exact")


def _fit(
    function: ActivationFunction,
    input: Format,
    output: Format,
    segment_bits: int,
    exact: NDArray[np.float64],
    correct: IntArray,
    middle: bool,
) -> ActivationTable | None:
    low_bits = input.bits - 1 - segment_bits
    low = np.arange(1 << low_bits)
    points = exact.reshape(-1, 1 << low_bits)
    slope = (points[:, -1] - points[:, 0]) / max(1, low[-1])
    deviation = points - slope[:, None] * low
    offset = (deviation.max(axis=1) + deviation.min(axis=1)) / 2
    goal, few = correct.reshape(points.shape), max(1, len(low) // 8)

    def integers(extra: int) -> tuple[IntArray, IntArray] | None:
        base = round_half_up(offset + 0.5, extra).astype(np.int64)
        rise = round_half_up(slope, extra).astype(np.int64)
        # Most lines are too far from some of these already.
        value = (base[:, None] + rise[:, None] * low[::few]) >> extra
        if np.abs(value - goal[:, ::few]).max() > 1:
            return None
        value = (base[:, None] + rise[:, None] * low) >> extra
        good = np.abs(value - goal).max() <= 1 and value.min() >= 0 and value.max() <= output.maximum
        # An odd function of 0 is 0, for either sign in the hardware.
        good = good and (middle or not function.definition.odd or value[0, 0] == 0)
        return (base, rise) if good else None

    if integers(_EXTRA_MAX) is None:
        return None
    extra, found = next((e, f) for e in range(_EXTRA_MAX + 1) if (f := integers(e)) is not None)
    return ActivationTable(
        function=function,
        input=input,
        output=output,
        segment_bits=segment_bits,
        extra=extra,
        base=tuple(found[0].tolist()),
        slope=tuple(found[1].tolist()),
        middle=middle,
    )
