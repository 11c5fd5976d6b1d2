"""Checks a caller's values and quantises them to integers, converts results back, and finds their classes."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Floats, Format, IntArray, where_bad

_FLOAT32_BITS = 25
"""Width in bits, with the sign, of the widest codes that float32 holds exactly."""


class CodesWarning(UserWarning):
    """Integers were taken as codes of a fixed-point format, not as values."""


class SaturationWarning(UserWarning):
    """Values outside the range of their fixed-point format were saturated."""


def as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return ``values`` as an array without masked values.

    Raises InputError if they do not form an array, or some are masked.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(
            f"{name} must hold a number everywhere, but some are masked; fill them, for example with "
            "numpy.ma.filled, and give lengths if they are padding"
        )
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be an array of numbers, but it is not ({error}); "
            "give a NumPy array, or a detached tensor on the CPU"
        ) from None


def as_numbers(name: str, values: ArrayLike) -> NDArray[np.generic]:
    """Return ``values`` as an array of real numbers, integers or floats.

    Raises InputError if they are not numbers or do not form an array.
    """
    array = as_array(name, values)
    if array.dtype.kind not in "iuf":
        raise InputError(
            f"{name} must hold floats, or integers of the build's format, not {array.dtype}; "
            f"convert it, for example with {name}.astype(numpy.float32)"
        )
    return array


def is_raw(array: NDArray[np.generic]) -> bool:
    """Whether the numbers are integers, so codes of a fixed-point format."""
    return array.dtype.kind in "iu"


def quantise(
    name: str,
    array: NDArray[np.generic],
    format: Format,
    lowest: int | None = None,
    scale: Callable[[ArrayLike], Floats] | None = None,
) -> tuple[IntArray, int]:
    """Quantise floats to integers of ``format``, or check integers that are codes already.

    Raises InputError if a float is not finite or an integer is out of range.

    Parameters
    ----------
    name
        For messages.
    array
        From :func:`as_numbers`, of any shape.
    format
        Format of the result; floats are rounded half up and saturate.
    lowest
        Smallest code accepted; ``-format.maximum`` by default.
    scale
        The function that returns what is quantised of floats; by default they are themselves.

    Returns
    -------
    The integers, and how many floats were saturated.
    """
    if is_raw(array):
        format.check(name, array, lowest)
        return array.astype(np.int64), 0
    finite = np.isfinite(array)
    if not finite.all():
        raise InputError(
            f"{name} must be finite, but {where_bad(name, array, ~finite)}; "
            "replace it, for example with numpy.nan_to_num"
        )
    values = np.asarray(array, dtype=np.float64) if scale is None else scale(array)
    return format.to_integers(values), format.saturated(values)


def to_caller(codes: IntArray, format: Format, x: NDArray[np.generic]) -> NDArray[Any]:
    """Convert outputs to the type of the caller's ``x``: codes for integers, floats for floats.

    Floats of at most 32 bits give float32, which holds every code of up to 25 bits exactly; all others
    give float64.
    """
    if is_raw(x):
        return codes
    narrow = x.dtype.itemsize <= 4 and format.bits <= _FLOAT32_BITS
    return format.to_floats(codes).astype(np.float32 if narrow else np.float64, copy=False)


def warn_saturated(
    name: str,
    count: int,
    total: int,
    format: Format,
    stacklevel: int,
    limits: tuple[Floats, Floats] | None = None,
    advice: str = "scale them, or generate with calibration data that covers them",
) -> None:
    """Warn that ``count`` of ``total`` values were saturated, if any were, and say what to do.

    ``limits`` are the least and largest values that are not, of each feature; by default the format's.
    """
    if count:
        low, high = limits or (np.array(-format.limit), np.array(format.limit))
        least, most = f"+-{high.min():.6g}", f"+-{high.max():.6g}"
        where = most if least == most else f"their features' ranges, {least} to {most},"
        if (low != -high).any():
            where = f"their features' ranges, which begin at {low.min():.6g} and end at {high.max():.6g},"
        warnings.warn(
            f"{count:,} of {total:,} values of {name} were outside {where} and were saturated; {advice}",
            SaturationWarning,
            stacklevel=stacklevel + 1,
        )


def softmax(y: ArrayLike) -> NDArray[np.float64]:
    """Return ``exp(y) / sum(exp(y))`` over the last axis: probabilities of the classes, ``(..., O)``.

    Raises InputError if ``y`` has no classes, or holds codes of a format: their real values are needed.
    """
    scores = _scores(y)
    if is_raw(scores):
        raise InputError(
            "softmax needs real scores, not integers of a format: give the driver floats, it returns floats"
        )
    # The largest becomes exp(0), so that nothing overflows.
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True), dtype=np.float64)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def argmax(y: ArrayLike) -> IntArray:
    """Return the class with the largest score, the first of equal ones, ``(...)``: with or without softmax.

    Raises InputError if ``y`` has no classes.
    """
    return np.asarray(_scores(y).argmax(axis=-1), dtype=np.int64)


def _scores(y: ArrayLike) -> NDArray[np.generic]:
    scores = as_numbers("y", y)
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise InputError(
            f"scores must have their classes in the last axis, (..., O), not shape {scores.shape}"
        )
    return scores
