"""PyTorch's operations that move axes or take parts of a tensor."""

from dataclasses import replace
from typing import Any

from rtlstm.gen.frontends.sizes import Size
from rtlstm.gen.frontends.torch.values import Data, Outside, TorchNode, TorchState
from rtlstm.spec.errors import ModelError

__all__ = ["MOVES", "get_item"]

_NO_END = 2**63 - 1
"""What TorchScript gives for the end of a slice that has none."""


def _with_states(step: TorchNode) -> Data:
    """What is read, which may be the states of several layers here, to move them or take one apart."""
    value = step.argument(0, "input")
    return value if isinstance(value, Data) and value.of_layers else step.data


def _flatten(step: TorchNode) -> Data:
    start = step.whole(step.argument(1, "start_dim", 1 if step.module is not None else 0))
    end = step.whole(step.argument(2, "end_dim", -1))
    return step.data.with_axes(step.data.axes.flatten(start, end, step.where))


def _transpose(step: TorchNode) -> Data:
    data = _with_states(step)
    axes = data.axes
    if axes.lost:
        return data
    rank = len(axes.tags)
    order = list(range(rank))
    first, second = step.argument(1, "dim0", step.kwargs.get("axis0")), step.argument(2, "dim1")
    a, b = step.whole(first), step.whole(second)
    for axis in (a, b):
        if not -rank <= axis < rank:
            raise ModelError(f"{step.where} names axis {axis} of a tensor with {rank} axes")
    order[a], order[b] = order[b], order[a]
    return data.with_axes(axes.transpose(order, step.where))


def _permute(step: TorchNode) -> Data:
    order, data = [step.whole(axis) for axis in step.rest(1, "dims")], _with_states(step)
    return data.with_axes(data.axes.transpose(order, step.where))


def _squeeze(step: TorchNode) -> Data:
    axis, data = step.argument(1, "dim"), _with_states(step)
    if axis is None:
        return data.with_axes(data.axes.squeeze(None, step.where))
    wanted = [step.whole(item) for item in (axis if isinstance(axis, list | tuple) else [axis])]
    return data.with_axes(data.axes.squeeze(wanted, step.where, strict=False))


def _unsqueeze(step: TorchNode) -> Data:
    data = _with_states(step)
    return data.with_axes(data.axes.unsqueeze([step.whole(step.argument(1, "dim"))], step.where))


def _reshape(step: TorchNode) -> Data:
    shape = [_size(item) for item in step.rest(1, "shape")]
    data = _with_states(step)
    return data.with_axes(data.axes.reshape(shape, step.where, zero_copies=False))


def _size(item: Any) -> int | Size | None:
    """A number of a shape, which may be the size of a tensor's axis."""
    if isinstance(item, Outside) and len(item.sizes) == 1:
        return item.sizes[0]
    return item if isinstance(item, int) else None


def _select(step: TorchNode) -> Any:
    axis, index = step.whole(step.argument(1, "dim")), step.whole(step.argument(2, "index"))
    return _take(_with_states(step), axis, index, step.where)


def _slice_axis(step: TorchNode) -> Data:
    """TorchScript's slice of one axis, ``slice(input, dim, start, end, step)``."""
    data = _with_states(step)
    data.axes.expect(step.where)
    rank = len(data.axes.tags)
    axis = step.whole(step.argument(1, "dim", 0))
    start, end, stride = (step.argument(at, name) for at, name in ((2, "start"), (3, "end"), (4, "step")))
    cut = slice(start or None, None if end == _NO_END else end, None if stride == 1 else stride)
    if not -rank <= axis < rank:
        raise ModelError(f"{step.where} names axis {axis} of a tensor with {rank} axes")
    return _index(data, (*(slice(None),) * (axis % rank), cut), step.where)


