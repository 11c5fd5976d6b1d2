"""The order of steps and sequences in data of three axes: as the caller says, or else as the model has it."""

import warnings
from typing import Any

import numpy as np

from rtlstm.spec.options import as_flag


class LayoutWarning(UserWarning):
    """Neither the model nor the caller said whether data have steps or sequences first."""


def sequences_first(
    what: str,
    x: Any,
    given: Any,
    known: bool | None,
    per_sequence: Any = None,
    told: set[str] | None = None,
    *,
    stacklevel: int = 2,
) -> bool:
    """Return whether data have sequences before steps, ``(N, T, I)``, and not ``(T, N, I)``.

    Parameters
    ----------
    what
        What the data are, for messages.
    x
        The data; only their shape matters.
    given
        What the caller says, as ``batch_first``; None for nothing.
    known
        What the model says; None if it does not tell, such as a file of tensors.
    per_sequence
        Lengths or states, if the caller gave them: a check that there is one for each sequence tells the
        order, unless there are as many steps as sequences.
    told
        What has been told before, and is not told again.
    stacklevel
        As for :func:`warnings.warn`, where 2 is the caller of this function.

    Raises
    ------
    InputError
        If ``given`` is no flag.

    Warns
    -----
    LayoutWarning
        If nothing tells the order: then data are read as ``(T, N, I)``.
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
        warnings.warn(
            f"{what} of shape {shape} was read as {_count(first, 'step')} of {_count(second, 'sequence')}, "
            "because the model does not say which comes first, as files of tensors never do; give "
            "`batch_first=False` if this is right, `batch_first=True` if it is "
            f"{_count(first, 'sequence')} of {_count(second, 'step')}",
            LayoutWarning,
            stacklevel=stacklevel + 1,
        )
    return False


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"
