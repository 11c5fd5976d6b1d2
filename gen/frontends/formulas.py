"""Recognises what a model writes out: activation functions, as GELU with Erf, and norms over features.

Functions are known by the values that they give; norms by their means, squares, a root and a quotient.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, erf
from rtlstm.spec.errors import ModelError

ALONE: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": np.abs,
    "cos": np.cos,
    "erf": erf,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "reciprocal": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
}
"""Functions of one tensor that are read of constants, and as parts of an activation function."""
ELEMENTWISE: Final[Mapping[str, Callable[..., Any]]] = {
    **ALONE,
    "add": np.add,
    "div": np.divide,
    "greater": np.greater,
    "identity": lambda x: x,
    "mul": np.multiply,
    "neg": np.negative,
    "pow": np.power,
    "sub": np.subtract,
    "where": np.where,
}
"""Operators that compute each element by itself, without attributes."""
_MOST_NODES: Final = 16
_MOST_TRIED: Final = 2
"""Tensors that a node's result is tried as a function of, the nearest first."""
_GRID: Final = np.linspace(-12.0, 12.0, 401)
_ERROR: Final = 1e-4
"""Largest error, of 1 or of the value if that is more: constants may have been rounded to 16 bits."""


def join_functions(graph: Graph, end: str | None) -> tuple[Graph, tuple[str, ...]]:
    """Replace what is an activation function of one tensor by a node of that; return notes on them, too.

    Only what the core could not compute node by node is replaced, by a function with its default parameters.
    Nodes in between stay if something else reads them, or they give ``end``.
    """
    notes: list[str] = []
    tables = cache(_tables)
    for root in graph.nodes:
        found = _match(graph, root, tables)
        if found is None:
            continue
        function, source, members = found
        notes.append(f"the nodes that give {root.outputs[0]!r} are {function.name} of {source!r}")
        joined = Node("activation", (source,), root.outputs, root.label, root.kind, {"function": function},
                      noun=root.noun, title=root.title)  # fmt: skip
        gone = unread(graph, root, members, end)
        nodes = [joined if each is root else each for each in graph.nodes if each is root or each not in gone]
        graph = graph.with_nodes(nodes)
    return graph, tuple(notes)


def operator_of(graph: Graph, node: Node) -> str:
    """Return its name in :data:`ELEMENTWISE`; ONNX and Keras write some with capital letters."""
    others = graph.offered
    return "" if others is not None and node.operator in others else node.operator.lower()


def _alone(graph: Graph, node: Node) -> bool:
    """Whether a node is none that the core computes, but may be a part of a function."""
    operator = operator_of(graph, node)
    product = operator in ("mul", "div") and not any(map(graph.is_constant, node.inputs))
    return product or operator in ("pow", "where", *ALONE)


def _tables() -> dict[ActivationFunction, Floats]:
    """The values of the functions that are not piecewise linear."""
    made = [ActivationFunction.of(name) for name in ACTIVATIONS]
    with np.errstate(all="ignore"):
        return {
            each: each.definition.formula(_GRID, each.alpha, each.beta) for each in made if each.lines is None
        }


def _match(
    graph: Graph, root: Node, tables: Callable[[], Mapping[ActivationFunction, Floats]]
) -> tuple[ActivationFunction, str, list[Node]] | None:
    """The function that a node gives the values of, the tensor that it is of, and the nodes from there on."""
    tried = (each for each in _expressions(graph, root) if any(_alone(graph, node) for node in each[1]))
    for source, members in islice(tried, _MOST_TRIED):
        with contextlib.suppress(ModelError, TypeError, ValueError), np.errstate(all="ignore"):
            values = _values(graph, source, members)
            wanted = np.array([*tables().values()])
            errors = np.nan_to_num(np.abs(values - wanted) / np.maximum(1.0, np.abs(wanted)), nan=np.inf)
            best = int(errors.max(axis=1).argmin())
            if errors[best].max() < _ERROR:
                return [*tables()][best], source, members
    return None


def _expressions(graph: Graph, root: Node) -> Iterator[tuple[str, list[Node]]]:
    """Yield the tensors that alone determine a node's result, and the nodes from each of them on, in order.

    Of the tensors that are read, the one that is made last is followed, so that one is left wherever all
    that is behind it goes through it.
    """
    members: list[Node] = []
    node: Node | None = root
    read: set[str] = set()
    while node is not None and _is_elementwise(graph, node) and len(members) < _MOST_NODES:
        members.insert(0, node)
        read -= set(node.outputs)
        read |= {name for name in node.inputs if name and not graph.is_constant(name)}
        if not read:
            return
        last = max(read, key=graph.index_of)
        if len(read) == 1:
            yield last, members[:]
        node = graph.producer(last)


def _is_elementwise(graph: Graph, node: Node) -> bool:
    return len(node.outputs) == 1 and operator_of(graph, node) in (*ELEMENTWISE, "activation", "clip")


def _values(graph: Graph, source: str, members: list[Node]) -> Floats:
    """What the nodes compute for each number of the grid."""
    known: dict[str, Any] = {source: _GRID}
    for node in members:
        read: list[Any] = [known[name] if name in known else _number(graph, name) for name in node.inputs]
        operator = operator_of(graph, node)
        if operator == "activation":
            value = node.function()(read[0])
        elif operator == "clip":
            low, high = [*read[1:], None, None][:2]
            value = np.clip(read[0], node.attributes.get("min", low), node.attributes.get("max", high))
        else:
            value = ELEMENTWISE[operator](*read)
        known[node.outputs[0]] = value
    return np.broadcast_to(np.asarray(known[members[-1].outputs[0]], dtype=np.float64), _GRID.shape)


def _number(graph: Graph, name: str) -> float | None:
    """A constant of one element, or None for one that is left out; another one raises ValueError."""
    return np.asarray(graph.constant(name), dtype=np.float64).item() if name else None


def unread(graph: Graph, root: Node, members: list[Node], end: str | None) -> set[Node]:
    """Return the nodes that nothing but the root needs; the root is one of them."""
    gone = {graph.index_of(root.outputs[0])}
    kept = {*graph.outputs, end}
    for node in reversed(members[:-1]):
        name = node.outputs[0]
        if set(graph.consumers(name)) <= gone and not kept & {name, node.label}:
            gone.add(graph.index_of(name))
    return {graph.nodes[at] for at in gone}


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
