"""What every command shares: where it prints, how it shows progress, how it ends.

People read tables on stdout; with ``--json`` stdout holds exactly one JSON object instead, with
all that the tables say. Errors, notes and progress go to stderr.
"""

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TextIO

import typer

__all__ = ["FAILED", "INTERRUPTED", "UNEXPECTED", "WRONG_INPUT", "Session", "print_error"]

FAILED, WRONG_INPUT, UNEXPECTED, INTERRUPTED = 1, 2, 70, 130
"""Exit codes: a check failed or a device did not answer; what was asked for cannot be done; a
mistake in rtlstm; Ctrl-C."""

_PLAIN_WIDTH = 140
"""Columns of a table that goes to a file or a pipe."""

_Progress = Callable[[str, int, int], None]


def print_error(message: str) -> None:
    """Print an error for people."""
    print(f"error: {message}", file=sys.stderr, flush=True)


class Session:
    """One command's run, as a context manager around its work.

    Errors that leave the ``with`` block become one sentence and an exit code.

    Parameters
    ----------
    as_json
        Print one JSON object instead of tables.
    debug
        Print tracebacks of errors.
    """

    def __init__(self, as_json: bool, debug: bool) -> None:
        self.as_json = as_json
        self.fields: dict[str, Any] = {}
        """What ``--json`` prints."""
        self.passed = True
        """Whether the command's checks held; if not, it exits with 1."""
        self._debug = debug
        self._notes: list[str] = []
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> Self:
        self._warnings.__enter__()
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = self._show_warning
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._warnings.__exit__(kind, error, trace)
        code = 0 if self.passed else FAILED
        if isinstance(error, typer.Exit | SystemExit):
            # rich exits by itself where a table's reader has gone.
            return
        if isinstance(error, BrokenPipeError):
            # Whoever read the output has gone; Python must not complain about it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        if error is not None:
            code, message = _explain(error)
            if self._debug:
                traceback.print_exception(error)
            print_error(message)
            self.fields["error"] = message
        if self.as_json:
            fields = self.fields | {"notes": self._notes}
            print(json.dumps(fields, allow_nan=False), flush=True)
        if code:
            raise typer.Exit(code) from None

    def _show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        # Our own warnings say what to do; of others, the kind is worth knowing.
        ours = category.__module__.startswith("rtlstm.")
        self.note(str(message) if ours else f"{category.__name__}: {message}")

    def note(self, text: str) -> None:
        """Tell something worth knowing, once."""
        if text not in self._notes:
            self._notes.append(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            print(text, flush=True)

    def table(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: str = ""
    ) -> None:
        """Print a table for people.

        Parameters
        ----------
        columns
            Headings; all empty for a table of names and values.
        right
            One character per column: ``r`` aligns it to the right.
        """
        if self.as_json:
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table

        width = None if sys.stdout.isatty() else _PLAIN_WIDTH
        console = Console(markup=False, highlight=False, emoji=False, width=width)
        print(title)
        table = Table(box=box.SIMPLE, show_header=any(columns), show_edge=False, pad_edge=True)
        for index, name in enumerate(columns):
            to_right = right[index : index + 1] == "r"
            table.add_column(name, justify="right" if to_right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(f"{cell:,}" if type(cell) is int else str(cell) for cell in row))
        console.print(table)
        print()

    @contextmanager
    def progress(self) -> Iterator[_Progress | None]:
        """Give a ``progress(what, done, total)`` that draws bars, or None if nobody would see."""
        if not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            tasks: dict[str, TaskID] = {}

            def report(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total)
                bars.update(tasks[what], completed=done, total=total)

            yield report


def _explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the sentence for an error."""
    from rtlstm.spec.errors import DeviceError, RtlstmError

    if isinstance(error, DeviceError):
        return FAILED, str(error)
    if isinstance(error, RtlstmError):
        return WRONG_INPUT, str(error)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return WRONG_INPUT, f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return WRONG_INPUT, "there is not enough memory; give a smaller model or less data"
    return UNEXPECTED, (
        f"rtlstm made a mistake ({type(error).__name__}); please report it with what "
        "the same command prints with --debug"
    )
