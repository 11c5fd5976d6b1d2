"""Outputs over time: float and fixed over each other, and their difference below."""

from typing import Any

from rtlstm.gen.pictures.picture import WIDE, Picture, colour, whole_numbers
from rtlstm.gen.quantise.traces import Trace

__all__ = ["draw_trace"]

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
