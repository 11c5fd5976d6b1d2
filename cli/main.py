"""The command line. Heavy packages are imported by the commands that need them."""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

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


_HELP_COLUMNS = 110
"""Columns of a help page, if the terminal has so many."""


def _without_types(parameters: list[Any]) -> list[Any]:
    """Have help show no type for what takes no value."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


_HYPHEN = "\N{NON-BREAKING HYPHEN}"


class _Page:
    """A command's help page."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return _without_types(super().get_params(ctx))  # type: ignore[misc]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page; no line ends inside an option's name."""
        text, rows = formatter.write_text, formatter.write_dl
        formatter.write_text = lambda written: text(written.replace("-", _HYPHEN))
        formatter.write_dl = lambda pairs: rows([(name, told.replace("-", _HYPHEN)) for name, told in pairs])
        super().format_help(ctx, formatter)  # type: ignore[misc]
        formatter.buffer[:] = [written.replace(_HYPHEN, "-") for written in formatter.buffer]


class _Command(_Page, TyperCommand):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, those of a group below its title."""
        groups: dict[str, list[Any]] = {}
        for each in self.get_params(ctx):
            title = "Arguments" if each.param_type_name == "argument" else "Options"
            record = each.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(each, "rich_help_panel", None) or title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


class _Listed(TyperCommand):
    """A command in a list of commands: its name, and what it is for."""

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return all of it: lists have room for more lines."""
        return self.help or ""


class _Entry(NamedTuple):
    module: str
    """The module that a command is in, below ``rtlstm``."""
    summary: str
    """The first sentence of its docstring: to list it, nothing is imported."""


COMMANDS = {
    "generate": _Entry("cli.generate", "Turn a model into a build: Verilog, manifest, weights and report."),
    "inspect": _Entry(
        "cli.inspect",
        "Show a model's layers and what is supported, or a build's formats, program and cycles.",
    ),
    "simulate": _Entry(
        "cli.simulate",
        "Run a build's RTL in a simulator and compare every word and cycle with what they must be.",
    ),
    "implement": _Entry(
        "cli.implement", "Synthesise a build for a device, place and route it, and report size and clock."
    ),
    "bitstream": _Entry(
        "cli.bitstream",
        "Make a bitstream for a board: the core behind its serial port, with clock, reset and LEDs.",
    ),
    "program": _Entry("cli.bitstream", "Configure a board with its bitstream, with openFPGALoader."),
    "board": _Entry(
        "cli.board", "Run a board's top level in simulation and offer its serial port, until Ctrl-C."
    ),
    "run": _Entry("cli.run", "Run sequences on a device, or on a simulated one."),
    "accuracy": _Entry(
        "cli.accuracy",
        "Measure a build's errors against float: per layer and step, what causes them, and what would help.",
    ),
    "migrate": _Entry(
        "cli.migrate",
        "Rewrite the manifest of a build that an older rtlstm made; its hardware and results stay as they "
        "are.",
    ),
    "explore": _Entry(
        "cli.explore",
        "Search bits, devices and arrays for the best builds of a model: a Pareto front, and a command for "
        "each.",
    ),
    "devices": _Entry("cli.targets", "List the FPGAs that --fit and --device take by name."),
    "boards": _Entry("cli.targets", "List the boards that --fit and --board take by name."),
    "zoo": _Entry(
        "cli.zoo",
        "Fetch a published model, build it, verify the Verilog and measure what its users judge it by.",
    ),
    "bench": _Entry(
        "bench.command",
        "Measure cycles, CPU times and the tools themselves, and show published figures beside them.",
    ),
}
"""The commands: where each is, and what it is for."""


def command_function(name: str) -> Callable[..., None]:
    """Return what a command calls.

    Raises
    ------
    ToolError
        If it is not in the wheel.
    """
    from rtlstm.spec.errors import ToolError

    try:
        module = import_module(f"rtlstm.{COMMANDS[name].module}")
    except ModuleNotFoundError as error:
        if error.name != "rtlstm.bench":
            raise
        raise ToolError(
            f"'rtlstm {name}' needs a clone of rtlstm's repository, since the wheel has no benchmarks: run "
            "'make setup' there, and then its .venv/bin/rtlstm"
        ) from None
    found: Callable[..., None] = getattr(module, name)
    return found


@cache
def find_command(name: str) -> Any:
    """Return a command, made when it is asked for: what declares its options takes time to import."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name, cls=_Command)(command_function(name))
    return typer.main.get_command(single)


@contextmanager
def _hands_on_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from typer, which exits without a word where no command explains it."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Abort from error


class _Group(_Page, TyperGroup):
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
