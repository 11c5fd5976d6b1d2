"""Reads Scan nodes whose body is a recurrent cell: they become recurrent nodes.

A body that is an LSTM cell becomes an LSTM node. Of another one, what is element-wise becomes a cell's step
function, and products with x and h its rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import add, mul, neg, sub, truediv
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import import_extra, to_float64
from rtlstm.gen.frontends.onnx.activations import operator_function, operator_functions
from rtlstm.gen.frontends.onnx.cells import join_cells
from rtlstm.gen.frontends.onnx.linear import Linear, read_linear
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, captured
from rtlstm.gen.frontends.onnx.recurrent import SCAN
from rtlstm.spec.cells.description import Cell, CellBuilder, Term
from rtlstm.spec.errors import ConfigurationError, ModelError

__all__ = ["read_scans"]

Floats = NDArray[np.float64]

_MIN_OPSET: Final = 9
_MAX_SCANS: Final = 64
"""Largest number of Scan nodes: the constants around them are copied into each."""
_SAME: Final = ("Identity", "Squeeze", "Unsqueeze")


@dataclass(frozen=True, eq=False)
class _Rows:
    """What the recurrent node has: its operator, its attributes and its constants."""

    kind: tuple[str, str]
    attributes: dict[str, Any]
    arrays: dict[str, Any]
    h: int
    """Which of the states is h."""
    cell: Cell | None = None


def read_scans(model: Any, graph: OnnxGraph) -> tuple[OnnxGraph, dict[str, Cell], tuple[str, ...]]:
    """Replace the Scan nodes of a model, in place, whose bodies are cells.

    Returns the model's graph, the step functions by the names of their nodes, and why others stay.
    """
    cells: dict[str, Cell] = {}
    problems: list[str] = []
    joined = 0
    nodes: list[Any] = []
    for node in graph.nodes:
        if node.op_type != "Scan" or node.domain not in ("", "ai.onnx"):
            nodes.append(node)
            continue
        if len(cells) + len(problems) + joined == _MAX_SCANS:
            raise ModelError(f"has more than {_MAX_SCANS} Scan nodes; export them as LSTM, GRU or RNN nodes")
        try:
            scan = _Scan(graph, node)
            rows = scan.read()
            nodes += scan.write(model.graph, rows)
            if rows.cell is not None:
                cells[graph.label(node)] = rows.cell
            joined += rows.cell is None
        except (ModelError, ConfigurationError) as error:
            nodes.append(node)
            problems.append(f"{graph.where(node)} is not read: {error}")
    if len(nodes) > len(graph.nodes):
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        graph = OnnxGraph(model)
    return graph, cells, tuple(problems)


class _Scan:
    """One node and its body, whose inputs are the states and x."""

    def __init__(self, graph: OnnxGraph, node: Any) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self.graph, self.node, self.label = graph, node, graph.label(node)
        self.attributes = graph.attributes(node)
        if graph.opset < _MIN_OPSET:
            raise ModelError(
                f"opset {graph.opset} has another Scan; convert the model to {_MIN_OPSET} or newer"
            )
        self.body = self._body(graph, self.attributes["body"])
        names = [item.name for item in self.body.graph.input]
        if int(self.attributes["num_scan_inputs"]) != 1 or len(names) != len(node.input):
            raise ModelError("it must go through one tensor")
        self.states, self.x = names[:-1], names[-1]
        self.given = [item.name for item in self.body.graph.output]
        if not 1 <= len(self.states) <= 2 or len(self.given) <= len(self.states):
            raise ModelError(
                f"it must have h, or h and c, as states, and give h of each step, but has {len(self.states)} "
                f"states and gives {len(self.given) - len(self.states)} tensors"
            )
        self.axis, self.backward = self._direction()

    def _body(self, graph: OnnxGraph, found: Any) -> Any:
        """The body as a model, with the constants of the graph around it."""
        body = self._onnx.GraphProto()
        body.CopyFrom(found)
        for name in dict.fromkeys(captured(self.node)):
            value = graph.constant(name)
            if value is None:
                raise ModelError(f"its body reads {name!r} of the graph around it, which must be constant")
            body.initializer.append(self._onnx.numpy_helper.from_array(value, name))
        for item in body.input:
            if not item.type.HasField("tensor_type"):
                item.type.tensor_type.elem_type = self._onnx.TensorProto.FLOAT
        opset = self._onnx.helper.make_opsetid("", graph.opset)
        return self._onnx.helper.make_model(body, opset_imports=[opset])

    def _direction(self) -> tuple[int, bool]:
        """The axis of steps, and whether they are read and given from their end."""
        outputs = len(self.given) - len(self.states)
        given = {name: self.attributes.get(f"scan_{name}", []) for name in (
            "input_axes", "output_axes", "input_directions", "output_directions"
        )}  # fmt: skip
        counts = {"input_axes": 1, "input_directions": 1}
        full = {name: values or [0] * counts.get(name, outputs) for name, values in given.items()}
        axes = {*full["input_axes"], *full["output_axes"]}
        directions = {*full["input_directions"], *full["output_directions"]}
        if len(axes) != 1 or not axes <= {0, 1} or len(directions) != 1:
            raise ModelError(
                "its inputs and outputs must have their steps on the same axis, 0 or 1, and in the same "
                f"direction, not {', '.join(f'scan_{name}={values}' for name, values in full.items())}"
            )
        return int(axes.pop()), bool(directions.pop())

    # The body

    def read(self) -> _Rows:
        """What the body computes.

        Raises
        ------
        ModelError
            If it is no cell; the message names the node that has no place in one.
        """
        return self._read_lstm() or self._read_cell()

    def _read_lstm(self) -> _Rows | None:
        """An LSTM cell, and nothing else; None if it is none."""
        model = self._onnx.ModelProto()
        model.CopyFrom(self.body)
        graph, _, _ = join_cells(model, OnnxGraph(model), x=self.x)
        found = [node for node in graph.nodes if node.op_type == "LSTM"]
        if len(found) != 1 or len(self.states) != 2:
            return None
        node = found[0]
        h, c, x = (_behind(graph, node.input[at]) for at in (5, 6, 0))
        ends = [_behind(graph, name) for name in self.given]
        if x != self.x or {h, c} != set(self.states):
            return None
        first = self.states.index(h)
        wanted = [node.output[0]] * len(ends)
        wanted[1 - first] = node.output[2]
        if ends != wanted:
            return None
        arrays = {name: graph.constant(node.input[at]) for at, name in ((1, "W"), (2, "R"), (3, "B"))}
        return _Rows(("", "LSTM"), graph.attributes(node), arrays, first)

    def _read_cell(self) -> _Rows:
        graph = OnnxGraph(self.body)
        read = {name for one in graph.nodes for name in _products(graph, one)}
        multiplied = [name for name in self.states if name in read]
        if len(multiplied) > 1 or (not multiplied and len(self.states) > 1):
            raise ModelError(f"one of its states {self.states} must be h, with which matrices are multiplied")
        h = self.states.index(multiplied[0]) if multiplied else 0
        return _Steps(graph, self.x, self.states, h, self.given).read()

    # The node

    def write(self, proto: Any, rows: _Rows) -> list[Any]:
        """The recurrent node and what moves its axes; constants are added to the graph."""
        make, label, layout = self._onnx.helper.make_node, self.label, self.axis
        names = {
            name: f"{label}/{name}" for name in (*rows.arrays, "x", "Y", "Y_h", "Y_c", "across", "along")
        }
        arrays = {
            **rows.arrays,
            "across": np.array([1 if layout else 0]),
            "along": np.array([2 if layout else 1]),
        }
        for name, array in arrays.items():
            proto.initializer.append(self._onnx.numpy_helper.from_array(array, names[name]))
        nodes, states = [], ["", ""]
        for at, source in enumerate(self.node.input[:-1]):
            which = 0 if at == rows.h else 1
            states[which] = f"{label}/initial_{'hc'[which]}"
            nodes.append(self._move("Unsqueeze", source, states[which], names["across"], arrays["across"]))
        inputs = [
            self.node.input[-1],
            names["W"],
            names["R"],
            names["B"],
            names.get("parameters", ""),
            *states,
        ]
        outputs = [names["Y"], names["Y_h"], *([names["Y_c"]] if states[1] else [])]
        attributes = {
            **rows.attributes,
            "direction": "reverse" if self.backward else "forward",
            "layout": layout,
        }
        kind = rows.kind
        nodes.append(make(kind[1], inputs, outputs, name=label, domain=kind[0], **attributes))
        for at, given in enumerate(self.node.output):
            if given and at < len(self.states):
                source = names["Y_h" if at == rows.h else "Y_c"]
                nodes.append(self._move("Squeeze", source, given, names["across"], arrays["across"]))
            elif given:
                nodes.append(self._move("Squeeze", names["Y"], given, names["along"], arrays["along"]))
        return nodes

    def _move(self, kind: str, source: str, given: str, name: str, axes: Any) -> Any:
        if self.graph.opset < 13:
            return self._onnx.helper.make_node(kind, [source], [given], axes=axes.tolist())
        return self._onnx.helper.make_node(kind, [source, name], [given])


@dataclass(eq=False)
class _Steps:
    """Reads a body as a step function, node by node from its results on."""

    graph: OnnxGraph
    x: str
    states: list[str]
    h: int
    given: list[str]
    builder: CellBuilder = field(default_factory=CellBuilder)
    gates: list[Linear] = field(default_factory=list)
    constants: list[Floats] = field(default_factory=list)
    known: dict[str, Term] = field(default_factory=dict)
    reads_state: bool = False

    def read(self) -> _Rows:
        """The rows and the step function."""
        result = self._result()
        units = len(self.gates[0].bias) if self.gates else 0
        if not units or any(len(gate.bias) != units for gate in self.gates):
            sizes = [len(gate.bias) for gate in self.gates]
            raise ModelError(f"its body must have products with x of as many rows each, not of {sizes}")
        for other in self.given[len(self.states) :]:
            if _behind(self.graph, other) != _behind(self.graph, self.given[self.h]):
                raise ModelError(
                    f"it gives {other!r} of each step, which is not h; compute it behind the Scan, from h"
                )
        cell = self.builder.build("scan", result)
        w, r = (
            [self._weights(gate, name, units) for gate in self.gates]
            for name in (self.x, self.states[self.h])
        )
        arrays: dict[str, Any] = {"W": np.concatenate(w)[None], "R": np.concatenate(r)[None]}
        bias = np.concatenate([gate.bias for gate in self.gates])
        arrays["B"] = np.concatenate([bias, np.zeros_like(bias)])[None]
        if self.constants:
            columns = [np.broadcast_to(each, (units,)) for each in self.constants if each.size in (1, units)]
            if len(columns) < len(self.constants):
                raise ModelError(f"its body must have constants of one value for each of {units} units")
            arrays["parameters"] = np.stack(columns, axis=1)
        return _Rows(SCAN, {"hidden_size": units}, arrays, self.h, cell)

    def _weights(self, gate: Linear, name: str, units: int) -> Floats:
        """A gate's weights of x or h."""
        found = [weight for tensor, weight in gate.terms.items() if _behind(self.graph, tensor) == name]
        wide = {
            weight.shape[1]
            for each in self.gates
            for tensor, weight in each.terms.items()
            if _behind(self.graph, tensor) == self.x
        }
        if name == self.x and not wide:
            raise ModelError("its body must have products with x")
        none = np.zeros((units, wide.pop() if name == self.x else units))
        return np.asarray(sum(found, none))

    def _result(self) -> Term:
        """The new h; the state that elements are computed with is kept."""
        if len(self.states) == 2:
            c = 1 - self.h
            self.known[_behind(self.graph, self.given[c])] = self.builder.keep(self._term(self.given[c]))
            return self._term(self.given[self.h])
        result = self._term(self.given[0])
        return self.builder.keep(result) if self.reads_state else result

    def _term(self, tensor: str) -> Term:
        """The value of one element of a tensor."""
        tensor = _behind(self.graph, tensor)
        if tensor not in self.known:
            self.known[tensor] = self._compute(tensor)
        return self.known[tensor]

    def _compute(self, tensor: str) -> Term:
        kept = self.states[-1 - self.h] if len(self.states) == 2 else self.states[0]
        if tensor == kept:
            self.reads_state = True
            return self.builder.state()
        linear = read_linear(self.graph, tensor)
        if linear is not None and {_behind(self.graph, name) for name in linear.terms} <= {
            self.x,
            self.states[self.h],
        }:
            self.gates.append(linear)
            return self.builder.gate(len(self.gates) - 1)
        node = self.graph.producer(tensor)
        if node is None:
            raise ModelError(
                f"its body computes elements of {tensor!r}, which must be a product with a matrix"
            )
        if node.op_type in operator_functions() and node.domain in ("", "ai.onnx"):
            return self.builder.apply(operator_function(node), self._term(node.input[0]))
        if node.op_type in _OPERATORS and node.domain in ("", "ai.onnx"):
            return self._combined(node)
        raise ModelError(
            f"{self.graph.where(node)} of its body, which gives {tensor!r}, has no place in a cell: matrices "
            "are multiplied with x and h alone, and elements go through "
            f"{', '.join([*_OPERATORS, *operator_functions()])}"
        )

    def _combined(self, node: Any) -> Term:
        values = [self._number(name) for name in node.input]
        if all(isinstance(value, float) for value in values):
            raise ModelError(f"{self.graph.where(node)} of its body computes with constants alone")
        if node.op_type == "Div" and not isinstance(values[1], float):
            raise ModelError(f"{self.graph.where(node)} of its body divides by what is no number")
        values = [
            self._term(name) if each is None else each for name, each in zip(node.input, values, strict=True)
        ]
        result: Term = _OPERATORS[node.op_type](*values)
        return result

    def _number(self, tensor: str) -> Any:
        """A constant as a number, or as a value for each unit; None of what is none."""
        value = self.graph.constant(tensor)
        if value is None:
            return None
        values = to_float64(value, f"the constant {tensor!r} of its body").reshape(-1)
        if values.size and np.all(values == values[0]):
            return float(values[0])
        self.constants.append(values)
        return self.builder.parameter(len(self.constants) - 1)


_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "Add": add,
    "Div": truediv,
    "Mul": mul,
    "Neg": neg,
    "Sub": sub,
}
"""Element-wise operators, each with Python's for terms."""


def _behind(graph: OnnxGraph, tensor: str) -> str:
    """What a tensor is a copy of, perhaps with other axes of size 1."""
    node = graph.producer(tensor)
    while node is not None and node.op_type in _SAME and node.domain in ("", "ai.onnx"):
        tensor = node.input[0]
        node = graph.producer(tensor)
    return tensor


def _products(graph: OnnxGraph, node: Any) -> list[str]:
    """What a node multiplies with matrices."""
    linear = read_linear(graph, node.output[0]) if node.op_type in ("Gemm", "MatMul") else None
    return [] if linear is None else [_behind(graph, name) for name in linear.terms]
