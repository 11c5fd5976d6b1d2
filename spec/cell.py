"""Cells: what becomes of a unit's pre-activations, as a small graph of element-wise operations.

A :class:`Cell` is the description, in real numbers: :class:`CellBuilder` writes one like a formula,
and ``rtlstm.spec.cells`` has those of LSTM, GRU and plain layers. :func:`resolve` gives every value a
fixed-point format; the golden model and the hardware both follow that :class:`CellGraph`, on every bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rtlstm.spec.activation import VALUE_BITS, ActivationTable, design_table
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format
from rtlstm.spec.functions import ActivationFunction
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.piecewise import LINEAR_FUNCTIONS, PiecewiseLinear, design_pieces
from rtlstm.spec.record import Record

__all__ = [
    "Cell",
    "CellBuilder",
    "CellFormats",
    "CellGraph",
    "CellTiming",
    "Functions",
    "Node",
    "Step",
    "Term",
    "resolve",
]

Floats = NDArray[np.float64]

MAX_GATES = 4
_WIDEST = 48
"""Bits of the widest exact sum or product."""

StepKind = Literal[
    "gate", "state", "parameter", "constant", "multiply", "add", "subtract", "apply", "clip", "keep"
]


class Step(Record):
    """One operation of a description; ``args`` are earlier steps."""

    kind: StepKind
    args: tuple[int, ...] = ()
    index: int = 0
    """Which gate or parameter."""
    value: float = 0.0
    """A constant, or the limit of a clip."""
    function: ActivationFunction | None = None


class Cell(Record):
    """A description: from a unit's ``gates`` pre-activations and old state to a result and a new state."""

    name: str
    gates: Annotated[int, Field(ge=1, le=MAX_GATES)]
    parameters: Annotated[int, Field(ge=0, le=4)] = 0
    """Numbers of each unit's own that the steps use (peepholes)."""
    steps: tuple[Step, ...]
    result: int
    state: int | None = None
    """The step whose value is kept until the next time step."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for place, step in enumerate(self.steps):
            if any(not 0 <= arg < place for arg in step.args):
                raise ValueError(
                    f"step {place} of cell {self.name!r} must use earlier steps, not {step.args}"
                )
        return self

    @property
    def reads_state(self) -> bool:
        """Whether it uses the old state."""
        return any(step.kind == "state" for step in self.steps)

    def evaluate(
        self, gates: Sequence[Floats], state: Floats | None, parameters: Sequence[Floats] = ()
    ) -> tuple[Floats, Floats | None]:
        """Return the result and the new state in float64, element-wise."""
        values = self.values(gates, state, parameters)
        return values[self.result], None if self.state is None else values[self.state]

    def values(
        self, gates: Sequence[Floats], state: Floats | None, parameters: Sequence[Floats] = ()
    ) -> list[Floats]:
        """Return every step's value in float64, element-wise."""
        values: list[Floats] = []
        for step in self.steps:
            values.append(_evaluate(step, [values[arg] for arg in step.args], gates, state, parameters))
        return values

    @property
    def read(self) -> tuple[int, ...]:
        """The steps that activation functions read, but for what is kept."""
        kept = {arg for step in self.steps if step.kind == "keep" for arg in step.args} | {self.state}
        return tuple(step.args[0] for step in self.steps if step.kind == "apply" and step.args[0] not in kept)


def _evaluate(
    step: Step,
    args: list[Floats],
    gates: Sequence[Floats],
    state: Floats | None,
    parameters: Sequence[Floats],
) -> Floats:
    match step.kind:
        case "gate":
            return gates[step.index]
        case "state":
            assert state is not None
            return state
        case "parameter":
            return parameters[step.index]
        case "constant":
            return np.float64(step.value)  # type: ignore[return-value]
        case "multiply":
            return args[0] * args[1]
        case "add":
            return args[0] + args[1]
        case "subtract":
            return args[0] - args[1]
        case "apply":
            assert step.function is not None
            return step.function(args[0])
        case "clip":
            return np.clip(args[0], -step.value, step.value)
        case "keep":
            return args[0]


