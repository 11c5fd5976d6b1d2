"""Draws the timing diagrams: each NAME.json here, in WaveDrom's form, becomes NAME.svg.

$ python docs/images/draw.py
"""

from pathlib import Path

import wavedrom

FOLDER = Path(__file__).parent
FIRST = '<style>.muted{font-size:8pt}</style><rect fill="#ffffff" height="100%" width="100%" />'
"""Numbers of cycles that have room, and a background: lines and text are dark, on dark pages too."""


def draw(source: Path) -> str:
    """Return the SVG of a diagram."""
    svg = wavedrom.render(source.read_text()).tostring()
    head, end, rest = svg.partition(">")
    return f"{head}{end}{FIRST}{rest}\n"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.json")):
        path.with_suffix(".svg").write_text(draw(path))
