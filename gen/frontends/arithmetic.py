"""Operators of arithmetic: constants, sums, batch norm, and joins of features or directions."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.bidirectional import at_last_step, pair_directions, without_identity
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.step import Step, Value
from rtlstm.spec.errors import ModelError

Floats = NDArray[np.float64]


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


def _neg(step: Step) -> Value:
    return _affine(step.only(), step, -1.0, 0.0)


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


def _mean(step: Step) -> Value:
    return _affine(_sum(step), step, 1.0 / len(step.values), 0.0)


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
    "mean": _mean,
    "mul": _mul,
    "neg": _neg,
    "reduce_mean": _reduce,
    "reduce_sum": _reduce,
    "stack": _stack,
    "sub": _sub,
    "sum": _sum,
}
"""The operators, each with the function that applies it."""
