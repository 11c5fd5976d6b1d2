"""Reads untrusted ``.npy`` and ``.npz`` files: the declared sizes are checked before arrays are made."""

import math
import os
import reprlib
import tokenize
import warnings
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rtlstm.spec.archives import DamagedArchiveError, open_archive, open_member
from rtlstm.spec.budget import Budget
from rtlstm.spec.errors import InputError
from rtlstm.spec.files import open_file

Array = NDArray[Any]

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_ARCHIVE = b"PK"


class DamagedArraysError(ValueError):
    """A file is not in NumPy's format, holds no numbers, or is damaged; the message says which."""


def read_arrays(path: Path) -> Array | dict[str, Array]:
    """Read the array of an ``.npy`` file, or all of an ``.npz`` file by their names.

    Raises
    ------
    DamagedArraysError
        If the file is none of these, or does not hold what it declares.
    InputError
        If an archive's arrays have too many elements.
    OSError
        If it cannot be read.
    """
    with open_file(path) as file:
        start = file.read(len(_ARCHIVE))
        file.seek(0)
        if start == _ARCHIVE:
            return _read_archive(file, path)
        return _read(file, os.fstat(file.fileno()).st_size, None, "the array")


def _read_archive(file: BufferedReader, path: Path) -> dict[str, Array]:
    found = {}
    # A plain file has all that it declares; in an archive a few bytes may unpack to any number.
    budget = Budget(InputError, "store each in an .npy file")
    try:
        with open_archive(file) as archive:
            for name in archive.namelist():
                with open_member(archive, name) as (member, size):
                    what = f"array {name.removesuffix('.npy')!r} of {path}"
                    found[name.removesuffix(".npy")] = _read(member, size, budget, what)
    except DamagedArchiveError as error:
        raise DamagedArraysError(str(error)) from None
    return found


def _read(file: BufferedIOBase, size: int, budget: Budget | None, what: str) -> Array:
    """Read an array from a file of ``size`` bytes."""
    shape, fortran, dtype = _header(file)
    if dtype.kind not in "biufc" or dtype.shape:
        raise DamagedArraysError(f"it holds {dtype}, not numbers")
    count, given = math.prod(shape), size - file.tell()
    if min(shape, default=0) < 0 or count * dtype.itemsize > given:
        # A declared size may have thousands of digits.
        raise DamagedArraysError(f"it declares {dtype} {reprlib.repr(shape)}, but holds {given} bytes")
    if budget is not None:
        budget.take(shape, what)
    data = bytearray(count * dtype.itemsize)
    if file.readinto(data) != len(data):
        raise DamagedArraysError("it ends early")
    try:
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError):  # beside a size of 0
        raise DamagedArraysError(
            f"it declares {dtype} {reprlib.repr(shape)}: a size is too large for NumPy"
        ) from None


def _header(file: BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(file)
        if version in _HEADERS:
            with warnings.catch_warnings(action="ignore"):  # that Python 2 wrote the file
                shape, fortran, dtype = _HEADERS[version](file)
            if any(type(size) is not int for size in shape):  # NumPy takes True for a size.
                raise ValueError
            return shape, fortran, dtype
    except (ValueError, SyntaxError, tokenize.TokenError, RecursionError, TypeError, LookupError):
        # Their texts differ between versions of Python and NumPy, and hold what the file holds.
        raise DamagedArraysError("it does not begin with a whole header of NumPy's") from None
    raise DamagedArraysError(f"it is of the format's version {version}")
