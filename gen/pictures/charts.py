"""The report's charts: cycles of a step, use of a device, slowest path, histograms, traces and errors."""

from collections.abc import Sequence
from typing import Any, Protocol

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.implementation import Implementation, ResourceUse
from rtlstm.fpga.resources import count_text, percent, resource_uses
from rtlstm.fpga.worst_path import WorstPath
from rtlstm.gen.accuracy.records import PARTS, ErrorReport, LayerErrors
from rtlstm.gen.pictures.picture import NARROW, NO_AXIS, WIDE, Picture, colour, rows_axis, whole_numbers
from rtlstm.gen.quantise.accuracy import Histogram, Trace
from rtlstm.spec.record import Record


class LayerCycles(Protocol):
    """A layer and its cycles, as the report has them."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def array_cycles(self) -> int:
        """Cycles on the way from input to output in which the array multiplies."""

    @property
    def overhead_cycles(self) -> int:
        """All others on the way."""

    @property
    def recurrent_cycles(self) -> int:
        """Cycles of the array before the input is there."""


def draw_cycles(layers: Sequence[LayerCycles]) -> Picture:
    """Draw a bar for each layer: cycles of the array, of the overhead, and off the path.

    A layer that begins before the one in front of it ends may have an overhead below 0, which has no length.
    """
    parts: list[dict[str, Any]] = [
        {
            "row": row,
            "cycles": max(0, cycles),
            "colour": colour(name),
            "order": order,
            "about": f"{about}: {cycles:,}",
        }
        for row, layer in enumerate(layers)
        for order, (name, about, cycles) in enumerate(
            (
                ("array", "array", layer.array_cycles),
                ("overhead", "overhead", layer.overhead_cycles),
                ("others", "recurrent, off the path", layer.recurrent_cycles),
            )
        )
    ]
    rows = range(len(layers))
    longest = max((sum(part["cycles"] for part in parts if part["row"] == row) for row in rows), default=0)
    chart = {
        "width": WIDE,
        "height": {"step": 30},
        "data": {"values": parts},
        "mark": {"type": "bar", "height": 20},
        "encoding": {
            "y": {"field": "row", "type": "ordinal", "axis": rows_axis([layer.name for layer in layers])},
            "x": {
                "field": "cycles",
                "type": "quantitative",
                "title": "cycles",
                "axis": whole_numbers(0, longest),
            },
            "order": {"field": "order"},
            "color": {"field": "colour", "scale": None},
            "description": {"field": "about"},
        },
    }
    return Picture("Cycles of a step, per layer", chart)


class DeviceUse(Record):
    """What a build takes of a device, and how fast it is there."""

    device: str
    about: str
    """Where the figures come from, and the time of a step if it is known."""
    resources: tuple[ResourceUse, ...]


def expected_use(estimates: Sequence[Estimate], chosen: Estimate | None = None) -> DeviceUse | None:
    """Return the estimate for the ``chosen`` device; else for the smallest one that the core fits.

    None without estimates; of the largest device if it fits none.
    """
    if chosen is None:
        by_size = sorted(estimates, key=lambda one: find_device(one.device).device.luts)
        chosen = next((one for one in by_size if one.fits), by_size[-1] if by_size else None)
    if chosen is None:
        return None
    device = find_device(chosen.device).device
    # The wrapper's memories are the device's, too.
    whole = chosen.model_copy(update={"block_rams": chosen.block_rams + chosen.wrapper_block_rams})
    uses = [
        ResourceUse(name=name, used=used, available=there)
        for name, used, there in resource_uses(whole, device)
        if used or there
    ]
    if chosen.chain_tiles is not None and device.chain_tiles is not None:
        there = device.chain_tiles
        uses.append(ResourceUse(name="tiles for carry chains", used=chosen.chain_tiles, available=there))
    board = f", with the link of {chosen.board}" if chosen.board else ""
    fits = "" if chosen.fits else "; it does not fit"
    clock = chosen.clock_mhz
    time = "" if clock is None else f", {chosen.step_latency_us:.5g} \u00b5s a step at "
    time += "an assumed " * chosen.clock_assumed + (f"{clock:.5g} MHz" if clock else "")
    return DeviceUse(
        device=chosen.device,
        about=f"estimated before synthesis{board}{time}{fits}",
        resources=tuple(uses),
    )


def measured_uses(found: Sequence[Implementation]) -> tuple[DeviceUse, ...]:
    """Return what was synthesised; first what was routed, the fastest first."""
    routed = sorted(
        (run for run in found if run.step_latency_us is not None), key=lambda run: run.step_latency_us or 0
    )
    others = [run for run in found if run.step_latency_us is None]
    return tuple(
        DeviceUse(
            device=run.label,
            about="synthesised"
            if run.step_latency_us is None
            else f"placed and routed, {run.step_latency_us:.5g} \u00b5s a step at "
            f"{run.fmax_median_mhz:.5g} MHz (median seed)",
            resources=tuple(use for use in run.resources if use.used or use.available),
        )
        for run in (*routed, *others)
    )


def draw_use(use: DeviceUse) -> Picture:
    """Draw a bar for each resource; a full bar is all that the device has."""
    rows = []
    for row, each in enumerate(use.resources):
        fits = each.used <= each.available
        figure = f"{count_text(each.used)} of {each.available:,}"
        if each.available:
            figure += f", {percent(each.used, each.available):g} %"
        rows.append(
            {
                "row": row,
                "name": each.name,
                "share": min(1.0, each.used / each.available) if each.available else 1.0,
                "figure": figure,
                "about": f"{each.name}: {figure}",
                "colour": colour("array" if fits else "overhead"),
            }
        )
    y = {"field": "row", "type": "ordinal", **NO_AXIS}
    share = {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1]}, **NO_AXIS}
    # Texts stand above their bars.
    bar = {"type": "bar", "height": 14, "yOffset": 7}
    text = {"type": "text", "baseline": "bottom", "dy": -3, "fontSize": 12}
    chart = {
        "width": NARROW - 10,
        "height": {"step": 38},
        "data": {"values": rows},
        "layer": [
            {
                "mark": {**bar, "color": colour("line"), "aria": False},
                "encoding": {"y": y, "x": {"datum": 1, "type": "quantitative", **NO_AXIS}},
            },
            {
                "mark": bar,
                "encoding": {
                    "y": y,
                    "x": share,
                    "color": {"field": "colour", "scale": None},
                    "description": {"field": "about"},
                },
            },
            {
                "mark": {**text, "align": "left", "fill": colour("ink"), "limit": NARROW - 180},
                "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "name"}},
            },
            {
                "mark": {**text, "align": "right"},
                "encoding": {"y": y, "x": {"value": NARROW - 10}, "text": {"field": "figure"}},
            },
        ],
    }
    return Picture(f"Share of {use.device}", chart, wide=False)


_WIDTH, _NAMES = 440, 320


def draw_path(path: WorstPath) -> Picture | None:
    """Draw a path cell by cell, with the wire behind each, to scale; None if its cells are not known."""
    if not path.hops or not path.delay_ns:
        return None
    names, bars, ends = [], [], []
    at = 0.0
    for row, hop in enumerate(path.hops):
        names.append(f"{hop.cell}, {hop.net}" if hop.net and hop.net not in hop.cell else hop.cell)
        for length, kind, what in (
            (hop.cell_ns, "array", hop.cell),
            (hop.wire_ns, "others", f"wire {hop.net}".rstrip()),
        ):
            if length > 0:
                about = f"{what}: {length:g} ns"
                bars.append(
                    {"row": row, "begin": at, "end": at + length, "colour": colour(kind), "about": about}
                )
            at += length
        ends.append({"row": row, "end": at, "told": f"{hop.cell_ns + hop.wire_ns:.2f}"})
    y = {"field": "row", "type": "ordinal"}
    chart = {
        "width": _WIDTH,
        "height": {"step": 22},
        "layer": [
            {
                "data": {"values": bars},
                "mark": {"type": "bar", "height": 12},
                "encoding": {
                    "y": {**y, "axis": rows_axis(names, _NAMES)},
                    "x": {"field": "begin", "type": "quantitative", "title": "ns"},
                    "x2": {"field": "end"},
                    "color": {"field": "colour", "scale": None},
                    "description": {"field": "about"},
                },
            },
            {
                "data": {"values": ends},
                "mark": {"type": "text", "align": "left", "dx": 5},
                "encoding": {
                    "y": y,
                    "x": {"field": "end", "type": "quantitative"},
                    "text": {"field": "told"},
                },
            },
        ],
    }
    return Picture(f"Slowest path, {path.text}", chart)


_INWARD = {
    "condition": [
        {"test": "datum.value < 0", "value": "left"},
        {"test": "datum.value > 0", "value": "right"},
    ],
    "value": "center",
}
"""Labels of limits at the plot's edges stand within it."""


