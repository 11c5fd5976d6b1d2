"""The command line. Heavy packages are imported by the commands that need them."""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from rtlstm.cli.console import FAILED, WRONG_INPUT, explain, print_error
from rtlstm.cli.ending import ends_cleanly
from rtlstm.cli.results import Result
from rtlstm.cli.terminal import (
    OutputError,
    ReaderGoneError,
    abandon_output,
    prepare_streams,
    write_error,
    write_output,
)

__all__ = ["COMMANDS", "app", "command_function", "find_command", "main"]


def _without_types(parameters: list[Any]) -> list[Any]:
    """Have help show no type for what takes no value."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; messages name options as they are typed."""
        from rtlstm.cli.wording import CommandWording
        from rtlstm.spec.options import worded

        with worded(CommandWording(find_command, self.name or "")):
            return super().invoke(ctx)


COMMANDS = {
    "generate": "generate",
    "inspect": "inspect",
    "simulate": "simulate",
    "implement": "implement",
    "bitstream": "bitstream",
    "program": "bitstream",
    "board": "board",
    "run": "run",
    "accuracy": "accuracy",
    "migrate": "migrate",
    "explore": "explore",
    "devices": "targets",
    "boards": "targets",
    "zoo": "zoo",
    "bench": "bench",
}
"""The commands and the modules of this folder that they are in."""


def command_function(name: str) -> Callable[..., None]:
    """Return what a command calls."""
    found: Callable[..., None] = getattr(import_module(f"rtlstm.cli.{COMMANDS[name]}"), name)
    return found


@cache
def find_command(name: str) -> Any:
    """Return a command, made when it is asked for: what declares its options takes time to import."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, cls=_Command)(command_function(name))
    return typer.main.get_command(single)


@contextmanager
def _hands_on_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from typer, which exits without a word where no command explains it."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Abort from error


class _Group(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # The names are enough for lists and for what was meant by a name that there is not.
        names: dict[str, Any] = dict.fromkeys(COMMANDS)
        self.commands = names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, if there is one."""
        return find_command(cmd_name) if cmd_name in COMMANDS else None

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

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
    context_settings={"help_option_names": ["-h", "--help"]},
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
        # rich exits by itself where the reader of a help page has gone.
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
