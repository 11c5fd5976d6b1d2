"""Cells in integers: the operations of golden model and hardware, which agree in every bit."""

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
        """Return the cycle in which all other values that a node needs are there."""
        return max((stages[arg] for arg in node.args if self.nodes[arg].kind != "state"), default=0)
