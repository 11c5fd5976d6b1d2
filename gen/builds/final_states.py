"""Final states of a build's calibration data, in which the sequences of another one begin, as a decoder's."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.builds.folder import FINAL_STATES
from rtlstm.gen.quantise.calibration import Calibration, run_golden
from rtlstm.gen.quantise.ranges import states_leave
from rtlstm.host.state import State, StateFormats
from rtlstm.spec.errors import BuildError, ConfigurationError, InputError
from rtlstm.spec.files import DamagedArraysError, read_arrays, read_file
from rtlstm.spec.network import Network, keeps_cell_state
from rtlstm.spec.numerics import QuantizedNetwork


def states_file(state: tuple[Any, Any], dtype: Any = np.float64) -> bytes:
    """Return an ``.npz`` file of h and c, one array of each layer."""
    file = BytesIO()
    arrays: dict[str, Any] = {}
    for name, parts in zip("hc", state, strict=True):
        arrays |= {f"{name}_{index}": np.asarray(part, dtype) for index, part in enumerate(parts)}
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def final_states_file(
    network: Network, quantised: QuantizedNetwork, data: Calibration | None, asked: bool | None
) -> bytes | None:
    """Return the file of a new build's final states; None without data, or if its states are no results."""
    if data is None or not network.pseudo_layers or not states_leave(network, asked):
        return None
    found = run_golden(quantised, data)
    formats = StateFormats(quantised.shapes, quantised.numerics)
    return states_file(formats.present(found.h, found.c, raw=False, batched=True), np.float32)


def load_final_states(folder: Path) -> State:
    """Read the final states of a build's calibration data, ``(N, units)`` for each layer.

    Raises BuildError if the build has none, or the file is damaged.
    """
    path = folder / FINAL_STATES
    try:
        read_file(path)
    except FileNotFoundError:
        raise BuildError(
            f"{folder} must be a build with the final states of its calibration data, but has none: generate "
            "it with typical inputs (`calibration`), and if it ends in a dense layer with "
            "`final_states=True`, too, or give what it reads (`calibration_from_input`)"
        ) from None
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        found = read_arrays(path)
        arrays = found if isinstance(found, dict) else {}
        h, c = (_layers(arrays, part) for part in "hc")
        if not h or len(h) + len(c) != len(arrays):
            raise DamagedArraysError("it has other arrays")
    except (OSError, DamagedArraysError) as error:
        raise BuildError(
            f"{path} must hold the final states of the build's calibration data, but does not ({error}); "
            "generate the build again"
        ) from None
    return h, c


def _layers(arrays: dict[str, NDArray[Any]], part: str) -> tuple[NDArray[Any], ...]:
    names = (f"{part}_{index}" for index in range(len(arrays)))
    return tuple(arrays[name].astype(np.float64) for name in names if name in arrays)


def begin_in(
    network: Network, x: NDArray[Any], folder: Path, state: State, first: bool | None, inputs: bool
) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
    """Check and return the states in which calibration data ``x`` begin: final ones of a build in ``folder``.

    ``first`` is whether the data have sequences first, None if nobody told. ``inputs`` is whether the states
    are those of inputs that were given, and not of the build's calibration data.

    Raises ConfigurationError if the states are not of the sizes of the network's. Raises InputError if the
    data have not a sequence for each state.
    """
    given = tuple(tuple(part) for part in state)
    kept = network.pseudo_layers
    wanted = [layer.outputs for layer in kept], [layer.units for layer in kept if keeps_cell_state(layer)]
    sizes = tuple([each.shape[-1] for each in part] for part in given)
    if list(sizes) != [*wanted]:
        raise ConfigurationError(
            f"`calibration_from` must be a build that ends in states of the sizes of {network.name!r}, "
            f"{_sizes(wanted)}, but {folder} ends in {_sizes(sizes)}; make states of these sizes of its "
            "final ones, and give them with `calibration_state`"
        )
    if x.ndim == 2:
        counts = [1]
    else:
        axes = (0, 1) if first is None else (0 if first else 1,)
        counts = [x.shape[axis] for axis in axes if axis < x.ndim]
    count = len(given[0][0])
    if count not in counts:
        whose = "`calibration_from_input`" if inputs else f"the data that calibrated {folder}"
        raise InputError(
            "calibration data must have the sequences that follow those of "
            f"{whose}, {count:,}, in the same order, but have {counts[-1]:,}; give as many of both"
            + ("" if inputs else ", for example the other ones with `calibration_from_input`")
        )
    if x.ndim == 2:
        given = tuple(tuple(each[0] for each in part) for part in given)
    return given[0], given[1]


def _sizes(sizes: Any) -> str:
    h, c = (" and ".join(map(str, part)) for part in sizes)
    return f"h of {h} units" + (f" and c of {c}" if c else " and no c") if h else "no state"
