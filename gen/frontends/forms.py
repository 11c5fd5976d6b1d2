"""Reads tensors of a step as sums: of other tensors times matrices or numbers, and a constant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import Floats, fresh
from rtlstm.gen.frontends.axes import Axes, KnownSizes
from rtlstm.gen.frontends.formulas import ELEMENTWISE, operator_of
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.gen.frontends.layers import DENSE, outputs_first
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import Budget

SPREAD: Final = "spread"
"""The kind of a node that gives some elements several times."""
_Limits = tuple[Floats, Floats]
Indices = NDArray[Any]
"""Indices of elements."""
_SAME: Final = ("cast", "identity", "squeeze", "unsqueeze")
"""Operators that change no element of one step."""
_OTHER_WIDTHS: Final = (
    "conv",
    "embedding",
    "flatten",
    "gather",
    "recurrent",
    "reshape",
    "shape",
)
"""Operators behind which a tensor's last axis is another one, if its sizes do not say so."""
_CHANNELWISE: Final = ("activation", "batch_norm", "cast", "identity")
"""Operators behind a convolution whose results have its channels."""


@dataclass(frozen=True, eq=False)
class Form:
    """``sum of weight * tensor, + bias``.

    A weight is a matrix ``(rows, columns)``, or one number for each element, or for all.
    """

    terms: dict[str, Floats]
    bias: Floats

    @property
    def rows(self) -> int:
        """How many elements it has; 0 if that cannot be told."""
        sizes = [len(weight) for weight in (*self.terms.values(), self.bias) if weight.ndim]
        return max((size for size in sizes if size > 1), default=max(sizes, default=0))

    def plus(self, other: "Form") -> "Form":
        """The sum of both."""
        terms = dict(self.terms)
        for name, weight in other.terms.items():
            terms[name] = _added(terms[name], weight) if name in terms else weight
        return Form(terms, self.bias + other.bias)

    def times(self, factor: Floats) -> "Form":
        """Each element times a number."""
        column = factor.reshape(-1, 1) if factor.ndim else factor
        terms = {
            name: weight * (column if weight.ndim > 1 else factor) for name, weight in self.terms.items()
        }
        return Form(terms, self.bias * factor)


def _added(one: Floats, other: Floats) -> Floats:
    """The sum of two weights of one tensor, of which one may be a matrix, the other none."""
    if one.ndim > 1 or other.ndim > 1:
        columns = max(each.shape[1] for each in (one, other) if each.ndim > 1)
        one, other = (as_matrix(each, columns) for each in (one, other))
    return one + other


def as_matrix(weight: Floats, size: int) -> Floats:
    """A weight as a matrix of so many columns."""
    return weight if weight.ndim > 1 else np.eye(size) * weight


