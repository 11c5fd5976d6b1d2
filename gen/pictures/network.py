"""The block diagram of a network: its layers from top to bottom, their states and skips."""

from collections.abc import Sequence
from typing import Any, Literal

from rtlstm.gen.frontends.reading import NodeReport
from rtlstm.gen.pictures.picture import NARROW, Picture, colour
from rtlstm.spec.network import Bidirectional, CellLayer, Dense, Layer, Lstm, Network, Norm, PseudoLayer
from rtlstm.spec.record import Record

_LEFT, _BOX = 64, 224
"""Widths of what is left of the boxes, and of a box."""
_HEIGHT, _GAP = 46, 30
_MIDDLE = _LEFT + _BOX / 2
_LANE = 11
"""Distance between the lines of two skips."""
_MOST_HOST = 6
"""The most parts on the host that are named."""


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


class Block(Record):
    """A layer of the network, as it is drawn."""

    name: str
    kind: str
    inputs: int
    outputs: int
    details: tuple[str, ...] = ()
    """What else is to be said of it."""
    state: str = ""
    """What it keeps from step to step: ``h``, or ``h, c``."""
    directions: tuple[str, ...] = ()
    """The directions of a bidirectional layer: the kind and the units of each."""
    reads: tuple[int, ...]
    """The blocks whose results it reads, each once; -1 for the network's input."""


def describe_blocks(network: Network) -> tuple[Block, ...]:
    """Describe the network's layers as they were read, in order."""
    return tuple(_block(index, layer) for index, layer in enumerate(network.layers))


def _block(index: int, layer: Layer) -> Block:
    details = ["ReLU first"] if all(read.relu for read in layer.sources) else []
    reads = tuple(dict.fromkeys(index - read.back for read in layer.sources))
    known = {"name": layer.name, "inputs": layer.inputs, "outputs": layer.outputs, "reads": reads}
    if isinstance(layer, Dense):
        details += [] if layer.activation == "identity" else [layer.activation.replace("_", " ")]
        return Block(kind="dense", details=tuple(details), **known)
    if isinstance(layer, Norm):
        given = [name for name in ("gain", "bias") if getattr(layer, name) is not None]
        details += ["mean" if layer.centre else "mean square", *given]
        return Block(kind=layer.kind, details=tuple(details), **known)
    if isinstance(layer, Bidirectional):
        both = (layer.forward, layer.backward)
        directions = tuple(f"{each.kind.upper()}, {each.units:,}" for each in both)
        return Block(
            kind=layer.kind,
            details=(*details, layer.merge),
            state=_state(layer.forward),
            directions=directions,
            **known,
        )
    details += ["reverse"] if layer.reverse else []
    if layer.units != layer.outputs:
        details += [f"{layer.units:,} units"]
    return Block(kind=layer.kind, details=tuple(details), state=_state(layer), **known)


def _state(layer: PseudoLayer) -> str:
    has_c = layer.has_cell_state if isinstance(layer, CellLayer) else isinstance(layer, Lstm)
    return "h, c" if has_c else "h"


def draw_network(inputs: int, blocks: Sequence[Block], host: Sequence[NodeReport] = ()) -> Picture:
    """Draw the blocks, and the parts of the model that stay on the host."""
    lanes = _skip_lanes(blocks)
    right = _LEFT + _BOX + _LANE * (1 + max(lanes.values(), default=0))
    diagram = Diagram(max(NARROW, int(right) + 20))
    diagram.text(_MIDDLE, 14, f"input, {_values(inputs)} a step", align="center")
    diagram.arrow(_MIDDLE, 20, 20 + _GAP)
    wires = {-1: 20 + _GAP / 2 - 3}
    top = 20.0 + _GAP
    for index, block in enumerate(blocks):
        (_draw_directions if block.directions else _draw_layer)(diagram, block, top)
        skips = _skips(index, block)
        for number, source in enumerate(skips, 1):
            end = top + _HEIGHT * number / (len(skips) + 1)
            _draw_skip(diagram, wires[source], end, lanes[index, source])
        top += _HEIGHT
        if index + 1 == len(blocks) or index in blocks[index + 1].reads:
            diagram.arrow(_MIDDLE, top, top + _GAP)
        else:
            diagram.line(f"M{_MIDDLE:g} {top:g}V{top + _GAP / 2 - 3:g}")
        if block.directions or index < len(blocks) - 1:
            # At the left: a skip begins at the right.
            told = " ".join((*(block.details if block.directions else ()), f"{block.outputs:,}"))
            diagram.text(_MIDDLE - 10, top + _GAP / 2 + 4, told, 11, "soft", "right")
        wires[index] = top + _GAP / 2 - 3
        top += _GAP
    diagram.text(_MIDDLE, top + 14, f"output, {_values(blocks[-1].outputs)} a step", align="center")
    top += 30
    return diagram.picture("Block diagram of the network", _draw_host(diagram, host, top) if host else top)


