"""ONNX operators that are layers: dense ones, convolutions, and activations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.onnx.activations import operator_function
from rtlstm.gen.frontends.onnx.values import OnnxNode, Value
from rtlstm.spec.activations.functions import RELU, ActivationFunction
from rtlstm.spec.budget import check_size
from rtlstm.spec.errors import ModelError

__all__ = ["LAYERS", "activation"]

Floats = NDArray[np.float64]


def activation(step: OnnxNode) -> Value:
    """An activation function's operator."""
    return _activate(step, operator_function(step.node))


def _activate(step: OnnxNode, function: ActivationFunction) -> Value:
    value = step.only()
    return Value(value.flow.activate(function, step.label, step.where), value.axes)


def _clip(step: OnnxNode) -> Value:
    attributes = step.attributes()
    limits = [
        float(attributes[name]) if name in attributes
        else float(step.constant(position, name).reshape(())) if step.has(position)
        else default
        for position, name, default in ((1, "min", -math.inf), (2, "max", math.inf))
    ]  # fmt: skip
    if limits == [0.0, math.inf]:
        return _activate(step, RELU)
    if not all(map(math.isfinite, limits)) or limits[0] >= limits[1]:
        raise ModelError(f"{step.where}: min and max must be two constants in order, not {limits}")
    return _activate(step, ActivationFunction.of("hard_tanh", *limits))


def _dense(step: OnnxNode, value: Value, weight: Floats, bias: Floats) -> Value:
    flow = value.flow.linear(step.label, step.where, weight, bias)
    return Value(flow, value.axes.with_features(weight.shape[0]))


def _matmul(step: OnnxNode) -> Value:
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


def _gemm(step: OnnxNode) -> Value:
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


def _conv(step: OnnxNode) -> Value:
    """Apply a convolution: of width 1 it is a dense layer, a wider causal one reads a delay line."""
    weight, attributes = step.constant(1, "the weight W"), step.attributes()
    value = step.along(step.only(), 1, weight.shape[1])
    rank, outputs = len(value.axes.tags), int(weight.shape[0])
    if weight.ndim != rank or weight.ndim < 3:
        raise ModelError(f"{step.where}: the weight must have {max(rank, 3)} axes, not {weight.ndim}")
    history = _history(step, weight.shape[2:], attributes, value.front)
    bias = step.constant(2, "the bias B") if step.has(2) else np.zeros(outputs)
    if bias.shape != (outputs,):
        raise ModelError(f"{step.where}: the bias B must have shape ({outputs},), not {bias.shape}")
    if not history:
        return _dense(step, value, weight.reshape(outputs, -1), bias)
    inputs, dilation = weight.shape[1], attributes.get("dilations", [1])[0]
    axes = value.axes.settle(("N", "F", "T"), inputs, step.where)
    check_size((outputs, history + 1, inputs), f"{step.where}: its weights with zeros between")
    wide = np.zeros((outputs, history + 1, inputs))
    wide[:, history::-dilation] = weight.transpose(0, 2, 1)
    delayed = Value(value.flow.delays(history, inputs, step.label, step.where), axes)
    return _dense(step, delayed, wide.reshape(outputs, -1), bias)


def _history(step: OnnxNode, kernel: tuple[int, ...], attributes: dict[str, Any], front: int) -> int:
    """Return how many earlier steps a convolution reads; refuse it if it reads later ones."""
    history = attributes.get("dilations", [1])[0] * (kernel[0] - 1)
    pads = list(attributes.get("pads", [0] * 2 * len(kernel)))
    problems = []
    if len(kernel) > 1 and set(kernel) != {1}:
        problems.append(f"the kernel must have one axis, not {kernel}")
    elif [pads[0] + front, *pads[1:]] != [history] + [0] * (2 * len(kernel) - 1):
        problems.append(
            f"attribute pads={pads} (and {front} zeros put in front) must be [{history}, 0]: the convolution "
            "must read this step and those before, and give as many steps as it reads"
        )
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") and set(kernel) != {1}:
        problems.append(f"attribute auto_pad={attributes['auto_pad']} must be NOTSET")
    for name, usual in (("group", 1), ("strides", [1] * len(kernel))):
        if attributes.get(name, usual) != usual:
            problems.append(f"attribute {name}={attributes[name]} must be {usual}")
    if problems:
        raise ModelError(f"{step.where}: " + "; ".join(problems))
    return int(history)


def _pad(step: OnnxNode) -> Value:
    """Zeros in front of the steps, for a causal convolution."""
    value, attributes = step.only(), step.attributes()
    pads = step.numbers("pads", 1) or []
    axes = value.axes.settle(("N", "F", "T"), value.axes.features, step.where)
    fill = attributes.get("value", 0.0)
    if step.has(2):
        fill = step.constant(2, "the value").item()
    chosen = (step.numbers("axes", 3) if step.has(3) else None) or [0, 1, 2]
    wanted = [0] * len(pads)
    front = pads[chosen.index(2)] if 2 in chosen else pads[chosen.index(-1)] if -1 in chosen else 0
    for position, axis in enumerate(chosen):
        wanted[position] = front if axis in (2, -1) else 0
    if pads != wanted or front < 0 or fill or attributes.get("mode", "constant") != "constant":
        raise ModelError(
            f"{step.where} must put zeros in front of the steps (the last of 3 axes), as a causal "
            f"convolution needs them, not pads={pads} of {fill:g}"
        )
    return Value(value.flow, axes, front=value.front + front)


LAYERS: dict[str, Callable[[OnnxNode], Value]] = {
    "Clip": _clip,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Pad": _pad,
}
"""The operators, each with the function that applies it."""
