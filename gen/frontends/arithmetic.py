"""Operators of arithmetic (constants, sums, batch norm), and joins of directions and of several outputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, fresh
from rtlstm.gen.frontends.axes import SINGLE, Axes
from rtlstm.gen.frontends.flow import Flow, looks_back
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.step import Step, Value
from rtlstm.spec.errors import ModelError
from rtlstm.spec.layout import OutputPart
from rtlstm.spec.network import Bidirectional, Dense, Gru, Layer, Lstm, Read, Rnn


def _affine(value: Value, step: Step, scale: Floats | float, shift: Floats | float) -> Value:
    factor, addend = (np.asarray(given, dtype=np.float64) for given in (scale, shift))
    frames = value.axes.frames  # Each has as many features.
    factor, addend = (np.tile(given, frames) if given.ndim else given for given in (factor, addend))
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
        raise ModelError(f"{step.where} multiplies two tensors that depend on the input")
    value, constant = _operands(step)
    return _affine(value, step, constant, 0.0)


def _div(step: Step) -> Value:
    value, divisor = step.per_feature(1, step.only())
    if not np.all(divisor):
        raise ModelError(f"{step.where}: the divisor must not be zero")
    return _affine(value, step, 1.0 / divisor, 0.0)


def _plus(step: Step, first: Value, second: Value) -> Value:
    first, second = at_last_step([first, second])
    axes = _expect_alike(step, [first, second])
    flow = Flow.plus(*pair_directions(first.flow, second.flow), step.where)
    features = (flow.outputs or 0) // axes.frames
    padded = first.padded or second.padded
    return replace(first, padded=padded).computed(
        flow, axes if "B" in axes.tags else axes.with_features(features)
    )


def _sum(step: Step) -> Value:
    step.refuse_inputs()
    if len(step.values) < len(step.node.inputs):
        raise ModelError(f"{step.where} must add tensors that all depend on the input; add constants by Add")
    return reduce(lambda first, second: _plus(step, first, second), step.values)


def _expect_alike(step: Step, values: list[Value]) -> Axes:
    """Return the axes of values whose steps and sequences must lie on the same ones."""
    first = values[0].axes
    for value in values:
        value.axes.expect(step.where)
        axes = first.together(value.axes)
        if axes is None or value.extra != values[0].extra:
            raise ModelError(
                f"{step.where} joins tensors of different axes, {first} and {value.axes}, or of different "
                "steps"
            )
        first = axes
    return first


def _concat(step: Step) -> Value:
    values = step.values
    if len(step.node.inputs) == 1:
        return step.only()
    step.refuse_inputs()
    if len(values) < len(step.node.inputs):
        raise ModelError(f"{step.where} must join tensors that all depend on the input")
    values = at_last_step(values)
    axes = _expect_alike(step, values)
    axes.expect_features_at(int(step.attributes()["axis"]), step.where)
    flows = [value.flow for value in values]
    if len(flows) == 2:
        flows = list(pair_directions(*flows))
    flow = without_identity(flows[0].join(flows[1:], step.where))
    state = values[0].state if all(value.state for value in values) else ""
    padded = next(filter(None, (value.padded for value in values)), "")
    return replace(
        values[0], flow=flow, axes=axes.with_features(flow.outputs or 0), state=state, padded=padded
    )


def _reduce(step: Step) -> Value:
    """The sum or mean over both directions, or over axes of size 1."""
    value = step.only()
    value.axes.expect(step.where)
    rank = len(value.axes.tags)
    chosen = [axis % rank for axis in step.numbers("axes", 1) or range(rank)]
    for axis in sorted(chosen, reverse=True):
        axes, keep = value.axes, bool(step.attributes().get("keepdims", 1))
        tag = axes.tags[axis]
        if tag == "B":
            half = axes.features
            first, second = (value.flow.pick(range(at, at + half), step.where) for at in (0, half))
            value = value.computed(first.plus(second, step.where), axes.without(axis, keep=keep))
            if step.node.operator == "reduce_mean":
                value = _affine(value, step, 0.5, 0.0)
        elif tag in ("1", "D"):
            value = value.computed(value.flow, axes.without(axis, keep=keep))
        else:
            raise ModelError(
                f"{step.where} reduces axis {axis} ({tag}); only the two directions of a bidirectional layer "
                "can be"
            )
    return value


def _stack(step: Step) -> Value:
    """Put a value on a new axis of size 1; several would need a new axis of more."""
    if len(step.node.inputs) > 1:
        raise ModelError(
            f"{step.where} puts {len(step.node.inputs)} tensors on a new axis; join features by "
            "concatenation instead"
        )
    return step.moved(step.only().axes.unsqueeze([int(step.attributes()["axis"])], step.where))


ARITHMETIC: dict[str, Callable[[Step], Value]] = {
    "add": _add,
    "batch_norm": _batch_norm,
    "concat": _concat,
    "div": _div,
    "mean": lambda step: _affine(_sum(step), step, 1.0 / len(step.values), 0.0),
    "mul": _mul,
    "neg": lambda step: _affine(step.only(), step, -1.0, 0.0),
    "reduce_mean": _reduce,
    "reduce_sum": _reduce,
    "stack": _stack,
    "sub": _sub,
    "sum": _sum,
}
"""The operators, each with the function that applies it."""


# Two layers of opposite directions that read the same values are one bidirectional layer


def pair_directions(first: Flow, second: Flow) -> tuple[Flow, Flow]:
    """Return both as functions of one bidirectional layer's output, or unchanged if they are not."""
    mine, theirs = _direction(first), _direction(second)
    below = [flow.layers[:-1] for flow in (first, second)]
    if (
        mine is None
        or theirs is None
        or mine.reverse == theirs.reverse
        or first.relu != second.relu
        or len(below[0]) != len(below[1])
        or any(a is not b for a, b in zip(*below, strict=True))
        or (mine.inputs, mine.input_relu) != (theirs.inputs, theirs.input_relu)
    ):
        return first, second
    forward, backward = (theirs, mine) if mine.reverse else (mine, theirs)
    both = Bidirectional(name=forward.name, forward=forward, backward=backward)
    return _widened(first, both), _widened(second, both)


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


