"""Fixed-point formats, also those of weights, and the integer arithmetic that golden model and RTL share.

Rounding is half up, ``floor(x + 1/2)``, where nothing else is said; all saturation is symmetric, to
``+-(2**(bits-1) - 1)``, so that a magnitude always fits in ``bits - 1`` bits.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.record import Record

IntArray = NDArray[np.int64]
HiddenRounding = Literal["half_up", "odd"]
LEAST_FRACTION, MOST_FRACTION = -32, 64
"""The fewest and the most fraction bits of a format."""


def round_half_up(values: ArrayLike, fraction: ArrayLike = 0) -> NDArray[np.float64]:
    """Return ``floor(values * 2**fraction + 1/2)``, element-wise: all rounding from floats to codes."""
    scaled = np.ldexp(np.asarray(values, dtype=np.float64), np.asarray(fraction, dtype=np.int64))
    rounded: NDArray[np.float64] = np.floor(scaled + 0.5)
    return rounded


def round_shift(value: ArrayLike, shift: ArrayLike) -> IntArray:
    """Divide integers by ``2**shift`` (``shift`` >= 0, element-wise), rounding half up.

    Computes ``floor(value / 2**shift + 1/2)`` exactly, for magnitudes below ``2**62``.
    """
    twice = np.right_shift(np.asarray(value, dtype=np.int64) << 1, shift)
    rounded: IntArray = (twice + 1) >> 1
    return rounded


def round_odd(value: ArrayLike, shift: int) -> IntArray:
    """Divide integers by ``2**shift``, dropping the magnitude's fraction and setting its last bit.

    Every result is odd: the middle of the two steps that the value lies in. So errors have no mean, except
    for values of 0, which count as positive. Von Neumann's rounding (Burks, Goldstine and von Neumann,
    "Preliminary discussion of the logical design of an electronic computing instrument", 1946, section 5.12).
    """
    value = np.asarray(value, dtype=np.int64)
    magnitude = np.abs(value) >> shift | 1
    odd: IntArray = np.where(value < 0, -magnitude, magnitude)
    return odd


def odd_codes(values: ArrayLike) -> NDArray[np.float64]:
    """Return floats in units of a code as :func:`round_odd` rounds them."""
    values = np.asarray(values, dtype=np.float64)
    odd: NDArray[np.float64] = 2.0 * np.trunc(0.5 * values) + np.where(values < 0.0, -1.0, 1.0)
    return odd


def saturate(value: ArrayLike, bits: int) -> IntArray:
    """Saturate integers to ``+-(2**(bits-1) - 1)``."""
    limit = (1 << (bits - 1)) - 1
    # np.clip takes twice as long for few values.
    return np.asarray(np.minimum(np.maximum(np.asarray(value, dtype=np.int64), -limit), limit))


def where_bad(name: str, values: NDArray[Any], bad: NDArray[np.bool_]) -> str:
    """Return a text with the index and value of the first bad one of ``values``, and the number of others."""
    first = tuple(int(axis[0]) for axis in np.nonzero(bad)) if np.ndim(bad) else ()
    others = int(np.count_nonzero(bad)) - 1
    index = f"[{', '.join(map(str, first))}]" if first else ""
    return f"{name}{index} is {values[first]}{f' and {others} more' if others else ''}"


def check_range(
    name: str, values: NDArray[Any], least: int, most: int, note: str = "", advice: str = ""
) -> None:
    """Check integers of any shape and width; ``note`` follows the range in the message, ``advice`` ends it.

    Raises InputError if one is below ``least`` or above ``most``.
    """
    # Compared without conversion: large unsigned values would wrap into the range as int64.
    bad = (values < least) | (values > most)
    if bad.any():
        raise InputError(
            f"{name} must be within {least} to {most}{note}, but {where_bad(name, values, bad)}{advice}"
        )


class Format(Record):
    """A signed fixed-point format: the integer ``n`` stands for ``n * 2**-fraction``.

    ``fraction`` may exceed ``bits`` (small values) or be negative (large ones).
    """

    bits: Annotated[int, Field(ge=2, le=48)]
    fraction: Annotated[int, Field(ge=LEAST_FRACTION, le=MOST_FRACTION)]

    def __str__(self) -> str:
        return f"s{self.bits}.{self.fraction}"

    @classmethod
    def covering(cls, bits: int, magnitude: float) -> "Format":
        """Return the finest format of ``bits`` bits that holds ``+-magnitude`` unsaturated.

        Raises ConfigurationError if even 32 more integer bits do not suffice.
        """
        if not magnitude > 0.0:
            return cls(bits=bits, fraction=bits - 1)
        fraction = bits - 1 - math.ceil(math.log2(magnitude))
        while round(math.ldexp(magnitude, fraction)) > (1 << (bits - 1)) - 1:
            fraction -= 1
        if fraction < LEAST_FRACTION:
            raise ConfigurationError(
                f"a range of {magnitude:g} is too large for {bits} bits, of which the largest is "
                f"{math.ldexp(1.0, bits + 31):g}; rescale the data"
            )
        return cls(bits=bits, fraction=min(fraction, MOST_FRACTION))

    @property
    def maximum(self) -> int:
        """Largest integer; the smallest after saturation is its negative."""
        return (1 << (self.bits - 1)) - 1

    @property
    def lowest(self) -> int:
        """Most negative integer that the word can hold (a caller may give it as input)."""
        return -(1 << (self.bits - 1))

    @property
    def step(self) -> float:
        """Weight of one unit in the last place."""
        return math.ldexp(1.0, -self.fraction)

    @property
    def limit(self) -> float:
        """Largest number."""
        return self.maximum * self.step

    def check(self, name: str, codes: NDArray[Any], lowest: int | None = None) -> None:
        """Check that integers are codes of this format.

        Raises InputError if one is below ``lowest``, by default ``-maximum``, or above ``maximum``.
        """
        least = -self.maximum if lowest is None else lowest
        advice = "; integers are codes, floats are quantised"
        check_range(name, codes, least, self.maximum, f" ({self})", advice)

    def round_codes(self, codes: IntArray, fraction: int) -> IntArray:
        """Round codes of ``fraction`` fraction bits half up to this format's; they are not saturated."""
        drop = fraction - self.fraction
        return codes << -drop if drop < 0 else round_shift(codes, drop)

    def to_integers(self, values: ArrayLike) -> IntArray:
        """Round finite values half up to integers of this format, saturating."""
        rounded = round_half_up(values, self.fraction)
        return np.clip(rounded, -self.maximum, self.maximum).astype(np.int64)

    def saturated(self, values: ArrayLike) -> int:
        """Count the values that :meth:`to_integers` would saturate."""
        return int(np.count_nonzero(np.abs(round_half_up(values, self.fraction)) > self.maximum))

    def to_floats(self, integers: ArrayLike) -> NDArray[np.float64]:
        """Return the real values of integers of this format."""
        floats: NDArray[np.float64] = np.ldexp(np.asarray(integers, dtype=np.float64), -self.fraction)
        return floats


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WeightFormat:
    """Integers of ``bits`` bits, whose magnitude has ``bits - 1``; every row has a power of two as its scale.

    Memories, multipliers and golden model take any integers of that width: only this
    class decides which of them are used.
    """

    bits: int

    @property
    def maximum(self) -> int:
        """Largest magnitude."""
        return (1 << (self.bits - 1)) - 1

    def finest_scale(self, magnitude: Floats) -> IntArray:
        """Return the most fraction bits with which these magnitudes, all above 0, are within the format."""
        scale = self.bits - 1 - np.ceil(np.log2(magnitude)).astype(np.int64)
        finest: IntArray = scale - (round_half_up(magnitude, scale) > self.maximum)
        return finest

    def finest_of_rows(self, weights: Floats, empty: int = 0) -> IntArray:
        """Return the most fraction bits of each row, ``(rows,)``, with which all its weights are within the
        format; ``empty`` for a row of zeros."""
        most = np.abs(weights).max(axis=1)
        return np.where(most > 0, self.finest_scale(np.where(most > 0, most, 1.0)), empty)

    def rounded(self, weights: Floats) -> Floats:
        """Return the weights, ``(rows, columns)``, that the format holds, with each row's finest scale."""
        scale = self.finest_of_rows(weights)[:, None]
        return np.ldexp(self.to_integers(weights, scale).astype(np.float64), -scale)

    def to_integers(self, values: Floats, scale: IntArray) -> IntArray:
        """Return weights as integers of ``scale`` fraction bits (element-wise), within the format."""
        return round_half_up(values, scale).astype(np.int64)
