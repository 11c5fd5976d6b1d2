"""Operators of arithmetic (constants, sums, batch norm), and joins of directions and of several outputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, fresh
from rtlstm.gen.frontends.axes import SINGLE, Axes
from rtlstm.gen.frontends.flow import Flow, LayerState, Source
from rtlstm.gen.frontends.formulas import COMPARED, combine, magnitude, running_maximum, total
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.gen.frontends.layers import Step, Value, dense
from rtlstm.gen.frontends.moves import MOVES
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.spec.activations.functions import RELU, SIGMOID, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.layout import OutputPart
from rtlstm.spec.network import Bidirectional, Dense, Gru, Lstm, Rnn

_OF_TRUTHS = ("add", "concat", "max", "min", "mul", "reduce_max", "reduce_min", "stack", "sum", "where")
"""Operators that give truth values of truth values."""
_TO_NUMBERS = {"_to_copy", "cast", "double", "float", "half", "to", "type", "type_as"}
"""What makes numbers of truth values: an operator, and kinds of nodes that compute nothing."""


def join_truths(graph: Graph) -> Graph:
    """Make a sum of truth values, which is true where one of them is, the largest of them."""
    truths, nodes = set[str](), list[Node]()
    for node in graph.nodes:
        moves = node.operator in MOVES and not {node.operator, node.kind} & _TO_NUMBERS
        read = node.inputs[:1] if moves else node.inputs[node.operator == "where" :]
        keeps = moves or node.operator in _OF_TRUTHS
        if node.operator in COMPARED or (keeps and read and truths.issuperset(read)):
            truths.update(node.outputs)
            if node.operator in ("add", "sum"):
                node = replace(node, operator="max")
        nodes.append(node)
    return graph.with_nodes(nodes)


def _affine(value: Value, step: Step, scale: Floats | float, shift: Floats | float) -> Value:
    factor, addend = (np.asarray(given, dtype=np.float64) for given in (scale, shift))
    frames = value.axes.frames  # Each has as many features.
    if frames > 1:
        factor, addend = (
            np.tile(given, frames) if given.shape == (value.axes.features,) else given
            for given in (factor, addend)
        )
    return value.computed(value.flow.scale(factor, step.where).shift(addend, step.where))


def _batch_norm(step: Step) -> Value:
    value, attributes = step.only(), step.attributes()
    if attributes.get("training_mode", 0):
        raise ModelError(f"{step.where}: attribute training_mode must be 0; export the model for inference")
    names = ("scale", "B", "mean", "var")
    scale, shift, mean, variance = (step.constant(position, name) for position, name in enumerate(names, 1))
    value = step.along(value, int(attributes.get("axis", 1)), scale.size)
    for name, array in zip(names, (scale, shift, mean, variance), strict=True):
        if array.shape != (value.axes.features,):
            raise ModelError(
                f"{step.where}: {name} must have shape ({value.axes.features},), not {array.shape}"
            )
    factor = scale / np.sqrt(variance + float(attributes.get("epsilon", 1e-5)))
    return _affine(value, step, factor, shift - mean * factor)


def _operands(step: Step) -> tuple[Value, Floats]:
    """Return the value of a node of two inputs, and the constant that it has beside it."""
    return step.per_feature(1 if step.inputs[0] is not None else 0, step.values[0])


def _add(step: Step) -> Value:
    if len(step.values) > 1 or len(step.node.inputs) == 1:
        return _sum(step)
    value, constant = _operands(step)
    return _affine(value, step, 1.0, constant)


def _sub(step: Step) -> Value:
    if len(step.values) > 1:
        first, second = step.values
        return _plus(step, first, _affine(second, step, -1.0, 0.0))
    value, constant = _operands(step)
    sign = 1.0 if step.inputs[0] is not None else -1.0
    return _affine(value, step, sign, -sign * constant)


def _mul(step: Step) -> Value:
    if len(step.values) > 1:
        return _pairs(step, "product")
    value, constant = _operands(step)
    return _affine(value, step, constant, 0.0)


def _pairs(step: Step, formula: str) -> Value:
    """The product of all that a node reads, or the largest or smallest of it, element by element."""
    step.refuse_inputs()
    first, *others = at_last_step(step.values)
    for other in others:
        first, other = _in_groups(step, first, other), _in_groups(step, other, first)
        axes = _expect_alike(step, [first, other])
        if axes.frames > 1:
            first, other = _repeated(step, first, other), _repeated(step, other, first)
        flow = combine(formula, first.flow, other.flow, step.label, step.where)
        first = _together(first, other, flow, axes)
    return first


def _together(first: Value, second: Value, flow: Flow, axes: Axes) -> Value:
    """What is computed of two values, with the axes of both."""
    if "B" not in axes.tags:
        axes = axes.with_features((flow.outputs or 0) // axes.frames)
    return replace(_moving([first, second]), padded=first.padded or second.padded).computed(flow, axes)


def _limit(step: Step, formula: str) -> Value:
    """The largest or smallest of results, and of a constant if there is one."""
    constants = [at for at, name in enumerate(step.node.inputs) if step.graph.is_constant(name)]
    left = [at for at, name in enumerate(step.node.inputs) if not step.graph.is_constant(name)]
    names = tuple(step.node.inputs[at] for at in left)
    values = tuple(step.inputs[at] for at in left)
    value = _pairs(replace(step, node=replace(step.node, inputs=names), inputs=values), formula)
    sign = 1.0 if formula == "largest" else -1.0
    for at in constants:
        value, constant = step.per_feature(at, value)
        above = _affine(value, step, sign, -sign * constant)
        above = above.computed(above.flow.activate(RELU, step.label, step.where))
        value = _affine(above, step, sign, constant)
    return value


def _power(step: Step) -> Value:
    value = step.only()
    exponent = step.number(1, "the exponent") if step.has(1) else 2.0
    if exponent == 1.0:
        return value
    if exponent != 2.0:
        raise ModelError(
            f"{step.where} raises to the power of {exponent:g}, but only squares are supported; to end "
            "before it, give the tensor to end at as `output`"
        )
    node = replace(step.node, inputs=step.node.inputs[:1] * 2)
    return _pairs(replace(step, node=node, inputs=(value, value)), "product")


def _magnitude(step: Step) -> Value:
    value = step.only()
    return value.computed(magnitude(value.flow, step.label, step.where))


def _gated(step: Step) -> Value:
    """A gated linear unit: the first half of the features times the sigmoid of the second."""
    value = step.only()
    value.axes.expect_features_at(int(step.attributes().get("axis", -1)), step.where)
    half, odd = divmod(value.axes.features, 2)
    if odd:
        raise ModelError(f"{step.where} must read an even number of features, not {value.axes.features}")
    first, second = (value.flow.pick(range(at, at + half), step.where) for at in (0, half))
    gate = second.activate(SIGMOID, step.label, step.where)
    flow = combine("product", first, gate, step.label, step.where)
    return value.computed(flow, value.axes.with_features(half))


def _leaky(step: Step) -> Value:
    """A ReLU whose slope below zero is a parameter: one, or one for each feature."""
    value, axis = step.only(), step.attributes().get("axis")
    slope = step.constant(1, "its slope")
    if slope.size > 1:
        if axis is not None:
            value = step.along(value, int(axis), slope.size)
            slope = slope.reshape([-1 if tag == "F" else 1 for tag in value.axes.tags])
        value, slope = step.per_feature(1, value, slope)
    function = ActivationFunction.of("leaky_relu", slope.item()) if slope.size == 1 else RELU
    above = value.computed(value.flow.activate(function, step.label, step.where))
    if slope.size == 1:
        return above
    return _plus(step, _affine(value, step, slope, 0.0), _affine(above, step, 1.0 - slope, 0.0))


def _div(step: Step) -> Value:
    value, divisor = step.per_feature(1, step.only())
    if not np.all(divisor):
        raise ModelError(f"{step.where}: the divisor must not be zero")
    return _affine(value, step, 1.0 / divisor, 0.0)


def _compare(step: Step) -> Value:
    """1 where it is true, else 0."""
    operator, limit, sign = step.node.operator, 0.0, 1.0
    if operator == "greater" and step.inputs[1] is None and step.constant(1, "the limit").size == 1:
        value, limit = step.only(), step.number(1, "the limit")
    else:
        sign = -1.0 if operator in ("less", "greaterorequal") else 1.0
        value = _affine(_sub(step), step, sign, 0.0)
    above = value.flow.activate(ActivationFunction.of("heaviside", limit), step.label, step.where)
    value = value.computed(above)
    return _affine(value, step, -1.0, 1.0) if operator.endswith("equal") else value


def _where(step: Step) -> Value:
    """``other + chosen * (one - other)``, or the larger or smaller of two that it compares."""
    step.refuse_inputs()
    graph, chosen, names = step.graph, step.inputs[0], step.node.inputs
    if formula := _compared(graph, *names):
        read = replace(step.node, inputs=names[1:])
        return _limit(replace(step, node=read, inputs=step.inputs[1:]), formula)
    one, other = (step.inputs[at] or _constant(step, at) for at in (1, 2))
    difference = _plus(step, one, _affine(other, step, -1.0, 0.0))
    if chosen is None:
        if (mask := graph.constant(names[0])) is None:
            raise ModelError(
                f"{step.where}: the condition must be constant or a comparison, but {graph.origin(names[0])}"
            )
        difference, mask = step.per_feature(0, difference, (np.asarray(mask) != 0).astype(np.float64))
        taken = _affine(difference, step, mask, 0.0)
    elif any(np.any(term.matrix) for term in difference.flow.terms):
        node = replace(step.node, inputs=names[:2])
        taken = _pairs(replace(step, node=node, inputs=(chosen, difference)), "product")
    else:
        chosen = _repeated(step, chosen, difference)
        taken = chosen.computed(chosen.flow.scale(difference.flow.bias, step.where))
    return _plus(step, other, taken)


def _constant(step: Step, at: int) -> Value:
    """A constant as a value of each step."""
    value, constant = step.per_feature(at, step.values[0])
    return _affine(value, step, 0.0, constant)


def _compared(graph: Graph, condition: str, one: str, other: str) -> str:
    """The formula of what is chosen of the two that a node compares; empty if it compares others."""
    node = graph.producer(condition)
    if node is None or node.operator not in COMPARED:
        return ""
    pairs = [[*node.inputs], [*node.inputs[::-1]]]
    alike = [all(map(partial(_same, graph), pair, (one, other))) for pair in pairs]
    larger = node.operator.startswith("greater") == alike[0]
    return ("largest" if larger else "smallest") if any(alike) else ""


def _same(graph: Graph, one: str, other: str) -> bool:
    mine, theirs = graph.constant(one), graph.constant(other)
    return one == other or (mine is not None and theirs is not None and np.array_equal(mine, theirs))


def _plus(step: Step, first: Value, second: Value) -> Value:
    first, second = at_last_step([first, second])
    first, second = _in_groups(step, first, second), _in_groups(step, second, first)
    axes = _expect_alike(step, [first, second])
    first, second = _repeated(step, first, second), _repeated(step, second, first)
    return _together(first, second, Flow.plus(*pair_directions(first.flow, second.flow), step.where), axes)


def _in_groups(step: Step, value: Value, other: Value) -> Value:
    """A value with groups where another has them: repeated for each if it has an axis of size 1 there."""
    value = value.with_groups(step.where) if other.axes.grouped else value
    pairs = list(enumerate(zip(value.axes.tags, other.axes.tags, strict=False)))
    at = next((at for at, (mine, its) in pairs if mine == "1" and its[0] in "BK"), None)
    if at is None or len(value.axes.tags) != len(other.axes.tags):
        return value
    tags, axes, count = list(value.axes.tags), other.axes, other.axes.frames * (1 + ("B" in other.axes.tags))
    tags[at] = axes.tags[at]
    flow = value.flow.pick([*range(value.flow.features(step.where))] * count, step.where)
    return replace(
        value, flow=replace(flow, dense=""), axes=replace(value.axes, tags=(*tags,), grouped=axes.grouped)
    )


def _repeated(step: Step, value: Value, other: Value) -> Value:
    """A value whose only feature, or only one of each group, is repeated for each of another's."""
    frames, count = value.axes.frames, other.axes.features
    if value.flow.outputs != frames or other.flow.outputs != frames * count:
        return value
    flow = value.flow.pick([at for at in range(frames) for _ in range(count)], step.where)
    return replace(value, flow=replace(flow, dense=""), axes=value.axes.with_features(count))


