"""Reads Scan nodes whose body is a recurrent cell: they become recurrent nodes.

A body that is an LSTM cell becomes an LSTM node. Of another one, what is element-wise becomes a cell's step
function, and products with x and h its rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import add, mul, neg, sub, truediv
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, import_extra, to_float64
from rtlstm.gen.frontends.cells import Linear, Linears, join_cells
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent
from rtlstm.gen.frontends.layers import DENSE
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, captured
from rtlstm.spec.cells.description import CellBuilder, Term
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Custom, Lstm

Translate = Callable[[OnnxGraph], Graph]

_MIN_OPSET: Final = 9
MAX_SCANS: Final = 64
"""Largest number of Scan nodes: the constants around them are copied into each."""


_Body = tuple[Lstm | Custom, int]
"""What a body computes: the layer, and which of the states is h."""


def read_scan(graph: OnnxGraph, node: Any, translate: Translate) -> list[Node]:
    """Return the nodes that a Scan is whose body is a cell; ``translate`` reads the body.

    Raises ModelError, ConfigurationError if it is none; the message names the node that has no place in one.
    """
    return _Scan(graph, node, translate).nodes()


class _Scan:
    """One node and its body, whose inputs are the states and x."""

    def __init__(self, graph: OnnxGraph, node: Any, translate: Translate) -> None:
        self._onnx = import_extra("onnx", "onnx")
        self.graph, self.node, self.label = graph, node, graph.label(node)
        self.attributes = graph.attributes(node)
        if graph.opset < _MIN_OPSET:
            raise ModelError(
                f"opset {graph.opset} has another Scan; convert the model to {_MIN_OPSET} or newer"
            )
        body = self._body(graph, self.attributes["body"])
        self.body = translate(OnnxGraph(body))
        names = [item.name for item in body.graph.input]
        if int(self.attributes["num_scan_inputs"]) != 1 or len(names) != len(node.input):
            raise ModelError("it must go through one tensor")
        self.states, self.x = names[:-1], names[-1]
        self.given = [item.name for item in body.graph.output]
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

    def _read_lstm(self) -> _Body | None:
        """An LSTM cell, and nothing else; None if it is none."""
        graph, _, _ = join_cells(self.body, x=self.x)
        found = [node for node in graph.nodes if node.operator == "recurrent"]
        if len(found) != 1 or len(self.states) != 2:
            return None
        node = found[0]
        x, h, c = (_behind(graph, name) for name in node.inputs)
        ends = [_behind(graph, name) for name in self.given]
        if x != self.x or {h, c} != set(self.states):
            return None
        first = self.states.index(h)
        wanted = [node.outputs[0]] * len(ends)
        wanted[1 - first] = node.outputs[2]
        layer = node.attributes["layers"]().layers[0]
        return (layer, first) if ends == wanted and isinstance(layer, Lstm) else None

    def _read_cell(self) -> _Body:
        linears = Linears(self.body)
        read = {name for one in self.body.nodes for name in _products(linears, one)}
        multiplied = [name for name in self.states if name in read]
        if len(multiplied) > 1 or (not multiplied and len(self.states) > 1):
            raise ModelError(f"one of its states {self.states} must be h, with which matrices are multiplied")
        h = self.states.index(multiplied[0]) if multiplied else 0
        return _Steps(linears, self.x, self.states, h, self.given).read(self.label), h

    # The node

    def nodes(self) -> list[Node]:
        """The recurrent node, and copies of what it gives more than once."""
        found, h = self._read_lstm() or self._read_cell()
        layer = found.replace(name=self.label, reverse=self.backward)
        states = _h_first(self.node.input[:-1], h)
        given = list(self.node.output)
        steps = [name for name in given[len(self.states) :] if name]
        y = steps[0] if steps else ""
        results = _h_first(given[: len(self.states)], h)
        axes = ("N", "T", "F") if self.axis else ("T", "N", "F")
        node = Node(
            "recurrent",
            (self.node.input[-1], *states),
            (y, *results),
            self.label,
            "LSTM" if isinstance(found, Lstm) else "Scan",
            {
                "layers": lambda: Recurrent((layer,)),
                "axes": axes,
                "unchecked_states": True,
                "why_sequences_first": "has layout 1" if self.axis else "",
                "text": "layout 1" if self.axis else "",
            },
            noun=" node",
        )
        copies = [
            Node("identity", (y,), (name,), f"{self.label}/{name}", "Identity", noun=" node", hidden=True)
            for name in steps[1:]
        ]
        return [node, *copies]


@dataclass(eq=False)
class _Steps:
    """Reads a body as a step function, node by node from its results on."""

    linears: Linears
    x: str
    states: list[str]
    h: int
    given: list[str]
    builder: CellBuilder = field(default_factory=CellBuilder)
    gates: list[Linear] = field(default_factory=list)
    constants: list[Floats] = field(default_factory=list)
    known: dict[str, Term] = field(default_factory=dict)
    reads_state: bool = False

    @property
    def graph(self) -> Graph:
        """The body."""
        return self.linears.graph

    def read(self, name: str) -> Custom:
        """The layer: its rows and the step function."""
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
        parameters = None
        if self.constants:
            columns = [np.broadcast_to(each, (units,)) for each in self.constants if each.size in (1, units)]
            if len(columns) < len(self.constants):
                raise ModelError(f"its body must have constants of one value for each of {units} units")
            parameters = np.stack(columns, axis=1)
        return Custom(
            name=name,
            w_ih=np.concatenate(w),
            w_hh=np.concatenate(r),
            bias=np.concatenate([gate.bias for gate in self.gates]),
            cell=cell,
            parameters=parameters,
        )

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
        linear = self.linears.read(tensor)
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
        if node.operator == "activation":
            return self.builder.apply(node.function(), self._term(node.inputs[0]))
        if node.operator in _OPERATORS:
            return self._combined(node)
        raise ModelError(
            f"{node.where} of its body, which gives {tensor!r}, has no place in a cell: matrices "
            "are multiplied with x and h alone, and elements go through "
            f"{', '.join(_OPERATORS)} and activation functions"
        )

    def _combined(self, node: Node) -> Term:
        values = [self._number(name) for name in node.inputs]
        if all(isinstance(value, float) for value in values):
            raise ModelError(f"{node.where} of its body computes with constants alone")
        if node.operator == "div" and not isinstance(values[1], float):
            raise ModelError(f"{node.where} of its body divides by what is no number")
        values = [
            self._term(name) if each is None else each for name, each in zip(node.inputs, values, strict=True)
        ]
        result: Term = _OPERATORS[node.operator](*values)
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
    "add": add,
    "div": truediv,
    "mul": mul,
    "neg": neg,
    "sub": sub,
}
"""Element-wise operators, each with Python's for terms."""


def _h_first(names: Sequence[str], h: int) -> list[str]:
    """The names of h and c, of which there may be none."""
    return [names[h], *(name for at, name in enumerate(names) if at != h), ""][:2]


def _behind(graph: Graph, tensor: str) -> str:
    """What a tensor is a copy of, perhaps with other axes of size 1."""
    return graph.behind(tensor, "identity", "squeeze", "unsqueeze")


def _products(linears: Linears, node: Node) -> list[str]:
    """What a node multiplies with matrices."""
    linear = linears.read(node.outputs[0]) if node.operator in DENSE else None
    return [] if linear is None else [_behind(linears.graph, name) for name in linear.terms]
