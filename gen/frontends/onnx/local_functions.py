"""Inlines an ONNX model's own functions."""

from collections.abc import Iterator
from typing import Any

from rtlstm.gen.frontends.arrays import first_line, import_extra
from rtlstm.spec.errors import ModelError

__all__ = ["inline_functions", "subgraphs"]

_MAX_NODES = 50_000
"""Most nodes of a graph with its functions inlined: n functions that each call the next twice make 2^n."""
_MAX_DEPTH = 32
_TOO_DEEP = (
    f"must have functions that call others at most {_MAX_DEPTH} deep; export the model with its "
    "functions inlined"
)

_Key = tuple[str, str, str]


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs inside a control-flow node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def inline_functions(model: Any) -> Any:
    """Return the model without functions of its own.

    Raises
    ------
    ModelError
        If functions call themselves, or the graph would have too many nodes.
    """
    _Sizes(model.functions).check(model.graph)
    if not model.functions:
        return model
    # A module of its own, which `import onnx` need not bring along.
    inliner = import_extra("onnx.inliner", "onnx")
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # For damaged functions, the library raises errors of several kinds.
        raise ModelError(f"has functions that onnx cannot inline: {first_line(error)}") from None


class _Sizes:
    """Counts nodes as they will be with all functions inlined, without inlining them."""

    def __init__(self, functions: Any) -> None:
        self._functions = {(item.domain, item.name, item.overload): item for item in functions}
        self._known: dict[_Key, tuple[int, int]] = {}
        self._open: list[_Key] = []

    def check(self, graph: Any) -> None:
        """Refuse functions that never end, and graphs that would be too large."""
        size, depth = self._measure(graph)
        for key in self._functions:
            self._call(key)
        if depth > _MAX_DEPTH:
            raise ModelError(_TOO_DEEP)
        if size > _MAX_NODES:
            raise ModelError(
                f"must have at most {_MAX_NODES:,} nodes, its functions inlined, but has {size:,}; export "
                "the part around the LSTM alone"
            )

    def _measure(self, graph: Any) -> tuple[int, int]:
        """Nodes of a graph or function, with those of the graphs inside, and how deep functions nest."""
        found = [self._node(node) for node in graph.node]
        return sum(size for size, _ in found), max((depth for _, depth in found), default=0)

    def _node(self, node: Any) -> tuple[int, int]:
        key = (node.domain, node.op_type, node.overload)
        if key in self._functions:
            size, depth = self._call(key)
            return size, depth + 1
        inner = [self._measure(graph) for graph in subgraphs(node)]
        return 1 + sum(size for size, _ in inner), max((depth for _, depth in inner), default=0)

    def _call(self, key: _Key) -> tuple[int, int]:
        if key in self._open:
            raise ModelError(f"has a function {key[1]!r} that calls itself; export the model again")
        if len(self._open) > _MAX_DEPTH:
            raise ModelError(_TOO_DEEP)
        if key not in self._known:
            self._open.append(key)
            self._known[key] = self._measure(self._functions[key])
            self._open.pop()
        return self._known[key]