@dataclass(frozen=True)
class Term:
    """A value in a description that is being written; ``+``, ``-`` and ``*`` make others."""

    builder: "CellBuilder"
    place: int

    def __add__(self, other: "Term | float") -> "Term":
        return self.builder._combine("add", self, other)

    def __sub__(self, other: "Term | float") -> "Term":
        return self.builder._combine("subtract", self, other)

    def __rsub__(self, other: float) -> "Term":
        return self.builder._combine("subtract", self.builder.constant(other), self)

    def __mul__(self, other: "Term | float") -> "Term":
        return self.builder._combine("multiply", self, other)


class CellBuilder:
    """Writes a :class:`Cell`, step by step.

    >>> from rtlstm.spec.functions import SIGMOID, TANH
    >>> cell = CellBuilder()
    >>> keep_share = cell.apply(SIGMOID, cell.gate(0))
    >>> new = cell.apply(TANH, cell.gate(1))
    >>> h = cell.keep(new + keep_share * (cell.state() - new))
    >>> cell.build("leaky", h).gates
    2
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._known: dict[Step, int] = {}
        self._kept: int | None = None

    def _add(self, step: Step) -> Term:
        """The same step twice is one value."""
        if step not in self._known:
            self._known[step] = len(self._steps)
            self._steps.append(step)
        return Term(self, self._known[step])

    def _combine(self, kind: StepKind, a: Term, b: Term | float) -> Term:
        other = b if isinstance(b, Term) else self.constant(b)
        return self._add(Step(kind=kind, args=(a.place, other.place)))

    def gate(self, index: int) -> Term:
        """A pre-activation: input part, recurrent part and bias of row ``index`` of the unit."""
        return self._add(Step(kind="gate", index=index))

    def state(self) -> Term:
        """What was kept in the step before; zero at first."""
        return self._add(Step(kind="state"))

    def parameter(self, index: int) -> Term:
        """A number of the unit's own."""
        return self._add(Step(kind="parameter", index=index))

    def constant(self, value: float) -> Term:
        """A number: a small multiple of a power of two."""
        return self._add(Step(kind="constant", value=value))

    def apply(self, function: ActivationFunction, term: Term) -> Term:
        """An activation function of a value."""
        return self._add(Step(kind="apply", args=(term.place,), function=function))

    def clip(self, term: Term, limit: float | None) -> Term:
        """The value within ``+-limit``; as it is without one."""
        return term if limit is None else self._add(Step(kind="clip", args=(term.place,), value=limit))

    def keep(self, term: Term) -> Term:
        """Keep a value as the new state; the result is what is kept, rounded to the state's format."""
        kept = self._add(Step(kind="keep", args=(term.place,)))
        self._kept = kept.place
        return kept

    def build(self, name: str, result: Term) -> Cell:
        """Finish; ``result`` becomes the layer's output."""
        used = [step for step in self._steps if step.kind in ("gate", "parameter")]
        return Cell(
            name=name,
            gates=1 + max((step.index for step in used if step.kind == "gate"), default=0),
            parameters=1 + max((step.index for step in used if step.kind == "parameter"), default=-1),
            steps=tuple(self._steps),
            result=result.place,
            state=self._kept,
        )


NodeKind = Literal[
    "gate",
    "state",
    "parameter",
    "constant",
    "multiply",
    "add",
    "subtract",
    "narrow",
    "clamp",
    "table",
    "pieces",
]


class Node(Record):
    """One operation on integers; the result is of ``format``.

    ``multiply``, ``add`` and ``subtract`` are exact. ``narrow`` rounds half up and saturates.
    ``clamp`` limits to ``+-value``. ``table`` and ``pieces`` are functions by number ``index``.
    """

    kind: NodeKind
    args: tuple[int, ...] = ()
    format: Format
    index: int = 0
    value: int = 0


