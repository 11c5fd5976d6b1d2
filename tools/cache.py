"""The cache of Verilog and of built simulators: one folder per build, named by the hash of all its inputs.

The cache lives in the folder that ``RTLSTM_CACHE`` names, else in the user's cache folder.
Several processes may ask for the same build at once: one makes it, the others wait. A build
appears under its name only when it is whole, and is made again if its files are not what they were, or
cannot be loaded. Builds that nobody has used for a month go.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, TypeVar

from rtlstm.spec.errors import DeviceError, ToolError
from rtlstm.spec.progress import Progress, tell

Loaded = TypeVar("Loaded")

CACHE_VARIABLE = "RTLSTM_CACHE"

_KEEP_SECONDS = 30 * 24 * 3600.0
_CONTENTS = "contents.json"
"""A build's files and their sizes: a full disk, or a loss of power, may cut files without notice."""


class CacheError(ToolError):
    """The cache cannot be used."""


def cache_folder() -> Path:
    """Return the cache's folder, which need not exist yet.

    Raises CacheError if it would be in the user's home, and nobody knows where that is.
    """
    chosen = os.environ.get(CACHE_VARIABLE, "")
    try:
        return Path(chosen).expanduser().absolute() if chosen else user_cache() / "rtlstm"
    except RuntimeError:
        raise CacheError(
            "what is built is kept in the user's home folder, but no home folder is known; set "
            f"{CACHE_VARIABLE} to a folder that can be written"
        ) from None


def user_cache() -> Path:
    """Return where a user's programs keep what they can make again; RuntimeError if no home is known."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base) if base else Path.home() / ".cache"


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of the parts, as hexadecimal digits. ("ab", "c") is not ("a", "bc")."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def cached(kind: str, key: str, build: Callable[[Path], None], progress: Progress | None = None) -> Path:
    """Return the folder of a build; make it first if it is not there.

    ``kind`` is a word for the sort of build, part of the folder's name. ``key`` is the :func:`digest` of
    everything the build is made from. ``build`` is called with an empty folder to build in. The folder is
    moved afterwards, so what is built must not remember where. ``progress`` is told when this process waits
    for another one that makes the same build. Raises CacheError if the cache cannot be written.
    """
    root = cache_folder()
    folder = root / f"{kind}-{key}"
    if _use(folder):
        return folder
    with _locked(root / f".{kind}-{key}.lock", progress):
        if _use(folder):
            return folder
        work = root
        try:
            work = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=root))
            build(work)
            _seal(work)
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
        except OSError as error:
            raise _unwritable(root, error) from None
        finally:
            if work != root:
                shutil.rmtree(work, ignore_errors=True)
        _prune(root, time.time() - _KEEP_SECONDS)
    return folder


def load_cached(find: Callable[[], Path], load: Callable[[Path], Loaded]) -> Loaded:
    """Load a file of a build; if that fails, have it built again, once, and load that.

    ``find`` returns the file, directly in a folder of :func:`cached`. ``load`` raises OSError or
    :class:`~rtlstm.spec.errors.DeviceError` if the file cannot be loaded.
    """
    path = find()
    try:
        return load(path)
    except (OSError, DeviceError):
        shutil.rmtree(path.parent, ignore_errors=True)
    return load(find())


def _seal(work: Path) -> None:
    """Write down what a new build holds. If the disk is full, this fails, whatever the tools have noticed."""
    sizes = {str(path.relative_to(work)): path.stat().st_size for path in work.rglob("*") if path.is_file()}
    with (work / _CONTENTS).open("w") as file:
        json.dump(sizes, file)
        file.flush()
        os.fsync(file.fileno())
    work.chmod(0o755)


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / _CONTENTS).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _use(folder: Path) -> bool:
    # A cache that others fill may be read-only: usable, but its ages say nothing.
    with suppress(OSError):
        os.utime(folder)
    return _is_whole(folder)


def _unwritable(root: Path, error: OSError) -> CacheError:
    return CacheError(
        f"the cache folder {root} must be writable and have room ({error.strerror or error}); "
        f"set {CACHE_VARIABLE} to a folder that is and has"
    )


@contextmanager
def _locked(path: Path, progress: Progress | None) -> Iterator[None]:
    """Hold a lock file, which its holder removes: whoever waited for it then finds another, or none."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Opened for appending: a lock file must be made if missing and never emptied by a rival.
            file = path.open("a")
        except OSError as error:
            raise _unwritable(path.parent, error) from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                tell(progress, "waiting for another process's build", 0, 1)
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, path):
                continue
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()
            return


def _is_at(file: TextIO, path: Path) -> bool:
    """Whether an open file still is the one of this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _prune(root: Path, oldest: float) -> None:
    """Remove builds and left-over work folders last used before ``oldest``, and locks that nobody holds."""
    for path in root.iterdir():
        try:
            if path.suffix == ".lock":
                with path.open("a") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is_at(file, path):
                        path.unlink()
            elif path.stat().st_mtime < oldest:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
        except OSError:
            # Another process may hold the lock, or be pruning too.
            continue
