"""Steps of several frames: a network with strides takes as many frames of its model in one step."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import InputError


def join_frames(name: str, x: NDArray[Any], axis: int, frames: int) -> NDArray[Any]:
    """Return frames along an axis as steps of ``frames`` each, with their values side by side, oldest first.

    ``(..., T, ..., F)`` becomes ``(..., T / frames, ..., frames * F)``. Messages call it ``name``.

    Raises
    ------
    InputError
        If the frames make no whole number of steps.
    """
    count = x.shape[axis]
    left = count % frames
    if left:
        raise InputError(
            f"{name} must hold whole steps of {frames} frames each, as the model's strides take them, but "
            f"has {count} frames; leave out {left}, or add {frames - left}"
        )
    split = x.reshape(*x.shape[:axis], count // frames, frames, *x.shape[axis + 1 :])
    moved = np.moveaxis(split, axis + 1, -2)
    return moved.reshape(*moved.shape[:-2], frames * x.shape[-1])


def as_steps(
    name: str, x: NDArray[Any], lengths: Any, axis: int, inputs: int, frames: int
) -> tuple[NDArray[Any], Any]:
    """Return a network's input and its lengths in steps, if they are in frames; else as they are.

    They are in frames if the last axis has the values of one, and not the ``inputs`` of a step.

    Raises
    ------
    InputError
        If frames or lengths make no whole number of steps, or lengths do not fit the frames.
    """
    if frames == 1 or x.ndim <= axis + 1 or x.shape[-1] * frames != inputs:
        return x, lengths
    joined = join_frames(name, x, axis, frames)
    if lengths is None:
        return joined, None
    # Checked here, where they are in frames, as the caller knows them.
    most, sequences = x.shape[axis], x.shape[1 - axis] if x.ndim > 2 else 1
    try:
        counts = np.atleast_1d(np.asarray(lengths))
    except (TypeError, ValueError):
        return joined, lengths  # The caller's check says what is no array.
    whole = counts.dtype.kind in "iu" and counts.shape == (sequences,)
    if not whole or (counts % frames).any() or not ((counts > 0) & (counts <= most)).all():
        raise InputError(
            f"lengths must be {sequences} integers, one per sequence, multiples of the {frames} frames of a "
            f"step from {frames} to {most}, the frames of {name}, not {np.asarray(lengths).tolist()!r:.80}"
        )
    return joined, counts // frames
