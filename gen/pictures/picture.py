"""A picture in the words of Vega-Lite or Vega, which Vega draws as SVG.

Lengths are in SVG units, of which a page shows one per pixel where there is room. Colours are variables of
the page's own, such as ``ink``, so that a picture follows the reader's choice of light or dark.
"""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, TypeVar
from xml.etree import ElementTree

from rtlstm.gen.frontends.arrays import import_extra

NARROW = 360
"""Width of a picture that a phone shows as it is."""
WIDE = 640
"""Width of what is drawn over an axis with names at its left."""
_NAMES = 165
"""Width of those names."""
NO_AXIS: Mapping[str, Any] = {"axis": None}
_LONG = re.compile(r"\d+\.\d{3,}")
_at_work: dict[str, int] = {}
"""The process in which Vega runs."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and line end, and those that change the direction of what follows."""
_NOT_OF_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def colour(name: str) -> str:
    """Return a colour of the page, by its name."""
    return f"var(--{name})"


_CONFIG = {
    "background": None,
    # Whose widths are known everywhere; the pages show text in their own font.
    "font": "sans-serif",
    "view": {"stroke": None},
    # No descriptions by Vega itself, of the data's fields.
    "text": {"fontSize": 11, "fill": colour("soft"), "aria": False},
    "rule": {"aria": False},
    "title": {
        "anchor": "start",
        "fontSize": 12,
        "fontWeight": "normal",
        "color": colour("ink"),
        "subtitleFontSize": 11,
        "subtitleColor": colour("soft"),
    },
    "axis": {
        "aria": False,
        "labelFontSize": 11,
        "labelColor": colour("soft"),
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titleColor": colour("soft"),
        "domainColor": colour("line"),
        "gridColor": colour("line"),
        "tickColor": colour("line"),
    },
}


def rows_axis(names: Sequence[str], width: int = _NAMES) -> dict[str, Any]:
    """Return the axis of rows that are numbered in the data: their names, cut to a width."""
    return {
        # Vega reads the escaped characters of this text again.
        "labelExpr": f"{json.dumps(_printable(names))}[datum.value]",
        "labelColor": colour("ink"),
        "labelFontSize": 12,
        "labelLimit": width,
        # Pictures with names of different lengths begin at the same place.
        "minExtent": width,
        "maxExtent": width,
        "title": None,
        "ticks": False,
        "domain": False,
    }


def whole_numbers(first: int, last: int, most: int = 8) -> dict[str, Any]:
    """Return an axis that shows some whole numbers; where they are few, Vega itself would show halves."""
    wanted = max(1, (last - first) / most)
    size = 10 ** (len(str(int(wanted))) - 1)
    distance = next(size * part for part in (1, 2, 5, 10) if size * part >= wanted)
    return {"values": list(range(-(-first // distance) * distance, last + 1, distance)), "format": ",d"}


@dataclass(frozen=True)
class Picture:
    """A chart of Vega-Lite, or of Vega if it has ``marks``; ``label`` says what is shown, in words."""

    label: str
    chart: Mapping[str, Any]
    wide: bool = True
    """Whether a phone scrolls it; else it fits."""

    @cached_property
    def svg(self) -> str:
        """The picture as an ``svg`` element of HTML."""
        return _draw(json.dumps(_printable(self.chart)), _printable(self.label))


def shorten(text: str, length: int) -> str:
    """Return the text, cut to a number of characters."""
    return text if len(text) <= length else text[: max(0, length - 1)] + "\u2026"


_Text = TypeVar("_Text", bound=str)


def escape_controls(text: _Text) -> _Text:
    """Return a page's text with escapes, such as ``\\x1b``, for characters that control and do not show.

    Names come from model files, which may hold anything. What is marked as safe stays so.
    """
    return type(text)(_CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text))


def _printable(value: Any) -> Any:
    """Return a value without what Vega cannot draw: characters that SVG forbids, and infinite numbers."""
    if isinstance(value, str):
        return _NOT_OF_XML.sub("\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _printable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(part) for part in value]
    return value


@lru_cache(maxsize=64)
def _draw(chart: str, label: str) -> str:
    """Draw a chart. The descriptions of its marks become titles, which a reader sees under the pointer."""
    root = ElementTree.fromstring(_run_vega(json.loads(chart) | {"config": _CONFIG}))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        about = element.attrib.pop("aria-label", "")
        # Vega describes axes and headings, too, which say it themselves.
        described = element.attrib.get("role") == "graphics-symbol"
        if about and described and element.attrib.get("aria-roledescription") not in ("axis", "title"):
            ElementTree.SubElement(element, "title").text = about
        for name, value in list(element.attrib.items()):
            if name == "role" or name.startswith("aria-"):
                del element.attrib[name]
            else:
                element.attrib[name] = _LONG.sub(lambda found: f"{float(found[0]):.2f}", value)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "width": root.attrib["width"],
        "role": "img",
        "aria-label": label,
    }
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _run_vega(words: Mapping[str, Any]) -> str:
    """Have Vega draw; its threads do not live on in a forked process, which starts another one."""
    if _at_work.setdefault("process", os.getpid()) == os.getpid():
        return run_vega(words)
    program = f"import json, sys; from {__name__} import run_vega; print(run_vega(json.load(sys.stdin)))"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, input=json.dumps(words), capture_output=True, text=True, check=True).stdout


def can_draw() -> bool:
    """Whether Vega is installed."""
    return find_spec("vl_convert") is not None


def run_vega(words: Mapping[str, Any]) -> str:
    """Return what Vega draws, an SVG file, in this process. Raises ToolError if it is not installed."""
    vl_convert = import_extra("vl_convert", "pictures", "drawing")
    draw = vl_convert.vega_to_svg if "marks" in words else vl_convert.vegalite_to_svg
    drawn: str = draw(dict(words))
    return drawn
