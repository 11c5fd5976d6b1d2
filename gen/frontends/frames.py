"""Convolutions over the frames inside one step of a model, in front of its recurrent layer.

A step then has several frames, each of as many features: the core reads them side by side, and nothing of a
convolution passes to the next step. Their axis has the tag K and their number (``K4``). Few operators may
read it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.graph import Node
from rtlstm.gen.frontends.step import Step, Value
from rtlstm.gen.frontends.step_convolution import convolve_step
from rtlstm.spec.budget import check_size
from rtlstm.spec.errors import ModelError

_READERS = (
    "activation", "add", "batch_norm", "cast", "clip", "conv", "div", "identity", "mul", "neg", "sub",
)  # fmt: skip
_MOVERS = ("flatten", "reshape", "transpose")
"""Operators that may read frames: those that leave the axes as they are, and those that move them."""


def begins_with_frames(sizes: Sequence[int | None]) -> Iterator[tuple[Value, int]]:
    """Yield what an input of these sizes may be if its steps have frames, and how many frames.

    Channels are the second axis and frames the last one, as a convolution has them, or both are the last two.
    """
    rank, found = len(sizes), []
    for at, frames_at in ((1, rank - 1), (rank - 2, rank - 1), (rank - 1, rank - 2)):
        features, frames = (sizes[axis] if rank > 2 else None for axis in (at, frames_at))
        if (at, frames_at) in found or not features or not frames or frames < 2:
            continue
        found.append((at, frames_at))
        tags = [f"?{axis}" for axis in range(rank)]
        tags[at], tags[frames_at] = "F", f"K{frames}"
        yield Value(Flow(width=features * frames), Axes(tuple(tags), features)), frames


def may_be_between(node: Node) -> bool:
    """Whether an operator may stand between convolutions over frames, and behind them."""
    return node.operator in (*_READERS, *_MOVERS, "squeeze", "unsqueeze")


def check_frames(step: Step) -> Step:
    """Return a node as it reads frames inside a step: as an axis of size 1 if one is left.

    Raises
    ------
    ModelError
        If it reads several, and cannot.
    """
    operator, several = step.node.operator, any(value.axes.frames > 1 for value in step.values)
    if several and operator not in (*_READERS, *_MOVERS):
        raise ModelError(
            f"{step.where} reads frames inside a step, which only convolutions over them, arithmetic with "
            "constants, activations, Transpose, Flatten and Reshape may do"
        )
    if operator in _READERS:
        return step
    return replace(step, inputs=tuple(each and _without_single(each) for each in step.inputs))


def _without_single(value: Value) -> Value:
    tags = tuple("1" if tag == "K1" else tag for tag in value.axes.tags)
    return replace(value, axes=replace(value.axes, tags=tags))


def convolve_frames(
    step: Step, value: Value, weight: NDArray[np.float64], bias: NDArray[np.float64]
) -> Value:
    """Apply a convolution over the frames, the last axis, as a dense layer with zeros.

    Raises
    ------
    ModelError
        If it has groups, dilation, another padding in front than behind, or goes over other axes, too.
    """
    axes, attributes = value.axes, step.attributes()
    kernel, rank = weight.shape[2:], weight.ndim - 2
    pads = list(attributes.get("pads", [0] * 2 * rank))
    strides, dilations = (list(attributes.get(name, [1] * rank)) for name in ("strides", "dilations"))
    wanted: dict[str, tuple[Any, Any]] = {
        "group": (attributes.get("group", 1), 1),
        "dilations": (dilations, [1] * rank),
        "strides": (strides, [1] * (rank - 1) + (strides[-1:] or [1])),
        "pads": (pads, ([0] * (rank - 1) + (pads[rank - 1 : rank] or [0])) * 2),
        "kernel_shape": (list(kernel), [1] * (rank - 1) + [kernel[-1]]),
        "auto_pad": (attributes.get("auto_pad", "NOTSET").replace("VALID", "NOTSET"), "NOTSET"),
    }
    problems = [f"{name}={has} must be {must}" for name, (has, must) in wanted.items() if has != must]
    if problems:
        raise ModelError(
            f"{step.where} convolves over the {axes.frames} frames of a step: {'; '.join(problems)}"
        )
    taps = weight.reshape(*weight.shape[:2], kernel[-1])
    layer = convolve_step(step.label, taps, bias, axes.frames, stride=strides[-1], padding=pads[rank - 1])
    flow = value.flow.linear(step.label, step.where, layer.weight, layer.bias)
    left = layer.outputs // len(weight)
    return value.computed(flow, replace(axes, tags=(*axes.tags[:-1], f"K{left}"), features=len(weight)))


def join_frames(step: Step, value: Value) -> Value:
    """Return a value whose axes of frames and features, which must be neighbours, are one of features."""
    axes = value.axes
    at, frames_at = axes.tags.index("F"), axes.tags.index(f"K{axes.frames}")
    first = min(at, frames_at)
    if abs(at - frames_at) != 1:
        raise ModelError(f"{step.where} must read the frames of a step beside their features, not {axes}")
    flow, count = value.flow, axes.features
    check_size((axes.frames * count,) * 2, f"{step.where}: a matrix")
    if at < frames_at:  # The core has the frames one after the other, the model the features.
        order = np.arange(axes.frames * count).reshape(axes.frames, count).T.reshape(-1)
        flow = flow.pick(order.tolist(), step.where)
    tags = (*axes.tags[:first], "F", *axes.tags[first + 2 :])
    return replace(value, flow=flow, axes=replace(axes, tags=tags, features=axes.frames * count))
