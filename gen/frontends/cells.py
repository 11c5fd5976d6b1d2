"""Recognises LSTM, GRU and RNN cells that a model writes as products, activations and sums, and norms."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from rtlstm.gen.frontends.arrays import CellKind, Floats, stacked_layer
from rtlstm.gen.frontends.forms import Form, Forms, LinearReader, as_matrix
from rtlstm.gen.frontends.formulas import operator_of
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent
from rtlstm.gen.frontends.layers import DENSE
from rtlstm.gen.frontends.recurrent import reset_advice, trace_state
from rtlstm.spec.activations.functions import RELU, TANH, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Gru, Lstm, LstmNorms, Norm, Rnn

_MADE_OF = {"add": 2, "slice": 1, "split": 1}
"""How many of a node's first inputs sums of products, and their rows, are made of."""


class _Products(Forms):
    """Reads tensors as sums of products of matrices with other tensors, which are read no further."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, {})
        self._factors: set[str] = set()

    def _reader(self, operator: str) -> LinearReader | None:
        return super()._reader(operator) if operator in (*_MADE_OF, *DENSE) else None

    def behind(self, tensor: str) -> str:
        return self.graph.behind(tensor, "identity")

    def read(self, tensor: str, *, through: bool = False) -> Form:
        # Inputs come first, without recursion: chains may be longer than Python's stack, and may join again.
        waiting = [self.behind(tensor)]
        while waiting:
            node = self.graph.producer(waiting[-1])
            made_of = node.inputs[: _MADE_OF.get(node.operator, 0)] if node is not None else ()
            missing = [part for name in made_of if (part := self.behind(name)) not in self._known]
            waiting += missing
            if not missing:
                found = super().read(waiting.pop())
        return found

    def _factor(self, tensor: str) -> Form:
        self._factors.add(tensor)
        return Form({tensor: np.array(1.0)}, np.array(0.0))

    def rows(self, tensor: str) -> Form | None:
        """The matrices of such a sum, with a bias for each row; None if it is none."""
        with contextlib.suppress(ModelError):
            form = self.read(tensor)
            plain = form.terms.keys() <= self._factors and all(each.ndim > 1 for each in form.terms.values())
            if plain and {form.rows} == {len(each) for each in form.terms.values()}:
                return Form(form.terms, np.broadcast_to(form.bias, (form.rows,)))
        return None


_MAX_CELLS = 64
"""Largest number of cells: the graph is searched again for each."""


@dataclass(frozen=True, eq=False)
class _Gate:
    """An activation of a sum of products."""

    function: ActivationFunction
    linear: Form


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
    inner: tuple[Form, Form] | None = None
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


@dataclass
class _Formulas:
    """Finds by what activations, products and sums tensors of one graph are made."""

    graph: Graph

    def behind(self, tensor: str) -> str:
        """What a tensor is a copy of."""
        return tensor

    def made(self, tensor: str, operator: str) -> Node | None:
        """The node that gives a tensor, if it is of this kind."""
        node = self.graph.producer(self.behind(tensor))
        return node if node is not None and operator_of(self.graph, node) == operator else None

    def pairs(self, tensor: str, operator: str) -> Iterator[tuple[str, str]]:
        """What a tensor is the product or sum of, in both orders."""
        node = self.made(tensor, operator)
        if node is not None and len(node.inputs) == 2:
            one, other = map(self.behind, node.inputs)
            yield from ((one, other), (other, one))

    def function(self, tensor: str) -> tuple[ActivationFunction, str] | None:
        """The function that gives a tensor, and what it is of."""
        node = self.made(tensor, "activation")
        return None if node is None else (node.function(), self.behind(node.inputs[0]))

    def sums(self, c: str) -> Iterator[tuple[str, str, str, str]]:
        """The activations i, f and g, and the old c, of an LSTM's new c, which is f * c + i * g."""
        for kept, new in self.pairs(c, "add"):
            for f, old in self.pairs(kept, "mul"):
                for i, g in self.pairs(new, "mul"):
                    if all(map(self.function, (f, i, g))):
                        yield i, f, g, old


