"""Reads the step of a cell that a model writes itself: its states become layers with a cell, by their graph.

A value of a step is a sum: products of matrices with the layer's input and the old h (a row of a gate),
elements times constants (parameters of a unit), and what functions and products make of such values. States
that depend on each other become one layer; one that reads only others' new values becomes a layer behind
theirs. What the model makes of new states alone stays behind the layers.
"""

import contextlib
import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, fresh
from rtlstm.gen.frontends.cells import find_normed
from rtlstm.gen.frontends.forms import LINEAR, Form, Forms, as_matrix, flat_step
from rtlstm.gen.frontends.formulas import COMPARED, operator_of
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent
from rtlstm.gen.frontends.layers import DENSE, WEIGHTED
from rtlstm.gen.frontends.recurrent import reset_advice
from rtlstm.spec.activations.functions import RELU, SIGMOID, ActivationFunction
from rtlstm.spec.cells.description import DEFAULT_CELL_RANGE, MAX_GATES, CellBuilder, Term
from rtlstm.spec.cells.evaluate import Reals, evaluate
from rtlstm.spec.errors import ConfigurationError, ModelError
from rtlstm.spec.network import Custom, Gru, Lstm

_MOST_NODES: Final = 400
"""Largest number of nodes of a step."""
_SHORT: Final = 2.0**8
"""A number whose multiple by this is whole is a constant of the cell; another one is a parameter."""
_LINEAR_SPACE: Final = (
    "a cell computes exp of what is never positive, such as -softplus(x) or -exp(a) * softplus(x), and of "
    "logarithms: keep a state h and not log(h), as `h = exp(a) * h + exp(b)` in place of "
    "`log_h = logaddexp(a + log_h, b)`"
)
_DECAY: Final = ActivationFunction.of("decay")
_SOFTPLUS: Final = ActivationFunction.of("softplus")
_SHAPED: Final = ("flatten", "identity", "reshape", "select", "squeeze", "transpose", "unsqueeze")
_INSTEAD: Final = "write that as a layer in front of the cell or behind it"
NO_CORE: Final = "this recurrence cannot be on the core; that of an LSTM, a GRU or a plain RNN can"

Names = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Gate:
    """Rows of all units: matrices of the sources and of h, and a bias."""

    of_x: dict[str, Floats]
    of_h: Floats | None
    bias: Floats

    def times(self, number: float) -> "_Gate":
        of_x = {key: number * each for key, each in self.of_x.items()}
        return _Gate(of_x, None if self.of_h is None else number * self.of_h, number * self.bias)

    def equals(self, other: "_Gate") -> bool:
        both = ({**one.of_x, "": one.of_h, " ": one.bias} for one in (self, other))
        mine, theirs = ({key: each for key, each in one.items() if each is not None} for one in both)
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[key], theirs[key]) for key in mine)