class Forms:
    """Reads tensors of one graph as forms, whose tensors are those that no linear operator makes."""

    def __init__(self, graph: Graph, states: Mapping[str, str]) -> None:
        self.graph, self.states = graph, states
        self.opaque: set[str] = set()
        """Tensors that stay as they are."""
        self.spread = {name for node in graph.nodes if node.kind == SPREAD for name in node.outputs}
        """Tensors that stay as they are in products with a number for each element."""
        self._known: dict[str, Form] = {}
        self._widths: dict[str, int] = {}
        self._sizes: KnownSizes | None = None
        self._budget = Budget(ModelError)

    def behind(self, tensor: str) -> str:
        """What a tensor is a copy of, perhaps with other axes of size 1."""
        return self.graph.behind(tensor, *_SAME)

    def constant(self, tensor: str) -> Floats | None:
        """A constant as one number, or as one for each element; None of what is none, or is a matrix."""
        value = self.graph.constant(tensor) if tensor else None
        if value is None:
            return None
        value = np.asarray(value, dtype=np.float64)
        if value.shape[-1:] not in ((), (value.size,)) and value.size != 1:
            return None
        return value.reshape(()) if value.size == 1 else value.reshape(-1)

    def read(self, tensor: str, *, through: bool = False) -> Form:
        """The form of a tensor; ``through`` one that is opaque."""
        tensor = self.behind(tensor)
        if tensor in self.opaque and not through:
            return Form({tensor: np.array(1.0)}, np.array(0.0))
        if tensor not in self._known:
            value = self.constant(tensor)
            node = self.graph.producer(tensor)
            found = None if value is None else Form({}, value)
            if node is not None and found is None and tensor not in self.states:
                reader = self._reader(node.operator)
                found = None if reader is None else reader(self, node, tensor)
            self._known[tensor] = found or Form({tensor: np.array(1.0)}, np.array(0.0))
        return self._known[tensor]

    def _reader(self, operator: str) -> "LinearReader | None":
        return LINEAR.get(operator)

    def _factor(self, tensor: str) -> Form:
        """The form of what a matrix is multiplied with."""
        return self.read(tensor)

    def width(self, tensor: str) -> int:
        """How many elements a tensor has in a step; 0 if that cannot be told."""
        tensor = self.behind(tensor)
        if tensor in self._widths:
            return self._widths[tensor]
        first = all(self._widths.values())
        self._widths[tensor] = 0  # while it is searched for, for a state depends on itself
        self._widths[tensor] = found = self._width(tensor)
        if first:  # What was not found on the way here may be found on another one.
            self._widths = {name: wide for name, wide in self._widths.items() if wide}
        return found

    def _width(self, tensor: str) -> int:
        shape = self.graph.shape(tensor)
        if shape and shape[-1] is not None:
            return shape[-1]
        if tensor in self.states:
            return self.width(self.states[tensor])
        value, node = self.constant(tensor), self.graph.producer(tensor)
        if value is not None:
            return 0 if value.size == 1 else value.size
        if node is None:  # as many as the columns of a matrix that reads it
            readers = [self.graph.nodes[at] for at in self.graph.consumers(tensor)]
            weights = [self._weight(each) for each in readers if each.operator in DENSE]
            found = [weight.shape[1] for weight in weights if weight is not None]
            factors = [
                self.constant(name) for each in readers if each.operator == "mul" for name in each.inputs
            ]
            return max(
                [*found, *(each.size for each in factors if each is not None and each.size > 1)], default=0
            )
        if node.operator in DENSE:
            weight = self._weight(node)
            return 0 if weight is None else len(weight)
        if node.operator == "transpose":
            swap, perm = ([at % 3 for at in node.attributes.get(key, ())] for key in ("swap", "perm"))
            return self._channels(node.inputs[0]) if {*swap} == {1, 2} or perm[2:] == [1] else 0
        if node.operator in _OTHER_WIDTHS:
            return 0
        widths = [self.width(name) for name in node.inputs if name]
        if node.operator == "concat":
            return sum(widths) if all(widths) else 0
        if node.operator == "split":
            return len(range(widths[0])[self._part_of(node, tensor, widths[0])])
        if node.operator == "slice":
            return len(range(widths[0])[self._cut_of(node) or slice(None)])
        return max(widths, default=0)

    def _channels(self, tensor: str) -> int:
        """How many channels what a convolution gives has, on axis 1 of three; 0 if it is none."""
        node = self.graph.producer(tensor)
        if node is None or node.operator not in ("conv", "split", "slice", *_CHANNELWISE):
            return 0
        if node.operator == "conv":
            weight = self.graph.constant(node.inputs[1])
            return len(weight) if weight is not None and np.ndim(weight) == 3 else 0
        wide = self._channels(node.inputs[0])
        if node.operator == "split" and int(node.attributes.get("axis", 0)) in (1, -2):
            return len(range(wide)[self._part_of(node, tensor, wide)])
        along = self._numbers(node, "axes", 3) if node.operator == "slice" else []
        return wide if along is not None and {*along} <= {2, -1} and node.operator != "split" else 0

    def _numbers(self, node: Node, attribute: str, index: int) -> list[int] | None:
        """Whole numbers of a node, which may follow from sizes of tensors."""
        found = self.graph.numbers(node, attribute, index)
        if found is not None or len(node.inputs) <= index or not node.inputs[index]:
            return found
        if self._sizes is None:
            self._sizes = KnownSizes(self.graph)
            for each in self.graph.nodes:
                wide = self.width(each.inputs[0]) if each.operator in ("shape", "size") else 0
                self._sizes.measure(each, Axes(("N", "F"), wide) if wide else None)
        sizes = self._sizes.of(node.inputs[index])
        return None if sizes is None or any(s.names for s in sizes) else [size.number for size in sizes]

    def limits(self, tensor: str) -> _Limits:
        """The lowest and highest value of each element, or of all; infinite if there is none."""
        return self.limits_of(self.read(tensor))

    def limits_of(self, form: Form) -> _Limits:
        """The lowest and highest value of each element of a form."""
        low = high = form.bias
        for name, weight in form.terms.items():
            with np.errstate(invalid="ignore"):
                ends = np.sort(
                    [np.where(weight == 0.0, 0.0, weight * end) for end in self._ends(name)], axis=0
                )
            if weight.ndim > 1:
                ends = ends.sum(axis=-1)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _ends(self, tensor: str) -> tuple[float, float]:
        """The limits of all elements of what no linear operator makes, or what is spread."""
        node = self.graph.producer(tensor)
        operator = "" if node is None else node.operator.lower()
        if node is not None and operator == "activation":
            return node.function().limits
        if node is not None and operator == "exp":
            with np.errstate(over="ignore"):
                return 0.0, float(np.exp(np.max(self.limits(node.inputs[0])[1])))
        if tensor in self.spread:
            low, high = self.limits(tensor)
            return float(np.min(low)), float(np.max(high))
        return -np.inf, np.inf

    # Operators

    def _weight(self, node: Node) -> Floats | None:
        value = self.graph.constant(node.inputs[1])
        if value is None or np.ndim(value) != 2 or node.attributes.get("transA", 0):
            return None
        return outputs_first(node, np.asarray(value, dtype=np.float64))

    def _dense(self, node: Node, _: str) -> Form | None:
        weight = self._weight(node)
        if weight is None:
            return None
        bias = self.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(())
        if bias is None:
            return None
        source = self.behind(node.inputs[0])
        maker = self.graph.producer(source)
        if maker is not None and maker.operator == "concat":
            found = self._joined(list(maker.inputs), weight.shape[1], self._factor)
        else:
            found = self._factor(node.inputs[0])
        terms: dict[str, Floats] = {}
        for name, inner in found.terms.items():
            self._budget.take((len(weight), weight.shape[1]), f"the weights of {name!r}")
            terms[name] = weight @ inner if inner.ndim > 1 else weight * inner
        inside = weight @ np.broadcast_to(found.bias, weight.shape[1:])
        total = inside + np.broadcast_to(bias * float(node.attributes.get("beta", 1.0)), (len(weight),))
        return Form(terms, total)

    def _joined(self, names: list[str], total: int = 0, read: Callable[[str], Form] | None = None) -> Form:
        """Features of several tensors side by side; ``total`` tells the width of one that is not known."""
        widths = [self.width(name) for name in names]
        if widths.count(0) == 1 and total > sum(widths):
            widths[widths.index(0)] = total - sum(widths)
        if 0 in widths or (total and sum(widths) != total):
            raise ModelError(f"the sizes of {', '.join(map(repr, names))}, which are joined, cannot be told")
        parts = [*map(read or self.read, names)]
        starts = np.cumsum([0, *widths[:-1]])
        bias = np.concatenate([np.broadcast_to(p.bias, (w,)) for p, w in zip(parts, widths, strict=True)])
        whole = Form({}, bias)
        for part, start, wide in zip(parts, starts, widths, strict=True):
            for name, weight in part.terms.items():
                columns = weight.shape[1] if weight.ndim > 1 else wide
                self._budget.take((sum(widths), columns), f"the weights of {name!r}")
                block = np.zeros((sum(widths), columns))
                block[start : start + wide] = as_matrix(weight, columns)
                whole = whole.plus(Form({name: block}, np.zeros(())))
        return whole

    def _concat(self, node: Node, _: str) -> Form | None:
        try:
            return self._joined(list(node.inputs))
        except ModelError:
            return None

    def _add(self, node: Node, _: str) -> Form:
        first, *rest = map(self.read, node.inputs)
        for other in rest:
            first = first.plus(other if node.operator != "sub" else other.times(np.array(-1.0)))
        return first

    def _mul(self, node: Node, _: str) -> Form | None:
        one, other = map(self.read, node.inputs)
        if any(part.bias.ndim and not part.terms for part in (one, other)):
            one, other = (
                Form({name: np.array(1.0)}, np.array(0.0))
                if (name := self.behind(each)) in self.spread
                else form
                for each, form in zip(node.inputs, (one, other), strict=True)
            )
        if one.terms and not other.terms:
            with np.errstate(divide="ignore"):  # The check of finite weights names what this makes infinite.
                return one.times(other.bias if node.operator == "mul" else 1.0 / other.bias)
        return other.times(one.bias) if other.terms and not one.terms and node.operator == "mul" else None

    def _rows(self, node: Node, chosen: slice) -> Form | None:
        """Some of the elements of what a node reads."""
        whole, wide = self.read(node.inputs[0]), self.width(node.inputs[0])
        if not wide:
            return None
        begin, end, step = chosen.indices(wide)
        if begin >= end or step < 1:
            return None
        terms = {name: as_matrix(weight, wide)[chosen] for name, weight in whole.terms.items()}
        return Form(terms, np.broadcast_to(whole.bias, (wide,))[chosen])

    def _part_of(self, node: Node, tensor: str, wide: int) -> slice:
        """The elements of so many that a node splits off."""
        count = len(node.outputs)
        sizes = self._numbers(node, "split", 1) or [-(-wide // count)] * count
        at = node.outputs.index(tensor)
        return slice(sum(sizes[:at]), sum(sizes[: at + 1]))

    def _split(self, node: Node, tensor: str) -> Form | None:
        last = self.graph.is_last(node.inputs[0], int(node.attributes.get("axis", 0)))
        part = self._part_of(node, tensor, self.width(node.inputs[0]))
        return self._rows(node, part) if last else None

    def _cut_of(self, node: Node) -> slice | None:
        given = enumerate(("starts", "ends", "axes", "steps"), start=1)
        starts, ends, axes, steps = (self._numbers(node, name, at) for at, name in given)
        if starts is None or ends is None or axes is None or len(axes) != 1:
            return None
        last = self.graph.is_last(node.inputs[0], axes[0])
        return slice(starts[0], ends[0], (steps or [1])[0]) if last else None

    def _slice(self, node: Node, _: str) -> Form | None:
        cut = self._cut_of(node)
        return None if cut is None else self._rows(node, cut)


LinearReader = Callable[[Forms, Node, str], Form | None]
LINEAR: Final[dict[str, LinearReader]] = {
    **dict.fromkeys(DENSE, Forms._dense),
    **dict.fromkeys(("add", "sub", "sum"), Forms._add),
    **dict.fromkeys(("mul", "div"), Forms._mul),
    "neg": lambda forms, node, _: forms.read(node.inputs[0]).times(np.array(-1.0)),
    "concat": Forms._concat,
    "split": Forms._split,
    "slice": Forms._slice,
}
"""Operators whose results are forms."""


# Several axes of features


class _NotFlatError(Exception):
    """A step has what cannot be written with all features on one axis."""


def flat_step(graph: Graph, states: Mapping[str, str]) -> Graph:
    """The graph of a step in which tensors of several axes of features have these side by side.

    What is repeated along an axis, or summed over it, becomes a product with a matrix of zeros and ones. It
    is the same graph if there are no such tensors, or operators for which nothing is known.
    """
    try:
        return _Flat(graph, states).graph()
    except (_NotFlatError, IndexError, ValueError):
        return graph


class _Flat:
    """The shapes of a step's tensors, for one sequence, and its nodes with features on one axis."""

    def __init__(self, graph: Graph, states: Mapping[str, str]) -> None:
        self._graph, self._states, self._forms = graph, states, Forms(graph, states)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._nodes: list[Node] = []
        self._made: dict[tuple[str, bytes], str] = {}

    def graph(self) -> Graph:
        """The graph with features on one axis."""
        graph = self._graph
        for _ in range(2):  # A state has the shape of its new value.
            for node in graph.nodes:
                if not graph.is_constant(node.outputs[0]):
                    self._measure(node)
            self._shapes |= {
                old: self._shapes[new] for old, new in self._states.items() if new in self._shapes
            }
        if all(len(shape) < 3 for shape in self._shapes.values()):
            return graph
        if any(len(self._shapes.get(name, ())) > 2 for name in {*graph.outputs} - {*self._states.values()}):
            raise _NotFlatError
        for node in graph.nodes:
            self._flatten(node)
        known, sizes = {name: ("", self._size(name)) for name in self._shapes}, graph.dimensions
        return replace(graph.with_nodes(self._nodes), dimensions=lambda name: known.get(name) or sizes(name))

    def _shape(self, tensor: str) -> tuple[int, ...] | None:
        if self._graph.is_constant(tensor):
            return np.asarray(self._graph.constant(tensor)).shape
        if tensor in self._shapes or tensor in self._states:
            return self._shapes.get(tensor)
        return (1, self._forms.width(tensor))

    def _size(self, tensor: str) -> int:
        return int(np.prod(self._shape(tensor) or (0,)))

    def _measure(self, node: Node) -> None:
        """Find the shapes of what a node gives."""
        names = [*filter(None, node.inputs)]
        if node.operator == "reshape" and names[0] in self._states and names[0] not in self._shapes:
            self._shapes[names[0]] = (1, int(np.prod(_sizes(self._graph, node)[1:])))
        given = [shape for name in names if (shape := self._shape(name)) is not None]
        operator, rank = operator_of(self._graph, node), max(map(len, given), default=0)
        if rank < 3 and operator not in ("einsum", *_MOVED):
            self._shapes |= {name: (1, self._forms.width(name)) for name in node.outputs if name}
        elif operator in _BY_ELEMENT:
            self._shapes[node.outputs[0]] = np.broadcast_shapes(*given)
        elif len(given) == len(names):
            self._shapes[node.outputs[0]] = self._indices(node)[1]

    def _indices(self, node: Node) -> tuple[list[Indices], tuple[int, ...]]:
        """Where in what a node reads the factors of its products are, and the shape of what it gives.

        The products that are summed are on the last axes.
        """
        operator = operator_of(self._graph, node)
        read = [
            np.arange(np.prod(shape)).reshape(shape) for name in node.inputs if (shape := self._shape(name))
        ]
        if operator in ("einsum", "matmul"):
            equation = str(node.attributes.get("equation", "bik,bkj->bij")).replace(" ", "")
            terms, _, result = equation.partition("->")
            names = terms.split(",")
            summed = "".join(
                dict.fromkeys(letter for letter in terms if letter.isalpha() and letter not in result)
            )
            moving = [
                each
                for each, name in zip(names, node.inputs, strict=False)
                if not self._graph.is_constant(name)
            ]
            if len(names) != len(read) or not result or any(each[:1] != result[:1] for each in moving):
                raise _NotFlatError
            sizes = {
                letter: size
                for each, array in zip(names, read, strict=True)
                for letter, size in zip(each, array.shape, strict=True)
            }
            whole = [sizes[letter] for letter in result + summed]
            found = []
            for each, array in zip(names, read, strict=True):
                order = [letter for letter in result + summed if letter in each]
                if len({*each}) < len(each):
                    raise _NotFlatError
                aligned = array.transpose([each.index(letter) for letter in order])
                aligned = aligned.reshape(
                    [sizes[letter] if letter in each else 1 for letter in result + summed]
                )
                found.append(np.broadcast_to(aligned, whole))
            return found, tuple(whole[: len(result)])
        if operator == "reduce_sum":
            rank, axes = read[0].ndim, self._graph.numbers(node, "axes", 1)
            if not axes or 0 in (gone := sorted(axis % rank for axis in axes)):
                raise _NotFlatError
            kept = [1 if at in gone else size for at, size in enumerate(read[0].shape)]
            if not node.attributes.get("keepdims", 1):
                kept = [size for at, size in enumerate(kept) if at not in gone]
            return [np.moveaxis(read[0], gone, range(rank - len(gone), rank))], tuple(kept)
        if operator not in _MOVED or not read:
            raise _NotFlatError
        moved = _MOVED[operator](read[0], self._graph, node)
        if moved.shape[:1] != (1,):
            raise _NotFlatError
        return [moved], moved.shape

    def _flatten(self, node: Node) -> None:
        """Append a node with all features on one axis."""
        graph, names = self._graph, [name for name in (*node.inputs, *node.outputs) if name]
        if all(len(self._shape(name) or ()) < 3 for name in names) or graph.is_constant(node.outputs[0]):
            self._nodes.append(node)
            return
        shape = self._shapes[node.outputs[0]]
        if operator_of(graph, node) in _BY_ELEMENT:
            inputs = list[str]()
            for name in node.inputs:
                mine = self._shape(name) if name else None
                if mine is None or (graph.is_constant(name) and np.prod(mine) <= 1):
                    inputs.append(name)
                elif len(mine) < len(shape) and not graph.is_constant(name):
                    raise _NotFlatError
                else:
                    indices = np.arange(np.prod(mine)).reshape(mine)
                    inputs.append(self._picked(name, np.broadcast_to(indices, shape)))
            self._nodes.append(replace(node, inputs=tuple(inputs)))
            return
        factors, _ = self._indices(node)
        whole = [self._picked(name, each) for name, each in zip(node.inputs, factors, strict=False)]
        rows, count = self._size(node.outputs[0]), factors[0].size
        product = whole[0]
        if len(whole) > 1:
            product = (
                node.outputs[0] if rows == count else fresh(f"{node.outputs[0]}.products", graph.is_tensor)
            )
            self._nodes.append(
                replace(node, operator="mul", inputs=tuple(whole), outputs=(product,), attributes={})
            )
        if rows < count:
            indices = np.arange(count).reshape(rows, -1)
            self._multiply(product, indices, count, node.outputs[0], node)
        elif len(whole) == 1:
            self._nodes.append(replace(node, operator="identity", inputs=(product,), attributes={}))

    def _multiply(self, tensor: str, chosen: Indices, columns: int, result: str, node: Node) -> None:
        """Append what gives in each row the sum of these columns, ``(rows, count)``."""
        if len(chosen) * columns > _MOST_PICKED:
            raise _NotFlatError
        matrix = np.zeros((len(chosen), columns))
        np.put_along_axis(matrix, chosen, 1.0, axis=1)
        weight = self._graph.constants.add(fresh(f"{result}.matrix", self._graph.is_tensor), matrix)
        self._nodes.append(
            replace(node, operator="linear", inputs=(tensor, weight), outputs=(result,), attributes={})
        )

    def _picked(self, tensor: str, indices: Indices) -> str:
        """Elements of a tensor, one after the other."""
        graph, size, chosen = self._graph, self._size(tensor), indices.ravel()
        if graph.is_constant(tensor):
            value = np.asarray(graph.constant(tensor)).ravel()[chosen]
            return graph.constants.add(fresh(f"{tensor}.flat", graph.is_tensor), value)
        if np.array_equal(chosen, np.arange(size)):
            return tensor
        key = tensor, chosen.tobytes()
        if key not in self._made:
            self._made[key] = fresh(
                f"{tensor}.{SPREAD}", lambda name: graph.is_tensor(name) or name in self._made.values()
            )
            made = Node("linear", (), (), tensor, SPREAD, hidden=True)
            self._multiply(tensor, chosen.reshape(-1, 1), size, self._made[key], made)
        return self._made[key]


def _axes(graph: Graph, node: Node) -> tuple[int, ...]:
    axes = graph.numbers(node, "axes", 1)
    if not axes:
        raise _NotFlatError
    return tuple(axes)


def _sizes(graph: Graph, node: Node) -> list[int]:
    """The sizes that a tensor gets, of one sequence."""
    shape = node.attributes["shape"] if "shape" in node.attributes else graph.numbers(node, "shape", 1)
    maker = None if shape else graph.producer(node.inputs[1])
    if maker is not None and maker.operator == "concat":  # The first is how many sequences there are.
        given = [graph.integers(name) for name in maker.inputs[1:]]
        shape = None if None in given else [1, *(size for sizes in given for size in sizes or ())]
    if not shape or any(not isinstance(size, int) for size in shape[1:]):
        raise _NotFlatError
    return [1, *shape[1:]]


def _flattened(array: Indices, graph: Graph, node: Node) -> Indices:
    given = node.attributes
    if given.get("start", given.get("axis", 1)) != 1 or given.get("end", -1) not in (-1, array.ndim - 1):
        raise _NotFlatError
    return array.reshape(1, -1)


def _transposed(array: Indices, graph: Graph, node: Node) -> Indices:
    swap = node.attributes.get("swap")
    return array.swapaxes(*swap) if swap else array.transpose(node.attributes.get("perm"))


def _sliced(array: Indices, graph: Graph, node: Node) -> Indices:
    names = enumerate(("starts", "ends", "axes", "steps"), start=1)
    starts, ends, axes, steps = (graph.numbers(node, name, at) for at, name in names)
    if starts is None or ends is None or axes is None:
        raise _NotFlatError
    cuts = zip(axes, starts, ends, steps or [1] * len(axes), strict=True)
    for axis, *limits in cuts:
        array = array[(*(slice(None),) * (axis % array.ndim), slice(*limits))]
    return array


_MOVED: Final[dict[str, Callable[[Indices, Graph, Node], Indices]]] = {
    "flatten": _flattened,
    "reshape": lambda array, graph, node: array.reshape(_sizes(graph, node)),
    "select": lambda array, graph, node: array.take(node.attributes["index"], node.attributes["axis"]),
    "slice": _sliced,
    "squeeze": lambda array, graph, node: np.squeeze(array, _axes(graph, node)),
    "transpose": _transposed,
    "unsqueeze": lambda array, graph, node: np.expand_dims(array, _axes(graph, node)),
}
"""Operators that only move elements."""
_MOST_PICKED: Final = 2**24
"""Most numbers of a matrix of zeros and ones."""
_BY_ELEMENT: Final = (
    *ELEMENTWISE,
    "activation",
    "cast",
    "clip",
    "less",
    "lessorequal",
    "greaterorequal",
    "max",
    "min",
    "sum",
)
"""Operators that compute each element by itself."""
