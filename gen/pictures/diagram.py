"""A picture of boxes, lines and texts whose places are given, in the words of Vega."""

from typing import Any, Literal

from rtlstm.gen.pictures.picture import Picture, colour

__all__ = ["Diagram"]


class Diagram:
    """Shapes in front of each other in the order of the calls; y goes down."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._marks: list[dict[str, Any]] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        name: str,
        about: str = "",
        framed: bool = False,
    ) -> None:
        """Add a rectangle filled with a colour, or a dashed frame; ``about`` is shown under the pointer."""
        fill = {"stroke": colour(name), "strokeDash": [4, 3]} if framed else {"fill": colour(name)}
        about_it = {"description": about} if about else {}
        self._add("rect", x=x, y=y, width=width, height=height, cornerRadius=3, **fill, **about_it)

    def line(self, path: str, name: str = "soft", width: float = 1.5) -> None:
        """Add a path of SVG as a line."""
        self._add("path", path=path, stroke=colour(name), strokeWidth=width)

    def area(self, path: str, name: str = "soft") -> None:
        """Add a path of SVG, filled."""
        self._add("path", path=path, fill=colour(name))

    def arrow(self, x: float, top: float, bottom: float) -> None:
        """Add an arrow downwards."""
        self.line(f"M{x:g} {top:g}V{bottom - 5:g}")
        self.area(f"M{x:g} {bottom:g}l-4 -7h8z")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: int = 13,
        name: str = "ink",
        align: Literal["left", "center", "right"] = "left",
        limit: float = 0,
    ) -> None:
        """Add a line of text, cut to the width ``limit`` unless that is 0; ``y`` is its base line."""
        fill = colour(name)
        self._add("text", x=x, y=y, text=text, fontSize=size, fill=fill, align=align, limit=limit)

    def _add(self, kind: str, **properties: Any) -> None:
        enter = {name: {"value": value} for name, value in properties.items()}
        self._marks.append({"type": kind, "encode": {"enter": enter}})

    def picture(self, label: str, height: float) -> Picture:
        """Return the picture; ``label`` says what is shown, in words."""
        chart = {
            "$schema": "https://vega.github.io/schema/vega/v5.json",
            "width": self.width,
            "height": round(height),
            "padding": 0,
            "marks": self._marks,
        }
        return Picture(label, chart, wide=False)
