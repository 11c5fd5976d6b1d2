"""``rtlstm inspect``: what a model or a build holds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import typer

from rtlstm.cli.commands import as_typed, chosen_for, next_command
from rtlstm.cli.console import Console
from rtlstm.cli.data import check_page
from rtlstm.cli.options import command
from rtlstm.cli.results import Field, Figure, Found, Table, Text
from rtlstm.fpga.implementation import Implementation, ResourceUse
from rtlstm.gen.builds.advice import Headroom, measure_headroom
from rtlstm.gen.builds.report import (
    BuildReport,
    SpatialReport,
    format_reports,
    layer_reports,
    memory_reports,
    multiplier_reports,
    time_reports,
)
from rtlstm.gen.builds.report_html import Pictures, check_drawing
from rtlstm.gen.frontends import ReadResult, try_model
from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.gen.frontends.recurrent import layer_options
from rtlstm.spec.errors import BuildError, ConfigurationError, ImageError, ModelError
from rtlstm.spec.files import write_file
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import Manifest, read_listed
from rtlstm.spec.numerics import SKIPS
from rtlstm.spec.packing import check_image
from rtlstm.spec.program.step import Op
from rtlstm.spec.record import Record


@command(ReadOptions)
def inspect(
    console: Console,
    path: Annotated[Path, typer.Argument(metavar="MODEL|DIR", help="A model file or a build folder.")],
    page: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PAGE", help="Write a page with pictures of the model or build."
        ),
    ] = None,
    *,
    options: Mapping[str, Any],
) -> None:
    """Show a model's layers and what is supported, or a build's formats, program and cycles."""
    if page is not None:
        check_drawing()
        check_page(page)
    if path.is_dir():
        if options:
            names = ", ".join(f"`{name}`" for name in options)
            raise ConfigurationError(f"{names} must be left out: a folder is given, not a model")
        _inspect_build(console, path, page)
        return
    _inspect_model(console, path, ReadOptions(**options), page)


def _inspect_model(console: Console, path: Path, options: ReadOptions, page: Path | None) -> None:
    found = try_model(path, options)
    report = found.report if isinstance(found, ReadResult) else found
    console.show(_NODES, model=report.model_dump(mode="json"), supported=not report.refusal)
    if not isinstance(found, ReadResult):
        raise ModelError(report.refusal)
    layers = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "inputs": layer.inputs,
            "outputs": layer.outputs,
            "options": layer_options(layer),
            "input_relu": layer.sources[0].relu,
        }
        for layer in found.network.layers
    ]
    console.show(_NETWORK, layers=layers)
    if page is not None:
        _write_page(console, page, Pictures.of_model(found), report.name or path.stem)
    for text in (*report.notes, *([report.layout] if report.layout else [])):
        console.note(text)
    # Only the caller knows how long the longest sequence is.
    longest = {"max-steps": "STEPS"} if found.network.whole_sequences else {}
    following = next_command("generate", path, output=Path("build") / (report.name or path.stem), **longest)
    chosen = (as_typed(*each) for each in options.model_dump(exclude_defaults=True).items())
    console.next = " ".join([following, *chosen])


def _write_page(console: Console, page: Path, pictures: Pictures, title: str) -> None:
    write_file(page, pictures.page(title))
    console.show(_PAGE, page=str(page))


def _inspect_build(console: Console, folder: Path, page: Path | None) -> None:
    manifest = Manifest.load(folder)
    image_path = folder / "weights.bin"
    headroom, damage = None, None
    try:
        headroom = measure_headroom(check_image(WeightImage.load(image_path, manifest), manifest))
        for file in manifest.files:
            read_listed(folder, manifest, file.path)
    except (BuildError, ImageError) as error:
        damage = error
    report = _report(console, folder, manifest)
    console.show(
        _BUILD,
        **_describe_build(manifest),
        fit=None if report is None or report.fit is None else report.fit.model_dump(mode="json"),
        implementations=[]
        if report is None
        else [found.model_dump(mode="json") for found in report.implementations],
    )
    console.show(
        image={
            "ok": headroom is not None,
            "bytes": image_path.stat().st_size if headroom is not None else None,
        },
        files={file.path: file.sha256 for file in manifest.files},
        headroom=None if headroom is None else headroom.model_dump(),
    )
    if damage is not None:
        raise damage
    console.show(_CONTENT)
    if page is not None:
        _write_page(console, page, Pictures.of_build(BuildReport.load(folder), manifest), manifest.name)


def _report(console: Console, folder: Path, manifest: Manifest) -> BuildReport | None:
    """The report of this build; None, with a note, if it cannot be read or is of another build."""
    try:
        report = BuildReport.load(folder)
    except BuildError as error:
        console.note(str(error))
        return None
    if report.build_hash != manifest.build_hash:
        console.note(
            f"{folder / 'report.json'} is of another build and is left out; generate the build again"
        )
        return None
    return report


def _describe_build(manifest: Manifest) -> dict[str, Any]:
    """The JSON object of what a manifest says."""
    spatial = SpatialReport.of(manifest)
    return {
        "name": manifest.name,
        "rtlstm_version": manifest.rtlstm_version,
        "build_hash": manifest.build_hash,
        "device_hash": manifest.device_hash,
        "capacities": _capacities(manifest),
        "parameters": manifest.parameters.model_dump(mode="json"),
        "pipeline_name": manifest.parameters.pipeline_name,
        "spatial": None if spatial is None else spatial.model_dump(),
        "layers": [layer.model_dump() for layer in layer_reports(manifest)],
        "formats": [form.model_dump() for form in format_reports(manifest)],
        "input_factors": list(manifest.numerics.input_factors),
        "input_zeros": list(manifest.numerics.input_zeros),
        "ops": [op.model_dump() for op in manifest.program.ops],
        "program": [words.model_dump() for words in describe_program(manifest)],
        "program_notes": program_notes(manifest),
        "whole_sequences": manifest.sequence is not None,
        "memories": [memory.model_dump() for memory in memory_reports(manifest)],
        "multipliers": [some.model_dump() for some in multiplier_reports(manifest)],
        "cycles": manifest.cycles.model_dump(),
        "times": [time.model_dump() for time in time_reports(manifest)],
    }


def _capacities(manifest: Manifest) -> dict[str, dict[str, int]]:
    """What a loadable core holds and its network takes; nothing of a fixed one."""
    return {name: {"holds": holds, "takes": takes} for name, (holds, takes) in manifest.capacities.items()}


def _nodes(found: Found) -> list[Found]:
    """The model's nodes; what is in the error that follows is not told twice."""
    model = found["model"]
    return [
        node | {"why": "see the error"}
        if node["role"] == "refused" and node["why"] in model["refusal"]
        else node
        for node in model["nodes"]
    ]


