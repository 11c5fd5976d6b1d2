"""The timing diagrams: NAME.json here, in WaveDrom's form, becomes NAME.svg."""

from pathlib import Path

import wavedrom

FIRST = '<style>.muted{font-size:8pt}</style><rect fill="#ffffff" height="100%" width="100%" />'
"""Numbers of cycles that have room, and a background: lines and text are dark, on dark pages too."""


def draw(source: Path) -> str:
    """Return the SVG of a diagram."""
    svg = wavedrom.render(source.read_text()).tostring()
    head, end, rest = svg.partition(">")
    return f"{head}{end}{FIRST}{rest}\n"