@dataclass(eq=False)
class CellReader:
    """Reads values of a step as terms of a cell.

    ``kept`` are the old states, side by side, that the cell keeps; ``fed`` those that are the layer's h.
    Several states are read together, element by element, if all are computed alike.
    """

    forms: Forms
    kept: Names
    fed: Names
    moving: frozenset[str]
    """Tensors that depend on the old states."""
    sizes: tuple[int, ...] = ()
    """How many units each of the states has."""
    fed_sizes: tuple[int, ...] = ()
    """How many values each of the states has that are h; empty for ``sizes``."""
    builder: CellBuilder = field(default_factory=CellBuilder)
    gates: list[_Gate] = field(default_factory=list)
    columns: list[Floats] = field(default_factory=list)
    known: dict[Names, Term] = field(default_factory=dict)
    reads_state: bool = False

    @property
    def units(self) -> int:
        """Units of the layer."""
        return sum(self.sizes)

    def keep(self, names: Names) -> None:
        """Keep new states; what reads them gets what is kept."""
        names = tuple(map(self.forms.behind, names))
        kept = self.builder.keep(self.term(names, through=True))
        self.known[names] = kept

    def term(self, names: Names, *, through: bool = False) -> Term:
        """The value of an element of tensors side by side; ``through`` if they are new states."""
        names = tuple(map(self.forms.behind, names))
        if names not in self.known:
            self.known[names] = self._read(names, through)
        return self.known[names]

    def layer(self, name: str, result: Term) -> tuple[Custom, Names]:
        """The layer whose results are a value, and the tensors that it reads side by side."""
        w_ih, w_hh, bias, sources = self.rows()
        layer = Custom(
            name=name,
            cell=self.builder.build("cell", result),
            w_ih=w_ih,
            w_hh=w_hh if any(gate.of_h is not None for gate in self.gates) else None,
            bias=bias,
            parameters=np.stack(self.columns, axis=1) if self.columns else None,
        )
        return layer, sources

    def rows(self) -> tuple[Floats, Floats, Floats, Names]:
        """The rows of all gates: of what the layer reads, of h, and their bias; and what it reads."""
        if not any(gate.of_x for gate in self.gates):
            self._read_nothing()
        sources = dict.fromkeys(key for gate in self.gates for key in gate.of_x)
        wide = {key: self._source_width(key) for key in sources}
        w_ih, w_hh = [], []
        for gate in self.gates:
            parts = [gate.of_x.get(key) for key in sources]
            blocks = [
                np.zeros((self.units, wide[key])) if part is None else part
                for key, part in zip(sources, parts, strict=True)
            ]
            w_ih.append(np.concatenate(blocks, axis=1))
            w_hh.append(np.zeros((self.units, self.units)) if gate.of_h is None else gate.of_h)
        bias = np.concatenate([gate.bias for gate in self.gates])
        return np.concatenate(w_ih), np.concatenate(w_hh), bias, tuple(sources)

    def matched(
        self, result: Term, count: int, formula: Callable[..., Floats]
    ) -> list[tuple[_Gate, ActivationFunction]] | None:
        """So many gates, and the functions of which a formula of h and their values gives a result, in order.

        A gate is negated where that fits: 1 - sigmoid(x) is sigmoid(-x).
        """
        cell = self.builder.build("step", result)
        of = {step.args[0]: step.function for step in cell.steps if step.function is not None}
        functions = {cell.steps[at].index: each for at, each in of.items() if cell.steps[at].kind == "gate"}
        if not len(functions) == cell.gates == count or cell.parameters:
            return None
        h, *gates = np.random.default_rng(0).normal(size=(1 + count, 200)) * np.geomspace(0.1, 1e6, 200)
        wanted = evaluate(Reals(cell), gates, h)[cell.result]
        for order in itertools.permutations(range(count)):
            for signs in itertools.product((1.0, -1.0), repeat=count):
                chosen = list(zip(order, signs, strict=True))
                values = [functions[at](sign * gates[at]) for at, sign in chosen]
                if np.allclose(formula(h, *values), wanted):
                    return [(self.gates[at].times(sign), functions[at]) for at, sign in chosen]
        return None

    def _read_nothing(self) -> None:
        """Read an input times zeros: a layer has an input, but states that count read none."""
        x = next((name for name in self.forms.graph.inputs if name not in self.forms.states), "")
        wide = self.forms.width(x) if x else 0
        if not wide:
            raise ModelError(
                "its step must read an input beside its states, of as many features as x declares"
            )
        gate = self.gates[0] if self.gates else _Gate({}, None, np.zeros(self.units))
        self.gates[:1] = [replace(gate, of_x={x: np.zeros((self.units, wide))})]

    def _source_width(self, key: str) -> int:
        """How many values a tensor has; one that is read element by element must have one for each unit."""
        widths = {gate.of_x[key].shape[1] for gate in self.gates if key in gate.of_x}
        widths |= {self.forms.width(key)} - {0}
        if len(widths) > 1:
            raise ModelError(
                f"it computes elements of {key!r}, which must have one value for each of {self.units} units; "
                "multiply it with a matrix first"
            )
        return int(widths.pop())

    # Sums

    def _read(self, names: Names, through: bool) -> Term:
        if names == self.kept:
            self.reads_state = True
            return self.builder.state()
        forms = [self.forms.read(name, through=through) for name in names]
        alone = [[*form.terms] == [name] and _is_one(form) for name, form in zip(names, forms, strict=True)]
        if all(alone):
            if names == self.fed or (len(names) == 1 and names[0] in self.fed):
                return self._sum(names, forms)
            return self._node(names)
        return self._sum(names, forms)

    def _sum(self, names: Names, forms: Sequence[Form]) -> Term:
        """A gate, and elements times numbers."""
        of_x: dict[str, Floats] = {}
        of_h: Floats | None = None
        rest: list[list[tuple[str, Floats]]] = []
        sizes = self.sizes if len(names) > 1 else (self.units,)
        starts = np.cumsum([0, *sizes])
        for at, (form, rows) in enumerate(zip(forms, sizes, strict=True)):
            block, left = slice(starts[at], starts[at + 1]), list[tuple[str, Floats]]()
            if form.rows not in (0, 1, rows):
                new = {*map(self.forms.behind, self.forms.states.values())}
                raise (_NoStateError if names[at] in new else ModelError)(
                    f"{names[at]!r} has {form.rows} values, but the cell has {rows} units: all that it "
                    f"computes of its state must have one for each unit; {_INSTEAD}"
                )
            for tensor, weight in form.terms.items():
                if self.forms.graph.is_constant(tensor):
                    raise ModelError(
                        f"the constant {tensor!r} must be one number or have one value for each of "
                        f"{self.units} units"
                    )
                itself = tensor in self.kept and (len(names) == 1 or self.kept.index(tensor) == at)
                if tensor in self.fed and (weight.ndim > 1 or not itself):
                    fed = self.fed_sizes or self.sizes
                    of_h = np.zeros((self.units, sum(fed))) if of_h is None else of_h
                    column = int(np.cumsum([0, *fed])[self.fed.index(tensor)])
                    wide = fed[self.fed.index(tensor)]
                    if weight.ndim > 1 and weight.shape[1] != wide:
                        raise _NoStateError(
                            f"the state {tensor!r} must have as many values as its new one, {wide}, but "
                            f"{weight.shape[1]} are read of it"
                        )
                    of_h[block, column : column + wide] += as_matrix(weight, wide)
                elif weight.ndim < 2 and (tensor in self.moving or self._is_element(tensor)):
                    left.append((tensor, weight))
                elif tensor in self.moving:
                    raise ModelError(self._matrix_refusal(tensor))
                else:
                    if weight.ndim < 2 and self.forms.width(tensor) == 1:  # the same for all elements
                        weight = np.broadcast_to(weight, (rows,)).reshape(-1, 1)
                    wide = weight.shape[1] if weight.ndim > 1 else rows
                    matrix = np.zeros((self.units, wide))
                    matrix[block] = as_matrix(weight, wide)
                    of_x[tensor] = of_x[tensor] + matrix if tensor in of_x else matrix
            rest.append(left)
        bias = np.concatenate(
            [np.broadcast_to(form.bias, (rows,)) for form, rows in zip(forms, sizes, strict=True)]
        )
        total: Any = None
        if of_x or of_h is not None:
            total, bias = self._gate(_Gate(of_x, of_h, bias)), np.zeros(1)
        return self._with_elements(names, total, rest, bias)

    def _with_elements(
        self, names: Names, total: Any, rest: list[list[tuple[str, Floats]]], bias: Floats
    ) -> Term:
        if len({len(left) for left in rest}) > 1:
            raise ModelError(self._unlike(names))
        minus: list[Term] = []
        for parts in zip(*rest, strict=True):
            sizes = self.sizes if len(names) > 1 else (self.units,)
            weight = np.concatenate(
                [np.broadcast_to(w, (rows,)) for (_, w), rows in zip(parts, sizes, strict=True)]
            )
            term = self.term(tuple(tensor for tensor, _ in parts))
            if np.all(weight == -1.0):
                minus.append(term)
                continue
            term = self._times(term, weight)
            total = term if total is None else total + term
        if bias.any():
            value = self._number(bias)
            total = value if total is None else total + value
        for term in minus:
            total = (0.0 if total is None else total) - term
        return total if isinstance(total, Term) else self.builder.constant(float(total or 0.0))

    def _gate(self, gate: _Gate) -> Term:
        at = next((at for at, other in enumerate(self.gates) if gate.equals(other)), len(self.gates))
        if at == len(self.gates):
            if at == MAX_GATES:
                raise ModelError(
                    f"it needs more than {MAX_GATES} rows of a unit (products with matrices, and inputs that "
                    f"are read element by element), and a cell has at most {MAX_GATES}; {_INSTEAD}"
                )
            self.gates.append(gate)
        return self.builder.gate(at)

    def _number(self, values: Floats) -> Any:
        """A number, if it is short and the same for all units, else a parameter."""
        values = np.broadcast_to(values, (self.units,)).astype(np.float64)
        if np.all(values == values[0]) and float(values[0] * _SHORT).is_integer():
            return float(values[0])
        at = next((at for at, each in enumerate(self.columns) if np.array_equal(each, values)), -1)
        if at < 0:
            at = len(self.columns)
            self.columns.append(values)
        return self.builder.parameter(at)

    def _times(self, term: Term, weight: Floats) -> Term:
        number = self._number(weight)
        return term if isinstance(number, float) and number == 1.0 else term * number

    def _is_element(self, tensor: str) -> bool:
        """Whether a value of the input alone is made in the cell: a function or product of a gate."""
        if tensor in self.forms.spread:
            return True
        node = self.forms.graph.producer(tensor)
        operator = "" if node is None else operator_of(self.forms.graph, node)
        if node is None or operator not in _ELEMENTS:
            return False
        return (operator != "div" or self._share(node) is not None) and (
            operator != "pow" or self._power(node) == 2
        )

    # Functions and products

    def _node(self, names: Names) -> Term:
        """What element-wise operators make of values; all of the tensors must be made alike."""
        nodes = [self.forms.graph.producer(name) for name in names]
        first = nodes[0]
        operator = "" if first is None else operator_of(self.forms.graph, first)
        if first is None or operator not in _ELEMENTS:
            return self._leaf(names, first)
        for other in nodes[1:]:
            if other is None or not _alike(first, other):
                raise ModelError(self._unlike(names))
        inputs = [*zip(*(node.inputs for node in nodes if node is not None), strict=True)]
        return _ELEMENTS[operator](self, first, inputs)

    def _leaf(self, names: Names, node: Node | None) -> Term:
        """A value of the input that another layer makes, or what has no place in a cell."""
        if len(names) == 1 and names[0] not in self.moving and names[0] not in self.forms.states:
            return self._gate(_Gate({names[0]: np.eye(self.units)}, None, np.zeros(self.units)))
        other = next((name for name in names if name in self.forms.states), None)
        if other is not None:
            raise ModelError(
                f"it reads the old value of another state, {other!r}, which a layer of its own keeps; read "
                "its new value, or keep the old one as a state beside it"
            )
        what = "it" if node is None else f"{node.where}, which gives {names[0]!r},"
        raise ModelError(_foreign(what, names[0] in self.moving))

    def _matrix_refusal(self, tensor: str) -> str:
        node = self.forms.graph.producer(tensor)
        moved = self.forms.graph.producer(self.forms.graph.behind(tensor, *_SHAPED))
        if (
            moved is not None
            and moved.operator == "div"
            and self.forms.behind(moved.inputs[1]) in self.moving
        ):
            return _divides(self.forms, moved)
        made = f"{tensor!r}" if node is None else f"{tensor!r} of {node.where}"
        advice = reset_advice(self.forms.graph, tensor)
        return (
            f"a matrix is multiplied with {made}, which is computed of the old state in the same step; in a "
            f"cell that can only be the old h: {f'{advice}; else ' if advice else ''}{NO_CORE}"
        )

    def _unlike(self, names: Names) -> str:
        return (
            f"its states {', '.join(map(repr, names))} depend on each other and are computed in different "
            "ways, but a cell keeps one value beside h; make them one state with the same formula for all "
            "of its elements, or let one read the other's new value alone"
        )

    def _apply(self, node: Node, inputs: list[Names]) -> Term:
        return self.builder.apply(node.function(), self.term(inputs[0]))

    def _exponential(self, node: Node, inputs: list[Names]) -> Term:
        """exp of a sum: a product of what is known of its terms, and of how much the rest leaves."""
        if len(inputs[0]) > 1:
            raise ModelError(self._unlike(inputs[0]))
        form = self.forms.read(inputs[0][0])
        found = {name: self._factor(node, name, weight) for name, weight in form.terms.items()}
        factors = [factor for factor in found.values() if factor is not None]
        rest = Form({name: form.terms[name] for name, each in found.items() if each is None}, form.bias)
        if rest.terms or rest.bias.any():
            if np.max(self.forms.limits_of(rest)[1]) > 0.0:
                raise ModelError(f"{node.where} may give more than 1; {_LINEAR_SPACE}")
            factors.append(self.builder.apply(_DECAY, self._sum(inputs[0], [rest])))
        return functools.reduce(operator.mul, factors)

    def _factor(self, node: Node, tensor: str, weight: Floats) -> Term | None:
        """exp of a term of a sum without an exponential; None if it is not known."""
        maker = self.forms.graph.producer(tensor)
        if maker is None or weight.ndim > 1 or abs(weight.flat[0]) != 1.0 or np.ptp(weight):
            return None
        made, sign = operator_of(self.forms.graph, maker), float(weight.flat[0])
        if sign < 0.0:
            known = made == "activation" and maker.function() == _SOFTPLUS
            return self.builder.apply(SIGMOID, -self.term(maker.inputs[:1])) if known else None
        if made == "log":
            return self.term(maker.inputs[:1])
        if made == "logaddexp":
            one, other = (self._exponential(node, [(name,)]) for name in maker.inputs)
            return one + other
        if made == "where":
            one, other = (self._exponential(node, [(name,)]) for name in maker.inputs[1:])
            return other + self.term(maker.inputs[:1]) * (one - other)
        return None

    def _logarithm(self, node: Node, inputs: list[Names]) -> Term:
        raise ModelError(f"{node.where} gives a logarithm that is not read by exp; {_LINEAR_SPACE}")

    def _product(self, node: Node, inputs: list[Names]) -> Term:
        return self.term(inputs[0]) * self.term(inputs[1])

    def _quotient(self, node: Node, inputs: list[Names]) -> Term:
        """``s(a) / (s(a) + s(b))`` of two sigmoids, which is ``s(softplus(-b) - softplus(-a))``."""
        found = self._share(node)
        if found is None or len(inputs[0]) > 1:
            raise ModelError(_divides(self.forms, node))
        mine, theirs = (self.builder.apply(_SOFTPLUS, -self.term((name,))) for name in found)
        return self.builder.apply(SIGMOID, theirs - mine)

    def _share(self, node: Node) -> Names | None:
        """The arguments of two sigmoids, if a node divides the first by their sum."""
        graph, behind = self.forms.graph, self.forms.behind
        part, whole = behind(node.inputs[0]), graph.producer(behind(node.inputs[1]))
        added = [] if whole is None or whole.operator != "add" else [behind(name) for name in whole.inputs]
        if part not in added:
            return None
        makers = [graph.producer(name) for name in (part, added[1 - added.index(part)])]
        found = [one for one in makers if one is not None and one.operator == "activation"]
        if len(found) < 2 or any(one.function() != SIGMOID for one in found):
            return None
        return found[0].inputs[0], found[1].inputs[0]

    def _clipped(self, node: Node, inputs: list[Names]) -> Term:
        limits = [*node.inputs[1:], "", ""][:2]
        low, high = (
            node.attributes.get(key, self.forms.constant(name))
            for key, name in zip(("min", "max"), limits, strict=True)
        )
        x = self.term(inputs[0])
        if low is not None and high is not None:
            return self.builder.apply(ActivationFunction.of("hard_tanh", float(low), float(high)), x)
        if low is not None:
            return self.builder.apply(RELU, x - float(low)) + float(low)
        return x if high is None else float(high) - self.builder.apply(RELU, float(high) - x)

    def _difference(self, one: Names, other: Names) -> Term:
        """``one - other``, as one row where both are products."""
        if len(one) == 1:
            first = self.forms.read(one[0])
            other_form = self.forms.read(other[0])
            return self._sum(one, [first.plus(other_form.times(np.array(-1.0)))])
        return self.term(one) - self.term(other)

    def _extreme(self, node: Node, inputs: list[Names]) -> Term:
        one, other = inputs
        rest = self.builder.apply(RELU, self._difference(one, other))
        return (
            self.term(other) + rest if operator_of(self.forms.graph, node) == "max" else self.term(one) - rest
        )

    def _greater(self, node: Node, inputs: list[Names]) -> Term:
        """1 where it is true, else 0."""
        operator = operator_of(self.forms.graph, node)
        one, other = inputs if operator.startswith("greater") else inputs[::-1]
        if operator.endswith("equal"):
            return 1.0 - self.builder.apply(_HEAVISIDE, self._difference(other, one))
        return self.builder.apply(_HEAVISIDE, self._difference(one, other))

    def _where(self, node: Node, inputs: list[Names]) -> Term:
        chosen, one, other = map(self.term, inputs)
        return other + chosen * (one - other)

    def _square(self, node: Node, inputs: list[Names]) -> Term:
        if len(node.inputs) > 1 and self._power(node) != 2:
            raise ModelError(
                f"{node.where} must have the power 2, the only one of a cell; multiply for another one"
            )
        x = self.term(inputs[0])
        return x * x

    def _power(self, node: Node) -> float:
        power = self.forms.constant(node.inputs[1])
        return float(power) if power is not None and power.size == 1 else 0.0

    def _absolute(self, node: Node, inputs: list[Names]) -> Term:
        x = self.term(inputs[0])
        return 2.0 * self.builder.apply(RELU, x) - x


