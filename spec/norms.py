"""Norms of a step's values in integers: exact sums, an inverse root by table, and one product per value.

With the ``n`` values ``x``, their sum ``S`` and the sum of their squares ``T``, a layer norm is
``(n x - S) / sqrt(n T - S * S + n * n * epsilon)``; a norm by the root mean square is that without ``S``.
"""

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from rtlstm.spec.activations.interpolated import ActivationTable, design_table
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, IntArray, round_half_up
from rtlstm.spec.parameters import Parameters, ceil_log2
from rtlstm.spec.record import Record

MOST_NORM_BITS = 16
"""Most bits of a norm's results: with so many, the table's error is less than a unit of the last one."""
_MOST_SQUARE_BITS, _MOST_DEVIATION_BITS = 62, 62
_EXACT_EPSILON = 18
"""Bits that epsilon or the least scaled variance has, so that rounding epsilon changes no result."""
_MOST_GUARD = 9
_FINER = 3
"""Fraction bits that what the root multiplies has more than the result."""
ADDED_PER_REGISTER = 4
"""Gate units whose values are added in one cycle."""


def design_root(direct: bool) -> ActivationTable:
    """Return the table of ``1 / sqrt(m)``, m from 1 up to 4; with one entry per input if ``direct``.

    The fraction of m, or of m / 2 from 2 on, is the input's magnitude; from 2 on it is negative. Inputs stand
    for the middle between two.
    """
    bits = 11 if direct else 20
    table = design_table(
        "inverse_root", Format(bits=bits, fraction=bits - 1), Format(bits=18, fraction=17), direct, True
    )
    assert min(table.negates) == max(table.negates) == 0
    return table


