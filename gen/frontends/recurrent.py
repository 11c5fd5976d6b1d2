"""Recurrent nodes: their layers, the axes of their results, their initial states and lengths."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, fresh
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.flow import Flow, LayerState
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent
from rtlstm.gen.frontends.layers import WEIGHTED, Known, State, Step, Value
from rtlstm.gen.frontends.reading import OWN_STATE, directions_of
from rtlstm.spec.activations.functions import SIGMOID, TANH, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import (
    Bidirectional,
    CellLayer,
    Dense,
    Gru,
    Layer,
    Lstm,
    LstmNorms,
    Norm,
    PseudoLayer,
    Rnn,
)

_ROWS = ("N", "F")
"""The axes of a final state by default."""
_REPEATS = ("identity", "cast", "expand", "squeeze", "unsqueeze", "tile")
_MOVES = (*_REPEATS, "slice", "split", "reshape", "transpose", "gather", "select")
"""Operators through which a state is followed; :data:`_REPEATS` keep what each sequence begins in."""
_CLEARS = ("mul", "where", "masked_fill")
"""Kinds of operators that clear a given state where an episode begins."""


@dataclass(frozen=True, eq=False)
class Applied:
    """The results of a node, one for each output; its role in the report, and notes for the user."""

    outputs: tuple[Known | None, ...]
    role: Any
    why: str = ""
    notes: tuple[str, ...] = ()
    layers: tuple[tuple[str, str], ...] = ()
    """Name and description of each layer, of a node that has several."""
    states: tuple[str, ...] = ()
    """Inputs of the model in which the layers begin."""


def apply_recurrent(step: Step, value: Value, cut: str) -> Applied:
    """Append a node's layers; ``cut`` is the advice to end before what reads the final c.

    Raises ModelError if it cannot read the value, or its weights, states or lengths are refused.
    """
    node, where, attributes = step.node, step.where, step.node.attributes
    read: Recurrent = attributes["layers"]()
    notes = list(read.notes)
    layers = read.layers
    value = _sequence(step, value, layers[0].inputs)
    flow = value.flow
    for layer in layers:
        flow = flow.recurrent(layer, where)
    problems: list[str] = []
    states: list[str] = []
    begins = _begins(step, layers, notes, problems, states)
    problems += _lengths(step, value, notes)
    if problems:
        raise ModelError(f"{where}: " + "; ".join(problems))
    if begins:
        flow = flow.beginning(begins)
    if "T" in value.axes.single or "T" not in attributes["axes"]:
        notes.append(f"{where} computes one step: the core keeps its state from step to step")
    texts = []
    for layer in layers:
        parts = (f"{layer.inputs} -> {layer.outputs}", layer_options(layer), attributes.get("text"))
        texts.append((layer.name, ", ".join(filter(None, parts))))
    several = tuple(texts) if len(layers) > 1 else ()
    outputs = _results(step, value, flow, layers, cut)
    outputs += outputs[-1:] * (len(node.outputs) - len(outputs))  # states of directions alone
    return Applied(outputs[: len(node.outputs)], "core", texts[0][1], tuple(notes), several, tuple(states))


def _sequence(step: Step, value: Value, inputs: int) -> Value:
    """The value as the node reads it, with its axes as the layers show them."""
    where, axes = step.where, tuple(step.node.attributes["axes"])
    if value.padded:
        raise ModelError(
            f"{where} reads sequences that {value.padded} padded, and would go on through the padding; "
            "pack them again, with torch.nn.utils.rnn.pack_padded_sequence"
        )
    if value.extra:
        raise ModelError(f"{where} reads steps that a convolution padded; drop the last ones first")
    if {"L", "S"} & set(value.axes.tags):
        raise ModelError(f"{where} must read every step of a sequence, not final states")
    if "T" not in axes and (value.axes.last_step or value.axes.first_step):
        raise ModelError(f"{where} must read every step of a sequence, not one of them")
    if value.packed:
        axes = ("T", "N", "F")
    return replace(value, axes=value.axes.settle(axes, inputs, where), state="")


def _results(
    step: Step, value: Value, flow: Flow, layers: Sequence[Layer], cut: str
) -> tuple[Known | None, ...]:
    """Every step's output, the final h and the final c."""
    node, where, last = step.node, step.where, layers[-1]
    attributes = node.attributes
    both, of_one = isinstance(last, Bidirectional), directions_of(last)[0]
    apart = 2 if isinstance(last, Bidirectional) and last.merge == "concat" else 1
    reverse = not both and of_one.reverse and not of_one.reversed_output

    def axes(wanted: Sequence[str], tag: str) -> Axes:
        split = "D" in wanted
        tags = tuple(tag if one == "D" else one for one in wanted)
        features = (flow.outputs or 0) // (apart if split else 1)
        return Axes(tags, features, shown=value.axes.shown, single=value.axes.single)

    y_axes = ("T", "N", "F") if value.packed else attributes.get("y_axes", attributes["axes"])
    packed, tag = where if value.packed else "", "B" if both else "D"
    y = replace(value, flow=flow, axes=axes(y_axes, tag), packed=packed)
    one_step = "T" not in attributes["axes"]
    if len(layers) > 1:
        tag = "S" if both else "L"
    final = axes(attributes.get("h_axes", _ROWS), tag)
    if not one_step:
        final = replace(final, last_step=not reverse, first_step=reverse)
    _, h, memory = [*node.outputs, "", ""][:3]
    state = "" if one_step or attributes.get("h_is_output") else f"{where}: the final state h ({h!r})"
    hidden = Value(flow.final_states(), final, state=state)
    text = (
        f"{where}: the final state c ({memory!r}) is read by {{reader}}, but the core gives it only as state"
        f"; {cut}"
    )
    return y, hidden, State(text, flow)


