"""``rtlstm generate``: a model becomes a build folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlstm.gen.commands.generate_options import (
    BeatInOption,
    BeatOutOption,
    CalibrateOption,
    CellBitsOption,
    CellRangeOption,
    DataBitsOption,
    FamilyOption,
    GateBitsOption,
    GateUnitsOption,
    InputRangeOption,
    LanesOption,
    MacsOption,
    MaxStepsOption,
    ModelArgument,
    MultipliersOption,
    NameOption,
    OutputFolderOption,
    StreamsOption,
    WeightBitsOption,
)
from rtlstm.gen.commands.options import DebugOption, DenseOption, JsonOption, LstmOption, OutputTensorOption
from rtlstm.gen.console import Session

if TYPE_CHECKING:
    from rtlstm.spec.parameters import Parameters

__all__ = ["generate"]


def generate(
    model: ModelArgument,
    output: OutputFolderOption,
    name: NameOption = None,
    family: FamilyOption = "generic",
    lanes: LanesOption = 4,
    macs: MacsOption = 32,
    gate_units: GateUnitsOption = 1,
    multipliers: MultipliersOption = "dsp",
    beat_in: BeatInOption = 1,
    beat_out: BeatOutOption = None,
    streams: StreamsOption = 1,
    max_steps: MaxStepsOption = None,
    weight_bits: WeightBitsOption = 16,
    data_bits: DataBitsOption = 16,
    gate_bits: GateBitsOption = None,
    cell_bits: CellBitsOption = 16,
    input_range: InputRangeOption = None,
    cell_range: CellRangeOption = None,
    calibrate: CalibrateOption = None,
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
            gate_units=gate_units,
            lut_macs=_lut_macs(multipliers, macs),
            beat_in=beat_in,
            beat_out=beat_out or gate_units,
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


def _lut_macs(multipliers: str, macs: int) -> int:
    from rtlstm.spec.errors import ConfigurationError

    if multipliers in ("dsp", "lut"):
        return macs if multipliers == "lut" else 0
    if multipliers.isdecimal():
        return int(multipliers)
    raise ConfigurationError(
        f"multipliers must be dsp, lut or a number of look-up table multipliers per lane, not {multipliers!r}"
    )


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
