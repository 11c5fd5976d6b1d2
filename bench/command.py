"""``rtlstm bench``: this machine, the hardware and others' figures, side by side."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict

import typer

from rtlstm.bench.views import ACCURACY, BENCH, BOARD, BOARDS, ESTIMATES, LINK, STAC
from rtlstm.cli.boards import BOARDS_NOTE
from rtlstm.cli.console import Console
from rtlstm.cli.options import SchedulerOption, command
from rtlstm.cli.results import View

if TYPE_CHECKING:
    from rtlstm.bench.benchmark import Plan
    from rtlstm.bench.records import BenchResult, CpuTime
    from rtlstm.spec.progress import Progress


class _Found(NamedTuple):
    """What was measured, and how it is shown."""

    view: View
    fields: dict[str, Any]
    rows: str
    """The field that has the rows of a CSV file."""
    passed: bool = True
    notes: Iterable[str] = ()


class _Spread(TypedDict):
    """What does the work."""

    workers: int | None
    scheduler: str | None


_ASSUMED = "a clock with ? is assumed; others are post-route, by 'rtlstm implement' on the build"
_WITHOUT = {
    "--profile": ("--estimates", "--link", "--quick", "--no-rtl"),
    "--goals": ("--estimates", "--link", "--accuracy", "--profile"),
    "--accuracy": ("--estimates", "--link", "--no-rtl", "--device", "--profile"),
    "--boards": ("--estimates", "--link", "--accuracy", "--goals", "--no-rtl", "--device", "--profile"),
}
"""Options of measurements, and those that each goes without."""
_BUSY = 0.5
"""Load average above which times are not to be trusted."""


@command()
def bench(
    console: Console,
    shapes: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK]...", help="Networks to measure. Default: all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take few steps, to see that everything runs.")
    ] = False,
    no_rtl: Annotated[
        bool, typer.Option("--no-rtl", help="Predict cycles, and simulate no Verilog.")
    ] = False,
    device: Annotated[
        list[str] | None,
        typer.Option(help="Take routed clocks of this device alone. May be repeated."),
    ] = None,
    clock: Annotated[
        float, typer.Option(help="Clock in MHz to assume for builds that were not routed.")
    ] = 100.0,
    estimates: Annotated[
        bool,
        typer.Option(
            "--estimates",
            help="Compare estimates with synthesis, and nothing else. With --quick, few builds.",
        ),
    ] = False,
    link: Annotated[
        bool,
        typer.Option(
            "--link",
            help="Measure the serial link, and nothing else: its efficiency, and a million steps "
            "with faults.",
        ),
    ] = False,
    board: Annotated[
        str | None,
        typer.Option(
            metavar="BOARD",
            help="With --link, send 10,000 steps with faults to this board's simulated top level.",
        ),
    ] = None,
    boards: Annotated[
        bool,
        typer.Option(
            "--boards",
            help="Compare boards, each link of each, with this processor, and nothing else. Default: toptag, "
            "stac_a and vad128.",
        ),
    ] = False,
    profile: Annotated[
        Literal["stac"] | None,
        typer.Option(
            help="Compute the figures of a published benchmark, and nothing else: stac, the "
            "latencies of STAC-ML Markets for 1 to 8 instances. They are not audited."
        ),
    ] = None,
    accuracy: Annotated[
        bool,
        typer.Option(
            "--accuracy",
            help="Measure what rounding costs, and nothing else, beside onnxruntime's dynamic int8: with 16 "
            "bits, and weights of 8 bits and data of 16 and 8; without --quick also weights of 4 to 2 bits.",
        ),
    ] = False,
    finetuned: Annotated[
        bool,
        typer.Option("--finetuned", help="With --accuracy, also finetune weights of 4 to 2 bits."),
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the builds. Builds that are there are used.")
    ] = Path("build/bench"),
    save: Annotated[Path | None, typer.Option(help="Also write the JSON object to this file.")] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write a CSV file with a row for each network and a column for each figure."),
    ] = None,
    goals: Annotated[
        bool,
        typer.Option(
            "--goals",
            help="Also time rtlstm's tools and compare all figures with the project's goals.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of processes that build, simulate or round networks. One alone measures times. "
            "Default: 1.",
        ),
    ] = None,
    scheduler: SchedulerOption = None,
) -> None:
    """Measure cycles, CPU times and the tools themselves, and show published figures beside them.

    Exits with 1 if the RTL differs from the golden model or from the predicted cycles, if an estimate of
    multipliers or block RAM differs from synthesis, or if a step of --link differs from the golden model.
    Networks and sessions that were finished before an interruption are not done again.
    """
    from rtlstm.bench.benchmark import Plan
    from rtlstm.bench.shapes import find_shapes
    from rtlstm.spec.errors import ConfigurationError
    from rtlstm.spec.files import check_writable, write_file

    for file in (save, csv):
        if file is not None:
            check_writable(file)
    if not 0 < clock < 1e5:
        raise ConfigurationError(f"--clock must be a frequency in MHz, more than 0, not {clock:g}")
    given = {
        "--accuracy": accuracy,
        "--boards": boards,
        "--device": device,
        "--estimates": estimates,
        "--goals": goals,
        "--link": link,
        "--no-rtl": no_rtl,
        "--profile": profile,
        "--quick": quick,
    }
    for what, others in _WITHOUT.items():
        if given[what] and any(given[each] for each in others):
            why = "is for networks" if what == "--goals" else "is a measurement of its own"
            raise ConfigurationError(f"{what} {why}: leave out {', '.join(others)}")
    if finetuned and not accuracy:
        raise ConfigurationError("--finetuned needs --accuracy: give both, or leave out --finetuned")
    if finetuned and quick:
        raise ConfigurationError(
            "--finetuned is for weights of 4 to 2 bits, which --quick leaves out: leave out one of both"
        )
    alone = estimates or boards or board is not None or profile is not None
    if alone and (workers is not None or scheduler is not None):
        raise ConfigurationError(
            "--workers and --scheduler are for networks and for --link: leave out --estimates, --board, "
            "--boards and --profile"
        )
    if workers is None and scheduler is None:
        workers = 1
    spread: _Spread = {"workers": workers, "scheduler": scheduler}
    if shapes and (estimates or link):
        what = "--estimates" if estimates else "--link"
        raise ConfigurationError(f"{what} has builds of its own: leave out the networks")
    if board is not None and not link:
        raise ConfigurationError("--board needs --link: give both, or leave out --board")
    measure: Callable[[Progress | None], _Found]
    if estimates:
        measure = partial(_estimates, quick)
    elif board is not None:
        measure = partial(_board, board, quick)
    elif link:
        measure = partial(_link, quick, output / "link.journal", spread)
    elif boards:
        measure = partial(_boards, shapes, output, quick)
    elif accuracy:
        measure = partial(_accuracy, shapes, output, quick, finetuned, spread)
    elif profile is not None:
        measure = partial(_profile, shapes, output, tuple(device or ()), clock)
    else:
        plan = Plan(
            shapes=find_shapes(shapes),
            folder=output,
            quick=quick,
            rtl=not no_rtl,
            goals=goals,
            devices=tuple(device or ()),
            assumed_mhz=clock,
            **spread,
        )
        measure = partial(_networks, plan)
    with console.progress() as progress:
        found = measure(progress)
    console.passed, fields = found.passed, found.fields | {"passed": found.passed}
    if save is not None:
        write_file(save, json.dumps(fields, indent=1) + "\n")
    if csv is not None:
        rows = fields[found.rows]
        write_file(csv, _csv(rows if isinstance(rows, list) else [rows]))
    console.show(found.view, **fields)
    for note in found.notes:
        console.note(note)


def _csv(found: list[dict[str, Any]]) -> str:
    """Write a row for each object, and a column for each number and text in it, by names with dots."""
    import csv
    from io import StringIO

    rows = [dict(_columns("", each)) for each in found]
    text = StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _columns(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a value; of objects in a list, by what each names itself, or its number."""
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        value = {each.get("engine", each.get("name", number)): each for number, each in enumerate(value)}
    if isinstance(value, dict):
        for part, each in value.items():
            yield from _columns(f"{name}.{part}" if name else str(part), each)
    else:
        yield name, " ".join(map(str, value)) if isinstance(value, list) else value


