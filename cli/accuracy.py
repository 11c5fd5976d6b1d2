"""``rtlstm accuracy``: where the accuracy of a build goes."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rtlstm.cli.commands import generate_command
from rtlstm.cli.console import Console
from rtlstm.cli.data import check_page, load_array, load_inputs, load_lengths, load_state
from rtlstm.cli.options import (
    BatchFirstOption,
    BuildArgument,
    LengthsOption,
    PadOption,
    command,
)
from rtlstm.cli.results import Field, Figure, Found, Table, Text
from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.spec.manifest import Manifest


@command(ReadOptions)
def accuracy(
    console: Console,
    folder: BuildArgument,
    *,
    input_file: Annotated[
        Path,
        typer.Option(
            "--input",
            help="Inputs that did not calibrate the build, as floats, (T, I), (T, N, I) or (N, T, I): .npy, "
            "or .npz with an array x.",
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Model of the build, to measure the rounding of weights and to try other widths.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibrate",
            help="Data that calibrated the build, to try other widths.",
        ),
    ] = None,
    calibration_lengths: Annotated[
        str | None,
        typer.Option("--calibrate-lengths", help="Valid steps of these data, as generate had them."),
    ] = None,
    calibration_state: Annotated[
        Path | None,
        typer.Option("--calibrate-state", help="States in which they begin, as generate had them."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels of each sequence's last step, (N,), or of each step, (T, N): .npy, or "
            ".npz with an array y. Integers are classes; floats are targets with a last axis of outputs.",
        ),
    ] = None,
    lengths: LengthsOption = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="States in which the sequences begin: an .npz file with h and c. Default: the model's."
        ),
    ] = None,
    batch_first: BatchFirstOption = None,
    pad: PadOption = "back",
    options: Mapping[str, Any],
    page: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PAGE",
            help="Write the page to this file. Default: the build's report.html.",
        ),
    ] = None,
) -> None:
    """Measure a build's errors against float: per layer and step, what causes them, and what would help."""
    from rtlstm.gen.builds.accuracy import measure_build

    manifest = Manifest.load(folder)
    if page is not None:
        check_page(page)
    x = load_inputs(input_file, "the input")
    data = None if calibration is None else load_inputs(calibration, "the calibration data")
    known = None if labels is None else load_array(labels, "the labels", "y")
    valid = load_lengths(lengths)
    with console.progress() as progress:
        found = measure_build(
            folder,
            x,
            model=model,
            calibration=data,
            calibration_lengths=load_lengths(calibration_lengths),
            calibration_state=None if calibration_state is None else load_state(calibration_state),
            reading=ReadOptions(**options),
            labels=known,
            lengths=valid,
            state=None if state is None else load_state(state),
            batch_first=batch_first,
            pad=pad,
            page=page,
            progress=progress,
        )
    fields = found.model_dump(mode="json")
    for each, width in zip(fields["widths"], found.widths, strict=True):
        each["flag"] = width.change_text
    console.show(
        _ERRORS,
        name=manifest.name,
        input=str(input_file),
        page=str(page or folder / "report.html"),
        **fields,
    )
    for text in found.remarks:
        console.note(text)
    if found.advice is not None:
        files = {"": calibration, "-lengths": calibration_lengths, "-state": calibration_state}
        named = [f"--calibrate{flag} {shlex.quote(str(value))}" for flag, value in files.items() if value]
        its_pad = pad if calibration_lengths and pad != "back" else None
        order = {"batch_first": batch_first, "pad": its_pad}
        chosen = {**options, **found.advice.options, **(order if named else {})}
        console.next = " ".join([generate_command(model, folder, chosen), *named])
    if model is None:
        console.note(
            "the build holds rounded weights alone: give --model MODEL to see what rounding them costs, "
            "and which width to change"
        )


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _steps(found: Found) -> str:
    return f"{found['total_steps']:,} steps"


def _split(found: Found) -> list[Found]:
    return [each | {"all": found["output"]["rms_error"]} for each in found["output"]["parts"]]


