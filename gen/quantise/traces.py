"""Outputs over time, in float and as the hardware gives them, where they differ most."""

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.record import Record

_MOST_STEPS = 160
_MOST_OUTPUTS = 3
_FINE = 1024
"""Errors are compared in parts of an output's step: the last digits of float sums differ by machine."""


class Trace(Record):
    """Steps of one output of one sequence; ``exact`` is the float reference."""

    output: int
    sequence: int
    first_step: int
    exact: tuple[float, ...]
    fixed: tuple[float, ...]


def find_traces(
    exact: NDArray[np.float64], fixed: NDArray[np.float64], lengths: NDArray[np.int64], step: float
) -> tuple[Trace, ...]:
    """Return the outputs with the largest errors, the worst first, all around the largest error of all.

    Parameters
    ----------
    exact, fixed
        Outputs, ``(T, N, outputs)``.
    lengths
        Valid steps of each sequence, ``(N,)``.
    step
        That of the outputs' format.
    """
    valid = np.arange(len(exact))[:, None] < lengths
    errors = np.rint(np.abs(fixed - exact) * valid[..., None] * (_FINE / step))
    at, sequence, _ = (int(index) for index in np.unravel_index(np.argmax(errors), errors.shape))
    length = int(lengths[sequence])
    first = max(0, min(at - _MOST_STEPS // 2, length - _MOST_STEPS))
    shown = slice(first, min(length, first + _MOST_STEPS))
    order = np.argsort(-errors[shown, sequence].max(0), kind="stable")[:_MOST_OUTPUTS]
    return tuple(
        Trace(
            output=int(output),
            sequence=sequence,
            first_step=first,
            exact=_rounded(exact[shown, sequence, output]),
            fixed=_rounded(fixed[shown, sequence, output]),
        )
        for output in order
    )


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)
