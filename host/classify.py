"""Softmax and argmax of a classifier's scores, computed on the host."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.host.raw_values import as_numbers, is_raw
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import IntArray

__all__ = ["argmax", "softmax"]


def softmax(y: ArrayLike) -> NDArray[np.float64]:
    """Return ``exp(y) / sum(exp(y))`` over the last axis: probabilities of the classes, ``(..., O)``.

    Raises
    ------
    InputError
        If ``y`` has no classes, or holds codes of a format: their real values are needed.
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

    Raises
    ------
    InputError
        If ``y`` has no classes.
    """
    return np.asarray(_scores(y).argmax(axis=-1), dtype=np.int64)


def _scores(y: ArrayLike) -> NDArray[np.generic]:
    scores = as_numbers("y", y)
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise InputError(
            f"scores must have their classes in the last axis, (..., O), not shape {scores.shape}"
        )
    return scores
