"""Takes the chosen branches of an ONNX model's conditions into its main graph."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from rtlstm.gen.frontends.arrays import import_extra, listed
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, subgraphs
from rtlstm.spec.errors import ModelError

_BRANCHES = ("then", "else")


def take_branches(model: Any, choices: Sequence[str]) -> tuple[OnnxGraph, tuple[str, ...]]:
    """Replace If nodes of a model, in place; return its graph and notes on what was taken.

    ``choices`` are ``NODE:then`` or ``NODE:else``; the first that matches counts, and in NODE, ``*`` matches
    any text. Conditions that the model's constants decide need no choice. Nodes inside a branch keep their
    names. Other If nodes stay.

    Raises
    ------
    ModelError
        If a choice is not of that form, contradicts a constant, or names no If node.
    """
    wanted = [_parse(choice) for choice in choices]
    notes: list[str] = []
    used: set[str] = set()
    graph = OnnxGraph(model)
    while found := _choices(graph, wanted):
        for position, taken in found:
            node = graph.nodes[position]
            used |= {name for name, _ in wanted if fnmatchcase(graph.label(node), name)}
            notes.append(f"{graph.where(node)}: the {taken} branch was taken")
        _inline(model.graph, dict(found))
        graph = OnnxGraph(model)
    unknown = {name for name, _ in wanted} - used
    if unknown:
        there = listed(graph.label(node) for node in graph.nodes if node.op_type == "If") or "none"
        raise ModelError(
            f"branch must name an If node, but there is no {listed(map(repr, sorted(unknown)))} (any more); "
            f"there are: {there}"
        )
    return graph, tuple(notes)


def _parse(choice: str) -> tuple[str, str]:
    name, _, branch = choice.rpartition(":")
    if not name or branch not in _BRANCHES:
        raise ModelError(f"branch must be NODE:then or NODE:else, not {choice!r}")
    return name, branch


def _choices(graph: OnnxGraph, wanted: Sequence[tuple[str, str]]) -> list[tuple[int, str]]:
    """Return the indices of If nodes to replace, and their branches.

    These are all If nodes whose conditions depend on no other If node, or one that does: another If node
    could decide the condition when its branch is taken.
    """
    ifs = {index: node for index, node in enumerate(graph.nodes) if node.op_type == "If"}
    unsure = graph.descendants(ifs) | ifs.keys()
    decided = {index: _decide(graph, node, wanted) for index, node in ifs.items()}
    found = [(index, taken) for index, taken in decided.items() if taken is not None]
    return [each for each in found if graph.index_of(ifs[each[0]].input[0]) not in unsure] or found[:1]


def _decide(graph: OnnxGraph, node: Any, wanted: Sequence[tuple[str, str]]) -> str | None:
    """The branch of a node to take, or None to leave it."""
    label = graph.label(node)
    choice = next(((name, branch) for name, branch in wanted if fnmatchcase(label, name)), None)
    constant = graph.constant(node.input[0])
    if constant is None:
        return None if choice is None else choice[1]
    if constant.size != 1:
        raise ModelError(
            f"{graph.where(node)}: its condition must be one value, not of shape {constant.shape}; the model "
            "is damaged"
        )
    taken = _BRANCHES[0 if bool(constant) else 1]
    if choice is not None and choice[0] == label and choice[1] != taken:
        raise ModelError(
            f"branch {label}:{choice[1]} cannot be taken: the model's constants decide for {taken}"
        )
    return taken


def _inline(graph: Any, taken: Mapping[int, str]) -> None:
    """Put the nodes of branches in the places of their If nodes, given by index."""
    there = {name for each in graph.node for name in each.output}
    there |= {item.name for item in graph.initializer} | {item.name for item in graph.input}
    nodes: list[Any] = []
    for position, node in enumerate(graph.node):
        nodes += [node] if position not in taken else _branch(graph, node, taken[position], there)
    del graph.node[:]
    graph.node.extend(nodes)


def _branch(graph: Any, node: Any, taken: str, there: set[str]) -> list[Any]:
    """A branch's nodes with names of their own, and its initializers into the graph."""
    onnx = import_extra("onnx", "onnx")
    inner = next(item.g for item in node.attribute if item.name == f"{taken}_branch")
    if len(inner.output) != len(node.output):
        raise ModelError(
            f"{OnnxGraph.where(node)}: its {taken} branch must give {len(node.output)} tensors, not "
            f"{len(inner.output)}; the model is damaged"
        )
    local_names = [name for each in inner.node for name in each.output] + [
        item.name for item in inner.initializer
    ]
    _rename(
        inner, {name: f"{OnnxGraph.label(node)}/{name}" for name in local_names if name and name in there}
    )
    # The branch's outputs get the names that the If node's had.
    links = [
        onnx.helper.make_node("Identity", [source.name], [target], name=f"{target}/{taken}")
        for source, target in zip(inner.output, node.output, strict=True)
        if target
    ]
    graph.initializer.extend(inner.initializer)
    there |= {name for each in inner.node for name in each.output}
    there |= {item.name for item in inner.initializer}
    return [*inner.node, *links]


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename tensors in a graph and in the graphs inside."""
    for item in (*graph.initializer, *graph.output, *graph.value_info):
        item.name = names.get(item.name, item.name)
    for node in graph.node:
        for part in (node.input, node.output):
            for index, name in enumerate(part):
                part[index] = names.get(name, name)
        for inner in subgraphs(node):
            _rename(inner, names)