def _sum(step: Step) -> Value:
    step.refuse_inputs()
    if len(step.values) < len(step.node.inputs):
        raise ModelError(f"{step.where} must add tensors that all depend on the input; add constants by Add")
    return reduce(lambda first, second: _plus(step, first, second), step.values)


def _expect_alike(step: Step, values: list[Value]) -> Axes:
    """Return the axes of values whose steps and sequences must lie on the same ones."""
    first = _moving(values).axes
    for value in values:
        value.axes.expect(step.where)
        axes = first.together(_at_each_step(value.axes, first) if value.still else value.axes)
        if axes is None or value.extra != values[0].extra:
            raise ModelError(
                f"{step.where} joins tensors of different axes, {first} and {value.axes}, or of different "
                "steps"
            )
        first = axes
    return first


def _moving(values: Sequence[Value]) -> Value:
    """The first value that has steps; the first one if none has."""
    return next((value for value in values if not value.still), values[0])


def _at_each_step(axes: Axes, other: Axes) -> Axes:
    """The axes of a value that is the same in every step, beside one that is not."""
    pairs = list(zip(axes.tags, other.tags, strict=False))
    fits = len(axes.tags) == len(other.tags) and all(
        mine == theirs or theirs[0] == "?" or (mine, theirs) == ("1", "T") for mine, theirs in pairs
    )
    tags = other.tags if fits else axes.tags
    return replace(axes, tags=tags, last_step=other.last_step, first_step=other.first_step)


