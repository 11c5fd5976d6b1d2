"""What people read of the results of ``rtlstm bench``."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rtlstm.cli.boards import BOARD_COLUMNS, link_rows
from rtlstm.cli.results import Field, Figure, Found, Table, Text, Values

if TYPE_CHECKING:
    from rtlstm.bench.accuracy import CaseResult
    from rtlstm.bench.records import Anchor, Clock, ShapeResult

_LOOPS = {"float": "c++", "int8": "c++ int8"}
"""Engines that are loops in C++, by their numbers."""


def _verdict(found: Found) -> str:
    return "passed" if found["passed"] else "FAILED"


def _conclusion(found: Found) -> str:
    """Say whether the hardware is right, and how many goals are missed: these do not decide."""
    if not found["passed"]:
        return "FAILED: see the networks named in the notes"
    missed = sum(target["verdict"] == "missed" for target in found["targets"])
    goals = f"; {missed} of {len(found['targets'])} goals of the project are missed" if missed else ""
    return f"passed: every cycle is as predicted, every word is the golden model's{goals}"


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
    from rtlstm.bench.records import Anchor

    others = [Anchor.model_validate(each) for each in found["other_anchors"]]
    return [
        *((shape, anchor) for shape in _shapes(found) for anchor in shape.anchors),
        *((None, anchor) for anchor in others),
    ]


def _cpu_part(part: str) -> Callable[[Found], str | None]:
    return lambda row: row[f"{part}_us"] and _short(row[f"{part}_us"])


def _instances(found: Found) -> list[dict[str, Any]]:
    """A row for each network, number of instances and use of the state."""
    from rtlstm.bench.records import Clock

    return [
        {
            "network": shape["name"],
            "mhz": _clock(Clock.model_validate(shape["clock"])),
            "instances": row["instances"],
            "state": "kept" if row["steps"] == 1 else f"zero, {row['steps']} steps",
            **{name: _short(row[f"{name}_us"]) for name in ("p50", "p99", "max")},
        }
        for shape in found["shapes"]
        for row in shape["instances"]
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


def _ours(name: str) -> "Callable[[ShapeResult], str]":
    """Write a time of the hardware, with the mark of its clock."""
    return lambda shape: f"{_short(getattr(shape, name))}{_DOUBTS[shape.clock.source]}"


def _error(shape: "ShapeResult") -> str:
    """Write how far the loop of integers is from float."""
    error = next((time.rms_error for time in shape.cpu if time.engine == "c++ int8"), None)
    return "-" if error is None else f"{error:.2g}"


def _kernels(found: Found) -> str | None:
    """Name the instructions of the loop of integers."""
    names = {time.kernel for shape in _shapes(found) for time in shape.cpu if time.engine == "c++ int8"} - {
        ""
    }
    return f"The int8 loop multiplies with {', '.join(sorted(names))}." if names else None


def _widths(found: Found) -> "list[tuple[CaseResult, int]]":
    """Each network with each width of its weights."""
    from rtlstm.bench.accuracy import CaseResult

    cases = map(CaseResult.model_validate, found["cases"])
    return [(case, bits) for case in cases for bits in dict.fromkeys(f.weight_bits for f in case.figures)]


def _cost(label: str, numbers: str, data_bits: int | None) -> Field:
    """A column of errors, in thousandths of the spread, each with its metric."""

    def reading(row: "tuple[CaseResult, int]") -> str | None:
        figures = row[0].find(numbers, row[1], data_bits)
        return None if figures is None else f"{1000 * figures.relative_rms:.3g} / {figures.metric:.4g}"

    return Figure(label, reading)


def _worse(comparison: dict[str, Any]) -> str:
    names = comparison["worse"]
    return f"{len(names)} of {comparison['of']}{': ' if names else ''}{', '.join(names)}"


def _why(found: Found) -> str | None:
    """Say what an FPGA is for where a loop is quicker, step after step or from an input to its output."""

    def quicker(theirs: str, ours: str) -> str:
        return ", ".join(
            shape.name
            for shape in _shapes(found)
            if any(
                time.engine in _LOOPS.values() and (getattr(time, theirs) or math.inf) < getattr(shape, ours)
                for time in shape.cpu
            )
        )

    steps, outputs = quicker("mean_us", "interval_us"), quicker("ready_us", "latency_us")
    named = [f"step after step: {steps}"] * bool(steps)
    named += [f"from an input to its output: {outputs}"] * bool(outputs)
    if not named:
        return None
    return (
        f"A C++ loop on one core of this machine is quicker than this hardware at this clock, "
        f"{'; '.join(named)}. An FPGA is then for steps that all take the same time, for many streams, for "
        "less energy, or for data that are on it already.\n"
    )


def _clock(clock: "Clock") -> str:
    return f"{clock.mhz:g}{_DOUBTS[clock.source]}"


_DOUBTS = {"post-route": "", "estimated": " ~", "assumed": " ?"}
"""What stands behind clocks."""


def _use(shape: "ShapeResult") -> str:
    """Write how much of its time a network's array works; a dash in space."""
    return "-" if shape.hardware.loop_registers is not None else f"{100 * shape.hardware.use:.1f} %"