# Where states and lengths come from


@dataclass(frozen=True)
class _Source:
    """What a state comes from: an input of the model, or a constant, as ``array``."""

    name: str
    array: Floats | None
    moved: bool = False


def trace_state(graph: Graph, tensor: str) -> str:
    """Return 'zeros', or the name of the model's input that a state comes from.

    Raises ModelError if it is anything else; the message says what.
    """
    found = _trace(graph, tensor)
    if found.array is None:
        return found.name
    if not found.array.any():
        return "zeros"
    raise ModelError(f"is the constant {found.name!r}, which is not zero")


def reset_advice(graph: Graph, state: str) -> str:
    """Return what to do instead, where a state that is computed is a given one times a mask; else empty."""
    node = graph.producer(graph.behind(state, *_MOVES))
    if node is None or node.kind.lower().rstrip("_") not in _CLEARS:
        return ""
    given = [name for name in node.inputs if graph.behind(name, *_MOVES) in graph.inputs]
    if not any(_is_mask(graph, other, name) for name in given for other in node.inputs):
        return ""
    return (
        f"if {node.where} clears the state where an episode begins, leave that out of the model, and reset "
        "the stream there (Stream.reset)"
    )


def _is_mask(graph: Graph, tensor: str, state: str) -> bool:
    """Whether a tensor is made of inputs, not of a state, and no layer computes it."""
    makers = [graph.nodes[at] for at in graph.ancestors([tensor])]
    read = {name for node in makers for name in node.inputs} | {tensor}
    computed = any(node.operator in ("recurrent", *WEIGHTED) for node in makers)
    return not computed and graph.behind(state, *_MOVES) not in read and not read.isdisjoint(graph.inputs)


def encoder_of(graph: Graph, node: Node) -> Node | None:
    """The recurrent node whose final state a node begins in; None if it begins otherwise."""
    for tensor in node.inputs[1:3]:
        maker = graph.producer(graph.behind(tensor, *_MOVES)) if tensor else None
        one_of_several = maker is not None and maker.label != node.label and "T" in node.attributes["axes"]
        if maker is not None and one_of_several and maker.operator == "recurrent":
            return maker
    return None


