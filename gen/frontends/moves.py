"""Operators that move, split and join axes, but compute nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rtlstm.gen.frontends.layers import join_frames
from rtlstm.gen.frontends.sizes import Size
from rtlstm.gen.frontends.step import Step, Value
from rtlstm.spec.errors import ModelError

_LAST = 2**31 - 1


def _pass(step: Step) -> Value:
    return step.only()


def _cast(step: Step) -> Value:
    if not step.attributes().get("floating"):
        raise ModelError(f"{step.where}: only casts between floating-point types are supported")
    return step.only()


def _transpose(step: Step) -> Value:
    axes, attributes = step.only().axes, step.attributes()
    if "swap" in attributes:
        first, second = attributes["swap"]
        return step.moved(axes.swap(first, second, step.where))
    perm = attributes.get("perm", list(range(len(axes.tags)))[::-1])
    return step.moved(axes.transpose(perm, step.where))


def _squeeze(step: Step) -> Value:
    strict = bool(step.attributes().get("strict", True))
    return step.moved(step.only().axes.squeeze(step.numbers("axes", 1), step.where, strict=strict))


def _unsqueeze(step: Step) -> Value:
    return step.moved(step.only().axes.unsqueeze(step.numbers("axes", 1) or [], step.where))


def _shape(step: Step) -> Sequence[Size | None] | None:
    """The shape of a reshape, with sizes of tensors that only a run knows by their names."""
    given: Any = step.attributes().get("shape")
    if given is None:
        return step.sizes.of(step.node.inputs[1])
    found: list[Size | None] = []
    for size in given:
        sizes = (Size(size),) if isinstance(size, int) else step.sizes.of(size) or (None,)
        found += sizes
    return found


def _reshape(step: Step) -> Value:
    value, shape = step.only(), _shape(step)
    copies = not step.attributes().get("allowzero", 0)
    known = step.sizes.known(step.node.inputs[0], value.axes)
    axes = value.axes.reshape(shape, step.where, zero_copies=copies, known=known)
    if axes.lost and value.axes.frames > 1:
        value = join_frames(step, value)
        if Size(0) in (shape or ())[value.axes.tags.index("F") :]:  # Copied sizes count the axes before.
            return replace(value, axes=axes)
        axes = value.axes.reshape(shape, step.where, zero_copies=copies, known=known)
    return replace(value, axes=axes)


def _flatten(step: Step) -> Value:
    value, attributes = step.only(), step.attributes()
    if value.axes.lost:
        return value
    if "start" in attributes:
        return step.moved(value.axes.flatten(attributes["start"], attributes["end"], step.where))
    rank = len(value.axes.tags)
    cut = int(attributes.get("axis", 1))
    cut += rank if cut < 0 else 0
    if {"F", "K"} <= {tag[0] for tag in value.axes.tags[cut:]}:
        value = join_frames(step, value)
    axes = value.axes
    if cut in (0, rank):  # ONNX then inserts an axis of size 1 in front or at the end.
        axes = axes.flatten(0, -1, step.where)
        return replace(value, axes=axes.unsqueeze([0 if cut == 0 else 1], step.where))
    return replace(value, axes=axes.flatten(cut, -1, step.where).flatten(0, cut - 1, step.where))


def _features(step: Step, value: Value, chosen: list[int]) -> Value:
    """Some of the features; of both directions, if these stand apart."""
    axes = value.axes
    size = axes.features
    if any(not -size <= index < size for index in chosen):
        raise ModelError(f"{step.where} takes features {chosen}, but there are {size}")
    if not chosen:
        raise ModelError(f"{step.where} keeps none of {size} features")
    kept = [index % size for index in chosen]
    directions = 1 + ("B" in axes.tags)
    every = [at * size + index for at in range(directions) for index in kept]
    return step.picked(value, axes.with_features(len(kept)), every)


def _direction(step: Step, value: Value, axis: int, index: int, keep: bool) -> Value:
    """One direction of two."""
    axes = value.axes
    first = (index % 2) * axes.features
    return step.picked(value, axes.without(axis, keep=keep), range(first, first + axes.features))


def _take(step: Step, value: Value, axis: int, index: int, keep: bool) -> Value:
    """One element of an axis."""
    value.axes.expect(step.where)
    rank = len(value.axes.tags)
    tag = value.axes.tags[axis % rank] if -rank <= axis < rank else ""
    if (tag == "B" and -2 <= index < 2) or (tag == "S" and index in (-2, -1)):
        return _direction(step, value, axis % rank, index, keep)
    if tag == "F" and keep:
        return _features(step, value, [index])
    if tag == "T" and index == -1 and value.padded:
        raise ModelError(
            f"{step.where} takes a step of sequences that {value.padded} padded: of a shorter one that is "
            "padding; take the final state h_n instead"
        )
    if tag == "T" and index > 0 and index + 1 == step.steps(value):
        index = -1
    return replace(value, axes=value.axes.select(axis, index, step.where, keep=keep))


def _select(step: Step) -> Value:
    attributes = step.attributes()
    return _take(step, step.only(), int(attributes["axis"]), int(attributes["index"]), keep=False)


def _gather(step: Step) -> Value:
    value, axes = step.only(), step.only().axes
    axis = int(step.attributes().get("axis", 0))
    chosen = step.graph.constant(step.node.inputs[1])
    if chosen is None or chosen.ndim > 1:
        raise ModelError(f"{step.where} must take elements by a constant index or a list of them")
    if chosen.size == 1:
        return _take(step, value, axis, int(chosen.reshape(-1)[0]), keep=chosen.ndim == 1)
    axes.expect_features_at(axis, step.where)
    return _features(step, value, [int(index) for index in chosen])


def _slice(step: Step) -> Value:
    value = step.only()
    starts, ends = step.numbers("starts", 1) or [], step.numbers("ends", 2) or []
    chosen = step.numbers("axes", 3) or list(range(len(starts)))
    strides = (step.numbers("steps", 4) if step.has(4) or "steps" in step.attributes() else None) or [
        1
    ] * len(starts)
    for axis, start, end, stride in zip(chosen, starts, ends, strides, strict=True):
        value = _slice_axis(step, value, axis, slice(start, end, stride))
    return value


def _slice_axis(step: Step, value: Value, axis: int, cut: slice) -> Value:
    axes = value.axes
    axes.expect(step.where)
    tag = axes.tags[axis] if -len(axes.tags) <= axis < len(axes.tags) else ""
    if tag == "F":
        features = list(range(axes.features))[cut]
        return value if len(features) == axes.features else _features(step, value, features)
    if tag == "B" and len(range(2)[cut]) == 1:
        return _take(step, value, axis, range(2)[cut][0], keep=True)
    if tag == "B" and len(range(2)[cut]) == 2:
        return value
    whole = cut.step == 1 and cut.stop >= _LAST
    if tag == "S" and whole and cut.start == -2:
        tags = tuple("B" if one == "S" else one for one in axes.tags)
        return replace(value, axes=replace(axes, tags=tags))
    if tag == "T":
        if value.extra and (cut.start, cut.stop, cut.step) == (0, -value.extra, 1):
            return replace(value, extra=0)
        steps = step.steps(value)
        if steps > 1 and cut.step == 1 and cut.start == steps - 1 and cut.stop >= steps:
            cut, whole = slice(-1, _LAST, 1), True
    if not whole or cut.start not in (0, -1):
        raise ModelError(
            f"{step.where} takes [{cut.start}:{cut.stop}:{cut.step}] of axis {axis}; of the steps only the "
            "last, [-1:], can be taken"
        )
    return _take(step, value, axis, -1, keep=True) if cut.start == -1 else value


def take_states(step: Step, parts: Sequence[Value]) -> Value | None:
    """Select from layers' states, concatenated on the first axis, those that a node takes.

    None if that is not one layer's states, or one direction's.
    """
    entries = [(part, index) for part in parts for index in range(1 + (part.axes.tags[0] == "B"))]
    keep, attributes = True, step.attributes()
    if step.node.operator in ("gather", "select"):
        if step.node.operator == "select":
            index, keep = int(attributes["index"]), False
        else:
            chosen = step.graph.constant(step.node.inputs[1])
            if chosen is None or chosen.size != 1:
                return None
            index, keep = int(chosen.reshape(-1)[0]), chosen.ndim == 1
        if attributes.get("axis", 0) != 0:
            return None
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


def _split(step: Step) -> list[Value]:
    value = step.only()
    axes, parts = value.axes, len(step.node.outputs)
    if parts == 1:
        return [value]
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
        _features(step, value, list(range(end - size, end))) for size, end in zip(sizes, ends, strict=True)
    ]


def _pack(step: Step) -> Value:
    """From here on every sequence ends at its length."""
    value = step.only()
    if value.front or value.extra:
        raise ModelError(f"{step.where} reads steps that a convolution padded; drop the last ones first")
    axes = value.axes.settle(_layout(step), value.flow.outputs or 0, step.where)
    if axes.last_step or axes.first_step:
        raise ModelError(f"{step.where} must read every step of a sequence, not one of them")
    return replace(value, axes=replace(axes, tags=("T", "N", "F")), packed=step.where, padded="")


def _unpack(step: Step) -> Value:
    """Sequences that are padded to one length again."""
    value = step.only()
    if not value.packed:
        raise ModelError(f"{step.where} must read a PackedSequence")
    return replace(value, axes=replace(value.axes, tags=_layout(step)), packed="", padded=step.where)


def _layout(step: Step) -> tuple[str, ...]:
    return ("N", "T", "F") if step.attributes().get("batch_first") else ("T", "N", "F")


MOVES: dict[str, Callable[[Step], Value | list[Value]]] = {
    "cast": _cast,
    "flatten": _flatten,
    "gather": _gather,
    "identity": _pass,
    "pack": _pack,
    "reshape": _reshape,
    "select": _select,
    "slice": _slice,
    "split": _split,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "unpack": _unpack,
    "unsqueeze": _unsqueeze,
}
"""The operators, each with the function that applies it."""
