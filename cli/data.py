"""Arrays in files: inputs, calibration data, lengths, states, results."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import InputError
from rtlstm.spec.files import DamagedArraysError, check_writable, read_arrays, write_file

Array = NDArray[Any]


def _load_file(path: Path, what: str) -> Array | dict[str, Array]:
    try:
        return read_arrays(path)
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror or error}") from None
    except DamagedArraysError as error:
        raise InputError(
            f"{what} {path} must be an .npy or .npz file of plain numbers, but it is not, or it is "
            f"damaged ({error}); write it with numpy.save or numpy.savez"
        ) from None


def load_array(path: Path, what: str, name: str = "x") -> Array:
    """Read an ``.npy`` file, or from an ``.npz`` file the array ``name`` or the only one.

    Raises InputError if there is no such file or array; ``what`` begins the message.
    """
    loaded = _load_file(path, what)
    if isinstance(loaded, np.ndarray):
        return loaded
    if name in loaded:
        return loaded[name]
    if len(loaded) == 1:
        return next(iter(loaded.values()))
    found = ", ".join(loaded) or "none"
    raise InputError(
        f"{what} {path} must hold an array {name!r} or a single one, but its arrays are: {found}"
    )


def load_inputs(path: Path, what: str) -> Any:
    """Read one array as :func:`load_array` does, or all of an ``.npz`` file by their names."""
    loaded = _load_file(path, what)
    return loaded if isinstance(loaded, dict) and len(loaded) > 1 else load_array(path, what)


def load_arrays(path: Path, what: str) -> dict[str, Array]:
    """Read all arrays of an ``.npz`` file; an ``.npy`` file's is ``x``. Errors as of :func:`load_array`."""
    loaded = _load_file(path, what)
    return {"x": loaded} if isinstance(loaded, np.ndarray) else loaded


def load_lengths(text: str | None) -> Array | None:
    """Read lengths: numbers with commas between them, or the name of a file."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all(part.isascii() and part.lstrip("-").isdecimal() and len(part) < 19 for part in parts):
        return np.array([int(part) for part in parts], dtype=np.int64)
    if "," in text or not text.strip():
        raise InputError(f"lengths must be whole numbers with commas between them, or a file, not {text!r}")
    try:
        there = Path(text).exists()
    except OSError:  # A list of numbers without commas may be too long for a name.
        there = False
    if not there:
        raise InputError(
            f"lengths must be whole numbers with commas between them, or a file, but {text!r} is neither"
        )
    return load_array(Path(text), "lengths", "lengths")


def load_state(path: Path) -> tuple[Any, Any]:
    """Read a state that :func:`save_state` wrote."""
    loaded = _load_file(path, "the state")
    names = list(loaded) if isinstance(loaded, dict) else []
    if isinstance(loaded, dict):
        # A network of GRUs or plain recurrent layers has no c.
        h, c = (_state_part(loaded, part) for part in "hc")
        known = sum(len(part) if isinstance(part, tuple) else 1 for part in (h, c))
        if known == len(names) and {"h", "h_0"} & set(names):
            return h, c
    raise InputError(
        f"the state {path} must be an .npz file of arrays h and c (h_0, c_0, h_1, ... for layers that "
        f"differ in size), but its arrays are: {', '.join(names) or 'none'}"
    )


def _state_part(loaded: dict[str, Array], name: str) -> Array | tuple[Array, ...]:
    """h or c of a file: one array, or one of each layer."""
    if name in loaded:
        return loaded[name]
    layers = 0
    while f"{name}_{layers}" in loaded:
        layers += 1
    return tuple(loaded[f"{name}_{index}"] for index in range(layers))


def _check_name(path: Path, suffixes: tuple[str, ...], why: str) -> bool:
    """Refuse a file that cannot be written or has another kind's name; return whether it is a regular one."""
    check_writable(path)
    # A pipe or a device takes all, whatever it is called.
    regular = path.is_file() or not path.exists()
    if regular and path.suffix.lower() not in ("", *suffixes):
        raise InputError(f"{path} must be called *{suffixes[0]}, because {why}")
    return regular


def check_page(page: Path) -> None:
    """Refuse a file that a page could not be written to, as :func:`check_results` does."""
    _check_name(page, (".html", ".htm"), "HTML is what is written; browsers show it")


def check_results(output: Path | None, state: Path | None = None) -> None:
    """Refuse files that outputs or a state could not be written to, before the work begins.

    Raises InputError if a file cannot be written, is called as if it were of another format, or is named for
    both.
    """
    names = []
    for path, suffix in ((output, ".npy"), (state, ".npz")):
        if path is None:
            continue
        why = f"NumPy's {suffix} format is what is written; numpy.load reads it"
        if _check_name(path, (suffix,), why):
            names.append(os.path.realpath(path))
    if len(names) == 2 and names[0] == names[1]:
        raise InputError(f"outputs and state must go to two files, but both go to {output}; name another")


def save_array(path: Path, array: Array) -> None:
    """Write an ``.npy`` file, whole or not at all."""
    write_file(path, lambda file: np.save(file, array, allow_pickle=False))


def save_state(path: Path, state: tuple[Any, Any]) -> None:
    """Write h and c to an ``.npz`` file: ``h`` and ``c``, or ``h_0``, ``c_0``, ... per layer."""
    arrays: dict[str, Array] = {}
    for name, part in zip("hc", state, strict=True):
        if isinstance(part, tuple):
            arrays |= {f"{name}_{index}": array for index, array in enumerate(part)}
        else:
            arrays[name] = part
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))
