"""ONNX operators that the core computes with: dense layers, constants, sums and activations."""

import math
from collections.abc import Callable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.directions import pair_directions, without_identity
from rtlstm.gen.frontends.onnx_activations import OPERATOR_FUNCTIONS
from rtlstm.gen.frontends.onnx_values import Step, Value
from rtlstm.spec.errors import ModelError
from rtlstm.spec.functions import RELU, ActivationFunction

__all__ = ["LAYERS"]

Floats = NDArray[np.float64]


def _activation(step: Step) -> Value:
    attributes = step.attributes()
    function = ActivationFunction.of(
        OPERATOR_FUNCTIONS[step.node.op_type], attributes.get("alpha"), attributes.get("beta")
    )
    return _activate(step, function)


def _activate(step: Step, function: ActivationFunction) -> Value:
    value = step.only()
    return Value(value.flow.activate(function, step.label, step.where), value.axes)


def _clip(step: Step) -> Value:
    attributes = step.attributes()
    limits = [
        float(attributes[name]) if name in attributes
        else float(step.constant(place, name).reshape(())) if step.has(place)
        else default
        for place, name, default in ((1, "min", -math.inf), (2, "max", math.inf))
    ]  # fmt: skip
    if limits == [0.0, math.inf]:
        return _activate(step, RELU)
    if not all(map(math.isfinite, limits)) or limits[0] >= limits[1]:
        raise ModelError(f"{step.where}: min and max must be two constants in order, not {limits}")
    return _activate(step, ActivationFunction.of("hard_tanh", *limits))


def _dense(step: Step, value: Value, weight: Floats, bias: Floats) -> Value:
    flow = value.flow.linear(step.label, step.where, weight, bias)
    return Value(flow, value.axes.with_features(weight.shape[0]))


def _matmul(step: Step) -> Value:
    if len(step.values) > 1:
        raise ModelError(
            f"{step.where} multiplies two tensors that depend on the input; a dense layer needs constant "
            "weights"
        )
    side = 0 if step.inputs[0] is not None else 1
    value = step.values[0]
    weight = step.constant(1 - side, "the weight")
    if weight.ndim != 2:
        raise ModelError(f"{step.where}: the weight must have 2 axes, not {weight.ndim}")
    weight = weight.T if side == 0 else weight
    value = step.along(value, -1 if side == 0 else -2, weight.shape[1])
    return _dense(step, value, weight, np.zeros(weight.shape[0]))


def _gemm(step: Step) -> Value:
    value, attributes = step.only(), step.attributes()
    transposed = bool(attributes.get("transA", 0))
    value.axes.expect(step.where)
    if len(value.axes.tags) != 2:
        raise ModelError(f"{step.where} must read a tensor with 2 axes, not {len(value.axes.tags)}")
    weight = step.constant(1, "the weight B")
    if weight.ndim != 2:
        raise ModelError(f"{step.where}: the weight B must have 2 axes, not {weight.ndim}")
    weight = (weight if attributes.get("transB", 0) else weight.T) * float(attributes.get("alpha", 1.0))
    value = step.along(value, -2 if transposed else -1, weight.shape[1])
    axes = value.axes.transpose([1, 0], step.where) if transposed else value.axes
    result = _dense(step, Value(value.flow, axes), weight, np.zeros(weight.shape[0]))
    if step.has(2):
        addend = step.per_feature(2, result.axes) * float(attributes.get("beta", 1.0))
        result = Value(result.flow.shift(addend, step.where), result.axes)
    return result


def _conv(step: Step) -> Value:
    weight, attributes = step.constant(1, "the weight W"), step.attributes()
    value = step.along(step.only(), 1, weight.shape[1])
    problems = []
    if weight.ndim < 3 or set(weight.shape[2:]) != {1}:
        problems.append(f"the kernel must have size 1, not {weight.shape[2:]}")
    if attributes.get("group", 1) != 1:
        problems.append(f"attribute group={attributes['group']} must be 1")
    if set(attributes.get("strides", [1])) != {1}:
        problems.append(f"attribute strides={list(attributes['strides'])} must be 1")
    if set(attributes.get("pads", [0])) != {0}:
        problems.append(f"attribute pads={list(attributes['pads'])} must be 0")
    if problems:
        raise ModelError(f"{step.where}: " + "; ".join(problems))
    rank, outputs = len(value.axes.tags), int(weight.shape[0])
    if weight.ndim != rank:
        raise ModelError(f"{step.where}: the weight must have {rank} axes, not {weight.ndim}")
    bias = step.constant(2, "the bias B") if step.has(2) else np.zeros(outputs)
    if bias.shape != (outputs,):
        raise ModelError(f"{step.where}: the bias B must have shape ({outputs},), not {bias.shape}")
    return _dense(step, value, weight.reshape(outputs, -1), bias)


# Scales, constants and sums


def _affine(value: Value, step: Step, scale: Floats | float, shift: Floats | float) -> Value:
    flow = value.flow.scale(np.asarray(scale, dtype=np.float64), step.where)
    return Value(flow.shift(np.asarray(shift, dtype=np.float64), step.where), value.axes)


