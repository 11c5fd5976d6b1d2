"""Makes layers of what a model writes out: activation functions, as GELU with Erf, norms, and formulas.

Functions are known by the values that they give; norms by their means, squares, a root and a quotient. What
is computed element by element of several results, and over the steps, becomes custom layers. Their gates are
the affine functions that they read, so that such a layer costs the rows that stand in front of it, and no
recurrent product.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats
from rtlstm.gen.frontends.flow import Flow, Source, Term, is_stateless
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.spec.activations.functions import ACTIVATIONS, IDENTITY, RELU, ActivationFunction, erf
from rtlstm.spec.cells import description
from rtlstm.spec.cells.description import Cell, CellBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Custom, Dense, Gru, Lstm, Rnn

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
COMPARED: Final = ("greater", "greaterorequal", "less", "lessorequal")
"""Comparisons."""
_MOST_NODES: Final = 16
_MOST_TRIED: Final = 3
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
        made = replace(root, operator="activation", inputs=(source,), attributes={"function": function})
        graph = _joined(graph, members, made, end)
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


def _joined(graph: Graph, members: list[Node], made: Node, end: str | None) -> Graph:
    """The graph with a node in place of the last member, and without those that nothing else needs."""
    last = graph.index_of(made.outputs[0])
    gone, kept = {last}, {*graph.outputs, end}
    for node in reversed(members[:-1]):
        name = node.outputs[0]
        if set(graph.consumers(name)) <= gone and not kept & {name, node.label}:
            gone.add(graph.index_of(name))
    nodes = list(graph.nodes)
    nodes[last] = replace(made, notes=(), hidden=False, inner=())
    return graph.with_nodes([node for at, node in enumerate(nodes) if at == last or at not in gone])


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
        made = replace(root, operator="layer_norm", inputs=(source, *constants), attributes=attributes)
        graph = _joined(graph, [*members, *behind], made, end)
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


_Value = description.Term
_Limits = tuple[Floats, Floats]
"""The lowest and the highest value of each feature."""


def _largest(cell: CellBuilder, one: _Value, other: _Value) -> _Value:
    return one + cell.apply(RELU, other - one)


_FORMULAS: Final[dict[str, Callable[[CellBuilder, _Value, _Value], _Value]]] = {
    "product": lambda _, one, other: one * other,
    "largest": _largest,
    "smallest": lambda cell, one, other: one - cell.apply(RELU, one - other),
}


def combine(formula: str, first: Flow, second: Flow, name: str, where: str) -> Flow:
    """Return the ``product`` of two results, or the ``largest`` or ``smallest`` of each pair of values.

    One of them may have a single feature. Activations of dense layers that nothing else reads are computed in
    the same layer.
    """
    counts = [flow.outputs or 1 for flow in (first, second)]
    cell = CellBuilder()
    gates: list[Flow] = []
    values = []
    for flow, count in zip((first, second), counts, strict=True):
        inner, function = _unapplied(flow)
        wide = inner.pick([0] * max(counts), where) if count == 1 < max(counts) else inner
        if not gates or not _same(gates[0], wide):
            gates.append(wide)
        value = cell.gate(len(gates) - 1)
        values.append(value if function == IDENTITY else cell.apply(function, value))
    result = _FORMULAS[formula](cell, *values)
    return _layer(gates, cell, result, formula, name, where)


def magnitude(flow: Flow, name: str, where: str) -> Flow:
    """Return the magnitude of each value."""
    cell = CellBuilder()
    return _layer([flow], cell, _largest(cell, cell.gate(0), -cell.gate(0)), "magnitude", name, where)


def total(flow: Flow, name: str, where: str) -> Flow:
    """Return the sum of each feature over the steps so far."""
    cell = CellBuilder()
    return _layer([flow], cell, cell.keep(cell.state() + cell.gate(0)), "total", name, where)


def running_maximum(flow: Flow, name: str, where: str) -> Flow:
    """Return the largest value of each feature over the steps so far.

    The layer keeps how far it is above the lowest value that the feature can have, so that a stream begins at
    zero. Raises ModelError if a feature has no lowest value.
    """
    low, _ = _limits(flow)
    if not np.isfinite(low).all():
        raise ModelError(
            f"{where} needs values with a lower limit, as those of an LSTM, GRU, relu, tanh or sigmoid are; "
            "put one in front of it, or end before it and take the maximum on the host"
        )
    cell = CellBuilder()
    largest = cell.keep(_largest(cell, cell.state(), cell.gate(0)))
    return _layer([flow.shift(-low, where)], cell, largest, "maximum", name, where).shift(low, where)


def _layer(
    gates: Sequence[Flow], cell: CellBuilder, result: _Value, kind: str, name: str, where: str
) -> Flow:
    rows, made = gates[0].join(gates[1:], where), cell.build(kind, result)
    return rows.with_layer(Custom(name=name, w_ih=rows.matrix, w_hh=None, bias=rows.bias, cell=made))


def _same(one: Flow, other: Flow) -> bool:
    """Whether two functions are the same."""
    pairs = list(zip(one.terms, other.terms, strict=False))
    sources = len(one.terms) == len(other.terms) and all(
        (a.source, a.relu) == (b.source, b.relu) and np.array_equal(a.matrix, b.matrix) for a, b in pairs
    )
    return sources and one.pace == other.pace and np.array_equal(one.bias, other.bias)


def _unapplied(flow: Flow) -> tuple[Flow, ActivationFunction]:
    """A dense layer's function, and what it is applied to; else the flow as it is."""
    source, layer = flow.terms[0].source, flow.last
    if not (flow.plain and isinstance(layer, Dense)) or flow.terms[0].relu:
        return flow, IDENTITY
    return replace(_read_by(source, layer.weight, layer.bias), pace=flow.pace), layer.function


