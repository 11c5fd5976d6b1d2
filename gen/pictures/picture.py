"""A picture in the words of Vega-Lite or Vega, which Vega draws as SVG.

Lengths are in SVG units, of which a page shows one per pixel where there is room. Colours are variables of
the page's own, such as ``ink``, so that a picture follows the reader's choice of light or dark.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from xml.etree import ElementTree

__all__ = ["NARROW", "NO_AXIS", "WIDE", "Picture", "colour", "rows_axis", "shorten"]

NARROW = 360
"""Width of a picture that a phone shows as it is."""
WIDE = 640
"""Width of what is drawn over an axis with names at its left."""
_NAMES = 165
"""Width of those names."""
NO_AXIS: Mapping[str, Any] = {"axis": None}
_LONG = re.compile(r"\d+\.\d{3,}")
_NOT_OF_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def colour(name: str) -> str:
    """Return a colour of the page, by its name."""
    return f"var(--{name})"


_CONFIG = {
    "background": None,
    # Whose widths are known everywhere; the pages show text in their own font.
    "font": "sans-serif",
    "view": {"stroke": None},
    "text": {"fontSize": 11, "fill": colour("soft")},
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
        "labelExpr": f"{json.dumps(list(names))}[datum.value]",
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


@lru_cache(maxsize=1000)
def _draw(chart: str, label: str) -> str:
    """Draw a chart. The descriptions of its marks become titles, which a reader sees under the pointer."""
    # Imported here: a command without a report starts faster.
    import vl_convert

    words = json.loads(chart) | {"config": _CONFIG}
    draw = vl_convert.vega_to_svg if "marks" in words else vl_convert.vegalite_to_svg
    root = ElementTree.fromstring(draw(words))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        about = element.attrib.pop("aria-label", "")
        if element.attrib.get("role") == "graphics-symbol" and about:
            ElementTree.SubElement(element, "title").text = about
        for name, value in list(element.attrib.items()):
            if name == "role" or name.startswith("aria-"):
                del element.attrib[name]
            elif name in ("d", "transform"):
                element.attrib[name] = _LONG.sub(lambda found: f"{float(found[0]):.2f}", value)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "width": root.attrib["width"],
        "role": "img",
        "aria-label": label,
    }
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)
