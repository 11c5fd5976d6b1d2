"""``rtlstm explore``: the best builds of a model, over bits, devices and arrays."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.commands import generate_command
from rtlstm.cli.console import Console
from rtlstm.cli.data import load_array, load_arrays, load_lengths
from rtlstm.cli.options import (
    CALIBRATE,
    CalibrationBatchFirstOption,
    CalibrationLengthsOption,
    CalibrationPadOption,
    NumberOption,
    SchedulerOption,
    WorkersOption,
    WorkOption,
    command,
)
from rtlstm.cli.results import Field, Figure, Found, Table, Text
from rtlstm.explore.page import render_page
from rtlstm.explore.request import SearchOptions, SpaceOptions
from rtlstm.gen.frontends import read_model
from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.gen.quantise.calibration import read_data
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.files import write_file
from rtlstm.spec.layout import Pad, is_front, sequences_first
from rtlstm.spec.record import option_values
from rtlstm.tools.work import open_workers

if TYPE_CHECKING:
    from rtlstm.explore.measure import Context
    from rtlstm.explore.metrics import Metric
    from rtlstm.explore.space import Exploration, Point, Space

_ROWS = 16
"""Points that the table shows, shared among the devices."""
_LEGEND = (
    "bits: of weights, data (h), gates and c; full: the share of the fuller of logic and memory, of what "
    "--fit may use"
)
_HINT = "The same command with --show N prints the command that builds N; explore.json has all of them."


@command(ReadOptions, SpaceOptions, SearchOptions)
def explore(
    console: Console,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as for rtlstm generate.")],
    *,
    calibration: Annotated[Path, CALIBRATE],
    options: Mapping[str, Any],
    calibration_lengths: CalibrationLengthsOption = None,
    batch_first: CalibrationBatchFirstOption = None,
    pad: CalibrationPadOption = "back",
    evaluation: Annotated[
        Path | None,
        NumberOption(
            "--evaluate",
            help="Data to measure errors on: an .npz file with inputs x and, if needed, labels y "
            "and lengths. Default: the typical inputs.",
        ),
    ] = None,
    metric: Annotated[
        str,
        NumberOption(
            help="What is measured: error (rms against float), max-error, agreement (decisions as "
            "in float), accuracy or mean-absolute-error (with labels), or module:function of "
            "outputs and labels, where smaller is better."
        ),
    ] = "error",
    folder: Annotated[
        Path | None,
        WorkOption(
            "-o",
            "--output",
            metavar="DIR",
            help="Folder of the study. An existing study continues. Default: build/explore/NAME.",
        ),
    ] = None,
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
) -> None:
    """Search bits, devices and arrays for the best builds of a model: a Pareto front, and a command for each.

    Exits with 1 if no build that was tried meets the limits, or a simulation differs from what was predicted.
    What was found is kept: the same command goes on where an earlier one ended.
    """
    from rtlstm.explore.metrics import figures, find_metric, parse_limit
    from rtlstm.explore.search import Plan
    from rtlstm.explore.search import explore as search
    from rtlstm.explore.study import import_optuna

    import_optuna()
    asked = SearchOptions(**option_values(SearchOptions, options))
    asked.check()
    measure = find_metric(metric)
    limits = [parse_limit(text, figures(measure)) for text in asked.limit]
    reading = option_values(ReadOptions, options)
    given = Given(model, calibration, calibration_lengths, batch_first, pad, reading)
    searched = SpaceOptions(**option_values(SpaceOptions, options))
    space, context = given.read(measure, evaluation, searched)
    for text in (*given.notes, *space.notes):
        console.note(text)
    study = Path("build", "explore", context.name) if folder is None else folder
    plan = Plan(space, study, limits, asked)
    with open_workers(workers, scheduler) as running, console.progress() as progress:
        try:
            found = search(context, plan, running, progress)
        except KeyboardInterrupt:
            console.note(f"what was tried is kept in {study}: the same command goes on from there")
            raise
    fields = _front_fields(found, study, measure, given.command)
    if found.front:
        following = fields["front"][0]["command"]
        # An earlier front with other limits stays.
        _write_files(study, context.name, measure.short_name, fields, console.told(following))
    elif (study / "explore.html").exists():
        console.note(f"{study / 'explore.html'} stays, the page of an earlier search")
    console.passed = not found.ruled_out and all(
        point.proof is None or point.proof.passed for point in found.front
    )
    if found.front and asked.show is not None:
        builds = fields["front"]
        if asked.show > len(builds):
            raise ConfigurationError(
                f"`show` must be the number of a build, 1 to {len(builds)}, not {asked.show}"
            )
        console.show(_COMMAND, **builds[asked.show - 1])
        return
    console.show(_FRONT, **fields)
    if found.front:
        console.next = following
    elif found.tried == found.too_large + found.impossible:
        console.passed = False
        for why, count in found.refusals.items():
            console.note(f"{count:,} choice{'s' * (count != 1)} cannot be built: {why}")


class Given:
    """Model and data: read, and as they are typed."""

    def __init__(
        self,
        model: Path,
        calibration: Path,
        lengths: str | None,
        batch_first: bool | None,
        pad: Pad,
        options: Mapping[str, Any],
    ) -> None:
        self._model, self._name = model, ""
        self._calibration, self._lengths = calibration, lengths
        self._batch_first, self._pad, self._options = batch_first, pad, options
        self.notes: tuple[str, ...] = ()
        """What the reader of the model says; known after :meth:`read`."""

    def read(self, metric: "Metric", evaluation: Path | None, asked: SpaceOptions) -> "tuple[Space, Context]":
        """Read the files; return what is searched, and what all choices have in common."""
        from rtlstm.explore.search import check_boards, find_shapes, make_context
        from rtlstm.explore.space import Space, parse_roundings
        from rtlstm.gen.builds.generate import default_name

        x, labels = load_array(self._calibration, "the calibration data"), None
        valid = load_lengths(self._lengths)
        read = read_model(self._model, ReadOptions(**self._options))
        self.notes = tuple(read.report.notes)
        known = read.report.batch_first
        x = read.looked_up(x, "calibration", valid, self._batch_first, self._pad)
        first = sequences_first("the calibration data", x, self._batch_first, known, valid)
        roundings = parse_roundings(asked.hidden_rounding)
        shapes = find_shapes(read.network, roundings, asked.max_steps, asked.wave_front)
        space = Space.asked(shapes, asked)
        check_boards(read.network, space)
        self._name = default_name(read)
        data = read_data(read, x, valid, None, first, self._pad_of(valid))
        padded = valid is not None
        if evaluation is not None:
            arrays = load_arrays(evaluation, "the evaluation data")
            x = load_array(evaluation, "the evaluation data")
            labels, valid = arrays.get("y"), arrays.get("lengths")
            padded |= valid is not None
            x = read.looked_up(x, "evaluation", valid, self._batch_first, self._pad)
            first = sequences_first("the evaluation data", x, self._batch_first, known, valid)
        is_front(self._pad, padded or None)
        context = make_context(self._name, read, metric, data, x, labels, valid, first, self._pad_of(valid))
        return space, context

    def _pad_of(self, lengths: Any) -> Pad:
        """Where the padding of data stands: without lengths nowhere."""
        return "back" if lengths is None else self._pad

    def command(self, number: int, choice: Mapping[str, Any]) -> str:
        """Return the command that builds a choice."""
        given = {
            **choice,
            "calibration": str(self._calibration),
            "calibration_lengths": self._lengths,
            "batch_first": self._batch_first,
            "pad": None if self._lengths is None or self._pad == "back" else self._pad,
            **self._options,
        }
        return generate_command(self._model, f"build/{self._name}_{number}", given)


def _write_files(
    folder: Path, name: str, metric: str, fields: Mapping[str, Any], told: Mapping[str, Any]
) -> None:
    front = fields["front"]
    title = f"{name}: {len(front)} builds that no other on their device beats"
    write_file(folder / "explore.html", render_page(title, front, metric, fields))
    write_file(folder / "explore.json", json.dumps({**fields, **told}, indent=1) + "\n")


def _front_fields(
    found: "Exploration",
    folder: Path,
    metric: "Metric",
    command: Callable[[int, Mapping[str, Any]], str],
) -> dict[str, Any]:
    """The JSON object: what was found, each point with its number and its command."""
    front = [
        _point(number, point, metric, command(number, point.choice.options))
        for number, point in enumerate(found.front, 1)
    ]
    return found.model_dump(mode="json") | {
        "folder": str(folder),
        "page": str(folder / "explore.html") if front else None,
        "points_per_hour": found.points_per_hour and round(found.points_per_hour),
        "front": front,
    }


def _point(number: int, point: "Point", metric: "Metric", command: str) -> dict[str, Any]:
    fields: dict[str, Any] = point.model_dump(mode="json")
    choice, proof = fields["choice"], fields["proof"]
    h, schedule = choice["hidden_bits"], ""
    data = f"{choice['data_bits']}" + (f"({h})" if h else "")
    numbers = "/".join(map(str, (choice["weight_bits"], data, choice["gate_bits"], choice["cell_bits"])))
    if choice["lane_sums"]:
        schedule = f" {choice['lane_sums']} sums"
    return fields | {
        "number": number,
        "device": choice["device"],
        "numbers": f"{numbers} {choice['tables']}" + (" odd" if choice["hidden_rounding"] == "odd" else ""),
        "array": f"{fields['lanes']} x {fields['macs']}" + (" wave" if choice["wave_front"] else schedule),
        "cycles": fields["step_latency_cycles"],
        "measure": metric.of(point.errors),
        # Not twice, if it is the metric.
        "error": None if metric.name == "error" else point.errors.rms,
        "command": command,
        "proof": _proof_text(proof),
        "proven": proof,
    }


def _proof_text(proof: Mapping[str, Any] | None) -> str:
    if proof is None:
        return ""
    if not proof["passed"]:
        return "DIFFERS"
    if proof["fmax_mhz"] is None:
        return "simulated, does not fit" if proof["refusal"] else "simulated"
    return f"{proof['step_latency_us']:.4g} us routed"


def _summary(found: Found) -> str:
    """Say how many choices were tried, and what became of them."""
    parts = f"{found['too_large']} do not fit their device"
    if found["impossible"]:
        parts += f", the bits of {found['impossible']} cannot be built"
    rate = found["points_per_hour"]
    speed = f" {found['new']} were new; that is {rate:,} an hour with {found['workers']}." if rate else ""
    within = f" {found['within']} meet the limits." if found["limits"] else ""
    return f"{found['tried']:,} of {found['size']:,} choices tried: {parts}.{within}{speed}"


def _rows(found: Found) -> list[Found]:
    """The points to show: the best of each device in turn."""
    front, counts = found["front"], Counter[str]()
    turns = []
    for point in front:
        counts[point["device"]] += 1
        turns.append((counts[point["device"]], point["number"]))
    chosen = {number for _, number in sorted(turns)[: max(_ROWS, len(counts))]}
    return [point for point in front if point["number"] in chosen]


def _title(found: Found) -> str:
    front, rows = found["front"], _rows(found)
    some = f"{len(rows)} of {len(front)} builds" if len(rows) < len(front) else f"All {len(front)} builds"
    if len(front) == 1:
        some = "The build"
    return f"{some} that no other on their device beats, by {found['goal']} (estimated before synthesis)"


def _metric(found: Found) -> str | None:
    """Say what the metric is, and how good the front's best build is."""
    front, in_float = found["front"], found["float_metric"]
    if not front:
        return None
    best = (max if found["larger_is_better"] else min)(front, key=lambda point: point["measure"])
    floats = "" if in_float is None else f"; the float network has {in_float:.3g}"
    text = f"metric: {found['metric']}, {found['metric_meaning']}{floats}"
    if best["measure"] != front[0]["measure"]:
        text += f"; the best is {best['measure']:.3g}, of build {best['number']}"
        if not found["limits"]:
            sign = ">" if found["larger_is_better"] else "<"
            text += f"; --limit 'metric{sign}=NUMBER' leaves out what is worse"
    return text