def _size(shape: "ShapeResult") -> str:
    """Write a network's array, or the registers in its loop in space."""
    found = shape.hardware
    return (
        f"{found.lanes} x {found.macs}" if found.loop_registers is None else f"space, {found.loop_registers}"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


ESTIMATES = (
    Table(
        "Estimates compared with synthesis",
        lambda found: found["estimates"],
        Field("build", "{name}"),
        Field("device", "{device}"),
        Figure("lanes x macs", "{lanes} x {macs}"),
        Figure("LUTs", "{luts:,}"),
        Figure("error", "{lut_error:+.1f} %"),
        Figure("flip-flops", "{ffs:,}"),
        Figure("error", "{ff_error:+.1f} %"),
        Figure("multipliers", lambda each: _both(each["estimated_multipliers"], each["multipliers"])),
        Figure("block RAMs", lambda each: _both(each["estimated_block_rams"], each["block_rams"])),
    ),
    Table(
        "Factors",
        _factors,
        Field("family", "{family}"),
        Field("of", "{of}"),
        Field("part", "{part}"),
        Figure("now", "{now:g}"),
        Figure("fitted to these builds", "{fitted:g}"),
    ),
    Text(_largest_errors),
    Text(lambda found: None if found["passed"] else "FAILED: multipliers and block RAM must be exact"),
)

_SOAK = Values(
    lambda soak: (
        f"{soak['steps']:,} steps of 64 streams, faults in {100 * soak['rate']:g} % of frames each way"
    ),
    Field("device", "{device}"),
    Field("lost or run twice", lambda soak: abs(soak["executed"] - soak["steps"])),
    Field("wrong", "{wrong:,}"),
    Field("faults", lambda soak: ", ".join(f"{count:,} {name}" for name, count in soak["faults"].items())),
    Field("requests, resent requests", "{requests:,}, {repeated:,}"),
    Field("repeated responses", "{responses_again:,}"),
    Field("frames damaged at the host, dropped by the device", "{damaged:,}, {dropped:,}"),
    Field("resumed sessions, reopened ports", "{resumed:,}, {reopened:,}"),
    Field("seconds of the port, of this machine", "{port_seconds:,.1f}, {wall_seconds:,.0f}"),
    holder=lambda found: found["soak"],
    right=True,
)

LINK = (
    Table(
        "The serial link at 3 Mbaud, simulated",
        lambda found: found["efficiency"],
        Field("steps of", "{name}"),
        Figure("latency", lambda each: f"{1e3 * each['latency_seconds']:g} ms"),
        Figure("payload efficiency", lambda each: f"{100 * each['payload_share']:.1f} %"),
        Figure("steps/s", "{steps_per_second:,.0f}"),
        Figure("of the maximum", lambda each: f"{100 * each['port_use']:.1f} %"),
        Figure("processor us a step", "{processor_us_per_step:.0f}"),
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

BOARD = (_SOAK, Text(lambda found: f"{_verdict(found)}: every step once and right"))

BOARDS = (
    Text(_machine),
    Table(
        "The driver's processor time of a step, over the socket of a simulated board: us",
        lambda found: found["software"],
        Field("link", "{link}"),
        Figure("alone", "{alone_us:.1f}"),
        Figure("of many", "{batch_us:.1f}"),
    ),
    Table(
        "A step on one core of this processor: us",
        lambda found: [{"name": each["name"], **time} for each in found["networks"] for time in each["cpu"]],
        Field("network", "{name}"),
        Field("engine", "{engine}"),
        *(Figure(part, _cpu_part(part)) for part in ("mean", "p50", "p99")),
    ),
    Table(
        "A step on boards: alone, in us, and steps a second of many at once",
        lambda found: [
            {**row, "network": each["name"]}
            for each in found["networks"]
            for row in link_rows(each["boards"])
        ],
        Field("network", "{network}"),
        *BOARD_COLUMNS,
    ),
    Text(lambda found: "\n".join(each["verdict"] for each in found["networks"])),
)

STAC = (
    Text("Networks of STAC-ML Markets. This is not a STAC benchmark, and it is not audited."),
    Table(
        "Latency on chip in us, by the exact schedule, at the clock of a core with one stream; instances "
        "share a core, their inputs come at once",
        _instances,
        Field("network", "{network}"),
        Figure("MHz", "{mhz}"),
        Figure("instances", "{instances}"),
        Field("state", "{state}"),
        Figure("p50", "{p50}"),
        Figure("p99", "{p99}"),
        Figure("max", "{max}"),
    ),
    Table(
        "Error of the outputs of a window against float64",
        lambda found: found["shapes"],
        Field("network", "{name}"),
        Figure("steps", "{steps}"),
        Figure("rms", "{rms_error:.3g}"),
        Figure("largest", "{largest_error:.3g}"),
    ),
)

ACCURACY = (
    Text("Thousandths: rms error of the outputs by their standard deviation. Behind it: the metric."),
    Table(
        "Accuracy of rounded networks",
        _widths,
        Field("network", lambda row: row[0].name),
        Field("metric", lambda row: row[0].metric),
        Figure("float", lambda row: f"{row[0].in_float:.4g}"),
        Figure("weights", lambda row: row[1]),
        _cost("16-bit data", "rounded", 16),
        _cost("finetuned", "finetuned", 16),
        _cost("8-bit data", "rounded", 8),
        _cost("finetuned", "finetuned", 8),
        _cost("weights alone", "weights alone", None),
        _cost("int8, tensor", "exact int8, per tensor", 8),
        _cost("int8, channel", "exact int8, per channel", 8),
        _cost("onnxruntime, tensor", "onnxruntime, per tensor", 8),
        _cost("onnxruntime, channel", "onnxruntime, per channel", 8),
    ),
    Table(
        "Networks on which 8-bit weights are worse than int8, by the metric, then by the error",
        lambda found: found["comparisons"],
        Field("data", "{data_bits} bits"),
        Field("int8's scales", "{scales}"),
        Field("worse", _worse),
    ),
)

BENCH = (
    Text(_machine),
    Table(
        "One step in hardware: cycles, simulated unless marked with *, and us at MHz, ~ if estimated",
        _shapes,
        Field("network", "{name}"),
        Figure("MAC", lambda shape: shape.recurrent_macs + shape.dense_macs),
        Figure("lanes x macs", _size),
        Field("pipeline", "{hardware.pipeline}"),
        Figure("latency", lambda shape: f"{shape.hardware.predicted_latency:,}{_mark(shape)}"),
        Figure("array", "{hardware.array_cycles:,}"),
        Figure(
            "overhead",
            lambda shape: "+".join(str(layer.overhead_cycles) for layer in shape.hardware.layers),
        ),
        Figure("interval", lambda shape: f"{shape.hardware.predicted_interval:,}{_mark(shape)}"),
        Figure("use", _use),
        Figure("MHz", lambda shape: _clock(shape.clock)),
        Figure("latency us", lambda shape: _short(shape.latency_us)),
        Figure("interval us", lambda shape: _short(shape.interval_us)),
    ),
    Table(
        "One step on one core of this processor, state carried: us",
        _shapes,
        Field("network", "{name}"),
        *(
            Figure(f"{engine} {part}", _time(engine, f"{part}_us"))
            for engine in ("onnxruntime", "torch")
            for part in ("p50", "p99")
        ),
        Figure("in hardware", lambda shape: f"{_short(shape.latency_us)} at {_clock(shape.clock)} MHz"),
        Field("pipeline", "{hardware.pipeline}"),
    ),
    Table(
        "The same in a C++ loop; mean: step after step; ready: input to output with W_hh h computed before",
        _shapes,
        Field("network", "{name}"),
        *(
            Figure(f"{name} {part}", _time(engine, f"{part}_us"))
            for name, engine in _LOOPS.items()
            for part in ("mean", "p99", "ready")
        ),
        Figure("int8 rms error", _error),
        *(
            Figure(f"hardware {part}", _ours(name))
            for part, name in (("mean", "interval_us"), ("ready", "latency_us"))
        ),
        Field("pipeline", "{hardware.pipeline}"),
    ),
    Text(_kernels),
    Text(_why),
    Table(
        "Published figures of others, on their devices, beside ours: on chip, without a host",
        _anchors,
        Field("network", lambda row: row[0].name if row[0] else f"({row[1].network})"),
        Field("who", lambda row: row[1].who),
        Field("device", lambda row: row[1].device),
        Figure("MHz", lambda row: None if row[1].clock_mhz is None else f"{row[1].clock_mhz:g}"),
        Field("timed", lambda row: f"{row[1].timed}, a {row[1].unit}"),
        Figure("us", lambda row: row[1].figure),
        Figure("ours", _our_time),
        Figure("at MHz", lambda row: _clock(row[0].clock) if row[0] else None),
        Field("pipeline", lambda row: row[0].hardware.pipeline if row[0] else None),
        Field("source", lambda row: f"{row[1].source} ({row[1].kind})"),
    ),
    Table(
        "Goals of the project",
        lambda found: found["targets"],
        Field("", "{what}"),
        Figure("found", lambda target: "-" if target["value"] is None else f"{target['value']:,.4g}"),
        Field("", "{unit}"),
        Field("must", "{must}"),
        Field("aim", "{aim}"),
        Field("verdict", "{verdict}"),
        Field("", "{note}"),
    ),
    Text(_conclusion),
)
