"""``rtlstm generate``: a model becomes a build folder."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rtlstm.cli.commands import chosen_for, next_command
from rtlstm.cli.console import Console
from rtlstm.cli.data import load_array, load_inputs, load_lengths, load_state
from rtlstm.cli.options import (
    CALIBRATE,
    CalibrationBatchFirstOption,
    CalibrationLengthsOption,
    CalibrationPadOption,
    NumberOption,
    command,
)
from rtlstm.cli.results import Field, Figure, Found, Table, Text, Values
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.request import HardwareRequest
from rtlstm.fpga.resources import count_text
from rtlstm.gen.builds.advice import Headroom
from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.layout import count_of
from rtlstm.spec.parameters import Capacity

_LoadableOption = partial(typer.Option, rich_help_panel="Loadable program")


@command(HardwareRequest, QuantizationSettings, ReadOptions)
def generate(
    console: Console,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A model file: ONNX, .pt2, TorchScript, Keras, TFLite, safetensors, state dict or .nam.",
        ),
    ],
    folder: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="The folder to write: new, empty, or a build to replace."
        ),
    ],
    options: Mapping[str, Any],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the build and of its top module. Default: the model file's name."),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE|BOARD",
            help="Choose the array with the shortest step that fits this device or board. Sizes "
            "that you give are kept.",
        ),
    ] = None,
    calibration: Annotated[Path | None, CALIBRATE] = None,
    calibration_lengths: CalibrationLengthsOption = None,
    calibration_state: Annotated[
        Path | None,
        NumberOption(
            "--calibrate-state",
            help="State in which each sequence of the typical inputs begins: an .npz file with h "
            "and c. Default: the model's, mostly zeros.",
        ),
    ] = None,
    calibration_from: Annotated[
        Path | None,
        NumberOption(
            "--calibrate-from",
            metavar="BUILD",
            help="Build in whose final states the typical inputs' sequences begin, such as a decoder's "
            "encoder. It replaces --calibrate-state.",
        ),
    ] = None,
    calibration_from_input: Annotated[
        Path | None,
        NumberOption(
            "--calibrate-from-input",
            help="What the build of --calibrate-from reads: .npy, or .npz with an array x. Default: its own "
            "typical inputs.",
        ),
    ] = None,
    calibration_from_lengths: Annotated[
        str | None,
        NumberOption(
            "--calibrate-from-lengths", help="Number of valid steps of each of these sequences. Default: all."
        ),
    ] = None,
    batch_first: CalibrationBatchFirstOption = None,
    pad: CalibrationPadOption = "back",
    finetune: Annotated[
        Path | None,
        NumberOption(
            metavar="DATA",
            help="Train the rounded network on the float network's outputs for these typical "
            "inputs. It needs no labels, takes minutes, and needs rtlstm[torch].",
        ),
    ] = None,
    finetune_updates: Annotated[
        int | None, NumberOption(min=1, help="Largest number of updates of --finetune. Default: 1500.")
    ] = None,
    finetune_prune: Annotated[
        float | None,
        NumberOption(
            min=0.0,
            max=0.99,
            help="Share of the weights that --finetune sets to zero for --skip-zeros, 0 to 0.99. "
            "It needs --lanes and --macs.",
        ),
    ] = None,
    capacities: Annotated[
        bool,
        _LoadableOption(
            "--loadable",
            help="Load the program like the weights, so that the device can run other networks "
            "within its capacities.",
        ),
    ] = False,
    capacity: Annotated[
        list[str] | None,
        _LoadableOption(
            metavar="NAME=NUMBER",
            help="A capacity of a loadable device: operations, inputs, outputs, weight-rows, "
            "shift-rows, bias-rows, partial-rows, vector-words, cell-rows, headroom or networks. "
            "Default: what the network takes, up to the next power of two. May be repeated.",
        ),
    ] = None,
    device: Annotated[
        Path | None,
        _LoadableOption(
            "--for",
            metavar="DEVICE",
            help="Make a build for the hardware of this build folder: of a retrained model, or of "
            "another network if it is loadable.",
        ),
    ] = None,
) -> None:
    """Turn a model into a build: Verilog, manifest, weights and report."""
    from rtlstm.gen.builds.compiled import compile
    from rtlstm.gen.builds.folder import former_results

    former = former_results(folder)
    given: dict[str, Any] = {
        "calibration": None if calibration is None else load_inputs(calibration, "the calibration data"),
        "calibration_lengths": load_lengths(calibration_lengths),
        "calibration_state": None if calibration_state is None else load_state(calibration_state),
        "calibration_from": calibration_from,
        "calibration_from_input": None
        if calibration_from_input is None
        else load_array(calibration_from_input, "what the build reads"),
        "calibration_from_lengths": load_lengths(calibration_from_lengths),
        "batch_first": batch_first,
        "pad": pad,
        **options,
    }
    built: dict[str, Any] = {
        "folder": folder,
        "name": name,
        "fit": fit,
        "device": device,
        "capacities": _capacities(capacities, capacity or []),
    }
    errors = None
    with console.progress() as progress:
        asked = {"updates": finetune_updates, "prune": finetune_prune}
        asked = {key: value for key, value in asked.items() if value is not None}
        if finetune is None:
            if asked:
                raise ConfigurationError(
                    "--finetune-updates and --finetune-prune say how --finetune trains: give it data, or "
                    "leave them out"
                )
            compile(model, progress=progress, **built, **given)
        else:
            if calibration is not None:
                raise ConfigurationError(
                    "--finetune's data calibrate the formats, too: leave out --calibrate, or give all of "
                    "the data to --finetune"
                )
            from rtlstm.train.build import finetune_build
            from rtlstm.train.finetune import FinetuneRequest

            given["calibration"] = load_array(finetune, "the data to train on")
            request = FinetuneRequest(**asked)
            errors = finetune_build(model, request, built, given, progress)
    from rtlstm.gen.builds.report import BuildReport

    report = json.loads((folder / "report.json").read_text())
    removed = [result.model_dump(mode="json") for result in former]
    trained = None if errors is None else errors.model_dump(mode="json")
    verdict = BuildReport.load(folder).verdict
    console.show(
        _BUILD, folder=str(folder), report=report, removed=removed, finetuned=trained, verdict=verdict
    )
    for text in (*report["assumptions"], *report["notes"]):
        console.note(text)
    if fit is not None and (board := report["fit"]["estimate"]["board"]):
        console.note(
            f"clock and time are those expected of rtlstm bitstream on {board}: the core's estimate "
            "less a margin; place and route decides"
        )
    console.next = next_command("simulate", folder)


def _capacities(loadable: bool, given: Sequence[str]) -> dict[str, int] | None:
    """Read ``NAME=NUMBER``, each name at most once; None if the program is fixed."""
    if given and not loadable:
        raise ConfigurationError("--capacity is for loadable devices: give --loadable, too")
    chosen: dict[str, int] = {}
    for text in given:
        name, _, number = text.partition("=")
        field = name.replace("-", "_")
        if field not in Capacity.model_fields or not number.isdecimal() or field in chosen:
            names = [known.replace("_", "-") for known in Capacity.model_fields]
            raise ConfigurationError(
                f"--capacity must be NAME=NUMBER, each name once, with a name of {', '.join(names)}, "
                f"not {text!r}"
            )
        chosen[field] = int(number)
    return chosen if loadable else None


def _finetuned(found: Found) -> list[Found]:
    """The errors before and after training; nothing without it."""
    errors = found["finetuned"]
    if errors is None:
        return []
    same = errors["rounded"] == errors["first"]
    names = ("rounded", "trained") if same else ("rounded", "first", "trained")
    return [{"name": name, **errors[name]} for name in names]


def _trained(found: Found) -> str | None:
    errors = found["finetuned"]
    if errors is None:
        return None
    data = f"{errors['steps']:,} steps that training did not see, after {errors['updates']:,} updates"
    if errors["diverged"]:
        data += ", in the last of which training diverged; the best weights before are kept"
    if errors["pruned"]:
        saved = _saved(errors["stages"])
        return f"The build has the trained and pruned weights; errors are those on {data}.{saved}"
    if errors["helped"]:
        return f"The build has the trained weights; errors are those on {data}."
    return f"Training did not help on {data}: the build has the weights that are rounded only."


def _saved(stages: list[Found]) -> str:
    """What pruning saved; empty if the words were those of an existing device."""
    if not stages:
        return ""
    before, after = (stages[at]["array_cycles"] for at in (0, -1))
    return (
        f" Pruning in {len(stages) - 1} stages took the array from {before:,} to {after:,} cycles of a step."
    )


_KINDS = {"rounded": "rounded only", "first": "before training", "trained": "trained"}


def _array(report: Found) -> str:
    if report["spatial"] is not None:
        from rtlstm.gen.builds.report import SpatialReport

        return SpatialReport.model_validate(report["spatial"]).text
    text = f"{report['lanes']} lanes x {report['macs']} multipliers"
    in_luts, more = report["lut_macs"], report["lut_lanes"]
    if in_luts:
        text += f", {in_luts} of each lane's of LUTs" + (f" ({in_luts + 1} in {more} lanes)" if more else "")
    elif more:
        text += f", 1 of LUTs in each of {more} lanes"
    if report["weight_memory"] != "block":
        text += ", weights in large memories"
    if report["table_memory"] == "rom":
        text += ", tables of LUTs"
    return f"{text}, {report['gate_units']} gate units" if report["gate_units"] > 1 else text


def _use(report: Found) -> str | None:
    return None if report["spatial"] else f"{100 * report['cycles']['array_use']:.1f} %"


def _headroom(report: Found) -> str | None:
    """None where no retrained weights can be loaded."""
    return None if report["spatial"] else Headroom(**report["headroom"]).text


def _estimates(found: Found) -> list[Found]:
    """What was chosen for a device, or what to expect on the family's devices."""
    fit = found["report"]["fit"]
    estimates: list[Found] = found["report"]["estimates"] if fit is None else [fit["estimate"]]
    return estimates


