"""``rtlstm bench``: this machine, the hardware and others' figures, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtlstm.cli.console import CommandSession
from rtlstm.cli.options import DebugOption, JsonOption

if TYPE_CHECKING:
    from rtlstm.bench.anchors import Anchor
    from rtlstm.bench.estimates import EstimateResult
    from rtlstm.bench.records import BenchResult, ShapeResult
    from rtlstm.bench.soak import Soak

__all__ = ["bench"]

_ENGINES = ("onnxruntime", "torch", "c++")


def bench(
    shapes: Annotated[
        list[str] | None, typer.Argument(metavar="[SHAPE]...", help="Shapes to measure; all without any.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few steps: to see that all parts run.")] = False,
    no_rtl: Annotated[bool, typer.Option("--no-rtl", help="Predict cycles, but simulate no RTL.")] = False,
    device: Annotated[
        list[str] | None,
        typer.Option(help="Take post-route clocks of this device only; may be given several times."),
    ] = None,
    clock: Annotated[
        float, typer.Option(help="MHz to assume for builds that were not placed and routed.")
    ] = 100.0,
    estimates: Annotated[
        bool,
        typer.Option(
            "--estimates", help="Only hold estimated sizes against synthesis; --quick: of few builds."
        ),
    ] = False,
    link: Annotated[
        bool,
        typer.Option(
            "--link",
            help="Only measure the serial link: its efficiency, and a million steps over a bad line.",
        ),
    ] = False,
    board: Annotated[
        str | None,
        typer.Option(
            metavar="BOARD",
            help="With --link: only 10,000 steps over a bad line to this board's top level, simulated.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the builds go; those found there are used.")
    ] = Path("build/bench"),
    save: Annotated[Path | None, typer.Option(help="Write the JSON object to this file, too.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure cycles, CPU times and the tools themselves, with others' figures beside them.

    Exits with 1 if the RTL differs from the golden model or from the predicted cycles anywhere, an
    estimate of multipliers or block RAM from synthesis, or a step over the bad line from the golden model.
    """
    with CommandSession(as_json, debug) as session:
        from rtlstm.bench.benchmark import Plan, run_bench
        from rtlstm.bench.shapes import find_shapes
        from rtlstm.spec.errors import ConfigurationError
        from rtlstm.spec.files import check_writable

        if save is not None:
            check_writable(save)
        if not 0 < clock < 1e5:
            raise ConfigurationError(f"--clock must be a frequency in MHz, more than 0, not {clock:g}")
        if estimates:
            if shapes:
                raise ConfigurationError("--estimates has builds of its own: leave out the shapes")
            _estimates(session, quick, save)
            return
        if link:
            if shapes:
                raise ConfigurationError("--link has builds of its own: leave out the shapes")
            _link(session, quick, save) if board is None else _board(session, board, quick, save)
            return
        if board is not None:
            raise ConfigurationError("--board is where --link runs its steps: give --link, too")
        plan = Plan(
            shapes=find_shapes(shapes),
            folder=output,
            quick=quick,
            rtl=not no_rtl,
            devices=tuple(device or ()),
            assumed_mhz=clock,
        )
        with session.progress() as progress:
            result = run_bench(plan, progress)
        session.fields = result.model_dump(mode="json")
        session.passed = result.passed
        _save(save, result.to_json())
        _show(session, result)


def _save(path: Path | None, text: str) -> None:
    from rtlstm.spec.files import write_file

    if path is not None:
        write_file(path, text)


def _estimates(session: CommandSession, quick: bool, save: Path | None) -> None:
    """Measure the estimates' errors and show them."""
    import json

    from rtlstm.bench.estimates import fit_factors, measure_estimates
    from rtlstm.fpga.estimate import MARGIN
    from rtlstm.fpga.families.base import fpga_family

    with session.progress() as progress:
        results = list(measure_estimates(quick, progress))
    factors = fit_factors(results)
    session.fields = {"estimates": [result.model_dump(mode="json") for result in results], "factors": factors}
    session.passed = all(result.exact for result in results)
    _save(save, json.dumps(session.fields, indent=1) + "\n")
    session.table(
        "Estimates, and what synthesis takes",
        (
            "build",
            "device",
            "lanes x macs",
            "tables",
            "error",
            "flip-flops",
            "error",
            "multipliers",
            "block RAMs",
        ),
        [
            (
                each.name,
                each.device,
                f"{each.lanes} x {each.macs}",
                each.luts,
                f"{each.lut_error:+.1f} %",
                each.ffs,
                f"{each.ff_error:+.1f} %",
                _both(each.estimated_multipliers, each.multipliers),
                _both(each.estimated_block_rams, each.block_rams),
            )
            for each in results
        ],
        right="  rrrrrrr",
    )
    session.table(
        "Factors",
        ("family", "of", "part", "now", "fitted to these builds"),
        [
            (family, what, name, f"{now[name]:g}", f"{factor:g}")
            for family, found in factors.items()
            for estimates in [fpga_family(family).need_estimates()]
            for what, now in (("luts", estimates.luts), ("ffs", estimates.ffs))
            for name, factor in found[what].items()
        ],
        right="   rr",
    )
    luts, ffs = (max(abs(error) for error in found) for found in _errors(results))
    session.say(
        f"Tables are off by {luts:.1f} % at most and flip-flops by {ffs:.1f} %; {100 * MARGIN:g} % are "
        "allowed for."
    )
    if not session.passed:
        session.say("FAILED: multipliers and block RAM are to be exact")