def draw_histogram(found: Histogram) -> Picture:
    """Draw the counts by their square roots, so that rare values are seen; those beyond a limit differ."""
    wide = 2 * found.span / len(found.counts)
    bins = [
        {
            "begin": -found.span + index * wide,
            "end": -found.span + (index + 1) * wide,
            "count": count,
            "colour": colour("overhead" if beyond else "array"),
            "about": f"{count:,} values",
        }
        for index, count in enumerate(found.counts)
        for beyond in (abs(-found.span + (index + 0.5) * wide) > found.limit,)
        if count
    ]
    limits = [-found.limit, found.limit]
    x = {"type": "quantitative", "scale": {"domain": [-found.span, found.span], "nice": False}}
    chart = {
        "width": NARROW - 10,
        "height": 70,
        "title": {
            "text": f"{found.quantity}, {found.form}",
            "subtitle": f"largest {found.largest:.4g}",
            "limit": NARROW - 10,
        },
        "layer": [
            {
                "data": {"values": bins},
                "mark": {"type": "bar", "binSpacing": 0.5},
                "encoding": {
                    "x": {
                        "field": "begin",
                        **x,
                        "bin": "binned",
                        "axis": {
                            "values": [limits[0], 0, limits[1]],
                            "format": ",.6~g" if 1e-3 < found.limit < 1e6 else ".4~g",
                            "grid": False,
                            "title": None,
                            "labelAlign": _INWARD if found.span < 1.3 * found.limit else "center",
                        },
                    },
                    "x2": {"field": "end"},
                    "y": {"field": "count", "type": "quantitative", "scale": {"type": "sqrt"}, **NO_AXIS},
                    "color": {"field": "colour", "scale": None},
                    "description": {"field": "about"},
                },
            },
            {
                "data": {"values": [{"limit": limit} for limit in limits]},
                "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5, "color": colour("skip")},
                "encoding": {"x": {"field": "limit", **x}},
            },
        ],
    }
    return Picture(f"Histogram of {found.quantity}", chart, wide=False)


