"""The cache of built simulators: one folder per build, named by the hash of all its inputs.

The cache lives in the folder that ``RTLSTM_CACHE`` names, else in the user's cache folder.
Several processes may ask for the same build at once: one makes it, the others wait. A build
appears under its name only when it is whole. Builds that nobody has used for a month go.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rtlstm.spec.errors import ToolError

__all__ = ["CACHE_VARIABLE", "Report", "cache_folder", "cached", "digest"]

CACHE_VARIABLE = "RTLSTM_CACHE"

Report = Callable[[str, int, int], None]
"""Called as ``report(what, done, total)``; the driver's ``Progress``."""

_KEEP_SECONDS = 30 * 24 * 3600.0


def cache_folder() -> Path:
    """Return the cache's folder, which need not exist yet."""
    chosen = os.environ.get(CACHE_VARIABLE, "")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "rtlstm"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "rtlstm"


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of the parts, as hexadecimal digits. ("ab", "c") is not ("a", "bc")."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def cached(kind: str, key: str, build: Callable[[Path], None], report: Report | None = None) -> Path:
    """Return the folder of a build; make it first if it is not there.

    Parameters
    ----------
    kind
        A word for the sort of build, part of the folder's name.
    key
        The :func:`digest` of everything the build is made from.
    build
        Called with an empty folder to build in. The folder is moved afterwards, so what is
        built must not remember where.
    report
        Told when this process waits for another one that makes the same build.

    Raises
    ------
    ToolError
        If the cache cannot be written.
    """
    root = cache_folder()
    folder = root / f"{kind}-{key}"
    if _use(folder):
        return folder
    with _locked(root / f".{kind}-{key}.lock", report):
        if _use(folder):
            return folder
        work = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=root))
        try:
            build(work)
            work.chmod(0o755)
            work.rename(folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        _prune(root, time.time() - _KEEP_SECONDS)
    return folder


def _use(folder: Path) -> bool:
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    except OSError:
        # A cache that others fill may be read-only: usable, but its ages say nothing.
        return folder.is_dir()
    return True


@contextmanager
def _locked(path: Path, report: Report | None) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened for appending: a lock file must be made if missing and never emptied by a rival.
        file = path.open("a")
    except OSError as error:
        raise ToolError(
            f"the cache folder {path.parent} must be writable ({error}); "
            f"set {CACHE_VARIABLE} to a folder that is"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if report:
                report("waiting for another process's build", 0, 1)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prune(root: Path, oldest: float) -> None:
    """Remove builds, left-over work folders and locks last used before ``oldest``."""
    for path in root.iterdir():
        try:
            if path.stat().st_mtime >= oldest:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        except OSError:
            # Another process may be pruning too.
            continue