def _direction(flow: Flow) -> Lstm | Gru | Rnn | None:
    """Return the layer of one direction at the end of a flow."""
    last = flow.layers[-1] if flow.layers else None
    return last if isinstance(last, Lstm | Gru | Rnn) else None


def _widened(flow: Flow, both: Bidirectional) -> Flow:
    """Return a function of one direction's features as a function of both directions' features."""
    last_layer = flow.layers[-1]
    matrix = flow.matrix if flow.matrix.ndim else np.eye(last_layer.outputs) * flow.matrix
    other = np.zeros((len(matrix), both.outputs - last_layer.outputs))
    parts = (other, matrix) if last_layer is both.backward else (matrix, other)
    return replace(
        flow, layers=(*flow.layers[:-1], both), width=both.outputs, matrix=np.concatenate(parts, axis=1)
    )


def without_identity(flow: Flow) -> Flow:
    """Return the flow without an identity matrix; with a skip, which has a matrix, too, the matrix stays."""
    if flow.skip is not None or flow.dense or flow.matrix.ndim == 0:
        return flow
    rows, columns = flow.matrix.shape
    if rows == columns and np.array_equal(flow.matrix, np.eye(rows)):
        return replace(flow, matrix=np.asarray(1.0))
    return flow


_NAMES = {"T": "steps", "N": "sequences", "F": "features", "B": "directions", "K": "frames", "M": "rows"}
_LAST = ("K", "B", "F")
"""Parts of a step, in the core's order."""


