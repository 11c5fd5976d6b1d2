"""Evaluates cells: one function walks through the operations, and an arithmetic says how they are computed.

The golden model evaluates graphs in integers, the float reference descriptions in floats. The accuracy of
parts rounds some of the floats, and training computes with tensors that have gradients. The hardware is made
by a second reading of the graph (:mod:`rtlstm.hdl.core.cell_unit`), which tests compare with this one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from rtlstm.spec.activations.functions import IDENTITY
from rtlstm.spec.cells.description import Cell, Operation
from rtlstm.spec.cells.graph import CellGraph, Node

Kind = TypeVar("Kind", bound=Operation | Node)
V = TypeVar("V")


class Arithmetic(ABC, Generic[Kind, V]):
    """How operations are computed on values of one type, which have the operators ``*``, ``+`` and ``-``.

    ``operations`` are the steps of a description or the nodes of a graph, and ``at`` is the index of one.
    """

    def __init__(self, cell: Cell | CellGraph) -> None:
        self.cell = cell
        self.operations: Sequence[Kind] = _operations(cell)

    @abstractmethod
    def constant(self, at: int) -> V:
        """Return a constant."""

    def align(self, at: int, terms: list[V]) -> list[Any]:
        """Return the two terms of a sum or difference in one unit."""
        return terms

    @abstractmethod
    def clip(self, at: int, x: V) -> V:
        """Clip to a magnitude."""

    @abstractmethod
    def apply(self, at: int, x: V) -> V:
        """Apply an activation function."""

    @abstractmethod
    def normalise(self, at: int, x: V, gain: V | None) -> V:
        """Normalise over the units, which are the last axis; times the gain, if there is one."""

    def round(self, at: int, x: V) -> V:
        """Return a value as it is kept, or narrowed to a format; the value itself if nothing is rounded."""
        return x


def evaluate(
    arithmetic: Arithmetic[Any, V], gates: Sequence[V], state: V | None, parameters: Sequence[V] = ()
) -> list[V]:
    """Compute all operations, element-wise.

    ``gates`` are the pre-activations of each gate. ``state`` is the old state; None for a cell that reads
    none. ``parameters`` are the per-unit constants.
    """
    values: list[Any] = []
    for at, operation in enumerate(arithmetic.operations):
        args = [values[arg] for arg in operation.args]
        match operation.kind:
            case "gate":
                value: Any = gates[operation.index]
            case "state":
                value = state
            case "parameter":
                value = parameters[operation.index]
            case "constant":
                value = arithmetic.constant(at)
            case "multiply":
                value = args[0] * args[1]
            case "add":
                a, b = arithmetic.align(at, args)
                value = a + b
            case "subtract":
                a, b = arithmetic.align(at, args)
                value = a - b
            case "clip" | "clamp":
                value = arithmetic.clip(at, args[0])
            case "apply" | "table" | "pieces":
                value = arithmetic.apply(at, args[0])
            case "normalise":
                value = arithmetic.normalise(at, args[0], args[1] if args[1:] else None)
            case "keep" | "narrow" | "floor" | "odd":
                value = arithmetic.round(at, args[0])
        values.append(value)
    return values


class Reals(Arithmetic[Any, Any]):
    """Computes with real numbers; by default a description in float64."""

    def number(self, at: int) -> float:
        """Return the real value of a constant or of a clip's magnitude."""
        operation = self.operations[at]
        if isinstance(operation, Operation):
            return operation.value
        return math.ldexp(operation.value, -operation.format.fraction)

    def constant(self, at: int) -> Any:
        """Return a constant."""
        return np.asarray(self.number(at))

    def clip(self, at: int, x: Any) -> Any:
        """Clip to a magnitude."""
        limit = self.number(at)
        return x.clip(-limit, limit)

    def apply(self, at: int, x: Any) -> Any:
        """Compute an activation function's formula."""
        return self.operations[at].function(x)

    def normalise(self, at: int, x: Any, gain: Any) -> Any:
        """Normalise over the units."""
        operation = self.operations[at]
        found = normalised(x, bool(operation.index), operation.value)
        return found if gain is None else found * gain


def normalised(x: Any, centre: bool, epsilon: float) -> Any:
    """Normalise over the last axis; values that are all equal become 0, also without an epsilon."""
    x = x - x.mean(axis=-1, keepdims=True) if centre else x
    spread = (x * x).mean(axis=-1, keepdims=True) + epsilon
    return x / (spread + (spread == 0.0)) ** 0.5


def _operations(cell: Cell | CellGraph) -> Sequence[Any]:
    return cell.steps if isinstance(cell, Cell) else cell.nodes


def rounded_gates(cell: Cell | CellGraph) -> frozenset[int]:
    """Return the indices of the gates that are rounded half up.

    All others are rounded down: only tables read them, perhaps clipped. Those tables have the functions'
    values in the middle between two arguments.
    """
    operations = _operations(cell)

    def only_tables_read(position: int) -> bool:
        if position in (cell.result, cell.state):
            return False
        for reader, operation in enumerate(operations):
            if position in operation.args:
                function = operation.function if isinstance(operation, Operation) else None
                passed = operation.kind in ("clip", "clamp") or function == IDENTITY
                in_table = operation.kind == "table" or (function is not None and function.lines is None)
                if not (only_tables_read(reader) if passed else in_table):
                    return False
        return True

    return frozenset(
        operation.index
        for position, operation in enumerate(operations)
        if operation.kind == "gate" and not only_tables_read(position)
    )
