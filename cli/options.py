"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

from rtlstm.spec.padding import Pad

__all__ = [
    "CALIBRATE",
    "BatchFirstOption",
    "BuildArgument",
    "CalibrationBatchFirstOption",
    "CalibrationLengthsOption",
    "CalibrationPadOption",
    "DebugOption",
    "JsonOption",
    "LengthsOption",
    "PadOption",
    "SchedulerOption",
    "WorkersOption",
]

_NUMBERS, _WORK = "Numbers", "How it is worked out"

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

DebugOption = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]

BuildArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A build folder made by 'rtlstm generate'.")
]

BatchFirstOption = Annotated[
    bool | None,
    typer.Option(
        "--batch-first/--no-batch-first",
        help="Inputs and outputs have the batch first, (N, T, I), or not, (T, N, I); by default as the model "
        "has it.",
    ),
]

LengthsOption = Annotated[
    str | None,
    typer.Option(help="Valid steps of each sequence: numbers with commas, or an .npy file."),
]

PadOption = Annotated[
    Pad,
    typer.Option(
        help="Where the padding of shorter sequences stands in inputs and outputs: behind their steps, or in "
        "front of them, as Keras pads by default.",
    ),
]

CALIBRATE = typer.Option(
    "--calibrate",
    help="Typical inputs, (T, I) or (T, N, I): an .npy file, or an .npz file with an array x, or only one.",
    rich_help_panel=_NUMBERS,
)
"""Required by some commands, so that each states the type."""

CalibrationLengthsOption = Annotated[
    str | None,
    typer.Option(
        "--calibrate-lengths",
        help="Valid steps of each sequence of the typical inputs: numbers with commas between them, or "
        "an .npy file; all by default.",
        rich_help_panel=_NUMBERS,
    ),
]

CalibrationBatchFirstOption = Annotated[
    bool | None,
    typer.Option(
        "--batch-first/--no-batch-first",
        help="Typical inputs, and data to evaluate on, have the batch first, (N, T, I), or not, (T, N, I); "
        "by default as the model has it.",
        rich_help_panel=_NUMBERS,
    ),
]

CalibrationPadOption = Annotated[
    Pad,
    typer.Option(
        help="Where the padding of shorter sequences stands in typical inputs, and in data to evaluate on: "
        "behind their steps, or in front of them, as Keras pads by default.",
        rich_help_panel=_NUMBERS,
    ),
]

WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes of this machine; by default as many as processors.", rich_help_panel=_WORK
    ),
]

SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="A running Dask scheduler, such as tcp://host:8786, whose workers are used instead.",
        rich_help_panel=_WORK,
    ),
]
