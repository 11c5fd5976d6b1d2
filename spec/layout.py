"""How batches lie in arrays: the order of their axes, where padding stands, and outputs side by side.

A network with strides takes as many frames of its model in one step: they are joined here, too.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rtlstm.spec.errors import InputError, warn_caller
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.record import Record, as_flag

Pad = Literal["back", "front"]
"""``back``: a sequence's steps are the first ones; ``front``: the last ones, as Keras pads by default."""


def is_front(pad: str, lengths: Any) -> bool:
    """Whether padding stands in front.

    Raises InputError if there is no such place, or no lengths say how much padding there is.
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


def join_frames(name: str, x: NDArray[Any], axis: int, frames: int) -> NDArray[Any]:
    """Return frames along an axis as steps of ``frames`` each, with their values side by side, oldest first.

    ``(..., T, ..., F)`` becomes ``(..., T / frames, ..., frames * F)``. Messages call it ``name``.

    Raises InputError if the frames make no whole number of steps.
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


Window = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
"""How many steps before and after each one stand beside it in a network's input, the oldest first."""


def check_window(window: Window, inputs: int, frames: int) -> None:
    """Raise a ValueError if a network of these inputs cannot have such a window."""
    if inputs % (sum(window) + 1) or (any(window) and frames > 1):
        raise ValueError(
            f"{inputs} inputs of {frames} frames must be a window of {sum(window) + 1} steps of as many "
            "values each, of one frame"
        )


def windows(x: NDArray[Any], lengths: Any, axis: int, window: Window, pad: Pad = "back") -> NDArray[Any]:
    """Return sequences with the steps around each beside it, ``(..., T, ..., window * F)``.

    Beyond a sequence's ends there are zeros. Lengths that do not fit are left to the caller's check.
    """
    steps = np.moveaxis(x, axis, 0)
    counts = None if lengths is None else _counts(lengths, steps.shape[1] if x.ndim > 2 else 1)
    if counts is not None:
        valid = valid_steps(len(steps), counts.astype(np.int64), pad == "front")
        steps = np.where(valid.reshape(*steps.shape[:-1], 1), steps, steps.dtype.type(0))
    before, after = window
    wide = np.pad(steps, [(before, after), *[(0, 0)] * (steps.ndim - 1)])
    shifted = [wide[at : at + len(steps)] for at in range(before + after + 1)]
    return np.moveaxis(np.concatenate(shifted, axis=-1), 0, axis)


def as_steps(
    name: str,
    x: NDArray[Any],
    lengths: Any,
    axis: int,
    inputs: int,
    frames: int,
    window: Window = (0, 0),
    pad: Pad = "back",
) -> tuple[NDArray[Any], Any]:
    """Return a network's input and its lengths in steps, if they are in frames; else as they are.

    They are in frames if the last axis has the values of one, and not the ``inputs`` of a step. Of a network
    that reads the steps in a ``window`` around each, these stand side by side.

    Raises InputError if frames or lengths make no whole number of steps, or lengths do not fit the frames.
    """
    if any(window) and x.ndim > axis + 1 and x.shape[-1] * (sum(window) + 1) == inputs:
        return windows(x, lengths, axis, window, pad), lengths
    if frames == 1 or x.ndim <= axis + 1 or x.shape[-1] * frames != inputs:
        return x, lengths
    joined = join_frames(name, x, axis, frames)
    if lengths is None:
        return joined, None
    # Checked here, where they are in frames, as the caller knows them.
    most, sequences = x.shape[axis], x.shape[1 - axis] if x.ndim > 2 else 1
    counts = _counts(lengths, sequences)
    if counts is None or (counts % frames).any() or not ((counts > 0) & (counts <= most)).all():
        given = lengths.tolist() if isinstance(lengths, np.ndarray) else lengths
        raise InputError(
            f"lengths must be {sequences} integers, one per sequence, multiples of the {frames} frames of a "
            f"step from {frames} to {most}, the frames of {name}, not {given!r:.80}"
        )
    return joined, counts // frames


def _counts(lengths: Any, sequences: int) -> IntArray | None:
    """Return lengths as one integer for each sequence; None if they are none, which the caller refuses."""
    try:
        counts = np.atleast_1d(np.asarray(lengths))
    except (TypeError, ValueError):
        return None
    return counts if counts.dtype.kind in "iu" and counts.shape == (sequences,) else None


class OutputPart(Record):
    """One of a model's outputs or inputs: so many of the core's values, behind those of the parts before."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    width: Annotated[int, Field(ge=1)]


class EmbeddingShape(Record):
    """A table in which a model looks up the tokens that it reads: its name, and its size."""

    name: Annotated[str, Field(min_length=1)]
    rows: Annotated[int, Field(ge=1)]
    width: Annotated[int, Field(ge=1)]
    input: str = ""
    """The model's input that it looks up, if the model has several."""