def _foreign(what: str, moving: bool) -> str:
    return (
        f"{what} has no place in a cell: matrices are multiplied with the input and the old h alone, and "
        f"elements go through {', '.join(sorted({*LINEAR} - {*DENSE, 'slice', 'split', 'concat'}))}, "
        f"{', '.join(sorted(_ELEMENTS))}; {NO_CORE if moving else _INSTEAD}"
    )


def _divides(forms: Forms, node: Node) -> str:
    text = (
        f"{node.where} divides by what is no number; a cell can only divide one of two sigmoids by their sum"
    )
    graph, names = forms.graph, {*map(forms.behind, (*forms.states, *forms.states.values()))}
    alone = graph.with_nodes([each for each in graph.nodes if names.isdisjoint(each.outputs)])
    read = [_read_by(alone, forms.behind(name)) & names for name in node.inputs[:2]]
    if not all(read) or read[0] & read[1]:  # One state is not divided by another.
        return f"{text}: {NO_CORE}"
    return (
        f"{text}. Of sums that are weighted alike, c = f * c + i * z and n = f * n + i, keep c / n and "
        "l = log(n): d = log i - log f - l, r = r + sigmoid(d) * (z - r), l = log f + l + softplus(d); of a "
        "memory that is a matrix C, give LayerNorm(C @ q) in place of C @ q / n"
    )


