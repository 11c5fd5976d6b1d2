"""Operators that are layers: what a node reads, and what it makes of that."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.gen.frontends.arrays import Floats, to_float64
from rtlstm.gen.frontends.axes import Axes, KnownSizes
from rtlstm.gen.frontends.flow import CausalTaps, Flow
from rtlstm.gen.frontends.graph import Graph, Node
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


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that the core computes: its features and its axes.

    ``state`` is how messages name the final state that it is, as long as nothing has computed with it;
    ``front`` how many steps of zeros stand before the first one, and ``extra`` how many steps too many a
    convolution gives at the end. ``packed`` and ``padded`` name the node that packed sequences of several
    lengths, or filled the shorter ones up.
    """

    flow: Flow
    axes: Axes
    state: str = ""
    front: int = 0
    extra: int = 0
    packed: str = ""
    padded: str = ""
    still: bool = False
    """Whether it is an input without an axis of steps, the same in each of a sequence's."""

    def computed(self, flow: Flow, axes: Axes | None = None) -> "Value":
        """The same steps with other features."""
        return replace(self, flow=flow, axes=self.axes if axes is None else axes, state="", front=0)

    def retagged(self, old: str, new: str) -> "Value":
        """The same with another tag for an axis."""
        tags = tuple(new if tag == old else tag for tag in self.axes.tags)
        return replace(self, axes=replace(self.axes, tags=tags))

    def with_groups(self, where: str) -> "Value":
        """The same with both directions, if they stand apart, as two groups of features."""
        grouped = where if "B" in self.axes.tags else self.axes.grouped
        return replace(self, axes=replace(self.retagged("B", "K2").axes, grouped=grouped))


@dataclass(frozen=True, eq=False)
class State:
    """A tensor of final states of ``flow``'s last layer, which the driver gives.

    Nothing can compute with it; ``text`` says why, with a ``{reader}`` to fill in. ``parts`` are the layers
    whose states it has one after the other on its first axis, if one of them may be taken.
    """

    text: str
    flow: Flow
    parts: "tuple[Value, ...]" = ()


Known = Value | State


