"""The front as one HTML file with a picture to click; it needs no network. Bokeh draws it."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from rtlstm.gen.pictures.picture import escape_controls
from rtlstm.spec.errors import ToolError

_MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star", "plus")
_COLUMNS = {
    "number": "#",
    "device": "device",
    "numbers": "bits: weight/data/gate/cell",
    "array": "array",
    "cycles": "cycles",
    "latency_us": "latency, us",
    "fmax_mhz": "clock, MHz",
    "luts": "LUTs",
    "multipliers": "multipliers",
    "block_rams": "block RAMs",
    "share": "device full, %",
    "energy_nj": "energy, nJ",
    "error": "error",
    "measure": "",
    "proof": "proof",
}
_WIDTHS = {"number": 40, "device": 100, "proof": 190}
"""Columns whose cells may be wider than their headings, in pixels."""
_TEMPLATE = """
{% block preamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  body { margin: 12px; background: white; color: black; font-family: sans-serif; }
  h1 { font-size: 1.2rem; margin: 5px; } p { font-size: .9rem; margin: 5px; overflow-wrap: anywhere; }
  /* Bokeh draws for light pages; hues stay. */
  @media (prefers-color-scheme: dark) {
    html { background: #141414; }
    body { background: white; filter: invert(0.92) hue-rotate(180deg); }
  }
</style>
{% endblock %}
{% block contents %}
<h1>{{ title | e }}</h1>
{% for text in texts %}
<p>{{ text | e }}</p>
{% endfor %}
{{ super() }}
{% endblock %}
"""
_COLORS = 164
"""So many of the palette's colors are seen on a light page, and inverted on a dark one; the last are not."""
_NEUTRAL = "#707070"
"""The legend's markers: the color of a point is its metric."""
_AXES = ("latency_us", "luts", "multipliers", "block_rams", "share", "energy_nj", "error", "measure")
_CLICK = """
const at = source.selected.indices;
shown.text = at.length ? source.data.command[at[0]] : hint;
"""
_CHOOSE = """
source.data.AXIS = source.data[cb_obj.value];
source.change.emit();
label.axis_label = names[cb_obj.value];
"""
_HINT = "Click a point or a row to see the command that builds it."


def render_page(
    title: str,
    points: Sequence[Mapping[str, Any]],
    measure: str,
    found: Mapping[str, Any] | None = None,
) -> str:
    """Return the page.

    ``points`` has for each point what the columns show, and ``command``, which builds it. ``measure`` is what
    the metric is called. ``found`` is the search, as ``explore.json`` has it: the page then says what the
    metric is, the limits, and how many choices were tried. Raises ToolError if Bokeh is not installed.
    """
    try:
        from bokeh.embed import file_html
        from bokeh.layouts import column, row
        from bokeh.models import (
            ColumnDataSource,
            CustomJS,
            DataTable,
            PreText,
            Select,
            StringFormatter,
            TableColumn,
        )
        from bokeh.resources import INLINE
    except ImportError as error:
        raise ToolError(
            f"the page needs the package 'bokeh' ({error}); install it with: pip install 'rtlstm[explore]'"
        ) from None
    # Of no device of these, perhaps, is the energy known.
    titles = {**_COLUMNS, "measure": measure}
    names = {name: text for name, text in titles.items() if any(point[name] is not None for point in points)}
    devices = list(dict.fromkeys(point["device"] for point in points))
    marks = {device: _MARKERS[index % len(_MARKERS)] for index, device in enumerate(devices)}
    data = {name: [point[name] for point in points] for name in (*names, "command")}
    data["mark"] = [marks[point["device"]] for point in points]
    data["x"], data["y"] = data["latency_us"], data["luts"]
    source = ColumnDataSource(data)
    plot, axes = _plot(source, names, marks)
    wraps = "pre { white-space: pre-wrap; overflow-wrap: anywhere; }"
    shown = PreText(text=_HINT, sizing_mode="stretch_width", stylesheets=[wraps])
    source.selected.js_on_change(
        "indices", CustomJS(args={"source": source, "shown": shown, "hint": _HINT}, code=_CLICK)
    )
    choices = [(name, names[name]) for name in _AXES if name in names]
    selects = []
    for axis, value in (("x", "latency_us"), ("y", "luts")):
        select = Select(
            title=f"{'horizontal' if axis == 'x' else 'vertical'} axis",
            value=value,
            options=choices,
            sizing_mode="stretch_width",
        )
        code = _CHOOSE.replace("AXIS", axis)
        select.js_on_change(
            "value", CustomJS(args={"source": source, "label": axes[axis], "names": names}, code=code)
        )
        selects.append(select)
    table = DataTable(
        source=source,
        columns=[
            TableColumn(
                field=name,
                title=text,
                width=_WIDTHS.get(name, max(75, 8 * len(text) + 12)),
                formatter=StringFormatter(nan_format="", null_format=""),
            )
            for name, text in names.items()
        ],
        index_position=None,
        # A narrow page scrolls the table; the columns stay as wide as their headings.
        autosize_mode="none",
        sizing_mode="stretch_width",
        height=min(600, 60 + 25 * len(points)),
    )
    texts = [] if found is None else [escape_controls(text) for text in _describe(found, points)]
    page: str = file_html(
        column(row(*selects, sizing_mode="stretch_width"), plot, shown, table, sizing_mode="stretch_width"),
        INLINE,
        escape_controls(title),
        template=_TEMPLATE,
        template_variables={"texts": texts},
    )
    return page


def _describe(found: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what was searched for, as the terminal does."""
    limits = f"; limits: {', '.join(found['limits'])}" if found["limits"] else ", without limits"
    within = f" {found['within']:,} meet the limits." if found["limits"] else ""
    refused = f"{found['too_large']:,} do not fit their device, {found['impossible']:,} cannot be built"
    side = "larger" if found["larger_is_better"] else "smaller"
    floats = "" if found["float_metric"] is None else f"; the float network has {found['float_metric']:.3g}"
    names = dict.fromkeys(point["device"] for point in points if point.get("clock_assumed"))
    assumed = f" The clock of {', '.join(names)} is assumed." if names else ""
    return [
        f"Searched by {found['goal']}{limits}. {found['tried']:,} of {found['size']:,} choices tried: "
        f"{refused}.{within}",
        f"Color is the metric, {found['metric']}: {found['metric_meaning']}; {side} is better{floats}. "
        f"Clocks and LUTs are estimates before synthesis.{assumed}",
    ]


def _plot(source: Any, names: Mapping[str, str], marks: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """The scatter plot, and its axes by name: a color for the metric, a marker for the device."""
    from bokeh.models import ColorBar, DataRange1d, HoverTool, Legend, LegendItem, PrintfTickFormatter
    from bokeh.palettes import Plasma256
    from bokeh.plotting import figure
    from bokeh.transform import linear_cmap

    plot = figure(
        height=480,
        sizing_mode="stretch_width",
        tools="tap,pan,wheel_zoom,box_zoom,reset,save",
        x_axis_label=names["latency_us"],
        y_axis_label=names["luts"],
        x_range=DataRange1d(),
        y_range=DataRange1d(),
    )
    plot.toolbar.logo = None
    values = source.data["measure"]
    colors = linear_cmap("measure", Plasma256[:_COLORS], min(values, default=0.0), max(values, default=1.0))
    dots = plot.scatter(
        "x",
        "y",
        source=source,
        marker="mark",
        size=11,
        color=colors,
        alpha=0.9,
        nonselection_alpha=0.3,
    )
    dots.nonselection_glyph.line_alpha = 0.3
    plot.x_range.renderers = plot.y_range.renderers = [dots]
    bar = ColorBar(
        color_mapper=colors.transform, title=names["measure"], formatter=PrintfTickFormatter(format="%.3g")
    )
    plot.add_layout(bar, "right")
    # Points of the legend alone, which are nowhere. Below the plot it covers none; a phone has room for two.
    keys = [
        LegendItem(
            label=device,
            renderers=[plot.scatter([nan], [nan], marker=mark, size=11, color=_NEUTRAL)],
        )
        for device, mark in marks.items()
    ]
    legend = Legend(
        items=keys, orientation="horizontal", ncols=2, location="top_left", border_line_color=None
    )
    plot.add_layout(legend, "below")
    tips = [(text, f"@{name}") for name, text in names.items()]
    plot.add_tools(HoverTool(tooltips=tips, renderers=[dots]))
    return plot, {"x": plot.xaxis[0], "y": plot.yaxis[0]}
