"""Softmax of a step's outputs on the device: its tables, and its arithmetic in integers.

``exp(y - max)`` is the product of two table entries, of the upper and of the lower bits of the difference.
The sum of these is exact. Its reciprocal is a table entry, refined once. Errors are at most one unit in the
last place of the result.
"""

import math
from functools import cached_property

import numpy as np

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.parameters import ceil_log2
from rtlstm.spec.record import Record

_SPARE_BITS = 3
"""Bits that a power has beyond those of a result and those of the number of powers: what is rounded away of
all of them together is then at most 1.5 / 8 of a unit in the last place."""
_REFINED_BITS = 6
"""Bits that the reciprocal has beyond those of a result."""
_MOST_POWER_BITS = 30
"""Bits of a power, so that products have at most 62."""


class Softmax(Record):
    """Softmax of ``classes`` outputs with ``bits`` bits, whose last place is worth ``2**-fraction``."""

    classes: int
    bits: int
    fraction: int

    def check(self) -> None:
        """Raise a ConfigurationError if it needs wider products than there are."""
        if self.power_bits > _MOST_POWER_BITS:
            most = 1 << _MOST_POWER_BITS - self.bits - _SPARE_BITS + 1
            raise ConfigurationError(
                f"`decide='softmax'` takes at most {most:,} outputs of {self.bits} bits, not "
                f"{self.classes:,}; give them fewer with `output_bits`, or leave `decide` out and take "
                "rtlstm.host.softmax(y)"
            )

    @property
    def output(self) -> Format:
        """Format of a probability."""
        return Format(bits=self.bits, fraction=self.bits - 1)

    @property
    def power_bits(self) -> int:
        """Fraction bits of a power, which is at most 1."""
        return self.bits - 1 + ceil_log2(self.classes) + _SPARE_BITS

    @property
    def _range(self) -> int:
        """The first difference whose power rounds to zero, or that there cannot be."""
        zero = math.ldexp((self.power_bits + 1) * math.log(2), self.fraction)
        return max(1, min(1 << self.bits, math.ceil(zero)))

    @property
    def low_bits(self) -> int:
        """Bits of a difference that the second table looks up."""
        return max(1, ceil_log2(self._range) // 2)

    @cached_property
    def high(self) -> tuple[int, ...]:
        """Powers of the upper bits of a difference; what is beyond rounds to zero."""
        return self._powers(-(-self._range >> self.low_bits), self.low_bits)

    @cached_property
    def low(self) -> tuple[int, ...]:
        """Powers of the lower bits."""
        return self._powers(1 << self.low_bits, 0)

    def _powers(self, count: int, shift: int) -> tuple[int, ...]:
        step = math.ldexp(1.0, shift - self.fraction)
        return tuple(round(math.ldexp(math.exp(-index * step), self.power_bits)) for index in range(count))

    @property
    def mantissa_bits(self) -> int:
        """Fraction bits of the sum, shifted to be at least 1 and less than 2."""
        return min(self.power_bits, self.bits - 1 + _REFINED_BITS)

    @property
    def index_bits(self) -> int:
        """Bits of the sum that the reciprocal's table looks up."""
        return min(self.mantissa_bits, self.bits // 2 + 1)

    @property
    def seed_bits(self) -> int:
        """Fraction bits of the table's entries, which are at most 1."""
        return self.index_bits + 2

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Reciprocals in the middle of each interval."""
        count = 1 << self.index_bits
        return tuple(
            round(math.ldexp(1.0, self.seed_bits) * count / (count + index + 0.5)) for index in range(count)
        )

    @property
    def refined_bits(self) -> int:
        """Fraction bits of the reciprocal and of what refines it, which are at most a little more than 1."""
        return self.bits - 1 + _REFINED_BITS

    @property
    def sum_bits(self) -> int:
        """Width of the sum of the powers."""
        return self.power_bits + 1 + ceil_log2(self.classes)

    def powers(self, y: IntArray) -> IntArray:
        """Return the powers of outputs ``(..., classes)`` with ``power_bits`` fraction bits."""
        away = y.max(axis=-1, keepdims=True) - y
        upper = away >> self.low_bits
        high = np.append(np.array(self.high, np.int64), 0)[np.minimum(upper, len(self.high))]
        low = np.array(self.low, np.int64)[away & (1 << self.low_bits) - 1]
        return np.asarray(high * low + (1 << self.power_bits - 1) >> self.power_bits)

    def reciprocals(self, sums: IntArray) -> IntArray:
        """Return the reciprocals of sums of powers, with ``refined_bits`` fraction bits."""
        # Sums of so few bits are exact as floats.
        shift = np.frexp(sums.astype(np.float64))[1] - 1 - self.power_bits
        mantissa = sums << ceil_log2(self.classes) - shift
        mantissa >>= ceil_log2(self.classes) + self.power_bits - self.mantissa_bits
        upper = mantissa >> self.mantissa_bits - self.index_bits
        seed = np.array(self.seeds, np.int64)[upper & (1 << self.index_bits) - 1]
        rest = (2 << self.mantissa_bits + self.seed_bits) - mantissa * seed
        rest >>= self.mantissa_bits + self.seed_bits - self.refined_bits
        return np.asarray(seed * rest >> self.seed_bits + shift)

    def probabilities(self, y: IntArray) -> IntArray:
        """Return the codes of the probabilities of outputs ``(..., classes)``."""
        powers = self.powers(y)
        share = self.reciprocals(powers.sum(axis=-1, keepdims=True))
        shift = self.power_bits + self.refined_bits - self.output.fraction
        codes = powers * share + (1 << shift - 1) >> shift
        return np.asarray(np.minimum(codes, self.output.maximum), dtype=np.int64)
