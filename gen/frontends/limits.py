"""What a process that reads foreign files may use of the machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Windows has no such limits; there, only the parent's time limit holds.
if sys.platform != "win32":
    import resource

__all__ = ["ENVIRONMENT", "MEMORY", "SECONDS", "keep_limits", "keeps_files_shut", "no_files"]

SECONDS = 60
"""Seconds of processor time."""
MEMORY = 4 * 2**30
"""Bytes of address space beyond what the libraries have taken when they were loaded."""
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),  # each takes memory
    "HDF5_PLUGIN_PRELOAD": "::",  # no filters from shared libraries
}
_limited = False


def keep_limits() -> None:
    """From now on, end at :data:`SECONDS`, take at most :data:`MEMORY`, write no file and leave no dump."""
    global _limited
    _limited = True
    if sys.platform != "win32":
        _lower(resource.RLIMIT_CPU, SECONDS)
        _lower(resource.RLIMIT_AS, _taken() + MEMORY)
        _lower(resource.RLIMIT_FSIZE, 0)
        _lower(resource.RLIMIT_CORE, 0)


def _taken() -> int:
    """Bytes of address space that this process has, as Linux tells."""
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text().split()[0]
        return int(pages) * resource.getpagesize()
    return 0


def _lower(kind: int, most: int) -> None:
    soft, hard = resource.getrlimit(kind)
    least = min(limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY)
    with suppress(OSError, ValueError):  # macOS refuses some
        resource.setrlimit(kind, (least, hard if kind == resource.RLIMIT_CPU else least))


def keeps_files_shut() -> bool:
    """Whether :func:`no_files` can do what it says on this system."""
    return sys.platform != "win32"


@contextmanager
def no_files() -> Iterator[None]:
    """Let nothing be opened inside, neither files nor connections, if this process keeps limits.

    Whatever is imported inside has to be loaded before.
    """
    if not _limited or not keeps_files_shut():
        yield
        return
    before: tuple[Any, Any] = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