def _chosen(found: Found) -> str | None:
    fit = found["report"]["fit"]
    return None if fit is None else chosen_for(fit)


def _device(estimate: Found) -> str:
    return f"{estimate['board']}, {estimate['device']}" if estimate["board"] else str(estimate["device"])


def _of(estimate: Found, name: str) -> str:
    """How much is taken of how much a device has."""
    return f"{count_text(estimate[name])} of {getattr(find_device(estimate['device']).device, name):,}"


def _clock(estimate: Found) -> str | None:
    return Estimate.model_validate(estimate).clock_text or None


def _latency(estimate: Found) -> str | None:
    return None if estimate["step_latency_us"] is None else f"{estimate['step_latency_us']:.4g} us"


def _chains(estimate: Found) -> str | None:
    return None if estimate["chain_share"] is None else f"{estimate['chain_share']:g} %"


def _error(found: Found, trained: bool) -> str | None:
    """The build's error, if it is against these weights."""
    from rtlstm.gen.quantise.accuracy import Accuracy

    report = found["report"]
    return Accuracy(**report["accuracy"]).text if report["trained"] == trained else None


def _cycles(found: Found, name: str) -> str:
    return count_of(found["report"]["cycles"][name], "cycle")


_BUILD = (
    Values(
        "Build {report[name]} in {folder}",
        Field("weights and biases", "{report[parameters]:,}"),
        Field("array", lambda found: _array(found["report"])),
        Field("memory", lambda found: f"{found['report']['memory_bits'] / 1024:.1f} Kibit"),
        Field("step latency", lambda found: _cycles(found, "step_latency_cycles")),
        Field("step interval", lambda found: _cycles(found, "step_interval_cycles")),
        Field("array in use", lambda found: _use(found["report"])),
        Field("error against float", lambda found: _error(found, trained=False)),
        Field("error against the trained weights in float", lambda found: _error(found, trained=True)),
        Field("largest float output", "{report[accuracy][max_abs_output]:.4g}"),
        Field(
            "saturated",
            "{report[accuracy][input_saturations]:,} inputs, "
            "{report[accuracy][cell_saturations]:,} cell states",
        ),
        Field(
            "inputs below half a step",
            "{report[accuracy][losses][0][lost]:,} of {report[accuracy][losses][0][values]:,} that are not 0",
        ),
        Field("headroom for a retrained model", lambda found: _headroom(found["report"])),
        Field("measured on", "{report[accuracy][description]}"),
    ),
    Table(
        "Estimates, before synthesis (multipliers and block RAM are exact)",
        _estimates,
        Field("device", _device),
        Figure("LUTs", "{luts:,}"),
        Figure("flip-flops", "{ffs:,}"),
        Figure("logic cells", "{cell_share:g} %"),
        Figure("carry chains", _chains),
        Figure("multipliers", lambda estimate: _of(estimate, "multipliers")),
        Figure("block RAMs", lambda estimate: _of(estimate, "block_rams")),
        Figure("clock", _clock),
        Figure("step latency", _latency),
        Field("fits", lambda estimate: "yes" if estimate["fits"] else "no"),
    ),
    Text(_chosen),
    Table(
        "Against the float network",
        _finetuned,
        Field("weights", lambda errors: _KINDS[errors["name"]]),
        Figure("rms error", "{rms:.3g}"),
        Figure("largest error", "{largest:.3g}"),
    ),
    Table(
        "Fewer digits of weights, fewer adders",
        lambda found: [] if found["finetuned"] is None else found["finetuned"]["digits"],
        Figure("price of a digit", "{digit_price:g}"),
        Figure("adders", "{adders:,}"),
        Figure("rms error", "{rms:.3g}"),
        Field("built", lambda trial: "yes" if trial["built"] else "no"),
    ),
    Text(_trained),
    Text("{verdict}"),
)
