"""How long work tells what it is doing, and where Python shows it."""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import monotonic
from typing import TextIO, TypeVar

Progress = Callable[[str, int, int], None]
"""Called as ``progress(what, done, total)`` during long work."""
Item = TypeVar("Item")

_LONG_SECONDS, _DRAW_SECONDS, _CELLS = 1.0, 0.1, 20
"""Work that takes longer is shown; how often at most; the length of a bar."""


def tell(progress: Progress | None, what: str, done: int, total: int) -> None:
    """Tell how far work is, if somebody asked."""
    if progress is not None:
        progress(what, done, total)


def counted(progress: Progress | None, what: str, items: Collection[Item]) -> Iterator[Item]:
    """Yield items; tell before each how many are done, and at the end that all are."""
    for done, item in enumerate(items):
        tell(progress, what, done, len(items))
        yield item
    tell(progress, what, len(items), len(items))


def is_silent() -> bool:
    """Whether ``RTLSTM_PROGRESS=none`` in the environment asks for no progress."""
    return os.environ.get("RTLSTM_PROGRESS") == "none"


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress | None]:
    """Give the caller's ``progress``; without one, show a line on a terminal or in a notebook.

    The line stands on standard error, once the work takes longer than a second, and goes at its end. Pipes
    and files get nothing. Inside of work that is shown already, nothing more is.
    """
    file = sys.stderr
    if progress is not None or is_silent() or not _is_watched(file) or not _Line.free.acquire(blocking=False):
        yield progress
        return
    line = _Line(file)
    try:
        yield line.show
    finally:
        line.end()
        _Line.free.release()


def _is_watched(file: TextIO | None) -> bool:
    """Whether somebody looks at a stream as it is written: a terminal, or the output of a notebook's cell."""
    if file is None:
        return False
    return type(file).__module__.startswith("ipykernel.") or file.isatty()


class _Line:
    """A line that is written again and again."""

    free = Lock()
    """Held while a line is shown: there is one at a time."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._lock = file, Lock()
        self._text = self._drawn = ""
        self._begun, self._last = monotonic(), 0.0
        self._ended = False
        self._timer = Timer(_LONG_SECONDS, self._draw)
        self._timer.daemon = True
        self._timer.start()

    def show(self, what: str, done: int, total: int) -> None:
        """Tell how far the work is; see :data:`Progress`."""
        full = _CELLS * done // total if total > 0 else 0
        self._text = f"{what} [{'#' * full}{'.' * (_CELLS - full)}] {done:,}/{total:,}"
        now = monotonic()
        if now - self._begun >= _LONG_SECONDS and now - self._last >= _DRAW_SECONDS:
            self._last = now
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if not self._ended:
                self._write(self._text)

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._drawn:
                self._write("")
                self._write("")

    def _write(self, text: str) -> None:
        # Blanks cover what the line had before: notebooks know no other way.
        self._file.write(f"\r{text:<{len(self._drawn)}}" if text or self._drawn else "\r")
        self._file.flush()
        self._drawn = text
