"""The values that a weight can have."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.fixed import IntArray, round_half_up

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