class Normalisation(Record):
    """A norm of ``values`` numbers of ``bits`` bits."""

    values: Annotated[int, Field(ge=1, le=65536)]
    bits: Annotated[int, Field(ge=4, le=18)]
    centre: bool
    """Subtract the mean."""
    epsilon: Annotated[int, Field(ge=0)]
    """What is added to the sum of squares, in its unit."""
    guard: Annotated[int, Field(ge=0, le=_MOST_GUARD)]
    """Fraction bits of a value that its square has twice, so that epsilon is not rounded to too few bits."""
    fraction: Annotated[int, Field(ge=0, le=32)]
    """Fraction bits of what the root multiplies."""
    table: Annotated[int, Field(ge=0)]
    """Index of the root's table."""
    mantissa_bits: Annotated[int, Field(ge=1)]
    """Bits of the magnitude that the table reads."""

    @classmethod
    def of(
        cls,
        values: int,
        source: Format,
        centre: bool,
        epsilon: float,
        fraction: int,
        table: int,
        root: ActivationTable,
    ) -> "Normalisation":
        """Return the norm of numbers in a format, whose results need ``fraction`` fraction bits.

        Raises ConfigurationError if its sums are too wide.
        """
        exact = math.ldexp(epsilon * values * values, 2 * source.fraction)
        guard, least = 0, max(exact, values - 1)
        # The scaled variance is at least that of one value that differs by 1, or 0.
        while exact and least < 1 << _EXACT_EPSILON and guard < _MOST_GUARD:
            guard, least = guard + 1, 4 * least
        most = values * values << 2 * (source.bits - 1 + guard)
        added = math.ldexp(exact, 2 * guard)
        deviation = source.bits + ceil_log2(values) + 1 + max(0, fraction) + _FINER + guard
        if added + most >= 1 << _MOST_SQUARE_BITS or deviation > _MOST_DEVIATION_BITS:
            raise ConfigurationError(
                f"a norm of {values} values of {source.bits} bits (epsilon {epsilon:g}) needs sums of "
                f"squares of more than {_MOST_SQUARE_BITS} bits; choose fewer data bits (`data_bits`), or "
                "norms of fewer values"
            )
        return cls(
            values=values,
            bits=source.bits,
            centre=centre,
            epsilon=int(round_half_up(added)),
            guard=guard,
            fraction=max(0, fraction + _FINER),
            table=table,
            mantissa_bits=root.magnitude_bits,
        )

    @property
    def sum_bits(self) -> int:
        """Signed width of the sum of the values."""
        return self.bits + ceil_log2(self.values)

    @property
    def square_bits(self) -> int:
        """Width of the sum of their squares, unsigned."""
        return 2 * self.bits - 1 + ceil_log2(self.values)

    @property
    def deviation_bits(self) -> int:
        """Signed width of a value less the mean, times their number."""
        return self.sum_bits + 1

    @property
    def spread_bits(self) -> int:
        """Width of the scaled variance, unsigned and even."""
        most = (self.values * self.values << 2 * (self.bits - 1 + self.guard)) + self.epsilon
        return 2 * math.ceil(max(most.bit_length(), self.mantissa_bits + 2) / 2)

    @property
    def shifts(self) -> tuple[int, ...]:
        """Shifts that bring the highest two bits of the scaled variance to its top, one after the other."""
        steps = ceil_log2(self.spread_bits // 2)
        return tuple(2 << step for step in reversed(range(steps)))

    @property
    def left(self) -> int:
        """Bits by which a deviation is shifted left before it is shifted right by the root's exponent."""
        return self.fraction + self.guard

    @property
    def shifted_bits(self) -> int:
        """Signed width of a shifted deviation: no result is beyond the root of the number of values."""
        return self.fraction + 2 + math.ceil(ceil_log2(self.values) / 2)

    def real_epsilon(self, source: Format) -> float:
        """Return the epsilon of values in a format."""
        return math.ldexp(self.epsilon / self.values**2, -2 * (source.fraction + self.guard))

    def product(self, root: Format) -> Format:
        """Return the format of the products with the root."""
        return Format(bits=self.shifted_bits + root.bits, fraction=self.fraction + root.fraction)

    def normalise(self, x: IntArray, table: ActivationTable) -> IntArray:
        """Return the products of values ``(..., values)``, which are normalised along the last axis."""
        total = x.sum(axis=-1, keepdims=True) if self.centre else 0
        squares = (x * x).sum(axis=-1, keepdims=True)
        spread = ((self.values * squares - total * total) << 2 * self.guard) + self.epsilon
        zeros = np.zeros_like(spread)
        for shift in self.shifts:
            moves = spread < 1 << (self.spread_bits - shift)
            spread, zeros = np.where(moves, spread << shift, spread), zeros + np.where(moves, shift, 0)
        odd = spread >> (self.spread_bits - 1)
        mantissa = spread >> (self.spread_bits - 2 - self.mantissa_bits + odd)
        mantissa &= (1 << self.mantissa_bits) - 1
        root = table.compute(np.where(odd == 1, ~mantissa, mantissa))
        exponent = (self.spread_bits - 2 - zeros) >> 1
        product: IntArray = (((self.values * x - total) << self.left) >> exponent) * root
        return product


def digits(number: int) -> tuple[tuple[int, bool], ...]:
    """Return powers of two that make a number, with whether each is subtracted: as few as possible."""
    found, power = [], 0
    while number:
        if number & 1:
            minus = number & 3 == 3
            found.append((power, minus))
            number += 1 if minus else -1
        number >>= 1
        power += 1
    return tuple(found)


def adder_registers(units: int) -> int:
    """Return the registers of the adders of so many gate units' values."""
    registers = 0
    while units > 1:
        units, registers = -(-units // ADDED_PER_REGISTER), registers + 1
    return registers


def root_cycles(parameters: Parameters) -> int:
    """Return the cycles of the root's table, from its argument to the value."""
    return parameters.pipeline.table + (parameters.activation - 1)


def statistics_cycles(parameters: Parameters) -> int:
    """Return the cycles from the last value of a vector, as it is stored, to the statistics of all.

    Squares, their sum, the total; its square in two; the scaled variance; three of shifts; the root's table;
    and the registers of which each gate unit reads.
    """
    return (
        parameters.pipeline.product
        + adder_registers(parameters.gate_units)
        + 1
        + 2
        + 1
        + 3
        + root_cycles(parameters)
        + 1
    )


def statistics_stage(parameters: Parameters) -> int:
    """Return the cycles from a value's pre-activation to the first one in which the statistics are there.

    The word with the last value is issued at most ``operand - 1`` cycles before that is stored.
    """
    waits = statistics_cycles(parameters) + parameters.pipeline.operand - 1
    return max(0, waits - parameters.preactivation)


def normalise_cycles(parameters: Parameters) -> int:
    """Return the cycles from the statistics to a value's product: deviation, two of shifts, product."""
    return 3 + (2 if parameters.pipeline.cell > 3 else parameters.pipeline.product)
