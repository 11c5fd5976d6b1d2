"""The commands: where each is, and how it becomes one of the command line's."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand


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
        "cli.simulate",
        "Simulate a build's Verilog and compare every word and cycle with the golden model and the schedule.",
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
        "cli.bitstream", "Run a board's top level in simulation and offer its serial port, until Ctrl-C."
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
    "devices": _Entry("cli.targets", "List the FPGAs that --fit and --device take by name."),
    "boards": _Entry("cli.targets", "List the boards that --fit and --board take by name."),
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
