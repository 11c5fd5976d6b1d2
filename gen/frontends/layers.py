"""Operators that are layers, and operators that move, split and join axes but compute nothing."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.gen.frontends.arrays import Floats, to_float64
from rtlstm.gen.frontends.axes import Axes, Size
from rtlstm.gen.frontends.flow import CausalTaps, Flow
from rtlstm.gen.frontends.graph import BY_INDEX, Node
from rtlstm.gen.frontends.step import Step, Value
from rtlstm.spec.activations.functions import RELU, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import check_size
from rtlstm.spec.network import Activation, Dense, Norm

_READERS = (
    "activation", "add", "batch_norm", "cast", "clip", "conv", "div", "einsum", "identity", "mul", "neg",
    "sub",
)  # fmt: skip
_MOVERS = ("flatten", "reshape", "transpose")
"""Operators that may read frames: those that leave the axes as they are, and those that move them."""
_OF_GROUPS = (
    "gather", "linear", "matmul", "reduce_mean", "reduce_sum", "select", "slice", "split", "squeeze",
    "unsqueeze", "where",
)  # fmt: skip
"""Operators that may read groups of features, too."""


class FramesError(ModelError):
    """A node cannot read frames inside a step."""


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
        yield Value(Flow.begin(features * frames), Axes(tuple(tags), features)), frames


def may_be_between(node: Node) -> bool:
    """Whether an operator may stand between convolutions over frames, and behind them."""
    return node.operator in (*_READERS, *_MOVERS, "squeeze", "unsqueeze")


def check_frames(step: Step) -> Step:
    """Return a node as it reads frames inside a step: as an axis of size 1 if one is left.

    Groups of features are lost where it cannot read them. Raises FramesError if it reads several frames, and
    cannot.
    """
    operator = step.node.operator
    if operator not in (*_READERS, *_MOVERS, *_OF_GROUPS):
        inputs = (each and replace(each, axes=each.axes.ungrouped()) for each in step.inputs)
        step = replace(step, inputs=tuple(inputs))
    several = any(
        value.axes.frames > 1 and not (value.axes.grouped and operator in _OF_GROUPS) for value in step.values
    )
    if several and operator not in (*_READERS, *_MOVERS):
        raise FramesError(
            f"{step.where} reads frames inside a step, or groups of features, which only convolutions over "
            "them, arithmetic with constants, activations, Einsum, Transpose, Flatten and Reshape may do"
        )
    if operator in _READERS:
        return step
    return replace(step, inputs=tuple(each and each.retagged("K1", "1") for each in step.inputs))


def convolve_frames(step: Step, value: Value, weight: Floats, bias: Floats) -> Value:
    """Apply a convolution over the frames, the last axis, as a dense layer with zeros.

    Raises ModelError if it has dilation, another padding in front than behind, or goes over other axes, too.
    """
    axes, attributes = value.axes, step.attributes()
    kernel, rank = weight.shape[2:], weight.ndim - 2
    pads = list(attributes.get("pads", [0] * 2 * rank))
    strides, dilations = (list(attributes.get(name, [1] * rank)) for name in ("strides", "dilations"))
    wanted: dict[str, tuple[Any, Any]] = {
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


def dense(step: Step, value: Value, weight: Floats, bias: Floats) -> Value:
    """A dense layer of the features: the same of each group of them, or each group's own weight."""
    count, (outputs, inputs) = value.axes.frames, weight.shape[-2:]
    rows = np.broadcast_to(weight, (count, outputs, inputs)).reshape(-1, inputs, 1)
    whole = of_one_group(rows, count, step.where)[..., 0]
    flow = value.flow.linear(step.label, step.where, whole, np.tile(bias, count))
    return value.computed(flow, value.axes.with_features(outputs))


def outputs_first(node: Node, weight: Floats) -> Floats:
    """The weight of one of :data:`DENSE` as ``(outputs, inputs)``; a matrix product reads it as second."""
    given = node.attributes
    rows = weight if node.operator == "linear" or given.get("transB", 0) else weight.T
    return rows * float(given.get("alpha", 1.0))


def _matrix(step: Step, at: int, what: str = "the weight") -> Floats:
    weight = step.constant(at, what)
    if weight.ndim != 2:
        raise ModelError(f"{step.where}: {what} must have 2 axes, not {weight.ndim}")
    return outputs_first(step.node, weight)


def _bias(step: Step, outputs: int, what: str) -> Floats:
    bias = step.constant(2, what) if step.has(2) else np.zeros(outputs)
    if bias.shape != (outputs,):
        raise ModelError(f"{step.where}: {what} must have shape ({outputs},), not {bias.shape}")
    return bias


def _linear(step: Step) -> Value:
    weight = _matrix(step, 1)
    bias = _bias(step, len(weight), "the bias")
    return dense(step, step.along(step.only(), -1, weight.shape[1]), weight, bias)