def _concat(step: Step) -> Value:
    values = step.values
    if len(step.node.inputs) == 1:
        return step.only()
    step.refuse_inputs()
    if len(values) < len(step.node.inputs):
        raise ModelError(f"{step.where} must join tensors that all depend on the input")
    axis = int(step.attributes()["axis"])
    if all(
        value.axes.tags[axis : axis + 1 or None] in (("F",), ()) for value in values if "F" in value.axes.tags
    ):
        values = [  # inputs of the model have their features there, too
            value if "F" in value.axes.tags or value.axes.lost
            else step.along(value, axis, step.width(value, axis))
            for value in values
        ]  # fmt: skip
    values = at_last_step(values)
    axes = _expect_alike(step, values)
    axes.expect_features_at(axis, step.where)
    flows = [value.flow for value in values]
    if len(flows) == 2:
        flows = list(pair_directions(*flows))
    flow = without_identity(flows[0].join(flows[1:], step.where))
    state = values[0].state if all(value.state for value in values) else ""
    padded = next(filter(None, (value.padded for value in values)), "")
    axes = axes.with_features(flow.outputs or 0)
    return replace(_moving(values), flow=flow, axes=axes, state=state, padded=padded)


def _reduce(step: Step) -> Value:
    """The sum or mean over both directions, groups or features; or over the steps or axes of size 1."""
    value = step.only()
    value.axes.expect(step.where)
    rank = len(value.axes.tags)
    chosen = [axis % rank for axis in step.numbers("axes", 1) or range(rank)]
    for axis in sorted(chosen, reverse=True):
        if value.axes.tags[axis] == "F":
            value = value.with_groups(step.where)
        axes, keep = value.axes, bool(step.attributes().get("keepdims", 1))
        tag = axes.tags[axis]
        if tag[0] in "BK" and step.node.operator in ("reduce_sum", "reduce_mean"):
            each, count = axes.features, 2 if tag == "B" else axes.frames
            parts = (value.flow.pick(range(at * each, (at + 1) * each), step.where) for at in range(count))
            flow = reduce(lambda one, other: one.plus(other, step.where), parts)
            value = value.computed(flow, axes.without(axis, keep=keep))
            if step.node.operator == "reduce_mean":
                value = _affine(value, step, 1.0 / count, 0.0)
        elif tag == "F" and step.node.operator in ("reduce_sum", "reduce_mean"):
            count = value.flow.features(step.where) // axes.frames
            whole = np.full((1, count), 1.0 if step.node.operator == "reduce_sum" else 1.0 / count)
            value = dense(step, value, whole, np.zeros(1))
            if not keep:
                value = replace(value, axes=value.axes.squeeze([axis], step.where))
        elif tag == "T":
            value = _over_steps(step, value, axes.without(axis, keep=keep))
        elif tag in ("1", "D"):
            value = value.computed(value.flow, axes.without(axis, keep=keep))
        else:
            which = "of the model's input" if tag.startswith("?") else f"({tag})"
            raise ModelError(
                f"{step.where} reduces axis {axis} {which}; only the steps, the two directions of a "
                "bidirectional layer, and features to a sum or mean can be"
            )
    return value


