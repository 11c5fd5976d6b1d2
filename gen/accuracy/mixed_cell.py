"""A cell's step with some of its values in float and the others as the hardware has them.

The description of a cell says what is computed, its graph in which formats. Here each step of the
description finds its node of the graph, and is rounded as that node is, or not at all. Values are real
numbers in float64, which holds those of the hardware exactly: they have at most 48 bits.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.activations.functions import IDENTITY, RELU, ActivationFunction
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.activations.piecewise import PiecewiseLinear
from rtlstm.spec.cells.description import Cell, Operation
from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format, odd_codes, round_half_up
from rtlstm.spec.numerics import Numerics

__all__ = ["PARTS", "CellValues", "MixedCell", "Part", "describe_graph", "reads_table"]

Floats = NDArray[np.float64]

Part = Literal["weights", "activations", "tables", "state"]
"""What is rounded: weights with biases and peepholes; activations, which are inputs, h and dense results;
tables with what they read and give; the state that a cell keeps."""
PARTS: tuple[Part, ...] = get_args(Part)


class CellValues(NamedTuple):
    """What a step of a cell gives."""

    result: Floats
    state: Floats | None
    result_saturated: NDArray[np.bool_]
    state_saturated: NDArray[np.bool_]


def reads_table(graph: CellGraph, numerics: Numerics) -> bool:
    """Whether a cell has a function other than ReLU, so that its pre-activations belong to the tables."""
    return any(
        node.kind == "table"
        or (node.kind == "pieces" and numerics.pieces[node.index].function not in (IDENTITY, RELU))
        for node in graph.nodes
    )


def describe_graph(graph: CellGraph, numerics: Numerics) -> Cell:
    """Return the description of a graph; its constants and limits are those of the graph."""
    steps: list[Operation] = []
    of_node: list[int] = []
    for position, node in enumerate(graph.nodes):
        args = tuple(of_node[arg] for arg in node.args)
        real = float(node.format.to_floats(node.value))
        match node.kind:
            case "gate" | "state" | "parameter":
                step = Operation(kind=node.kind, index=node.index)
            case "constant":
                step = Operation(kind="constant", value=real)
            case "multiply" | "add" | "subtract":
                step = Operation(kind=node.kind, args=args)
            case "clamp":
                step = Operation(kind="clip", args=args, value=real)
            case "table":
                step = Operation(kind="apply", args=args, function=numerics.tables[node.index].function)
            case "pieces":
                step = Operation(kind="apply", args=args, function=numerics.pieces[node.index].function)
            case "narrow" if position == graph.state:
                step = Operation(kind="keep", args=args)
            case _:
                of_node.append(args[0])
                continue
        of_node.append(len(steps))
        steps.append(step)
    state = None if graph.state is None else of_node[graph.state]
    kinds = [step.index for step in steps if step.kind == "gate"]
    constants = [step.index + 1 for step in steps if step.kind == "parameter"]
    return Cell(
        name=graph.name,
        gates=1 + max(kinds, default=0),
        parameters=max(constants, default=0),
        steps=tuple(steps),
        result=of_node[graph.result],
        state=state,
    )


class MixedCell:
    """A cell of which ``exact`` parts are in float.

    Parameters
    ----------
    cell
        Its description.
    graph
        Its graph in the numerics.

    Raises
    ------
    InputError
        If the graph is not of this description.
    """

    def __init__(self, cell: Cell, graph: CellGraph, numerics: Numerics, exact: Collection[Part]) -> None:
        self._cell, self._graph, self._numerics = cell, graph, numerics
        self._rounded = {part: part not in exact for part in PARTS}
        self._nodes = _trace(cell, graph, numerics)
        self._saturated: NDArray[np.bool_] | None = None

    def compute(self, gates: Sequence[Floats], state: Floats | None, constants: Floats | None) -> CellValues:
        """Compute a step.

        Parameters
        ----------
        gates
            Real pre-activations of each gate, ``(N, units)``, rounded already if they are to be.
        state
            The kept values, ``(N, units)``.
        constants
            Per-unit constants, ``(units, K)``.
        """
        shape = gates[0].shape
        values: list[Floats] = []
        state_saturated = np.zeros(shape, dtype=np.bool_)
        for step, position in zip(self._cell.steps, self._nodes, strict=True):
            args = [values[arg] for arg in step.args]
            match step.kind:
                case "gate":
                    value = gates[step.index]
                case "state":
                    assert state is not None
                    value = state
                case "parameter":
                    assert constants is not None
                    value = constants[:, step.index]
                case "keep":
                    value, state_saturated = self._keep(args[0], position)
                case _:
                    value = self._operation(step, args, self._graph.nodes[position])
            values.append(value)
        result, result_saturated = self._result(np.broadcast_to(values[self._cell.result], shape))
        kept = None if self._cell.state is None else np.broadcast_to(values[self._cell.state], shape)
        return CellValues(result, kept, result_saturated, state_saturated)

    def _operation(self, step: Operation, args: list[Floats], node: Node) -> Floats:
        exact = not self._rounded["tables"]
        match step.kind:
            case "constant":
                return np.asarray(step.value if exact else node.format.to_floats(node.value))
            case "multiply":
                return args[0] * args[1]
            case "add":
                return args[0] + args[1]
            case "subtract":
                return args[0] - args[1]
            case "clip":
                limit = float(node.format.to_floats(node.value)) if node.kind == "clamp" else np.inf
                limit = step.value if exact else limit
                return np.clip(args[0], -limit, limit)
            case _:
                assert step.function is not None
                return args[0] if step.function == IDENTITY else self._apply(step.function, args[0], node)

    def _apply(self, function: ActivationFunction, values: Floats, node: Node) -> Floats:
        """Apply a function, with its argument and its table each rounded or not."""
        table: ActivationTable | PiecewiseLinear = (
            self._numerics.tables[node.index] if node.kind == "table" else self._numerics.pieces[node.index]
        )
        read = self._graph.nodes[node.args[0]]
        rounded = self._rounded["tables"]
        if not self._rounded[self._part_of_argument(read)]:
            exact = function(values)
            # A table reads rounded arguments only: of others, the result is rounded.
            return node.format.to_floats(node.format.to_integers(exact)) if rounded else exact
        if read.kind == "floor":
            codes = _round_down(values, read.format)
        else:
            codes = _round(values, read.format, read.kind == "narrow")
        if rounded:
            return node.format.to_floats(table.compute(codes.astype(np.int64)))
        middle = isinstance(table, ActivationTable) and table.middle
        return function(read.format.to_floats(codes + (0.5 if middle else 0.0)))

    def _part_of_argument(self, read: Node) -> Part:
        """Return what the rounding of a function's argument belongs to: the state if c's bits limit it."""
        if self._graph.state is None or read.kind not in ("narrow", "floor"):
            return "tables"
        kept = self._graph.nodes[self._graph.state]
        of_kept = kept.kind == "narrow" and kept.args == read.args
        return "state" if of_kept and read.format.fraction == kept.format.fraction else "tables"

    def _keep(self, values: Floats, position: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Return values as they are kept, and which of them saturated."""
        form = self._graph.nodes[position].format
        if not self._rounded["state"]:
            return values, np.zeros(values.shape, dtype=np.bool_)
        return form.to_floats(_round(values, form, True)), _beyond(values, form)

    def _result(self, values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return values as results, and which of them saturated."""
        node = self._graph.nodes[self._graph.result]
        if not self._rounded["activations"]:
            return values, np.zeros(values.shape, dtype=np.bool_)
        if node.kind == "odd":
            odd = odd_codes(np.ldexp(values, node.format.fraction))
            # Exact factors may be 1, which those of the tables are not.
            limited = np.clip(odd, -node.format.maximum, node.format.maximum)
            return node.format.to_floats(limited), np.zeros(values.shape, dtype=np.bool_)
        narrowed = node.kind == "narrow"
        rounded = node.format.to_floats(_round(values, node.format, narrowed))
        # A value of 1, as a sigmoid gives, is a unit above the largest code: this is rounding.
        return rounded, _beyond(values, node.format, 1) & narrowed


def _round(values: Floats, form: Format, symmetric: bool) -> Floats:
    """Return codes, rounded half up; what is in the format already may have its lowest code."""
    lowest = -form.maximum if symmetric else form.lowest
    return np.clip(round_half_up(values, form.fraction), lowest, form.maximum)


def _round_down(values: Floats, form: Format) -> Floats:
    """Return codes, rounded down, as a node ``floor`` does."""
    return np.clip(np.floor(np.ldexp(values, form.fraction)), form.lowest, form.maximum)


def _beyond(values: Floats, form: Format, units: int = 0) -> NDArray[np.bool_]:
    """Say which values are beyond the format's limit by more than some units."""
    return np.abs(round_half_up(values, form.fraction)) > form.maximum + units


def _trace(cell: Cell, graph: CellGraph, numerics: Numerics) -> tuple[int, ...]:
    """Return the node of each step."""
    found: list[int] = []
    for step in cell.steps:
        args = tuple(found[arg] for arg in step.args)
        position = next(_matching(step, args, graph, numerics), None)
        if position is None:
            raise _other(f"its cell {cell.name!r} has an operation {step.kind!r} that the build's has not")
        found.append(position)
    result = graph.nodes[graph.result]
    if found[cell.result] not in (graph.result, *(result.args if result.kind in ("narrow", "odd") else ())):
        raise _other(f"its cell {cell.name!r} gives another value than the build's")
    return tuple(found)


def _other(why: str) -> InputError:
    return InputError(
        f"the model must be the one that the build was generated from, read with the same options, but {why}"
    )


def _matching(step: Operation, args: tuple[int, ...], graph: CellGraph, numerics: Numerics) -> Iterator[int]:
    """Find the nodes that a step can have become, the best first."""
    nodes = graph.nodes
    match step.kind:
        case "gate" | "state" | "parameter":
            yield from (
                at for at, node in enumerate(nodes) if node.kind == step.kind and node.index == step.index
            )
        case "constant":
            some = [at for at, node in enumerate(nodes) if node.kind == "constant"]
            yield from sorted(some, key=lambda at: _distance(nodes[at], step))
        case "multiply" | "add" | "subtract":
            yield from (at for at, node in enumerate(nodes) if node.kind == step.kind and node.args == args)
        case "clip":
            some = [at for at, node in enumerate(nodes) if node.kind == "clamp" and node.args == args]
            # What the format limits already has no node.
            yield from (*sorted(some, key=lambda at: _distance(nodes[at], step)), *args)
        case "keep":
            if graph.state is not None and graph.state in (
                args[0],
                *(at for at, node in enumerate(nodes) if node.kind == "narrow" and node.args == args),
            ):
                yield graph.state
        case "apply":
            if step.function == IDENTITY:
                yield args[0]
            for at, node in enumerate(nodes):
                if node.kind not in ("table", "pieces"):
                    continue
                functions = numerics.tables if node.kind == "table" else numerics.pieces
                read = node.args[0]
                of_same = read == args[0] or (
                    nodes[read].kind in ("narrow", "floor") and nodes[read].args[0] == args[0]
                )
                if of_same and functions[node.index].function == step.function:
                    yield at


def _distance(node: Node, step: Operation) -> float:
    return abs(float(node.format.to_floats(node.value)) - step.value)
