"""The command line. Heavy packages are imported by the commands that need them."""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from rtlstm.cli.commands import COMMANDS, HelpPage, find_command
from rtlstm.cli.console import FAILED, WRONG_INPUT, explain, print_error
from rtlstm.cli.results import (
    OutputError,
    ReaderGoneError,
    Result,
    abandon_output,
    ends_cleanly,
    prepare_streams,
    write_error,
    write_output,
)

_HELP_COLUMNS = 110
"""Columns of a help page, if the terminal has so many."""


class _Listed(TyperCommand):
    """A command in a list of commands: its name, and what it is for."""

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return all of it: lists have room for more lines."""
        return self.help or ""


@contextmanager
def _hands_on_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from typer, which exits without a word where no command explains it."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Abort from error


class _Group(HelpPage, TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        listed: dict[str, Any] = {name: _Listed(name, help=entry.summary) for name, entry in COMMANDS.items()}
        self.commands = listed

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that was typed: it alone is imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and find_command(command.name), rest

    def make_context(self, *given: Any, **options: Any) -> Any:
        with _hands_on_interrupts():
            return super().make_context(*given, **options)

    def invoke(self, ctx: Any) -> Any:
        with _hands_on_interrupts():
            return super().invoke(ctx)


app = typer.Typer(
    name="rtlstm",
    cls=_Group,
    help="Turn a trained LSTM into FPGA hardware, prove it bit for bit, and drive it.",
    pretty_exceptions_enable=False,
    # rich takes twice as long to import as all else that a help page needs.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _HELP_COLUMNS},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        write_output(f"rtlstm {version('rtlstm')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Turn a trained LSTM into FPGA hardware, prove it bit for bit, and drive it.

    Exit codes: 0 all is well; 1 a check failed or a device did not answer; 2 what was asked for
    cannot be done; 70 a mistake in rtlstm; 130 interrupted, 143 and 129 ended by SIGTERM and SIGHUP.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    prepare_streams()
    with ends_cleanly():
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        code = app(args=arguments or ["--help"], prog_name="rtlstm", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except (BrokenPipeError, ReaderGoneError):
        abandon_output()
        return FAILED
    except SystemExit as error:
        # What a library, such as click, exits with.
        return error.code if isinstance(error.code, int) else FAILED
    except (Exception, KeyboardInterrupt) as error:
        # typer's usage errors are of a class that moved between its versions.
        usage = getattr(error, "format_message", None)
        if usage is not None:
            _usage_error(error, str(usage()), arguments)
            return WRONG_INPUT
        return _other_error(error, "--debug" in arguments)


def _given(parameter: Any, arguments: list[str]) -> str | None:
    """Return what was typed for an option, the last time; None if that cannot be found."""
    for flag in getattr(parameter, "opts", []):
        for at in range(len(arguments) - 1, -1, -1):
            if arguments[at].startswith(f"{flag}="):
                return arguments[at].removeprefix(f"{flag}=")
            if arguments[at] == flag and at + 1 < len(arguments):
                return arguments[at + 1]
    return None


def _other_error(error: BaseException, debug: bool) -> int:
    """Explain an error that came before or after a command, which explains its own."""
    if debug:
        write_error("".join(traceback.format_exception(error)))
    if isinstance(error, typer.Abort):
        # What typer makes of Ctrl-C.
        error = error.__cause__ or error
    elif isinstance(error, OSError) and not isinstance(error, OutputError):
        abandon_output()
        error = OutputError.because(error)
    code, message = explain(error)
    print_error(message)
    return code


def _usage_error(error: BaseException, text: str, arguments: list[str]) -> None:
    path = getattr(getattr(error, "ctx", None), "command_path", "rtlstm")
    # typer checks values with pydantic, whose messages begin so, and do not have the value.
    possible = getattr(error, "possibilities", None)
    if possible:
        # typer sorts them by the alphabet; they come with the most similar first.
        text = text.replace(", ".join(sorted(possible)), ", ".join(possible))
    plain = text.replace(": Value error, ", ": ").replace(": Input should be ", ": must be ")
    given = _given(getattr(error, "param", None), arguments)
    if given is not None and ": must be " in plain:
        plain = f"{plain.partition(', unable to parse')[0].strip().rstrip('.')}, not {given!r}"
    message = f"{plain.strip().rstrip('.')}; see '{path} --help'"
    print_error(message)
    if "--json" in arguments:
        result = Result()
        result.add({"error": message, "notes": []})
        try:
            write_output(result.as_json())
        except OutputError:
            return