class _Search(_Formulas):
    """Looks for cells in one graph."""

    def __init__(self, graph: Graph, no_states: Collection[str]) -> None:
        super().__init__(graph)
        self.no_states, self.products = no_states, _Products(graph)

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

    def function(self, tensor: str) -> tuple[ActivationFunction, str] | None:
        with contextlib.suppress(ModelError):  # It is refused where it is read, if it is.
            return super().function(tensor)
        return None

    def _gate(self, tensor: str) -> _Gate | None:
        found = self.function(tensor)
        linear = None if found is None else self.products.rows(found[1])
        return None if found is None or linear is None else _Gate(found[0], linear)

    # An LSTM: c = f * c_old + i * g and h = o * activation(c)

    def _lstm(self, node: Node) -> Iterator[_Found]:
        if node.operator != "mul":
            return
        h = node.outputs[0]
        for gate, activated in self.pairs(h, "mul"):
            o, read = self._gate(gate), self.function(activated)
            if o is None or read is None:
                continue
            last, c = read
            for *names, c_old in self.sums(c):
                i, f, g = map(self._gate, names)
                if i is None or f is None or g is None or self._gate(c_old) is not None:
                    continue
                if i.function == f.function == o.function:
                    yield _Found("lstm", h, c, c_old, (i, f, g, o), (i.function, g.function, last))

    # A GRU: h = (1 - z) * n + z * h_old, or n + z * (h_old - n)

    def _gru(self, node: Node) -> Iterator[_Found]:
        if node.operator != "add":
            return
        h = node.outputs[0]
        for update, n, h_old in self._updates(h):
            z, candidate = self._gate(update), self.function(n)
            if z is None or candidate is None:
                continue
            for r, inner in self._resets(candidate[1], h_old):
                if r.function == z.function:
                    yield _Found("gru", h, "", h_old, (r, z), (z.function, candidate[0]), inner)

    def _updates(self, h: str) -> Iterator[tuple[str, str, str]]:
        """Names of z, n and the old h in both forms of the sum."""
        for n, moved in self.pairs(h, "add"):
            for z, difference in self.pairs(moved, "mul"):
                node = self.graph.producer(difference)
                if node is not None and node.operator == "sub" and node.inputs[1] == n:
                    yield z, n, node.inputs[0]
        for new, kept in self.pairs(h, "add"):
            for rest, n in self.pairs(new, "mul"):
                node = self.graph.producer(rest)
                for z, h_old in self.pairs(kept, "mul"):
                    if node is not None and node.operator == "sub" and node.inputs[1] == z:
                        one = self.graph.constant(node.inputs[0])
                        if one is not None and np.all(np.asarray(one) == 1.0):
                            yield z, n, h_old

    def _resets(self, total: str, h_old: str) -> Iterator[tuple[_Gate, tuple[Form, Form]]]:
        """The reset gate of a candidate's sum, and its products with x and with h."""
        for first, second in self.pairs(total, "add"):
            of_x = self.products.rows(first)
            for reset, other in self.pairs(second, "mul"):
                r, of_h = self._gate(reset), self.products.rows(other)
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
            why = "; ".join(filter(None, [why, reset_advice(self.graph, made[-1])]))
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


# An LSTM with norms: of its gates' products, and of c for h


_IS_NORMED = (
    "a step with norms is an LSTM, `c = f * c + i * g` or the norm of that, and `h = o * tanh(c)` or "
    "`o * tanh(norm(c))`, whose other norms are each of all four gates' products with the input, with h, or "
    "of the sum of both; write it so, or put norms between layers"
)


@dataclass(frozen=True)
class NormedLstm:
    """An LSTM with norms, the tensors that it reads side by side, and the states that are its h and c."""

    layer: Lstm
    sources: tuple[str, ...]
    h: str
    c: str


def find_normed(
    forms: Forms, states: Mapping[str, str], moving: frozenset[str], name: str
) -> NormedLstm | None:
    """Read states, whose new values have these names, as one LSTM with norms; None without norms.

    Raises ModelError if there are norms in their steps that are none of an LSTM.
    """
    made = [forms.graph.nodes[at] for at in forms.graph.ancestors(states.values())]
    if not any(name in moving for node in made if node.operator == "layer_norm" for name in node.outputs):
        return None
    if len(states) == 2:
        for h, c in (tuple(states), tuple(states)[::-1]):
            if (found := _NormedStep(forms.graph, forms, moving, h, c).read(states, name)) is not None:
                return found
    raise ModelError(_IS_NORMED)


