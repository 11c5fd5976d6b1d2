"""States in files: snapshots of a stream, and the state in which a build's model begins.

A snapshot is saved on one backend and restored on another, to the bit. It is NumPy's ``.npz``: ``version``,
the formats ``hidden`` and ``cell`` as a row (bits, fraction) for each array, and the state in integers as the
device has it: h of each recurrent layer, ``h0``, ``h1`` and so on, and each cell state, ``c0``, ``c1`` and so
on. A GRU's h is there twice, with more bits as a cell state.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.host.raw_values import as_numbers, is_raw, quantise
from rtlstm.host.state import LayerArrays, StateLayout
from rtlstm.spec.archives import DamagedArraysError, read_arrays
from rtlstm.spec.errors import BuildError, InputError
from rtlstm.spec.files import write_file
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.manifest import INITIAL_STATE, Manifest, read_listed

SNAPSHOT_VERSION = 1


def save_snapshot(
    path: str | Path, layout: StateLayout, h: Sequence[IntArray], c: Sequence[IntArray]
) -> None:
    """Write h of each recurrent layer and each cell state, arrays ``(H_l,)``.

    The old file is replaced once the new one is complete.

    Raises InputError if the file cannot be written.
    """
    fields: dict[str, Any] = {"version": np.int64(SNAPSHOT_VERSION), **_formats(layout)}
    for name, parts in (("h", h), ("c", c)):
        fields |= {f"{name}{index}": part for index, part in enumerate(parts)}
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **fields))


def load_snapshot(path: str | Path, layout: StateLayout) -> tuple[LayerArrays, LayerArrays]:
    """Read what :func:`save_snapshot` wrote: h of each recurrent layer and each cell state.

    The build may be another than the one it was saved from, if layers and formats are the same.

    Raises InputError if the file cannot be read, or belongs to other layers or formats.
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
            f"{path} must be a snapshot of version {SNAPSHOT_VERSION}, not {version}; save it again, or "
            "restore it with the rtlstm that wrote it"
        )
    expected = _formats(layout)
    sizes = {f"h{index}": (size,) for index, size in enumerate(layout.sizes)}
    sizes |= {f"c{index}": (size,) for index, size in enumerate(layout.cell_sizes)}
    found = {name: part.shape for name, part in fields.items() if name not in expected}
    same = all(np.array_equal(fields.get(name, ()), format) for name, format in expected.items())
    if found != sizes or not same:
        hidden = f"recurrent layers of {layout.sizes} units with h in {_named(layout.hidden_formats)}"
        raise InputError(
            f"{path} must hold {hidden}{_cells(layout)}, but it holds others; restore it on a build of the "
            "network it was saved from"
        )
    return (
        _codes(path, "h", fields, layout.hidden_formats),
        _codes(path, "c", fields, layout.cell_formats),
    )


def _codes(
    path: str | Path, name: str, fields: Mapping[str, NDArray[Any]], formats: Sequence[Format]
) -> LayerArrays:
    """Return the integers of a file's arrays of this name, which must be codes of their formats."""
    found = []
    for index, form in enumerate(formats):
        which = f"{name}{index} of {path}"
        codes = as_numbers(which, fields[f"{name}{index}"])
        if not is_raw(codes):
            raise InputError(f"{which} must hold integers, not {codes.dtype}; save it again")
        found.append(quantise(which, codes, form)[0])
    return tuple(found)


def _named(formats: Sequence[Format]) -> str:
    return " and ".join(dict.fromkeys(map(str, formats))) or "no format"


def _cells(layout: StateLayout) -> str:
    """Name the sizes and formats of cell states, if there are any."""
    if not layout.cell_sizes:
        return ""
    return f" and cell states of {layout.cell_sizes} units in {_named(layout.cell_formats)}"


def _formats(layout: StateLayout) -> dict[str, IntArray]:
    formats = {"hidden": layout.hidden_formats, "cell": layout.cell_formats}
    return {
        name: np.array([(form.bits, form.fraction) for form in each], dtype=np.int64).reshape(-1, 2)
        for name, each in formats.items()
    }


def load_initial_state(
    folder: Path, manifest: Manifest, layout: StateLayout
) -> tuple[LayerArrays, LayerArrays] | None:
    """Read a build's initial state: h and cell states in integers, ``(H_l,)`` per layer; None for zeros.

    The manifest is the folder's and says whether there is one. The layout is that of the core, which may be
    another build's.

    Values beyond their format saturate, with a :class:`SaturationWarning`.

    Raises BuildError if the file is missing, is not the one that was generated, or is not listed; if it
    cannot be read, or has another network's layers.
    """
    try:
        state = read_initial_state(folder, manifest)
        if state is None:
            return None
        h, c, saturations = layout.parse(state, None)
    except (OSError, DamagedArraysError, InputError) as error:
        raise BuildError(
            f"{folder / INITIAL_STATE} must hold the state in which the model begins, but does not "
            f"({error}); generate the build again"
        ) from None
    layout.warn_saturations(("h_0", "c_0"), saturations, 1, stacklevel=3)
    return tuple(part[0] for part in h), tuple(part[0] for part in c)


def read_initial_state(
    folder: Path, manifest: Manifest
) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]] | None:
    """Read a build's initial state, real values as the model has them; None for zeros."""
    path = folder / INITIAL_STATE
    listed = any(file.path == INITIAL_STATE for file in manifest.files)
    if not listed and not path.exists():
        return None
    read_listed(folder, manifest, INITIAL_STATE)
    found = read_arrays(path)
    arrays = found if isinstance(found, dict) else {}
    return _layers(arrays, "h"), _layers(arrays, "c")


def _layers(arrays: dict[str, NDArray[Any]], part: str) -> tuple[NDArray[Any], ...]:
    """One array of each layer, ``h_0``, ``h_1`` and so on."""
    names = (f"{part}_{index}" for index in range(len(arrays)))
    return tuple(arrays[name] for name in names if name in arrays)
