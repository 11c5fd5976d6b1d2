"""Where registers stand in a layer of a spatial build whose cell is a graph.

The layer is a chain: products, sums with half of their adders before a register where that helps, gates, and
what the cell makes of them. Each operation has a time; those between two registers are no longer than a
period, and the shortest period is taken with which the loop has as many registers as it is to have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rtlstm.spec.cells.graph import CellGraph, NodeKind
from rtlstm.spec.parameters import ceil_log2

_TIMES: Mapping[NodeKind, float] = {
    "multiply": 7.0,
    "add": 3.0,
    "subtract": 3.0,
    "narrow": 4.0,
    "floor": 2.0,
    "clamp": 3.0,
    "table": 4.0,
    "pieces": 13.0,
    "odd": 1.0,
}
"""Times of operations on an LFE5U-25F-8 in ns, wires included, about as in routed LSTM builds: they
only say what is longer than what."""
_GATE, _SUM = 2.0, 2.5
_MAGNITUDE = 1.5
"""Sign and magnitude of a table's argument that is no pre-activation."""
_PERIOD_STEP = 0.25

_Time = tuple[int, float]
"""When a value is there: its stage, and the time from that one's register on."""


def adders_time(columns: int, bits: int) -> float:
    """Return the time of the products of a matrix with so many columns and bits of weights."""
    return 1.5 + 2.5 * ceil_log2(columns * max(1, bits // 2))


@dataclass(frozen=True)
class LayerStages:
    """Stages of a layer's values: registers before them, from its input on, or from h where it has one."""

    input: int
    """From a layer's input to its share of the sums, if it reads h; else to where its products begin. Of a
    layer that gives another one's h, from that to where its products begin."""
    halves: tuple[bool, ...]
    """Whether a register stands half-way through the adders, of each matrix: that of h comes last."""
    sums: int
    """That in which products are added; 0 where they are added at once."""
    gates: int
    nodes: tuple[int, ...]
    """Those of the graph's nodes; for the state, when it is read."""
    registers: int
    """From the layer's input to its results."""


NO_STAGES = LayerStages(input=0, halves=(), sums=0, gates=0, nodes=(), registers=0)
"""What a layer has whose products another one adds to its sums."""


@dataclass
class _Part:
    """A layer's stages, as :class:`LayerStages` has them, while they are found."""

    graph: CellGraph
    input: int
    halves: tuple[bool, ...]
    sums: int
    gates: int
    nodes: list[int]

    def users(self) -> list[int]:
        """The stages of what reads the state."""
        nodes = self.graph.nodes
        reads = [any(nodes[arg].kind == "state" for arg in node.args) for node in nodes]
        return [stage for stage, its in zip(self.nodes, reads, strict=True) if its]

    def read_state(self, stage: int) -> bool:
        """Let the state be read in a stage; return whether it is read at all."""
        found = [position for position, node in enumerate(self.graph.nodes) if node.kind == "state"]
        for position in found:
            self.nodes[position] = stage
        return bool(found)

    def found(self, registers: int) -> LayerStages:
        """Return the stages, with the registers from the layer's input to its results."""
        return LayerStages(
            input=self.input,
            halves=self.halves,
            sums=self.sums,
            gates=self.gates,
            nodes=tuple(self.nodes),
            registers=registers,
        )


@dataclass(frozen=True)
class LayerTimes:
    """What a layer's registers are chosen by."""

    products: tuple[float, ...]
    """Times of its matrices, the one of h last."""
    graph: CellGraph
    recurrent: bool
    """Whether it reads h."""
    tail: "LayerTimes | None" = None
    """The layer behind that gives its h: it has one matrix, for this one's results, in the same loop."""

    def stages(self, period: float, loop: int) -> tuple[LayerStages, ...] | None:
        """Return the stages for a period, and the tail's, if there is one, which count from h on, too.

        None if the loop of a recurrent layer then has more registers.
        """

        def after(before: Sequence[_Time], time: float) -> _Time:
            stage, begins = max(before, default=(0, 0.0))
            return (stage + 1, time) if begins and begins + time > period else (stage, begins + time)

        def product(time: float, given: _Time = (0, 0.0)) -> tuple[int, bool, _Time]:
            first = after([given], time / 2)
            second = after([first], time / 2)
            return first[0], second[0] > first[0], second

        def nodes(graph: CellGraph, gates: _Time) -> list[_Time]:
            times = list[_Time]()
            for node in graph.nodes:
                if node.kind in ("gate", "state", "parameter", "constant"):
                    at_once = node.kind != "gate" and (self.recurrent or node.kind != "state")
                    times.append((0, 0.0) if at_once else gates)
                    continue
                found = node.kind == "table" and graph.nodes[node.args[0]].kind != "gate"
                times.append(after([times[arg] for arg in node.args], _TIMES[node.kind] + found * _MAGNITUDE))
            return times

        def part(graph: CellGraph, begins: int, halves: tuple[bool, ...], sums: _Time) -> tuple[_Part, _Time]:
            gates = after([sums], _GATE)
            times = nodes(graph, gates)
            stages = [stage for stage, _ in times]
            return _Part(graph, begins, halves, sums[0], gates[0], stages), times[graph.result]

        _, halves, ends = zip(*map(product, self.products), strict=True)
        inputs = ends[:-1] if self.recurrent else ends
        of_inputs = after(inputs, _SUM * len(inputs))
        # A memory of states is read a cycle before.
        before = of_inputs[0] + 1 if self.recurrent else int(self.graph.state is not None)
        sums = after([ends[-1]], _SUM) if self.recurrent else of_inputs
        first, result = part(self.graph, before, halves, sums)
        parts = [first]
        if self.tail is not None:
            begins, half, end = product(self.tail.products[0], result)
            parts.append(part(self.tail.graph, begins, (half,), after([end], _SUM))[0])
        kept = [each.nodes[each.graph.state] for each in parts if each.graph.state is not None]
        last = max([parts[-1].nodes[parts[-1].graph.result], *kept])
        if self.recurrent and last >= loop:
            return None
        users = [stage for each in parts for stage in each.users()]
        # Not later than the new one is written.
        read = min([*users, *(kept or [last])])
        reads = [each.read_state(read) for each in parts]
        if any(reads) and not self.recurrent and last - read >= loop:
            return None
        registers = [before + (loop if self.recurrent else last + 1)]
        if self.tail is not None:
            registers = [before + result[0], loop - result[0]]
        return tuple(each.found(count) for each, count in zip(parts, registers, strict=True))


def choose_stages(layers: Sequence[LayerTimes], loop: int) -> tuple[float, tuple[LayerStages, ...]]:
    """Return the shortest period that all loops of ``loop`` registers allow, and the layers' stages then."""
    # Without a loop, a layer has as many registers as one would have.
    loops = any(layer.recurrent for layer in layers)
    period = _PERIOD_STEP
    while True:
        found = [layer.stages(period, loop) for layer in layers]
        whole = [each for each in found if each is not None]
        if len(whole) == len(found):
            chosen = tuple(chain.from_iterable(whole))
            if loops or all(each.registers - each.input <= loop for each in chosen):
                return period, chosen
        period += _PERIOD_STEP
