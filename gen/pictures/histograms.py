"""Histograms of values, with the limits of their format."""

from rtlstm.gen.pictures.picture import NARROW, NO_AXIS, Picture, colour
from rtlstm.gen.quantise.histograms import Histogram

__all__ = ["draw_histogram"]


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
