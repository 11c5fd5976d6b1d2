"""``rtlstm inspect``: what a model or a build holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.console import CommandSession
from rtlstm.cli.declared import takes_options
from rtlstm.cli.options import DebugOption, JsonOption
from rtlstm.cli.wording import next_command
from rtlstm.gen.frontends.reading import ReadOptions

if TYPE_CHECKING:
    from rtlstm.fpga.implementation import Implementation
    from rtlstm.spec.manifest import Manifest

__all__ = ["inspect"]


@takes_options(ReadOptions)
def inspect(
    path: Annotated[Path, typer.Argument(metavar="MODEL|DIR", help="A model file or a build folder.")],
    options: Mapping[str, Any],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show a model's layers and what is supported, or a build's formats, program and cycles."""
    with CommandSession(as_json, debug) as session:
        from rtlstm.spec.errors import ConfigurationError
        from rtlstm.spec.options import option

        if path.is_dir():
            if options:
                raise ConfigurationError(
                    f"{', '.join(map(option, options))} must be left out: a folder is given, not a model"
                )
            _inspect_build(session, path)
            return
        _inspect_model(session, path, ReadOptions(**options))


def _inspect_model(session: CommandSession, path: Path, options: ReadOptions) -> None:
    from rtlstm.gen.frontends import inspect_model, read_model
    from rtlstm.gen.frontends.describe import layer_options
    from rtlstm.spec.errors import ModelError

    report = inspect_model(path, options)
    session.fields = {"model": report.model_dump(mode="json"), "supported": not report.refusal}
    if report.nodes:
        session.table(
            f"{report.source} ({report.format})",
            ("node", "kind", "becomes", "detail"),
            [(node.name, node.kind, node.role, node.why) for node in report.nodes],
        )
    if report.refusal:
        raise ModelError(report.refusal)
    layers = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "inputs": layer.inputs,
            "outputs": layer.outputs,
            "options": layer_options(layer),
            "input_relu": layer.input_relu,
        }
        for layer in read_model(path, options).network.layers
    ]
    session.fields["layers"] = layers
    session.table(
        f"Network, from {report.input or 'its input'} to {report.output or 'its output'}",
        ("layer", "kind", "inputs", "outputs", "options", "ReLU first"),
        [(*list(layer.values())[:-1], "yes" if layer["input_relu"] else "") for layer in layers],
        right="  rr",
    )
    for text in report.notes:
        session.note(text)
    session.say("supported")
    session.next = next_command("generate", path, output=Path("build") / (report.name or path.stem))


def _inspect_build(session: CommandSession, folder: Path) -> None:
    from rtlstm.gen.builds.headroom import measure_headroom
    from rtlstm.spec.build_files import read_listed
    from rtlstm.spec.errors import BuildError, ImageError
    from rtlstm.spec.image import WeightImage
    from rtlstm.spec.manifest import Manifest
    from rtlstm.spec.packing import check_image

    manifest = Manifest.load(folder)
    image_path = folder / "weights.bin"
    headroom, damage = None, None
    try:
        headroom = measure_headroom(check_image(WeightImage.load(image_path, manifest), manifest))
        for file in manifest.files:
            read_listed(folder, manifest, file.path)
    except (BuildError, ImageError) as error:
        damage = error
    _describe_build(session, manifest, _measured(session, folder, manifest))
    size = image_path.stat().st_size if headroom is not None else None
    session.fields["image"] = {"ok": headroom is not None, "bytes": size}
    session.fields["files"] = {file.path: file.sha256 for file in manifest.files}
    session.fields["headroom"] = None if headroom is None else headroom.model_dump()
    if damage is not None:
        raise damage
    assert headroom is not None
    for file in manifest.files:
        session.say(f"{file.path}: as it was generated, SHA-256 {file.sha256[:16]}...")
    session.say(f"weights.bin: {size:,} bytes, of this build, CRC-32 right")
    session.say(f"headroom for a retrained model: {headroom.text}")


def _measured(session: CommandSession, folder: Path, manifest: "Manifest") -> "Sequence[Implementation]":
    """What 'rtlstm implement' found of this build, which its report holds."""
    from rtlstm.gen.builds.report import BuildReport
    from rtlstm.spec.errors import BuildError

    try:
        report = BuildReport.load(folder)
    except BuildError as error:
        session.note(str(error))
        return ()
    if report.build_hash != manifest.build_hash:
        session.note(
            f"{folder / 'report.json'} is of another build and is left out; generate the build again"
        )
        return ()
    return report.implementations