def _read_by(source: Source, matrix: Floats, bias: Floats) -> Flow:
    """What a layer makes of what it reads, before anything else."""
    ends = np.cumsum([read.features for read, _ in source.reads])[:-1]
    blocks = zip(source.reads, np.split(matrix, ends, axis=1), strict=True)
    return Flow(tuple(Term(read, relu, block) for (read, relu), block in blocks), bias)


def _of_cell(cell: Cell, low: Floats, high: Floats) -> _Limits:
    """The limits of what a cell without a state makes of its gates."""
    gates = list(zip(np.split(low, cell.gates), np.split(high, cell.gates), strict=True))
    found: list[_Limits] = []
    for step in cell.steps:
        args = [found[arg] for arg in step.args]
        lows, highs = [each[0] for each in args], [each[1] for each in args]
        limits = _of_function(-np.inf, np.inf, len(gates[0][0]))
        if step.kind == "gate":
            limits = gates[step.index]
        elif step.kind == "constant":
            limits = _of_function(step.value, step.value, len(limits[0]))
        elif step.kind == "add":
            limits = lows[0] + lows[1], highs[0] + highs[1]
        elif step.kind == "subtract":
            limits = lows[0] - highs[1], highs[0] - lows[1]
        elif step.kind == "multiply":
            products = [a * b for a in args[0] for b in args[1]]
            ends = np.nan_to_num(products, nan=0.0, posinf=np.inf, neginf=-np.inf)
            limits = ends.min(axis=0), ends.max(axis=0)
        elif step.function == RELU:
            limits = np.maximum(lows[0], 0.0), np.maximum(highs[0], 0.0)
        elif step.function is not None:
            limits = _of_function(*step.function.limits, len(limits[0]))
        found.append(limits)
    return found[cell.result]


def _limits(flow: Flow) -> _Limits:
    """The lowest and highest value that each feature can have; infinite if there is none."""
    low = high = np.broadcast_to(flow.bias, (flow.outputs or 1,))
    for term in flow.terms:
        least, most = (np.maximum(each, 0.0) if term.relu else each for each in _limits_of(term.source))
        matrix = term.matrix if term.matrix.ndim else np.eye(len(least)) * term.matrix
        with np.errstate(invalid="ignore"):
            ends = np.where(matrix == 0.0, 0.0, [matrix * least, matrix * most])
        low, high = low + ends.min(axis=0).sum(axis=1), high + ends.max(axis=0).sum(axis=1)
    return low, high


def _limits_of(source: Source) -> _Limits:
    layer, width = source.layer, source.features
    if isinstance(layer, Bidirectional) and layer.merge == "concat":
        both = [_of_function(*_range_of(one), one.outputs) for one in (layer.forward, layer.backward)]
        return np.concatenate([low for low, _ in both]), np.concatenate([high for _, high in both])
    if isinstance(layer, Custom) and is_stateless(layer):
        return _of_cell(layer.cell, *_limits(_read_by(source, layer.w_ih, layer.bias)))
    if isinstance(layer, Dense):
        low, high = _limits(_read_by(source, layer.weight, layer.bias))
        if layer.function in (IDENTITY, RELU):
            return (low, high) if layer.function == IDENTITY else (np.maximum(low, 0), np.maximum(high, 0))
        return _of_function(*layer.function.limits, width)
    return _of_function(*_range_of(layer), width)


def _range_of(layer: object) -> tuple[float, float]:
    """The limits of a recurrent layer's results, which begin at zero."""
    low, high = -np.inf, np.inf
    if isinstance(layer, Lstm) and layer.projection is None and layer.gate.limits == (0.0, 1.0):
        low, high = layer.output_activation.limits
    elif isinstance(layer, Gru) and layer.gate.limits == (0.0, 1.0):
        low, high = layer.candidate.limits
    elif isinstance(layer, Rnn):
        low, high = layer.activation.limits
    return min(low, 0.0), max(high, 0.0)


def _of_function(low: float, high: float, width: int) -> _Limits:
    return np.full(width, low), np.full(width, high)
