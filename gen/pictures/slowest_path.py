"""The slowest path of a routed design: cell by cell, with the wire behind each, to scale."""

from rtlstm.fpga.worst_path import WorstPath
from rtlstm.gen.pictures.picture import Picture, Rectangle, Stroke, Text, shorten

__all__ = ["draw_path"]

_WIDTH, _LEFT, _RIGHT, _ROW, _BAR = 820, 330, 70, 22, 12


def draw_path(path: WorstPath) -> Picture | None:
    """Draw a path; None if its cells are not known."""
    if not path.hops or not path.delay_ns:
        return None
    bottom = _ROW * len(path.hops) + 4
    picture = Picture(f"Slowest path, {path.text}", _WIDTH, bottom + 16)
    scale = (_WIDTH - _LEFT - _RIGHT) / path.delay_ns
    at = 0.0
    picture.add(Stroke(f"M{_LEFT} 0V{bottom}H{_WIDTH - _RIGHT}", "line", 1))
    for row, hop in enumerate(path.hops):
        x, top = _LEFT + at * scale, row * _ROW + 4
        told = f"{hop.cell}, {hop.net}" if hop.net and hop.net not in hop.cell else hop.cell
        taken = hop.cell_ns + hop.wire_ns
        for begin, length, colour, what in (
            (x, hop.cell_ns, "array", hop.cell),
            (x + hop.cell_ns * scale, hop.wire_ns, "others", f"wire {hop.net}".rstrip()),
        ):
            if length > 0:
                wide = max(0.5, round(length * scale, 1))
                picture.add(Rectangle(round(begin, 1), top, wide, _BAR, colour, f"{what}: {length:g} ns"))
        at += taken
        picture.add(
            Text(0, top + 11, shorten(told, _LEFT - 10, 12), 12),
            Text(round(_LEFT + at * scale + 6, 1), top + 11, f"{taken:.2f}", 11, "soft"),
        )
    picture.add(
        Text(_LEFT, bottom + 13, "0", 11, "soft"),
        Text(_WIDTH - _RIGHT, bottom + 13, f"{path.delay_ns:.2f} ns", 11, "soft", "end"),
    )
    return picture
