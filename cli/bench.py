"""``rtlstm bench``: this machine, the hardware and others' figures, side by side."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtlstm.cli.console import Console
from rtlstm.cli.options import DebugOption, JsonOption
from rtlstm.cli.results import Field, Found, Table, Text, Values, View

if TYPE_CHECKING:
    from rtlstm.bench.anchors import Anchor
    from rtlstm.bench.records import BenchResult, ShapeResult

__all__ = ["bench"]

_ENGINES = ("onnxruntime", "torch", "c++")

_BUSY = 0.5
"""Load average above which times are not to be trusted."""


def bench(
    shapes: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK]...", help="Networks to measure; by default all.")
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
        typer.Option("--estimates", help="Only compare estimates with synthesis; --quick: of few builds."),
    ] = False,
    link: Annotated[
        bool,
        typer.Option(
            "--link",
            help="Only measure the serial link: its efficiency, and a million steps with faults.",
        ),
    ] = False,
    board: Annotated[
        str | None,
        typer.Option(
            metavar="BOARD",
            help="With --link: only 10,000 steps with faults, to this board's top level in simulation.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the builds go; those found there are used.")
    ] = Path("build/bench"),
    save: Annotated[Path | None, typer.Option(help="Write the JSON object to this file, too.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure cycles, CPU times and the tools themselves, and show published figures beside them.

    Exits with 1 if the RTL differs from the golden model or from the predicted cycles, if an estimate of
    multipliers or block RAM differs from synthesis, or if a step of --link differs from the golden model.
    """
    with Console(as_json, debug) as console:
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
                raise ConfigurationError("--estimates has builds of its own: leave out the networks")
            _estimates(console, quick, save)
            return
        if link:
            if shapes:
                raise ConfigurationError("--link has builds of its own: leave out the networks")
            _link(console, quick, save) if board is None else _board(console, board, quick, save)
            return
        if board is not None:
            raise ConfigurationError("--board needs --link: give both, or leave out --board")
        plan = Plan(
            shapes=find_shapes(shapes),
            folder=output,
            quick=quick,
            rtl=not no_rtl,
            devices=tuple(device or ()),
            assumed_mhz=clock,
        )
        with console.progress() as progress:
            result = run_bench(plan, progress)
        _finish(console, _BENCH, result.passed, save, result.model_dump(mode="json"))
        _note_marks(console, result)


def _finish(console: Console, view: View, passed: bool, save: Path | None, fields: dict[str, Any]) -> None:
    """Save what was measured, if that was asked for, and show it."""
    from rtlstm.spec.files import write_file

    console.passed = passed
    if save is not None:
        write_file(save, json.dumps(fields, indent=1) + "\n")
    console.show(view, **fields)


def _estimates(console: Console, quick: bool, save: Path | None) -> None:
    """Measure the estimates' errors and show them."""
    from rtlstm.bench.estimates import fit_factors, measure_estimates
    from rtlstm.fpga.estimate import MARGIN
    from rtlstm.fpga.families.base import fpga_family

    with console.progress() as progress:
        results = list(measure_estimates(quick, progress))
    factors = fit_factors(results)
    now = {family: fpga_family(family).need_estimates() for family in factors}
    exact = all(result.exact for result in results)
    fields = {
        "estimates": [result.model_dump(mode="json") for result in results],
        "factors": factors,
        "current_factors": {
            family: {"luts": dict(each.luts), "ffs": dict(each.ffs)} for family, each in now.items()
        },
        "allowed_percent": 100 * MARGIN,
        "passed": exact,
    }
    _finish(console, _ESTIMATES, exact, save, fields)


def _link(console: Console, quick: bool, save: Path | None) -> None:
    """Measure the serial link and show it."""
    from rtlstm.bench.link import LEAST_SHARE, LEAST_USE, measure_efficiency
    from rtlstm.bench.soak import soak

    found = list(measure_efficiency(quick))
    with console.progress() as progress:
        endured = soak(10_000 if quick else 1_000_000, progress=progress)
    passed = endured.passed and all(each.passed for each in found)
    fields = {
        "efficiency": [each.model_dump(mode="json") for each in found],
        "soak": endured.model_dump(mode="json"),
        "least": {"payload_share": LEAST_SHARE, "port_use": LEAST_USE},
        "passed": passed,
    }
    _finish(console, _LINK, passed, save, fields)


def _board(console: Console, board: str, quick: bool, save: Path | None) -> None:
    """Run steps with faults to a simulated board and show the result."""
    from rtlstm.bench.soak import soak_board

    with console.progress() as progress:
        endured = soak_board(board, 640 if quick else 10_000, progress=progress)
    fields = {"soak": endured.model_dump(mode="json"), "passed": endured.passed}
    _finish(console, _BOARD, endured.passed, save, fields)


def _verdict(found: Found) -> str:
    return "passed" if found["passed"] else "FAILED"


def _factors(found: Found) -> list[dict[str, Any]]:
    """Each factor of each family: what estimates use now, and what fits these builds."""
    current = found["current_factors"]
    return [
        {"family": family, "of": of, "part": part, "now": current[family][of][part], "fitted": fitted}
        for family, kinds in found["factors"].items()
        for of in ("luts", "ffs")
        for part, fitted in kinds[of].items()
    ]


