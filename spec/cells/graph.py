"""Cells in integers: the operations of golden model and hardware, and the pipelines that compute them.

There is one pipeline for all graphs that differ in the format of c alone. Its values have one binary point
for all of them, and as many whole bits as any of them needs. A stored c is shifted left by its layer's shift
where it is read, and a new one right before it is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from rtlstm.spec.fixed import Format
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.record import Record

NodeKind = Literal[
    "gate",
    "state",
    "parameter",
    "constant",
    "multiply",
    "add",
    "subtract",
    "narrow",
    "odd",
    "floor",
    "clamp",
    "table",
    "pieces",
    "normalise",
]


class Node(Record):
    """One operation on integers; the result is of ``format``.

    ``multiply``, ``add`` and ``subtract`` are exact. ``narrow`` rounds half up and saturates.
    ``odd`` drops the magnitude's low bits and sets the last one that is left, so that every code is odd; 0
    counts as positive. It needs no adder, and no limit: what it reads is within the format's range.
    ``floor`` rounds down and saturates, to one less than the format's negative limit; so does a ``gate``, to
    whose sum half a unit was added before if it is to be rounded half up.
    ``clamp`` clips to ``+-value``. ``table`` and ``pieces`` are functions with the index ``index``.
    ``normalise`` is the product of that norm, exact, of a ``gate`` that is a value of its source, and perhaps
    a gain.
    """

    kind: NodeKind
    args: tuple[int, ...] = ()
    format: Format
    index: int = 0
    value: int = 0


class CellGraph(Record):
    """A cell in integers, which the golden model computes and from which the hardware is made."""

    name: str
    nodes: tuple[Node, ...]
    result: int
    state: int | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 0 <= self.result < len(self.nodes):
            raise ValueError(f"the result must be one of {len(self.nodes)} nodes, not {self.result}")
        return self

    @property
    def output(self) -> Format:
        """Format of the result."""
        return self.nodes[self.result].format

    @property
    def sum_bits(self) -> int:
        """Bits of the sums that it reads; 0 if it reads none."""
        return max((node.format.bits for node in self.nodes if node.kind == "gate"), default=0)

    @property
    def reads_state(self) -> bool:
        """Whether it uses the old state."""
        return any(node.kind == "state" for node in self.nodes)

    @property
    def norm(self) -> int | None:
        """Index of its norm; None if it has none."""
        return next((node.index for node in self.nodes if node.kind == "normalise"), None)

    def stages(self, parameters: Parameters) -> list[int]:
        """Cycles after the pre-activations in which a register holds each node's value.

        State and parameters are there when the first node needs them, the state at the latest with the
        activation function of a gate.
        """
        deep, product = parameters.pipeline.cell > 3, parameters.pipeline.product
        cost = {"add": 1, "subtract": 1, "clamp": 1, "floor": 1, "pieces": 2 + product}
        cost["multiply"] = 2 if deep else product
        cost["narrow"] = 2 if deep else 1
        cost["table"] = parameters.activation
        stages: list[int] = []
        for node in self.nodes:
            begins = max((stages[arg] for arg in node.args), default=0)
            from_sum = node.kind == "table" and self.nodes[node.args[0]].kind != "gate"
            # What is not a gate gets a sign and a magnitude first, in a register.
            stages.append(begins + cost.get(node.kind, 0) + from_sum * parameters.pipeline.table)
        for position, node in enumerate(self.nodes):
            if node.kind == "state":
                needed = [self._begins(user, stages) for user in self.nodes if position in user.args]
                stages[position] = min([parameters.activation, *needed])
        return stages

    def _begins(self, node: Node, stages: list[int]) -> int:
        return max((stages[arg] for arg in node.args if self.nodes[arg].kind != "state"), default=0)


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
