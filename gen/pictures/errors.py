"""Errors of layers: which part of the arithmetic they come from, and how they go over time."""

from collections.abc import Sequence

from rtlstm.gen.accuracy.mixed_cell import PARTS
from rtlstm.gen.accuracy.records import ErrorReport, LayerErrors
from rtlstm.gen.pictures.picture import NO_AXIS, WIDE, Picture, colour, rows_axis

__all__ = ["draw_error_parts", "draw_error_steps", "rounded_parts"]


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
