"""Whole numbers that a model computes from the sizes of its tensors, for a reshape."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.gen.frontends.sizes import Size, axis_sizes, product

_PASS = ("cast", "identity", "reshape", "squeeze", "unsqueeze")
_MAX_RANK = 64
_Numbers = tuple[Size, ...]


class KnownSizes:
    """What is known of tensors that hold sizes, collected node by node in the graph's order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._measured: dict[str, _Numbers] = {}
        self._shown: dict[str, Size] = {}
        self._input = ""
        self._input_axes = Axes((), 0)

    def begin(self, tensor: str, axes: Axes) -> None:
        """The core's input, whose declared sizes are numbers or names."""
        self._input, self._input_axes = tensor, axes

    def made(self, node: Node) -> bool:
        """Whether a node gave sizes."""
        return any(name in self._measured for name in node.outputs)

    def measure(self, node: Node, axes: Axes | None) -> None:
        """Find a node's results, if they are sizes; ``axes`` are its input's, if the core computes that."""
        numbers: _Numbers | None = None
        if node.operator in ("shape", "size"):
            numbers = self._shape(node, axes)
        elif node.operator in (*_PASS, *_OPERATORS) and any(name in self._measured for name in node.inputs):
            given = [self.of(name) if name else () for name in node.inputs]
            numbers = given[0] if node.operator in _PASS else _OPERATORS[node.operator](self, node, given)
        if numbers is not None and len(node.outputs) == 1 and all(map(_small, numbers)):
            self._measured[node.outputs[0]] = numbers

    def of(self, tensor: str) -> _Numbers | None:
        """Return a tensor of whole numbers, row by row, constant or computed from sizes; None if neither."""
        if tensor in self._measured:
            return self._measured[tensor]
        value = self._graph.constant(tensor)
        if value is None or value.size > _MAX_RANK or value.dtype.kind not in "iu":
            return None
        return tuple(Size(int(item)) for item in value.reshape(-1))

    def known(self, tensor: str, axes: Axes) -> Mapping[str, Size]:
        """Return the values of named sizes that follow from the declared sizes of input and tensor."""
        shown = dict(axes.shown)
        found: dict[str, Size] = {}
        names: dict[str, set[str]] = {}
        for name, tags in ((self._input, self._input_axes.tags), (tensor, axes.tags)):
            for tag, declared in zip(tags, self._graph.dimensions(name), strict=False):
                root = shown.get(tag, tag)
                if isinstance(declared, int):
                    found.setdefault(tag, Size(declared))
                    if root not in ("F", "M"):
                        found.setdefault(root, Size(declared))
                elif declared and root[0] != "M":
                    names.setdefault(declared, set()).add(root)
        once = {f"size {name}": Size(1, tuple(roots)) for name, roots in names.items() if len(roots) == 1}
        return {**once, **found}

    def _shape(self, node: Node, axes: Axes | None) -> _Numbers | None:
        tensor = node.inputs[0]
        numbers: _Numbers
        if axes is not None and not axes.lost:
            numbers = tuple(axis_sizes(axes.tags, axes.features))
            self._shown |= {old: Size(1, (new,)) for old, new in axes.shown if new != "F"}
        else:
            declared = self._graph.dimensions(tensor)
            if not declared:
                return None
            numbers = tuple(
                Size(size) if isinstance(size, int) else Size(1, (f"size {size or f'{at} of {tensor}'}",))
                for at, size in enumerate(declared)
            )
        if node.operator == "size":
            return (product(numbers),)
        attributes = node.attributes
        return numbers[attributes.get("start", 0) : attributes.get("end")]

    def _slice(self, node: Node, given: "Sequence[_Numbers | None]") -> _Numbers | None:
        attributes = node.attributes
        limits = [given[at] if len(given) > at else _whole(attributes.get(name))
                  for at, name in ((1, "starts"), (2, "ends"))]  # fmt: skip
        stride = given[4] if len(given) > 4 and given[4] else (Size(1),)
        if given[0] is None or any(limit is None or len(limit) != 1 for limit in (*limits, stride)):
            return None
        (start,), (end,), (step,) = limits[0] or (), limits[1] or (), stride
        if start.names or end.names or step.names or not step.number:
            return None
        return given[0][start.number : end.number : step.number]

    def _gather(self, node: Node, given: "Sequence[_Numbers | None]") -> _Numbers | None:
        numbers, chosen = given
        if numbers is None or chosen is None:
            return None
        inside = all(not at.names and -len(numbers) <= at.number < len(numbers) for at in chosen)
        return tuple(numbers[at.number] for at in chosen) if inside else None

    def _concat(self, node: Node, given: "Sequence[_Numbers | None]") -> _Numbers | None:
        parts = [part for part in given if part is not None]
        whole = len(parts) == len(given) and sum(map(len, parts)) <= _MAX_RANK
        return tuple(size for part in parts for size in part) if whole else None

    def _sum(self, node: Node, given: "Sequence[_Numbers | None]") -> _Numbers | None:
        """Sums and differences, of known numbers alone."""
        pairs = _pairs(given)
        if pairs is None or any(size.names for pair in pairs for size in pair):
            return None
        sign = 1 if node.operator == "add" else -1
        return tuple(Size(one.number + sign * other.number) for one, other in pairs)

    def _multiply(self, node: Node, given: "Sequence[_Numbers | None]") -> _Numbers | None:
        pairs = _pairs(given)
        return None if pairs is None else tuple(one.times(other) for one, other in pairs)

    def _divide(self, node: Node, given: "Sequence[_Numbers | None]") -> _Numbers | None:
        pairs = _pairs(given)
        # The same size may have been read before and after a layer determined its axis.
        known = [(one.resolved(self._shown), other.resolved(self._shown)) for one, other in pairs or ()]
        quotients = [
            one.over(other)
            if one.names or other.names or not other.number
            else Size(one.number // other.number)
            for one, other in known
        ]
        found = tuple(size for size in quotients if size is not None)
        return None if pairs is None or len(found) < len(quotients) else found

    def _product(self, node: Node, given: "Sequence[_Numbers | None]") -> _Numbers | None:
        return None if given[0] is None else (product(given[0]),)


def _small(size: Size) -> bool:
    """Whether a number can be a tensor's size; chains of products would grow without bound."""
    return abs(size.number) < 2**63 and len(size.names) <= _MAX_RANK


def _whole(values: Any) -> _Numbers | None:
    return None if values is None else tuple(Size(int(value)) for value in values)


def _pairs(given: "Sequence[_Numbers | None]") -> list[tuple[Size, Size]] | None:
    """Return two lists of numbers with equal lengths; one of them may be a single number."""
    first, second = given
    if first is None or second is None or not (1 in (len(first), len(second)) or len(first) == len(second)):
        return None
    count = math.lcm(len(first), len(second))
    return list(zip(first * (count // len(first)), second * (count // len(second)), strict=True))


_OPERATORS: dict[str, Callable[[KnownSizes, Node, "Sequence[_Numbers | None]"], _Numbers | None]] = {
    "add": KnownSizes._sum,
    "concat": KnownSizes._concat,
    "div": KnownSizes._divide,
    "gather": KnownSizes._gather,
    "mul": KnownSizes._multiply,
    "reduce_prod": KnownSizes._product,
    "slice": KnownSizes._slice,
    "sub": KnownSizes._sum,
}