def _layers(found: Found) -> list[Found]:
    layers, output = found["layers"], found["output"]
    same = all(layers[-1][name] == output[name] for name in ("rms_signal", "rms_error", "max_abs_error"))
    return [*layers] if same else [*layers, output]


def _alone(part: str) -> Field:
    """A layer's error if nothing but one part is rounded."""

    def reading(layer: Found) -> str | None:
        return next((_short(each["alone"]) for each in layer["parts"] if each["part"] == part), "-")

    return Figure(part, reading)


def _widths(found: Found) -> list[Found]:
    now = found["output"]["rms_error"]
    return [each | {"now": now} for each in found["widths"] if not each["refusal"]]


def _changed_error(each: Found) -> str:
    about = "" if each["measured"] else "about "
    return f"{each['now']:.3g} -> {about}{each['rms_error']:.3g}"


def _cost(name: str) -> Field:
    """What a build with these widths takes."""
    texts = {"luts": "LUTs", "block_rams": "block RAMs", "step_latency_cycles": "cycles"}

    def reading(each: Found) -> str | None:
        value = (each["cost"] or {}).get(name)
        return None if value is None else f"{value:,}"

    return Figure(texts[name], reading)


def _refused(found: Found) -> str | None:
    """Say why the widths that cannot be built cannot."""
    refused = [f"{each['flag']}: {each['refusal']}" for each in found["widths"] if each["refusal"]]
    return "\n".join(["Widths that cannot be built:", *refused]) if refused else None


def _relative(each: Found) -> str | None:
    if not each["now"]:
        return None
    return f"{round(100 * (each['rms_error'] / each['now'] - 1)):+d} %"


def _saturated(found: Found) -> list[Found]:
    return [each for each in found["saturations"] if each["saturated"]]


def _worst(each: Found) -> str:
    counts = each["counts"]
    number = counts.index(max(counts))
    kind = {"input": "feature", "pre-activations": "row"}.get(each["quantity"], "unit")
    return f"{kind} {number}, {counts[number]:,} times"


def _score(found: Found) -> list[Found]:
    return [] if found["score"] is None else [found["score"]]


_ERRORS = (
    Text(lambda found: found["verdict"] + "\n"),
    Table(
        lambda found: f"Error of {found['name']}'s outputs, rms, by what is rounded; {_steps(found)}",
        _split,
        Field("part", "{part}"),
        Figure("all rounded", "{all:.3g}"),
        Figure("all but this", "{without:.3g}"),
        Figure("this alone", "{alone:.3g}"),
    ),
    Table(
        "Error of each layer's results, rms; on the right with one part alone rounded",
        _layers,
        Field("layer", "{name}"),
        Figure("float", "{rms_signal:.3g}"),
        Figure("error", "{rms_error:.3g}"),
        Figure("largest", "{max_abs_error:.3g}"),
        Figure("SNR, dB", lambda layer: layer["snr_db"] and f"{layer['snr_db']:.1f}"),
        *(_alone(part) for part in ("weights", "activations", "tables", "state")),
    ),
    Table(
        "With other widths, the cheapest first",
        _widths,
        Field("options", "{flag}"),
        Figure("error of the outputs", _changed_error),
        Figure("change", _relative),
        *(_cost(name) for name in ("luts", "block_rams", "step_latency_cycles")),
    ),
    Text(_refused),
    Table(
        "Values that saturated",
        _saturated,
        Field("of", lambda each: each["name"] or "the network"),
        Field("quantity", "{quantity}"),
        Figure("saturated", "{saturated:,}"),
        Figure("of all", lambda each: f"{100 * each['saturated'] / each['values']:.2g} %"),
        Field("most often", _worst),
    ),
    Table(
        "Against the labels",
        _score,
        Field("measure", "{measure}"),
        Figure("labels", "{labels:,}"),
        Figure("float", "{float_score:.4g}"),
        Figure("fixed", "{fixed_score:.4g}"),
        Figure(
            "decisions changed",
            lambda score: None if score["changed"] is None else f"{score['changed']:,}",
        ),
    ),
    Text(lambda found: f"written: {found['page']}"),
)
