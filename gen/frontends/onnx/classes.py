"""Softmax, LogSoftmax and ArgMax at the end of a graph, which stay on the host."""

from collections.abc import Sequence
from typing import Any

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.classes import host_classes
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph
from rtlstm.gen.frontends.onnx.ops import cut_earlier
from rtlstm.gen.frontends.onnx.recurrent import is_recurrent
from rtlstm.gen.frontends.onnx.start import WEIGHTED
from rtlstm.spec.errors import ModelError

__all__ = ["check_classes", "without_classes"]

_PER_AXIS = 13
"""The opset from which Softmax and LogSoftmax work along one axis: before, along it and all that follow."""


def without_classes(graph: OnnxGraph, targets: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the tensors before the operators that make classes of scores, and the indices of these."""
    found, left = [], []
    for target in targets:
        while (node := _behind_copies(graph, target)) is not None and host_classes(node.op_type):
            before = [graph.nodes[index] for index in graph.ancestors([node.input[0]])]
            if not any(is_recurrent(one) or one.op_type in WEIGHTED for one in before):
                break
            left.append(graph.index_of(node.output[0]))
            target = node.input[0]
        found.append(target)
    return list(dict.fromkeys(found)), left


def _behind_copies(graph: OnnxGraph, tensor: str) -> Any | None:
    """The node that gives a tensor, or what it is a copy of."""
    node = graph.producer(tensor)
    while node is not None and node.op_type == "Identity":
        node = graph.producer(node.input[0])
    return node


def check_classes(graph: OnnxGraph, node: Any, axes: Axes) -> None:
    """Check that an operator works over the features.

    Raises
    ------
    ModelError
        If it works along another axis, or along several.
    """
    where, rank = graph.where(node), len(axes.tags)
    per_axis = graph.opset >= _PER_AXIS or node.op_type == "ArgMax"
    default = 0 if node.op_type == "ArgMax" else -1 if per_axis else 1
    axis = int(graph.attributes(node).get("axis", default))
    if not per_axis and axis not in (-1, rank - 1):
        raise ModelError(
            f"{where} works along axis {axis} and those behind it (opset {graph.opset}); it must work over "
            f"the features; {cut_earlier()}"
        )
    axes.expect_features_at(axis, where)
