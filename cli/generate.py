"""``rtlstm generate``: a model becomes a build folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rtlstm.cli.console import CommandSession
from rtlstm.cli.generate_options import (
    BatchFirstOption,
    BeatInOption,
    BeatOutOption,
    BusOption,
    CalibrateLengthsOption,
    CalibrateOption,
    CalibrateStateOption,
    CapacityOption,
    CellBitsOption,
    CellRangeOption,
    DataBitsOption,
    DenseWeightBitsOption,
    FamilyOption,
    FinalStatesOption,
    FitOption,
    ForOption,
    GateBitsOption,
    GateUnitsOption,
    HeadroomBitsOption,
    InputRangeOption,
    LanesOption,
    LoadableOption,
    MacsOption,
    MaxStepsOption,
    ModelArgument,
    MultipliersOption,
    NameOption,
    OutputBitsOption,
    OutputFolderOption,
    StreamsOption,
    TablesOption,
    WeightBitsOption,
    WeightMemoryOption,
)
from rtlstm.cli.options import (
    BranchOption,
    DebugOption,
    DenseOption,
    JsonOption,
    LstmOption,
    OutputTensorOption,
    read_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtlstm.cli.data import Array
    from rtlstm.gen.builds.former import FormerResult
    from rtlstm.gen.frontends import ReadOptions, ReadResult

__all__ = ["generate"]


_WITH_FOR = {
    "model",
    "output",
    "device",
    "calibrate",
    "calibrate_lengths",
    "batch_first",
    "calibrate_state",
    "input_range",
    "lstm",
    "output_tensor",
    "dense",
    "branch",
}
_WITH_FOR |= {"as_json", "debug"}
"""What may be said beside --for."""


def generate(
    context: typer.Context,
    model: ModelArgument,
    output: OutputFolderOption,
    name: NameOption = None,
    fit: FitOption = None,
    family: FamilyOption = None,
    lanes: LanesOption = None,
    macs: MacsOption = None,
    gate_units: GateUnitsOption = None,
    multipliers: MultipliersOption = None,
    weight_memory: WeightMemoryOption = None,
    tables: TablesOption = "interpolated",
    beat_in: BeatInOption = 1,
    beat_out: BeatOutOption = None,
    streams: StreamsOption = 1,
    max_steps: MaxStepsOption = None,
    bus: BusOption = "none",
    loadable: LoadableOption = False,
    capacity: CapacityOption = None,
    device: ForOption = None,
    weight_bits: WeightBitsOption = 16,
    dense_weight_bits: DenseWeightBitsOption = None,
    data_bits: DataBitsOption = 16,
    output_bits: OutputBitsOption = None,
    gate_bits: GateBitsOption = None,
    cell_bits: CellBitsOption = 16,
    input_range: InputRangeOption = None,
    cell_range: CellRangeOption = None,
    final_states: FinalStatesOption = None,
    headroom_bits: HeadroomBitsOption = 0,
    calibrate: CalibrateOption = None,
    calibrate_lengths: CalibrateLengthsOption = None,
    batch_first: BatchFirstOption = False,
    calibrate_state: CalibrateStateOption = None,
    lstm: LstmOption = None,
    output_tensor: OutputTensorOption = None,
    dense: DenseOption = None,
    branch: BranchOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Turn a model into a build: Verilog, manifest, weights and report."""
    with CommandSession(as_json, debug) as session:
        from rtlstm.cli.data import load_lengths, load_state
        from rtlstm.gen.builds.former import former_results
        from rtlstm.gen.builds.generate import generate_build, generate_for
        from rtlstm.gen.builds.requests import array_request, fit_request
        from rtlstm.gen.quantise.quantiser import QuantizationSettings

        begin = None if calibrate_state is None else load_state(calibrate_state)
        options = read_options(lstm, output_tensor, dense, branch)
        former = former_results(output)
        if device is not None:
            _check_for(context)
            read, calibration = _read(model, options, output, calibrate, batch_first)
            with session.progress() as progress:
                generate_for(
                    read.network,
                    output,
                    device,
                    input_range=input_range,
                    calibration=calibration,
                    calibration_lengths=load_lengths(calibrate_lengths),
                    calibration_state=begin,
                    source=read.report,
                    progress=progress,
                )
            _show(session, output, former)
            return
        capacities = _capacities(loadable, capacity)
        sizes: dict[str, object] = {
            "lanes": lanes,
            "macs": macs,
            "gate_units": gate_units,
            "weight_memory": weight_memory,
            "tables": tables,
            "beat_in": beat_in,
            "beat_out": beat_out,
            "streams": streams,
            "max_steps": max_steps,
            "bus": bus,
        }
        array = array_request(family, multipliers, **sizes) if fit is None else None
        request = None if fit is None else fit_request(fit, family, multipliers, **sizes)
        settings = QuantizationSettings(
            weight_bits=weight_bits,
            dense_weight_bits=dense_weight_bits,
            data_bits=data_bits,
            output_bits=output_bits,
            gate_bits=gate_bits,
            cell_bits=cell_bits,
            input_range=input_range,
            cell_range=cell_range,
            final_states=final_states,
            headroom_bits=headroom_bits,
            tables=tables,
        )
        read, calibration = _read(model, options, output, calibrate, batch_first)
        with session.progress() as progress:
            generate_build(
                read.network,
                output,
                name=name,
                settings=settings,
                fit=request,
                array=array,
                capacities=capacities,
                calibration=calibration,
                calibration_lengths=load_lengths(calibrate_lengths),
                calibration_state=begin,
                source=read.report,
                progress=progress,
            )
        _show(session, output, former)