def _without_build(found: Found) -> str | None:
    """Name the devices that have no build, or none within the limits, if others have one."""
    if found["tried"] == found["too_large"] + found["impossible"]:
        return None
    lines = [
        f"none of the choices tried for {device} is a build; at best: {why}"
        for device, why in found["without_build"].items()
    ]
    lines += [
        f"{device} is left out by {' and by '.join(why)}" for device, why in found["beyond_limits"].items()
    ]
    return "\n".join(lines) or None


def _latency(point: Found) -> str:
    return f"{point['latency_us']:.4g}{', assumed clock' * point['clock_assumed']}"


def _error(point: Found) -> str | None:
    return None if point["error"] is None else f"{point['error']:.3g}"


_COMMAND = (Text("{command}"),)

_FRONT = (
    Table(
        _title,
        _rows,
        Figure("#", "{number}"),
        Field("device", "{device}"),
        Field("bits", "{numbers}"),
        Figure("array", "{array}"),
        Figure("cycles", "{cycles:,}"),
        Figure("us", _latency),
        Figure("LUTs", "{luts:,}"),
        Figure("mult.", "{multipliers}"),
        Figure("RAMs", "{block_rams}"),
        Figure("full", "{share:g} %"),
        Figure("nJ", lambda point: None if point["energy_nj"] is None else f"{point['energy_nj']:.4g}"),
        Figure("error", _error),
        Figure("metric", "{measure:.4g}"),
        Field("proof", "{proof}"),
    ),
    Text(lambda found: _LEGEND if found["front"] else None),
    Text(_metric),
    Text(_summary),
    Text(_without_build),
    Text(lambda found: "\n".join(f"no build meets {text}" for text in found["ruled_out"]) or None),
    Text(lambda found: _HINT if len(found["front"]) > 1 else None),
    Text(lambda found: found["page"] and f"written: {found['page']}"),
)