def _estimates(quick: bool, progress: "Progress | None") -> _Found:
    """Measure the estimates' errors."""
    from rtlstm.bench.estimates import factors_in_use, fit_factors, measure_estimates
    from rtlstm.fpga.estimate import MARGIN

    results = list(measure_estimates(quick, progress))
    factors = fit_factors(results)
    fields = {
        "estimates": [result.model_dump(mode="json") for result in results],
        "factors": factors,
        "current_factors": {name: each for name, each in factors_in_use().items() if name in factors},
        "allowed_percent": 100 * MARGIN,
    }
    return _Found(ESTIMATES, fields, "estimates", all(result.exact for result in results))


def _link(quick: bool, path: Path, spread: _Spread, progress: "Progress | None") -> _Found:
    """Measure the serial link."""
    from rtlstm.bench.jobs import code_digest, open_journal
    from rtlstm.bench.soak import LEAST_SHARE, LEAST_USE, measure_efficiency, soak, soak_pieces
    from rtlstm.tools.work import open_workers

    found = list(measure_efficiency(quick))
    if quick:
        endured = soak(10_000, progress=progress)
    else:
        with open_workers(**spread) as running, open_journal(path, code_digest()) as journal:
            endured = soak_pieces(1_000_000, running, journal, progress)
    fields = {
        "efficiency": [each.model_dump(mode="json") for each in found],
        "soak": endured.model_dump(mode="json"),
        "least": {"payload_share": LEAST_SHARE, "port_use": LEAST_USE},
    }
    return _Found(LINK, fields, "efficiency", endured.passed and all(each.passed for each in found))