def _read(
    model: Path, options: "ReadOptions", output: Path, calibrate: Path | None, batch_first: bool
) -> tuple["ReadResult", "Array | None"]:
    """Read the model and the calibration data, once it is known that the result has a place."""
    from rtlstm.cli.data import load_array
    from rtlstm.gen.builds.folder import check_target
    from rtlstm.gen.frontends import read_model

    check_target(output)
    read = read_model(model, options)
    if calibrate is None:
        return read, None
    data = load_array(calibrate, "the calibration data")
    return read, data.swapaxes(0, 1) if batch_first and data.ndim == 3 else data


def _check_for(context: typer.Context) -> None:
    """Refuse what a device brings itself."""
    from rtlstm.spec.errors import ConfigurationError

    given = [
        parameter.opts[-1]
        for parameter in context.command.params
        if parameter.name not in _WITH_FOR
        and parameter.name is not None
        and (source := context.get_parameter_source(parameter.name)) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise ConfigurationError(
            f"--for takes hardware, formats and name from its device: leave out {', '.join(given)}, or --for"
        )


def _capacities(loadable: bool, given: list[str] | None) -> dict[str, int] | None:
    from rtlstm.gen.builds.loadable import parse_capacities
    from rtlstm.spec.errors import ConfigurationError

    if not loadable:
        if given:
            raise ConfigurationError("--capacity is for loadable devices: give --loadable, too")
        return None
    return parse_capacities(given or [])


def _show(session: CommandSession, folder: Path, former: "Sequence[FormerResult]") -> None:
    import json

    from rtlstm.gen.builds.headroom import Headroom

    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    removed = [result.model_dump(mode="json") for result in former]
    session.fields = {"folder": str(folder), "report": report, "removed": removed}
    cycles, accuracy = report["cycles"], report["accuracy"]
    error = f"{accuracy['max_abs_error']:.3g} at most, {accuracy['rms_error']:.3g} rms"
    saturated = f"{accuracy['input_saturations']} inputs, {accuracy['cell_saturations']} cell states"
    inputs = accuracy["losses"][0]
    lost = f"{inputs['lost']} of {inputs['values']} that are not 0"
    session.table(
        f"Build {report['name']} in {folder}",
        ("", ""),
        [
            ("weights and biases", report["parameters"]),
            ("array", _array(report)),
            ("memory", f"{report['memory_bits'] / 1024:.1f} Kibit"),
            ("step latency", f"{cycles['step_latency_cycles']} cycles"),
            ("step interval", f"{cycles['step_interval_cycles']} cycles"),
            ("array in use", f"{100 * cycles['array_use']:.1f} %"),
            ("error against float", error),
            ("largest float output", f"{accuracy['max_abs_output']:.4g}"),
            ("saturated", saturated),
            ("inputs below half a step", lost),
            ("headroom", Headroom(**report["headroom"]).text),
            ("measured on", accuracy["description"]),
        ],
    )
    _show_estimates(session, report)
    for text in (*report["assumptions"], *report["notes"]):
        session.note(text)


def _array(report: dict[str, Any]) -> str:
    text = f"{report['lanes']} lanes x {report['macs']} multipliers"
    if report["lut_macs"]:
        text += f", {report['lut_macs']} of each lane's of tables"
    if report["weight_memory"] != "block":
        text += ", weights in large memories"
    return f"{text}, {report['gate_units']} gate units" if report["gate_units"] > 1 else text


def _show_estimates(session: CommandSession, report: dict[str, Any]) -> None:
    """Show what was chosen for a device, or what to expect on the family's devices."""
    fit = report["fit"]
    found = report["estimates"] if fit is None else [fit["estimate"]]
    if not found:
        return
    session.table(
        "Estimates, before synthesis (multipliers and block RAM are exact)",
        (
            "device",
            "tables",
            "logic cells",
            "carry chains",
            "multipliers",
            "block RAMs",
            "clock",
            "step latency",
            "fits",
        ),
        [
            (
                f"{each['board']}, {each['device']}" if each["board"] else each["device"],
                each["luts"],
                f"{each['cell_share']:g} %",
                "" if each["chain_share"] is None else f"{each['chain_share']:g} %",
                each["multipliers"],
                each["block_rams"],
                f"{each['fmax_mhz']:g} MHz",
                f"{each['step_latency_us']:.4g} us",
                "yes" if each["fits"] else "no",
            )
            for each in found
        ],
        right=" rrrrrrr",
    )
    if fit is not None:
        link = ", its link counted in" if fit["estimate"]["board"] else ""
        session.say(
            f"Sizes chosen for {fit['device']}{link}, of {fit['tried']} worked out; limited by "
            f"{fit['limited_by']}."
        )
