"""Draws the pictures here: timing diagrams from their JSON files, and block diagrams.

$ python docs/images/draw.py
"""

from pathlib import Path

import block_diagrams
import timing_diagrams

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.json")):
        path.with_suffix(".svg").write_text(timing_diagrams.draw(path))
    for name in block_diagrams.DIAGRAMS:
        (FOLDER / f"{name}.svg").write_text(block_diagrams.draw(name))
