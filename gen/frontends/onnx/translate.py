"""Translates an ONNX graph into the graph that is read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import import_extra, listed
from rtlstm.gen.frontends.graph import BY_INDEX, Graph, Node, Words
from rtlstm.gen.frontends.layers import Step, Value
from rtlstm.gen.frontends.loops import LoopError
from rtlstm.gen.frontends.onnx.loops import take_loops
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, captured, kind_of, load_onnx, name_of, subgraphs
from rtlstm.gen.frontends.onnx.quantised import (
    INTEGER_ADVICE,
    input_text,
    is_integer_operator,
    replace_quantisers,
)
from rtlstm.gen.frontends.onnx.recurrent import (
    MAX_SCANS,
    RECURRENT,
    RecurrentNode,
    Scan,
    find_undefined,
    functions_of,
    is_recurrent,
    operator_functions,
)
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.activations.functions import ACTIVATIONS, function
from rtlstm.spec.errors import ConfigurationError, ModelError
from rtlstm.spec.network import Network
from rtlstm.spec.plugins import Registry


def read_onnx(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read an ONNX file; ``report`` records how every node is treated."""
    report.format = "onnx"
    model = load_onnx(path)
    graph, taken = take_branches(model, options.branches)
    unread: list[str] = []
    graph, loops = take_loops(model, graph, unread)
    check_meanings(graph.nodes)
    undefined = find_undefined(graph, model)
    graph, roundings = replace_quantisers(model, graph, options.output, report)
    graph.integer_rows = report.integer_rows
    for note in (*taken, *loops):
        report.note(note)
    try:
        network = read(translate(graph, unread), options.replace(branches=()), report)
    except ModelError as error:
        unrolled = "" if isinstance(error, LoopError) else _unrolled_loop(graph)
        texts = [unrolled, str(error), *unread]
        raise ModelError("; ".join(filter(None, texts))) from None
    if undefined:
        raise ModelError(undefined)
    for one in roundings:
        if report.input in (one.tensor, one.gives):
            report.note(input_text(one))
    return network


_NEWER: Final = (
    ", as PyTorch's newer one does with nn.RNN; export it with dynamo=False, or give the module itself or a "
    ".pt2 file"
)


def _unrolled_loop(graph: OnnxGraph) -> str:
    """Say that the steps of a loop stand one after the other, which nothing else multiplies by one weight."""
    products: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if name_of(node) in ("Gemm", "MatMul") and graph.is_constant(node.input[1]):
            products.setdefault(graph.behind(node.input[1], "Identity", "Transpose"), []).append(index)
    for weight, found in products.items():
        if len(found) > 1 and found[-1] in graph.descendants(found[:1]):
            text = (
                f"{len(found)} nodes multiply with {weight!r}, one after the other: the exporter has "
                "unrolled a loop over the steps"
            )
            newer = any(
                each.key.startswith("pkg.torch.onnx") for each in graph.nodes[found[0]].metadata_props
            )
            return text + _NEWER if newer else text
    return ""


