"""Reads a tensor as a sum of products with constant weights: the pre-activation of gates."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.spec.budget import Budget
from rtlstm.spec.errors import ModelError

Floats = NDArray[np.float64]


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

    def _integers(self, node: Node, attribute: str, index: int) -> list[int] | None:
        given = node.attributes.get(attribute)
        if given is not None:
            return [int(item) for item in given]
        return self.graph.integers(node.inputs[index]) if len(node.inputs) > index else None

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

    def _linear(self, node: Node, _: str) -> Linear | None:
        weight = self._constant(node, 1)
        if weight is None or weight.ndim != 2:
            return None
        bias = self._constant(node, 2) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(len(weight))
        return None if bias is None else self._product(node.inputs[0], weight, bias)

    def _gemm(self, node: Node, _: str) -> Linear | None:
        attributes = node.attributes
        weight = self._constant(node, 1)
        if weight is None or weight.ndim != 2 or attributes.get("transA", 0):
            return None
        weight = (weight if attributes.get("transB", 0) else weight.T) * float(attributes.get("alpha", 1.0))
        bias: Floats | None = np.zeros(len(weight))
        if len(node.inputs) > 2 and node.inputs[2]:
            bias = _vector(self._constant(node, 2), len(weight))
        if bias is None:
            return None
        return self._product(node.inputs[0], weight, bias * float(attributes.get("beta", 1.0)))

    def _matmul(self, node: Node, _: str) -> Linear | None:
        weight = self._constant(node, 1)
        if weight is None or weight.ndim != 2:
            return None
        return self._product(node.inputs[0], weight.T, np.zeros(weight.shape[1]))

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
        sizes = self._integers(node, "split", 1) or [-(-rows // parts)] * parts
        position = node.outputs.index(tensor)
        begin = sum(sizes[:position])
        return whole.rows(slice(begin, begin + sizes[position]))

    def _slice(self, node: Node, _: str) -> Linear | None:
        whole = self._known[node.inputs[0]]
        starts, ends = (self._integers(node, name, at) for name, at in (("starts", 1), ("ends", 2)))
        axes, steps = self._integers(node, "axes", 3), self._integers(node, "steps", 4)
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
    "gemm": Linears._gemm,
    "identity": Linears._same,
    "linear": Linears._linear,
    "matmul": Linears._matmul,
    "slice": Linears._slice,
    "split": Linears._split,
}
_MADE_OF = {"add": 2, "identity": 1, "slice": 1, "split": 1}
"""How many of a node's first inputs its reader reads in turn."""