def _activation(layer: Found) -> str:
    """A dense layer's or a sum's; what else a kind of layer computes is its name."""
    kind, activation = str(layer["kind"]), str(layer["activation"])
    if kind in SKIPS:
        return ""
    return {"dense": activation, "sum": activation, "product": ""}.get(kind, kind)


def _parameters(found: Found) -> list[tuple[str, str]]:
    values = found["parameters"] | {"pipeline": found["pipeline_name"]}
    if found["spatial"] is not None:
        kept = ("beat_in", "beat_out", "streams", "bus", "family")
        values = {name: values[name] for name in kept} | found["spatial"]
    return [
        (name.replace("_", " "), "no limit" if value is None else str(value))
        for name, value in values.items()
        if name != "capacity"
    ]


def _cycles(found: Found) -> list[tuple[str, int]]:
    return [(name.replace("_", " "), value) for name, value in found["cycles"].items() if name != "layers"]


def _op_cycles(row: Found) -> str:
    op, cycles = row["op"], row["words"]["cycles"]
    skipped = op["groups"] * op["columns"] - cycles
    # Behind all groups' words of one section come those of the next.
    columns = f"({' + '.join(map(str, op['sections']))})" if "sections" in op else op["columns"]
    return f"{op['groups']} x {columns}{f' - {skipped}' if skipped else ''} = {cycles}"


def _operations(found: Found) -> list[dict[str, Any]]:
    """The operations of a step: what they are, in words, and what the hardware is told."""
    pairs = zip(found["program"], found["ops"], strict=True)
    return [{"index": index, "words": words, "op": op} for index, (words, op) in enumerate(pairs)]


def _fullest(found: Implementation) -> ResourceUse:
    """The resource of which the core takes most."""
    return max(found.resources, key=lambda use: use.share)


def _in_unit(name: str, unit: str) -> Callable[[Implementation], str | None]:
    """Write a figure that there is only after place and route."""

    def reading(found: Implementation) -> str | None:
        value = getattr(found, name)
        return None if value is None else f"{value:.4g} {unit}"

    return reading