def _take(data: Data, axis: int, index: int, where: str, *, keep: bool = False) -> Data:
    """One element of an axis: the last step or the first, one direction, or the only element."""
    data.axes.expect(where)
    rank = len(data.axes.tags)
    tag = data.axes.tags[axis] if -rank <= axis < rank else ""
    if (tag == "B" and -2 <= index < 2) or (tag == "S" and index in (-2, -1)):
        return _direction(data, axis % rank, index % 2, where, keep=keep)
    if tag == "T" and index == -1 and data.padded:
        raise ModelError(
            f"{where} takes a step of sequences that {data.padded} padded: of a shorter one that is padding; "
            "take the final state h_n instead"
        )
    return data.with_axes(data.axes.select(axis, index, where, keep=keep))


def _direction(data: Data, axis: int, index: int, where: str, *, keep: bool) -> Data:
    """One of two directions."""
    half = data.axes.features
    flow = data.flow.pick(range(index * half, (index + 1) * half), where)
    return replace(data, flow=flow, axes=data.axes.without(axis, keep=keep))


def get_item(step: TorchNode) -> Any:
    """An item of a tuple, or a part of a tensor."""
    value, key = step.args
    if isinstance(value, list | tuple):
        if not isinstance(key, int | slice):
            raise ModelError(f"{step.where} must index a tuple with a number, not {key!r}")
        return value[key]
    if isinstance(value, TorchState | Outside):
        return value
    if isinstance(value, Data) and value.packed:
        return value if key == 0 else Outside(step.where)
    return _index(_with_states(step), key if isinstance(key, tuple) else (key,), step.where)


def _index(data: Data, key: tuple[Any, ...], where: str) -> Data:
    data.axes.expect(where)
    if any(item is Ellipsis for item in key):
        at = next(position for position, item in enumerate(key) if item is Ellipsis)
        missing = len(data.axes.tags) - sum(item is not None for item in key) + 1
        key = (*key[:at], *(slice(None),) * missing, *key[at + 1 :])
    axis = 0
    for item in key:
        if item is None:
            data = data.with_axes(data.axes.unsqueeze([axis], where))
        elif isinstance(item, int):
            data = _take(data, axis, item, where)
            continue
        elif item != slice(None):
            data = _slice(data, axis, item, where)
        axis += 1
    return data


def _slice(data: Data, axis: int, item: Any, where: str) -> Data:
    tag = data.axes.tags[axis] if axis < len(data.axes.tags) else ""
    constant = isinstance(item, slice) and all(
        isinstance(end, int | None) for end in (item.start, item.stop, item.step)
    )
    if constant and tag == "F":
        kept = list(range(data.axes.features))[item]
        if not kept:
            raise ModelError(f"{where} keeps none of {data.axes.features} features")
        if "B" in data.axes.tags:
            kept += [data.axes.features + feature for feature in kept]
        return data.with_flow(data.flow.pick(kept, where))
    if tag == "S" and item in (slice(-2, None), slice(-2, None, 1)):
        tags = tuple("B" if one == "S" else one for one in data.axes.tags)
        return data.with_axes(replace(data.axes, tags=tags))
    directions = list(range(2)[item]) if constant and tag == "B" else []
    if len(directions) == 1:
        return _direction(data, axis, directions[0], where, keep=True)
    if directions == [0, 1]:
        return data
    front, extra = data.margin
    if tag == "T" and extra and item in (slice(None, -extra), slice(0, -extra), slice(None, -extra, 1)):
        return replace(data, margin=(front, 0))
    if item in (slice(-1, None), slice(-1, None, 1)):
        return _take(data, axis, -1, where, keep=True)
    raise ModelError(f"{where} must index with -1, -1: or :, or features with a slice, not {_shown(item)}")


def _shown(item: Any) -> str:
    """A part of an index as code has it."""
    if not isinstance(item, slice):
        return repr(item)
    ends = [item.start, item.stop] if item.step is None else [item.start, item.stop, item.step]
    return ":".join("" if end is None else repr(end) for end in ends)


MOVES = {
    "flatten": _flatten,
    "flatten_module": _flatten,
    "permute": _permute,
    "reshape": _reshape,
    "select": _select,
    "slice": _slice_axis,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "unsqueeze": _unsqueeze,
}
