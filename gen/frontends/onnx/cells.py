"""Recognises LSTM cells that an exporter decomposed into products, activations and sums."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.onnx.activations import node_attributes, operator_function, operator_functions
from rtlstm.gen.frontends.onnx.linear import Linear, read_linear
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph
from rtlstm.gen.frontends.onnx.states import trace_state
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ModelError

__all__ = ["join_cells"]

Floats = NDArray[np.float64]

_MAX_CELLS = 64
"""Largest number of cells: the graph is searched again for each."""


@dataclass(frozen=True, eq=False)
class _Gate:
    """An activation of a sum of products."""

    node: Any
    linear: Linear

    @property
    def function(self) -> ActivationFunction:
        """The activation with its parameters."""
        return operator_function(self.node)


@dataclass(frozen=True, eq=False)
class _Cell:
    """``c = f * c_old + i * g`` and ``h = o * activation_node(c)``, by the names of its tensors."""

    h: str
    c: str
    c_old: str
    activation_node: Any
    i: _Gate
    f: _Gate
    g: _Gate
    o: _Gate

    @property
    def whole(self) -> bool:
        """Whether the gates have one function, as many rows and the same two inputs."""
        return (
            self.i.function == self.f.function == self.o.function
            and len(self.i.linear.terms) == 2
            and all(gate.linear.terms.keys() == self.i.linear.terms.keys() for gate in self.gates)
            and len({len(gate.linear.bias) for gate in self.gates}) == 1
        )

    @property
    def gates(self) -> tuple[_Gate, ...]:
        """In ONNX's order."""
        return (self.i, self.o, self.f, self.g)


def join_cells(
    model: Any, graph: OnnxGraph, x: str = ""
) -> tuple[OnnxGraph, tuple[str, ...], tuple[str, ...]]:
    """Replace every cell in the model by an LSTM node of one step; ``x`` is no state, if it is given.

    Returns the model's graph, notes on the replaced cells, and the reasons why others were not replaced.
    """
    notes: list[str] = []
    while found := next(_cells(graph, x), None):
        cell, x, h_old = found
        if len(notes) == _MAX_CELLS:
            raise ModelError(f"has more than {_MAX_CELLS} LSTM cells in parts; export them as LSTM nodes")
        notes.append(
            f"the nodes that give {cell.h!r} are an LSTM cell: it reads {x!r}, and its state is {h_old!r} "
            f"and {cell.c_old!r}"
        )
        _replace(model.graph, graph, cell, x, h_old)
        graph = OnnxGraph(model)
    unclear = [_problem(graph, cell) for node in graph.nodes for cell in _match(graph, node)]
    return graph, tuple(notes), tuple(dict.fromkeys(unclear))


def _cells(graph: OnnxGraph, no_state: str) -> Iterator[tuple[_Cell, str, str]]:
    """Return the cells whose inputs are unambiguous, with the names of x and the old h."""
    for node in graph.nodes:
        for cell in _match(graph, node):
            ends = _inputs(graph, cell, no_state)
            if ends is not None:
                yield cell, *ends


def _gate(graph: OnnxGraph, tensor: str) -> _Gate | None:
    node = graph.producer(tensor)
    if node is None or node.op_type not in operator_functions() or node.domain not in ("", "ai.onnx"):
        return None
    linear = read_linear(graph, node.input[0])
    return None if linear is None else _Gate(node, linear)


def _pairs(graph: OnnxGraph, tensor: str, operator: str) -> Iterator[tuple[str, str]]:
    """Return the inputs of a node of two, in both orders."""
    node = graph.producer(tensor)
    if node is not None and node.op_type == operator and len(node.input) == 2:
        yield node.input[0], node.input[1]
        yield node.input[1], node.input[0]


def _match(graph: OnnxGraph, node: Any) -> Iterator[_Cell]:
    """The cell whose h a node gives."""
    if node.op_type != "Mul":
        return
    h = node.output[0]
    for gate, activated in _pairs(graph, h, "Mul"):
        o, activation_node = _gate(graph, gate), graph.producer(activated)
        if o is None or activation_node is None or activation_node.op_type not in operator_functions():
            continue
        c = activation_node.input[0]
        for i, f, g, c_old in _parts_of_c(graph, c):
            cell = _Cell(h, c, c_old, activation_node, i, f, g, o)
            if cell.whole:
                yield cell


def _parts_of_c(graph: OnnxGraph, c: str) -> Iterator[tuple[_Gate, _Gate, _Gate, str]]:
    """The gates i, f and g of the sum of two products that gives c, and the old c."""
    for kept, new in _pairs(graph, c, "Add"):
        for forget, c_old in _pairs(graph, kept, "Mul"):
            f = _gate(graph, forget)
            if f is None or _gate(graph, c_old) is not None:
                continue
            for first, second in _pairs(graph, new, "Mul"):
                i, g = _gate(graph, first), _gate(graph, second)
                if i is not None and g is not None:
                    yield i, f, g, c_old


