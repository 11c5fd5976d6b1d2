"""Options that several commands take, and those that records declare whose fields they set."""

import inspect
import types
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from rtlstm.cli.console import Console
from rtlstm.spec.layout import Pad
from rtlstm.spec.record import DeclaredOption, declared_options

NumberOption = partial(typer.Option, rich_help_panel="Numbers")
WorkOption = partial(typer.Option, rich_help_panel="How it is worked out")

_JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

_DebugOption = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")]

BuildArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A build folder made by 'rtlstm generate'.")
]

BatchFirstOption = Annotated[
    bool | None,
    typer.Option(
        "--batch-first/--no-batch-first",
        help="Order of inputs and outputs: (N, T, I) with batch first, else (T, N, I). "
        "Default: the model's order.",
    ),
]

LengthsOption = Annotated[
    str | None,
    typer.Option(help="Number of valid steps of each sequence: numbers with commas, or an .npy file."),
]

PadOption = Annotated[
    Pad,
    typer.Option(
        help="Where shorter sequences are padded: behind their steps (back) or before them "
        "(front), as Keras does.",
    ),
]

CALIBRATE = NumberOption(
    "--calibrate",
    help="Typical inputs, (T, I) or (T, N, I), which set the ranges of the formats: .npy, or .npz with an "
    "array x.",
)
"""Required by some commands, so that each states the type."""

CalibrationLengthsOption = Annotated[
    str | None,
    NumberOption(
        "--calibrate-lengths",
        help="Number of valid steps of each sequence of the typical inputs: numbers with "
        "commas, or an .npy file. Default: all.",
    ),
]

CalibrationBatchFirstOption = Annotated[
    bool | None,
    NumberOption(
        "--batch-first/--no-batch-first",
        help="Order of the typical inputs: (N, T, I) with batch first, else (T, N, I). "
        "Default: the model's order.",
    ),
]

CalibrationPadOption = Annotated[
    Pad,
    NumberOption(
        help="Where shorter sequences of the typical inputs are padded: behind their steps "
        "(back) or before them (front)."
    ),
]

WorkersOption = Annotated[
    int | None,
    WorkOption(min=1, help="Number of processes on this machine. Default: one per processor."),
]

SchedulerOption = Annotated[
    str | None,
    WorkOption(metavar="ADDRESS", help="Use the workers of this Dask scheduler, such as tcp://host:8786."),
]


_PLAIN = (bool, int, float, str, Path)
"""Types that the command line reads by itself."""


def command(*records: type[BaseModel]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command: it works within the console that is its first argument.

    It has the options that records declare in the place of its parameter ``options``, and ``--json`` and
    ``--debug`` at the end. The function gets a mapping with those that were typed; records know the others'
    defaults, and check.
    """
    declared = {each.name: each for each in declared_options(*records)}

    def decorate(work: Callable[..., None]) -> Callable[..., None]:
        @wraps(work)
        def run(context: typer.Context, as_json: bool, debug: bool, **given: Any) -> None:
            values = {name: given.pop(name) for name in declared}
            if declared:
                given["options"] = {
                    name: _plain(value) for name, value in values.items() if _is_typed(context, name)
                }
            with Console(as_json, debug) as console:
                work(console, **given)

        parameters = _parameters(work, declared)
        # Read by typer.
        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def _parameters(work: Callable[..., None], declared: dict[str, DeclaredOption]) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    found = [inspect.Parameter("context", kind, annotation=typer.Context)]
    _, *taken = inspect.signature(work, eval_str=True).parameters.values()
    for each in taken:
        if each.name == "options":
            found += [_parameter(option) for option in declared.values()]
        else:
            found.append(each.replace(kind=kind))
    ends = {"as_json": _JsonOption, "debug": _DebugOption}
    return found + [inspect.Parameter(name, kind, default=False, annotation=ends[name]) for name in ends]


def _parameter(declared: DeclaredOption) -> inspect.Parameter:
    option = declared.option
    names = [declared.flag] if option.flag else []
    told = typer.Option(
        *names, help=option.help, rich_help_panel=option.group or None, metavar=option.metavar or None
    )
    default = declared.default if declared.default != () else None
    kind = _typed(declared)
    if default is None and not declared.required:
        kind = kind | None
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if declared.required else default,
        annotation=Annotated[kind, told],
    )


def _typed(declared: DeclaredOption) -> Any:
    """What the command line reads: records make other types of it."""
    if get_origin(declared.type) is tuple:
        return types.GenericAlias(list, get_args(declared.type)[:1])
    return declared.type if declared.type in _PLAIN or get_origin(declared.type) is Literal else str


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
