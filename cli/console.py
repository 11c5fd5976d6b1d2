"""What every command shares: where it prints, how it shows progress, how it ends.

People read views of the command's result on stdout; with ``--json`` stdout holds exactly that one
JSON object instead (:mod:`rtlstm.cli.results`). Errors, notes and progress go to stderr.
"""

import gc
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from time import monotonic
from types import TracebackType
from typing import Any, Self, TextIO, cast

import typer

from rtlstm.cli.commands import worded
from rtlstm.cli.results import (
    Ended,
    ForgivingStream,
    OutputError,
    ReaderGoneError,
    Result,
    View,
    plain,
    write_error,
    write_output,
)
from rtlstm.spec.errors import DeviceError, RtlstmError
from rtlstm.spec.progress import Progress, is_silent

FAILED, WRONG_INPUT, UNEXPECTED, INTERRUPTED = 1, 2, 70, 130
"""Exit codes: a check failed or a device did not answer; what was asked for cannot be done; a
mistake in rtlstm; Ctrl-C."""

_LONG_SECONDS, _LINE_SECONDS = 2.0, 30.0
"""Where there is no bar, a phase that takes longer is told, and how far it is each time after that."""


def print_error(message: str) -> None:
    """Print an error for people; what follows its first line, such as a tool's output, is indented."""
    write_error("error: " + worded(message).replace("\n", "\n  "))


class Console:
    """One command's run, as a context manager around its work.

    Errors that leave the ``with`` block become one sentence and an exit code. With ``as_json`` the result is
    printed as one JSON object instead of its views. With ``debug`` errors have tracebacks.
    """

    def __init__(self, as_json: bool, debug: bool) -> None:
        self.result = Result()
        self.passed = True
        """Whether the command's checks held; if not, it exits with 1."""
        self.next: str | None = None
        """The command that usually follows; people are told, and it is a field of the JSON object."""
        self._as_json = as_json
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
        if isinstance(error, typer.Exit | SystemExit):
            return
        code = self._end(error)
        if self._as_json and not isinstance(error, ReaderGoneError):
            self.result.add(self.told(None if code else self.next))
            try:
                write_output(self.result.as_json())
            except OutputError as failure:
                # The first error says more.
                code = code or self._end(failure)
        elif self.next is not None and not code:
            write_error(f"next: {plain(self.next)}")
        if code:
            raise typer.Exit(code) from None

    def _end(self, error: BaseException | None) -> int:
        """Say what ended the command, and return the exit code."""
        if error is None:
            return 0 if self.passed else FAILED
        _forget_components()
        if isinstance(error, ReaderGoneError):
            return FAILED
        code, message = explain(error)
        if self._debug:
            write_error("".join(traceback.format_exception(error)))
        print_error(message)
        self.result.add({"error": message})
        return code

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
        text = worded(text)
        if text not in self._notes:
            self._notes.append(text)
            write_error(f"note: {plain(text)}")

    def told(self, following: str | None) -> dict[str, Any]:
        """What a JSON object has beside a result: the command that usually follows, and the notes so far."""
        return {"next": following, "notes": list(self._notes)}

    def show(self, view: View = (), *, waiting: bool = False, **fields: Any) -> None:
        """Add fields to the result, and show people what a view makes of all there are so far.

        ``view`` makes nothing by default, for fields that are known before there is something to read.
        ``waiting`` says that the command then waits for others, who need what is shown before the JSON object
        is there: with that, it goes to stderr. ``fields`` are those of the JSON object: plain values, lists
        and mappings.
        """
        self.result.add(fields)
        if waiting or not self._as_json:
            for text in self.result.texts(view):
                (write_error if self._as_json else write_output)(text)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Give a ``progress(what, done, total)``: bars on a terminal, else a line per long phase.

        With ``RTLSTM_PROGRESS=none`` in the environment it shows nothing.
        """
        if is_silent():
            yield lambda what, done, total: None
            return
        if not sys.stderr.isatty():
            with _phase_lines() as lines:
                yield lines
            return
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
        )
        file = cast(TextIO, ForgivingStream(sys.stderr))
        with Bars(*columns, console=RichConsole(file=file), transient=True) as bars:
            tasks: dict[str, TaskID] = {}

            def show(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    # Only what is under way stays in view: there may be more phases than lines.
                    for task in bars.tasks:
                        bars.update(task.id, visible=not task.finished)
                    tasks[what] = bars.add_task(plain(what), total=total)
                bars.update(tasks[what], completed=done, total=total)

            yield show


@contextmanager
def _phase_lines() -> Iterator[Progress]:
    """Print a line for each phase that takes long, and now and then how far it is: nobody watches a bar."""
    timers: dict[str, Timer] = {}
    begun: dict[str, float] = {}
    said: dict[str, float] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in timers:
            end()
            begun[what] = said[what] = monotonic()
            timers[what] = Timer(_LONG_SECONDS, write_error, (f"{plain(what)} ...",))
            timers[what].daemon = True
            timers[what].start()
        elif monotonic() - said[what] >= _LINE_SECONDS:
            said[what] = monotonic()
            minutes, seconds = divmod(round(said[what] - begun[what]), 60)
            share = f"{done:,} of {total:,} " if total > 1 else ""
            write_error(f"{plain(what)}: {share}after {minutes}:{seconds:02} minutes")

    def end() -> None:
        for timer in timers.values():
            timer.cancel()

    try:
        yield show
    finally:
        end()


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the sentence for an error."""
    if isinstance(error, DeviceError):
        return FAILED, str(error)
    if isinstance(error, RtlstmError):
        return WRONG_INPUT, str(error)
    if isinstance(error, Ended):
        return error.code, str(error)
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


def _forget_components() -> None:
    """Keep Amaranth quiet about components that an error leaves unused.

    Its own hook does so for the errors that Python itself prints, which ours never are.
    """
    unused = sys.modules.get("amaranth._unused")
    if unused is not None:
        things = gc.get_objects()
        # Asking each of some hundred thousand objects takes a while; they are of few types.
        kinds = {kind for kind in set(map(type, things)) if issubclass(kind, unused.MustUse)}
        for thing in things:
            if type(thing) in kinds:
                thing._MustUse__used = True
