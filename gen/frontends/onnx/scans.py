"""Reads Scan nodes: what their body computes of a step becomes layers of the whole sequence."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.bodies import Forms
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.gen.frontends.loops import Loop, final_states, lifted
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, captured
from rtlstm.spec.errors import ModelError

Translate = Callable[[OnnxGraph], Graph]

_MIN_OPSET: Final = 9
MAX_SCANS: Final = 64
"""Largest number of Scan nodes: the constants around them are copied into each."""


def read_scan(graph: OnnxGraph, node: Any, translate: Translate) -> tuple[list[Node], dict[str, Any]]:
    """Return the nodes that a Scan becomes, and the constants of its body, which ``translate`` reads.

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
        if not self.states or len(self.given) <= len(self.states):
            raise ModelError(
                f"it must have a state, and give a tensor of each step, but has {len(self.states)} states "
                f"and gives {len(self.given) - len(self.states)} tensors"
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

    # The nodes

    def nodes(self) -> tuple[list[Node], dict[str, Any]]:
        """The nodes on whole sequences, and the constants that they read."""
        given, count = list(self.node.output), len(self.states)
        scan = Node("recurrent", (), (), self.label, "Scan", noun=" node")
        body = replace(self.body, outputs=self.given[count:])
        states = dict(zip(self.states, self.given, strict=False))
        forms = Forms(body, states)
        begins = {
            name: self._begin(outer, forms.width(name))
            for name, outer in zip(self.states, self.node.input, strict=False)
        }
        loop = Loop(body, {self.x: self.node.input[-1]}, states, begins, self.axis, self.backward, scan)
        nodes, names, _ = lifted(loop, body, f"{self.label}/")
        behind = {new: body.behind(new, "identity", "squeeze", "unsqueeze") for new in self.given}
        names |= {new: names[old] for new, old in behind.items() if old in names}
        nodes = [*final_states(nodes, names, dict(zip(self.given, given[:count], strict=False)))]
        for inner, outer in zip(self.given[count:], given[count:], strict=True):
            if outer:
                nodes.append(Node("identity", (names[inner],), (outer,), f"{self.label}/{outer}", "Identity",
                                  noun=" node", hidden=True))  # fmt: skip
        read = {name for node in nodes for name in node.inputs if name and body.is_constant(name)}
        renamed = {name: f"{self.label}/{name}" for name in read}
        constants = {renamed[name]: body.constant(name) for name in read}
        nodes = [replace(n, inputs=tuple(renamed.get(name, name) for name in n.inputs)) for n in nodes]
        return nodes, constants

    def _begin(self, outer: str, width: int) -> str:
        """The tensor in which a state of so many values begins; empty for zeros."""
        value = self.graph.constant(outer)
        if value is not None and width and value.shape[-1:] != (width,):
            raise ModelError(
                f"its initial_h {outer!r} must have the {width} values of its state, not shape {value.shape}"
            )
        return "" if value is not None and not np.any(value) else outer
