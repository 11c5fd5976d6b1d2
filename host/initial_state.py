"""The state in which a build's model begins, if that is not zeros: ``state.npz`` beside the manifest."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rtlstm.host.state import LayerArrays, StateLayout
from rtlstm.spec.array_files import DamagedArraysError, read_arrays
from rtlstm.spec.build_files import read_listed
from rtlstm.spec.errors import BuildError, InputError
from rtlstm.spec.manifest import INITIAL_STATE, Manifest

__all__ = ["load_initial_state"]


def load_initial_state(
    folder: Path, manifest: Manifest, layout: StateLayout
) -> tuple[LayerArrays, LayerArrays] | None:
    """Read a build's initial state: h and cell states in integers, ``(H_l,)`` per layer; None for zeros.

    The manifest is the folder's and says whether there is one. The layout is that of the core, which may be
    another build's.

    Values beyond their format saturate, with a :class:`SaturationWarning`.

    Raises
    ------
    BuildError
        If the file is missing, is not the one that was generated, or is not listed; if it cannot be read, or
        has another network's layers.
    """
    path = folder / INITIAL_STATE
    listed = any(file.path == INITIAL_STATE for file in manifest.files)
    if not listed and not path.exists():
        return None
    read_listed(folder, manifest, INITIAL_STATE)
    try:
        found = read_arrays(path)
        arrays = found if isinstance(found, dict) else {}
        state = [_layers(arrays, part) for part in "hc"]
        h, c, saturations = layout.parse(state, None)
    except (OSError, DamagedArraysError, InputError) as error:
        raise BuildError(
            f"{path} must hold the state in which the model begins, but does not ({error}); generate the "
            "build again"
        ) from None
    layout.warn_saturations(("h_0", "c_0"), saturations, 1, stacklevel=3)
    return tuple(part[0] for part in h), tuple(part[0] for part in c)


def _layers(arrays: dict[str, NDArray[Any]], part: str) -> tuple[NDArray[Any], ...]:
    """One array of each layer, ``h_0``, ``h_1`` and so on."""
    names = (f"{part}_{index}" for index in range(len(arrays)))
    return tuple(arrays[name] for name in names if name in arrays)