def _batch_norm(step: Step) -> Value:
    value, attributes = step.only(), step.attributes()
    if attributes.get("training_mode", 0):
        raise ModelError(f"{step.where}: attribute training_mode must be 0; export the model for inference")
    names = ("scale", "B", "mean", "var")
    scale, shift, mean, variance = (step.constant(place, name) for place, name in enumerate(names, 1))
    value = step.along(value, 1, scale.size)
    for name, array in zip(names, (scale, shift, mean, variance), strict=True):
        if array.shape != (value.axes.features,):
            raise ModelError(
                f"{step.where}: {name} must have shape ({value.axes.features},), not {array.shape}"
            )
    factor = scale / np.sqrt(variance + float(attributes.get("epsilon", 1e-5)))
    return _affine(value, step, factor, shift - mean * factor)


def _constant_of(step: Step, value: Value) -> Floats:
    """The constant that a node of two inputs has beside its value."""
    return step.per_feature(1 if step.inputs[0] is not None else 0, value.axes)


def _add(step: Step) -> Value:
    if len(step.values) > 1 or len(step.node.input) == 1:
        return _sum(step)
    return _affine(step.values[0], step, 1.0, _constant_of(step, step.values[0]))


def _sub(step: Step) -> Value:
    if len(step.values) > 1:
        first, second = step.values
        return _plus(step, first, _affine(second, step, -1.0, 0.0))
    value = step.values[0]
    sign = 1.0 if step.inputs[0] is not None else -1.0
    return _affine(value, step, sign, -sign * _constant_of(step, value))


def _neg(step: Step) -> Value:
    return _affine(step.only(), step, -1.0, 0.0)


def _mul(step: Step) -> Value:
    if len(step.values) > 1:
        raise ModelError(f"{step.where} multiplies two tensors that depend on the input")
    return _affine(step.values[0], step, _constant_of(step, step.values[0]), 0.0)


def _div(step: Step) -> Value:
    value = step.only()
    divisor = step.per_feature(1, value.axes)
    if not np.all(divisor):
        raise ModelError(f"{step.where}: the divisor must not be zero")
    return _affine(value, step, 1.0 / divisor, 0.0)


def _plus(step: Step, first: Value, second: Value) -> Value:
    _expect_alike(step, [first, second])
    mine, theirs = pair_directions(first.flow, second.flow)
    return Value(mine.plus(theirs, step.where), first.axes)


def _sum(step: Step) -> Value:
    if len(step.values) < len(step.node.input):
        raise ModelError(f"{step.where} must add tensors that all depend on the input; add constants by Add")
    return reduce(lambda first, second: _plus(step, first, second), step.values)


def _mean(step: Step) -> Value:
    return _affine(_sum(step), step, 1.0 / len(step.values), 0.0)


def _expect_alike(step: Step, values: list[Value]) -> None:
    """Refuse values whose steps and sequences do not lie on the same axes."""
    first = values[0].axes
    for value in values:
        value.axes.expect(step.where)
        alike = len(first.tags) == len(value.axes.tags) and all(
            mine == theirs or "?" in (mine, theirs)
            for mine, theirs in zip(first.tags, value.axes.tags, strict=True)
        )
        steps = [(axes.last_step, axes.first_step) for axes in (first, value.axes)]
        if not alike or steps[0] != steps[1]:
            raise ModelError(
                f"{step.where} joins tensors of different axes, ({', '.join(first.tags)}) and "
                f"({', '.join(value.axes.tags)}), or of different steps"
            )


def _concat(step: Step) -> Value:
    values = step.values
    if len(values) < len(step.node.input):
        raise ModelError(f"{step.where} must join tensors that all depend on the input")
    _expect_alike(step, values)
    axes = values[0].axes
    axes.expect_features_at(int(step.attributes()["axis"]), step.where)
    flows = [value.flow for value in values]
    if len(flows) == 2:
        flows = list(pair_directions(*flows))
    flow = without_identity(flows[0].join(flows[1:], step.where))
    return Value(flow, axes.with_features(sum(value.axes.features for value in values)))


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
            value = Value(first.plus(second, step.where), axes.without(axis, keep=keep))
            if step.node.op_type == "ReduceMean":
                value = _affine(value, step, 0.5, 0.0)
        elif tag in ("1", "D"):
            value = Value(value.flow, axes.without(axis, keep=keep))
        else:
            raise ModelError(
                f"{step.where} reduces axis {axis} ({tag}); only the two directions of a bidirectional layer "
                "can be"
            )
    return value


LAYERS: dict[str, Callable[[Step], Value]] = {
    **dict.fromkeys(OPERATOR_FUNCTIONS, _activation),
    "Add": _add,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "Div": _div,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Mean": _mean,
    "Mul": _mul,
    "Neg": _neg,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "Sub": _sub,
    "Sum": _sum,
}
"""What each of them makes of its inputs."""