@dataclass(frozen=True, eq=False)
class Step:
    """One node to apply; ``inputs`` are what is known of its inputs, None for constants and the like.

    ``sizes`` has those inputs that are made of sizes of tensors.
    """

    graph: Graph
    node: Node
    inputs: tuple[Value | None, ...]
    sizes: KnownSizes
    notes: list[str] = field(default_factory=list)
    """What the user should know of how the node is read."""

    @property
    def label(self) -> str:
        """The node's name."""
        return self.node.label

    @property
    def where(self) -> str:
        """The node as messages name it."""
        return self.node.where

    @property
    def values(self) -> list[Value]:
        """The inputs that the core computes."""
        return [value for value in self.inputs if value is not None]

    def only(self) -> Value:
        """Return the value that the node reads, which must be its first input.

        Raises ModelError if it reads one by another input.
        """
        first = self.inputs[0]
        if first is None or len(self.values) > 1:
            number = next(i for i, value in enumerate(self.inputs) if value is not None and (i or first))
            raise ModelError(
                f"{self.where} must read {self.node.inputs[number]!r} as its first input alone, or it must "
                "be constant"
            )
        return first

    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes."""
        return self.node.attributes

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return len(self.node.inputs) > index and bool(self.node.inputs[index])

    def refuse_inputs(self) -> None:
        """Refuse another input of the model beside a value that the core computes."""
        for name, value in zip(self.node.inputs, self.inputs, strict=True):
            if value is None and name in self.graph.inputs:
                found = f"{self.where} needs another input of the model, {name!r}, at once"
                raise ModelError(one_input(found))

    def constant(self, index: int, what: str) -> Floats:
        """A constant input as float64."""
        name = self.node.inputs[index]
        value = self.graph.constant(name)
        if value is None:
            raise ModelError(
                f"{self.where}: {what} ({name!r}) must be constant, but {self.graph.origin(name)}"
            )
        return to_float64(value, f"{self.where}: {what} ({name!r})")

    def number(self, index: int, what: str) -> float:
        """A constant input of one element."""
        value = self.constant(index, what)
        if value.size != 1:
            raise ModelError(f"{self.where}: {what} must be one number, not shape {value.shape}")
        return float(value.item())

    def numbers(self, attribute: str, index: int) -> list[int] | None:
        """Integers given as an attribute or as a constant input."""
        values = self.graph.numbers(self.node, attribute, index)
        if values is not None or attribute in self.node.attributes or not self.has(index):
            return values
        sizes = self.sizes.of(self.node.inputs[index])
        if sizes is None or any(size.names for size in sizes):
            origin = self.graph.origin(self.node.inputs[index])
            raise ModelError(f"{self.where}: {attribute} must be constant, but {origin}")
        return [size.number for size in sizes]

    def per_feature(self, index: int, given: Value, value: Floats | None = None) -> tuple[Value, Floats]:
        """A constant input that varies along the features alone: one value, or one for each.

        Returns ``given``, too, whose features are then known to be on that axis.
        """
        self.refuse_inputs()
        axes = given.axes
        value = self.constant(index, "the constant") if value is None else value
        if value.size == 1:
            return given, value.reshape(())
        axes.expect(self.where)
        if "F" not in axes.tags:  # of the model's input, whose features are the axis that the constant has
            long = [at - value.ndim for at, size in enumerate(value.shape) if size > 1]
            axes = axes.settle_features(long[0], self.where).with_features(value.shape[long[0]])
        rank = len(axes.tags)
        for at, tag in enumerate(axes.tags[rank - value.ndim :] if value.ndim <= rank else ()):
            if tag in ("T", "N") and not np.ptp(value, axis=at).any():  # the same for all steps
                value = value.take([0], axis=at)
        shape = (1,) * (rank - value.ndim) + value.shape
        wide = shape[axes.tags.index("F")] if len(shape) == rank else 1
        if given.flow.outputs == axes.features == 1 < wide:  # A single feature beside several constants.
            flow = replace(given.flow.pick([0] * wide, self.where), dense="")
            given, axes = replace(given, flow=flow), axes.with_features(wide)
        sizes = {"F": axes.features, "B": 2, f"K{axes.frames}": axes.frames}
        wanted = [(1, sizes.get(tag, 1)) for tag in axes.tags]
        if value.ndim > rank or any(size not in allowed for size, allowed in zip(shape, wanted, strict=True)):
            raise ModelError(
                f"{self.where}: the constant must have one value for each of {axes.features} features, "
                f"not shape {value.shape}"
            )
        full = np.broadcast_to(value.reshape(shape), [size for _, size in wanted])
        order = sorted(range(rank), key=lambda at: "BKF".find(axes.tags[at][0]))
        return replace(given, axes=axes), full.transpose(order).reshape(-1).copy()

    def along(self, value: Value, axis: int, features: int) -> Value:
        """Return a value with its features on ``axis``, if the axes of the model's input were unknown.

        Raises ModelError if they lie elsewhere.
        """
        known = "F" in value.axes.tags and value.axes.features > 0
        axes = value.axes.settle_features(axis, self.where)
        return replace(value, axes=axes if known else axes.with_features(features))

    def width(self, value: Value, axis: int) -> int:
        """Features of an input of the model on ``axis``, which the model may declare; 0 if nothing tells."""
        at = next(at for at, each in enumerate(self.inputs) if each is value)
        shape = self.graph.shape(self.node.inputs[at])
        found = value.flow.outputs or (shape[axis] if -len(shape) <= axis < len(shape) else None)
        if found and value.flow.outputs is None:
            value.flow.terms[0].source.width = found
        return found or 0

    def moved(self, axes: Axes) -> Value:
        """The only value with other axes."""
        return replace(self.only(), axes=axes)

    def picked(self, value: Value, axes: Axes, features: Sequence[int]) -> Value:
        """Some of a value's features."""
        return replace(value, flow=value.flow.pick(features, self.where), axes=axes)

    def steps(self, value: Value) -> int:
        """How many steps a value has, if the model was made for one number of them; else 0."""
        size = self.sizes.known(self.node.inputs[0], value.axes).get("T")
        return size.number if size is not None and not size.names else 0


def one_input(found: str) -> str:
    """Return the refusal of two inputs where the core has one; ``found`` says what needs them."""
    return (
        f"{found}, but the core has one input: give features of one step side by side, to a model with one "
        "input; for a state use a recurrent layer or cell of the framework, which keeps it; and for another "
        "sequence a build of its own"
    )


# Frames inside a step, and groups of features


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
