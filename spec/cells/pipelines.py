"""The pipelines that compute cells in hardware: one for all graphs that differ in the format of c alone.

Its values have one binary point for all of them, and as many whole bits as any of them needs. A stored c
is shifted left by its layer's shift where it is read, and a new one right before it is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.fixed import Format

WIDEST = 48
"""Bits of the widest exact sum or product."""
_EXACT = ("multiply", "add", "subtract", "clamp")


@dataclass(frozen=True)
class CellPipeline:
    """The hardware of one graph, or of several."""

    graph: CellGraph
    """The graph, with formats that hold the values of all."""
    shifts: tuple[int, ...] = (0,)
    """The numbers of fraction bits that c has less in each graph, in ascending order from 0 on."""

    @property
    def extra(self) -> int:
        """Cycles that shifting takes before c is rounded: one where only the memory reads what is kept."""
        at, nodes = self.graph.state, self.graph.nodes
        read = at == self.graph.result or any(at in node.args for node in nodes)
        return int(len(self.shifts) > 1 and not read)

    def joined(self, other: CellGraph) -> "CellPipeline | None":
        """Return the pipeline with one graph more, whose c has fewer fraction bits; None if it is another."""
        graph, at = self.graph, self.graph.state
        theirs = other.state, other.result, len(other.nodes)
        if at is None or (at, graph.result, len(graph.nodes)) != theirs:
            return None
        shift = graph.nodes[at].format.fraction - other.nodes[at].format.fraction
        pairs = [*zip(graph.nodes, other.nodes, strict=True)]
        alike = (self._alike(position, *pair) for position, pair in enumerate(pairs))
        if graph.nodes[at].kind != "narrow" or shift <= self.shifts[-1] or not all(alike):
            return None
        nodes = tuple(ours.replace(format=_both(ours.format, theirs.format)) for ours, theirs in pairs)
        if max(node.format.bits for node in nodes) > WIDEST:
            return None
        return CellPipeline(graph.replace(nodes=nodes), (*self.shifts, shift))

    def _alike(self, position: int, ours: Node, theirs: Node) -> bool:
        """Whether two nodes do the same, but for the format of c and of what is exact."""
        varies = ours.kind == "state" or ours.kind in _EXACT or position == self.graph.state
        if not varies or position == self.graph.result:
            return ours == theirs
        apart = ours.format.fraction - theirs.format.fraction
        # The limit of a clip is in units of its format.
        same = apart >= 0 and ours.value == theirs.value << apart
        return same and ours == theirs.replace(format=ours.format, value=ours.value)


def _both(ours: Format, theirs: Format) -> Format:
    """Return a format that holds the values of both; ours has no fewer fraction bits."""
    whole = max(form.bits - form.fraction for form in (ours, theirs))
    return Format(bits=whole + ours.fraction, fraction=ours.fraction)


def join_cells(cells: Sequence[CellGraph]) -> tuple[tuple[CellPipeline, ...], tuple[tuple[int, int], ...]]:
    """Return the pipelines of cells, and of each cell its pipeline's index and that of its shift there."""

    def coarse(number: int) -> int:
        at = cells[number].state
        return 0 if at is None else -cells[number].nodes[at].format.fraction

    found: list[tuple[CellPipeline, list[int]]] = []
    for number in sorted(range(len(cells)), key=coarse):
        for index, (pipeline, members) in enumerate(found):
            if (joined := pipeline.joined(cells[number])) is not None:
                found[index] = joined, [*members, number]
                break
        else:
            found.append((CellPipeline(cells[number]), [number]))
    found.sort(key=lambda each: min(each[1]))
    where = {
        number: (index, position)
        for index, (_, members) in enumerate(found)
        for position, number in enumerate(members)
    }
    return tuple(pipeline for pipeline, _ in found), tuple(where[number] for number in range(len(cells)))
