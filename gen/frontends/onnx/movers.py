"""ONNX operators that move, split and join axes, but compute nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rtlstm.gen.frontends.onnx.step_frames import join_frames
from rtlstm.gen.frontends.onnx.values import OnnxNode, Value
from rtlstm.gen.frontends.sizes import Size
from rtlstm.spec.errors import ModelError

__all__ = ["MOVERS", "take_states"]

_LAST = 2**31 - 1
_FLOATS = (1, 10, 11, 16)
"""TensorProto's FLOAT, FLOAT16, DOUBLE and BFLOAT16."""


def _pass(step: OnnxNode) -> Value:
    return step.only()


def _dropout(step: OnnxNode) -> Value:
    value = step.only()
    if step.has(2):
        training = step.graph.constant(step.node.input[2])
        if training is None or np.any(training):
            raise ModelError(f"{step.where}: training_mode must be false; export the model for inference")
    return value


def _cast(step: OnnxNode) -> Value:
    if step.attributes().get("to") not in _FLOATS:
        raise ModelError(f"{step.where}: only casts between floating-point types are supported")
    return step.only()


def _transpose(step: OnnxNode) -> Value:
    axes = step.only().axes
    perm = step.attributes().get("perm", list(range(len(axes.tags)))[::-1])
    return step.moved(axes.transpose(perm, step.where))


def _squeeze(step: OnnxNode) -> Value:
    return step.moved(step.only().axes.squeeze(step.numbers("axes", 1), step.where))


def _unsqueeze(step: OnnxNode) -> Value:
    return step.moved(step.only().axes.unsqueeze(step.numbers("axes", 1) or [], step.where))


def _reshape(step: OnnxNode) -> Value:
    value = step.only()
    shape = step.sizes.of(step.node.input[1])
    copies = not step.attributes().get("allowzero", 0)
    known = step.sizes.known(step.node.input[0], value.axes)
    axes = value.axes.reshape(shape, step.where, zero_copies=copies, known=known)
    if axes.lost and value.axes.frames > 1:
        value = join_frames(step, value)
        if Size(0) in (shape or ())[value.axes.tags.index("F") :]:  # Copied sizes count the axes before.
            return replace(value, axes=axes)
        axes = value.axes.reshape(shape, step.where, zero_copies=copies, known=known)
    return replace(value, axes=axes)


def _flatten(step: OnnxNode) -> Value:
    value = step.only()
    if value.axes.lost:
        return value
    rank = len(value.axes.tags)
    cut = int(step.attributes().get("axis", 1))
    cut += rank if cut < 0 else 0
    if {"F", "K"} <= {tag[0] for tag in value.axes.tags[cut:]}:
        value = join_frames(step, value)
    axes = value.axes
    if cut in (0, rank):  # ONNX then inserts an axis of size 1 in front or at the end.
        axes = axes.flatten(0, -1, step.where)
        return replace(value, axes=axes.unsqueeze([0 if cut == 0 else 1], step.where))
    return replace(value, axes=axes.flatten(cut, -1, step.where).flatten(0, cut - 1, step.where))


def _features(step: OnnxNode, value: Value, axis: int, chosen: list[int]) -> Value:
    """Some of the features."""
    axes = value.axes
    size = axes.features
    if any(not -size <= index < size for index in chosen):
        raise ModelError(f"{step.where} takes features {chosen}, but there are {size}")
    if "B" in axes.tags:
        raise ModelError(f"{step.where} takes some features of two directions; join the directions before")
    return step.picked(value, axes.with_features(len(chosen)), [index % size for index in chosen])


def _directions(step: OnnxNode, value: Value, axis: int, index: int, keep: bool) -> Value:
    """One direction of two."""
    axes = value.axes
    first = (index % 2) * axes.features
    return step.picked(value, axes.without(axis, keep=keep), range(first, first + axes.features))


def _take(step: OnnxNode, value: Value, axis: int, index: int, keep: bool) -> Value:
    """One element of an axis."""
    value.axes.expect(step.where)
    rank = len(value.axes.tags)
    tag = value.axes.tags[axis % rank] if -rank <= axis < rank else ""
    if tag == "B" and -2 <= index < 2:
        return _directions(step, value, axis % rank, index, keep)
    if tag == "F" and keep:
        return _features(step, value, axis % rank, [index])
    return replace(value, axes=value.axes.select(axis, index, step.where, keep=keep))


