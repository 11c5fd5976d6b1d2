"""Pictures for the docs: SVG whose ink is dark or light, as the system of its reader is."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

__all__ = ["BLUE", "GREY", "INK", "ORANGE", "bare", "picture"]

INK, GREY, ORANGE, BLUE = "#1f2328", "#6e7781", "#d1602e", "#2f7fd1"
_STYLE = f"<style>svg{{--ink:{INK}}}@media(prefers-color-scheme:dark){{svg{{--ink:#e6edf3}}}}</style>"


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Give a figure of a size in inches, and write it where the block ends."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "rtlstm", "font.size": 10, "text.color": INK}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = path.read_text().replace(INK, f"var(--ink,{GREY})")
    path.write_text(re.sub(r"(<svg [^>]*>)", lambda found: found[1] + _STYLE, text, count=1))


def bare(axes: Any) -> None:
    """Leave axes the lines at the left and below, in ink, on the reader's page."""
    axes.tick_params(colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.patch.set_visible(False)
