"""Finds where the core's part of an ONNX graph begins."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rtlstm.gen.frontends.arrays import listed
from rtlstm.gen.frontends.describe import one_input
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, subgraphs
from rtlstm.gen.frontends.onnx.recurrent import is_recurrent
from rtlstm.spec.errors import ModelError

__all__ = ["WEIGHTED", "find_input", "find_start", "name_condition", "unrolled_loop"]

WEIGHTED = ("Conv", "ConvInteger", "Gemm", "MatMul", "MatMulInteger")
"""Operators that become dense layers and convolutions."""


def find_start(graph: OnnxGraph, wanted: str | None, needed: set[int], targets: Sequence[str]) -> list[int]:
    """Indices of the recurrent nodes to begin with, which all read the same tensor.

    There are none if the graph has no recurrent node, but others with weights: then the network begins at the
    model's input.

    Raises
    ------
    ModelError
        If there are neither, or it is not clear which to begin with.
    """
    nodes = graph.nodes
    found = [index for index, node in enumerate(nodes) if is_recurrent(node)]
    if not found:
        inside = any(map(_count, (inner for node in nodes for inner in subgraphs(node))))
        if wanted is not None or inside or not any(nodes[index].op_type in WEIGHTED for index in needed):
            raise ModelError(_none(graph))
        return []
    names = listed(graph.label(nodes[index]) for index in found)
    if wanted is not None:
        chosen = [index for index in found if wanted in (nodes[index].name, *nodes[index].output)]
        if not chosen:
            raise ModelError(f"`lstm` must name a recurrent node, but there is no {wanted!r}; it has {names}")
        return chosen[:1]
    used = [index for index in found if index in needed]
    if not used:
        raise ModelError(f"output {listed(targets)} does not depend on a recurrent node; it has {names}")
    first = [index for index in used if graph.ancestors(nodes[index].input).isdisjoint(found)]
    if len({nodes[index].input[0] for index in first}) > 1:
        names = listed(graph.label(nodes[index]) for index in first)
        raise ModelError(
            f"LSTM nodes must follow one another, but these stand side by side: {names}; "
            "choose one as `lstm` and, if needed, an end as `output`"
        )
    return first


def find_input(graph: OnnxGraph, needed: set[int]) -> str:
    """Return the one input of the model that the needed nodes read.

    Raises
    ------
    ModelError
        If there are several, or none.
    """
    read: set[str] = {name for index in needed for name in graph.nodes[index].input if name in graph.inputs}
    if len(read) != 1:
        names = listed(sorted(read))
        raise ModelError(one_input(f"the layers read {len(read)} inputs of the model: {names}"))
    return read.pop()


def unrolled_loop(graph: OnnxGraph) -> str:
    """Say that the steps of a loop stand one after the other, which nothing else multiplies by one weight."""
    products: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.op_type in ("Gemm", "MatMul") and graph.is_constant(node.input[1]):
            weight, before = node.input[1], graph.producer(node.input[1])
            while before is not None and before.op_type in ("Identity", "Transpose"):
                weight, before = before.input[0], graph.producer(before.input[0])
            products.setdefault(weight, []).append(index)
    for weight, found in products.items():
        if len(found) > 1 and found[-1] in graph.descendants(found[:1]):
            return (
                f"{len(found)} nodes multiply with {weight!r}, one after the other: the exporter has "
                "unrolled a loop over the steps, as PyTorch's newer one does with nn.RNN; export it with "
                "dynamo=False, or give the module itself or a .pt2 file"
            )
    return ""


def _none(graph: OnnxGraph) -> str:
    nodes = graph.nodes
    operators = listed(f"{name} ({count})" for name, count in Counter(n.op_type for n in nodes).most_common())
    text = (
        "must have an LSTM, GRU or RNN node at the top of its graph, or a Gemm, MatMul or Conv node on the "
        "way to its output, but there is none in it"
    )
    holders = [node for node in nodes if any(map(_count, subgraphs(node)))]
    if holders:
        inner = sum(_count(sub) for node in holders for sub in subgraphs(node))
        text += f" ({inner} inside {name_condition(graph, holders[0])})"
    return f"{text}; it has {operators}"


def _count(graph: Any) -> int:
    return sum(is_recurrent(node) + sum(_count(inner) for inner in subgraphs(node)) for node in graph.node)


def name_condition(graph: OnnxGraph, node: Any) -> str:
    """Name a node with graphs inside, and say what to do about it."""
    where, label = graph.where(node), graph.label(node)
    if node.op_type != "If":
        return f"{where}, which is not supported; export the model without it"
    cause = graph.producer(node.input[0])
    condition = repr(node.input[0]) if cause is None else f"{node.input[0]!r}, of {graph.where(cause)}"
    return (
        f"{where}, whose condition is {condition}; choose a branch with "
        f"`branches={(f'{label}:then',)!r}` or :else"
    )