def _over_steps(step: Step, value: Value, axes: Axes) -> Value:
    """The sum, mean, largest or smallest value over the steps: a running one, which ends at the last step."""
    if value.padded or value.extra:
        raise ModelError(
            f"{step.where} goes over steps that {value.padded or 'a convolution'} padded; drop them first, "
            "or leave the lengths out of the model and give them to the driver"
        )
    operator, flow = step.node.operator, value.flow
    if operator == "reduce_mean":
        steps = step.sizes.steps or step.steps(value)
        if not steps:
            raise ModelError(
                f"{step.where} takes a mean over steps, but how many a sequence has is not known: give it as "
                "`sequence_length`, or let the model take the sum, and divide its results on the host"
            )
        flow = flow.scale(np.asarray(1.0 / steps), step.where)
        step.notes.append(f"{step.where}: the mean is that of {steps} steps: give sequences of as many")
    if operator in ("reduce_sum", "reduce_mean"):
        flow = total(flow, step.label, step.where)
    else:
        sign = np.asarray(-1.0 if operator == "reduce_min" else 1.0)
        flow = running_maximum(flow.scale(sign, step.where), step.label, step.where).scale(sign, step.where)
    return value.computed(flow, replace(axes, last_step=True))


def _stack(step: Step) -> Value:
    """Put a value on a new axis of size 1; several would need a new axis of more."""
    if len(step.node.inputs) > 1:
        raise ModelError(
            f"{step.where} puts {len(step.node.inputs)} tensors on a new axis; join features by "
            "concatenation instead"
        )
    return step.moved(step.only().axes.unsqueeze([int(step.attributes()["axis"])], step.where))