_FLOATS = (1, 10, 11, 16)
"""TensorProto's FLOAT, FLOAT16, DOUBLE and BFLOAT16."""
_PER_AXIS = 13
"""The opset from which Softmax and LogSoftmax work along one axis: before, along it and all that follow."""
_PLAIN: Final = (
    "Abs",
    "Add",
    "Div",
    "Expand",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "Less",
    "LessOrEqual",
    "MatMul",
    "Max",
    "Mean",
    "Min",
    "Mul",
    "Neg",
    "PRelu",
    "Pow",
    "Size",
    "Sub",
    "Sum",
    "Tile",
    "Where",
)
"""Operators without attributes, which have ONNX's names here."""
_OPERATORS: Final[Mapping[str, str]] = {
    **{name: name.lower() for name in _PLAIN},
    "ArgMax": "argmax axis keepdims",
    "AveragePool": "average_pool auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides",
    "BatchNormalization": "batch_norm epsilon momentum training_mode",
    "Cast": "cast round_mode saturate to",
    "Clip": "clip max min",
    "Concat": "concat axis",
    "ConstantOfShape": "filled value",
    "Conv": "conv auto_pad dilations group kernel_shape pads strides",
    "Dropout": "identity ratio seed",
    "Einsum": "einsum equation",
    "Flatten": "flatten axis",
    "Gather": "gather axis",
    "Gemm": "gemm alpha beta transA transB",
    "LayerNormalization": "layer_norm axis epsilon stash_type",
    "LogSoftmax": "log_softmax axis",
    "Pad": "pad mode pads value",
    "RMSNormalization": "layer_norm axis epsilon stash_type",
    "ReduceMax": "reduce_max axes keepdims",
    "ReduceMean": "reduce_mean axes keepdims",
    "ReduceMin": "reduce_min axes keepdims",
    "ReduceProd": "reduce_prod axes keepdims",
    "ReduceSum": "reduce_sum axes keepdims",
    "Reshape": "reshape allowzero",
    "Shape": "shape end start",
    "com.microsoft.SimplifiedLayerNormalization": "layer_norm axis epsilon stash_type",
    "Slice": "slice axes ends starts",
    "Softmax": "softmax axis",
    "Split": "split axis num_outputs split",
    "Squeeze": "squeeze axes",
    "Transpose": "transpose perm",
    "Unsqueeze": "unsqueeze axes",
}
"""ONNX's operators: ours, and attributes that are read, or change nothing when a trained model is used."""
_INCLUDED: Final = [each.onnx for each in ACTIVATIONS.included.values() if each.onnx and each.onnx_operator]
"""Operators of rtlstm's own activation functions."""
_USUAL: Final = {"noop_with_empty_axes": 0, "select_last_index": 0, "spatial": 1}
"""Attributes of any operator that are read with this value alone, their default."""
OFFERED: Final = Registry[Callable[[Step], Value]](
    "ONNX operator", "rtlstm.onnx_operators", taken=(*_OPERATORS, *RECURRENT, "If", *_INCLUDED)
)
"""Operators of other packages: functions from a node to its result.

The name is the operator's; for one of another domain than ONNX's, ``DOMAIN.OPERATOR``.
"""
_STATES = ("Expand", "ConstantOfShape", "Tile", "ReduceProd")
"""Operators that states and sizes alone may have."""


def supported() -> list[str]:
    """The supported operators behind the recurrent ones."""
    classes = {"ArgMax", "LogSoftmax", "Softmax"}
    ours = (name.rpartition(".")[2] for name in _OPERATORS)
    return sorted({*ours, *operator_functions(), *OFFERED} - {*classes, *_STATES, "Shape", "Size"})


def translate(onnx_graph: OnnxGraph, unread: list[str] | None = None) -> Graph:
    """Return the graph to read; ``unread`` gets the reasons why Scan nodes are no cells."""
    if sum(node.op_type == "Scan" for node in onnx_graph.nodes) > MAX_SCANS:
        raise ModelError(f"has more than {MAX_SCANS} Scan nodes; export them as LSTM, GRU or RNN nodes")
    unread = [] if unread is None else unread
    nodes = [node for each in onnx_graph.nodes for node in _translated(onnx_graph, each, unread)]
    return Graph(
        nodes,
        onnx_graph.inputs,
        onnx_graph.outputs,
        onnx_graph.constants,
        words=Words(
            "a recurrent node",
            "a tensor or a node",
            ", ".join(["LSTM, GRU, RNN", *supported()]),
            "an LSTM, GRU or RNN node at the top of its graph, or a Gemm, MatMul or Conv node on the way to "
            "its output",
            split="rtlstm.split(path, x) leaves in ONNX files what the core cannot compute",
        ),
        dimensions=onnx_graph.dimensions,
        folded_dimensions=onnx_graph.folded_dimensions,
        integer_rows=onnx_graph.integer_rows,
        offered=OFFERED,
    )


