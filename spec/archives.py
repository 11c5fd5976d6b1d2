"""Reads members of untrusted zip archives with a limit for the size of each unpacked member."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, cast

from rtlstm.spec.errors import RtlstmError

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

    Raises
    ------
    DamagedArchiveError
        If it is damaged.
    OSError
        If it cannot be read.
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

    Raises
    ------
    DamagedArchiveError
        If there is none of this name, or it is damaged or encrypted, also while it is read.
    OSError
        If the archive cannot be read.
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

    Raises
    ------
    DamagedArchiveError
        If it is larger, and as :func:`open_member`.
    OSError
        If the archive cannot be read.
    """
    with open_member(archive, name) as (file, size):
        if size > most:
            raise DamagedArchiveError(f"its member {name!r} unpacks to {size:,} bytes, more than {most:,}")
        data = file.read(most + 1)
        if len(data) != size:
            raise DamagedArchiveError(f"its member {name!r} unpacks to other than {size:,} bytes")
    return data
