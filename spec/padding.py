"""Where the padding of sequences of several lengths stands: behind their steps, or in front of them."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import IntArray

Pad = Literal["back", "front"]
"""``back``: a sequence's steps are the first ones; ``front``: the last ones, as Keras pads by default."""


def is_front(pad: str, lengths: Any) -> bool:
    """Whether padding stands in front.

    Raises
    ------
    InputError
        If there is no such place, or no lengths say how much padding there is.
    """
    if pad not in get_args(Pad):
        raise InputError(f"pad must be one of {', '.join(get_args(Pad))}, not {pad!r}")
    if pad == "front" and lengths is None:
        raise InputError(
            f"`pad={pad!r}` says where the padding of shorter sequences stands, but there are no "
            "lengths; give the valid steps of each sequence, too, or leave it out"
        )
    return pad == "front"


def valid_steps(steps: int, lengths: IntArray, front: bool = False) -> NDArray[np.bool_]:
    """Return which of so many steps are no padding, ``(T, N)``, of sequences of lengths ``(N,)``."""
    step = np.arange(steps)[:, np.newaxis]
    valid: NDArray[np.bool_] = step >= steps - lengths if front else step < lengths
    return valid


def padded_behind(x: NDArray[Any], lengths: IntArray) -> NDArray[Any]:
    """Move the padding of ``(T, N, ...)`` from the front of the sequences behind them."""
    return _rotated(x, lengths - len(x))


def padded_in_front(x: NDArray[Any], lengths: IntArray) -> NDArray[Any]:
    """Move the padding of ``(T, N, ...)`` from behind the sequences to their front."""
    return _rotated(x, len(x) - lengths)


def _rotated(x: NDArray[Any], by: IntArray) -> NDArray[Any]:
    """Return sequences ``(T, N, ...)``, each rotated by some steps."""
    steps = (np.arange(len(x))[:, np.newaxis] - by) % max(len(x), 1)
    rotated: NDArray[Any] = x[steps, np.arange(x.shape[1])]
    return rotated
