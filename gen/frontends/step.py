"""Values of a graph's tensors while it is read, sizes that it computes, and a node with what it reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, to_float64
from rtlstm.gen.frontends.axes import Axes, Size, axis_sizes, product
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.spec.errors import ModelError

_PASS = ("cast", "identity", "reshape", "squeeze", "unsqueeze")
_MAX_RANK = 64
_Numbers = tuple[Size, ...]


class KnownSizes:
    """What is known of tensors that hold sizes, collected node by node in the graph's order."""

    def __init__(self, graph: Graph, steps: int = 0) -> None:
        self._graph = graph
        self.steps = steps
        """The steps of a sequence, if the caller has said how many; else 0."""
        self._measured: dict[str, _Numbers] = {}
        self._shown: dict[str, Size] = {}
        self._input = ""
        self._input_axes = Axes((), 0)

    def begin(self, tensor: str, axes: Axes) -> None:
        """The core's input, whose declared sizes are numbers or names."""
        self._input, self._input_axes = tensor, axes

    def made(self, node: Node) -> bool:
        """Whether a node gave sizes."""
        return any(name in self._measured for name in node.outputs)

    def measure(self, node: Node, axes: Axes | None) -> None:
        """Find a node's results, if they are sizes; ``axes`` are its input's, if the core computes that."""
        numbers: _Numbers | None = None
        if node.operator in ("shape", "size"):
            numbers = self._shape(node, axes)
        elif node.operator in (*_PASS, *_OPERATORS) and any(name in self._measured for name in node.inputs):
            given = [self.of(name) if name else () for name in node.inputs]
            numbers = given[0] if node.operator in _PASS else self._computed(node, given)
        if numbers is not None and len(node.outputs) == 1 and all(map(_small, numbers)):
            self._measured[node.outputs[0]] = numbers

    def of(self, tensor: str) -> _Numbers | None:
        """Return a tensor of whole numbers, row by row, constant or computed from sizes; None if neither."""
        if tensor in self._measured:
            return self._measured[tensor]
        value = self._graph.constant(tensor)
        if value is None or value.size > _MAX_RANK or value.dtype.kind not in "iu":
            return None
        return tuple(Size(int(item)) for item in value.reshape(-1))

    def known(self, tensor: str, axes: Axes) -> Mapping[str, Size]:
        """Return the values of named sizes that follow from the declared sizes of input and tensor."""
        shown = dict(axes.shown)
        found: dict[str, Size] = {}
        names: dict[str, set[str]] = {}
        for name, tags in ((self._input, self._input_axes.tags), (tensor, axes.tags)):
            for tag, declared in zip(tags, self._graph.dimensions(name), strict=False):
                root = shown.get(tag, tag)
                if isinstance(declared, int):
                    found.setdefault(tag, Size(declared))
                    if root not in ("F", "M"):
                        found.setdefault(root, Size(declared))
                elif declared and root[0] != "M":
                    names.setdefault(declared, set()).add(root)
        once = {f"size {name}": Size(1, tuple(roots)) for name, roots in names.items() if len(roots) == 1}
        return {**once, **found}

    def _shape(self, node: Node, axes: Axes | None) -> _Numbers | None:
        tensor = node.inputs[0]
        numbers: _Numbers
        if axes is not None and not axes.lost:
            numbers = tuple(axis_sizes(axes.tags, axes.features))
            self._shown |= {old: Size(1, (new,)) for old, new in axes.shown if new != "F"}
        else:
            declared = self._graph.dimensions(tensor)
            if not declared:
                return None
            numbers = tuple(
                Size(size) if isinstance(size, int) else Size(1, (f"size {size or f'{at} of {tensor}'}",))
                for at, size in enumerate(declared)
            )
        if node.operator == "size":
            return (product(numbers),)
        attributes = node.attributes
        return numbers[attributes.get("start", 0) : attributes.get("end")]

    def _computed(self, node: Node, given: Sequence[_Numbers | None]) -> _Numbers | None:
        """What an operator makes of sizes; None if one of them is not known, or the result is none."""
        parts = [part for part in given if part is not None]
        if node.operator == "div":  # The same size may be read before and after a layer determines its axis.
            parts = [tuple(size.resolved(self._shown) for size in part) for part in parts]
        if len(parts) < len(given):
            return None
        try:
            found = _OPERATORS[node.operator](node, *(np.array(part, dtype=object) for part in parts))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            return None
        return tuple(found) if len(found) <= _MAX_RANK else None


def _small(size: Size) -> bool:
    """Whether a number can be a tensor's size; chains of products would grow without bound."""
    return abs(size.number) < 2**63 and len(size.names) <= _MAX_RANK


def _slice(node: Node, numbers: Any, *given: Any) -> Any:
    names = enumerate(("starts", "ends", "axes", "steps"))
    limits = (given[at] if at < len(given) else node.attributes.get(name, [Size()]) for at, name in names)
    (start,), (end,), _, (step,) = (limit if len(limit) else [Size()] for limit in limits)
    return numbers[start:end:step]


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda _, one, other: one + other,
    "concat": lambda _, *parts: np.concatenate(parts),
    "div": lambda _, one, other: one // other,
    "gather": lambda _, numbers, chosen: [numbers[at] for at in chosen],
    "mul": lambda _, one, other: one * other,
    "reduce_prod": lambda _, numbers, *axes: (product(numbers),),
    "slice": _slice,
    "sub": lambda _, one, other: one - other,
}
"""What operators make of sizes, each an array of one axis."""


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
