"""Histograms of values, with the limits of their format."""

import math

from rtlstm.gen.pictures.picture import Picture, Rectangle, Stroke, Text, shorten
from rtlstm.gen.quantise.histograms import Histogram

__all__ = ["draw_histogram"]

_WIDTH, _TOP, _PLOT = 360, 20, 70


def draw_histogram(found: Histogram) -> Picture:
    """Draw the counts by their square roots, so that rare values are seen; those beyond a limit differ."""
    bottom = _TOP + _PLOT
    picture = Picture(f"Histogram of {found.quantity}", _WIDTH, bottom + 18)
    most = math.sqrt(max(found.counts))
    wide = _WIDTH / len(found.counts)
    for index, count in enumerate(found.counts):
        if not count:
            continue
        height = round(max(1.5, _PLOT * math.sqrt(count) / most), 1)
        middle = found.span * ((2 * index + 1) / len(found.counts) - 1)
        colour = "overhead" if abs(middle) > found.limit else "array"
        picture.add(
            Rectangle(round(index * wide, 1), round(bottom - height, 1), round(wide - 0.5, 1), height, colour)
        )
    picture.add(Stroke(f"M0 {bottom}H{_WIDTH}", "line", 1))
    for sign in (-1, 1):
        x = round(_WIDTH / 2 * (1 + sign * found.limit / found.span), 1)
        picture.add(
            Stroke(f"M{x} {_TOP - 2}V{bottom}", "skip", 1.5, dashed=True),
            Text(
                x,
                bottom + 14,
                f"{sign * found.limit:.4g}",
                11,
                "soft",
                ("start" if sign < 0 else "end") if abs(found.span / found.limit) < 1.3 else "middle",
            ),
        )
    picture.add(
        Text(_WIDTH / 2, bottom + 14, "0", 11, "soft", "middle"),
        Text(0, 12, shorten(f"{found.quantity}, {found.form}", _WIDTH - 120, 12), 12),
        Text(_WIDTH, 12, f"largest {found.largest:.4g}", 11, "soft", "end"),
    )
    return picture