def _trace(graph: Graph, tensor: str) -> _Source:
    moved = False
    while tensor not in graph.inputs:
        node = graph.producer(tensor)
        value = graph.constant(tensor)
        if value is None and node is not None and node.operator == "filled":
            value = np.asarray(node.attributes["value"])
        if value is not None:
            return _Source(tensor, np.asarray(value, dtype=np.float64), moved)
        if node is None:
            raise ModelError(f"is {tensor!r}, which nothing computes")
        if node.operator not in _MOVES:
            raise ModelError(f"is computed by {node.where}")
        moved = moved or node.operator not in _REPEATS
        tensor = node.inputs[0]
    return _Source(tensor, None)


def _begins(
    step: Step, layers: Sequence[Layer], notes: list[str], problems: list[str], states: list[str]
) -> list[tuple[LayerState, ...]]:
    """The states in which the layers begin, if they are learned; empty for zeros and for a caller's.

    States that the driver gives go to ``notes``, what is refused to ``problems``, the model's inputs that are
    states to ``states``.
    """
    found: dict[str, _Source] = {}
    resets = ""
    first = directions_of(layers[0])[0]
    for at, name, size in ((1, "initial_h", first.outputs), (2, "initial_c", getattr(first, "units", 0))):
        if not step.has(at):
            continue
        tensor = step.node.inputs[at]
        try:
            source = _trace(step.graph, tensor)
            if source.array is not None and source.array.any() and source.moved:
                raise ModelError(f"is computed of the constant {source.name!r}, which is not zero")
        except ModelError as error:
            problems.append(
                f"input {name} {error}; it must be absent, zero, learned, or an input of the model "
                "(give a state to the driver when running)"
            )
            resets = resets or reset_advice(step.graph, tensor)
            continue
        array = source.array
        shape = step.graph.shape(tensor) if array is None or array.ndim < 2 else array.shape
        if step.node.attributes.get("unchecked_states") and shape[-1:] not in ((), (None,), (size,)):
            problems.append(f"input {name} ({tensor!r}) must have {size} values, not {shape[-1]}")
            continue
        found[name] = source
    for tensor in dict.fromkeys(source.name for source in found.values() if source.array is None):
        states.append(tensor)
        named = " and ".join(name for name, source in found.items() if source.name == tensor)
        notes.append(
            f"{step.where}: {named} {'are' if ' ' in named else 'is'} the model's input {tensor!r}: give the "
            "state to the driver at run time"
        )
    problems += [resets] if resets else []
    arrays = {name: source.array for name, source in found.items() if source.array is not None}
    if problems or not any(array.any() for array in arrays.values()):
        return []
    if len(arrays) < len(found):
        problems.append("a part of its initial state is learned, another an input of the model")
        return []
    try:
        return _learned(step, layers, arrays, notes)
    except ModelError as error:
        problems.append(str(error))
        return []


def _learned(
    step: Step, layers: Sequence[Layer], arrays: dict[str, Floats], notes: list[str]
) -> list[tuple[LayerState, ...]]:
    both = [directions_of(layer) for layer in layers]
    directions: list[Any] = [one for each in both for one in each]
    axes = tuple(step.node.attributes.get("h_axes", _ROWS))
    wide = [layer.outputs for layer in directions]
    h = _rows(arrays["initial_h"], axes, wide) if "initial_h" in arrays else [np.zeros(size) for size in wide]
    c: list[Floats] = []
    if "initial_c" in arrays:
        c = _rows(arrays["initial_c"], axes, [layer.units for layer in directions])
    largest = max(float(np.abs(row).max(initial=0.0)) for row in h)
    if isinstance(directions[0], Lstm) and directions[0].projection is None and largest > 1.0:
        notes.append(
            f"{step.where} begins in an h of up to {largest:.4g}, but the core's format of h ends at 1, as "
            "what an LSTM gives does: such values saturate"
        )
    notes.append(f"{step.where} begins in a state that was learned, {OWN_STATE}")
    each = iter([(row, c[at] if c else None) for at, row in enumerate(h)])
    return [tuple(islice(each, len(those))) for those in both]