def _link(session: CommandSession, quick: bool, save: Path | None) -> None:
    """Measure the serial link and show it."""
    import json

    from rtlstm.bench.link import LEAST_SHARE, LEAST_USE, measure_efficiency
    from rtlstm.bench.soak import soak

    found = list(measure_efficiency(quick))
    with session.progress() as progress:
        endured = soak(10_000 if quick else 1_000_000, progress=progress)
    session.fields = {
        "efficiency": [each.model_dump(mode="json") for each in found],
        "soak": endured.model_dump(mode="json"),
    }
    session.passed = endured.passed and all(each.passed for each in found)
    _save(save, json.dumps(session.fields, indent=1) + "\n")
    session.table(
        "The serial link at 3 Mbaud, simulated",
        ("steps of", "latency", "payload of all bytes", "steps/s", "of the line's", "processor us a step"),
        [
            (
                each.name,
                f"{1e3 * each.latency_seconds:g} ms",
                f"{100 * each.payload_share:.1f} %",
                f"{each.steps_per_second:,.0f}",
                f"{100 * each.port_use:.1f} %",
                f"{each.processor_us_per_step:.0f}",
            )
            for each in found
        ],
        right=" rrrrr",
    )
    _show_soak(session, endured)
    session.say(
        f"{'passed' if session.passed else 'FAILED'}: every step once and right, payload at least "
        f"{100 * LEAST_SHARE:g} % with 256 bytes, line in use at least {100 * LEAST_USE:g} %"
    )


def _board(session: CommandSession, board: str, quick: bool, save: Path | None) -> None:
    """Run steps over a simulated board's bad line and show what that cost."""
    import json

    from rtlstm.bench.soak import soak_board

    with session.progress() as progress:
        endured = soak_board(board, 640 if quick else 10_000, progress=progress)
    session.fields = {"soak": endured.model_dump(mode="json")}
    session.passed = endured.passed
    _save(save, json.dumps(session.fields, indent=1) + "\n")
    _show_soak(session, endured)
    session.say(f"{'passed' if session.passed else 'FAILED'}: every step once and right")


def _show_soak(session: CommandSession, endured: "Soak") -> None:
    session.table(
        f"{endured.steps:,} steps of 64 streams, faults at {100 * endured.rate:g} % of frames each way",
        ("", ""),
        [
            ("device", endured.device),
            ("lost or run twice", f"{abs(endured.executed - endured.steps):,}"),
            ("wrong", f"{endured.wrong:,}"),
            ("faults", ", ".join(f"{count:,} {name}" for name, count in endured.faults.items())),
            ("requests, of them sent again", f"{endured.requests:,}, {endured.repeated:,}"),
            ("responses that came again", f"{endured.responses_again:,}"),
            (
                "frames damaged here, dropped there",
                f"{endured.damaged:,}, {endured.dropped:,}",
            ),
            ("times the host asked, opened the line anew", f"{endured.resumed:,}, {endured.reopened:,}"),
            (
                "seconds on the line, by the clock",
                f"{endured.port_seconds:,.1f}, {endured.wall_seconds:,.0f}",
            ),
        ],
        right=" r",
    )


def _errors(results: "list[EstimateResult]") -> tuple[list[float], list[float]]:
    return [each.lut_error for each in results], [each.ff_error for each in results]


def _both(estimated: int, taken: float) -> str:
    return f"{taken:g}" if estimated == taken else f"{taken:g}, not {estimated:g}"


