"""Reads members of untrusted zip archives, and ``.npy`` and ``.npz`` files, with limits for their sizes.

Declared sizes of arrays are checked before arrays are made; a :class:`Budget` counts those of one file.
"""

import lzma
import math
import os
import reprlib
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rtlstm.spec.errors import InputError, ModelError, RtlstmError
from rtlstm.spec.files import open_file

MAX_ELEMENTS = 2**26
"""Elements of all arrays of a file together: half a GiB in float64, far beyond any core's memory."""
MAX_COMPUTED = 2**22
"""Elements of all arrays that a model computes from constants, which need no space in its file."""
MAX_TEXT = 2**26
"""Largest size in bytes of a text in a file, such as a model's description in JSON."""


class Budget:
    """The elements that the arrays of one file may still have.

    A few bytes of a file can declare arrays of any size: fills, strides of 0, chunks never written, archives.
    """

    def __init__(
        self,
        error: type[RtlstmError] = ModelError,
        advice: str = "use only the part around the recurrent layers",
        limit: int = MAX_ELEMENTS,
    ) -> None:
        self._error, self._advice, self._limit, self._left = error, advice, limit, limit

    def take(self, shape: Iterable[int], what: str) -> None:
        """Count an array of this shape, before it is made; ``what`` begins the message.

        Raises RtlstmError of the class given, if the file's arrays then have too many elements.
        """
        sizes = tuple(int(size) for size in shape)
        count = math.prod(max(size, 0) for size in sizes)
        if count > self._left:
            raise self._error(
                f"{what} of shape {sizes} goes beyond the {self._limit:,} elements that a file's arrays may "
                f"have together; {self._advice}"
            )
        self._left -= count


def check_size(shape: Iterable[int], what: str) -> None:
    """Refuse an array that is made from several arrays of a file and is too large.

    Raises ModelError if it has more than :data:`MAX_ELEMENTS`.
    """
    Budget(advice="end the network before").take(shape, what)


DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    LookupError,
    NotImplementedError,  # a kind of compression that Python does not know
    RuntimeError,  # encrypted
    UnicodeError,
    ValueError,
    OverflowError,
)
"""Exceptions of Python's unpacking for damaged, encrypted and unusual archives, besides OSError."""


class DamagedArchiveError(ValueError):
    """An archive cannot be unpacked; the message says why."""


@contextmanager
def open_archive(file: Path | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an archive and check that no two members have the same name.

    Raises DamagedArchiveError if it is damaged. Raises OSError if it cannot be read.
    """
    try:
        archive = zipfile.ZipFile(file)
    except DAMAGE as error:
        raise DamagedArchiveError(str(error) or type(error).__name__) from None
    with archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise DamagedArchiveError("it has two members of one name")
        yield archive


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str) -> Iterator[tuple[BufferedIOBase, int]]:
    """Open a member; return the file and its declared size in bytes.

    Raises DamagedArchiveError if there is none of this name, or it is damaged or encrypted, also while it is
    read. Raises OSError if the archive cannot be read.
    """
    try:
        size = archive.getinfo(name).file_size
        with archive.open(name) as file:
            yield cast(BufferedIOBase, file), size  # IO, its declared type, lacks readinto
    except (DamagedArchiveError, RtlstmError):
        raise
    except DAMAGE as error:
        raise DamagedArchiveError(f"its member {name!r}: {error}") from None


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Unpack a member of at most ``most`` bytes.

    Raises DamagedArchiveError if it is larger, and as :func:`open_member`. Raises OSError if the archive
    cannot be read.
    """
    with open_member(archive, name) as (file, size):
        if size > most:
            raise DamagedArchiveError(f"its member {name!r} unpacks to {size:,} bytes, more than {most:,}")
        data = file.read(most + 1)
        if len(data) != size:
            raise DamagedArchiveError(f"its member {name!r} unpacks to other than {size:,} bytes")
    return data


Array = NDArray[Any]

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_ARCHIVE = b"PK"


class DamagedArraysError(ValueError):
    """A file is not in NumPy's format, holds no numbers, or is damaged; the message says which."""


def read_arrays(path: Path) -> Array | dict[str, Array]:
    """Read the array of an ``.npy`` file, or all of an ``.npz`` file by their names.

    Raises DamagedArraysError if the file is none of these, or does not hold what it declares. Raises
    InputError if an archive's arrays have too many elements. Raises OSError if it cannot be read.
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