class CellGraph(Record):
    """A cell in integers: what the golden model computes and the hardware is made from."""

    name: str
    nodes: tuple[Node, ...]
    result: int
    state: int | None = None

    @property
    def output(self) -> Format:
        """Format of the result."""
        return self.nodes[self.result].format

    @property
    def reads_state(self) -> bool:
        """Whether it uses the old state."""
        return any(node.kind == "state" for node in self.nodes)

    def stages(self, parameters: Parameters) -> list[int]:
        """Cycles after the pre-activations in which a register holds each node's value.

        The state and parameters come in time for the first that needs them, but the state not later
        than an activation function of a gate.
        """
        deep = parameters.pipeline.cell > 3
        cost = {"multiply": 2 if deep else 1, "add": 1, "subtract": 1, "clamp": 1, "pieces": 3}
        cost["narrow"] = 2 if deep else 1
        cost["table"] = parameters.activation
        stages: list[int] = []
        for node in self.nodes:
            begins = max((stages[arg] for arg in node.args), default=0)
            from_sum = node.kind == "table" and self.nodes[node.args[0]].kind != "gate"
            stages.append(begins + cost.get(node.kind, 0) + from_sum)
        for place, node in enumerate(self.nodes):
            if node.kind == "state":
                needed = [self._begins(user, stages) for user in self.nodes if place in user.args]
                stages[place] = min([parameters.activation, *needed])
        return stages

    def _begins(self, node: Node, stages: list[int]) -> int:
        """When the other values that a node needs are there."""
        return max((stages[arg] for arg in node.args if self.nodes[arg].kind != "state"), default=0)

    def latency(self, parameters: Parameters) -> int:
        """Cycles from the pre-activations to the result."""
        return self.stages(parameters)[self.result]


@dataclass(frozen=True)
class CellTiming:
    """Stages that the cells of a network have in common, in cycles after the pre-activations."""

    state: int
    """The old state is there; cells that need it later delay it."""
    keep: int
    """Every cell writes its new state then."""
    latency: int
    """Every cell gives its result then, so that results come in the order of their items."""

    @classmethod
    def of(cls, cells: Sequence[CellGraph], parameters: Parameters) -> "CellTiming | None":
        """Return what cells have in common; None if there are none."""
        if not cells:
            return None
        needed = [
            stage
            for cell in cells
            for node, stage in zip(cell.nodes, cell.stages(parameters), strict=True)
            if node.kind == "state"
        ]
        stages = [(cell, cell.stages(parameters)) for cell in cells]
        keeps = [found[cell.state] for cell, found in stages if cell.state is not None]
        return cls(
            state=min(needed, default=parameters.activation),
            keep=max(keeps, default=0),
            latency=max(2, *(max(found) for _, found in stages)),
        )


@dataclass
class Functions:
    """Tables and piecewise linear functions that cells share."""

    direct: bool = False
    """Whether tables have one entry per input."""
    tables: list[ActivationTable] = field(default_factory=list)
    pieces: list[PiecewiseLinear] = field(default_factory=list)

    def table(self, function: ActivationFunction, input: Format, output: Format) -> int:
        """Number of a table; a new one, if there is none like it."""
        return _number(self.tables, design_table(function, input, output, self.direct))

    def linear(self, function: ActivationFunction, input: Format, output: Format) -> int:
        """Number of a piecewise linear function."""
        return _number(self.pieces, design_pieces(function, input, output))


def _number(known: list[Any], wanted: Record) -> int:
    if wanted not in known:
        known.append(wanted)
    return known.index(wanted)


@dataclass(frozen=True)
class CellFormats:
    """Formats of a layer's values."""

    preactivation: Format
    """Of the gates, and of what an activation function reads elsewhere."""
    gate: Format
    """Of activation functions within -1 .. 1."""
    output: Format
    """Of the result."""
    state: Format | None = None
    argument: Format | None = None
    """Of the kept value where an activation function reads it (before it is rounded to ``state``)."""
    parameter: Format | None = None


def resolve(cell: Cell, formats: CellFormats, functions: Functions) -> CellGraph:
    """Give every value of a cell a format, and its functions their tables.

    Raises
    ------
    ConfigurationError
        If an exact sum or product would need more than 48 bits.
    """
    return _Resolver(cell, formats, functions).graph()


