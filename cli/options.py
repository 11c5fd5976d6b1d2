"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "BatchFirstOption",
    "BuildArgument",
    "DebugOption",
    "JsonOption",
    "LengthsOption",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

DebugOption = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]

BuildArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A build folder made by 'rtlstm generate'.")
]

BatchFirstOption = Annotated[
    bool,
    typer.Option("--batch-first", help="Inputs and outputs have the batch first, (N, T, I)."),
]

LengthsOption = Annotated[
    str | None,
    typer.Option(help="Valid steps of each sequence: numbers with commas, or an .npy file."),
]
