"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "BaudOption",
    "BoardOption",
    "BuildArgument",
    "ClockOption",
    "DebugOption",
    "JsonOption",
    "LengthsOption",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

DebugOption = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]

BuildArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A build folder made by 'rtlstm generate'.")
]

BoardOption = Annotated[
    str, typer.Option(metavar="BOARD", help="Such as ulx3s-85f, icebreaker, colorlight-i9, zybo-z7-20.")
]

ClockOption = Annotated[
    float | None,
    typer.Option(
        "--clock",
        metavar="MHZ",
        min=1,
        max=1000,
        help="The design's clock; by default the board's usual one.",
    ),
]

BaudOption = Annotated[
    int | None, typer.Option(help="Of the serial line; by default the fastest usual rate.", min=300)
]

LengthsOption = Annotated[
    str | None,
    typer.Option(help="Valid steps of each sequence: numbers with commas, or an .npy file."),
]
