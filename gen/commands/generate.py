"""``rtlstm generate``: a model becomes a build folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.gen.commands.options import (
    DebugOption,
    DenseOption,
    JsonOption,
    LstmOption,
    OutputTensorOption,
)
from rtlstm.gen.console import Session

if TYPE_CHECKING:
    from rtlstm.spec.parameters import Parameters

__all__ = ["generate"]

_HARDWARE, _NUMBERS = "Hardware", "Numbers"


def generate(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="ONNX file, safetensors file or state dict.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="The build folder: new, empty or a build to replace."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the build and its top module.")] = None,
    family: Annotated[
        str,
        typer.Option(
            help="generic, ecp5, ice40, nexus, gowin, xilinx or intel.", rich_help_panel=_HARDWARE
        ),
    ] = "generic",
    lanes: Annotated[
        int, typer.Option(help="Dot-product engines, a multiple of 4.", rich_help_panel=_HARDWARE)
    ] = 4,
    macs: Annotated[int, typer.Option(help="Multipliers per lane.", rich_help_panel=_HARDWARE)] = 32,
    beat_in: Annotated[
        int, typer.Option(help="Input words per transfer.", rich_help_panel=_HARDWARE)
    ] = 1,
    beat_out: Annotated[
        int, typer.Option(help="Output words per transfer.", rich_help_panel=_HARDWARE)
    ] = 1,
    streams: Annotated[
        int, typer.Option(help="Sequences whose state is kept on chip.", rich_help_panel=_HARDWARE)
    ] = 1,
    max_steps: Annotated[
        int | None,
        typer.Option(help="Longest sequence the driver accepts.", rich_help_panel=_HARDWARE),
    ] = None,
    weight_bits: Annotated[int, typer.Option(help="2 to 18.", rich_help_panel=_NUMBERS)] = 16,
    data_bits: Annotated[
        int, typer.Option(help="Of inputs, h and outputs; 4 to 18.", rich_help_panel=_NUMBERS)
    ] = 16,
    gate_bits: Annotated[
        int | None,
        typer.Option(
            help="Of sigmoid and tanh, 6 to 18; by default those of the data, at least 12.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None,
    cell_bits: Annotated[
        int, typer.Option(help="Of the cell state, 8 to 32.", rich_help_panel=_NUMBERS)
    ] = 16,
    input_range: Annotated[
        float | None,
        typer.Option(
            help="Largest input; by default from the calibration data, else 8.", rich_help_panel=_NUMBERS
        ),
    ] = None,
    cell_range: Annotated[
        float | None,
        typer.Option(
            help="Where the cell state saturates; by default from the calibration data, else 16.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Typical inputs, (T, I) or (T, N, I): an .npy file, or an .npz file with an array x.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None,
    lstm: LstmOption = None,
    output_tensor: OutputTensorOption = None,
    dense: DenseOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Turn a model into a build: Verilog, manifest, weights and report."""
    with Session(as_json, debug) as session:
        from rtlstm.gen.build import generate_build
        from rtlstm.gen.data import load_array
        from rtlstm.gen.folder import check_target
        from rtlstm.gen.frontends import ReadOptions, read_model
        from rtlstm.gen.quantise import QuantizationSettings

        parameters = _parameters(
            family,
            lanes=lanes,
            macs=macs,
            beat_in=beat_in,
            beat_out=beat_out,
            streams=streams,
            max_steps=max_steps,
        )
        settings = QuantizationSettings(
            weight_bits=weight_bits,
            data_bits=data_bits,
            gate_bits=gate_bits,
            cell_bits=cell_bits,
            input_range=input_range,
            cell_range=cell_range,
        )
        check_target(output)
        options = ReadOptions(lstm=lstm, output=output_tensor, dense=tuple(dense) if dense else None)
        read = read_model(model, options)
        calibration = None if calibrate is None else load_array(calibrate, "the calibration data")
        with session.progress() as progress:
            generate_build(
                read.network,
                output,
                name=name,
                settings=settings,
                parameters=parameters,
                calibration=calibration,
                source=read.report,
                progress=progress,
            )
        _show(session, output)


def _parameters(family: str, **sizes: int | None) -> "Parameters":
    from rtlstm.spec.errors import ConfigurationError
    from rtlstm.spec.parameters import FAMILIES, Parameters

    for known in FAMILIES:
        if known == family:
            return Parameters.for_family(known, **sizes)
    raise ConfigurationError(f"the family must be one of {', '.join(FAMILIES)}, not {family!r}")


def _show(session: Session, folder: Path) -> None:
    import json

    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    session.fields = {"folder": str(folder), "report": report}
    cycles, accuracy = report["cycles"], report["accuracy"]
    error = f"{accuracy['max_abs_error']:.3g} at most, {accuracy['rms_error']:.3g} rms"
    limited = f"{accuracy['input_saturations']} inputs, {accuracy['cell_saturations']} cell states"
    session.table(
        f"Build {report['name']} in {folder}",
        ("", ""),
        [
            ("weights and biases", report["parameters"]),
            ("array", f"{report['lanes']} lanes x {report['macs']} multipliers"),
            ("memory", f"{report['memory_bits'] / 1024:.1f} Kibit"),
            ("step latency", f"{cycles['step_latency_cycles']} cycles"),
            ("step interval", f"{cycles['step_interval_cycles']} cycles"),
            ("array in use", f"{100 * cycles['array_use']:.1f} %"),
            ("error against float", error),
            ("limited", limited),
            ("measured on", accuracy["description"]),
        ],
    )
    for text in (*report["assumptions"], *report["notes"]):
        session.note(text)