def _translated(graph: OnnxGraph, node: Any, unread: list[str]) -> Iterable[Node]:
    label, name = graph.label(node), name_of(node)
    attributes = graph.attributes(node)
    inside = list(subgraphs(node))
    make = partial(
        Node,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        label=label,
        kind=kind_of(node),
        noun=" node",
        inner=tuple(dict.fromkeys(captured(node))) if inside else (),
    )
    if is_recurrent(node):
        return [_recurrent(graph, node, attributes, make)]
    if name == "Scan":
        try:
            return Scan(graph, node, translate).nodes()
        except (ModelError, ConfigurationError) as error:
            unread.append(f"{graph.where(node)} is not read: {error}")
    if inside:
        return [make("", attributes={"holds": sum(map(_count, inside))})]
    if name == "com.microsoft.FusedGemm":
        return _fused(graph, node, attributes, make)
    if name in operator_functions():
        read = partial(function, operator_functions()[name], attributes, graph.where(node))
        return [make("activation", attributes={"function": read})]
    if name == "Dropout" and len(node.input) > 2 and node.input[2]:
        training = graph.constant(node.input[2])
        if training is None or np.any(training):
            why = f"{graph.where(node)}: training_mode must be false; export the model for inference"
            return [make("refused", attributes={"why": why})]
    if name == "Gather" and _looks_up(graph, node, attributes):
        return [make("embedding", inputs=tuple(reversed(node.input)))]
    if name in ("GatherElements", "GatherND"):
        return [make("refused", attributes={"why": f"{graph.where(node)} {BY_INDEX}"})]
    if name in _OPERATORS:
        if problem := _ignored(name, attributes):
            return [make("refused", attributes={"why": f"{graph.where(node)}: {problem}"})]
        given = _CHANGES[name](graph, attributes) if name in _CHANGES else attributes
        return [make(_OPERATORS[name].split()[0], attributes=given)]
    if is_integer_operator(name):
        return [make("", attributes={"advice": INTEGER_ADVICE})]
    return [make(name, attributes=attributes)]


def _looks_up(graph: OnnxGraph, node: Any, attributes: Mapping[str, Any]) -> bool:
    """Whether a Gather takes rows of a constant table, by numbers that the model is given or computes."""
    rows, numbers = node.input
    if not graph.is_constant(rows) or graph.is_constant(numbers) or int(attributes.get("axis", 0)):
        return False
    table = graph.constant(rows)
    return table is not None and table.ndim == 2 and table.dtype.kind == "f"


def _ignored(name: str, attributes: Mapping[str, Any]) -> str:
    """Say which attribute is neither read nor without effect; empty if none is."""
    for key, value in attributes.items():
        if key in _USUAL and value != _USUAL[key]:
            return f"attribute {key}={value!r} must be {_USUAL[key]}"
        if key not in (*_OPERATORS[name].split()[1:], *_USUAL):
            return f"attribute {key!r} is not known"
    return ""


def _count(graph: Any) -> int:
    """How many recurrent nodes a graph inside a node has."""
    return sum(is_recurrent(node) + sum(_count(inner) for inner in subgraphs(node)) for node in graph.node)


def _recurrent(graph: OnnxGraph, node: Any, attributes: dict[str, Any], make: Callable[..., Node]) -> Node:
    first = attributes.get("layout", 0) == 1
    made: dict[str, Any] = {
        "layers": lambda: RecurrentNode(graph, node).read(),
        "axes": ("N", "T", "F") if first else ("T", "N", "F"),
        "y_axes": ("N", "T", "D", "F") if first else ("T", "D", "N", "F"),
        "h_axes": ("N", "D", "F") if first else ("D", "N", "F"),
        "why_sequences_first": "has layout 1" if first else "",
        "text": "layout 1" if first else "",
    }
    given = [*node.input, *[""] * 8]
    x, lengths, h, c = given[0], given[4], given[5], given[6]
    return make("recurrent", inputs=(x, h, c, lengths, *given[1:4], *given[7:]), attributes=made)


def _fused(graph: OnnxGraph, node: Any, attributes: dict[str, Any], make: Callable[..., Node]) -> list[Node]:
    """onnxruntime's Gemm with the activation that follows it."""
    operator = str(attributes.get("activation", ""))
    if operator not in operator_functions():
        why = f"{graph.where(node)}: attribute activation={operator!r} is not supported"
        return [make("refused", attributes={"why": why})]
    product = f"{node.output[0]}/product"
    begin = "activation_"
    given = {key.removeprefix(begin): each for key, each in attributes.items() if key.startswith(begin)}
    attributes = {key: each for key, each in attributes.items() if not key.startswith("activation")}
    if problem := _ignored("Gemm", attributes):
        return [make("refused", attributes={"why": f"{graph.where(node)}: {problem}"})]
    read = partial(function, operator_functions()[operator], given, graph.where(node))
    return [
        make("gemm", outputs=(product,), attributes=attributes),
        make("activation", inputs=(product,), attributes={"function": read}, hidden=True),
    ]