def _largest_errors(found: Found) -> str:
    luts, ffs = (max(abs(each[name]) for each in found["estimates"]) for name in ("lut_error", "ff_error"))
    return (
        f"The largest error of LUTs is {luts:.1f} %, that of flip-flops {ffs:.1f} %; "
        f"the estimate's margin is {found['allowed_percent']:g} %."
    )


def _both(estimated: int, taken: float) -> str:
    return f"{taken:g}" if estimated == taken else f"{taken:g}, not {estimated:g}"


def _machine(found: Found) -> str:
    machine = found["machine"]
    core = machine["pinned_core"]
    where = "no particular core" if core is None else f"core {core}"
    return (
        f"CPU times: {machine['processor']}, {machine['cores']} cores, one thread on {where}, "
        f"load average {machine['load_average']:g} before\n"
    )


def _shapes(found: Found) -> "list[ShapeResult]":
    from rtlstm.bench.records import ShapeResult

    return [ShapeResult.model_validate(each) for each in found["shapes"]]


def _anchors(found: Found) -> "list[tuple[ShapeResult | None, Anchor]]":
    """Published figures, each with its network, if that is measured here."""
    from rtlstm.bench.anchors import Anchor

    others = [Anchor.model_validate(each) for each in found["other_anchors"]]
    return [
        *((shape, anchor) for shape in _shapes(found) for anchor in shape.anchors),
        *((None, anchor) for anchor in others),
    ]


def _our_time(row: "tuple[ShapeResult | None, Anchor]") -> str | None:
    """Our time for what a published figure is of."""
    shape, anchor = row
    if shape is None:
        return None
    return _short(shape.sequence_us if anchor.unit == "sequence" else shape.latency_us)


def _mark(shape: "ShapeResult") -> str:
    """The mark behind a network's cycles: none if they were simulated and are as predicted."""
    return "*" if shape.hardware.not_simulated else "" if shape.hardware.agrees else "!"


def _time(engine: str, name: str) -> "Callable[[ShapeResult], str]":
    """Write an engine's time of a step, or a dash if it was not timed."""

    def reading(shape: "ShapeResult") -> str:
        value = next((getattr(time, name) for time in shape.cpu if time.engine == engine), None)
        return "-" if value is None else _short(value)

    return reading


def _clock(shape: "ShapeResult") -> str:
    return f"{shape.clock.mhz:g}{' ?' if shape.clock.source == 'assumed' else ''}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _note_marks(console: Console, result: "BenchResult") -> None:
    """Explain the marks of the tables, each once."""
    if any(shape.clock.source == "assumed" for shape in result.shapes):
        console.note("a clock with ? is assumed; others are post-route, by 'rtlstm implement' on the build")
    predicted: dict[str, list[str]] = {}
    for shape in result.shapes:
        found = shape.hardware
        if found.not_simulated:
            predicted.setdefault(found.not_simulated, []).append(shape.name)
        elif not found.agrees:
            console.note(
                f"! {shape.name}: {found.words_different} of {found.words_compared} words differ from the "
                f"golden model, {found.steps_off_cycle} of {found.steps} steps are off their cycle; latency "
                f"{found.measured_latency}, of a first step {found.measured_first_step_latency}, interval "
                f"{found.measured_interval or 'not constant'} measured"
            )
    for why, names in predicted.items():
        console.note(f"* predicted only, {why}: {', '.join(names)}")
    for time in (time for shape in result.shapes for time in shape.cpu if time.missing):
        console.note(f"{time.engine} was not timed: {time.missing}")
    if result.machine.load_average > _BUSY:
        console.note("the machine was busy: times are longer, p99 much so")


def _if_clocked(anchor: "Anchor") -> str | None:
    return None if anchor.clock_mhz is None else f"{anchor.clock_mhz:g}"


_ESTIMATES = (
    Table(
        "Estimates compared with synthesis",
        lambda found: found["estimates"],
        (
            Field("build", "{name}"),
            Field("device", "{device}"),
            Field("lanes x macs", "{lanes} x {macs}", right=True),
            Field("LUTs", "{luts:,}", right=True),
            Field("error", "{lut_error:+.1f} %", right=True),
            Field("flip-flops", "{ffs:,}", right=True),
            Field("error", "{ff_error:+.1f} %", right=True),
            Field(
                "multipliers",
                lambda each: _both(each["estimated_multipliers"], each["multipliers"]),
                right=True,
            ),
            Field(
                "block RAMs", lambda each: _both(each["estimated_block_rams"], each["block_rams"]), right=True
            ),
        ),
    ),
    Table(
        "Factors",
        _factors,
        (
            Field("family", "{family}"),
            Field("of", "{of}"),
            Field("part", "{part}"),
            Field("now", "{now:g}", right=True),
            Field("fitted to these builds", "{fitted:g}", right=True),
        ),
    ),
    Text(_largest_errors),
    Text(lambda found: None if found["passed"] else "FAILED: multipliers and block RAM must be exact"),
)

