"""Scales of rows that are no powers of two: those of a model's integers, or such that a row uses all codes.

A scale is a whole number of ``SCALE_UNIT`` bits, of which hardware has the upper ones, in units of
``2**-SCALE_UNIT``. A row's step, what 1 is worth of its weights, is
``scale * 2**-SCALE_UNIT * 2**-fraction``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import SCALE_UNIT

Floats = NDArray[np.float64]

_FLOAT32 = 2.0**-21
"""Largest difference of a weight from a multiple of its row's step, relative to the row's largest weight: a
model multiplies its integers in float32."""
_FEW, _ROWS = 8, 256
"""Columns of a row that are looked at first, and rows that are looked at together."""
_MOST = 1023
"""Largest integer of a model whose step is looked for."""


@dataclass(frozen=True)
class ScaledRows:
    """Integers of the rows for one vector, and their steps."""

    weights: IntArray
    fraction: IntArray
    scale: IntArray
    kept: NDArray[np.bool_]
    """Rows that have the integers that they are made of."""

    def coarser(self, rows: IntArray) -> "ScaledRows":
        """Return the same rows in steps twice as large where ``rows`` is 1."""
        weights = np.where(rows[:, None] > 0, (self.weights + 1) >> 1, self.weights)
        return ScaledRows(weights, self.fraction - rows, self.scale, self.kept & (rows == 0))


def find_steps(weights: Floats, maximum: int) -> Floats:
    """Return the step of which a row's weights are multiples up to ``maximum``, ``(rows,)``; 0 without one.

    The largest such step, or one that other rows have, too. Rows of larger integers than 1023 count as
    without.
    """
    maximum = min(maximum, _MOST)
    largest = np.abs(weights).max(axis=1)
    relative = weights / np.where(largest > 0.0, largest, 1.0)[:, None]
    multiples = np.arange(1, maximum + 1)
    order = np.argsort(-np.abs(relative), axis=1)[:, :_FEW]
    some = np.take_along_axis(relative, order, axis=1)[:, :, None]
    possible = np.empty((len(weights), maximum), dtype=np.bool_)
    for first in range(0, len(weights), _ROWS):
        few = some[first : first + _ROWS] * multiples
        possible[first : first + _ROWS] = (np.abs(few - np.rint(few)) <= _FLOAT32 * multiples).all(axis=1)
    found = np.zeros(len(weights), dtype=np.int64)
    for row in np.flatnonzero(largest):
        for multiple in multiples[possible[row]]:
            codes = relative[row] * multiple
            if (np.abs(codes - np.rint(codes)) <= _FLOAT32 * multiple).all():
                found[row] = multiple
                break
    steps = np.where(found > 0, largest / np.maximum(found, 1), 0.0)
    known = np.unique(steps[found > 0])
    finer = steps.copy()
    for row in np.flatnonzero((found > 0) & (2 * found <= maximum)):
        # Integers that all are even, say, may have the step of the rows beside them, as those of one tensor.
        ratios = steps[row] / known
        whole = (np.abs(ratios - np.rint(ratios)) <= 2 * _FLOAT32 * ratios) & (
            ratios * found[row] <= maximum + 0.5
        )
        if whole.any():
            finer[row] = known[whole].min()
    return finer


def scale_rows(weights: Floats, maximum: int, bits: int, empty: int, finest: int) -> ScaledRows:
    """Return rows in integers up to ``maximum`` with scales of ``bits`` bits.

    Rows that are multiples of a step keep their integers. In others the largest weight is the largest code.
    Rows of zeros have ``empty`` fraction bits, and none has more than ``finest``.
    """
    largest, steps = np.abs(weights).max(axis=1), find_steps(weights, maximum)
    kept = steps > 0.0
    steps = np.where(kept, steps, np.where(largest > 0.0, largest / maximum, 2.0 ** -(empty + 1)))
    fraction, scale = _split(steps, bits, kept)
    # So small a row takes what is left of its codes.
    kept &= fraction <= finest
    scale = np.where(fraction <= finest, scale, 1 << (SCALE_UNIT - 1))
    fraction = np.minimum(fraction, finest)
    used = np.where(kept, steps, np.ldexp(scale.astype(np.float64), -SCALE_UNIT - fraction))
    codes = np.rint(weights / used[:, None])
    return ScaledRows(np.clip(codes, -maximum, maximum).astype(np.int64), fraction, scale, kept)


def _split(steps: Floats, bits: int, nearest: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return fraction bits and scales of steps: the nearest, or else not below the step."""
    mantissas, exponents = np.frexp(steps)
    wanted = np.ldexp(mantissas, bits)
    scale = np.where(nearest, np.rint(wanted), np.ceil(wanted)).astype(np.int64)
    beyond = scale >> bits
    fraction = -(exponents.astype(np.int64) + beyond)
    return fraction, (scale >> beyond) << (SCALE_UNIT - bits)
