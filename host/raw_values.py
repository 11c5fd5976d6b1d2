"""Checks callers' values and time steps and quantises them to integers, and converts results back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.spec.errors import InputError, warn_caller
from rtlstm.spec.fixed import Floats, Format, IntArray, check_range, where_bad
from rtlstm.spec.layout import join_frames
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import NUMBER_BITS
from rtlstm.spec.residents import split_numbers

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
        advice = "give a NumPy array, or a detached float32 tensor on the CPU"
        if isinstance(values, list | tuple):
            advice = "give rows of the same length; pad sequences that are shorter, and give lengths"
        raise InputError(f"{name} must be an array of numbers, but it is not ({error}); {advice}") from None


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

    Floats of any shape, from :func:`as_numbers`, are rounded half up and saturate; ``scale`` returns what is
    quantised of them, by default themselves. Codes are at least ``lowest``, by default ``-format.maximum``.
    ``name`` is for messages. Returns the integers, and how many floats were saturated. Raises InputError if a
    float is not finite or an integer is out of range.
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


def to_caller(codes: IntArray, manifest: Manifest, x: NDArray[np.generic]) -> NDArray[Any]:
    """Convert outputs to the type of the caller's ``x``: codes for integers, floats for floats.

    Floats of at most 32 bits give float32, which holds every code of up to 25 bits exactly; all others
    give float64. Of the K largest outputs ``(..., 2 K)`` it is the type of ``score``, beside ``number``, in
    a structured array ``(..., K)``.
    """
    best, format = manifest.parameters.best, manifest.output
    values = codes[..., best:]
    if not is_raw(x):
        narrow = x.dtype.itemsize <= 4 and format.bits <= _FLOAT32_BITS
        values = format.to_floats(values).astype(np.float32 if narrow else np.float64, copy=False)
    if not best:
        return values
    found = np.empty(values.shape, [("number", np.int64), ("score", values.dtype)])
    found["number"], found["score"] = codes[..., :best], values
    return found


def warn_saturated(
    name: str,
    count: int,
    total: int,
    format: Format,
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
        warn_caller(
            f"{count:,} of {total:,} values of {name} were outside {where} and were saturated; {advice}",
            SaturationWarning,
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


def top_k(y: ArrayLike, k: int) -> tuple[IntArray, NDArray[np.generic]]:
    """Return the ``k`` best classes, ``(..., k)``, and their scores; of equal ones the first comes first.

    Raises InputError if ``y`` has no classes, or fewer than ``k``.
    """
    scores = _scores(y)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= scores.shape[-1]:
        raise InputError(f"k must be a whole number of 1 to {scores.shape[-1]}, the classes, not {k!r}")
    # Sorted from behind, so that of equal ones the first is the last, and the first when all is reversed.
    backwards = scores[..., ::-1].argsort(axis=-1, kind="stable")[..., ::-1][..., :k]
    classes = np.asarray(scores.shape[-1] - 1 - backwards, dtype=np.int64)
    return classes, np.take_along_axis(scores, classes, axis=-1)


def _scores(y: ArrayLike) -> NDArray[np.generic]:
    scores = as_numbers("y", y)
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise InputError(
            f"scores must have their classes in the last axis, (..., O), not shape {scores.shape}"
        )
    return scores


def check_values(
    x: ArrayLike, leading: tuple[int | str, ...], manifest: Manifest, advice: str = ""
) -> NDArray[np.generic]:
    """Return ``x`` as an array of real numbers, ``(*leading, inputs)``.

    Of a build whose steps have several frames, steps may be given as frames: each on an axis more, or where
    ``leading`` has a T, one after the other on that axis. ``x`` are floats, or codes of the input format.
    ``leading`` are the sizes of the axes before the inputs; a letter stands for any size. ``manifest`` is the
    build that runs the steps. ``advice`` is the text at the end of the message about a wrong shape. Raises
    InputError if it holds no real numbers or has another shape.
    """
    array, inputs = _whole_steps(as_numbers("x", x), leading, manifest), manifest.input_port.values
    wanted = (*leading, inputs)
    if array.ndim != len(wanted) or any(
        isinstance(size, int) and size != found for size, found in zip(wanted, array.shape, strict=True)
    ):
        shape = f"({', '.join(map(str, wanted))}{',' * (len(wanted) == 1)})"
        apart = f", which are {manifest.frames} frames of {manifest.step_width}" * (manifest.frames > 1)
        if any(manifest.window):
            before, after = manifest.window
            apart = (
                f", which are a step of {manifest.step_width} with {before} before it and {after} after it, "
                "the oldest first: run makes them of whole sequences, and a stream takes them when the last "
                f"is there, {after} steps late"
            )
        if manifest.input_parts:
            names = ", ".join(part.name for part in manifest.input_parts)
            advice = f", of the model's inputs side by side: give them by name ({names}){advice}"
        elif array.shape[-2:-1] == (inputs,) and array.ndim == len(wanted) > 1:
            advice = f"; if features stand before steps, transpose them: numpy.swapaxes(x, -1, -2){advice}"
        raise InputError(
            f"x must be {shape}, not {array.shape}; this build reads "
            f"{'a token' if manifest.parameters.token_rows else f'{inputs} values'} per time step"
            f"{apart}{advice}"
        )
    return array


def _whole_steps(
    array: NDArray[np.generic], leading: tuple[int | str, ...], manifest: Manifest
) -> NDArray[np.generic]:
    """Return frames as steps; other arrays as they are."""
    frames, rank = manifest.frames, len(leading)
    beside = frames * (sum(manifest.window) + 1)
    if beside == 1 or array.shape[-1:] != (manifest.step_width,):
        return array
    if any(manifest.window) and array.shape[rank:-1] == (beside,):
        return array.reshape(*array.shape[:rank], -1)
    if any(manifest.window):
        return array
    if array.ndim == rank + 2:
        return join_frames("x", array, rank, frames).reshape(*array.shape[:rank], -1)
    axis = leading.index("T") if "T" in leading else rank
    return join_frames("x", array, axis, frames) if array.ndim > axis + 1 else array


def as_codes(array: NDArray[np.generic], manifest: Manifest) -> tuple[IntArray, int]:
    """Return the codes of checked values, and how many floats were saturated.

    Floats are rounded half up; integers are codes already. Tokens that the core looks up stay as they are.

    Raises InputError if a float is not finite, an integer outside the input format, or a token not one of
    the table.
    """
    if manifest.parameters.token_rows:
        check_range("x", array, 0, manifest.parameters.token_rows - 1, " (tokens that the core looks up)")
        return array.astype(np.int64), 0
    numerics = manifest.numerics
    return quantise("x", array, numerics.input, numerics.input.lowest, numerics.scale_input)


@dataclass(frozen=True)
class Steps:
    """``K`` time steps in the order in which they are computed, made and checked by :meth:`checked`."""

    streams: IntArray
    """Stream of each step, ``(K,)``."""
    x: IntArray
    """Codes of the input format, ``(K, inputs)``."""
    suppress: NDArray[np.bool_]
    """Which steps' outputs are suppressed, ``(K,)``: they are not computed, and 0 in the result."""
    ends: NDArray[np.bool_]
    """Which steps are the last of a sequence, ``(K,)``, for a build that takes whole sequences; the steps
    of a sequence are consecutive, on one stream. For other builds none are."""

    def __len__(self) -> int:
        return len(self.streams)

    @classmethod
    def checked(
        cls,
        manifest: Manifest,
        streams: ArrayLike,
        x: ArrayLike,
        suppress: ArrayLike | None = None,
        ends: ArrayLike | None = None,
    ) -> Self:
        """Check a build's steps. No output is suppressed if ``suppress`` is None.

        Raises InputError if an array has another type or shape, a stream or code is out of range, or a build
        of whole sequences gets part of one.
        """
        numbers = as_array("streams", streams)
        if numbers.ndim != 1 or (numbers.size and not is_raw(numbers)):
            raise InputError(
                f"streams must be (steps,) integers, not {numbers.shape} of type {numbers.dtype}"
            )
        check_numbers(numbers, manifest)
        count = len(numbers)
        values = check_values(x, (count,), manifest)
        if values.size and not is_raw(values):
            what, do = "codes, integers of the input format", "quantise floats"
            if manifest.parameters.token_rows:
                what, do = "tokens, integers", "take whole floats, too"
            raise InputError(f"x must hold {what}, not {values.dtype}: Accelerator and its streams {do}")
        codes, _ = as_codes(values.astype(np.int64) if not values.size else values, manifest)
        suppressed, last = _marks("suppress", suppress, count), _marks("ends", ends, count)
        if (ends is None) != (manifest.sequence is None):
            kind = "time steps one by one" if ends is not None else "whole sequences"
            raise InputError(
                f"build {manifest.name!r} takes {kind}: ends must be given for whole sequences, and only for "
                "them"
            )
        if ends is not None and count and not last[-1]:
            raise InputError("sequences must be whole, but the last time step is not the end of one")
        return cls(numbers.astype(np.int64), codes, suppressed, last)


def check_numbers(numbers: NDArray[np.generic], manifest: Manifest) -> None:
    """Check the numbers of streams; where a device holds several networks, they name these, too.

    Raises InputError if there is no such stream or network.
    """
    if manifest.parameters.networks == 1:
        check_range("streams", numbers, 0, manifest.parameters.streams - 1)
        return
    check_range("streams", numbers, 0, (1 << NUMBER_BITS) - 1)
    streams, networks = split_numbers(numbers.astype(np.int64))
    check_range("streams", streams, 0, manifest.parameters.streams - 1)
    check_range("networks", networks, 0, manifest.parameters.networks - 1)
    if len(set(networks.tolist())) > 1:
        raise InputError("steps of an exchange must be of one network: send those of another in another one")


def _marks(name: str, marks: Any, count: int) -> NDArray[np.bool_]:
    """Return booleans, one per time step; all False if None are given."""
    array = np.zeros(count, dtype=bool) if marks is None else as_array(name, marks)
    if array.shape != (count,) or (array.size and array.dtype != np.bool_):
        raise InputError(
            f"{name} must be ({count},) booleans, one per time step, not {array.shape} of type {array.dtype}"
        )
    return array.astype(bool)