def _gather(step: OnnxNode) -> Value:
    value, axes = step.only(), step.only().axes
    axis = int(step.attributes().get("axis", 0))
    chosen = step.graph.constant(step.node.input[1])
    if chosen is None or chosen.ndim > 1:
        raise ModelError(f"{step.where} must take elements by a constant index or a list of them")
    if chosen.size == 1:
        return _take(step, value, axis, int(chosen.reshape(-1)[0]), keep=chosen.ndim == 1)
    axes.expect_features_at(axis, step.where)
    return _features(step, value, axis, [int(index) for index in chosen])


def _slice(step: OnnxNode) -> Value:
    value = step.only()
    starts, ends = step.numbers("starts", 1) or [], step.numbers("ends", 2) or []
    chosen = step.numbers("axes", 3) or list(range(len(starts)))
    strides = (step.numbers("steps", 4) if step.has(4) else None) or [1] * len(starts)
    for axis, start, end, stride in zip(chosen, starts, ends, strides, strict=True):
        value = _slice_axis(step, value, axis, slice(start, end, stride))
    return value


def _slice_axis(step: OnnxNode, value: Value, axis: int, cut: slice) -> Value:
    axes = value.axes
    axes.expect(step.where)
    tag = axes.tags[axis] if -len(axes.tags) <= axis < len(axes.tags) else ""
    if tag == "F":
        features = list(range(axes.features))[cut]
        return value if len(features) == axes.features else _features(step, value, axis, features)
    if tag == "B" and len(range(2)[cut]) == 1:
        return _take(step, value, axis, range(2)[cut][0], keep=True)
    if cut.step != 1 or cut.stop < _LAST or cut.start not in (0, -1):
        raise ModelError(
            f"{step.where} takes [{cut.start}:{cut.stop}:{cut.step}] of axis {axis}; of the steps only the "
            "last, [-1:], can be taken"
        )
    return _take(step, value, axis, -1, keep=True) if cut.start == -1 else value


def take_states(step: OnnxNode, parts: Sequence[Value]) -> Value | None:
    """Select from layers' states, concatenated on the first axis, those that a Gather or Slice takes.

    None if that is not one layer's states, or one direction's.
    """
    entries = [(part, index) for part in parts for index in range(1 + (part.axes.tags[0] == "B"))]
    keep = True
    if step.node.op_type == "Gather":
        chosen = step.graph.constant(step.node.input[1])
        if chosen is None or chosen.size != 1 or step.attributes().get("axis", 0) != 0:
            return None
        index = int(chosen.reshape(-1)[0])
        keep = chosen.ndim == 1
        taken = [entries[index]] if -len(entries) <= index < len(entries) else []
    else:
        starts, ends, strides = (step.numbers(*given) for given in (("starts", 1), ("ends", 2), ("steps", 4)))
        if starts is None or ends is None or len(starts) != 1 or (step.numbers("axes", 3) or [0]) != [0]:
            return None
        taken = entries[starts[0] : ends[0] : (strides or [1])[0]]
    if len(taken) == 1:
        part, index = taken[0]
        return _take(step, part, 0, index, keep)
    whole = bool(taken) and all(part is taken[0][0] for part, _ in taken)
    return taken[0][0] if whole and [index for _, index in taken] == [0, 1] else None


def _split(step: OnnxNode) -> list[Value]:
    value = step.only()
    axes, parts = value.axes, len(step.node.output)
    axes.expect(step.where)
    axis = int(step.attributes().get("axis", 0))
    tag = axes.tags[axis] if -len(axes.tags) <= axis < len(axes.tags) else ""
    if tag == "B" and parts == 2:
        return [_take(step, value, axis, index, keep=True) for index in range(2)]
    axes.expect_features_at(axis, step.where)
    each = -(-axes.features // parts)
    sizes = step.numbers("split", 1) or [each] * (parts - 1) + [axes.features - each * (parts - 1)]
    ends = np.cumsum(sizes)
    return [
        _features(step, value, axis, list(range(end - size, end)))
        for size, end in zip(sizes, ends, strict=True)
    ]


MOVERS: dict[str, Callable[[OnnxNode], Value | list[Value]]] = {
    "Cast": _cast,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _pass,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""The operators, each with the function that applies it."""