def _rows(array: Floats, axes: tuple[str, ...], sizes: list[int]) -> list[Floats]:
    """The state of each direction; all sequences must have the same."""
    count = len(sizes)
    if not array.any():
        return [np.zeros(size) for size in sizes]
    if array.size == 1 and array.ndim < 2:  # what all values are filled with
        return [np.full(size, array.item()) for size in sizes]
    rows = array
    if "D" not in axes and array.ndim == 2:
        rows = array[None]
    elif array.ndim < 3:
        rows = array.reshape(count, 1, -1) if array.shape[:-1] in ((), (count,)) else array
    elif axes == ("N", "D", "F"):
        rows = array.swapaxes(0, 1)
    if rows.ndim != 3 or len(rows) != count or any(rows.shape[2] != size for size in sizes):
        raise ModelError(f"its initial state must be ({count}, sequences, {sizes[0]}), not {array.shape}")
    if np.ptp(rows, axis=1).any():
        raise ModelError(
            "its initial state is a constant that differs from sequence to sequence; give it "
            "to the driver as state, and leave it out of the module"
        )
    return [row[0] for row in rows]


def _lengths(step: Step, value: Value, notes: list[str]) -> list[str]:
    """Return why a node's lengths are refused; lengths that the driver gives go to ``notes``."""
    if not step.has(3):
        return []
    graph, tensor = step.graph, step.node.inputs[3]
    lengths = graph.integers(tensor)
    shape, axes = graph.shape(step.node.inputs[0]), step.node.attributes["axes"]
    steps = shape[axes.index("T")] if len(shape) == len(axes) and "T" in axes else None
    if lengths is not None:
        if set(lengths) == {steps}:
            return []
        return [
            f"input sequence_lens must be an input of the model, not the constant {lengths} (for an input of "
            f"{steps or 'an unknown number of'} steps); remove it and give the lengths to the driver when "
            "running"
        ]
    text = f"sequence_lens is the model's input {tensor!r}"
    if tensor not in graph.inputs:
        node: Node | None = graph.producer(tensor)
        text = f"sequence_lens is computed by {node.where}" if node else f"sequence_lens is {tensor!r}"
    notes.append(f"{step.where}: {text}: give the lengths to the driver at run time")
    return []


def layer_options(layer: Layer) -> str:
    """Describe what is special about a layer: unusual functions, directions, clips.

    Empty for ``torch.nn.LSTM``'s own layer, and for a dense one without an activation.
    """
    if isinstance(layer, Bidirectional):
        parts = (layer.forward, layer.backward.replace(reversed_output=False))
        forward, backward = (layer_options(part) for part in parts)
        kinds = layer.forward.kind if layer.forward.kind == layer.backward.kind else "two kinds"
        usual = f"{forward}, reverse".lstrip(", ")
        other = "" if backward == usual else backward
        final = "final states at the last step" if layer.backward.reversed_output else ""
        return ", ".join(filter(None, [kinds, layer.merge, forward, other, final]))
    if isinstance(layer, Dense):
        function = [str(layer.function)] if layer.activation != "identity" else []
        others = [f"adds what stands {read.back} layers back" for read in layer.reads if read.back > 1]
        return ", ".join(function + others)
    if isinstance(layer, Norm):
        return f"{'' if layer.centre else 'of the mean square, '}epsilon {layer.epsilon:g}"
    reversed_output = ["outputs reversed"] if layer.reversed_output else []
    limits = [f"clip {layer.clip:g}"] if layer.clip is not None else []
    return ", ".join([*_details(layer), *limits, *(["reverse"] if layer.reverse else []), *reversed_output])


def _details(layer: PseudoLayer) -> list[str]:
    """Describe what only this kind of layer has."""
    if isinstance(layer, CellLayer):
        return ["a step function of its own"]
    if isinstance(layer, Rnn):
        return _functions(("activation", layer.activation, TANH))
    functions = _functions(("gate", layer.gate, SIGMOID), ("candidate", layer.candidate, TANH))
    if isinstance(layer, Gru):
        return functions + ([] if layer.reset_after else ["reset before"])
    functions += _functions(("output_activation", layer.output_activation, TANH))
    if layer.cell_clip is not None:
        functions.append(f"cell clip {layer.cell_clip:g}")
    if layer.projection is not None:
        functions.append(f"projection {layer.units} -> {layer.outputs}")
    if layer.norms is not None:
        functions.append("norms of " + _norms(layer.norms))
    given = {"peephole": layer.peephole is not None, "coupled": layer.coupled}
    return functions + [name for name, there in given.items() if there]


