"""The commands: where each is, how it becomes one of the command line's, and how messages name them."""

import ast
import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand

from rtlstm.spec.errors import ToolError
from rtlstm.tools import no_collection


def _without_types(parameters: list[Any]) -> list[Any]:
    """Have help show no type for what takes no value."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


_HYPHEN = "\N{NON-BREAKING HYPHEN}"


class HelpPage:
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


class _Command(HelpPage, TyperCommand):
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
        "cli.run",
        "Simulate a build's Verilog and compare every word and cycle with the golden model and the schedule.",
    ),
    "implement": _Entry(
        "cli.implement", "Synthesise a build for a device, place and route it, and report size and clock."
    ),
    "bitstream": _Entry(
        "cli.bitstream",
        "Make a bitstream for a board: the core behind its link, with clock, reset and LEDs.",
    ),
    "program": _Entry("cli.bitstream", "Configure a board with its bitstream, with openFPGALoader."),
    "board": _Entry(
        "cli.bitstream",
        "Run a board's top level in simulation and offer its link, until Ctrl-C.",
    ),
    "run": _Entry("cli.run", "Run sequences on a device, or on a simulated one."),
    "accuracy": _Entry(
        "cli.accuracy",
        "Measure a build's errors against float: per layer and step, what causes them, and what would help.",
    ),
    "explore": _Entry(
        "cli.explore",
        "Search bits, devices and arrays for the best builds of a model: a Pareto front, and a command for "
        "each.",
    ),
    "devices": _Entry("cli.boards", "List the FPGAs that --fit and --device take by name."),
    "boards": _Entry(
        "cli.boards",
        "List the boards that --fit and --board take by name; with a model, say which one to buy for it.",
    ),
    "zoo": _Entry(
        "cli.zoo",
        "Fetch a published model, build it, verify the Verilog and measure its published metric.",
    ),
    "bench": _Entry(
        "bench.command",
        "Measure cycles, CPU times and the tools themselves, and show published figures beside them.",
    ),
}
"""The commands: where each is, and what it is for."""


def command_function(name: str) -> Callable[..., None]:
    """Return what a command calls. Raises ToolError if it is not in the wheel."""
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
@no_collection()
def find_command(name: str) -> Any:
    """Return a command, made when it is asked for: what declares its options takes time to import."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name, cls=_Command)(command_function(name))
    return typer.main.get_command(single)


_BARE: Final = object()
"""No value: only the option's name is given."""
_QUOTED = re.compile(r"""`((?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[^`'"\n])+)`""")
"""What stands between backticks; texts within it may have some, too."""


def worded(text: str) -> str:
    """Return a message with flags and commands in the place of Python's options and calls."""
    return _QUOTED.sub(lambda found: _worded(found[1]) or found[0], text) if "`" in text else text


def _worded(python: str) -> str | None:
    """``lanes``, ``lanes=4, macs=2`` or ``Build('b').simulate(batches=3)`` as typed; None for other texts."""
    try:
        outer = ast.parse(f"_({python})", mode="eval").body
        match outer:
            case ast.Call(args=[ast.Name(name)], keywords=[]):
                return as_typed(name)
            case ast.Call(args=[], keywords=options):
                return _typed_keywords(options)
            case ast.Call(args=[ast.Call(func=called, keywords=options)], keywords=[]):
                match called:
                    case ast.Attribute(ast.Call(ast.Name("Build"), [ast.Constant(str(folder))]), command):
                        return f"rtlstm {command} {shlex.quote(folder)} {_typed_keywords(options)}".rstrip()
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError, ToolError):
        pass  # A name that a file chose, or another program's word; a wheel lacks a command's options.
    return None


def _typed_keywords(options: list[ast.keyword]) -> str:
    return " ".join(as_typed(each.arg or "", ast.literal_eval(each.value)) for each in options)


def as_typed(name: str, value: Any = _BARE) -> str:
    """Return an option by its name in Python, and its value, as they are typed.

    Raises LookupError if no command has it.
    """
    if isinstance(value, Mapping):
        # One option for each: capacities={"headroom": 4} is --capacity headroom=4.
        return typed_options("--capacity", [f"{key.replace('_', '-')}={each}" for key, each in value.items()])
    yes, no = _flags(name, isinstance(value, bool))
    if value is _BARE or value is True:
        return yes
    values = list(value) if isinstance(value, list | tuple) else [value]
    return no if value is False else typed_options(yes, values)


@cache
def _flags(name: str, switch: bool) -> tuple[str, str]:
    """What an option is called, and what turns it off: in ``generate``, or the first command that has it.

    ``implement`` has a switch of the name that an option of ``generate`` with other values has.
    """
    for command in ("generate", *COMMANDS):
        for each in find_command(command).params:
            if each.name == name and each.opts[-1].startswith("--") and (each.is_flag or not switch):
                return each.opts[-1], (each.secondary_opts or ["--no-" + each.opts[-1][2:]])[-1]
    raise LookupError(f"no command has an option {name}")


def typed_options(flag: str, values: list[Any]) -> str:
    """Return an option once for each value, quoted where a shell needs that."""
    texts = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return " ".join(f"{flag} {shlex.quote(text)}" for text in texts)


def chosen_for(fit: Mapping[str, Any]) -> str:
    """Say what the sizes of an array were chosen for, from the JSON object of a ``Fit``."""
    from rtlstm.fpga.fit import Fit

    found = Fit.model_validate(fit)
    link = ", its link counted in" if found.estimate.board else ""
    what, how = "Sizes", f"with the {found.pipeline} pipeline, "
    if found.estimate.loop_registers is not None:
        what, how = "Registers in the loop of h, and memory of tables,", ""
    return f"{what} chosen for {found.device}{link}, {how}of {found.tried:,} worked out; {found.limit_text}."


def generate_command(model: object, folder: object, options: Mapping[str, Any]) -> str:
    """Return the command that makes a build of a model, with those of its options that are not None."""
    typed = [as_typed(name, value) for name, value in options.items() if value is not None]
    words = map(shlex.quote, (str(model), "-o", str(folder)))
    return " ".join(["rtlstm generate", *words, *typed])


def next_command(command: str, folder: object, **options: object) -> str:
    """Return a command for what a command before made, as it is typed."""
    texts = (typed_options(f"--{name}", [value]) for name, value in options.items())
    return " ".join([f"rtlstm {command} {shlex.quote(str(folder))}", *texts])