def _accuracy(
    names: list[str] | None,
    folder: Path,
    quick: bool,
    finetuned: bool,
    spread: _Spread,
    progress: "Progress | None",
) -> _Found:
    """Measure what rounding costs networks."""
    from rtlstm.bench.accuracy import AccuracyPlan, run_accuracy
    from rtlstm.bench.cases import find_cases

    result = run_accuracy(AccuracyPlan(find_cases(names), folder, quick, finetuned, **spread), progress)
    missing: dict[str, list[str]] = {}
    for case in result.cases:
        for why in case.missing:
            missing.setdefault(why, []).append(case.name)
    notes = [f"{', '.join(some)}: {why}" for why, some in missing.items()]
    return _Found(ACCURACY, result.model_dump(mode="json"), "cases", notes=notes)


def _profile(
    shapes: list[str] | None,
    folder: Path,
    devices: tuple[str, ...],
    clock: float,
    progress: "Progress | None",
) -> _Found:
    """Work out latencies and errors of STAC-ML Markets' networks."""
    from rtlstm.bench.hardware import run_profile

    result = run_profile(shapes, folder, devices, clock, progress)
    assumed = any(shape.clock.source == "assumed" for shape in result.shapes)
    return _Found(STAC, result.model_dump(mode="json"), "shapes", notes=[_ASSUMED] * assumed)


def _boards(names: list[str] | None, folder: Path, quick: bool, progress: "Progress | None") -> _Found:
    """Compare boards with this processor."""
    from rtlstm.bench.soak import run_boards

    result = run_boards(names, folder, quick, progress)
    notes = [*_not_timed(network.cpu for network in result.networks), BOARDS_NOTE]
    if result.machine.load_average > _BUSY:
        notes.append("the machine was busy: its times are longer")
    return _Found(BOARDS, result.model_dump(mode="json"), "networks", notes=notes)


def _board(board: str, quick: bool, progress: "Progress | None") -> _Found:
    """Run steps with faults to a simulated board."""
    from rtlstm.bench.soak import soak_board

    endured = soak_board(board, 640 if quick else 10_000, progress=progress)
    return _Found(BOARD, {"soak": endured.model_dump(mode="json")}, "soak", endured.passed)


def _networks(plan: "Plan", progress: "Progress | None") -> _Found:
    """Measure networks, in hardware and on this machine."""
    from rtlstm.bench.benchmark import run_bench

    result = run_bench(plan, progress)
    return _Found(BENCH, result.model_dump(mode="json"), "shapes", result.passed, _marks(result))


def _not_timed(times: Iterable[Iterable["CpuTime"]]) -> Iterator[str]:
    """Say which engines are missing."""
    for each in chain(*times):
        if each.missing:
            yield f"{each.engine} was not timed: {each.missing}"


def _marks(result: "BenchResult") -> Iterator[str]:
    """Explain the marks of the tables, each once."""
    if any(shape.clock.source == "assumed" for shape in result.shapes):
        yield _ASSUMED
    predicted: dict[str, list[str]] = {}
    for shape in result.shapes:
        found = shape.hardware
        if found.not_simulated:
            predicted.setdefault(found.not_simulated, []).append(shape.name)
        elif not found.agrees:
            yield (
                f"! {shape.name}: {found.words_different} of {found.words_compared} words differ from the "
                f"golden model, {found.steps_off_cycle} of {found.steps} steps are off their cycle; latency "
                f"{found.measured_latency}, of a first step {found.measured_first_step_latency}, interval "
                f"{found.measured_interval or 'not constant'} measured"
            )
    for why, names in predicted.items():
        yield f"* predicted only, {why}: {', '.join(names)}"
    yield from _not_timed(shape.cpu for shape in result.shapes)
    if result.machine.load_average > _BUSY:
        yield "the machine was busy: times are longer, p99 much so"
