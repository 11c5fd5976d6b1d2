"""The terminal: standard streams, also closed, full or broken ones, and signals that end a program."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO, TextIOWrapper
from typing import Any, Self, TextIO

from rtlstm.spec.errors import RtlstmError

_PLAIN_WIDTH = 140
"""Columns of a table that goes to a file or a pipe."""


class OutputError(RtlstmError, OSError):
    """Standard output cannot be written."""

    @classmethod
    def because(cls, error: OSError) -> Self:
        """Say so with the system's reason."""
        return cls(f"standard output cannot be written ({error.strerror}); what went to files is there")


class ReaderGoneError(OutputError):
    """Whoever read standard output reads no more, such as ``head``."""


def prepare_streams() -> None:
    """Make standard streams usable that are closed or cannot encode all text; to be called first."""
    # The next file to be opened would otherwise become standard output, and be written into.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the end
        with suppress(AttributeError, ValueError):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def plain(text: str, lines: bool = False) -> str:
    """Return text with escapes, such as ``\\x1b``, for all that a terminal would obey and not show.

    Names come from model files, which may hold anything. ``lines`` says that line ends are meant.
    """
    return "".join(
        char if char.isprintable() or (lines and char == "\n") else ascii(char)[1:-1] for char in text
    )


def write_output(text: str) -> None:
    """Write text to standard output as it is, and a line end.

    Raises
    ------
    ReaderGoneError
        If nobody reads it any more.
    OutputError
        If it cannot be written for another reason.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        abandon_output()
        raise ReaderGoneError from None
    except OSError as error:
        abandon_output()
        raise OutputError.because(error) from None


def abandon_output() -> None:
    """Give up standard output, so that Python does not complain about it at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_error(text: str) -> None:
    """Write text for people to the error stream; if that is broken, nobody can be told."""
    with suppress(OSError, ValueError):
        print(plain(text, lines=True), file=sys.stderr, flush=True)


class ForgivingStream:
    """A text stream for what need not arrive, such as progress: the terminal may have been closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text if that works."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if that works."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def render_table(title: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for people.

    Parameters
    ----------
    columns
        Headings, and whether a column is aligned to the right; all headings empty for names and values.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    file = TextIOWrapper(BytesIO(), sys.stdout.encoding or "utf-8", "backslashreplace", newline="\n")
    tty = sys.stdout.isatty()
    console = Console(
        file=file,
        force_terminal=tty,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if tty else _PLAIN_WIDTH,
    )
    headed = any(name for name, _ in columns)
    table = Table(box=box.SIMPLE, show_header=headed, show_edge=False, pad_edge=True)
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    console.print(table)
    file.seek(0)
    return f"{plain(title)}\n{file.read()}"


_AGAIN = 0.02
"""Seconds after which a signal is raised again that was lost."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """The program was told to end, by a signal other than Ctrl-C's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number
        self.code = 128 + number
        """The exit code, as shells have it."""


@contextmanager
def ends_cleanly() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise :class:`Ended`, unless they are ignored, as with ``nohup``.

    Python drops what a signal raises while a finaliser runs, as in a garbage collection. Such a signal, and a
    Ctrl-C, is raised again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number, handler in before.items() if handler is signal.SIG_DFL]

    def end(number: int, _: Any) -> None:
        # The first one is enough: what is being tidied up is not to be interrupted by another.
        for other in handled:
            signal.signal(other, signal.SIG_IGN)
        raise Ended(number)

    report = sys.unraisablehook

    def raise_again(dropped: "sys.UnraisableHookArgs") -> None:
        error = dropped.exc_value
        if not isinstance(error, KeyboardInterrupt):
            report(dropped)
            return
        number = error.number if isinstance(error, Ended) else signal.SIGINT
        if number in handled:
            signal.signal(number, end)
        # A real signal, so that it also ends a wait for another program.
        threading.Timer(_AGAIN, os.kill, (os.getpid(), number)).start()

    sys.unraisablehook = raise_again
    try:
        for number in handled:
            signal.signal(number, end)
        yield
    finally:
        sys.unraisablehook = report
        for number in handled:
            signal.signal(number, before[number])
