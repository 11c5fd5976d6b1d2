"""The slowest path of a routed design: cell by cell, with the wire behind each, to scale."""

from rtlstm.fpga.worst_path import WorstPath
from rtlstm.gen.pictures.picture import Picture, colour, rows_axis

__all__ = ["draw_path"]

_WIDTH, _NAMES = 440, 320


def draw_path(path: WorstPath) -> Picture | None:
    """Draw a path; None if its cells are not known."""
    if not path.hops or not path.delay_ns:
        return None
    names, bars, ends = [], [], []
    at = 0.0
    for row, hop in enumerate(path.hops):
        names.append(f"{hop.cell}, {hop.net}" if hop.net and hop.net not in hop.cell else hop.cell)
        for length, kind, what in (
            (hop.cell_ns, "array", hop.cell),
            (hop.wire_ns, "others", f"wire {hop.net}".rstrip()),
        ):
            if length > 0:
                about = f"{what}: {length:g} ns"
                bars.append(
                    {"row": row, "begin": at, "end": at + length, "colour": colour(kind), "about": about}
                )
            at += length
        ends.append({"row": row, "end": at, "told": f"{hop.cell_ns + hop.wire_ns:.2f}"})
    y = {"field": "row", "type": "ordinal"}
    chart = {
        "width": _WIDTH,
        "height": {"step": 22},
        "layer": [
            {
                "data": {"values": bars},
                "mark": {"type": "bar", "height": 12},
                "encoding": {
                    "y": {**y, "axis": rows_axis(names, _NAMES)},
                    "x": {"field": "begin", "type": "quantitative", "title": "ns"},
                    "x2": {"field": "end"},
                    "color": {"field": "colour", "scale": None},
                    "description": {"field": "about"},
                },
            },
            {
                "data": {"values": ends},
                "mark": {"type": "text", "align": "left", "dx": 5},
                "encoding": {
                    "y": y,
                    "x": {"field": "end", "type": "quantitative"},
                    "text": {"field": "told"},
                },
            },
        ],
    }
    return Picture(f"Slowest path, {path.text}", chart)
