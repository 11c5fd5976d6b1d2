"""Values of a graph's tensors while it is read, and a node with what it reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import to_float64
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.describe import one_input
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.graph import Graph, Node
from rtlstm.gen.frontends.known_sizes import KnownSizes
from rtlstm.spec.errors import ModelError

Floats = NDArray[np.float64]


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

    def computed(self, flow: Flow, axes: Axes | None = None) -> "Value":
        """The same steps with other features."""
        return replace(self, flow=flow, axes=self.axes if axes is None else axes, state="", front=0)


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

        Raises
        ------
        ModelError
            If it reads one by another input.
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
        attributes = self.node.attributes
        if attribute in attributes:
            value = attributes[attribute]
            if value is None:
                return None
            return [int(item) for item in value] if isinstance(value, list | tuple) else [int(value)]
        if not self.has(index):
            return None
        values, sizes = self.graph.integers(self.node.inputs[index]), self.sizes.of(self.node.inputs[index])
        if values is None and sizes is not None and not any(size.names for size in sizes):
            return [size.number for size in sizes]
        if values is None:
            origin = self.graph.origin(self.node.inputs[index])
            raise ModelError(f"{self.where}: {attribute} must be constant, but {origin}")
        return values

    def per_feature(self, index: int, given: Value) -> tuple[Value, Floats]:
        """A constant input that varies along the features alone: one value, or one for each.

        Returns ``given``, too, whose features are then known to be on that axis.
        """
        self.refuse_inputs()
        value, axes = self.constant(index, "the constant"), given.axes
        if value.size == 1:
            return given, value.reshape(())
        axes.expect(self.where)
        if "F" not in axes.tags:  # of the model's input, whose features are the axis that the constant has
            long = [at - value.ndim for at, size in enumerate(value.shape) if size > 1]
            axes = axes.settle_features(long[0], self.where).with_features(value.shape[long[0]])
        rank = len(axes.tags)
        shape = (1,) * (rank - value.ndim) + value.shape
        sizes = {"F": axes.features, "B": 2}
        wanted = [(1, sizes.get(tag, 1)) for tag in axes.tags]
        if value.ndim > rank or any(size not in allowed for size, allowed in zip(shape, wanted, strict=True)):
            raise ModelError(
                f"{self.where}: the constant must have one value for each of {axes.features} features, "
                f"not shape {value.shape}"
            )
        full = np.broadcast_to(value.reshape(shape), [size for _, size in wanted])
        order = sorted(range(rank), key=lambda at: "BF".find(axes.tags[at]))
        return replace(given, axes=axes), full.transpose(order).reshape(-1).copy()

    def along(self, value: Value, axis: int, features: int) -> Value:
        """Return a value with its features on ``axis``, if the axes of the model's input were unknown.

        Raises
        ------
        ModelError
            If they lie elsewhere.
        """
        known = "F" in value.axes.tags
        axes = value.axes.settle_features(axis, self.where)
        return replace(value, axes=axes if known else axes.with_features(features))

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
