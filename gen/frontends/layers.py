"""Operators that are layers: dense ones, convolutions, activations, embeddings."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.frames import convolve_frames
from rtlstm.gen.frontends.pace import CausalTaps
from rtlstm.gen.frontends.step import Step, Value
from rtlstm.spec.activations.functions import RELU, ActivationFunction
from rtlstm.spec.errors import ModelError

Floats = NDArray[np.float64]


def _activation(step: Step) -> Value:
    given: Any = step.attributes()["function"]
    return _activate(step, given if isinstance(given, ActivationFunction) else given())


def _activate(step: Step, function: ActivationFunction) -> Value:
    value = step.only()
    return value.computed(value.flow.activate(function, step.label, step.where))


def _clip(step: Step) -> Value:
    attributes = step.attributes()
    limits = [
        float(attributes[name]) if attributes.get(name) is not None
        else step.number(position, name) if step.has(position)
        else default
        for position, name, default in ((1, "min", -math.inf), (2, "max", math.inf))
    ]  # fmt: skip
    if limits == [0.0, math.inf]:
        return _activate(step, RELU)
    if not all(map(math.isfinite, limits)) or limits[0] >= limits[1]:
        raise ModelError(f"{step.where}: min and max must be two constants in order, not {limits}")
    return _activate(step, ActivationFunction.of("hard_tanh", *limits))


def _dense(step: Step, value: Value, weight: Floats, bias: Floats) -> Value:
    flow = value.flow.linear(step.label, step.where, weight, bias)
    return value.computed(flow, value.axes.with_features(weight.shape[0]))


def _linear(step: Step) -> Value:
    weight = step.constant(1, "the weight")
    if weight.ndim != 2:
        raise ModelError(f"{step.where}: the weight must have 2 axes, not {weight.ndim}")
    bias = step.constant(2, "the bias") if step.has(2) else np.zeros(len(weight))
    if bias.shape != (len(weight),):
        raise ModelError(f"{step.where}: the bias must have shape ({len(weight)},), not {bias.shape}")
    return _dense(step, step.along(step.only(), -1, weight.shape[1]), weight, bias)


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
    result = _dense(step, replace(value, axes=axes), weight, np.zeros(weight.shape[0]))
    if step.has(2):
        result, constant = step.per_feature(2, result)
        addend = constant * float(attributes.get("beta", 1.0))
        result = replace(result, flow=result.flow.shift(addend, step.where))
    return result


# Layers that read several steps


def _axes_of(step: Step, value: Value, features: int) -> Axes:
    """The axes of what a layer along the steps reads."""
    layout = tuple(step.attributes().get("layout", "NFT"))
    return value.axes.settle(layout, features, step.where)


def _conv(step: Step) -> Value:
    """Apply a convolution: of width 1 it is a dense layer, a wider causal one reads a delay line."""
    weight, attributes = step.constant(1, "the weight W"), step.attributes()
    layout = attributes.get("layout", "NFT")
    value = step.along(step.only(), layout.index("F"), weight.shape[1])
    rank, outputs = len(value.axes.tags), int(weight.shape[0])
    if weight.ndim != rank or weight.ndim < 3:
        raise ModelError(f"{step.where}: the weight must have {max(rank, 3)} axes, not {weight.ndim}")
    bias = step.constant(2, "the bias B") if step.has(2) else np.zeros(outputs)
    if bias.shape != (outputs,):
        raise ModelError(f"{step.where}: the bias B must have shape ({outputs},), not {bias.shape}")
    if value.axes.tags[-1][0] == "K":
        return convolve_frames(step, value, weight, bias)
    dilation, stride = (attributes.get(name, [1])[0] for name in ("dilations", "strides"))
    taps = _taps(step, weight.shape[2:], value.front)
    if weight.shape[2] == 1 and stride == 1 and not taps.extra:
        return _dense(step, value, weight.reshape(outputs, -1), bias)
    axes = _axes_of(step, value, weight.shape[1])
    flow = value.flow.convolve(step.label, step.where, weight, bias, dilation, stride, taps.phase)
    return replace(value.computed(flow, axes.with_features(outputs)), extra=taps.extra)


def _taps(step: Step, kernel: tuple[int, ...], front: int) -> CausalTaps:
    """Return which of each ``strides`` steps a convolution reads last; refuse it if it reads later ones."""
    attributes = step.attributes()
    stride = attributes.get("strides", [1])[0]
    history = attributes.get("dilations", [1])[0] * (kernel[0] - 1)
    pads = list(attributes.get("pads", [0] * 2 * len(kernel)))
    problems = []
    taps = CausalTaps.of(history, stride, pads[0] + front, pads[len(kernel)])
    if len(kernel) > 1 and (set(kernel) != {1} or any(pads)):
        problems.append(f"the kernel must have one axis, not {kernel}")
    elif stride < 1:
        problems.append(f"attribute strides=[{stride}] must be 1 or more")
    elif taps is None:
        drop = f", or put {history} zeros at both ends and drop the last {history} steps" * (stride == 1)
        problems.append(
            f"it must be causal, but with pads={pads} and {front} zeros put in front it looks ahead or "
            f"drops steps; put {CausalTaps.zeros(history, stride)} zeros in front of the steps, and none "
            f"behind them{drop}"
        )
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") and set(kernel) != {1}:
        problems.append(f"attribute auto_pad={attributes['auto_pad']} must be NOTSET")
    if attributes.get("padding_mode", "zeros") != "zeros" and any(pads):
        problems.append(f"padding_mode={attributes['padding_mode']!r} must be 'zeros'")
    if attributes.get("group", 1) != 1:
        problems.append(f"attribute group={attributes['group']} must be 1")
    if len(kernel) > 1 and attributes.get("strides", [1] * len(kernel)) != [1] * len(kernel):
        problems.append(f"attribute strides={attributes['strides']} must be {[1] * len(kernel)}")
    if problems or taps is None:
        raise ModelError(f"{step.where}: " + "; ".join(problems))
    return taps


def _average_pool(step: Step) -> Value:
    """The mean of the last steps, as a convolution with equal weights."""
    value, attributes = step.only(), step.attributes()
    (size,), (stride,) = attributes["size"], attributes.get("strides", [1])
    if value.flow.outputs is None:
        raise ModelError(f"{step.where} must follow a layer with weights, such as a convolution")
    axes = _axes_of(step, value, value.flow.outputs)
    taps = _taps(step, (size,), value.front)
    features, every = axes.features, np.arange(axes.features)
    flow = value.flow.delays(size - 1, features, step.label, step.where).strided(stride, taps.phase)
    parts = [flow.pick((every + at * features).tolist(), step.where) for at in range(size)]
    total = parts[0]
    for part in parts[1:]:
        total = total.plus(part, step.where)
    return replace(value.computed(total.scale(np.array(1 / size), step.where), axes), extra=taps.extra)


def _pad(step: Step) -> Value:
    """Zeros in front of the steps, for a causal convolution."""
    value, attributes = step.only(), step.attributes()
    pads = step.numbers("pads", 1) or []
    layout = attributes.get("layout", "NFT")
    axes = _axes_of(step, value, value.axes.features)
    fill = attributes.get("value", 0.0)
    if step.has(2):
        fill = step.number(2, "the value")
    chosen = (step.numbers("axes", 3) if step.has(3) or "axes" in attributes else None) or [0, 1, 2]
    at = layout.index("T")
    here = (at, at - 3)
    front = next((pad for pad, axis in zip(pads, chosen, strict=False) if axis in here), 0)
    wanted = [front if axis in here else 0 for axis in chosen] + [0] * (len(pads) - len(chosen))
    if pads != wanted or front < 0 or fill or attributes.get("mode", "constant") != "constant":
        raise ModelError(
            f"{step.where} must put zeros in front of the steps (axis {at} of 3), as a causal "
            f"convolution needs them, not pads={pads} of {fill:g}"
        )
    return replace(value, axes=axes, front=value.front + front, state="")


# A table of the host's


def embed(table: Floats, ids: Sequence[str]) -> Value:
    """Rows of a table that the host looks up, for numbers on these axes."""
    return Value(Flow(width=table.shape[1]), Axes((*ids, "F"), table.shape[1]))


LAYERS: dict[str, Callable[[Step], Value]] = {
    "activation": _activation,
    "average_pool": _average_pool,
    "clip": _clip,
    "conv": _conv,
    "gemm": _gemm,
    "linear": _linear,
    "matmul": _matmul,
    "pad": _pad,
}
"""The operators, each with the function that applies it."""
WEIGHTED = ("conv", "gemm", "linear", "matmul")
"""Operators that have weights."""