def _is_one(form: Form) -> bool:
    (weight,) = form.terms.values()
    return weight.ndim == 0 and float(weight) == 1.0 and not form.bias.any()


def _alike(one: Node, other: Node) -> bool:
    if one.operator != other.operator or len(one.inputs) != len(other.inputs):
        return False
    return one.function() == other.function() if one.operator == "activation" else one.operator == "mul"


_HEAVISIDE: Final = ActivationFunction.of("heaviside")
_ELEMENTS: Final[dict[str, Callable[[CellReader, Node, list[Names]], Term]]] = {
    "activation": CellReader._apply,
    "mul": CellReader._product,
    "div": CellReader._quotient,
    "clip": CellReader._clipped,
    "abs": CellReader._absolute,
    "exp": CellReader._exponential,
    **dict.fromkeys(("log", "logaddexp", "reduce_logsumexp"), CellReader._logarithm),
    "where": CellReader._where,
    **dict.fromkeys(("max", "min"), CellReader._extreme),
    **dict.fromkeys(("pow", "square"), CellReader._square),
    **dict.fromkeys(COMPARED, CellReader._greater),
}
"""Element-wise operators of a cell, beside the linear ones."""


# The layers of a graph


_STATE_NAME: Final = re.compile(
    r"([chsuv]|hx|cx|mem|initial|(old|prev|last|hidden|cell|carry|memory|state)s?)(_.*|\d*|\[\d+\])$",
    re.IGNORECASE,
)