_LEFT = 60
"""Width of the figures at the left: the two charts begin at the same place."""


def draw_trace(trace: Trace, name: str = "") -> Picture:
    """Draw a trace; ``name`` is the output's."""
    values = {
        "float": trace.exact,
        "fixed": trace.fixed,
        "fixed - float": [fixed - exact for fixed, exact in zip(trace.fixed, trace.exact, strict=True)],
    }
    points = {
        series: [
            {"step": trace.first_step + index, "value": value, "about": series}
            for index, value in enumerate(found)
        ]
        for series, found in values.items()
    }
    last = trace.first_step + len(trace.exact) - 1
    x = {
        "field": "step",
        "type": "quantitative",
        "scale": {"domain": [trace.first_step, last], "nice": False},
    }
    # A single step is a point.
    single = len(trace.exact) == 1
    steps = whole_numbers(trace.first_step, last, 15) | {"title": "step", "grid": False}

    def curve(series: str, kind: str, width: float, axis: dict[str, Any] | None) -> dict[str, Any]:
        extent = {"minExtent": _LEFT, "maxExtent": _LEFT, "title": None, "format": ".3~g", "tickCount": 3}
        return {
            "data": {"values": points[series]},
            "mark": {"type": "line", "strokeWidth": width, "color": colour(kind), "point": single},
            "encoding": {
                "x": x | {"axis": axis},
                "y": {"field": "value", "type": "quantitative", "scale": {"zero": False}, "axis": extent},
                "description": {"field": "about"},
            },
        }

    title = f"{name or f'output {trace.output}'}, sequence {trace.sequence}"
    chart = {
        "spacing": 8,
        "vconcat": [
            {
                "title": {"text": title, "limit": WIDE},
                "width": WIDE + 100,
                "height": 100,
                "layer": [curve("float", "others", 4, None), curve("fixed", "array", 1.5, None)],
            },
            {
                "width": WIDE + 100,
                "height": 40,
                **curve("fixed - float", "overhead", 1.5, steps),
            },
        ],
    }
    return Picture(f"Output {trace.output} over time, in float and fixed", chart)


