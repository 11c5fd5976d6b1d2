"""Descriptions of cells: small graphs of element-wise operations on a unit's pre-activations.

A :class:`Cell` is a description in real numbers. :class:`CellBuilder` makes one from a formula, and
``rtlstm.spec.cells.kinds`` has those of LSTM, GRU and plain layers. ``rtlstm.spec.cells.formats`` converts it
to a :class:`~rtlstm.spec.cells.graph.CellGraph`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Record

MAX_GATES = 4
DEFAULT_CELL_RANGE: Final = 16.0
"""The magnitude of what cells keep if neither data nor the user tell it, and the least one within which units
choose among formulas."""
CHOSEN: Final = 2.0**20
"""In a cell whose units choose among formulas, the magnitude within which they do: more than values have. On
hardware it is as small as values allow, see :meth:`Cell.choosing_within`."""

StepKind = Literal[
    "gate",
    "state",
    "parameter",
    "constant",
    "multiply",
    "add",
    "subtract",
    "apply",
    "clip",
    "keep",
    "normalise",
]


class Operation(Record):
    """One operation of a description; ``args`` are earlier steps."""

    kind: StepKind
    args: tuple[int, ...] = ()
    index: int = 0
    """Index of the gate or parameter; 1 for a norm that subtracts the mean, and for a constant or a clip that
    is a multiple of :data:`CHOSEN`."""
    value: float = 0.0
    """A constant, the largest magnitude of a clip, or the epsilon of a norm."""
    function: ActivationFunction | None = None


class Cell(Record):
    """Computes a result and a new state from a unit's ``gates`` pre-activations and old state."""

    name: str
    gates: Annotated[int, Field(ge=1, le=MAX_GATES)]
    parameters: Annotated[int, Field(ge=0, le=4)] = 0
    """Number of per-unit constants (peepholes)."""
    steps: tuple[Operation, ...]
    result: int
    state: int | None = None
    """The step whose value is kept until the next time step."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for position, step in enumerate(self.steps):
            if any(not 0 <= arg < position for arg in step.args):
                raise ValueError(
                    f"step {position} of cell {self.name!r} must use earlier steps, not {step.args}"
                )
        kept = [position for position, step in enumerate(self.steps) if step.kind == "keep"]
        if any(position != self.state for position in kept):
            raise ValueError(f"cell {self.name!r} must keep one value as its state, not {len(kept)}")
        return self

    @property
    def reads_state(self) -> bool:
        """Whether it uses the old state."""
        return any(step.kind == "state" for step in self.steps)

    @property
    def chooses(self) -> bool:
        """Whether its units choose among formulas, within :data:`CHOSEN`."""
        return any(map(_follows_choice, self.steps))

    def choosing_within(self, limit: float) -> "Cell":
        """Return the same cell whose units choose within ``+-limit``, a power of two; what is larger
        saturates."""
        steps = (
            step.replace(value=step.value * limit / CHOSEN, index=0) if _follows_choice(step) else step
            for step in self.steps
        )
        return self.replace(steps=tuple(steps))

    @cached_property
    def read(self) -> tuple[int, ...]:
        """Return the steps that activation functions read, except the kept one."""
        kept = {arg for step in self.steps if step.kind == "keep" for arg in step.args} | {self.state}
        return tuple(step.args[0] for step in self.steps if step.kind == "apply" and step.args[0] not in kept)


def _follows_choice(step: Operation) -> bool:
    return step.index == 1 and step.kind in ("constant", "clip")


@dataclass(frozen=True)
class Term:
    """A value of a :class:`CellBuilder`.

    ``+``, ``-`` and ``*`` with values of the same builder or numbers, and ``/`` by a number, give further
    values.
    """

    builder: "CellBuilder"
    position: int

    def __add__(self, other: "Term | float") -> "Term":
        return self.builder._combine("add", self, other)

    __radd__ = __add__

    def __neg__(self) -> "Term":
        return 0.0 - self

    def __sub__(self, other: "Term | float") -> "Term":
        return self.builder._combine("subtract", self, other)

    def __rsub__(self, other: float) -> "Term":
        return self.builder._combine("subtract", self.builder.constant(other), self)

    def __mul__(self, other: "Term | float") -> "Term":
        return self.builder._combine("multiply", self, other)

    __rmul__ = __mul__

    def __truediv__(self, number: "Term | float") -> "Term":
        if isinstance(number, Term) or not number:
            raise ConfigurationError("a term of a cell must be divided by a number that is not 0")
        return self * (1.0 / number)


class CellBuilder:
    """Builds a :class:`Cell`, step by step.

    A :class:`~rtlstm.spec.errors.ConfigurationError` is raised for terms of another builder, and for a
    second value that is kept.

    >>> from rtlstm.spec.activations.functions import SIGMOID, TANH
    >>> cell = CellBuilder()
    >>> keep_share = cell.apply(SIGMOID, cell.gate(0))
    >>> new = cell.apply(TANH, cell.gate(1))
    >>> h = cell.keep(new + keep_share * (cell.state() - new))
    >>> cell.build("leaky", h).gates
    2
    """

    def __init__(self) -> None:
        self._steps: list[Operation] = []
        self._known: dict[Operation, int] = {}
        self._kept: int | None = None

    def _add(self, step: Operation) -> Term:
        """Append a step, or return the value of an equal one."""
        if step not in self._known:
            self._known[step] = len(self._steps)
            self._steps.append(step)
        return Term(self, self._known[step])

    def _combine(self, kind: StepKind, a: Term, b: Term | float) -> Term:
        other = b if isinstance(b, Term) else self.constant(b)
        return self._add(Operation(kind=kind, args=(self._position(a), self._position(other))))

    def _position(self, term: Term) -> int:
        """The position of a term, which must be of this builder."""
        if term.builder is not self:
            raise ConfigurationError("terms of a cell must be of one CellBuilder, not of two; make them anew")
        return term.position

    def gate(self, index: int) -> Term:
        """Return a pre-activation: input part, recurrent part and bias of row ``index`` of the unit."""
        return self._add(Operation(kind="gate", index=index))

    def state(self) -> Term:
        """Return the value kept in the time step before; zero in the first one."""
        return self._add(Operation(kind="state"))

    def parameter(self, index: int) -> Term:
        """Return a per-unit constant."""
        return self._add(Operation(kind="parameter", index=index))

    def constant(self, value: float) -> Term:
        """Return a constant, which must be a small multiple of a power of two."""
        return self._add(Operation(kind="constant", value=value))

    def apply(self, function: ActivationFunction, term: Term) -> Term:
        """Apply an activation function to a value."""
        return self._add(Operation(kind="apply", args=(self._position(term),), function=function))

    def clip(self, term: Term, limit: float | None) -> Term:
        """Clip a value to ``+-limit``; return it unchanged if that is None."""
        if limit is None:
            return term
        return self._add(Operation(kind="clip", args=(self._position(term),), value=limit))

    def chosen(self, multiple: int = 1) -> Term:
        """Return a multiple of a magnitude beyond all values of the layer: what a unit adds to a formula that
        it does not choose, so that ReLU gives 0. Quantised, it is as small as the values allow."""
        return self._add(Operation(kind="constant", value=multiple * CHOSEN, index=1))

    def clip_chosen(self, term: Term) -> Term:
        """Clip a value to the magnitude of :meth:`chosen`."""
        return self._add(Operation(kind="clip", args=(self._position(term),), value=CHOSEN, index=1))

    def normalise(self, term: Term, epsilon: float, centre: bool, gain: Term | None = None) -> Term:
        """Divide a gate by the root of its mean square over all units, plus epsilon, times a gain; if
        ``centre``, less its mean first. Only the layer of a norm has such a cell."""
        args = tuple(self._position(arg) for arg in (term, gain) if arg is not None)
        return self._add(Operation(kind="normalise", args=args, index=int(centre), value=epsilon))

    def keep(self, term: Term) -> Term:
        """Keep one value as the new state; return the kept value, rounded to the state's format."""
        kept = self._add(Operation(kind="keep", args=(self._position(term),)))
        self._kept = kept.position
        return kept

    def build(self, name: str, result: Term) -> Cell:
        """Finish; ``result`` becomes the layer's output."""
        used = [step for step in self._steps if step.kind in ("gate", "parameter")]
        return Cell(
            name=name,
            gates=1 + max((step.index for step in used if step.kind == "gate"), default=0),
            parameters=1 + max((step.index for step in used if step.kind == "parameter"), default=-1),
            steps=tuple(self._steps),
            result=self._position(result),
            state=self._kept,
        )