def _along_one(graph: OnnxGraph, attributes: dict[str, Any]) -> dict[str, Any]:
    if graph.opset >= _PER_AXIS:
        return {"axis": int(attributes.get("axis", -1))}
    return {"axis": int(attributes.get("axis", 1)), "to_the_end": f"opset {graph.opset}"}


def _padded(given: dict[str, Any]) -> dict[str, Any]:
    """Say in ``pads`` what ``auto_pad`` puts around steps of which none is left out."""
    mode, kernel = given.get("auto_pad", ""), given.get("kernel_shape", ())
    if mode not in ("SAME_UPPER", "SAME_LOWER") or not kernel or {1} != set(given.get("strides", [1])):
        return given
    zeros = [
        gap * (size - 1) for gap, size in zip(given.get("dilations", [1] * len(kernel)), kernel, strict=True)
    ]
    less, more = [each // 2 for each in zeros], [each - each // 2 for each in zeros]
    return given | {"auto_pad": "NOTSET", "pads": less + more if mode == "SAME_UPPER" else more + less}


_CHANGES: dict[str, Callable[[OnnxGraph, dict[str, Any]], dict[str, Any]]] = {
    "ArgMax": lambda _, attributes: {"axis": int(attributes.get("axis", 0))},
    "AveragePool": lambda _, given: {
        "count_include_pad": 0,
        **_padded(given),
        "size": given.get("kernel_shape", [0]),
    },
    "Cast": lambda _, attributes: {"floating": attributes.get("to") in _FLOATS},
    "Conv": lambda _, given: _padded(given),
    "ConstantOfShape": lambda graph, attributes: {
        "value": graph.constants.array(attributes["value"]) if "value" in attributes else np.zeros(1)
    },
    "LogSoftmax": _along_one,
    **dict.fromkeys(
        ("RMSNormalization", "com.microsoft.SimplifiedLayerNormalization"),
        lambda _, given: given | {"centre": False},
    ),
    "Softmax": _along_one,
}
"""Operators whose attributes mean something else in the graph."""


def check_meanings(nodes: Iterable[Any]) -> None:
    """Refuse operators of these nodes that more than one package defines.

    Raises ConfigurationError if a package or this program offers an operator that rtlstm or another one has,
    as an operator or as an activation function.
    """
    for operator in sorted({name_of(node) for node in nodes}):
        OFFERED.check(operator)
        readers = [ACTIVATIONS.label(name) for name in functions_of(operator)]
        taken = operator in _OPERATORS or operator in (*RECURRENT, "If")
        if operator in OFFERED or taken:
            readers.append(OFFERED.label(operator))
        if len(readers) > 1:
            raise ConfigurationError(
                f"ONNX operator {operator!r} is {' and also '.join(readers)}; rename one of "
                "them, or leave it out"
            )


# Chosen branches of conditions, taken into the main graph


_BRANCHES = ("then", "else")


def take_branches(model: Any, choices: Sequence[str]) -> tuple[OnnxGraph, tuple[str, ...]]:
    """Replace If nodes of a model, in place; return its graph and notes on what was taken.

    ``choices`` are ``NODE:then`` or ``NODE:else``; the first that matches counts, and in NODE, ``*`` matches
    any text. Conditions that the model's constants decide need no choice. Nodes inside a branch keep their
    names. Other If nodes stay.

    Raises ModelError if a choice is not of that form, contradicts a constant, or names no If node.
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
    label, local_names = OnnxGraph.label(node), [name for each in inner.node for name in each.output]
    local_names += [item.name for item in inner.initializer]
    _rename(inner, {name: f"{label}/{name}" for name in local_names if name and name in there})
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