def _headroom(found: Found) -> str | None:
    """None where no retrained weights can be loaded."""
    if found["spatial"] is not None:
        return None
    return f"headroom for a retrained model: {Headroom(**found['headroom']).text}"


def _files(found: Found) -> str:
    return "\n".join(
        f"{path}: as it was generated, SHA-256 {digest[:16]}..." for path, digest in found["files"].items()
    )


_NAME, _VALUE = Field("", lambda pair: pair[0]), Field("", lambda pair: pair[1])
_COUNT = Figure("", lambda pair: pair[1])

_PAGE = (Text("written: {page}"),)

_NODES = (
    Table(
        "{model[source]} ({model[format]})",
        _nodes,
        Field("node", "{name}"),
        Field("kind", "{kind}"),
        Field("becomes", "{role}"),
        Field("detail", "{why}"),
    ),
)

_NETWORK = (
    Table(
        lambda found: (
            f"Network, from {found['model']['input'] or 'its input'} to "
            f"{found['model']['output'] or 'its output'}"
        ),
        lambda found: found["layers"],
        Field("layer", "{name}"),
        Field("kind", "{kind}"),
        Figure("inputs", "{inputs:,}"),
        Figure("outputs", "{outputs:,}"),
        Field("options", "{options}"),
        Field("ReLU first", lambda layer: "yes" if layer["input_relu"] else None),
    ),
    Text("supported"),
)


def _negative_overhead(found: Found) -> str | None:
    """Say what it means: people think of a mistake."""
    if all(layer["overhead_cycles"] >= 0 for layer in found["layers"]):
        return None
    return (
        "A negative overhead: the array multiplies for this layer while the layer before drains or the input "
        "arrives."
    )


_BUILD = (
    Table(
        lambda found: f"Build {found['name']} ({found['build_hash'][:8]}, rtlstm {found['rtlstm_version']})",
        _parameters,
        _NAME,
        _VALUE,
    ),
    Text(lambda found: None if found["fit"] is None else f"{chosen_for(found['fit'])}\n"),
    Table(
        "Layers, and their cycles of a step: array at work, overhead, and product with own h",
        lambda found: found["layers"],
        Field("layer", "{name}"),
        Field("kind", "{kind}"),
        Figure("inputs", "{inputs:,}"),
        Figure("outputs", "{outputs:,}"),
        Field("activation", _activation),
        Figure("array", "{array_cycles:,}"),
        Figure("overhead", "{overhead_cycles:,}"),
        Figure("own h", "{recurrent_cycles:,}"),
    ),
    Text(_negative_overhead),
    Table(
        lambda found: (
            f"Loadable: what the device ({found['device_hash'][:8]}) holds, and what this network takes"
        ),
        lambda found: found["capacities"].items(),
        Field("capacity", lambda pair: pair[0]),
        Figure("holds", lambda pair: pair[1]["holds"]),
        Figure("takes", lambda pair: pair[1]["takes"]),
    ),
    Table(
        "Formats",
        lambda found: found["formats"],
        Field("quantity", "{use}"),
        Field("format", "s{bits}.{fraction}"),
        Figure("range", "+-{limit:.6g}"),
        Figure("step", "{step:.4g}"),
    ),
    Table(
        "Program of a step: what the array does, in this order",
        _operations,
        Figure("", "{index}"),
        Field("when", "{words[when]}"),
        Field("layer", "{words[layer]}"),
        Field("multiplies weights by", "{words[multiplies]}"),
        Field("then", "{words[then]}"),
        Figure("cycles", _op_cycles),
        Field("", lambda row: "waits" if row["words"]["waits"] else None),
    ),
    Text(lambda found: "\n".join(found["program_notes"]) + "\n"),
    Table(
        "Memory",
        lambda found: found["memories"],
        Field("memory", "{name}"),
        Figure("banks", "{banks:,}"),
        Figure("rows", "{rows:,}"),
        Figure("bits a row", "{width:,}"),
        Figure("bits in all", "{bits:,}"),
    ),
    Table(
        "Multipliers",
        lambda found: found["multipliers"],
        Field("multipliers", "{name}"),
        Figure("count", "{count:,}"),
        Figure("bits of the factors", "{a_bits} x {b_bits}"),
        Field("kind", "{kind}"),
    ),
    Table(
        lambda found: (
            "Cycles of the longest sequence, and of a step more"
            if found["whole_sequences"]
            else "Cycles of a step"
        ),
        _cycles,
        _NAME,
        _COUNT,
    ),
    Table(
        "Measured by 'rtlstm implement': clocks of the median and the best seed, times at the median's",
        lambda found: [Implementation.model_validate(each) for each in found["implementations"]],
        Field("device", "{label}"),
        Field("most of", lambda found: _fullest(found).name),
        Figure("taken", lambda found: f"{_fullest(found).share:g} %"),
        Figure("median", _in_unit("fmax_median_mhz", "MHz")),
        Figure("best", _in_unit("fmax_best_mhz", "MHz")),
        Figure("latency", _in_unit("step_latency_us", "us")),
        Figure("interval", _in_unit("step_interval_us", "us")),
    ),
    Table(
        "Times at an assumed clock, not placed and routed",
        # None where there are measured ones.
        lambda found: [] if any(each["seeds"] for each in found["implementations"]) else found["times"],
        Figure("clock", "{assumed_clock_mhz} MHz"),
        Figure("latency", "{step_latency_us:g} us"),
        Figure("interval", "{step_interval_us:g} us"),
    ),
)