def check_parts(parts: Sequence[OutputPart], outputs: int, what: str = "outputs") -> None:
    """Check that parts make up all values, with names of their own; a ValueError if not."""
    total, names = sum(part.width for part in parts), {part.name for part in parts}
    if parts and (total != outputs or len(names) < len(parts)):
        raise ValueError(
            f"the parts of {outputs} {what} must have {outputs} values in all, and names of their own, but "
            f"have {total} values and the names {', '.join(part.name for part in parts)}"
        )


def part_slices(parts: Sequence[OutputPart]) -> dict[str, slice]:
    """Return where each part is among the output values."""
    found, first = {}, 0
    for part in parts:
        found[part.name] = slice(first, first + part.width)
        first += part.width
    return found


def side_by_side(
    what: str, given: Any, parts: Sequence[OutputPart], batch_first: bool | None
) -> NDArray[Any]:
    """Return a model's inputs as the core reads them; an array as it is.

    ``given`` has an array for each part, by its name or in their order: ``(T, N, width)``, ``(N, T, width)``
    if ``batch_first``, or ``(T, width)``. One that has no axis of steps is the same in each of them. Of a
    model with one input, it is the array ``x``, or the only one.

    Raises InputError if one is missing, unknown or of another shape.
    """
    ordered = isinstance(given, tuple) or (
        isinstance(given, list) and any(hasattr(each, "shape") for each in given)
    )
    if not isinstance(given, Mapping) and not (parts and ordered):
        return np.asarray(given)
    names = [part.name for part in parts]
    if not parts:
        names = ["x"] if "x" in given or len(given) != 1 else list(given)
    found = given if isinstance(given, Mapping) else dict(zip(names, given, strict=False))
    others = [name for name in found if name not in names] if parts else []
    if not parts and {*names} - {*found}:
        raise InputError(
            f"{what} must hold an array 'x' or a single one, but has {', '.join(map(str, given))}"
        )
    if others or {*names} - {*found} or (parts and len(given) != len(parts)):
        has = ", ".join(map(str, given)) if isinstance(given, Mapping) else f"{len(given)} of them"
        raise InputError(
            f"{what} must have an array for each input of the model ({', '.join(names)}) and no others, not "
            f"{has or 'none'}"
        )
    arrays = [np.asarray(found[name]) for name in names]
    if not parts:
        return arrays[0]
    most = max(array.ndim for array in arrays)
    shape = next(array.shape[:-1] for array in arrays if array.ndim == most)
    axis = int(bool(batch_first)) if most == 3 else 0
    wide = []
    for part, array in zip(parts, arrays, strict=True):
        if most > 1 and array.shape[:-1] == (*shape[:axis], *shape[axis + 1 :]) and array.ndim == most - 1:
            array = np.broadcast_to(np.expand_dims(array, axis), (*shape, array.shape[-1]))
        if array.shape != (*shape, part.width) or most not in (1, 2, 3):
            raise InputError(
                f"{what} must have {part.name!r} of shape {(*shape, part.width)}, or without its axis of "
                f"steps, not {np.shape(found[part.name])}"
            )
        wide.append(array)
    if len({array.dtype.kind in "iu" for array in wide}) > 1:
        raise InputError(f"{what} must have values in all of its arrays, or the core's codes in all of them")
    return np.concatenate(wide, axis=-1)


class LayoutWarning(UserWarning):
    """Neither the model nor the caller said whether data have steps or sequences first."""


def sequences_first(
    what: str,
    x: Any,
    given: Any,
    known: bool | None,
    per_sequence: Any = None,
    told: set[str] | None = None,
) -> bool:
    """Return whether data have sequences before steps, ``(N, T, I)``, and not ``(T, N, I)``.

    ``what`` names the data in messages, and only the shape of ``x`` matters. ``given`` is what the caller
    says, as ``batch_first``; ``known`` is what the model says; each is None if it does not tell.
    ``per_sequence`` has lengths or states, if the caller gave them: a check that there is one for each
    sequence tells the order, unless there are as many steps as sequences. ``told`` has been told before, and
    is not told again.

    Warns with a LayoutWarning if nothing tells the order: then data are read as ``(T, N, I)``. Raises
    InputError if ``given`` is no flag.
    """
    if given is not None:
        return as_flag("batch_first", given)
    if known is not None:
        return known
    shape = np.shape(x)
    unclear = len(shape) == 3 and shape[:2] != (1, 1) and (per_sequence is None or shape[0] == shape[1])
    told = set() if told is None else told
    if unclear and what not in told:
        told.add(what)
        first, second = shape[:2]
        warn_caller(
            f"{what} of shape {shape} was read as {count_of(first, 'step')} of "
            f"{count_of(second, 'sequence')}, because the model does not say which "
            "comes first, as files of tensors never do; give "
            "`batch_first=False` if this is right, `batch_first=True` if it is "
            f"{count_of(first, 'sequence')} of {count_of(second, 'step')}",
            LayoutWarning,
        )
    return False


def count_of(number: int, what: str) -> str:
    """A number of things, as text: "1 cycle", "2 cycles"."""
    return f"{number:,} {what}{'s' if number != 1 else ''}"