@dataclass
class _NormedStep(_Formulas):
    """A step as that of an LSTM whose old states have these names."""

    forms: Forms
    moving: frozenset[str]
    h: str
    c: str
    products: dict[str, Floats] = field(default_factory=dict)
    """The matrices of what is multiplied, with rows gate by gate."""

    def read(self, states: Mapping[str, str], name: str) -> NormedLstm | None:
        """Return the layer, or None if the step is of another form."""
        new_h, new_c = (self.forms.behind(states[each]) for each in (self.h, self.c))
        for o, read in self.pairs(new_h, "mul"):
            of_c, of_sum = self.function(read), self._normed(new_c) or (None, new_c)
            cell = None if of_c is None else of_sum if of_c[1] == new_c else self._normed(of_c[1], new_c)
            if of_c is None or cell is None:
                continue
            for *names, old in self.sums(cell[1]):
                found = [one for tensor in (*names, o) if (one := self.function(tensor))]
                if old != self.c or [found[at][0] for at in (0, 1)] != [found[-1][0]] * 2 or len(found) < 4:
                    continue
                layer = self._layer(name, [tensor for _, tensor in found], cell[0], of_sum[0] is not None)
                functions = {"gate": found[0][0], "candidate": found[2][0], "output_activation": of_c[0]}
                return NormedLstm(layer.replace(**functions), tuple(self.products), self.h, self.c)
        return None

    def behind(self, tensor: str) -> str:
        return self.forms.behind(tensor)

    def _normed(self, tensor: str, of: str = "") -> tuple[Norm | None, str] | None:
        """The norm that gives a tensor, and what it is of, which must be ``of`` if that is said."""
        node = self.made(tensor, "layer_norm")
        source = "" if node is None else self.forms.behind(node.inputs[0])
        if node is None or source != (of or source):
            return None
        return self._norm(node, self.forms.width(self.c)), source

    def _norm(self, node: Node, size: int) -> Norm:
        rank = len(self.forms.graph.shape(node.inputs[0])) or 2
        axes = node.attributes.get("axes") or range(int(node.attributes.get("axis", -1)) % rank, rank)
        if [axis % rank for axis in axes] != [rank - 1]:
            self._refuse(f"{node.where} normalises over axes {list(axes)}")
        given = dict(zip(("gain", "bias"), node.inputs[1:], strict=False))
        arrays = {name: self.forms.constant(tensor) for name, tensor in given.items() if tensor}
        if any(array is None or array.size not in (1, size) for array in arrays.values()):
            self._refuse(f"gain and bias of {node.where} must have {size} values")
        return Norm(
            name=node.label,
            values=size,
            **{name: np.broadcast_to(array, (size,)) for name, array in arrays.items() if array is not None},
            epsilon=float(node.attributes.get("epsilon", 1e-5)),
            centre=bool(node.attributes.get("centre", True)),
        )

    def _refuse(self, why: str) -> NoReturn:
        raise ModelError(f"{why}; {_IS_NORMED}")

    # Rows

    def _layer(self, name: str, gates: list[str], cell: Norm | None, kept: bool) -> Lstm:
        units = self.forms.width(self.c)
        rows = [self.forms.read(gate) for gate in gates]
        plain, normed = self._split(rows, units)
        found: dict[str, tuple[Norm, Floats]] = {}
        w_hh: Floats | None = plain.pop(self.h, None)
        mine = bool(plain)
        for node, order in normed:
            form = self.forms.read(node.inputs[0])
            norm = self._norm(node, 4 * units)
            moved = {key: getattr(norm, key) for key in ("gain", "bias")}
            norm = norm.replace(**{key: each[order] for key, each in moved.items() if each is not None})
            terms = {key: as_matrix(weight, 4 * units)[order] for key, weight in form.terms.items()}
            bias = np.broadcast_to(form.bias, (4 * units,))[order]
            of_h = terms.pop(self.h, None)
            kind = "both" if of_h is not None and terms else "input" if terms else "hidden"
            clash = of_h is not None and w_hh is not None
            if kind in found or clash or (terms and mine):
                self._refuse("its gates have several norms, or products beside a norm of such products")
            found[kind] = norm, bias
            w_hh, mine = w_hh if of_h is None else of_h, mine or bool(terms)
            plain |= terms
        if "both" in found and len(found) > 1:
            self._refuse("its gates have several norms")
        for key in plain:
            if key in self.moving or key == self.c:
                self._refuse(f"its gates read {key!r}")
        if w_hh is None or not plain:
            self._refuse("its gates must read the input and h")
        self.products = plain
        arrays = {"input": "input", "hidden": "hidden", "both": "hidden"}
        fields: dict[str, Norm | Floats] = {arrays[kind]: norm for kind, (norm, _) in found.items()}
        fields |= {f"{arrays[kind]}_bias": bias for kind, (_, bias) in found.items() if bias.any()}
        return Lstm(
            name=name,
            w_ih=np.concatenate([*plain.values()], axis=1),
            w_hh=w_hh,
            bias=np.concatenate([np.broadcast_to(form.bias, (units,)) for form in rows]),
            norms=LstmNorms(**fields, cell=cell, together="both" in found, kept=kept),
        )

    def _split(self, rows: list[Form], units: int) -> tuple[dict[str, Floats], list[tuple[Node, Floats]]]:
        """What the gates' rows multiply without a norm, and norms with the order of their values."""
        plain: dict[str, Floats] = {}
        normed: list[tuple[Node, Floats]] = []
        norms = {
            name for node in self.forms.graph.nodes if node.operator == "layer_norm" for name in node.outputs
        }
        for tensor in dict.fromkeys(key for form in rows for key in form.terms):
            node = self.made(tensor, "layer_norm") if tensor in norms else None
            width = 4 * units if node is not None else units
            parts = [form.terms.get(tensor) for form in rows]
            sizes = {part.shape[1] for part in parts if part is not None and part.ndim > 1} or {width}
            (columns,) = sizes if len(sizes) == 1 else (0,)
            if not columns:
                self._refuse(f"its gates read {tensor!r} in different sizes")
            whole = np.concatenate(
                [np.zeros((units, columns)) if part is None else as_matrix(part, columns) for part in parts]
            )
            if node is None:
                plain[tensor] = whole
                continue
            order = whole.argmax(axis=1)
            chosen = np.array_equal(whole, np.eye(columns)[order])
            if columns != len(whole) or not chosen or sorted(order) != [*range(columns)]:
                self._refuse(f"{node.where} must be of all four gates, each with values of its own")
            normed.append((node, order))
        return plain, normed