ARITHMETIC: dict[str, Callable[[Step], Value]] = {
    "abs": _magnitude,
    "add": _add,
    "batch_norm": _batch_norm,
    "concat": _concat,
    "div": _div,
    "glu": _gated,
    **dict.fromkeys(COMPARED, _compare),
    "max": lambda step: _limit(step, "largest"),
    "mean": lambda step: _affine(_sum(step), step, 1.0 / len(step.values), 0.0),
    "min": lambda step: _limit(step, "smallest"),
    "mul": _mul,
    "neg": lambda step: _affine(step.only(), step, -1.0, 0.0),
    "pow": _power,
    "prelu": _leaky,
    "reduce_max": _reduce,
    "reduce_mean": _reduce,
    "reduce_min": _reduce,
    "reduce_sum": _reduce,
    "square": _power,
    "stack": _stack,
    "sub": _sub,
    "sum": _sum,
    "where": _where,
}
"""The operators, each with the function that applies it."""


# Two layers of opposite directions that read the same values are one bidirectional layer


def pair_directions(first: Flow, second: Flow) -> tuple[Flow, Flow]:
    """Return both as functions of one bidirectional layer's output, or unchanged if they are not."""
    mine, theirs = first.last, second.last
    (one, *_), (other, *_) = first.terms, second.terms
    if (
        not isinstance(mine, Lstm | Gru | Rnn)
        or not isinstance(theirs, Lstm | Gru | Rnn)
        or mine.reverse == theirs.reverse
        or one.relu != other.relu
        or one.source.reads != other.source.reads
        or mine.inputs != theirs.inputs
    ):
        return first, second
    forward, backward = (other, one) if mine.reverse else (one, other)
    layer, other_layer = (theirs, mine) if mine.reverse else (mine, theirs)
    both = Bidirectional(name=layer.name, forward=layer, backward=other_layer)
    begins: tuple[LayerState, ...] = ()
    if forward.source.begins or backward.source.begins:
        zeros = [((np.zeros(term.source.features), None),) for term in (forward, backward)]
        begins = (forward.source.begins or zeros[0]) + (backward.source.begins or zeros[1])
    source = replace(forward.source, layer=both, width=both.outputs, begins=begins)
    return _widened(first, source), _widened(second, source)