def _matmul(step: Step) -> Value:
    if len(step.values) > 1:
        raise ModelError(
            f"{step.where} multiplies two tensors that depend on the input; a dense layer needs constant "
            "weights"
        )
    first = step.inputs[0] is not None
    weight = _matrix(step, 1 if first else 0)
    weight = weight if first else weight.T
    value = step.along(step.values[0], -1 if first else -2, weight.shape[1])
    return dense(step, value, weight, np.zeros(weight.shape[0]))


def _einsum(step: Step) -> Value:
    """A dense layer that is written as a sum of products: of all features, or of each group of them."""
    equation = "".join(str(step.attributes()["equation"]).split())
    at = next(number for number, each in enumerate(step.inputs) if each is not None)
    value = step.values[0].with_groups(step.where)
    value.axes.expect(step.where)
    if "->" not in equation:  # Then it gives the letters that stand once, in the alphabet's order.
        once = sorted(letter for letter in set(equation) & set(ascii_letters) if equation.count(letter) == 1)
        equation += "->" + "..." * ("..." in equation) + "".join(once)
    names = equation.partition("->")[0].split(",")
    if "..." in names[at]:
        rest = [letter for letter in ascii_letters if letter not in equation]
        equation = equation.replace("...", "".join(rest[: len(value.axes.tags) + 3 - len(names[at])]))
    terms, _, result = equation.partition("->")
    names = terms.split(",")
    problem = ModelError(
        f"{step.where}: {equation!r} of a tensor with axes {value.axes} must multiply its features, or each "
        "group of them, with constant weights"
    )
    if len(step.values) > 1 or len(names) != 2 or len(names[at]) != len(value.axes.tags):
        raise problem
    mine, its = names[at], names[1 - at]
    weight = step.constant(1 - at, "the weight")
    both, new = set(mine) & set(its), set(its) - set(mine)
    read, groups = both - set(result), both & set(result)
    if len(read) != 1 or len(new) != 1 or len(groups) > 1 or set(result) != {*mine, *new} - read:
        raise problem
    if weight.ndim != len(its) or len(set(mine)) < len(mine) or len(set(its)) < len(its):
        raise problem
    weight = np.einsum(f"{its}->{''.join([*groups, *new, *read])}", weight)
    outputs, inputs = weight.shape[-2:]
    (letter,), (other,) = read, new
    if not groups and value.axes.tags[mine.index(letter)] == f"K{inputs}":
        each = value.axes.features  # Of each of these the groups are mixed.
        check_size((outputs * each, inputs * each), f"{step.where}: its weights with zeros between")
        whole = np.kron(weight, np.eye(each))
        flow = value.flow.linear(step.label, step.where, whole, np.zeros(len(whole)))
        tags = {**dict(zip(mine, value.axes.tags, strict=True)), other: f"K{outputs}"}
        return value.computed(flow, replace(value.axes, tags=tuple(tags[name] for name in result)))
    value = step.along(value, mine.index(letter), inputs)
    tags, count = dict(zip(mine, value.axes.tags, strict=True)), value.axes.frames
    if any(tags[name] != f"K{count}" for name in groups) or weight.shape[:-2] not in ((), (count,)):
        raise problem
    made = dense(step, value, weight, np.zeros(outputs))
    return replace(made, axes=replace(made.axes, tags=tuple(tags.get(name, "F") for name in result)))


def _gemm(step: Step) -> Value:
    value, attributes = step.only(), step.attributes()
    transposed = bool(attributes.get("transA", 0))
    value.axes.expect(step.where)
    if len(value.axes.tags) != 2:
        raise ModelError(f"{step.where} must read a tensor with 2 axes, not {len(value.axes.tags)}")
    weight = _matrix(step, 1, "the weight B")
    value = step.along(value, -2 if transposed else -1, weight.shape[1])
    axes = value.axes.transpose([1, 0], step.where) if transposed else value.axes
    result = dense(step, replace(value, axes=axes), weight, np.zeros(weight.shape[0]))
    if step.has(2):
        result, constant = step.per_feature(2, result)
        addend = constant * float(attributes.get("beta", 1.0))
        result = replace(result, flow=result.flow.shift(addend, step.where))
    return result