def input_order(tags: Sequence[str], found: Iterable[Axes]) -> tuple[str, ...]:
    """Return the axes of a model's input as its layers have shown them; ``tags`` are those before."""
    shown = dict(pair for axes in found for pair in axes.shown)
    return tuple(shown.get(tag, tag) for tag in tags)


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
        report.note(f"the model gives{which} {_text(axes.tags)}, but rtlstm gives {_text(wanted)}{back}")


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
    last = flow.layers[-1] if flow.layers else None
    return flow.plain and not isinstance(last, Dense) and "T" not in axes.tags


def join_outputs(
    named: Sequence[tuple[str, Flow]], report: ReportBuilder
) -> tuple[Flow, tuple[OutputPart, ...]]:
    """Return all outputs side by side, and their parts; a single output as it is, without parts.

    Raises ModelError if layers stand side by side that are not dense.
    """
    (_, whole), *others = named
    if not others:
        return whole, ()
    parts: list[OutputPart] = []
    for name, flow in named:
        name = fresh(name, {part.name for part in parts}.__contains__)
        parts.append(OutputPart(name=name, width=flow.outputs or 1))
    for part, (_, flow) in zip(parts[1:], others, strict=True):
        whole = _join(whole, flow, f"output {part.name!r}")
    report.note(
        "the model's outputs are parts of the core's one: "
        + ", ".join(f"{part.name!r} ({part.width})" for part in parts)
        + "; the driver's parts(y) takes them apart"
    )
    return without_identity(whole), tuple(parts)


def _join(whole: Flow, flow: Flow, where: str) -> Flow:
    try:
        return whole.join([flow], where, gather=False)
    except ModelError:
        first, second = whole.settled(where), flow.settled(where)
        moved = _behind(flow, first)
        if moved is not None:
            return first.join([moved], where)
        moved = _behind(whole, second)
        if moved is None:
            return whole.join([flow], where)
    joined = second.join([moved], where)
    count, total = flow.outputs or 0, joined.outputs or 0
    return joined.pick([*range(count, total), *range(count)], where)


def _behind(flow: Flow, base: Flow) -> Flow | None:
    """Return the same values with the layers that ``base`` lacks behind it; None if these must not move."""
    if flow.skip is not None:
        flow = flow.settled(flow.dense)
    pairs = zip(flow.layers, base.layers, strict=False)
    stem = next((at for at, (mine, theirs) in enumerate(pairs) if mine is not theirs), None)
    stem = min(len(flow.layers), len(base.layers)) if stem is None else stem
    moved = flow.layers[stem:]
    if not moved:
        return flow
    paces = {its.pace for its in (*flow.placed[stem:], *base.placed[-1:])} | {flow.pace, base.pace}
    if stem == len(base.layers) or len(paces) > 1 or looks_back(base.layers):
        return None
    layers: list[Layer] = list(base.layers)
    for number, layer in enumerate(moved, start=stem):
        if not isinstance(layer, Dense) or (number == stem and len(layer.sources) > 1):
            return None
        layers.append(_placed(layer, number, stem, layers))
    placed = (*base.placed, *flow.placed[stem:])
    return replace(flow, layers=tuple(layers), placed=placed)


def _placed(layer: Dense, number: int, stem: int, before: Sequence[Layer]) -> Dense:
    """Layer ``number`` of a branch, behind other layers than those that stood before it."""
    update: dict[str, Any] = {}
    if number == stem:
        (read,) = layer.sources
        update = {
            "weight": np.concatenate([np.zeros((layer.outputs, before[-1].outputs)), layer.weight], axis=1),
            "reads": (
                Read(width=before[-1].outputs),
                read.replace(back=len(before) + 1 - stem),
            ),
            "input_relu": False,
        }
    elif layer.reads:
        moved = len(before) - number
        reads = [
            read.replace(back=read.back + moved) if number + 1 - read.back <= stem else read
            for read in layer.reads
        ]
        update = {"reads": tuple(reads)}
    return layer.replace(**update, name=fresh(layer.name, {one.name for one in before}.__contains__))