def _values(count: int) -> str:
    return f"{count:,} value{'s' if count != 1 else ''}"


def _skips(index: int, block: Block) -> list[int]:
    """Return the blocks that a block reads beside the one before it."""
    return [source for source in block.reads if source != index - 1]


def _skip_lanes(blocks: Sequence[Block]) -> dict[tuple[int, int], int]:
    """Return the lane of each block's skips by their sources, so that no two lines of one lane overlap."""
    ends: list[int] = []
    lanes = {}
    for index, block in enumerate(blocks):
        for source in _skips(index, block):
            free = (lane for lane, end in enumerate(ends) if end <= source)
            lane = lanes[index, source] = next(free, len(ends))
            ends[lane : lane + 1] = [index]
    return lanes


def _draw_layer(diagram: Diagram, block: Block, top: float) -> None:
    what = f"{block.kind.upper() if block.state else block.kind} {block.inputs:,} \u2192 {block.outputs:,}"
    sub = ", ".join((what, *block.details))
    diagram.box(_LEFT, top, _BOX, _HEIGHT, "recurrent" if block.state else "dense", sub)
    diagram.text(_MIDDLE, top + 19, block.name, 13, "on", "center", _BOX - 12)
    diagram.text(_MIDDLE, top + 36, sub, 11, "on", "center", _BOX - 12)
    if block.state:
        _draw_state(diagram, block.state, _LEFT, top, -1)


def _draw_directions(diagram: Diagram, block: Block, top: float) -> None:
    half = _BOX / 2 - 5
    sub = ", ".join((f"{block.inputs:,} \u2192 {block.outputs:,}", *block.details))
    for side, (kind, x) in enumerate(zip(block.directions, (_LEFT, _LEFT + half + 10), strict=True)):
        name = "forward" if side == 0 else "reverse"
        diagram.box(x, top, half, _HEIGHT, "recurrent", f"{block.name}, {name}: {sub}")
        diagram.text(x + half / 2, top + 19, name, 13, "on", "center")
        diagram.text(x + half / 2, top + 36, kind, 11, "on", "center", half - 8)
        _draw_state(diagram, block.state, x if side == 0 else x + half, top, -1 if side == 0 else 1)
    # The arrow into a gap between two boxes ends at a line above both, and one behind gathers their results.
    for y in (top, top + _HEIGHT):
        diagram.line(f"M{_LEFT:g} {y:g}H{_LEFT + _BOX:g}", width=2)
    diagram.text(_MIDDLE + 10, top - 8, block.name, 11, "soft", limit=_BOX / 2 - 10)


def _draw_state(diagram: Diagram, state: str, x: float, top: float, direction: int) -> None:
    """Draw the loop of a state at the left of a box (``direction`` -1) or at its right (1)."""
    out, lower, upper = x + 16 * direction, top + 34, top + 12
    diagram.line(f"M{x:g} {lower:g}H{out:g}V{upper:g}H{x + 5 * direction:g}")
    diagram.area(f"M{x:g} {upper:g}l{7 * direction} -4v8z")
    diagram.text(out + 6 * direction, top + 27, state, 11, "soft", "right" if direction < 0 else "left")


def _draw_skip(diagram: Diagram, start: float, end: float, lane: int) -> None:
    edge = _LEFT + _BOX
    x = edge + _LANE * (1 + lane) + 6
    diagram.line(f"M{_MIDDLE:g} {start:g}H{x:g}V{end:g}H{edge + 5:g}", "skip")
    diagram.area(f"M{edge:g} {end:g}l7 -4v8z", "skip")


def _draw_host(diagram: Diagram, host: Sequence[NodeReport], top: float) -> float:
    """Draw what stays on the host in a dashed frame; return where it ends."""
    lines = [f"{part.name} ({part.kind}): {part.why}" for part in host[:_MOST_HOST]]
    if len(host) > _MOST_HOST:
        lines.append(f"and {len(host) - _MOST_HOST:,} more")
    diagram.box(1, top, diagram.width - 2, 26 + 16 * len(lines), "soft", framed=True)
    diagram.text(12, top + 17, "On the host, not in the core", 11, "soft")
    for row, line in enumerate(lines):
        diagram.text(12, top + 34 + 16 * row, line, 11, limit=diagram.width - 24)
    return top + 30 + 16 * len(lines)