def _layer_norm(step: Step) -> Value:
    """Apply a norm over the features, which other axes of size 1 may stand beside."""
    value, attributes = step.only(), step.attributes()
    value.axes.expect(step.where)
    given = {
        name: step.constant(at, f"the {name}") for at, name in ((1, "gain"), (2, "bias")) if step.has(at)
    }
    rank = len(value.axes.tags)
    chosen = attributes.get("axes") or range(int(attributes.get("axis", -1)) % rank, rank)
    axes = sorted(axis % rank for axis in chosen)
    longer = [axis for axis in axes if value.axes.tags[axis] not in ("1", "K1")]
    if len(longer) != 1 or value.axes.tags[longer[0]][0] not in "F?":
        over = " and ".join(value.axes.meaning(axis) for axis in longer or axes)
        raise ModelError(
            f"{step.where} normalises over {over}: axes {axes} of {value.axes}; it must normalise over "
            "the features of a step, F, alone: transpose them to there, or train with such a norm"
        )
    size = next((array.size for array in given.values()), attributes.get("size", value.axes.features))
    declared = step.graph.shape(step.node.inputs[0], folded=True)
    value = step.along(value, longer[0], size or (declared[longer[0]] if len(declared) == rank else 0) or 0)
    features = value.axes.features or value.flow.features(step.where)
    for name, array in given.items():
        if array.size != features or array.size != max(array.shape):
            raise ModelError(f"{step.where}: the {name} must have shape ({features},), not {array.shape}")
    layer = Norm(
        name=step.label,
        values=features,
        **{name: array.reshape(-1) for name, array in given.items()},
        epsilon=float(attributes.get("epsilon", 1e-5)),
        centre=bool(attributes.get("centre", True)),
    )
    return value.computed(value.flow.norm(layer, step.where))


# Layers that read several steps


def _axes_of(step: Step, value: Value, features: int) -> Axes:
    """The axes of what a layer along the steps reads."""
    layout = tuple(step.attributes().get("layout", "NFT"))
    return value.axes.settle(layout, features, step.where)


def _conv(step: Step) -> Value:
    """Apply a convolution: of width 1 it is a dense layer, a wider causal one reads a delay line."""
    attributes = step.attributes()
    layout, groups = attributes.get("layout", "NFT"), int(attributes.get("group", 1))
    weight = of_one_group(step.constant(1, "the weight W"), groups, step.where)
    if groups > 1:
        step.notes.append(
            f"{step.where} has {groups} groups: the core multiplies by zeros outside of them; `skip_zeros` "
            "leaves these out"
        )
    value = step.along(step.only(), layout.index("F"), weight.shape[1])
    rank, outputs = len(value.axes.tags), int(weight.shape[0])
    if weight.ndim != rank or weight.ndim < 3:
        raise ModelError(f"{step.where}: the weight must have {max(rank, 3)} axes, not {weight.ndim}")
    bias = _bias(step, outputs, "the bias B")
    if value.axes.tags[-1][0] == "K":
        return convolve_frames(step, value, weight, bias)
    dilation, stride = (attributes.get(name, [1])[0] for name in ("dilations", "strides"))
    if ahead := _ahead(step, weight, value):
        axes = _axes_of(step, value, weight.shape[1])
        flow = value.flow.convolve_around(step.label, step.where, weight, bias, dilation, ahead)
        step.notes.append(
            f"{step.where} reads {ahead} steps ahead: the driver puts the steps around each beside it, zeros "
            f"beyond the ends of a sequence; in a stream a result comes {ahead} steps late"
        )
        return value.computed(flow, axes.with_features(outputs))
    taps = _taps(step, weight.shape[2:], value.front)
    if weight.shape[2] == 1 and stride == 1 and not taps.extra:
        return dense(step, value, weight.reshape(outputs, -1), bias)
    axes = _axes_of(step, value, weight.shape[1])
    flow = value.flow.convolve(step.label, step.where, weight, bias, dilation, stride, taps.phase)
    return replace(value.computed(flow, axes.with_features(outputs)), extra=taps.extra)