class _NoStateError(ModelError):
    """What looks like an old state is not as wide as its new value."""


def join_steps(graph: Graph) -> tuple[Graph, tuple[str, ...], tuple[str, ...]]:
    """Read a model that computes one step, and has the old states as inputs behind x and gives the new ones.

    Without another result than the new states, an input is a state if its name says so: two inputs and one
    result may be anything. Returns the graph, notes on the cells, and why what looks like such a model is
    none.
    """
    if any("T" in node.attributes["axes"] for node in graph.nodes if node.operator == "recurrent"):
        return graph, (), ()
    split, results = _with_parts(graph)
    old = split.inputs[1:]
    if not old or len(results) - len(old) not in (0, 1):
        return graph, (), ()
    if len(results) == len(old) and not all(map(_STATE_NAME.match, old)):
        return graph, (), ()
    states = dict(zip(old, results[len(results) - len(old) :], strict=True))
    read = {name for node in split.nodes if node.operator == "recurrent" for name in node.inputs[1:3]}
    cells = {name for each in read for name in _read_by(split, each)}
    states = {name: new for name, new in states.items() if name not in cells}
    if not any(name in _read_by(split, new) for name, new in states.items()):
        return graph, (), ()
    gone = {*states.values()} - {results[0]}
    split = replace(split, outputs=[name for name in dict.fromkeys(results) if name not in gone])
    try:
        return *join_bodies(split, states), ()
    except _NoStateError:
        return graph, (), ()
    except (ModelError, ConfigurationError, RecursionError) as error:
        return graph, (), (str(error),)


def _with_parts(graph: Graph) -> tuple[Graph, list[str]]:
    """A graph whose states are inputs one by one, and its results, of which one may hold several states.

    What a step takes of an input has the name by which the model takes it, as `state[0]`.
    """
    inputs: list[str] = []
    gone: set[Node] = set()
    parts: dict[str, str] = {}
    for name in graph.inputs:
        readers = [graph.nodes[at] for at in graph.consumers(name)]
        taken = [node for node in readers if node.operator == "select" and node.attributes["axis"] == 0]
        if not inputs or not taken or len(taken) < len(readers):
            inputs.append(name)
            continue
        gone |= {*taken}
        indices = [int(node.attributes["index"]) for node in taken]
        named = {at: fresh(f"{name}[{at}]", graph.is_tensor) for at in sorted(indices)}
        parts |= {node.outputs[0]: named[at] for node, at in zip(taken, indices, strict=True)}
        inputs += named.values()
    results: list[str] = []
    for name in graph.results or graph.outputs:
        node = graph.producer(graph.behind(name, "identity"))
        several = node is not None and node.operator == "stack" and node.attributes["axis"] == 0
        results += node.inputs if several and node is not None else [name]
    nodes = [node.reading(parts) for node in graph.nodes if node not in gone]
    sizes, old = graph.dimensions, {part: name for name, part in parts.items()}
    graph = replace(graph, dimensions=lambda name: sizes(old.get(name, name)))
    return replace(graph, nodes=nodes, inputs=inputs), [parts.get(name, name) for name in results]


def join_bodies(graph: Graph, states: Mapping[str, str]) -> tuple[Graph, tuple[str, ...]]:
    """Replace what computes states by recurrent nodes of one step; return notes on them, too.

    ``states`` has the name of each old state, which no node gives, with that of its new value.

    Raises ModelError, ConfigurationError if they are no cells; the message says what is not possible.
    """
    notes: list[str] = []
    left, graph = dict(states), flat_step(graph, states)
    while left:
        why: Exception | None = None
        for group in _groups(graph, left):
            others = [new for name, new in left.items() if name not in group]
            try:
                graph, note = _Group(graph, group, states, others).replaced()
            except _NoStateError:
                raise
            except (ModelError, ConfigurationError) as error:
                # Of the smallest group; what reads its old states may be in its layer, too.
                why = why or error
                continue
            left = {name: new for name, new in left.items() if name not in group}
            notes.append(note)
            break
        else:
            assert why is not None
            raise why
    return graph, tuple(notes)


