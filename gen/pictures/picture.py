"""A picture as simple shapes, which the template of ``report.html`` draws as SVG.

Lengths are in SVG units, of which a page shows one per pixel where there is room. Colours are names of the
page's own, such as ``ink``, so that a picture follows the reader's choice of light or dark.
"""

from dataclasses import dataclass, field
from typing import Literal, Self

__all__ = ["Picture", "Rectangle", "Stroke", "Text", "shorten", "text_width"]

_ADVANCE = 0.6
"""Mean width of a character, as a share of the font's size; more than that of most letters."""


@dataclass(frozen=True)
class Rectangle:
    """A filled rectangle, or with ``dashed`` an empty one with a dashed border."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""
    """Shown while the pointer is on it."""
    dashed: bool = False


@dataclass(frozen=True)
class Text:
    """A line of text; ``y`` is its base line."""

    x: float
    y: float
    text: str
    size: int = 13
    colour: str = "ink"
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True)
class Stroke:
    """A path of SVG, as a line of ``width``, or filled if that is 0."""

    path: str
    colour: str
    width: float = 1.5
    title: str = ""
    dashed: bool = False


@dataclass
class Picture:
    """Strokes are at the back, then come rectangles, then texts. ``label`` says what is shown, in words."""

    label: str
    width: int
    height: int = 0
    rectangles: list[Rectangle] = field(default_factory=list)
    strokes: list[Stroke] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)

    def add(self, *items: Rectangle | Stroke | Text) -> Self:
        """Add shapes."""
        for item in items:
            if isinstance(item, Rectangle):
                self.rectangles.append(item)
            elif isinstance(item, Stroke):
                self.strokes.append(item)
            else:
                self.texts.append(item)
        return self

    def arrow(self, x: float, top: float, bottom: float, colour: str = "soft") -> None:
        """Add an arrow downwards."""
        self.add(
            Stroke(f"M{x:g} {top:g}V{bottom - 5:g}", colour),
            Stroke(f"M{x:g} {bottom:g}l-4 -7h8z", colour, width=0),
        )


def text_width(text: str, size: int) -> float:
    """Return about how wide a text is; fonts differ."""
    return len(text) * size * _ADVANCE


def shorten(text: str, width: float, size: int = 13) -> str:
    """Return the text, cut so that it fits a width."""
    most = int(width / (size * _ADVANCE))
    return text if len(text) <= most else text[: max(0, most - 1)] + "\u2026"
