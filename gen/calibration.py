"""Calibration data: typical inputs, and how long each of their sequences is."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.sim.reference import FloatResult, run_float
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.network import Network

__all__ = ["Calibration", "run_reference"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Checked data; make them with :meth:`of`."""

    x: Floats
    """``(T, N, inputs)``; zero past a sequence's length."""
    lengths: IntArray
    """Valid steps of each sequence, ``(N,)``."""

    @classmethod
    def given(cls, network: Network, x: ArrayLike | None, lengths: ArrayLike | None) -> Self | None:
        """Check what may be left out: data, or only their lengths. Raises as :meth:`of` does."""
        if x is None and lengths is not None:
            raise InputError("lengths of calibration data need the data; give them, or leave the lengths out")
        return None if x is None else cls.of(network, x, lengths)

    @classmethod
    def of(cls, network: Network, x: ArrayLike, lengths: ArrayLike | None = None) -> Self:
        """Check what a caller gave: ``(T, inputs)`` or ``(T, N, inputs)``, and lengths ``(N,)`` or None.

        Raises
        ------
        InputError
            If these are not finite numbers of such a shape, or not the lengths of such sequences.
        """
        values = np.asarray(x)
        if not np.issubdtype(values.dtype, np.floating):
            # Integers would mean codes of a format to the driver, and real values here.
            raise InputError(
                f"calibration data must be real numbers, as floats, not {values.dtype}; convert them with "
                "astype(float) if they are real values"
            )
        if values.ndim == 2:
            values = values[:, None, :]
        if values.ndim != 3 or values.shape[2] != network.inputs or 0 in values.shape:
            raise InputError(
                f"calibration data must be (T, {network.inputs}) or (T, N, {network.inputs}) and not "
                f"empty, not {np.shape(x)}"
            )
        valid = _check_lengths(lengths, *values.shape[:2])
        alive = np.arange(len(values))[:, None, None] < valid[:, None]
        values = np.where(alive, values.astype(np.float64), 0.0)
        if not np.isfinite(values).all():
            place = tuple(int(axis) for axis in np.argwhere(~np.isfinite(values))[0])
            raise InputError(
                f"calibration data must be finite, but those of step {place[0]}, sequence {place[1]}, value "
                f"{place[2]} are {values[place]}; leave them out, or replace them, for example with "
                "numpy.nan_to_num"
            )
        return cls(values, valid)

    def scaled(self, factors: Floats) -> Self:
        """Return the data with each feature times its factor, ``(inputs,)``."""
        return type(self)(self.x * factors, self.lengths)

    def first(self, steps: int) -> Self:
        """Return the first steps of each sequence."""
        return type(self)(self.x[:steps], np.minimum(self.lengths, steps))

    @property
    def steps(self) -> int:
        """Steps of the longest sequence."""
        return len(self.x)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.lengths)


def run_reference(network: Network, data: Calibration) -> FloatResult:
    """Run the data through the float network.

    Raises
    ------
    ConfigurationError
        If its values grow until no format holds them: functions without bounds may feed themselves.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = run_float(network, data.x, lengths=data.lengths)
    met = (result.preactivation, result.cell, *result.layers)
    if not np.isfinite(met).all() or not np.isfinite(result.y).all():
        raise ConfigurationError(
            f"the values of network {network.name!r} must stay finite, but grow beyond all numbers within "
            f"{data.steps} steps: its activations have no bounds; use one that has, a clip, or shorter or "
            "smaller calibration data"
        )
    return result


def _check_lengths(lengths: ArrayLike | None, steps: int, count: int) -> IntArray:
    if lengths is None:
        return np.full(count, steps, dtype=np.int64)
    array = np.atleast_1d(np.asarray(lengths))
    whole = np.issubdtype(array.dtype, np.integer) and array.shape == (count,)
    if not whole or array.min() < 1 or array.max() > steps:
        raise InputError(
            f"lengths of calibration data must be {count} integers, one per sequence, within 1 to {steps}, "
            f"not {np.asarray(lengths).tolist()!r:.80}"
        )
    return array.astype(np.int64)