def _describe_build(
    session: CommandSession, manifest: "Manifest", measured: "Sequence[Implementation]"
) -> None:
    from rtlstm.gen.builds.program_words import describe_program
    from rtlstm.gen.builds.report import (
        format_reports,
        layer_reports,
        memory_reports,
        multiplier_reports,
        time_reports,
    )

    layers, formats = layer_reports(manifest), format_reports(manifest)
    memories, times = memory_reports(manifest), time_reports(manifest)
    multipliers = multiplier_reports(manifest)
    ops, cycles, parameters = manifest.program.ops, manifest.cycles, manifest.parameters
    session.fields = {
        "name": manifest.name,
        "rtlstm_version": manifest.rtlstm_version,
        "build_hash": manifest.build_hash,
        "device_hash": manifest.device_hash,
        "capacities": _capacities(manifest),
        "parameters": parameters.model_dump(mode="json"),
        "layers": [layer.model_dump() for layer in layers],
        "formats": [form.model_dump() for form in formats],
        "input_shifts": list(manifest.numerics.input_shifts),
        "ops": [op.model_dump() for op in ops],
        "program": [words.model_dump() for words in describe_program(manifest)],
        "memories": [memory.model_dump() for memory in memories],
        "multipliers": [some.model_dump() for some in multipliers],
        "cycles": cycles.model_dump(),
        "times": [time.model_dump() for time in times],
        "implementations": [found.model_dump(mode="json") for found in measured],
    }
    _show_network(session, manifest)
    if manifest.parameters.capacity is not None:
        session.table(
            f"Loadable: what the device ({manifest.device_hash[:8]}) holds, and what this network takes",
            ("capacity", "holds", "takes"),
            [(name, each["holds"], each["takes"]) for name, each in _capacities(manifest).items()],
            right=" rr",
        )
    session.table(
        "Formats",
        ("quantity", "format", "range", "step"),
        [(f.use, f"s{f.bits}.{f.fraction}", f"+-{f.limit:.6g}", f"{f.step:.4g}") for f in formats],
        right="  rr",
    )
    _show_program(session, manifest)
    session.table(
        "Memory",
        ("memory", "banks", "rows", "bits a row", "bits in all"),
        [(m.name, m.banks, m.rows, m.width, m.bits) for m in memories],
        right=" rrrr",
    )
    session.table(
        "Multipliers",
        ("multipliers", "count", "bits of the factors", "kind"),
        [(some.name, some.count, f"{some.a_bits} x {some.b_bits}", some.kind) for some in multipliers],
        right=" rr",
    )
    counts = cycles.model_dump(exclude={"layers"})
    session.table(
        "Cycles of a step"
        if manifest.sequence is None
        else "Cycles of the longest sequence, and of a step more",
        ("", ""),
        [(name.replace("_", " "), value) for name, value in counts.items()],
        right=" r",
    )
    if measured:
        _show_measured(session, measured)
    if any(found.seeds for found in measured):
        return
    session.table(
        "Times at an assumed clock, not placed and routed",
        ("clock", "latency", "interval"),
        [
            (f"{t.assumed_clock_mhz} MHz", f"{t.step_latency_us:g} us", f"{t.step_interval_us:g} us")
            for t in times
        ],
        right="rrr",
    )


def _show_measured(session: CommandSession, measured: "Sequence[Implementation]") -> None:
    """Show what there is of each device: its size, and its times if it was placed and routed."""
    session.table(
        "Measured by 'rtlstm implement': clocks of the median and the best seed, times at the median's",
        ("device", "most of", "taken", "median", "best", "latency", "interval"),
        [
            (
                found.label,
                most.name,
                f"{most.share:g} %",
                *(
                    "" if value is None else f"{value:.4g} {unit}"
                    for value, unit in (
                        (found.fmax_median_mhz, "MHz"),
                        (found.fmax_best_mhz, "MHz"),
                        (found.step_latency_us, "us"),
                        (found.step_interval_us, "us"),
                    )
                ),
            )
            for found in measured
            for most in [max(found.resources, key=lambda use: use.share)]
        ],
        right="  rrrrr",
    )


def _capacities(manifest: "Manifest") -> dict[str, dict[str, int]]:
    """What a loadable core holds and its network takes; nothing of a fixed one."""
    capacity = manifest.parameters.capacity
    if capacity is None:
        return {}
    takes = manifest.needs.model_dump()
    return {
        name.replace("_", "-"): {"holds": getattr(capacity, name), "takes": taken}
        for name, taken in takes.items()
    }


def _show_network(session: CommandSession, manifest: "Manifest") -> None:
    from rtlstm.gen.builds.report import layer_reports

    session.table(
        f"Build {manifest.name} ({manifest.build_hash[:8]}, rtlstm {manifest.rtlstm_version})",
        ("", ""),
        [
            (name.replace("_", " "), "no limit" if value is None else str(value))
            for name, value in manifest.parameters.model_dump(exclude={"pipeline", "capacity"}).items()
        ],
    )
    session.table(
        "Layers, and their cycles of a step: array at work, overhead, and product with own h",
        ("layer", "kind", "inputs", "outputs", "activation", "array", "overhead", "own h"),
        [
            (
                layer.name,
                layer.kind,
                layer.inputs,
                layer.outputs,
                {"dense": layer.activation, "sum": layer.activation, "skip": "", "product": ""}.get(
                    layer.kind, layer.kind
                ),
                layer.array_cycles,
                layer.overhead_cycles,
                layer.recurrent_cycles,
            )
            for layer in layer_reports(manifest)
        ],
        right="  rr rrr",
    )


def _show_program(session: CommandSession, manifest: "Manifest") -> None:
    from rtlstm.gen.builds.program_words import describe_program, program_notes

    session.table(
        "Program of a step: what the array does, in this order",
        ("", "when", "layer", "multiplies weights by", "then", "cycles", ""),
        [
            (
                index,
                op.when,
                op.layer,
                op.multiplies,
                op.then,
                f"{code.groups} x {code.columns} = {op.cycles}",
                "waits" if op.waits else "",
            )
            for index, (op, code) in enumerate(
                zip(describe_program(manifest), manifest.program.ops, strict=True)
            )
        ],
        right="r    r",
    )
    session.say("\n".join(program_notes(manifest)) + "\n")