def _groups(graph: Graph, states: Mapping[str, str]) -> list[Names]:
    """Groups of states of which no other state's old value is read, the smallest first."""
    reads = {name: _read_by(graph, new) & states.keys() for name, new in states.items()}
    closed: dict[str, set[str]] = {}
    for name in states:
        found, waiting = {name}, [name]
        while waiting:
            more = reads[waiting.pop()] - found
            found |= more
            waiting += more
        closed[name] = found
    groups = dict.fromkeys(tuple(name for name in states if name in found) for found in closed.values())
    return sorted(groups, key=len)


def _read_by(graph: Graph, tensor: str) -> set[str]:
    """All tensors that a tensor is made of, and itself."""
    return {tensor} | {name for at in graph.ancestors([tensor]) for name in graph.nodes[at].inputs}


class _Group:
    """States that become one layer."""

    def __init__(self, graph: Graph, old: Names, states: Mapping[str, str], others: list[str]) -> None:
        if len(graph.nodes) > _MOST_NODES:
            raise ModelError(f"has more than {_MOST_NODES} nodes in a step, too many for a cell")
        self.graph, self.old, self.states = graph, old, states
        self.forms = Forms(graph, states)
        self.new = tuple(self.forms.behind(states[name]) for name in old)
        readers = {at for name in old for at in graph.consumers(name)}
        inside = readers | graph.descendants(readers)
        self.moving = frozenset({name for at in inside for name in graph.nodes[at].outputs} | {*old})
        ends = [*graph.outputs, *others]
        self.ends = [name for name in ends if self.forms.behind(name) in self.moving]
        self.sizes = tuple(self.forms.width(name) for name in old)

    def replaced(self) -> tuple[Graph, str]:
        """The graph with a recurrent node for them, and a note."""
        states = {name: self.states[name] for name in self.old}
        normed = find_normed(self.forms, states, self.moving, self._label(self.new[0]))
        if normed is not None:
            h = self.forms.behind(self.states[normed.h])
            return self._with_node(normed.layer, normed.sources, (h,), self.states[normed.c])
        why: Exception | str = "what the step gives depends on the old state itself"
        for node in self.graph.nodes:
            if node.operator == "div" and self.forms.behind(node.inputs[1]) in self.moving:
                why = _divides(self.forms, node)
        for attempt in self._attempts():
            try:
                cell = self._cell(*attempt)
            except _NoStateError:
                raise
            except (ModelError, ConfigurationError) as error:
                why = error
            else:
                return self._with_node(*cell)
        if (gru := self._gru()) is not None:
            return self._with_node(*gru, self.new, "")
        for blocks in self._blocks():
            widths = [self.size(kept) for _, _, kept in blocks]
            try:
                return self._with_node(*_Mixed(self, blocks).layer(), "", widths)
            except (ModelError, ConfigurationError) as error:
                why = error
        named = " and ".join(map(repr, self.old))
        raise ModelError(f"the step that makes the new value of the state {named} is no cell: {why}")

    def _gru(self) -> tuple[Gru, Names] | None:
        """A GRU whose candidate's matrix multiplies r * h, and what it reads, if the step is one.

        Its formulas are known by their values, with r * h as one more input.
        """
        if len(self.old) > 1 or not self._is_cut(self.new):
            return None
        for node in self.graph.nodes:
            left = node.outputs[0]
            if node.operator != "mul" or self.old[0] not in map(self.forms.behind, node.inputs):
                continue
            readers = [
                CellReader(
                    Forms(self.graph, self.states), self.old, self.old, self.moving - {left}, self.sizes
                )
                for _ in range(3)
            ]
            step, reset, whole = readers
            step.forms.opaque = {left}
            with contextlib.suppress(ModelError, ConfigurationError):
                found = step.matched(step.term(self.new), 2, lambda h, z, n: z * h + (1.0 - z) * n)
                before = reset.matched(reset.term((left,)), 1, lambda h, r: r * h)
                if not found or not before or found[0][1] != before[0][1]:
                    continue
                (z, gate), (n, candidate) = found
                of_x = dict(n.of_x)
                if left in z.of_x or left not in of_x or n.of_h is not None:
                    continue
                whole.gates = [before[0][0], z, _Gate(of_x, of_x.pop(left), n.bias)]
                w_ih, w_hh, bias, sources = whole.rows()
                layer = Gru(
                    name=self._label(self.new[0]),
                    w_ih=w_ih,
                    w_hh=w_hh,
                    bias_ih=bias,
                    bias_hh=np.zeros_like(bias),
                    gate=gate,
                    candidate=candidate,
                    reset_after=False,
                )
                return layer, sources
        return None

    def _attempts(self) -> Iterator[tuple[Names, Names, Names]]:
        """What to try: the states that the cell keeps, those that are h, and the results of the layer."""
        if 0 in self.sizes:
            for node in self.graph.nodes:
                if (
                    node.operator in WEIGHTED
                    and node.operator not in DENSE
                    and node.outputs[0] in self.moving
                ):
                    raise ModelError(_foreign(f"{node.where}, which gives {node.outputs[0]!r},", True))
            raise ModelError(
                f"how many values the state {self.old[self.sizes.index(0)]!r} has cannot be told; multiply "
                "the input with a matrix before it is added to the state"
            )
        if len(self.old) == 1:
            for result in self._cuts():
                if result != self.new[0]:
                    yield self.old, (), (result,)
        for at, h in enumerate(self.old):
            others = self.old[:at] + self.old[at + 1 :]
            if len(others) == 1 and self._is_cut(self.new[at : at + 1]):
                yield others, (h,), self.new[at : at + 1]
        if self._is_cut(self.new):
            yield self.old, self.old, self.new

    def _blocks(self) -> Iterator[Sequence[Names]]:
        """What else to try: of each block of units the result, its state or "", and the one that is kept."""
        alone = [(new, old, old) for new, old in zip(self.new, self.old, strict=True)]
        pairs = [(h, c) for h, c in itertools.permutations(alone, 2) if self.size(h[1]) == self.size(c[1])]
        tries = [alone]
        for h, c in pairs:
            tries.append([(*h[:2], c[1]) if each is h else each for each in alone if each is not c])
        for node in self.graph.nodes:  # a result that is no state, in the units of one
            inside = [name for name in node.outputs if name in self.moving and name not in self.new]
            tries += [
                [(name, "", each[1]) if each is c else each for each in alone]
                for name in inside
                for c in alone
            ]
        for blocks in tries:
            if len(blocks) > 1 and self._is_cut(tuple(result for result, _, _ in blocks)):
                yield blocks

    def size(self, old: str) -> int:
        """How many values a state has."""
        return self.sizes[self.old.index(old)]

    def _cuts(self) -> Iterator[str]:
        """Tensors through which all goes that the model makes of the state, from the last one on."""
        for node in reversed(self.graph.nodes):
            for name in node.outputs:
                if name in self.moving and self._is_cut((self.forms.behind(name),)):
                    yield self.forms.behind(name)

    def _is_cut(self, names: Names) -> bool:
        """Whether nothing behind the layer reads old states but through these tensors."""
        seen = set(names)
        waiting = [behind for name in self.ends if (behind := self.forms.behind(name)) not in seen]
        while waiting:
            name = waiting.pop()
            if name in self.old or name in self.new:
                return False
            node = self.graph.producer(name)
            seen.add(name)
            if node is not None and name in self.moving:
                waiting += [behind for each in node.inputs if (behind := self.forms.behind(each)) not in seen]
        return True

    def _cell(self, kept: Names, fed: Names, results: Names) -> tuple[Custom, Names, Names, str]:
        """The layer that gives results and keeps states, which are its results if ``fed`` are the same."""
        self.forms.opaque = {*self.new}
        sizes = tuple(self.sizes[self.old.index(name)] for name in kept)
        reader = CellReader(self.forms, kept, fed, self.moving, sizes)
        name = self._label(results[0])
        if kept == fed or not fed:
            new = tuple(self.states[each] for each in kept)
            if kept == fed and not self._reads_elements(kept, fed, sizes):
                result = reader.term(self.new, through=True)
                return *reader.layer(name, result), results, ""
            reader.keep(new)
            result = reader.term(results)
            return *reader.layer(name, result), results, "" if fed else self.states[kept[0]]
        reader.keep((self.states[kept[0]],))
        result = reader.term(results, through=True)
        return *reader.layer(name, result), results, self.states[kept[0]]

    def _reads_elements(self, kept: Names, fed: Names, sizes: tuple[int, ...]) -> bool:
        """Whether the old state is read otherwise than by matrices: then the cell keeps it."""
        trial = CellReader(self.forms, kept, fed, self.moving, sizes)
        trial.term(self.new, through=True)
        return trial.reads_state

    def _label(self, tensor: str) -> str:
        node = self.graph.producer(tensor)
        return tensor if node is None else node.label

    def _with_node(
        self,
        layer: Custom | Gru | Lstm,
        sources: Names,
        results: Names,
        kept: str,
        widths: Sequence[int] = (),
    ) -> tuple[Graph, str]:
        graph, made = self.graph, list[Node]()
        maker = graph.producer(results[0])
        noun = "" if maker is None else maker.noun
        x = sources[0]
        if len(sources) > 1:
            x = fresh(f"{results[0]}.read", graph.is_tensor)
            made.append(
                Node("concat", sources, (x,), layer.name, "cell", {"axis": -1}, noun=noun, hidden=True)
            )
        begins = ("", self.old[0]) if kept and len(self.old) == 1 else (self.old[0], "")
        if kept and len(self.old) == 2:
            c = next(name for name in self.old if self.states[name] == kept)
            begins = (next(name for name in self.old if name != c), c)
        elif len(self.old) > 1:
            begins = ("", "")
        h = results[0] if len(results) == 1 else fresh(f"{results[0]}.all", graph.is_tensor)
        c = self.forms.behind(kept) if kept else ""
        c = "" if graph.producer(c) is None else c  # an input that is kept for the next step is no result
        outputs = (h, "", c) if c and c not in results else (h,)
        given = {"layers": lambda: Recurrent((layer,)), "axes": ("N", "F")}
        made.append(Node("recurrent", (x, *begins), outputs, layer.name, "cell", given, noun=noun))
        widths = widths or self.sizes if len(results) > 1 else ()
        for name, end, wide in zip(results, np.cumsum(widths), widths, strict=False):
            cut = {"axes": [-1], "starts": [int(end - wide)], "ends": [int(end)], "steps": [1]}
            made.append(Node("slice", (h,), (name,), f"{layer.name}/{name}", "slice", cut, hidden=True))
        news = {*results, *([c] if c else [])}
        nodes = [node for node in graph.nodes if news.isdisjoint(node.outputs)]
        lost = {self.states[name] for name in self.old if not news & {self.forms.behind(self.states[name])}}
        ends_of = [*graph.outputs, *({*self.states.values()} - lost)]
        sizes, known = graph.dimensions, {h: layer.outputs, c: layer.outputs} if len(results) == 1 else {}
        graph = replace(graph, dimensions=lambda name: ("", known[name]) if name in known else sizes(name))
        graph = sorted_graph(graph.with_nodes([*made, *nodes]), ends_of)
        what = f"its state is {' and '.join(map(repr, self.old))}"
        if len(self.old) > 1 and not kept:
            what += ", side by side in the driver's"
        reads = ", ".join(map(repr, sources))
        if widths:
            what += f"; their values saturate at +-{DEFAULT_CELL_RANGE:g}, or at a power of two beyond what "
            what += "calibration data reach"
        return graph, f"the nodes that give {results[0]!r} are a cell: it reads {reads}, and {what}"