def _norms(norms: LstmNorms) -> str:
    """Name what an LSTM normalises."""
    texts = {"input": "the input's products", "hidden": "h's products", "cell": "c"}
    texts |= {"hidden": "both products' sum"} if norms.together else {}
    texts |= {"cell": "the c that is kept"} if norms.kept else {}
    return " and ".join(texts[name] for name in norms.each)


def _functions(*functions: tuple[str, ActivationFunction, ActivationFunction]) -> list[str]:
    return [f"{name} {function}" for name, function, usual in functions if function != usual]


# Steps that a model takes from the last one on


_BEYOND = 2**31 - 2
"""An index beyond the end of any axis."""


def join_reversals(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """Let layers that read the steps from the last one on go backwards, and return notes on them, too.

    The reversal moves behind such a layer, and is gone where the model reverses again, or takes one step. If
    it stays, so does the graph: its layers read what the model has reversed.
    """
    notes: list[str] = []
    given = graph
    while found := next(((node, moved) for node in graph.nodes if (moved := _moved(graph, node))), None):
        at = graph.nodes.index(found[0])
        if found[0].operator == "recurrent":
            notes.append(
                f"{found[0].where} goes backwards in the core, and its results are in the steps' order"
            )
        graph = graph.with_nodes([*graph.nodes[:at], *found[1], *graph.nodes[at + 1 :]])
    needed = [graph.nodes[at] for at in graph.ancestors(graph.outputs)]
    return (given, ()) if any("ordered" in node.attributes for node in needed) else (graph, tuple(notes))


def _moved(graph: Graph, node: Node) -> list[Node]:
    """What stands for a node behind a reversal, if that can move behind it."""
    first = graph.producer(node.inputs[0]) if node.inputs else None
    axis = None if first is None else _reverses(graph, first)
    if first is None or axis is None:
        return []
    given, read = node.attributes, (first.inputs[0], *node.inputs[1:])
    if _reverses(graph, node) == axis:
        return [replace(node, operator="identity", inputs=read[:1], attributes={})]
    if node.operator == "select" and given["axis"] == axis:
        return [replace(node, inputs=read, attributes={**given, "index": -1 - given["index"]})]
    in_order = "ordered" in first.attributes  # It is of a layer's results: features are the last axis.
    if node.operator == "recurrent" and "T" in given["axes"] and not any(node.inputs[3:]):
        layers, steps = given["layers"](), given["axes"].index("T")
        both = any(isinstance(layer, Bidirectional) for layer in layers.layers)
        if both or axis not in (steps, steps - len(given["axes"])):
            return []
        backwards = tuple(layer.replace(reverse=not layer.reverse) for layer in layers.layers)
        given = {**given, "layers": lambda: replace(layers, layers=backwards)}
    elif not in_order or not (node.operator in ("activation", "linear") or _cuts_other(graph, node, axis)):
        return []
    inner = fresh(f"{node.outputs[0]}.ordered", graph.is_tensor)
    behind = replace(
        first,
        inputs=(inner, *first.inputs[1:]),
        outputs=node.outputs[:1],
        attributes={**first.attributes, "ordered": True},
    )
    return [replace(node, inputs=read, outputs=(inner, *node.outputs[1:]), attributes=given), behind]


def _reverses(graph: Graph, node: Node) -> int | None:
    """The only axis that a node reverses; None if it does something else."""
    if node.operator != "slice":
        return None
    names = enumerate(("starts", "ends", "axes", "steps"), start=1)
    starts, ends, axes, steps = (graph.numbers(node, name, at) for at, name in names)
    if steps != [-1] or not (starts and ends and axes):
        return None
    return axes[0] if (starts[0] == -1 or starts[0] > _BEYOND) and ends[0] < -_BEYOND else None


def _cuts_other(graph: Graph, node: Node, axis: int) -> bool:
    """Whether a node takes a part along another axis than this one."""
    axes = graph.numbers(node, "axes", 3) if node.operator == "slice" else None
    return bool(axes) and min(axis, *axes or ()) >= 0 and axis not in (axes or ())