class _Resolver:
    def __init__(self, cell: Cell, formats: CellFormats, functions: Functions) -> None:
        self._cell = cell
        self._formats = formats
        self._functions = functions
        self._nodes: list[Node] = []
        self._known: dict[Node, int] = {}
        self._of_step: list[int] = []

    def graph(self) -> CellGraph:
        cell = self._cell
        for step in cell.steps:
            self._of_step.append(self._step(step, [self._of_step[arg] for arg in step.args]))
        result = self._narrow(self._of_step[cell.result], self._formats.output)
        state = None if cell.state is None else self._of_step[cell.state]
        return CellGraph(name=cell.name, nodes=tuple(self._nodes), result=result, state=state)

    def _add(self, kind: NodeKind, format: Format, *args: int, index: int = 0, value: int = 0) -> int:
        node = Node(kind=kind, args=args, format=format, index=index, value=value)
        if node not in self._known:
            self._known[node] = len(self._nodes)
            self._nodes.append(node)
        return self._known[node]

    def _format(self, place: int) -> Format:
        return self._nodes[place].format

    def _step(self, step: Step, args: list[int]) -> int:
        formats = self._formats
        match step.kind:
            case "gate":
                return self._add("gate", formats.preactivation, index=step.index)
            case "state":
                assert formats.state is not None
                return self._add("state", formats.state)
            case "parameter":
                assert formats.parameter is not None
                return self._add("parameter", formats.parameter, index=step.index)
            case "constant":
                return self._constant(step.value)
            case "multiply":
                a, b = map(self._format, args)
                return self._exact("multiply", a.bits + b.bits, a.fraction + b.fraction, args)
            case "add" | "subtract":
                fraction = max(self._format(arg).fraction for arg in args)
                whole = max(self._format(arg).bits - self._format(arg).fraction for arg in args)
                return self._exact(step.kind, whole + fraction + 1, fraction, args)
            case "apply":
                assert step.function is not None
                return self._apply(step.function, args[0], step.args[0])
            case "clip":
                return self._clip(args[0], step.value)
            case "keep":
                assert formats.state is not None
                return self._narrow(args[0], formats.state)

    def _constant(self, value: float) -> int:
        fraction = next((f for f in range(24) if float(value * 2**f).is_integer()), 24)
        integer = round(value * 2**fraction)
        return self._add(
            "constant", Format(bits=max(2, abs(integer).bit_length() + 1), fraction=fraction), value=integer
        )

    def _exact(self, kind: NodeKind, bits: int, fraction: int, args: list[int]) -> int:
        if bits > _WIDEST:
            raise ConfigurationError(
                f"cell {self._cell.name!r} needs exact values of {bits} bits, but {_WIDEST} is the most; "
                "choose fewer cell or gate bits"
            )
        return self._add(kind, Format(bits=bits, fraction=fraction), *args)

    def _narrow(self, place: int, format: Format) -> int:
        return place if self._format(place) == format else self._add("narrow", format, place)

    def _clip(self, place: int, limit: float) -> int:
        form = self._format(place)
        value = int(np.floor(np.ldexp(limit, form.fraction) + 0.5))
        return place if value >= form.maximum else self._add("clamp", form, place, value=value)

    def _apply(self, function: ActivationFunction, place: int, step: int) -> int:
        if function.name == "identity":
            return place
        read = self._read(place, step)
        form = self._format(read)
        linear = function.name in LINEAR_FUNCTIONS
        if function.within_one:
            output = self._formats.gate
        else:
            bits = form.bits if linear else min(form.bits, VALUE_BITS)
            output = Format.covering(bits, max(function.reach(form.maximum * form.step), form.step))
        if linear:
            return self._add("pieces", output, read, index=self._functions.linear(function, form, output))
        return self._add("table", output, read, index=self._functions.table(function, form, output))

    def _read(self, place: int, step: int) -> int:
        """A value as a function reads it: gates are what it takes already."""
        inner = self._nodes[place]
        while inner.kind == "clamp":
            inner = self._nodes[inner.args[0]]
        if inner.kind == "gate":
            return place
        kept = any(s.kind == "keep" and s.args[0] == step for s in self._cell.steps)
        argument = self._formats.argument
        return self._narrow(place, argument if kept and argument is not None else self._formats.preactivation)