def at_last_step(values: Sequence["Value"]) -> list["Value"]:
    """Bring final states of both directions to the same step.

    The backward direction has its final state at the first step, the forward one at the last. A layer whose
    backward direction is reversed has both at the last step. Other values are returned unchanged.
    """
    steps = [(value.axes.first_step, value.axes.last_step) for value in values]
    if len(set(steps)) == 1 or not all(first != last for first, last in steps):
        return list(values)
    flows = [value.flow for value in values]
    if len(flows) == 2:
        flows = list(pair_directions(*flows))
    parts = list(zip(values, flows, (first for first, _ in steps), strict=True))
    if not all(flow.reads_alone(backward=first) for _, flow, first in parts):
        return list(values)
    return [
        replace(
            value,
            flow=flow.final_states() if first else flow,
            axes=replace(value.axes, first_step=False, last_step=True),
        )
        for value, flow, first in parts
    ]


def _widened(flow: Flow, source: Source) -> Flow:
    """Return a function of one direction's features as a function of both directions' features."""
    (term,), both = flow.terms, source.layer
    matrix = term.matrix if term.matrix.ndim else np.eye(term.source.features) * term.matrix
    other = np.zeros((len(matrix), source.features - term.source.features))
    backward = isinstance(both, Bidirectional) and term.source.layer is both.backward
    wide = np.concatenate((other, matrix) if backward else (matrix, other), axis=1)
    return replace(flow, terms=(replace(term, source=source, matrix=wide),))


def without_identity(flow: Flow) -> Flow:
    """Return the flow without an identity matrix; of several terms, whose matrices stay."""
    first = flow.terms[0]
    if len(flow.terms) > 1 or flow.dense or first.matrix.ndim == 0:
        return flow
    rows, columns = first.matrix.shape
    if rows == columns and np.array_equal(first.matrix, np.eye(rows)):
        return replace(flow, terms=(replace(first, matrix=np.asarray(1.0)),))
    return flow


_NAMES = {"T": "steps", "N": "sequences", "F": "features", "B": "directions", "K": "frames", "M": "rows"}
_LAST = ("K", "B", "F")
"""Parts of a step, in the core's order."""


def note_input_order(tags: Sequence[str], why: str, report: ReportBuilder) -> None:
    """Record which of steps and sequences the input has first, and note if its features are not last.

    ``why`` is what to say if sequences are first, unless that has been said.
    """
    if {"N", "T"} <= set(tags):
        if tags.index("T") < tags.index("N"):
            report.takes_steps_first()
        elif not report.batch_first:
            report.takes_sequences_first(why)
    wanted = _core_order(tags, None)
    if wanted != list(tags):
        order = ", ".join(str(tags.index(tag)) for tag in wanted)
        report.note(
            f"the model takes {_text(tags)}, but rtlstm takes {_text(wanted)}: transpose its data before "
            f"a run, x.transpose({order})"
        )


