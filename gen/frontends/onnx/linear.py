"""Reads an ONNX tensor as a sum of products with constant weights: the pre-activation of gates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph

__all__ = ["Linear", "read_linear"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Linear:
    """``sum of weight @ tensor, + bias``: a weight ``(rows, columns)`` for each tensor, and ``(rows,)``."""

    terms: dict[str, Floats]
    bias: Floats

    def rows(self, chosen: slice) -> "Linear":
        """Return some of the rows."""
        return Linear({name: weight[chosen] for name, weight in self.terms.items()}, self.bias[chosen])


def read_linear(graph: OnnxGraph, tensor: str) -> Linear | None:
    """Read a tensor with its rows on the last axis; None if it is not such a sum."""
    # Inputs come first, without recursion: chains may be longer than Python's stack, and may join again.
    known, waiting = graph.linears, [tensor]
    while waiting:
        name = waiting[-1]
        node = graph.producer(name)
        reader = None if node is None or node.domain not in ("", "ai.onnx") else _READERS.get(node.op_type)
        made_of = [] if node is None or reader is None else node.input[: _MADE_OF.get(node.op_type, 0)]
        missing = [part for part in made_of if part not in known]
        waiting += missing
        if not missing:
            waiting.pop()
            if name not in known:
                known[name] = None if reader is None else reader(graph, node, name)
    found: Linear | None = known[tensor]
    return found


def _constant(graph: OnnxGraph, node: Any, index: int) -> Floats | None:
    value = graph.constant(node.input[index]) if len(node.input) > index and node.input[index] else None
    if value is None or value.dtype.kind != "f":
        return None
    graph.budget.take(value.shape, f"the constant {node.input[index]!r}")
    return np.asarray(value, dtype=np.float64)


def _vector(value: Floats | None, rows: int) -> Floats | None:
    """A constant that is one number for each row, or for all."""
    if value is None or value.size not in (1, rows) or value.shape[-1:] not in ((), (value.size,)):
        return None
    return np.broadcast_to(value.reshape(-1), (rows,))


def _integers(graph: OnnxGraph, node: Any, attribute: str, index: int) -> list[int] | None:
    given = graph.attributes(node).get(attribute)
    if given is not None:
        return [int(item) for item in given]
    return graph.integers(node.input[index]) if len(node.input) > index else None


def _is_last(graph: OnnxGraph, tensor: str, axis: int) -> bool:
    rank = len(graph.shape(tensor)) or 2  # of a cell that handles one step
    return axis in (-1, rank - 1)


def _product(graph: OnnxGraph, tensor: str, weight: Floats, bias: Floats) -> Linear | None:
    """Read a product with a tensor, or with a concatenation of two."""
    node = graph.producer(tensor)
    if node is None or node.op_type != "Concat":
        return Linear({tensor: weight}, bias)
    known = [(graph.shape(name) or (None,))[-1] for name in node.input]
    rest = weight.shape[1] - sum(width or 0 for width in known)
    widths = [rest if width is None else width for width in known]
    if known.count(None) > 1 or min(widths) < 1 or sum(widths) != weight.shape[1]:
        return None
    if len(set(node.input)) < len(node.input):
        return None
    ends = np.cumsum(widths)[:-1]
    return Linear(dict(zip(node.input, np.split(weight, ends, axis=1), strict=True)), bias)


def _gemm(graph: OnnxGraph, node: Any, _: str) -> Linear | None:
    attributes = graph.attributes(node)
    weight = _constant(graph, node, 1)
    if weight is None or weight.ndim != 2 or attributes.get("transA", 0):
        return None
    weight = (weight if attributes.get("transB", 0) else weight.T) * float(attributes.get("alpha", 1.0))
    bias: Floats | None = np.zeros(len(weight))
    if len(node.input) > 2 and node.input[2]:
        bias = _vector(_constant(graph, node, 2), len(weight))
    if bias is None:
        return None
    return _product(graph, node.input[0], weight, bias * float(attributes.get("beta", 1.0)))


def _matmul(graph: OnnxGraph, node: Any, _: str) -> Linear | None:
    weight = _constant(graph, node, 1)
    if weight is None or weight.ndim != 2:
        return None
    return _product(graph, node.input[0], weight.T, np.zeros(weight.shape[1]))


def _add(graph: OnnxGraph, node: Any, _: str) -> Linear | None:
    first, second = (read_linear(graph, name) for name in node.input)
    if first is None or second is None:
        known, position = (first, 1) if first is not None else (second, 0)
        if known is None:
            return None
        shift = _vector(_constant(graph, node, position), len(known.bias))
        return None if shift is None else Linear(known.terms, known.bias + shift)
    if len(first.bias) != len(second.bias):
        return None
    terms = dict(first.terms)
    for name, weight in second.terms.items():
        if name in terms:
            graph.budget.take(weight.shape, f"the sum of weights of {name!r}")
            terms[name] = terms[name] + weight
        else:
            terms[name] = weight
    return Linear(terms, first.bias + second.bias)


def _split(graph: OnnxGraph, node: Any, tensor: str) -> Linear | None:
    whole = read_linear(graph, node.input[0])
    axis = int(graph.attributes(node).get("axis", 0))
    if whole is None or not _is_last(graph, node.input[0], axis):
        return None
    rows, parts = len(whole.bias), len(node.output)
    sizes = _integers(graph, node, "split", 1) or [-(-rows // parts)] * parts
    position = list(node.output).index(tensor)
    begin = sum(sizes[:position])
    return whole.rows(slice(begin, begin + sizes[position]))


def _slice(graph: OnnxGraph, node: Any, _: str) -> Linear | None:
    whole = read_linear(graph, node.input[0])
    starts, ends = (_integers(graph, node, name, at) for name, at in (("starts", 1), ("ends", 2)))
    axes, steps = _integers(graph, node, "axes", 3), _integers(graph, node, "steps", 4)
    if whole is None or starts is None or ends is None or axes is None or len(axes) != 1:
        return None
    if not _is_last(graph, node.input[0], axes[0]) or steps not in (None, [1]):
        return None
    return whole.rows(slice(starts[0], ends[0]))


_READERS: dict[str, Callable[[OnnxGraph, Any, str], Linear | None]] = {
    "Add": _add,
    "Gemm": _gemm,
    "Identity": lambda graph, node, _: read_linear(graph, node.input[0]),
    "MatMul": _matmul,
    "Slice": _slice,
    "Split": _split,
}
_MADE_OF = {"Add": 2, "Identity": 1, "Slice": 1, "Split": 1}
"""How many of a node's first inputs its reader reads in turn."""
