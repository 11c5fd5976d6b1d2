"""Reads regular files, and members of untrusted archives; writes a file completely or not at all.

Files are written also through symbolic links and into pipes. Declared sizes of arrays in ``.npy``, ``.npz``
and other zip archives are checked before arrays are made; a :class:`Budget` counts those of one file.
"""

import errno
import lzma
import math
import os
import reprlib
import secrets
import stat
import sys
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedIOBase, BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rtlstm.spec.errors import InputError, ModelError, RtlstmError

if sys.platform != "win32":
    import fcntl

_NO_FOLDER = "its folder does not exist"

Content = str | bytes | Callable[[BinaryIO], object]


def as_path(what: str, path: Any) -> Path:
    """Return ``path`` as a :class:`~pathlib.Path`.

    Raises InputError if it is neither text nor a path; ``what`` begins the message.
    """
    if isinstance(path, str | os.PathLike) and isinstance(name := os.fspath(path), str) and "\0" not in name:
        return Path(name)
    raise InputError(f"{what} must be a path, such as 'build/lstm', not {reprlib.repr(path)}")


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


def open_file(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, to read its bytes; whatever a user names is read through this.

    A pipe would wait for its writer for ever, and a device may never end.

    Raises OSError if it cannot be opened, or is of another kind; ``strerror`` says why.
    """
    kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file; copy its content into one", str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
    return path.open("rb")


def read_file(path: Path) -> bytes:
    """Return a regular file's content. Raises OSError as :func:`open_file`."""
    with open_file(path) as file:
        return file.read()


def write_file(path: str | Path, content: Content) -> None:
    """Write a file, so that a reader finds the old content or the new one, never a part of it.

    A regular file is written under another name first and then replaced, with its permissions. A symbolic
    link stays: the file it leads to is replaced. A pipe or a character device, such as ``/dev/null``, is
    written to; so is the process's standard output. ``content`` is bytes, text (written as UTF-8, line ends
    as they are), or a function that is called with the binary file to write to. Raises InputError if the file
    cannot be written, or is a folder, a block device or a socket. An existing file is then unchanged.
    """
    path = as_path("the file to write", path)
    found = _find(path)
    standard_output = _standard_output(found)
    try:
        if standard_output is not None:
            _write_through(standard_output, content, keep_open=True)
        elif found is None or stat.S_ISREG(found.st_mode):
            _replace(Path(os.path.realpath(path)), content, found)
        else:
            # Without O_CREAT: no file is created if the device or pipe has been removed in the meantime.
            _write_through(os.open(path, os.O_WRONLY | os.O_NOCTTY), content)
    except FileNotFoundError:
        # A folder of the system, such as /proc, may take no files.
        there = Path(os.path.realpath(path)).parent.is_dir()
        raise _refusal(path, "its folder takes no new files" if there else _NO_FOLDER) from None
    except OSError as error:
        raise _refusal(path, _reason(error)) from None


def _reason(error: OSError) -> str:
    # NumPy counts what a full disk did not take, and gives no reason.
    full = f"the disk may be full ({error})" if "requested and" in str(error) else ""
    return error.strerror or full or str(error) or type(error).__name__


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content as :func:`write_file` writes, with the same errors."""
    write_file(target, read_file(source))


def check_writable(path: str | Path) -> None:
    """Refuse a file that :func:`write_file` could not write, before a long computation.

    Raises InputError if it, or its folder, cannot be written.
    """
    path = as_path("the file to write", path)
    found = _find(path)
    if found is not None and not os.access(path, os.W_OK):
        raise _refusal(path, "it is read-only for this user")
    if found is None or stat.S_ISREG(found.st_mode):
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise _refusal(path, _NO_FOLDER)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _refusal(path, f"the folder {folder} is read-only for this user")


def _find(path: Path) -> os.stat_result | None:
    """Return the status of the file that ``path`` leads to, None if there is none. Refuse one that cannot be
    written."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(path, error.strerror or str(error)) from None
    refused = {stat.S_IFDIR: "a folder"} | {each: _KINDS[each] for each in (stat.S_IFBLK, stat.S_IFSOCK)}
    kind = refused.get(stat.S_IFMT(found.st_mode))
    if kind is not None and _standard_output(found) is None:
        raise _refusal(path, f"it is {kind}")
    return found


def _refusal(path: Path, why: str) -> InputError:
    advice = "make that folder" if why == _NO_FOLDER else "make this one writable"
    return InputError(f"{path} cannot be written: {why}; name another file, or {advice}")


def _standard_output(found: os.stat_result | None) -> int | None:
    """Return which of this process's two output streams ``found`` is, if any.

    Opening ``/dev/stdout`` again would begin at the start of a file that the shell has already opened.
    """
    for number in (1, 2):
        with suppress(OSError):
            if found is not None and os.path.samestat(found, os.fstat(number)):
                return number
    return None


def _write_through(descriptor: int, content: Content, keep_open: bool = False) -> None:
    if keep_open:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
    with os.fdopen(descriptor, "wb", closefd=not keep_open) as file:
        if callable(content):
            # Some writers read the position, which a pipe has not.
            whole = BytesIO()
            content(whole)
            content = whole.getvalue()
        file.write(as_bytes(content))


def _replace(path: Path, content: Content, old: os.stat_result | None) -> None:
    if old is not None and not os.access(path, os.W_OK):
        raise PermissionError(0, "it is read-only for this user")
    with _new_beside(path) as (work, file):
        with file:
            if callable(content):
                content(file)
            else:
                file.write(as_bytes(content))
        if old is not None:
            with suppress(PermissionError):
                os.chown(work, old.st_uid, old.st_gid)
            work.chmod(stat.S_IMODE(old.st_mode))
        work.replace(path)


@contextmanager
def _new_beside(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Give a new file in a file's folder, to be renamed; remove what killed processes left of such files."""
    for left in path.parent.glob(".rtlstm-*.new"):
        with suppress(OSError), locked(left) as alone:
            if alone:
                left.unlink()
    with ExitStack() as made:
        while True:
            work = path.with_name(f".rtlstm-{os.getpid()}-{secrets.token_hex(4)}.new")
            made.callback(work.unlink, missing_ok=True)
            file = made.enter_context(work.open("xb"))
            made.enter_context(locked(work, wait=True))
            # Before it was locked, another process may have removed it.
            if work.exists():
                break
        yield work, file


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a file or folder until the block or the process ends; give whether certainly nobody else has."""
    if sys.platform == "win32":
        yield False
        return
    with ExitStack() as held:
        alone = False
        with suppress(OSError):  # It is gone, another has it, or the file system has no locks.
            descriptor = os.open(path, os.O_RDONLY)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            alone = True
        yield alone


def as_bytes(content: str | bytes) -> bytes:
    """Return a file's content as it is written."""
    return content.encode() if isinstance(content, str) else content


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
