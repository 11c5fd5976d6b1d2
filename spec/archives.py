"""Members of foreign zip archives, of which none unpacks to more than it may."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["DAMAGE", "DamagedArchiveError", "open_archive", "read_member"]

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
"""What Python's unpacking raises for damaged, encrypted and unusual archives, beside OSError."""


class DamagedArchiveError(ValueError):
    """An archive cannot be unpacked; the message says why."""


@contextmanager
def open_archive(file: Path | BinaryIO) -> Iterator[zipfile.ZipFile]:
    """Open an archive whose members have different names.

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


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Unpack a member of at most ``most`` bytes.

    Raises
    ------
    DamagedArchiveError
        If there is none of this name, it is larger, or it is damaged or encrypted.
    OSError
        If the archive cannot be read.
    """
    try:
        size = archive.getinfo(name).file_size
        if size > most:
            raise DamagedArchiveError(f"its member {name!r} unpacks to {size:,} bytes, more than {most:,}")
        with archive.open(name) as file:
            data = file.read(most + 1)
    except DamagedArchiveError:
        raise
    except DAMAGE as error:
        raise DamagedArchiveError(f"its member {name!r}: {error}") from None
    if len(data) != size:
        raise DamagedArchiveError(f"its member {name!r} unpacks to other than the {size:,} bytes it declares")
    return data
