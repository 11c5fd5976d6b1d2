"""Operators that move, split and join axes but compute nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from rtlstm.gen.frontends.axes import Size
from rtlstm.gen.frontends.graph import BY_INDEX
from rtlstm.gen.frontends.layers import Step, Value
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import check_size

_LAST = 2**31 - 1


def _cast(step: Step) -> Value:
    if not step.attributes().get("floating"):
        raise ModelError(f"{step.where}: only casts between floating-point types are supported")
    return step.only()


def _repeat(step: Step) -> Value:
    """A value that is the same in every step, for each of them; sums and joins take it as it is."""
    value = next(iter(step.values))
    if not value.still:
        raise ModelError(
            f"{step.where} repeats what the core computes, which only an input without steps can be; end "
            "before it, and begin another build behind it"
        )
    return value


def _transpose(step: Step) -> Value:
    axes, attributes = step.only().axes, step.attributes()
    if "swap" in attributes:
        first, second = attributes["swap"]
        return step.moved(axes.swap(first, second, step.where))
    perm = attributes.get("perm", list(range(len(axes.tags)))[::-1])
    return step.moved(axes.transpose(perm, step.where))


def _squeeze(step: Step) -> Value:
    axes, strict = step.only().axes, bool(step.attributes().get("strict", True))
    return step.moved(axes.squeeze(step.numbers("axes", 1), step.where, strict=strict))


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


def _last_steps(step: Step, value: Value, first: int, last: int) -> Value | None:
    """Steps and features that an operator merges: features of the last step, which reads those before it.

    None if it merges other axes, or nothing tells how many steps there are.
    """
    axes, steps = value.axes, step.sizes.steps or step.steps(value)
    merged = axes.tags[first : last + 1]
    if {*merged} != {"T", "F"} or len(merged) != 2 or not steps:
        return None
    if value.padded or value.extra:
        raise ModelError(
            f"{step.where} joins steps that {value.padded or 'a convolution'} padded; give sequences of as "
            "many steps to the driver instead, and leave the lengths out of the model"
        )
    count = axes.features
    flow = value.flow.delays(steps - 1, count, step.label, step.where)
    order = np.arange(steps * count).reshape(steps, count)[::-1]  # A line has the newest step first.
    order = order if merged == ("T", "F") else order.T
    tags = (*axes.tags[:first], "F", *axes.tags[last + 1 :])
    step.notes.append(f"{step.where} joins {steps} steps: give sequences of as many")
    return value.computed(
        flow.pick(order.reshape(-1).tolist(), step.where),
        replace(axes, tags=tags, features=steps * count, last_step=True),
    )


def join_frames(step: Step, value: Value) -> Value:
    """Return a value whose axes of frames and features, which must be neighbours, are one of features.

    Groups of features are lost if other axes stand between.
    """
    axes = value.axes
    at, frames_at = axes.tags.index("F"), axes.tags.index(f"K{axes.frames}")
    first = min(at, frames_at)
    if abs(at - frames_at) != 1:
        if axes.grouped:
            return replace(value, axes=axes.ungrouped())
        raise ModelError(f"{step.where} must read the frames of a step beside their features, not {axes}")
    flow, count = value.flow, axes.features
    check_size((axes.frames * count,) * 2, f"{step.where}: a matrix")
    if at < frames_at:  # The core has the frames one after the other, the model the features.
        order = np.arange(axes.frames * count).reshape(axes.frames, count).T.reshape(-1)
        flow = flow.pick(order.tolist(), step.where)
    tags = (*axes.tags[:first], "F", *axes.tags[first + 2 :])
    joined = replace(axes, tags=tags, features=axes.frames * count, grouped="")
    return replace(value, flow=flow, axes=joined)


def _reshape(step: Step) -> Value:
    value, shape = step.only(), _shape(step)
    copies, tags = not step.attributes().get("allowzero", 0), value.axes.tags
    known = step.sizes.known(step.node.inputs[0], value.axes)
    if shape and len(shape) == 2 and len(tags) == 3 and tags[0] == "N" and shape[1] is not None:
        wide = shape[1].number if not shape[1].names else 0
        joined = _last_steps(step, value, 1, 2) if wide == -1 or wide > value.axes.features else None
        if joined is not None and wide in (-1, joined.axes.features):
            return joined
    axes = value.axes.reshape(shape, step.where, zero_copies=copies, known=known)
    if axes.lost and ("F", "B") in pairwise(tags):  # as only groups can be
        value = value.with_groups(step.where)
    if axes.lost and value.axes.frames > 1:
        value = join_frames(step, value)
        # Copied sizes count the axes before.
        if not value.axes.lost and Size(0) not in (shape or ())[value.axes.tags.index("F") :]:
            axes = value.axes.reshape(shape, step.where, zero_copies=copies, known=known)
    return replace(value, axes=axes)


def _flatten(step: Step) -> Value:
    value, attributes = step.only(), step.attributes()
    if value.axes.lost:
        return value
    rank = len(value.axes.tags)
    if "start" in attributes:
        first, last = (
            at % rank if -rank <= at < rank else at for at in (attributes["start"], attributes["end"])
        )
        if ("F", "B") in pairwise(value.axes.tags[first : last + 1]):
            value = value.with_groups(step.where)
        if {"F", "K"} <= {tag[0] for tag in value.axes.tags[first : last + 1]}:
            value, last = join_frames(step, value), last - 1
        joined = _last_steps(step, value, first, last)
        return joined or replace(value, axes=value.axes.flatten(first, last, step.where))
    cut = int(attributes.get("axis", 1))
    cut += rank if cut < 0 else 0
    joined = _last_steps(step, value, cut, rank - 1) if cut == 1 else None
    if joined is not None:
        return joined
    if {"F", "K"} <= {tag[0] for tag in value.axes.tags[cut:]}:
        value = join_frames(step, value)
    axes = value.axes
    if cut in (0, rank):  # ONNX then inserts an axis of size 1 in front or at the end.
        axes = axes.flatten(0, -1, step.where)
        return replace(value, axes=axes.unsqueeze([0 if cut == 0 else 1], step.where))
    return replace(value, axes=axes.flatten(cut, -1, step.where).flatten(0, cut - 1, step.where))


def _features(step: Step, value: Value, chosen: Sequence[int]) -> Value:
    """Some of the features; of both directions or of each group, if these stand apart."""
    axes = value.axes
    size = axes.features
    if any(not -size <= index < size for index in chosen):
        raise ModelError(f"{step.where} takes features {chosen}, but there are {size}")
    if not chosen:
        raise ModelError(f"{step.where} keeps none of {size} features")
    kept = [index % size for index in chosen]
    groups = axes.frames * (1 + ("B" in axes.tags))
    every = [at * size + index for at in range(groups) for index in kept]
    return step.picked(value, axes.with_features(len(kept)), every)


def _take(step: Step, value: Value, axis: int, index: int, keep: bool) -> Value:
    """One element of an axis."""
    axes = value.axes
    axes.expect(step.where)
    rank = len(axes.tags)
    tag = axes.tags[axis % rank] if -rank <= axis < rank else ""
    apart = axes.frames if tag[:1] == "K" else 2
    # One direction of two, or one group.
    if (tag[:1] in ("B", "K") and -apart <= index < apart) or (tag == "S" and index in (-2, -1)):
        first = (index % apart) * axes.features
        return step.picked(value, axes.without(axis % rank, keep=keep), range(first, first + axes.features))
    if tag == "F" and (keep or "B" not in axes.tags):
        value = _features(step, value, [index])
        return value if keep else replace(value, axes=value.axes.squeeze([axis], step.where))
    if tag == "T" and index == -1 and value.padded:
        raise ModelError(
            f"{step.where} takes a step of sequences that {value.padded} padded: of a shorter one that is "
            "padding; take the final state h_n instead"
        )
    if tag == "T" and index > 0 and index + 1 == step.steps(value):
        index = -1
    return replace(value, axes=axes.select(axis, index, step.where, keep=keep))


def _chosen(step: Step) -> list[tuple[int, int | list[int] | slice, bool]]:
    """What a node takes: of each axis one element, some, or a range of them, and whether the axis stays."""
    attributes = step.attributes()
    if step.node.operator == "select":
        return [(int(attributes["axis"]), int(attributes["index"]), False)]
    if step.node.operator == "gather":
        chosen = step.graph.constant(step.node.inputs[1])
        if chosen is None or chosen.ndim > 1:
            raise ModelError(f"{step.where} {BY_INDEX}")
        indices = [int(index) for index in chosen.reshape(-1)]
        which = indices[0] if len(indices) == 1 else indices
        return [(int(attributes.get("axis", 0)), which, chosen.ndim == 1)]
    names = enumerate(("starts", "ends", "axes", "steps"), start=1)
    starts, ends, axes, strides = (step.numbers(name, at) or [] for at, name in names)
    limits = (axes or range(len(starts)), starts, ends, strides or [1] * len(starts))
    if len(set(map(len, limits))) > 1:
        raise ModelError(
            f"{step.where} must have as many starts as ends, axes and steps; the model is damaged"
        )
    return [(axis, slice(*cut), True) for axis, *cut in zip(*limits, strict=True)]


def _part(step: Step) -> Value:
    value = step.only()
    for axis, which, keep in _chosen(step):
        if isinstance(which, slice):
            value = _slice_axis(step, value, axis, which)
        elif isinstance(which, int):
            value = _take(step, value, axis, which, keep)
        elif value.axes.tags[axis : axis + 1 or None][:1] == (f"K{value.axes.frames}",):
            value = _groups(step, value, which)
        else:
            value.axes.expect_features_at(axis, step.where)
            value = _features(step, value, which)
    return value


def _groups(step: Step, value: Value, chosen: Sequence[int]) -> Value:
    """Some of the groups of features, in the given order."""
    axes, each = value.axes, value.axes.features
    if not chosen or any(not -axes.frames <= index < axes.frames for index in chosen):
        raise ModelError(f"{step.where} takes groups {list(chosen)}, but there are {axes.frames}")
    every = [index % axes.frames * each + at for index in chosen for at in range(each)]
    old, new = f"K{axes.frames}", f"K{len(chosen)}"
    return step.picked(value, value.retagged(old, new).axes, every)


def _slice_axis(step: Step, value: Value, axis: int, cut: slice) -> Value:
    axes = value.axes
    axes.expect(step.where)
    tag = axes.tags[axis] if -len(axes.tags) <= axis < len(axes.tags) else ""
    if tag == "F":
        features = list(range(axes.features))[cut]
        return value if features == [*range(axes.features)] else _features(step, value, features)
    if tag[:1] == "K":
        return _groups(step, value, range(axes.frames)[cut])
    if tag == "B" and len(range(2)[cut]) == 1:
        return _take(step, value, axis, range(2)[cut][0], keep=True)
    if tag == "B" and cut.step > 0 and len(range(2)[cut]) == 2:
        return value
    whole = cut.step == 1 and cut.stop >= _LAST
    if tag == "S" and whole and cut.start == -2:
        return value.retagged("S", "B")
    if tag == "T":
        if value.extra and (cut.start, cut.stop, cut.step) == (0, -value.extra, 1):
            return replace(value, extra=0)
        steps = step.steps(value)
        if steps > 1 and cut.step == 1 and cut.start == steps - 1 and cut.stop >= steps:
            cut, whole = slice(-1, _LAST, 1), True
    if not whole or cut.start not in (0, -1):
        unknown = ", which no layer before it shows to be the features" * tag.startswith("?")
        raise ModelError(
            f"{step.where} takes [{cut.start}:{cut.stop}:{cut.step}] of axis {axis}{unknown}; of the steps "
            "only the last, [-1:], can be taken"
        )
    return _take(step, value, axis, -1, keep=True) if cut.start == -1 else value


def take_states(step: Step, parts: Sequence[Value]) -> Value | None:
    """Select from layers' states, concatenated on the first axis, those that a node takes.

    None if that is not one layer's states, or one direction's.
    """
    entries = [(part, index) for part in parts for index in range(1 + (part.axes.tags[0] == "B"))]
    try:
        ((axis, which, keep),) = _chosen(step)
    except (ModelError, ValueError):
        return None
    if axis != 0 or isinstance(which, list):
        return None
    if isinstance(which, slice):
        taken = entries[which]
    else:
        taken = [entries[which]] if -len(entries) <= which < len(entries) else []
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
    count, take = axes.frames, _groups
    if tag[:1] != "K":
        axes.expect_features_at(axis, step.where)
        count, take = axes.features, _features
    each = -(-count // parts)
    sizes = step.numbers("split", 1) or [each] * (parts - 1) + [count - each * (parts - 1)]
    ends = np.cumsum(sizes)
    return [take(step, value, list(range(end - size, end))) for size, end in zip(sizes, ends, strict=True)]


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
    "expand": _repeat,
    "flatten": _flatten,
    "gather": _part,
    "identity": Step.only,
    "pack": _pack,
    "reshape": _reshape,
    "select": _part,
    "slice": _part,
    "split": _split,
    "squeeze": _squeeze,
    "tile": _repeat,
    "transpose": _transpose,
    "unpack": _unpack,
    "unsqueeze": lambda step: step.moved(
        step.only().axes.unsqueeze(step.numbers("axes", 1) or [], step.where)
    ),
}
"""The operators, each with the function that applies it."""
