"""Reads regular files; writes a file completely or not at all, also through symbolic links and into pipes."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from rtlstm.spec.errors import InputError

_NO_FOLDER = "its folder does not exist"

Content = str | bytes | Callable[[BinaryIO], object]


def as_path(what: str, path: Any) -> Path:
    """Return ``path`` as a :class:`~pathlib.Path`.

    Raises InputError if it is neither text nor a path; ``what`` begins the message.
    """
    if isinstance(path, str | os.PathLike) and isinstance(name := os.fspath(path), str) and "\0" not in name:
        return Path(name)
    raise InputError(f"{what} must be a path, such as 'build/lstm', not {path!r}")


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
    return path.open("rb")


def read_file(path: Path) -> bytes:
    """Return a regular file's content. Raises OSError as :func:`open_file`."""
    with open_file(path) as file:
        return file.read()


def write_file(path: str | Path, content: Content) -> None:
    """Write a file, so that a reader finds the old content or the new one, never a part of it.

    A regular file is written under another name first and then replaced, with its permissions. A symbolic
    link stays: the file it leads to is replaced. A pipe or a character device, such as ``/dev/null``, is
    written to; so is the process's standard output.

    Raises InputError if the file cannot be written, or is a folder, a block device or a socket. An existing
    file is then unchanged.

    Parameters
    ----------
    content
        Bytes, text (written as UTF-8, line ends as they are), or a function that is called with the binary
        file to write to.
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
    """Return why a file cannot be written."""
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
        file.write(_bytes(content))


def _replace(path: Path, content: Content, old: os.stat_result | None) -> None:
    if old is not None and not os.access(path, os.W_OK):
        raise PermissionError(0, "it is read-only for this user")
    work = path.with_name(f".rtlstm-{os.getpid()}-{secrets.token_hex(4)}.new")
    try:
        with work.open("xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(_bytes(content))
        if old is not None:
            with suppress(PermissionError):
                os.chown(work, old.st_uid, old.st_gid)
            work.chmod(stat.S_IMODE(old.st_mode))
        work.replace(path)
    except BaseException:
        work.unlink(missing_ok=True)
        raise


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
