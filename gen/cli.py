"""The command line. Heavy packages are imported by the commands that need them."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from rtlstm.gen.commands.bench import bench
from rtlstm.gen.commands.bitstream import bitstream, program
from rtlstm.gen.commands.board import board
from rtlstm.gen.commands.generate import generate
from rtlstm.gen.commands.implement import implement
from rtlstm.gen.commands.inspect import inspect
from rtlstm.gen.commands.run import run
from rtlstm.gen.commands.simulate import simulate
from rtlstm.gen.console import INTERRUPTED, WRONG_INPUT, print_error

__all__ = ["app", "main"]

app = typer.Typer(
    name="rtlstm",
    help="Turn a trained LSTM into FPGA hardware, prove it bit for bit, and drive it.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"rtlstm {version('rtlstm')}")
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
    cannot be done; 70 a mistake in rtlstm; 130 interrupted.
    """


for _command in (generate, inspect, simulate, implement, bitstream, program, board, run, bench):
    app.command()(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    try:
        code = app(args=arguments or ["--help"], prog_name="rtlstm", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        # typer's usage errors are of a class that moved between its versions.
        explain = getattr(error, "format_message", None)
        if explain is None:
            raise
        _usage_error(error, str(explain()), "--json" in arguments)
        return WRONG_INPUT


def _usage_error(error: Exception, text: str, as_json: bool) -> None:
    path = getattr(getattr(error, "ctx", None), "command_path", "rtlstm")
    message = f"{text.strip().rstrip('.')}; see '{path} --help'"
    print_error(message)
    if as_json:
        import json

        print(json.dumps({"error": message, "notes": []}))
