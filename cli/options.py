"""Options that several commands take."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rtlstm.gen.frontends import ReadOptions

__all__ = [
    "BaudOption",
    "BoardOption",
    "BranchOption",
    "BuildArgument",
    "ClockOption",
    "DebugOption",
    "DenseOption",
    "JsonOption",
    "LengthsOption",
    "LstmOption",
    "OutputTensorOption",
    "read_options",
]

_MODEL = "Model"

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

LstmOption = Annotated[
    str | None,
    typer.Option(
        help="The LSTM to begin with: node, module or tensor prefix (several, with commas: stacked).",
        rich_help_panel=_MODEL,
    ),
]

OutputTensorOption = Annotated[
    str | None,
    typer.Option(
        help="The tensor or node at which to end; of Keras LAYER, or LAYER:linear, before its activation.",
        rich_help_panel=_MODEL,
    ),
]

DenseOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A dense layer of a state dict, in order: NAME, NAME:ACTIVATION or relu:NAME:ACTIVATION.",
        rich_help_panel=_MODEL,
    ),
]

BranchOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Of an ONNX model's If node, the branch to take: NODE:then or NODE:else. May be repeated.",
        rich_help_panel=_MODEL,
    ),
]

LengthsOption = Annotated[
    str | None,
    typer.Option(help="Valid steps of each sequence: numbers with commas, or an .npy file."),
]


def read_options(
    lstm: str | None, output: str | None, dense: list[str] | None, branch: list[str] | None
) -> "ReadOptions":
    """Return what the options about a model ask for; an option not given leaves its default."""
    from rtlstm.gen.frontends import ReadOptions

    dense_layers = tuple(dense) if dense else None
    return ReadOptions(lstm=lstm, output=output, dense=dense_layers, branches=tuple(branch or ()))
