"""What stands where in a drawn picture; and checks that no text leaves it, or meets another text.

Each build draws some ten pictures, which takes half a second. Tests that look at them ask for ``drawn``; in
all others that run in this process, pictures are empty.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import pytest

if TYPE_CHECKING:
    from rtlstm.gen.pictures.picture import Picture

ADVANCE = 0.5
"""Mean width of a character, as a share of the font's size."""

Point = tuple[float, float]


@pytest.fixture(autouse=True, scope="session")
def drawing() -> Iterator[Callable[[str, str], str]]:
    """Leave pictures empty; give what draws them."""
    # Imported here: pytest rewrites the asserts of what is imported after its plugins.
    from rtlstm.gen.pictures import picture

    draw = picture._draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture, "_draw", lambda chart, label: f"<svg aria-label={quoteattr(label)}></svg>")
        yield draw


@pytest.fixture
def drawn(drawing: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the pictures."""
    monkeypatch.setattr("rtlstm.gen.pictures.picture._draw", drawing)


@dataclass(frozen=True)
class Shape:
    """An element, with the place of its parent, and its title."""

    element: ElementTree.Element
    origin: Point

    @property
    def title(self) -> str:
        return self.element.findtext("title", "")

    @property
    def fill(self) -> str:
        return self.element.get("fill", "").removeprefix("var(--").removesuffix(")")

    @property
    def stroke(self) -> str:
        return self.element.get("stroke", "").removeprefix("var(--").removesuffix(")")


@dataclass(frozen=True)
class Bar:
    left: float
    top: float
    width: float
    height: float
    fill: str
    title: str

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def right(self) -> float:
        return self.left + self.width


def shapes(picture: "Picture", *tags: str) -> Iterator[Shape]:
    """Yield the drawn elements of some kinds, in order."""
    yield from _within(ElementTree.fromstring(picture.svg), (0.0, 0.0), tags)


def _within(element: ElementTree.Element, origin: Point, tags: tuple[str, ...]) -> Iterator[Shape]:
    moved = re.search(r"translate\(([-\d.]+),([-\d.]+)\)", element.get("transform", ""))
    place = (origin[0] + float(moved[1]), origin[1] + float(moved[2])) if moved else origin
    if element.tag in tags:
        yield Shape(element, place)
    for child in element:
        yield from _within(child, place, tags)


def size(picture: "Picture") -> Point:
    *_, width, height = map(float, ElementTree.fromstring(picture.svg).attrib["viewBox"].split())
    return width, height


def bars(picture: "Picture") -> list[Bar]:
    """Return the filled rectangles, whose corners may be round."""
    found = []
    for shape in shapes(picture, "path"):
        path = shape.element.get("d", "")
        straight = re.fullmatch(r"M([-\d.]+),([-\d.]+)h([-\d.]+)v([-\d.]+)h[-\d.]+Z", path)
        round_ = re.fullmatch(r"M[-\d.,]+(?:L[-\d.,]+C[-\d.,]+){4}Z", path)
        if shape.fill and (straight or round_):
            if straight:
                x, y, width, height = map(float, straight.groups())
            else:
                numbers = [float(each) for each in re.findall(r"-?[\d.]+", path)]
                x, y = min(numbers[::2]), min(numbers[1::2])
                width, height = max(numbers[::2]) - x, max(numbers[1::2]) - y
            left, top = shape.origin[0] + x, shape.origin[1] + y
            found.append(Bar(left, top, width, height, shape.fill, shape.title))
    return found


def lines(picture: "Picture") -> dict[str, list[Point]]:
    """Return the points of lines with a title, by that."""
    return {
        shape.title: [
            (shape.origin[0] + float(x), shape.origin[1] + float(y))
            for x, y in re.findall(r"[ML]([-\d.]+),([-\d.]+)", shape.element.get("d", ""))
        ]
        for shape in shapes(picture, "path")
        if shape.title and shape.stroke
    }


def rules(picture: "Picture") -> list[float]:
    """Return where the dashed lines are."""
    return sorted(
        shape.origin[0] for shape in shapes(picture, "line") if shape.element.get("stroke-dasharray")
    )


def texts(picture: "Picture") -> list[str]:
    return [shape.element.text or "" for shape in shapes(picture, "text")]


def check_texts(picture: "Picture") -> None:
    boxes = [_extent(shape) for shape in shapes(picture, "text") if shape.element.get("opacity") != "0"]
    width, height = size(picture)
    assert boxes
    for text, left, right, top, bottom in boxes:
        assert left >= -1 and right <= width + 1 and top >= 0 and bottom <= height, text
    for a, b in combinations(boxes, 2):
        assert a[1] >= b[2] or b[1] >= a[2] or a[3] >= b[4] or b[3] >= a[4], (a, b)


def _extent(shape: Shape) -> tuple[str, float, float, float, float]:
    text = shape.element.text or ""
    points = float(shape.element.get("font-size", "11px").removesuffix("px"))
    wide = len(text) * points * ADVANCE
    x, y = shape.origin
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[shape.element.get("text-anchor", "start")]
    return text, left, left + wide, y - 0.75 * points, y + 0.2 * points
