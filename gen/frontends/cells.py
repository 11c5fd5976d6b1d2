"""Recognises LSTM, GRU and RNN cells that a model writes as products, activations and sums."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rtlstm.gen.frontends.arrays import CellKind, Floats, stacked_layer
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent
from rtlstm.gen.frontends.layers import DENSE, outputs_first
from rtlstm.gen.frontends.recurrent import trace_state
from rtlstm.spec.activations.functions import RELU, TANH, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import Budget
from rtlstm.spec.network import Gru, Lstm, Rnn


@dataclass(frozen=True, eq=False)
class Linear:
    """``sum of weight @ tensor, + bias``: a weight ``(rows, columns)`` for each tensor, and ``(rows,)``."""

    terms: dict[str, Floats]
    bias: Floats

    def rows(self, chosen: slice) -> "Linear":
        """Return some of the rows."""
        return Linear({name: weight[chosen] for name, weight in self.terms.items()}, self.bias[chosen])


class Linears:
    """Reads tensors of one graph, and keeps what it has found."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self._known = graph, dict[str, Linear | None]()
        self._budget = Budget(ModelError)

    def read(self, tensor: str) -> Linear | None:
        """Read a tensor with its rows on the last axis; None if it is not such a sum."""
        # Inputs come first, without recursion: chains may be longer than Python's stack, and may join again.
        known, waiting = self._known, [tensor]
        while waiting:
            name = waiting[-1]
            node = self.graph.producer(name)
            reader = None if node is None else _READERS.get(node.operator)
            made_of = [] if node is None or reader is None else node.inputs[: _MADE_OF.get(node.operator, 0)]
            missing = [part for part in made_of if part not in known]
            waiting += missing
            if not missing:
                waiting.pop()
                if name not in known:
                    known[name] = None if reader is None or node is None else reader(self, node, name)
        return known[tensor]

    def _constant(self, node: Node, index: int) -> Floats | None:
        given = len(node.inputs) > index and node.inputs[index]
        value = self.graph.constant(node.inputs[index]) if given else None
        if value is None or value.dtype.kind != "f":
            return None
        self._budget.take(value.shape, f"the constant {node.inputs[index]!r}")
        return np.asarray(value, dtype=np.float64)

    def _is_last(self, tensor: str, axis: int) -> bool:
        rank = len(self.graph.shape(tensor)) or 2  # of a cell that handles one step
        return axis in (-1, rank - 1)

    def _product(self, tensor: str, weight: Floats, bias: Floats) -> Linear | None:
        """Read a product with a tensor, or with a concatenation of two."""
        node = self.graph.producer(tensor)
        if node is None or node.operator != "concat":
            return Linear({tensor: weight}, bias)
        known = [(self.graph.shape(name) or (None,))[-1] for name in node.inputs]
        rest = weight.shape[1] - sum(width or 0 for width in known)
        widths = [rest if width is None else width for width in known]
        if known.count(None) > 1 or min(widths) < 1 or sum(widths) != weight.shape[1]:
            return None
        if len(set(node.inputs)) < len(node.inputs):
            return None
        ends = np.cumsum(widths)[:-1]
        return Linear(dict(zip(node.inputs, np.split(weight, ends, axis=1), strict=True)), bias)

    def _dense(self, node: Node, _: str) -> Linear | None:
        weight = self._constant(node, 1)
        if weight is None or weight.ndim != 2 or node.attributes.get("transA", 0):
            return None
        weight = outputs_first(node, weight)
        bias: Floats | None = np.zeros(len(weight))
        if len(node.inputs) > 2 and node.inputs[2]:
            bias = _vector(self._constant(node, 2), len(weight))
        if bias is None:
            return None
        return self._product(node.inputs[0], weight, bias * float(node.attributes.get("beta", 1.0)))

    def _add(self, node: Node, _: str) -> Linear | None:
        first, second = (self._known[name] for name in node.inputs)
        if first is None or second is None:
            known, position = (first, 1) if first is not None else (second, 0)
            if known is None:
                return None
            shift = _vector(self._constant(node, position), len(known.bias))
            return None if shift is None else Linear(known.terms, known.bias + shift)
        if len(first.bias) != len(second.bias):
            return None
        terms = dict(first.terms)
        for name, weight in second.terms.items():
            if name in terms:
                self._budget.take(weight.shape, f"the sum of weights of {name!r}")
                terms[name] = terms[name] + weight
            else:
                terms[name] = weight
        return Linear(terms, first.bias + second.bias)

    def _split(self, node: Node, tensor: str) -> Linear | None:
        whole = self._known[node.inputs[0]]
        axis = int(node.attributes.get("axis", 0))
        if whole is None or not self._is_last(node.inputs[0], axis):
            return None
        rows, parts = len(whole.bias), len(node.outputs)
        sizes = self.graph.numbers(node, "split", 1) or [-(-rows // parts)] * parts
        position = node.outputs.index(tensor)
        begin = sum(sizes[:position])
        return whole.rows(slice(begin, begin + sizes[position]))

    def _slice(self, node: Node, _: str) -> Linear | None:
        whole = self._known[node.inputs[0]]
        names = enumerate(("starts", "ends", "axes", "steps"), start=1)
        starts, ends, axes, steps = (self.graph.numbers(node, name, at) for at, name in names)
        if whole is None or starts is None or ends is None or axes is None or len(axes) != 1:
            return None
        if not self._is_last(node.inputs[0], axes[0]) or steps not in (None, [1]):
            return None
        return whole.rows(slice(starts[0], ends[0]))

    def _same(self, node: Node, _: str) -> Linear | None:
        return self._known[node.inputs[0]]


def _vector(value: Floats | None, rows: int) -> Floats | None:
    """A constant that is one number for each row, or for all."""
    if value is None or value.size not in (1, rows) or value.shape[-1:] not in ((), (value.size,)):
        return None
    return np.broadcast_to(value.reshape(-1), (rows,))


_READERS: dict[str, Callable[[Linears, Node, str], Linear | None]] = {
    "add": Linears._add,
    **dict.fromkeys(DENSE, Linears._dense),
    "identity": Linears._same,
    "slice": Linears._slice,
    "split": Linears._split,
}
_MADE_OF = {"add": 2, "identity": 1, "slice": 1, "split": 1}
"""How many of a node's first inputs its reader reads in turn."""


_MAX_CELLS = 64
"""Largest number of cells: the graph is searched again for each."""


@dataclass(frozen=True, eq=False)
class _Gate:
    """An activation of a sum of products."""

    function: ActivationFunction
    linear: Linear


@dataclass(frozen=True, eq=False)
class _Cell:
    """A cell by the names of its tensors: ``x`` and the old ``h`` and ``c`` go in, the new ones come out.

    ``c`` is empty for a cell without one.
    """

    layer: "Lstm | Gru | Rnn"
    x: str
    h_old: str
    c_old: str
    h: str
    c: str


@dataclass(frozen=True, eq=False)
class _Found:
    """A match of one of the shapes, before it is known which of two tensors is the old h.

    ``gates`` have the same two terms; ``old`` is the state that its formula tells: c of an LSTM, h of a GRU.
    """

    kind: CellKind
    h: str
    c: str
    old: str
    gates: tuple[_Gate, ...]
    functions: tuple[ActivationFunction, ...]
    inner: tuple[Linear, Linear] | None = None
    """The products of a GRU's candidate with x, and those with h, which the reset gate multiplies."""

    @property
    def whole(self) -> bool:
        """Whether the gates have as many rows each, and the same two inputs."""
        first = self.gates[0].linear
        return (
            len(first.terms) == 2
            and all(gate.linear.terms.keys() == first.terms.keys() for gate in self.gates)
            and len({len(gate.linear.bias) for gate in self.gates}) == 1
        )


def join_cells(graph: Graph, xs: Collection[str] = ()) -> tuple[Graph, tuple[str, ...], tuple[str, ...]]:
    """Replace every cell in a graph by a recurrent node of one step; ``xs`` are tensors that are no states.

    Returns the graph, notes on the replaced cells, and the reasons why others were not replaced.
    """
    notes: list[str] = []
    while cell := next(_Search(graph, xs).cells(), None):
        if len(notes) == _MAX_CELLS:
            raise ModelError(
                f"has more than {_MAX_CELLS} cells in parts; export them as LSTM, GRU or RNN nodes"
            )
        kind = cell.layer.kind.upper()
        state = f"{cell.h_old!r} and {cell.c_old!r}" if cell.c else repr(cell.h_old)
        notes.append(
            f"the nodes that give {cell.h!r} are {'a' if kind == 'GRU' else 'an'} {kind} cell: it reads "
            f"{cell.x!r}, and its state is {state}"
        )
        graph = _replaced(graph, cell)
    return graph, tuple(notes), _Search(graph, xs).problems()


class _Search:
    """Looks for cells in one graph."""

    def __init__(self, graph: Graph, no_states: Collection[str]) -> None:
        self.graph, self.no_states = graph, no_states
        self.linears = Linears(graph)

    def cells(self) -> Iterator[_Cell]:
        """Yield the cells whose inputs are unambiguous."""
        for found in self._matches():
            ends = self._inputs(found)
            if ends is not None:
                x, h_old = ends
                name = (self.graph.producer(found.h) or self.graph.nodes[0]).label
                old = found.old if found.kind == "lstm" else ""
                yield _Cell(_layer(found, name, x, h_old), x, h_old, old, found.h, found.c)

    def problems(self) -> tuple[str, ...]:
        """Say why what looks like an LSTM or GRU cell is none."""
        return tuple(dict.fromkeys(self._problem(found) for found in self._matches() if found.kind != "rnn"))

    def _matches(self) -> Iterator[_Found]:
        for node in self.graph.nodes:
            for match in (self._lstm, self._gru, self._rnn):
                yield from (found for found in match(node) if found.whole)

    def _function(self, node: Node | None) -> ActivationFunction | None:
        if node is None or node.operator != "activation":
            return None
        with contextlib.suppress(ModelError):  # It is refused where it is read, if it is.
            return node.function()
        return None

    def _gate(self, tensor: str) -> _Gate | None:
        node = self.graph.producer(tensor)
        function = self._function(node)
        if node is None or function is None:
            return None
        linear = self.linears.read(node.inputs[0])
        return None if linear is None else _Gate(function, linear)

    def _pairs(self, tensor: str, operator: str) -> Iterator[tuple[str, str]]:
        """Return the inputs of a node of two, in both orders."""
        node = self.graph.producer(tensor)
        if node is not None and node.operator == operator and len(node.inputs) == 2:
            yield node.inputs[0], node.inputs[1]
            yield node.inputs[1], node.inputs[0]

    # An LSTM: c = f * c_old + i * g and h = o * activation(c)

    def _lstm(self, node: Node) -> Iterator[_Found]:
        if node.operator != "mul":
            return
        h = node.outputs[0]
        for gate, activated in self._pairs(h, "mul"):
            o, behind = self._gate(gate), self.graph.producer(activated)
            last = self._function(behind)
            if o is None or behind is None or last is None:
                continue
            c = behind.inputs[0]
            for i, f, g, c_old in self._parts_of_c(c):
                if i.function == f.function == o.function:
                    functions = (i.function, g.function, last)
                    yield _Found("lstm", h, c, c_old, (i, f, g, o), functions)

    def _parts_of_c(self, c: str) -> Iterator[tuple[_Gate, _Gate, _Gate, str]]:
        """The gates i, f and g of the sum of two products that gives c, and the old c."""
        for kept, new in self._pairs(c, "add"):
            for forget, c_old in self._pairs(kept, "mul"):
                f = self._gate(forget)
                if f is None or self._gate(c_old) is not None:
                    continue
                for first, second in self._pairs(new, "mul"):
                    i, g = self._gate(first), self._gate(second)
                    if i is not None and g is not None:
                        yield i, f, g, c_old

    # A GRU: h = (1 - z) * n + z * h_old, or n + z * (h_old - n)

    def _gru(self, node: Node) -> Iterator[_Found]:
        if node.operator != "add":
            return
        h = node.outputs[0]
        for update, n, h_old in self._updates(h):
            z, candidate = self._gate(update), self.graph.producer(n)
            function = self._function(candidate)
            if z is None or candidate is None or function is None:
                continue
            for r, inner in self._resets(candidate.inputs[0], h_old):
                if r.function == z.function:
                    yield _Found("gru", h, "", h_old, (r, z), (z.function, function), inner)

    def _updates(self, h: str) -> Iterator[tuple[str, str, str]]:
        """Names of z, n and the old h in both forms of the sum."""
        for n, moved in self._pairs(h, "add"):
            for z, difference in self._pairs(moved, "mul"):
                node = self.graph.producer(difference)
                if node is not None and node.operator == "sub" and node.inputs[1] == n:
                    yield z, n, node.inputs[0]
        for new, kept in self._pairs(h, "add"):
            for rest, n in self._pairs(new, "mul"):
                node = self.graph.producer(rest)
                for z, h_old in self._pairs(kept, "mul"):
                    if node is not None and node.operator == "sub" and node.inputs[1] == z:
                        one = self.graph.constant(node.inputs[0])
                        if one is not None and np.all(np.asarray(one) == 1.0):
                            yield z, n, h_old

    def _resets(self, total: str, h_old: str) -> Iterator[tuple[_Gate, tuple[Linear, Linear]]]:
        """The reset gate of a candidate's sum, and its products with x and with h."""
        for first, second in self._pairs(total, "add"):
            of_x = self.linears.read(first)
            for reset, other in self._pairs(second, "mul"):
                r, of_h = self._gate(reset), self.linears.read(other)
                if of_x is not None and r is not None and of_h is not None and [*of_h.terms] == [h_old]:
                    yield r, (of_x, of_h)

    # A plain RNN: h = tanh or ReLU of products with x and with h_old

    def _rnn(self, node: Node) -> Iterator[_Found]:
        gate = self._gate(node.outputs[0]) if node.operator == "activation" else None
        if gate is not None and gate.function in (TANH, RELU) and node.outputs[0] in self.graph.outputs:
            yield _Found("rnn", node.outputs[0], "", "", (gate,), (gate.function,))

    # Which of its inputs is the state

    def _problem(self, found: _Found) -> str:
        names = list(found.gates[0].linear.terms)
        made = [name for name in (*names, found.old) if self._source(name) is None]
        why = f"it is not clear which of {', '.join(map(repr, names))} is its state"
        if found.old in made or len(made) == 2:
            why = f"its state must be an input of the model or zero, but {made[-1]!r} is computed"
        kind = {"lstm": "an LSTM", "gru": "a GRU"}[found.kind]
        return f"the nodes that give {found.h!r} look like {kind} cell, but {why}"

    def _inputs(self, found: _Found) -> tuple[str, str] | None:
        """Return the names of x and of the old h, if they can be told apart."""
        first = found.gates[0].linear
        names, units = list(first.terms), len(first.bias)
        sources = {name: self._source(name) for name in names}
        able = [name for name in names if sources[name] and first.terms[name].shape[1] == units]
        able = [name for name in able if sources[name] not in self.no_states]
        chosen = able
        if found.kind == "gru":
            chosen = [name for name in able if name == found.old]
        elif found.kind == "lstm":
            state = self._source(found.old)
            same = [name for name in able if sources[name] == state != "zeros"]
            chosen = [] if state is None else same if len(same) == 1 else able
        if len(chosen) != 1:
            return None
        others = [name for name in names if name not in chosen]
        if not others or (found.inner is not None and [*found.inner[0].terms] != others):
            return None
        # A sum of two inputs is a cell only if one of them is a state: what one step hands to the next.
        if found.kind == "rnn" and sources[chosen[0]] == "zeros":
            return None
        return others[0], chosen[0]

    def _source(self, tensor: str) -> str | None:
        try:
            return trace_state(self.graph, tensor)
        except ModelError:
            return None


def _layer(found: _Found, name: str, x: str, h_old: str) -> Lstm | Gru | Rnn:
    """The layer of a match, with its gates in the project's order."""
    linears = [gate.linear for gate in found.gates]
    w, u = (np.concatenate([linear.terms[tensor] for linear in linears]) for tensor in (x, h_old))
    bias = np.concatenate([linear.bias for linear in linears])
    weights: tuple[Floats | None, ...] = (w, u, bias, None)
    if found.inner is not None:  # of a GRU, whose candidate has both biases
        of_x, of_h = found.inner
        parts = (
            (w, of_x.terms[x]),
            (u, of_h.terms[h_old]),
            (bias, of_x.bias),
            (np.zeros_like(bias), of_h.bias),
        )
        weights = tuple(map(np.concatenate, parts))
    return stacked_layer("torch", found.kind, name, weights, found.functions)


def _replaced(graph: Graph, cell: _Cell) -> Graph:
    """Return a graph with a recurrent node for a cell's nodes."""
    maker = graph.producer(cell.h)
    assert maker is not None
    node = Node(
        "recurrent",
        (cell.x, cell.h_old, cell.c_old),
        (cell.h, "", cell.c),
        maker.label,
        cell.layer.kind.upper(),
        {"layers": lambda: Recurrent((cell.layer,)), "axes": ("N", "F")},
        noun=maker.noun,
    )
    members = set(_members(graph, cell))
    position = graph.index_of(cell.h)
    nodes = [*graph.nodes[: position + 1], node, *graph.nodes[position + 1 :]]
    return graph.with_nodes([each for each in nodes if each not in members])


def _members(graph: Graph, cell: _Cell) -> Sequence[Node]:
    """The nodes between a cell's inputs and its h that nothing else needs, and those of h and c."""
    ends = {cell.x, cell.h_old, cell.c_old}
    between: set[int] = set()
    waiting = [cell.h]
    while waiting:
        tensor = waiting.pop()
        index = graph.index_of(tensor)
        if index >= 0 and tensor not in ends and index not in between:
            between.add(index)
            waiting.extend(graph.nodes[index].inputs)
    results = {graph.index_of(name) for name in (cell.h, cell.c) if name}
    members = set(results)
    for index in sorted(between - results, reverse=True):
        readers = {at for name in graph.nodes[index].outputs for at in graph.consumers(name)}
        handed_out = set(graph.nodes[index].outputs) & set(graph.outputs)
        if readers <= members and not handed_out:
            members.add(index)
    return [graph.nodes[index] for index in members]