def _show(session: CommandSession, result: "BenchResult") -> None:
    machine = result.machine
    where = "no core held" if machine.pinned_core is None else f"core {machine.pinned_core}"
    session.say(
        f"CPU times: {machine.processor}, {machine.cores} cores, one thread on {where}, "
        f"load average {machine.load_average:g} before\n"
    )
    session.table(
        "One step in hardware: cycles, simulated unless marked with *, and us at a clock in MHz",
        (
            "shape",
            "MAC",
            "lanes x macs",
            "pipeline",
            "latency",
            "array",
            "overhead",
            "interval",
            "use",
            "MHz",
            "latency us",
            "interval us",
        ),
        [_row(shape) for shape in result.shapes],
        right=" rr rrrrrrrr",
    )
    session.table(
        "One step on this processor, state carried: us",
        (
            "shape",
            *(f"{engine} {part}" for engine in _ENGINES for part in ("p50", "p99")),
            "in hardware",
            "pipeline",
        ),
        [_cpu_row(shape) for shape in result.shapes],
        right=" rrrrrrr",
    )
    session.table(
        "Others' figures, theirs, on their devices, beside ours: on chip, without a host",
        ("shape", "who", "device", "MHz", "timed", "us", "ours", "at MHz", "pipeline", "source"),
        [_anchor_row(shape, anchor) for shape in result.shapes for anchor in shape.anchors]
        + [_anchor_row(None, anchor) for anchor in result.other_anchors],
        right="   r rrr",
    )
    session.table(
        "What the project asks of itself",
        ("", "found", "", "must", "aim", "verdict", ""),
        [
            (
                target.what,
                "-" if target.value is None else f"{target.value:,.4g}",
                target.unit,
                target.must,
                target.aim,
                target.verdict,
                target.note,
            )
            for target in result.targets
        ],
        right=" r",
    )
    _notes(session, result)
    session.say("passed" if result.passed else "FAILED: see the shapes named in the notes")


def _anchor_row(shape: "ShapeResult | None", anchor: "Anchor") -> tuple[str, ...]:
    ours, clock, pipeline = "", "", ""
    if shape is not None:
        ours = _short(shape.sequence_us if anchor.unit == "sequence" else shape.latency_us)
        clock, pipeline = _clock(shape), shape.hardware.pipeline
    return (
        shape.name if shape else f"({anchor.network})",
        anchor.who,
        anchor.device,
        "" if anchor.clock_mhz is None else f"{anchor.clock_mhz:g}",
        f"{anchor.timed}, a {anchor.unit}",
        anchor.figure,
        ours,
        clock,
        pipeline,
        f"{anchor.source} ({anchor.kind})",
    )


def _clock(shape: "ShapeResult") -> str:
    return f"{shape.clock.mhz:g}{' ?' if shape.clock.source == 'assumed' else ''}"


def _row(shape: "ShapeResult") -> tuple[object, ...]:
    found = shape.hardware
    mark = "*" if found.not_simulated else "" if found.agrees else "!"
    return (
        shape.name,
        shape.lstm_macs + shape.dense_macs,
        f"{found.lanes} x {found.macs}",
        found.pipeline,
        f"{found.predicted_latency:,}{mark}",
        found.array_cycles,
        "+".join(str(layer.overhead_cycles) for layer in found.layers),
        f"{found.predicted_interval:,}{mark}",
        f"{100 * found.use:.1f} %",
        _clock(shape),
        _short(shape.latency_us),
        _short(shape.interval_us),
    )


def _cpu_row(shape: "ShapeResult") -> tuple[str, ...]:
    times = {time.engine: (time.p50_us, time.p99_us) for time in shape.cpu}
    found = [value for engine in _ENGINES for value in times.get(engine, (None, None))]
    cells = ("-" if value is None else _short(value) for value in found)
    ours = f"{_short(shape.latency_us)} at {_clock(shape)} MHz"
    return (shape.name, *cells, ours, shape.hardware.pipeline)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _notes(session: CommandSession, result: "BenchResult") -> None:
    """Say once what is behind the marks of the tables."""
    if any(shape.clock.source == "assumed" for shape in result.shapes):
        session.note("a clock with ? is assumed; others are post-route, by 'rtlstm implement' on the build")
    predicted: dict[str, list[str]] = {}
    for shape in result.shapes:
        found = shape.hardware
        if found.not_simulated:
            predicted.setdefault(found.not_simulated, []).append(shape.name)
        elif not found.agrees:
            session.note(
                f"! {shape.name}: {found.words_different} of {found.words_compared} words differ from the "
                f"golden model, {found.steps_off_cycle} of {found.steps} steps are off their cycle; latency "
                f"{found.measured_latency}, cold {found.measured_first_step_latency}, interval "
                f"{found.measured_interval or 'not constant'} measured"
            )
    for why, names in predicted.items():
        session.note(f"* predicted only, {why}: {', '.join(names)}")
    for time in (time for shape in result.shapes for time in shape.cpu if time.missing):
        session.note(f"{time.engine} was not timed: {time.missing}")
    if result.machine.load_average > _BUSY:
        session.note("the machine was busy: times are longer, p99 much so")


_BUSY = 0.5