_CONTENT = (
    Text(_files),
    Text("weights.bin: {image[bytes]:,} bytes, of this build, CRC-32 right"),
    Text(_headroom),
)
"""What is shown of a build whose files are as they were generated."""


When = Literal["before the input", "with the input", "next input is there", "every step"]


class OpWords(Record):
    """What one operation is, in words."""

    when: When
    """``next input is there`` stands for what is done instead if a step ends with its stream's next input."""
    layer: str
    """Its number, from 1, and its name."""
    multiplies: str
    """The vector that the layer's weights are multiplied by."""
    then: str
    """What becomes of the sums."""
    cycles: Annotated[int, pydantic.Field(ge=1)]
    """Cycles of the array: row groups x words, less the words that are skipped."""
    waits: bool
    """Its words wait until the results that they read have been written."""


def describe_program(manifest: Manifest) -> tuple[OpWords, ...]:
    """Describe every operation of a build's program, in their order."""
    return tuple(
        OpWords(
            when=_when(manifest, index),
            layer=f"{op.layer + 1} {manifest.layers[op.layer].name}",
            multiplies=_vector(manifest, op),
            then=_then(manifest, op),
            cycles=op.words,
            waits=op.waits_for_results,
        )
        for index, op in enumerate(manifest.program.ops)
    )


def program_notes(manifest: Manifest) -> tuple[str, ...]:
    """Say what the words mean: sizes of the array, and which operations take the place of which."""
    parameters, program = manifest.parameters, manifest.program
    if manifest.spatial is not None:
        return ()
    notes = [
        f"cycles: groups of {parameters.lanes} rows x words of {parameters.macs} columns, a word a cycle; "
        "what waits, begins when the results that it reads have been written"
    ]
    if program.kept:
        notes[0] += "; words that are zero in a whole group are skipped"
    if program.prefetch is not None:
        last = len(program.ops) - 1
        notes.append(
            f"a step that ends when its stream's next input is there goes on with "
            f"{program.prefetch} to {last}, which take the place of 0 to {program.body}"
        )
    return tuple(notes)


def _when(manifest: Manifest, index: int) -> When:
    program = manifest.program
    if manifest.sequence is not None:
        return "every step"
    if index < program.body:
        return "before the input"
    return "with the input" if program.prefetch is None or index < program.prefetch else "next input is there"


def _vector(manifest: Manifest, op: Op) -> str:
    if op.kind == "recurrent":
        return "own h"
    read = op.layer + 1 - manifest.layers[op.layer].before
    given = "the input" if manifest.sequence is None else "its pass's input"
    text = given if op.from_input else f"results of layer {read}"
    return f"ReLU of {text}" if op.relu else text


def _then(manifest: Manifest, op: Op) -> str:
    added = "adds the kept sums" if op.adds_partials else "adds biases"
    if op.writes_partials:
        return f"{added}, keeps the sums"
    layer = manifest.layers[op.layer]
    gives = "outputs" if layer.dense else "new h and c" if layer.kind == "lstm" else "new h"
    # In whole sequences, results leave the array for the sequence memory.
    leaves = "sent" if manifest.sequence is None else "stored"
    return f"{added}: {gives}, {leaves}" if op.emit else f"{added}: {gives}"
