"""A stream's state as a file: saved on one backend, restored on another, to the bit.

A file is NumPy's ``.npz``: ``version``, the two formats as (bits, fraction), and each LSTM layer's h and c as
integers ``h0``, ``c0``, ``h1`` and so on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm.host.state import LayerArrays, StateLayout
from rtlstm.spec.array_files import DamagedArraysError, read_arrays
from rtlstm.spec.errors import InputError
from rtlstm.spec.files import write_file
from rtlstm.spec.fixed import IntArray

__all__ = ["SNAPSHOT_VERSION", "load_snapshot", "save_snapshot"]

SNAPSHOT_VERSION = 1


def save_snapshot(
    path: str | Path, layout: StateLayout, h: Sequence[IntArray], c: Sequence[IntArray]
) -> None:
    """Write a state, arrays ``(H_l,)`` per LSTM layer. The old file is replaced once the new one is complete.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    fields: dict[str, Any] = {"version": np.int64(SNAPSHOT_VERSION), **_formats(layout)}
    for name, parts in (("h", h), ("c", c)):
        fields |= {f"{name}{index}": part for index, part in enumerate(parts)}
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **fields))


def load_snapshot(path: str | Path, layout: StateLayout) -> tuple[LayerArrays, LayerArrays]:
    """Read a state, arrays ``(H_l,)`` per LSTM layer.

    The build may be another than the one it was saved from, if layers and formats are the same.

    Raises
    ------
    InputError
        If the file cannot be read, or belongs to other layers or formats.
    """
    try:
        fields = read_arrays(Path(path))
        if not isinstance(fields, dict) or fields["version"].size != 1:
            raise DamagedArraysError("it is no snapshot")
        version = int(fields.pop("version").item())
    except OSError as error:
        raise InputError(
            f"{path} must be a snapshot that save wrote, but it cannot be read: {error.strerror or error}"
        ) from None
    except (DamagedArraysError, LookupError, ValueError, TypeError, OverflowError):
        raise InputError(
            f"{path} must be a snapshot that save wrote, but it is something else or damaged; save it again"
        ) from None
    if version != SNAPSHOT_VERSION:
        raise InputError(
            f"{path} must be a snapshot of version {SNAPSHOT_VERSION}, not {version}; save it again"
        )
    expected = _formats(layout)
    sizes = {f"{name}{index}": (size,) for name in "hc" for index, size in enumerate(layout.sizes)}
    found = {name: part.shape for name, part in fields.items() if name not in expected}
    same = all(np.array_equal(fields.get(name, ()), format) for name, format in expected.items())
    if found != sizes or not same:
        raise InputError(
            f"{path} must hold recurrent layers of {layout.sizes} units with h in {layout.hidden} and c in "
            f"{layout.cell}, but it holds others; restore it on a build of the network it was saved from"
        )
    state = [[fields[f"{name}{index}"] for index in range(len(layout.sizes))] for name in "hc"]
    h, c, _ = layout.parse(state, None, raw=True)
    return tuple(part[0] for part in h), tuple(part[0] for part in c)


def _formats(layout: StateLayout) -> dict[str, IntArray]:
    pairs = {"hidden": layout.hidden, "cell": layout.cell}
    return {name: np.array([format.bits, format.fraction]) for name, format in pairs.items()}
