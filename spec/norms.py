"""Norms of a step's values in integers: exact sums, an inverse root by table, and products per value.

With the ``n`` values ``x``, their sum ``S`` and the sum of their squares ``T``, a layer norm is
``(n x - S) / sqrt(n T - S * S + n * n * epsilon)``; a norm by the root mean square is that without ``S``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from rtlstm.spec.activations.interpolated import ActivationTable, design_table
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, IntArray, round_half_up
from rtlstm.spec.parameters import Parameters, ceil_log2
from rtlstm.spec.record import Record

if TYPE_CHECKING:
    from rtlstm.spec.cells.graph import CellGraph

MOST_NORM_BITS = 16
"""Most bits of a norm's results: with so many, the table's error is less than a unit of the last one."""
_MOST_SQUARE_BITS, _MOST_DEVIATION_BITS = 62, 62
_EXACT_EPSILON = 17
"""Bits that epsilon or the least variance has, so that rounding epsilon changes no result."""
_MOST_GUARD = 9
_FINER = 3
"""Fraction bits that what the root multiplies has more than the result; with a gain, one more."""
ADDED_PER_REGISTER = 4
"""Gate units whose values are added in one cycle."""
ADDED_TO_SUMS = 2
"""Such sums that are added in one cycle to the sums of a vector."""
_MOST_TERMS = 5
"""Terms of the scaled variance that are added in one cycle."""
PART_BITS = 17
"""Bits of the lower part of a sum whose square is made in parts: with a sign, most multipliers take it."""
COARSE = 8
"""Bits by whose multiples the scaled variance is shifted first."""


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
    """What is added to the sum of squares, in its unit, divided by four to the ``guard``."""
    guard: Annotated[int, Field(ge=0, le=_MOST_GUARD)]
    """Fraction bits of a value that its square has twice, so that epsilon is not rounded to too few bits."""
    fraction: Annotated[int, Field(ge=0, le=32)]
    """Fraction bits of a deviation that is divided by the root's power of two."""
    gain: Format | None = None
    """Format of what it is multiplied with before the root, if there is a gain."""
    dropped: Annotated[int, Field(ge=0)] = 0
    """Bits that are dropped of that product."""
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
        result: int,
        table: int,
        root: ActivationTable,
        gain: Format | None = None,
    ) -> "Normalisation":
        """Return the norm of numbers in a format, with ``result`` fraction bits of its results.

        Raises ConfigurationError if its sums are too wide.
        """
        exact = math.ldexp(epsilon * values, 2 * source.fraction)
        # The variance is at least that of one value that differs by 1, or 0.
        guard, least = 0, max(exact, (values - 1) / values)
        while exact and least < 1 << _EXACT_EPSILON and guard < _MOST_GUARD:
            guard, least = guard + 1, 4 * least
        whole = 0 if gain is None else max(0, gain.bits - 1 - gain.fraction)
        fraction = max(0, result + whole + _FINER)
        behind = 0 if gain is None else fraction + gain.fraction - max(0, result + _FINER + 1)
        most = values * values << 2 * (source.bits - 1 + guard)
        added = math.ldexp(exact, 2 * guard)
        deviation = source.bits + ceil_log2(values) + 1 + fraction + guard
        if added * values + most >= 1 << _MOST_SQUARE_BITS or deviation > _MOST_DEVIATION_BITS:
            # So large an epsilon needs no guard bits.
            larger = math.ldexp(1 << _EXACT_EPSILON, -2 * source.fraction) / values
            helps = (
                guard
                and larger < 1e-4
                and deviation - guard < _MOST_DEVIATION_BITS
                and most >> 2 * guard < 1 << _MOST_SQUARE_BITS - 3
            )
            raise ConfigurationError(
                f"a norm of {values} values of {source.bits} bits (epsilon {epsilon:g}) needs sums of "
                f"squares of more than {_MOST_SQUARE_BITS} bits; choose fewer data bits (`data_bits`), "
                + f"an epsilon of {larger:.1g} or more, " * bool(helps)
                + "or norms of fewer values"
            )
        return cls(
            values=values,
            bits=source.bits,
            centre=centre,
            epsilon=int(round_half_up(added)),
            guard=guard,
            fraction=fraction,
            gain=gain,
            dropped=max(0, behind),
            table=table,
            mantissa_bits=root.magnitude_bits,
        )

    @property
    def sum_bits(self) -> int:
        """Signed width of the sum of the values."""
        return self.bits + ceil_log2(self.values)

    @property
    def square_bits(self) -> int:
        """Width of the sum of their squares with epsilon, unsigned."""
        most = (self.values << 2 * (self.bits - 1 + self.guard)) + self.epsilon
        return most.bit_length()

    @property
    def deviation_bits(self) -> int:
        """Signed width of a value less the mean, times their number."""
        return self.sum_bits + 1

    @property
    def spread_bits(self) -> int:
        """Width of the scaled variance, unsigned, a multiple of ``COARSE``."""
        most = self.values * ((self.values << 2 * (self.bits - 1 + self.guard)) + self.epsilon)
        return COARSE * math.ceil(max(most.bit_length(), self.mantissa_bits + 2) / COARSE)

    @property
    def left(self) -> int:
        """Bits by which a deviation is shifted left before it is shifted right by the root's exponent."""
        return self.fraction + self.guard

    @property
    def shifted_bits(self) -> int:
        """Signed width of a shifted deviation: no result is beyond the root of the number of values."""
        return self.fraction + 2 + math.ceil(ceil_log2(self.values) / 2)

    @property
    def factor(self) -> Format:
        """Format of what the root multiplies."""
        bits, fraction = (0, 0) if self.gain is None else (self.gain.bits, self.gain.fraction)
        return Format(
            bits=self.shifted_bits + bits - self.dropped, fraction=self.fraction + fraction - self.dropped
        )

    def real_epsilon(self, source: Format) -> float:
        """Return the epsilon of values in a format."""
        return math.ldexp(self.epsilon / self.values, -2 * (source.fraction + self.guard))

    def product(self, root: Format) -> Format:
        """Return the format of the products with the root."""
        return Format(bits=self.factor.bits + root.bits, fraction=self.factor.fraction + root.fraction)

    def normalise(self, x: IntArray, table: ActivationTable, gain: IntArray | None = None) -> IntArray:
        """Return the products of values ``(..., values)``, which are normalised along the last axis."""
        total = x.sum(axis=-1, keepdims=True) if self.centre else 0
        squares = ((x * x).sum(axis=-1, keepdims=True) << 2 * self.guard) + self.epsilon
        spread = self.values * squares - (total * total << 2 * self.guard)
        # Wide enough, and within 64 bits with a sign.
        bits, zeros = min(self.spread_bits, _MOST_SQUARE_BITS), np.zeros_like(spread)
        for shift in (2 << step for step in reversed(range(ceil_log2(bits // 2)))):
            moves = spread < 1 << (bits - shift)
            spread, zeros = np.where(moves, spread << shift, spread), zeros + np.where(moves, shift, 0)
        odd = spread >> (bits - 1)
        mantissa = spread >> (bits - 2 - self.mantissa_bits + odd)
        mantissa &= (1 << self.mantissa_bits) - 1
        root = table.compute(np.where(odd == 1, ~mantissa, mantissa))
        factor = ((self.values * x - total) << self.left) >> ((bits - 2 - zeros) >> 1)
        if gain is not None:
            factor = factor * gain >> self.dropped
        product: IntArray = factor * root
        return product


@dataclass(frozen=True)
class NormForm:
    """What the hardware makes of the products of a norm's cell: its bias is added, and it is rounded."""

    norm: Normalisation
    product: Format
    bias: tuple[int, Format] | None
    """Index of the bias among the per-unit constants, and its format; the gain is the first one."""
    output: Format

    @classmethod
    def of(cls, graph: "CellGraph", norms: Sequence[Normalisation]) -> "NormForm":
        """Return that of a norm's cell."""
        at = next(number for number, node in enumerate(graph.nodes) if node.kind == "normalise")
        node, added = graph.nodes[at], None
        for other in graph.nodes:
            if other.kind == "add" and at in other.args:
                parameter = graph.nodes[next(arg for arg in other.args if arg != at)]
                added = parameter.index, parameter.format
        return cls(norms[node.index], node.format, added, graph.output)

    @property
    def drop(self) -> int:
        """Bits of the product behind the result's last one; less than 0 if it has fewer."""
        return self.product.fraction - self.output.fraction


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
    """Return the registers of the adders of so many units' values, before they are added to a vector's."""
    registers = 0
    while units > ADDED_TO_SUMS:
        units, registers = -(-units // ADDED_PER_REGISTER), registers + 1
    return registers


def square_in_parts(norms: Sequence[Normalisation]) -> bool:
    """Whether the square of a vector's sum is added of the products of its parts."""
    return any(norm.centre and norm.sum_bits > PART_BITS + 1 for norm in norms)


def scales_first(norms: Sequence[Normalisation]) -> bool:
    """Whether the multiples of the sum of squares are added in a cycle before the square of the sum is."""
    of_square = max(norm.centre for norm in norms) + square_in_parts(norms)
    return max(len(digits(norm.values)) for norm in norms) + of_square > _MOST_TERMS


def spread_stage(parameters: Parameters, norms: Sequence[Normalisation]) -> int:
    """Return the cycles from the last value of a vector, as it is stored, to the scaled variance.

    Squares are added, and the sum of the values is squared; both meet in the cycle before.
    """
    product, added = parameters.pipeline.product, adder_registers(parameters.gate_units) + 1
    of_square = added + product if any(norm.centre for norm in norms) else 0
    return max(product + added + scales_first(norms), of_square) + 1


def root_stage(parameters: Parameters) -> int:
    """Return the cycles from the scaled variance to the root: a shift, the argument's register, the table."""
    table = parameters.pipeline.table
    return 1 + int(table == 1) + table + (2 if parameters.tables == "interpolated" else 0)


def product_cycles(parameters: Parameters) -> int:
    """Return the cycles of a product with a gain or a root: of wide factors, as those of other cells."""
    return 2 if parameters.pipeline.cell > 3 else parameters.pipeline.product


def value_cycles(parameters: Parameters, norms: Sequence[Normalisation]) -> int:
    """Return the cycles from a value beside the scaled variance to its result.

    Deviation, two of shifts, product with the gain; product with the root; the bias is added; the result.
    """
    gained = 3 + product_cycles(parameters) * any(norm.gain is not None for norm in norms)
    return max(gained, root_stage(parameters)) + product_cycles(parameters) + 2


def norm_results(parameters: Parameters, norms: Sequence[Normalisation]) -> int:
    """Return the cycles from the issue of a norm's last word to its first results.

    The word is issued at most ``operand - 1`` cycles before the last value is stored.
    """
    found = parameters.pipeline.operand - 1 + spread_stage(parameters, norms)
    return max(found + value_cycles(parameters, norms), parameters.preactivation + 1)