def _problem(graph: OnnxGraph, cell: _Cell) -> str:
    names = list(cell.i.linear.terms)
    made = [name for name in (*names, cell.c_old) if _source(graph, name) is None]
    why = f"it is not clear which of {', '.join(map(repr, names))} is its state"
    if cell.c_old in made or len(made) == 2:
        why = f"its state must be an input of the model or zero, but {made[-1]!r} is computed"
    return f"the nodes that give {cell.h!r} look like an LSTM cell, but {why}"


def _inputs(graph: OnnxGraph, cell: _Cell, no_state: str) -> tuple[str, str] | None:
    """Return the names of x and of the old h, if they can be told apart."""
    names = list(cell.i.linear.terms)
    units = len(cell.i.linear.bias)
    state = _source(graph, cell.c_old)
    sources = {name: _source(graph, name) for name in names}
    able = [name for name in names if sources[name] and cell.i.linear.terms[name].shape[1] == units]
    able = [name for name in able if sources[name] != no_state]
    same = [name for name in able if sources[name] == state != "zeros"]
    chosen = same if len(same) == 1 else able
    if state is None or len(chosen) != 1:
        return None
    others = [name for name in names if name not in chosen]
    return (others[0], chosen[0]) if others else None


def _source(graph: OnnxGraph, tensor: str) -> str | None:
    try:
        return trace_state(graph, tensor)
    except ModelError:
        return None


def _replace(proto: Any, graph: OnnxGraph, cell: _Cell, x: str, h_old: str) -> None:
    """Replace a cell's nodes in a graph by an LSTM node."""
    onnx = import_extra("onnx", "onnx")
    name = graph.label(graph.producer(cell.h))
    w, r = (np.concatenate([gate.linear.terms[t] for gate in cell.gates])[None] for t in (x, h_old))
    bias = np.concatenate([gate.linear.bias for gate in cell.gates])
    arrays = {"W": w, "R": r, "B": np.concatenate([bias, np.zeros_like(bias)])[None]}
    for key, axes in (("zero", [0]), ("both", [0, 1])):
        arrays[key] = np.array(axes, dtype=np.int64)
    proto.initializer.extend(
        onnx.numpy_helper.from_array(array, f"{name}/{key}") for key, array in arrays.items()
    )

    def move(kind: str, source: str, target: str, axes: str) -> Any:
        """Squeeze or Unsqueeze."""
        if graph.opset < 13:
            return onnx.helper.make_node(kind, [source], [target], axes=arrays[axes].tolist())
        return onnx.helper.make_node(kind, [source, f"{name}/{axes}"], [target])

    inputs = [f"{name}/{key}" for key in ("x", "W", "R", "B", "", "h", "c")]
    inputs[4] = ""
    node = onnx.helper.make_node(
        "LSTM",
        inputs,
        [f"{name}/Y", "", f"{name}/Y_c"],
        name=name,
        **node_attributes([cell.i.node, cell.g.node, cell.activation_node]),
    )
    before = [
        move("Unsqueeze", source, f"{name}/{key}", "zero")
        for source, key in ((x, "x"), (h_old, "h"), (cell.c_old, "c"))
    ]
    after = [move("Squeeze", f"{name}/Y", cell.h, "both"), move("Squeeze", f"{name}/Y_c", cell.c, "zero")]
    members = _cell_nodes(graph, cell, {x, h_old, cell.c_old})
    position = graph.index_of(cell.h)
    nodes = [*graph.nodes[: position + 1], *before, node, *after, *graph.nodes[position + 1 :]]
    kept = [each for each in nodes if not any(each is mine for mine in members)]
    del proto.node[:]
    proto.node.extend(kept)


def _cell_nodes(graph: OnnxGraph, cell: _Cell, ends: set[str]) -> list[Any]:
    """The nodes between a cell's inputs and its h that nothing else needs, and those of h and c."""
    between: set[int] = set()
    waiting = [cell.h]
    while waiting:
        tensor = waiting.pop()
        index = graph.index_of(tensor)
        if index >= 0 and tensor not in ends and index not in between:
            between.add(index)
            waiting.extend(graph.nodes[index].input)
    results = {graph.index_of(cell.h), graph.index_of(cell.c)}
    members = set(results)
    for index in sorted(between - results, reverse=True):
        readers = {at for name in graph.nodes[index].output for at in graph.consumers(name)}
        handed_out = set(graph.nodes[index].output) & set(graph.outputs)
        if readers <= members and not handed_out:
            members.add(index)
    return [graph.nodes[index] for index in members]
