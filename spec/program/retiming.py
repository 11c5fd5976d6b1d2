"""Where registers stand in a layer of a spatial build whose cell is a graph.

The layer is a chain: products, sums with half of their adders before a register where that helps, gates, and
what the cell makes of them. Each operation has a time; those between two registers are no longer than a
period, and the shortest period is taken with which the loop has as many registers as it is to have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """From a layer's input to its share of the sums, if it reads h; else to where its products begin."""
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


@dataclass(frozen=True)
class LayerTimes:
    """What a layer's registers are chosen by."""

    products: tuple[float, ...]
    """Times of its matrices, the one of h last."""
    graph: CellGraph
    recurrent: bool
    """Whether it reads h."""

    def stages(self, period: float, loop: int) -> LayerStages | None:
        """Return the stages for a period; None if the loop of a recurrent layer then has more registers."""

        def after(before: Sequence[_Time], time: float) -> _Time:
            stage, begins = max(before, default=(0, 0.0))
            return (stage + 1, time) if begins and begins + time > period else (stage, begins + time)

        def product(time: float) -> tuple[bool, _Time]:
            first = after([(0, 0.0)], time / 2)
            second = after([first], time / 2)
            return second[0] > first[0], second

        halves, ends = zip(*map(product, self.products), strict=True)
        inputs = ends[:-1] if self.recurrent else ends
        of_inputs = after(inputs, _SUM * len(inputs))
        sums = after([ends[-1]], _SUM) if self.recurrent else of_inputs
        gates = after([sums], _GATE)
        times, nodes = list[_Time](), self.graph.nodes
        for node in nodes:
            if node.kind in ("gate", "state", "parameter", "constant"):
                at_once = node.kind != "gate" and (self.recurrent or node.kind != "state")
                times.append((0, 0.0) if at_once else gates)
                continue
            found = node.kind == "table" and nodes[node.args[0]].kind != "gate"
            times.append(after([times[arg] for arg in node.args], _TIMES[node.kind] + found * _MAGNITUDE))
        stages = [stage for stage, _ in times]
        kept = self.graph.state
        last = max(stages[self.graph.result], stages[self.graph.result if kept is None else kept])
        if self.recurrent and last >= loop:
            return None
        states = [position for position, node in enumerate(nodes) if node.kind == "state"]
        users = [stages[user] for user, node in enumerate(nodes) if {*states} & {*node.args}]
        for position in states:
            # Not later than the new one is written.
            stages[position] = min([*users, last if kept is None else stages[kept]])
            if not self.recurrent and last - stages[position] >= loop:
                return None
        # A memory of states is read a cycle before.
        before = of_inputs[0] + 1 if self.recurrent else int(kept is not None)
        return LayerStages(
            input=before,
            halves=halves,
            sums=sums[0],
            gates=gates[0],
            nodes=tuple(stages),
            registers=before + (loop if self.recurrent else last + 1),
        )


def choose_stages(layers: Sequence[LayerTimes], loop: int) -> tuple[LayerStages, ...]:
    """Return the stages of layers with the shortest period that all loops of ``loop`` registers allow."""
    # Without a loop, a layer has as many registers as one would have.
    loops = any(layer.recurrent for layer in layers)
    period = _PERIOD_STEP
    while True:
        found = [layer.stages(period, loop) for layer in layers]
        whole = [
            each for each in found if each is not None and (loops or each.registers - each.input <= loop)
        ]
        if len(whole) == len(found):
            return tuple(whole)
        period += _PERIOD_STEP