def rounded_parts(errors: ErrorReport) -> tuple[str, ...]:
    """Return the parts that have bars."""
    found = {each.part for layer in _with_signal(errors) for each in layer.parts}
    return tuple(part for part in PARTS if part in found)


def draw_error_parts(errors: ErrorReport) -> Picture | None:
    """Draw the layers' errors in percent of their float values: with all rounded, and each part alone.

    None if no layer has any value but 0.
    """
    layers = _with_signal(errors)
    if not layers:
        return None
    bars = [
        {
            "row": row,
            "part": part,
            "percent": percent,
            "label": f"{percent:.3g} %",
            "about": f"{layer.name}, {part}: {percent:.3g} %",
            "colour": colour(part),
        }
        for row, layer in enumerate(layers)
        for part, percent in _relative(layer).items()
    ]
    shown = {
        "y": {"field": "row", "type": "ordinal", "axis": rows_axis([layer.name for layer in layers])},
        "yOffset": {"field": "part", "sort": ["all", *PARTS]},
        "x": {"field": "percent", "type": "quantitative", **NO_AXIS},
    }
    bar = {"color": {"field": "colour", "scale": None}, "description": {"field": "about"}}
    chart = {
        "width": WIDE - 60,
        "height": {"step": 16, "for": "offset"},
        "data": {"values": bars},
        "layer": [
            {"mark": {"type": "bar", "height": 12}, "encoding": {**shown, **bar}},
            {
                "mark": {"type": "text", "align": "left", "dx": 5},
                "encoding": {**shown, "text": {"field": "label"}},
            },
        ],
    }
    label = (
        "Error of each layer in percent of its float values, with all rounded and with one part alone rounded"
    )
    return Picture(label, chart)


def draw_error_steps(errors: ErrorReport) -> Picture:
    """Draw the layers' errors over time, each on a scale of its own."""
    plots = []
    for layer in _shown_layers(errors):
        series = {each.part: each.steps for each in layer.parts} | {"all": layer.steps}
        points = [
            {
                "point": point,
                "error": error,
                "part": part,
                "colour": colour(part),
                "about": f"{layer.name}, {part}",
            }
            for part, values in series.items()
            for point, error in enumerate(values)
        ]
        y = {"minExtent": 60, "maxExtent": 60, "title": None, "format": ".3~g", "tickCount": 2}
        plots.append(
            {
                "title": {"text": layer.name, "limit": WIDE},
                "width": WIDE + 100,
                "height": 60,
                "data": {"values": points},
                # A single point is a line, too.
                "mark": {"type": "line", "strokeWidth": 1.5, "point": len(layer.steps) == 1},
                "encoding": {
                    "x": {"field": "point", "type": "quantitative", "scale": {"nice": False}, **NO_AXIS},
                    "y": {"field": "error", "type": "quantitative", "axis": y},
                    "color": {"field": "colour", "scale": None},
                    "detail": {"field": "part"},
                    "description": {"field": "about"},
                },
            }
        )
    label = "Error of each layer over time, with all rounded and with one part alone rounded"
    return Picture(label, {"vconcat": plots})


def _with_signal(errors: ErrorReport) -> list[LayerErrors]:
    return [layer for layer in _shown_layers(errors) if layer.rms_signal]


def _shown_layers(errors: ErrorReport) -> Sequence[LayerErrors]:
    """Return all layers, and the outputs unless they are the last layer's."""
    last = errors.layers[-1].replace(name=errors.output.name, kind=errors.output.kind)
    return errors.layers if last == errors.output else (*errors.layers, errors.output)


def _relative(layer: LayerErrors) -> dict[str, float]:
    """Errors in percent of the layer's float values: of all, then of each part alone."""
    found = {"all": layer.rms_error} | {each.part: each.alone for each in layer.parts}
    return {part: layer.relative(error) or 0.0 for part, error in found.items()}