def note_output_orders(ends: Mapping[str, Axes], report: ReportBuilder) -> None:
    """Note of which outputs the axes stand in another order than those of what the core gives."""
    for name, axes in ends.items():
        which = f" the output {name!r} as" if len(ends) > 1 else ""
        if axes.lost or axes.squeezed:
            given, hint = f"what {axes.lost} makes of several axes in one", ""
            if axes.features == 1:
                given = f"its only feature without an axis of its own ({axes.squeezed or axes.lost})"
                hint = ": y[..., 0] is that feature"
            core = _text(_core_order("TNF", report.batch_first))
            report.note(f"the model gives{which} {given}; rtlstm gives {core}{hint}")
            continue
        tags = [tag for tag in axes.tags if tag not in SINGLE]
        atoms = [atom for tag in tags for atom in tag.removeprefix("M:").split(":")]
        wanted = _core_order(atoms, report.batch_first)
        states = "B" in atoms and "T" not in atoms  # The driver gives those of both directions.
        if states or wanted == atoms:
            continue
        back = ""
        if sorted(axes.tags) == ["F", "N", "T"]:
            order = ", ".join(str(wanted.index(tag)) for tag in tags)
            back = f": y.transpose({order}) has the model's order"
        orders = f"{_text(axes.tags)}, but rtlstm gives {_text(wanted)}"
        orders = orders.replace("frames", "groups") if axes.grouped else orders
        report.note(f"the model gives{which} {orders}{back}")


def _core_order(tags: Sequence[str], batch_first: bool | None) -> list[str]:
    """The axes as the core has them; steps and sequences as given if it is not known which are first."""
    first = {None: "", False: "TN", True: "NT"}[batch_first if {"N", "T"} <= set(tags) else None]
    return sorted(tags, key=lambda tag: (_LAST.index(tag[0]) if tag[0] in _LAST else -1, first.find(tag[0])))


def _text(tags: Sequence[str]) -> str:
    """The names of axes; of an axis that no layer has determined its number."""
    names = [
        " x ".join(_NAMES.get(atom[0], atom) for atom in tag.removeprefix("M:").split(":")) for tag in tags
    ]
    shown = (f"axis {tag[1:]}" if tag[0] == "?" else "1" if tag in SINGLE else name
             for tag, name in zip(tags, names, strict=True))  # fmt: skip
    return f"({', '.join(shown)})".replace("directions, features)", "directions x features)")


def alike(one: Axes, other: Axes, *, aside: bool) -> bool:
    """Whether one output may stand beside another: of the same steps, all, the last one, or the first one.

    If it is ``aside``, not on the way to the other, it may be of other steps: the core gives all of both.
    """
    if one.lost or other.lost:
        return False
    steps = [("T" in axes.tags, axes.last_step, axes.first_step) for axes in (one, other)]
    return steps[0] == steps[1] or (aside and all(map(any, steps)))


def note_steps(ends: Mapping[str, tuple[bool, bool]], report: ReportBuilder) -> None:
    """Note of which outputs the model keeps only the last step, or only the first one."""
    for name, kept in ends.items():
        which = f" of the output {name!r}" if len(set(ends.values())) > 1 else ""
        for step, is_kept in zip(("last", "first"), kept, strict=True):
            if is_kept:
                report.note(
                    f"the model keeps only the {step} step{which}; the core gives every step, use its {step}"
                )


def is_state(flow: Flow, axes: Axes) -> bool:
    """Whether an output is a recurrent layer's without an axis of steps: its state behind a step."""
    return flow.plain and not isinstance(flow.last, Dense) and "T" not in axes.tags


def join_outputs(
    named: Sequence[tuple[str, Flow]], report: ReportBuilder
) -> tuple[Flow, tuple[OutputPart, ...]]:
    """Return all outputs side by side, and their parts; a single output as it is, without parts."""
    (_, whole), *others = named
    if not others:
        return whole, ()
    parts: list[OutputPart] = []
    for name, flow in named:
        name = fresh(name, {part.name for part in parts}.__contains__)
        parts.append(OutputPart(name=name, width=flow.outputs or 1))
    whole = whole.join([flow for _, flow in others], f"output {parts[-1].name!r}")
    report.note(
        "the model's outputs are parts of the core's one: "
        + ", ".join(f"{part.name!r} ({part.width})" for part in parts)
        + "; the driver's parts(y) takes them apart"
    )
    return without_identity(whole), tuple(parts)