class _Mixed:
    """States of several formulas as one layer, of whose units each block computes its own.

    All units compute all formulas, and parameters choose one, within +-CHOSEN. A block reads the other
    states of h by rows of gates; ``blocks`` has of each its result, the state that this is, or "", and the
    one that its units keep.
    """

    def __init__(self, group: _Group, blocks: Sequence[Names]) -> None:
        self.group, self.builder, self.blocks = group, CellBuilder(), blocks
        self.new = {name: group.forms.behind(group.states[name]) for name in group.old}
        self.sizes = tuple(group.size(kept) for _, _, kept in blocks)
        fed = tuple(old for _, old, _ in blocks)
        self.readers = [
            CellReader(
                *(self._forms(), (c,), fed, group.moving, (size,), self.sizes, self.builder),
                columns=[np.full(size, float(at == chosen) - 1.0) for chosen in range(len(blocks) - 1)],
            )
            for at, ((_, _, c), size) in enumerate(zip(blocks, self.sizes, strict=True))
        ]

    def _forms(self, *opaque: str) -> Forms:
        forms = Forms(self.group.graph, self.group.states)
        forms.opaque = {*opaque}
        return forms

    def layer(self) -> tuple[Custom, Names, Names]:
        """The layer, the tensors that it reads side by side, and its results."""
        pairs = [*zip(self.readers, self.blocks, strict=True)]
        kept = self.builder.keep(
            self._chosen([reader.term((self.new[c],), through=True) for reader, (_, _, c) in pairs])
        )
        for reader, (_, _, c) in pairs:
            reader.forms = self._forms(self.new[c])
            reader.known[(self.new[c],)] = kept
        result = self._chosen([reader.term((name,), through=True) for reader, (name, _, _) in pairs])
        whole = CellReader(self._forms(), (), (), self.group.moving, self.sizes, builder=self.builder)
        whole.gates = [self._gate(at) for at in range(max(len(reader.gates) for reader in self.readers))]
        used = self.builder.build("cell", result).parameters
        whole.columns = [
            np.concatenate(
                [[*reader.columns, *[np.zeros(reader.units)] * used][at] for reader in self.readers]
            )
            for at in range(used)
        ]
        results = tuple(name for name, _, _ in self.blocks)
        return *whole.layer(self.group._label(results[0]), result), results

    def _chosen(self, terms: Sequence[Term]) -> Term:
        """In the units of each block the block's value: others are moved below zero, where relu is 0."""
        blocks: dict[Term, list[int]] = {}
        for at, term in enumerate(terms):
            blocks.setdefault(term, []).append(at)
        if len(blocks) == 1:
            return terms[0]
        last, parts = len(terms) - 1, list[Term]()
        for term, mine in blocks.items():  # what is added is 0 here, elsewhere -CHOSEN
            chosen = [at for at in range(last) if (at in mine) != (last in mine)]
            shares = [self.builder.parameter(at) * self.builder.chosen() for at in chosen]
            below: Any = sum(shares[1:], start=shares[0])
            if last in mine:
                below = self.builder.chosen(-len(chosen)) - below
            else:
                below = below + self.builder.chosen(len(mine) - 1)
            term = self.builder.clip_chosen(term)
            parts += [self.builder.apply(RELU, term + below), self.builder.apply(RELU, below - term)]
        total = parts[0] - parts[1]
        for more, less in zip(parts[2::2], parts[3::2], strict=True):
            total = total + (more - less)
        return total

    def _gate(self, at: int) -> _Gate:
        """A row of all units, each as its block has it."""
        none = _Gate({}, None, np.zeros(1))
        gates = [reader.gates[at] if at < len(reader.gates) else none for reader in self.readers]
        wide = {key: part.shape[1] for gate in gates for key, part in gate.of_x.items()}

        def rows(parts: list[Floats | None], columns: int) -> Floats:
            sizes = zip(parts, self.sizes, strict=True)
            return np.concatenate([np.zeros((size, columns)) if p is None else p for p, size in sizes])

        of_x = {key: rows([gate.of_x.get(key) for gate in gates], wide[key]) for key in wide}
        of_h = rows([gate.of_h for gate in gates], sum(self.sizes))
        bias = [np.broadcast_to(gate.bias, (size,)) for gate, size in zip(gates, self.sizes, strict=True)]
        return _Gate(of_x, of_h if of_h.any() else None, np.concatenate(bias))


def sorted_graph(graph: Graph, ends: Sequence[str]) -> Graph:
    """The nodes that ends need, and those that read nothing of the model, in an order to compute them."""
    order: dict[int, None] = {}
    waiting = [at for end in ends if (at := graph.index_of(end)) >= 0][::-1]
    while waiting:
        at = waiting[-1]
        missing = [
            i for name in graph.nodes[at].inputs if (i := graph.index_of(name)) >= 0 and i not in order
        ]
        waiting += missing
        if not missing:
            order[waiting.pop()] = None
    return graph.with_nodes([graph.nodes[at] for at in order])
