"""The cycles of a step, layer by layer."""

from collections.abc import Sequence
from typing import Any, Protocol

from rtlstm.gen.pictures.picture import WIDE, Picture, colour, rows_axis, whole_numbers

__all__ = ["LayerCycles", "draw_cycles"]


class LayerCycles(Protocol):
    """A layer and its cycles, as the report has them."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def array_cycles(self) -> int:
        """Cycles on the way from input to output in which the array multiplies."""

    @property
    def overhead_cycles(self) -> int:
        """All others on the way."""

    @property
    def recurrent_cycles(self) -> int:
        """Cycles of the array before the input is there."""


def draw_cycles(layers: Sequence[LayerCycles]) -> Picture:
    """Draw a bar for each layer: cycles of the array, of the overhead, and off the path.

    A layer that begins before the one in front of it ends may have an overhead below 0, which has no length.
    """
    parts: list[dict[str, Any]] = [
        {
            "row": row,
            "cycles": max(0, cycles),
            "colour": colour(name),
            "order": order,
            "about": f"{about}: {cycles:,}",
        }
        for row, layer in enumerate(layers)
        for order, (name, about, cycles) in enumerate(
            (
                ("array", "array", layer.array_cycles),
                ("overhead", "overhead", layer.overhead_cycles),
                ("others", "recurrent, off the path", layer.recurrent_cycles),
            )
        )
    ]
    rows = range(len(layers))
    longest = max((sum(part["cycles"] for part in parts if part["row"] == row) for row in rows), default=0)
    chart = {
        "width": WIDE,
        "height": {"step": 30},
        "data": {"values": parts},
        "mark": {"type": "bar", "height": 20},
        "encoding": {
            "y": {"field": "row", "type": "ordinal", "axis": rows_axis([layer.name for layer in layers])},
            "x": {
                "field": "cycles",
                "type": "quantitative",
                "title": "cycles",
                "axis": whole_numbers(0, longest),
            },
            "order": {"field": "order"},
            "color": {"field": "colour", "scale": None},
            "description": {"field": "about"},
        },
    }
    return Picture("Cycles of a step, per layer", chart)