def of_one_group(weight: Floats, groups: int, where: str) -> Floats:
    """Return a convolution's weights ``(outputs, inputs of a group, ...)`` with zeros for all other inputs.

    Raises ModelError, which names ``where``, if the outputs are no multiple of the groups.
    """
    if groups == 1:
        return weight
    if weight.ndim < 3 or groups < 1 or len(weight) % groups:
        raise ModelError(
            f"{where}: attribute group={groups} must divide the outputs of weights of shape {weight.shape}"
        )
    outputs, inputs, *taps = weight.shape
    check_size((outputs, groups * inputs, *taps), f"{where}: its weights with zeros outside of its groups")
    whole = np.zeros((groups, outputs // groups, groups, inputs, *taps))
    every = np.arange(groups)
    whole[every, :, every] = weight.reshape(groups, -1, inputs, *taps)
    return whole.reshape(outputs, groups * inputs, *taps)


def _ahead(step: Step, weight: Floats, value: Value) -> int:
    """How many steps ahead a convolution of the model's input reads that gives as many steps as it reads."""
    given = step.attributes()
    pads, stride = list(given.get("pads", [0, 0])), given.get("strides", [1])[0]
    plain = weight.ndim == 3 and len(pads) == 2 and stride == 1
    plain = plain and given.get("padding_mode", "zeros") == "zeros"
    if not plain or value.flow.outputs not in (None, weight.shape[1]):
        return 0
    history = given.get("dilations", [1])[0] * (weight.shape[2] - 1)
    # Elsewhere what stands beyond the end would have to be zero, which layers do not make of zeros.
    same = pads[1] > 0 and pads[0] + value.front + pads[1] == history
    return int(pads[1]) if same and value.flow.is_input else 0


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
    if len(kernel) > 1 and attributes.get("strides", [1] * len(kernel)) != [1] * len(kernel):
        problems.append(f"attribute strides={attributes['strides']} must be {[1] * len(kernel)}")
    if problems or taps is None:
        raise ModelError(f"{step.where}: " + "; ".join(problems))
    return taps


def _average_pool(step: Step) -> Value:
    """The mean of the last steps, as a convolution with equal weights."""
    value, attributes = step.only(), step.attributes()
    if len(attributes["size"]) != 1:
        raise ModelError(f"{step.where}: the kernel must have one axis, not {tuple(attributes['size'])}")
    (size,), (stride,) = attributes["size"], attributes.get("strides", [1])
    (dilation,) = attributes.get("dilations", [1])
    if value.flow.outputs is None:
        raise ModelError(f"{step.where} must follow a layer with weights, such as a convolution")
    axes = _axes_of(step, value, value.flow.outputs)
    taps = _taps(step, (size,), value.front)
    if attributes.get("ceil_mode", 0) and stride != 1:
        raise ModelError(f"{step.where}: attribute ceil_mode={attributes['ceil_mode']} must be 0")
    if any(attributes.get("pads", ())) and not attributes.get("count_include_pad", 1):
        raise ModelError(
            f"{step.where}: attribute count_include_pad must be 1, since the core counts the zeros that "
            f"pads={attributes['pads']} puts around the steps"
        )
    features, every = axes.features, np.arange(axes.features)
    history = dilation * (size - 1)
    flow = value.flow.delays(history, features, step.label, step.where).strided(stride, taps.phase)
    taken = range(0, history + 1, dilation)
    parts = (flow.pick((every + at * features).tolist(), step.where) for at in taken)
    total = reduce(lambda one, other: one.plus(other, step.where), parts)
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


LAYERS: dict[str, Callable[[Step], Value]] = {
    "activation": lambda step: _activate(step, step.node.function()),
    "average_pool": _average_pool,
    "clip": _clip,
    "conv": _conv,
    "einsum": _einsum,
    "gemm": _gemm,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "matmul": _matmul,
    "pad": _pad,
}
"""The operators, each with the function that applies it."""
DENSE = ("gemm", "linear", "matmul")
"""Operators that are a dense layer."""
WEIGHTED = ("conv", *DENSE)
"""Operators that have weights."""


# Convolutions over the frames inside one step, as dense layers with structural zeros


def convolve_step(
    name: str,
    weight: ArrayLike,
    bias: ArrayLike,
    frames: int,
    *,
    stride: int = 1,
    padding: int = 0,
    activation: Activation = "identity",
) -> Dense:
    """Return a convolution over the ``frames`` of a step, with zeros around them, as a dense layer.

    The layer reads the frames side by side, the oldest first, and gives its own frames so, ``(frames + 2 *
    padding - taps) // stride + 1`` of them. A weight stands once for each frame that it computes. What does
    not reach a frame is zero: with ``skip_zeros`` most of it is neither stored nor multiplied. ``weight`` is
    ``(outputs, inputs, taps)``, as PyTorch and ONNX have it, ``bias`` is ``(outputs,)``. Raises ModelError if
    the weights have other shapes, or the convolution gives no frame.
    """
    taps = to_float64(np.asarray(weight), f"{name}: weight")
    offset = to_float64(np.asarray(bias), f"{name}: bias")
    if taps.ndim != 3 or offset.shape != taps.shape[:1]:
        raise ModelError(
            f"{name}: weight and bias must be (outputs, inputs, taps) and (outputs,), not {taps.shape} and "
            f"{offset.shape}"
        )
    outputs, inputs, count = taps.shape
    given = (frames + 2 * padding - count) // stride + 1 if min(frames, stride) > 0 <= padding else 0
    if given < 1:
        raise ModelError(
            f"{name} must give a frame, but {frames} frames, {count} taps, padding {padding} and stride "
            f"{stride} make none"
        )
    check_size((given * outputs, frames * inputs), f"{name}: its weights with zeros between")
    wide = np.zeros((given, outputs, frames, inputs))
    for frame in range(given):
        for tap in range(count):
            source = frame * stride - padding + tap
            if 0 <= source < frames:
                wide[frame, :, source] = taps[:, :, tap]
    return Dense(
        name=name,
        weight=wide.reshape(given * outputs, frames * inputs),
        bias=np.tile(offset, given),
        activation=activation,
    )


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
