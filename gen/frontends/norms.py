"""Recognises norms over features that a model writes out: means, squares, a root and a quotient."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rtlstm.gen.frontends.formulas import operator_of, unread
from rtlstm.gen.frontends.graph import Graph, Node


def join_norms(graph: Graph, end: str | None) -> tuple[Graph, tuple[str, ...]]:
    """Replace what divides a tensor by the root of its mean square, with or without its mean, by one node.

    Return notes on them, too. It has the gain and the bias behind it, if nothing else reads what is between.
    Nodes in between stay if something else reads them, or they give ``end``.
    """
    notes: list[str] = []
    for root in graph.nodes:
        found = _Match(graph)
        given = found.norm(root)
        if given is None:
            continue
        source, attributes = given
        name = "a layer norm" if attributes["centre"] else "an RMS norm"
        constants = list[str]()
        behind = [root]
        for operator in ("mul", "add"):
            if (more := _constant_behind(graph, behind[-1], operator, end)) is not None:
                behind.append(more[0])
                constants += ["" for _ in range(operator == "add" and not constants)] + [more[1]]
        members = [graph.nodes[at] for at in sorted({*map(graph.nodes.index, found.members)})]
        root = behind[-1]
        notes.append(f"the nodes that give {root.outputs[0]!r} are {name} of {source!r}")
        joined = Node("layer_norm", (source, *constants), root.outputs, root.label, root.kind, attributes,
                      noun=root.noun, title=root.title)  # fmt: skip
        gone = unread(graph, root, [*members, *behind], end)
        nodes = [joined if each is root else each for each in graph.nodes if each is root or each not in gone]
        graph = graph.with_nodes(nodes)
    return graph, tuple(notes)


def _constant_behind(graph: Graph, node: Node, operator: str, end: str | None) -> tuple[Node, str] | None:
    """Return the only reader of what a node gives, if it combines that with a constant vector, and that."""
    tensor = node.outputs[0]
    readers = graph.consumers(tensor)
    if len(readers) != 1 or {tensor, node.label} & {*graph.outputs, end}:
        return None
    reader = graph.nodes[readers[0]]
    others = [name for name in reader.inputs if name != tensor]
    if operator_of(graph, reader) != operator or len(others) != 1 or not graph.is_constant(others[0]):
        return None
    shape = np.shape(np.asarray(graph.constant(others[0])))
    return (reader, others[0]) if shape and shape[-1] > 1 and np.prod(shape) == shape[-1] else None


@dataclass
class _Match:
    """The nodes of one norm, as far as they are found."""

    graph: Graph
    members: list[Node] = field(default_factory=list)

    def norm(self, root: Node) -> tuple[str, dict[str, Any]] | None:
        """Return the tensor that a node gives the norm of, and the norm's attributes."""
        for deviation, spread in self._quotients(root):
            inside = self._constant(spread, "add") or (spread, 0.0)
            mean = self._made(inside[0], "reduce_mean")
            square = self._square(mean.inputs[0]) if mean else None
            if mean is None or square is None or (axes := self._axes(mean)) is None:
                continue
            for source, centre in (*self._centred(deviation), (deviation, False)):
                same = square == deviation or (centre and (source, True) in self._centred(square))
                if same and (not centre or self._mean_axes == axes):
                    return source, {"epsilon": float(inside[1]), "axes": axes, "centre": centre}
        return None

    def _made(self, tensor: str, *operators: str) -> Node | None:
        """Return the node that gives a tensor, if it is one of these."""
        node = self.graph.producer(tensor)
        if node is None or operator_of(self.graph, node) not in operators:
            return None
        self.members.append(node)
        return node

    def _value(self, tensor: str) -> float | None:
        value = self.graph.constant(tensor) if self.graph.is_constant(tensor) else None
        return float(np.asarray(value).item()) if value is not None and np.size(value) == 1 else None

    def _constant(self, tensor: str, operator: str) -> tuple[str, float] | None:
        """Return what an operator combines with a constant of one element, and that."""
        node = self._made(tensor, operator)
        for one, other in (node.inputs[:2], node.inputs[1::-1]) if node and len(node.inputs) == 2 else ():
            if (value := self._value(other)) is not None:
                return one, value
        return None

    def _power(self, tensor: str, exponent: float) -> str | None:
        """Return what a tensor is that power of."""
        found = self._constant(tensor, "pow")
        return found[0] if found and found[1] == exponent else None

    def _root(self, tensor: str) -> str | None:
        node = self._made(tensor, "sqrt")
        return node.inputs[0] if node else self._power(tensor, 0.5)

    def _inverse_root(self, tensor: str) -> str | None:
        """Return what a tensor is one over the root of."""
        if node := self._made(tensor, "rsqrt"):
            return node.inputs[0]
        if node := self._made(tensor, "reciprocal"):
            return self._root(node.inputs[0])
        node = self._made(tensor, "div")
        if node and self._value(node.inputs[0]) == 1.0:
            return self._root(node.inputs[1])
        return self._power(tensor, -0.5)

    def _quotients(self, root: Node) -> Iterator[tuple[str, str]]:
        """Yield what a node divides by the root of something, and that."""
        operator = operator_of(self.graph, root)
        if operator not in ("div", "mul") or any(map(self.graph.is_constant, root.inputs)):
            return
        for one, other in (root.inputs[:2], root.inputs[1::-1]):
            self.members.clear()
            inside = self._root(other) if operator == "div" else self._inverse_root(other)
            if inside is not None:
                yield one, inside
            if operator == "div":
                return

    def _square(self, tensor: str) -> str | None:
        node = self._made(tensor, "square", "mul")
        if node and (len(node.inputs) == 1 or node.inputs[0] == node.inputs[1]):
            return node.inputs[0]
        return self._power(tensor, 2.0)

    def _centred(self, tensor: str) -> list[tuple[str, bool]]:
        """Return what a tensor is less its mean, if it is."""
        node = self._made(tensor, "sub")
        mean = self._made(node.inputs[1], "reduce_mean") if node and len(node.inputs) == 2 else None
        if node is None or mean is None or mean.inputs[0] != node.inputs[0]:
            return []
        self._mean_axes = self._axes(mean)
        return [(node.inputs[0], True)] if self._mean_axes is not None else []

    def _axes(self, node: Node) -> list[int] | None:
        """Return the axes of a mean that keeps them."""
        return self.graph.numbers(node, "axes", 1) if node.attributes.get("keepdims", 1) else None
