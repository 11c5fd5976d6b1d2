"""What a command found: one JSON object, and declared views of it that people read.

A view reads nothing but the JSON object, so people see nothing that ``--json`` leaves out. It says
once for each field what people call it and how its value is written. The terminal is here, too: standard
streams, also closed, full or broken ones, and signals that end a program.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING, Any, Self, TextIO

from rtlstm.cli.commands import worded
from rtlstm.spec.errors import RtlstmError

if TYPE_CHECKING:
    from rtlstm.spec.manifest import Manifest

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

    Raises ReaderGoneError if nobody reads it any more. Raises OutputError if it cannot be written for another
    reason.
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

    ``columns`` has headings, and whether a column is aligned to the right; all headings are empty for names
    and values.
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


Found = Mapping[str, Any]
"""A command's JSON object, as it is read back."""

Reading = str | Callable[[Any], object]
"""How text is made of an object: a format text, such as ``"{luts:,} LUTs"``, whose names are fields of a
mapping or a record; or a function of it, which may return None for nothing."""


class _Names:
    """The fields of a mapping or a record, by name, for a format text."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def __getitem__(self, name: str) -> Any:
        return self._holder[name] if isinstance(self._holder, Mapping) else getattr(self._holder, name)


def write_value(reading: Reading, holder: Any) -> str | None:
    """Write what a reading makes of an object; whole numbers of functions have commas."""
    if isinstance(reading, str):
        return reading.format_map(_Names(holder))
    value = reading(holder)
    if value is None:
        return None
    return f"{value:,}" if type(value) is int else str(value)


def part_ends(manifest: "Manifest") -> dict[str, list[int]]:
    """Return the JSON object of a model's several outputs: the first value of each, and the one behind it."""
    from rtlstm.spec.layout import part_slices

    return {name: [part.start, part.stop] for name, part in part_slices(manifest.parts).items()}


def named_parts(found: Found) -> str | None:
    """Write them, or nothing for a model with one output."""
    parts = found["output_parts"].items()
    return ", ".join(f"{name}: {first} to {end - 1}" for name, (first, end) in parts) or None


@dataclass(frozen=True)
class Field:
    """What people call a field, and how its value is written.

    ``right`` aligns it to the right in a table, as :data:`Figure` does.
    """

    label: str
    reading: Reading
    right: bool = False


Figure = partial(Field, right=True)


@dataclass(frozen=True)
class Text:
    """A line, or some; left out where its reading gives nothing."""

    reading: Reading

    def text(self, found: Found) -> str | None:
        """Return the line."""
        text = write_value(self.reading, found)
        return None if text is None else plain(text, lines=True)


class Table:
    """A row for each of some objects, a column for each field; both are left out where there is nothing.

    ``rows`` gives the objects, of the JSON object.
    """

    def __init__(self, title: Reading, rows: Callable[[Found], Iterable[Any]], *columns: Field) -> None:
        self.title, self.rows, self.columns = title, rows, columns

    def text(self, found: Found) -> str | None:
        """Return title and table."""
        objects = list(self.rows(found))
        if not objects:
            return None
        values = [[write_value(column.reading, each) for each in objects] for column in self.columns]
        shown = [pair for pair in zip(self.columns, values, strict=True) if set(pair[1]) != {None}]
        columns = [(column.label, column.right) for column, _ in shown]
        rows = [[text or "" for text in row] for row in zip(*(texts for _, texts in shown), strict=True)]
        return render_table(write_value(self.title, found) or "", columns, rows)


class Values:
    """A row for each field of one object; a field without a value is left out.

    ``holder`` gives the object, of the JSON object; None leaves all of it out. ``right`` aligns the values to
    the right.
    """

    def __init__(
        self,
        title: Reading,
        *fields: Field,
        holder: Callable[[Found], Any] = lambda found: found,
        right: bool = False,
    ) -> None:
        self.title, self.fields, self.holder, self.right = title, fields, holder, right

    def text(self, found: Found) -> str | None:
        """Return title, names and values."""
        holder = self.holder(found)
        if holder is None:
            return None
        texts = ((each.label, write_value(each.reading, holder)) for each in self.fields)
        rows = [(label, text) for label, text in texts if text is not None]
        return render_table(write_value(self.title, holder) or "", [("", False), ("", self.right)], rows)


View = Sequence[Text | Table | Values]
"""The sections of what people read."""


def _worded(value: Any) -> Any:
    """A JSON value whose texts name options and commands as they are typed."""
    if isinstance(value, dict):
        return {name: _worded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_worded(each) for each in value]
    return worded(value) if isinstance(value, str) else value


@dataclass
class Result:
    """The one object that a command fills: printed as JSON, or read through views."""

    fields: dict[str, Any] = field(default_factory=dict)

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add fields, as their JSON is read back: views have no more to read than that."""
        self.fields |= _worded(json.loads(json.dumps(fields)))

    def texts(self, view: View) -> Iterator[str]:
        """Write the sections of a view that have something to say."""
        texts = (section.text(self.fields) for section in view)
        return (text for text in texts if text is not None)

    def as_json(self) -> str:
        """Write all fields as one JSON object.

        Raises ValueError if a number is not finite, for which JSON has no word.
        """
        return json.dumps(self.fields, allow_nan=False)