_SOAK = Values(
    lambda soak: (
        f"{soak['steps']:,} steps of 64 streams, faults in {100 * soak['rate']:g} % of frames each way"
    ),
    (
        Field("device", "{device}"),
        Field("lost or run twice", lambda soak: abs(soak["executed"] - soak["steps"])),
        Field("wrong", "{wrong:,}"),
        Field(
            "faults", lambda soak: ", ".join(f"{count:,} {name}" for name, count in soak["faults"].items())
        ),
        Field("requests, resent requests", "{requests:,}, {repeated:,}"),
        Field("repeated responses", "{responses_again:,}"),
        Field("frames damaged at the host, dropped by the device", "{damaged:,}, {dropped:,}"),
        Field("resumed sessions, reopened ports", "{resumed:,}, {reopened:,}"),
        Field("seconds of the port, of this machine", "{port_seconds:,.1f}, {wall_seconds:,.0f}"),
    ),
    holder=lambda found: found["soak"],
    right=True,
)

_LINK = (
    Table(
        "The serial link at 3 Mbaud, simulated",
        lambda found: found["efficiency"],
        (
            Field("steps of", "{name}"),
            Field("latency", lambda each: f"{1e3 * each['latency_seconds']:g} ms", right=True),
            Field("payload efficiency", lambda each: f"{100 * each['payload_share']:.1f} %", right=True),
            Field("steps/s", "{steps_per_second:,.0f}", right=True),
            Field("of the maximum", lambda each: f"{100 * each['port_use']:.1f} %", right=True),
            Field("processor us a step", "{processor_us_per_step:.0f}", right=True),
        ),
    ),
    _SOAK,
    Text(
        lambda found: (
            f"{_verdict(found)}: every step once and right, payload at least "
            f"{100 * found['least']['payload_share']:g} % with 256 bytes, throughput at least "
            f"{100 * found['least']['port_use']:g} % of the maximum"
        )
    ),
)

_BOARD = (_SOAK, Text(lambda found: f"{_verdict(found)}: every step once and right"))

_BENCH = (
    Text(_machine),
    Table(
        "One step in hardware: cycles, simulated unless marked with *, and us at a clock in MHz",
        _shapes,
        (
            Field("network", "{name}"),
            Field("MAC", lambda shape: shape.lstm_macs + shape.dense_macs, right=True),
            Field("lanes x macs", "{hardware.lanes} x {hardware.macs}", right=True),
            Field("pipeline", "{hardware.pipeline}"),
            Field("latency", lambda shape: f"{shape.hardware.predicted_latency:,}{_mark(shape)}", right=True),
            Field("array", "{hardware.array_cycles:,}", right=True),
            Field(
                "overhead",
                lambda shape: "+".join(str(layer.overhead_cycles) for layer in shape.hardware.layers),
                right=True,
            ),
            Field(
                "interval", lambda shape: f"{shape.hardware.predicted_interval:,}{_mark(shape)}", right=True
            ),
            Field("use", lambda shape: f"{100 * shape.hardware.use:.1f} %", right=True),
            Field("MHz", lambda shape: _clock(shape), right=True),
            Field("latency us", lambda shape: _short(shape.latency_us), right=True),
            Field("interval us", lambda shape: _short(shape.interval_us), right=True),
        ),
    ),
    Table(
        "One step on this processor, state carried: us",
        _shapes,
        (
            Field("network", "{name}"),
            *(
                Field(f"{engine} {part}", _time(engine, f"{part}_us"), right=True)
                for engine in _ENGINES
                for part in ("p50", "p99")
            ),
            Field(
                "in hardware", lambda shape: f"{_short(shape.latency_us)} at {_clock(shape)} MHz", right=True
            ),
            Field("pipeline", "{hardware.pipeline}"),
        ),
    ),
    Table(
        "Published figures of others, on their devices, beside ours: on chip, without a host",
        _anchors,
        (
            Field("network", lambda row: row[0].name if row[0] else f"({row[1].network})"),
            Field("who", lambda row: row[1].who),
            Field("device", lambda row: row[1].device),
            Field("MHz", lambda row: _if_clocked(row[1]), right=True),
            Field("timed", lambda row: f"{row[1].timed}, a {row[1].unit}"),
            Field("us", lambda row: row[1].figure, right=True),
            Field("ours", _our_time, right=True),
            Field("at MHz", lambda row: _clock(row[0]) if row[0] else None, right=True),
            Field("pipeline", lambda row: row[0].hardware.pipeline if row[0] else None),
            Field("source", lambda row: f"{row[1].source} ({row[1].kind})"),
        ),
    ),
    Table(
        "Goals of the project",
        lambda found: found["targets"],
        (
            Field("", "{what}"),
            Field(
                "found",
                lambda target: "-" if target["value"] is None else f"{target['value']:,.4g}",
                right=True,
            ),
            Field("", "{unit}"),
            Field("must", "{must}"),
            Field("aim", "{aim}"),
            Field("verdict", "{verdict}"),
            Field("", "{note}"),
        ),
    ),
    Text(lambda found: "passed" if found["passed"] else "FAILED: see the networks named in the notes"),
)
