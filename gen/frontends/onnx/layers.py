"""ONNX operators that are layers: dense ones, convolutions, and activations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.onnx.activations import operator_function
from rtlstm.gen.frontends.onnx.step_frames import convolve_frames
from rtlstm.gen.frontends.onnx.values import OnnxNode, Value
from rtlstm.gen.frontends.pace import CausalTaps
from rtlstm.spec.activations.functions import RELU, ActivationFunction
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
        else step.number(position, name) if step.has(position)
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
        result, constant = step.per_feature(2, result)
        addend = constant * float(attributes.get("beta", 1.0))
        result = Value(result.flow.shift(addend, step.where), result.axes)
    return result


def _conv(step: OnnxNode) -> Value:
    """Apply a convolution: of width 1 it is a dense layer, a wider causal one reads a delay line."""
    weight, attributes = step.constant(1, "the weight W"), step.attributes()
    value = step.along(step.only(), 1, weight.shape[1])
    rank, outputs = len(value.axes.tags), int(weight.shape[0])
    if weight.ndim != rank or weight.ndim < 3:
        raise ModelError(f"{step.where}: the weight must have {max(rank, 3)} axes, not {weight.ndim}")
    bias = step.constant(2, "the bias B") if step.has(2) else np.zeros(outputs)
    if bias.shape != (outputs,):
        raise ModelError(f"{step.where}: the bias B must have shape ({outputs},), not {bias.shape}")
    if value.axes.tags[-1][0] == "K":
        return convolve_frames(step, value, weight, bias)
    dilation, stride = (attributes.get(name, [1])[0] for name in ("dilations", "strides"))
    phase = _phase(step, weight.shape[2:], attributes, value.front)
    if weight.shape[2] == 1 and stride == 1:
        return _dense(step, value, weight.reshape(outputs, -1), bias)
    axes = value.axes.settle(("N", "F", "T"), weight.shape[1], step.where)
    flow = value.flow.convolve(step.label, step.where, weight, bias, dilation, stride, phase)
    return Value(flow, axes.with_features(outputs))


def _phase(step: OnnxNode, kernel: tuple[int, ...], attributes: dict[str, Any], front: int) -> int:
    """Return which of each ``strides`` steps a convolution reads last; refuse it if it reads later ones."""
    stride = attributes.get("strides", [1])[0]
    history = attributes.get("dilations", [1])[0] * (kernel[0] - 1)
    pads = list(attributes.get("pads", [0] * 2 * len(kernel)))
    problems = []
    taps = CausalTaps.of(history, stride, pads[0] + front, pads[len(kernel)])
    wide = len(kernel) > 1 and (set(kernel) != {1} or any(pads))
    if wide:
        problems.append(f"the kernel must have one axis, not {kernel}")
    elif taps is None or taps.extra:
        problems.append(
            f"attribute pads={pads} (and {front} zeros put in front) must be "
            f"[{CausalTaps.zeros(history, stride)}, 0]: the convolution must read this step and those "
            f"before, and give {'as many steps as it reads' if stride == 1 else f'one step for {stride}'}"
        )
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") and set(kernel) != {1}:
        problems.append(f"attribute auto_pad={attributes['auto_pad']} must be NOTSET")
    if attributes.get("group", 1) != 1:
        problems.append(f"attribute group={attributes['group']} must be 1")
    if len(kernel) > 1 and attributes.get("strides", [1] * len(kernel)) != [1] * len(kernel):
        problems.append(f"attribute strides={attributes['strides']} must be {[1] * len(kernel)}")
    if problems or taps is None:
        raise ModelError(f"{step.where}: " + "; ".join(problems))
    return taps.phase


def _pad(step: OnnxNode) -> Value:
    """Zeros in front of the steps, for a causal convolution."""
    value, attributes = step.only(), step.attributes()
    pads = step.numbers("pads", 1) or []
    axes = value.axes.settle(("N", "F", "T"), value.axes.features, step.where)
    fill = attributes.get("value", 0.0)
    if step.has(2):
        fill = step.number(2, "the value")
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
