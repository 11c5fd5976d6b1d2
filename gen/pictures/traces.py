"""Outputs over time: float and fixed over each other, and their difference below."""

from collections.abc import Sequence

from rtlstm.gen.pictures.picture import Picture, Stroke, Text
from rtlstm.gen.quantise.traces import Trace

__all__ = ["draw_trace"]

_WIDTH, _LEFT = 820, 70
_TOP, _PLOT, _SPACE, _ERROR = 22, 96, 22, 34


def draw_trace(trace: Trace, name: str = "") -> Picture:
    """Draw a trace; ``name`` is the output's."""
    base = _TOP + _PLOT
    picture = Picture(
        f"Output {trace.output} over time, in float and fixed", _WIDTH, base + _SPACE + _ERROR + 18
    )
    values = (*trace.exact, *trace.fixed)
    low, high = min(values), max(values)
    error = tuple(fixed - exact for fixed, exact in zip(trace.fixed, trace.exact, strict=True))
    most = max(map(abs, error))
    middle = base + _SPACE + _ERROR / 2
    last = trace.first_step + len(error) - 1
    picture.add(
        Stroke(f"M{_LEFT} {_TOP}V{base}H{_WIDTH}", "line", 1),
        Stroke(f"M{_LEFT} {middle:g}H{_WIDTH}", "line", 1),
        _curve(trace.exact, _TOP, base, low, high, "others", 4, "float"),
        _curve(trace.fixed, _TOP, base, low, high, "array", 1.5, "fixed"),
        _curve(
            error, middle - _ERROR / 2, middle + _ERROR / 2, -most, most, "overhead", 1.5, "fixed - float"
        ),
        Text(_LEFT, 12, f"{name or f'output {trace.output}'}, sequence {trace.sequence}", 12),
        Text(_LEFT - 6, _TOP + 10, f"{high:.4g}", 11, "soft", "end"),
        Text(_LEFT - 6, base, f"{low:.4g}", 11, "soft", "end"),
        Text(_LEFT - 6, middle + 4, f"\u00b1{most:.3g}", 11, "soft", "end"),
        Text(_LEFT, picture.height - 4, f"step {trace.first_step:,}", 11, "soft"),
        Text(_WIDTH, picture.height - 4, f"step {last:,}", 11, "soft", "end"),
    )
    return picture


def _curve(
    values: Sequence[float],
    top: float,
    bottom: float,
    low: float,
    high: float,
    colour: str,
    width: float,
    title: str,
) -> Stroke:
    """Return a line through the values; a single one, and one that never changes, is level."""
    values = values if len(values) > 1 else (*values, *values)
    across = (_WIDTH - _LEFT) / (len(values) - 1)
    scale = (bottom - top) / (high - low) if high > low else 0.0
    points = (
        f"{_LEFT + index * across:.1f} {bottom - (value - low) * scale if scale else (top + bottom) / 2:.1f}"
        for index, value in enumerate(values)
    )
    return Stroke("M" + "L".join(points), colour, width, title)
