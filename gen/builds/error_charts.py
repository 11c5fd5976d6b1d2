"""Lays out the charts of ``report.html`` that show where accuracy goes."""

from collections.abc import Sequence

from rtlstm.gen.accuracy.mixed_cell import PARTS
from rtlstm.gen.accuracy.records import ErrorReport, LayerErrors
from rtlstm.spec.record import Record

__all__ = ["Curve", "ErrorCharts", "Group", "PartBar", "Plot", "error_charts"]

_WIDTH = 520.0
"""Length of the longest bar in SVG units."""
_CURVE_WIDTH, _CURVE_HEIGHT = 640.0, 60.0
_ROW, _SPACE = 16, 10


class PartBar(Record):
    """A bar: a layer's error, of one part alone or of all."""

    part: str
    """A part, or ``all``."""
    top: int
    width: float
    label: str


class Group(Record):
    """The bars of a layer."""

    name: str
    top: int
    bars: tuple[PartBar, ...]


class Curve(Record):
    """An error over time, of one part alone or of all."""

    part: str
    """A part, or ``all``."""
    points: str
    """The points of an SVG polyline."""


class Plot(Record):
    """A layer's errors over time."""

    name: str
    curves: tuple[Curve, ...]
    most: float
    """The error at the plot's top."""


class ErrorCharts(Record):
    """All charts; lengths in SVG units."""

    groups: tuple[Group, ...]
    height: int
    plots: tuple[Plot, ...]
    parts: tuple[str, ...]
    """The parts that have bars."""


def error_charts(errors: ErrorReport) -> ErrorCharts:
    """Lay out the bars, each layer's as a share of its float values, and the curves."""
    layers = [each for each in _shown_layers(errors) if each.rms_signal]
    longest = max((max(_relative(layer).values()) for layer in layers), default=0.0)
    groups: list[Group] = []
    top = 0
    for layer in layers:
        bars = [
            PartBar(
                part=part,
                top=top + row * _ROW,
                width=round(_WIDTH * percent / longest, 2) if longest else 0.0,
                label=f"{percent:.3g} %",
            )
            for row, (part, percent) in enumerate(_relative(layer).items())
        ]
        groups.append(Group(name=layer.name, top=top, bars=tuple(bars)))
        top += _ROW * len(bars) + _SPACE
    found = {each.part for layer in layers for each in layer.parts}
    return ErrorCharts(
        groups=tuple(groups),
        height=top,
        plots=tuple(_plot(layer) for layer in _shown_layers(errors)),
        parts=tuple(part for part in PARTS if part in found),
    )


def _shown_layers(errors: ErrorReport) -> Sequence[LayerErrors]:
    """Return all layers, and the outputs unless they are the last layer's."""
    last = errors.layers[-1].replace(name=errors.output.name, kind=errors.output.kind)
    return errors.layers if last == errors.output else (*errors.layers, errors.output)


def _relative(layer: LayerErrors) -> dict[str, float]:
    """Errors in percent of the layer's float values: of all, then of each part alone."""
    found = {"all": layer.rms_error} | {each.part: each.alone for each in layer.parts}
    return {part: layer.relative(error) or 0.0 for part, error in found.items()}


def _plot(layer: LayerErrors) -> Plot:
    series = {each.part: each.steps for each in layer.parts} | {"all": layer.steps}
    most = max(max(steps) for steps in series.values())
    curves = [Curve(part=part, points=_points(steps, most)) for part, steps in series.items()]
    return Plot(name=layer.name, curves=tuple(curves), most=most)


def _points(steps: tuple[float, ...], most: float) -> str:
    # A single step is drawn as a line, too.
    steps = steps if len(steps) > 1 else steps * 2
    across = _CURVE_WIDTH / (len(steps) - 1)
    heights = [_CURVE_HEIGHT * (1 - (value / most if most else 0.0)) for value in steps]
    return " ".join(f"{at * across:.1f},{height:.1f}" for at, height in enumerate(heights))
