"""The graph of a model, as every front end translates it and :mod:`rtlstm.gen.frontends.reader` reads it.

Translators (ONNX, PyTorch, Keras, TFLite) say in these operators what a file or module says, and decide
nothing: where the core begins and ends, what a state is, and what stays on the host is the reader's.

An operator has its tensors as inputs, by name; ``""`` is an input that is left out. Integers that shape it
(axes, sizes) are attributes, or tensors if a model computes them. The operators are:

============================== ========================================================================
``recurrent``                  x, h, c, lengths -> y, final h, final c; attributes: see :class:`Recurrent`
``linear``                     x, weight (outputs, inputs), bias
``gemm``                       ONNX's Gemm: ``alpha``, ``beta``, ``transA``, ``transB``
``matmul``                     a, b; one of them constant
``conv``                       x, weight, bias; ``strides dilations pads group auto_pad`` of ONNX, ``layout``
                               "NFT" (default) or "NTF"; weight (outputs, inputs, taps)
``average_pool``               x; ``size``; conv's attributes but ``group``; ``ceil_mode``,
                               ``count_include_pad`` (1)
``pad``                        x; ``pads`` (all begins, then all ends), ``mode``, ``value``; ``axes`` or all
``batch_norm``                 x, scale, shift, mean, variance; ``epsilon``, ``axis`` (1), ``training_mode``
``layer_norm``                 x, gain, bias (each may be left out); ``epsilon``, ``centre`` (True), and
                               ``axes``, or ``axis``, the first of them (-1); ``size``: how many values
``add sub mul div``            two tensors, one may be constant
``sum mean``                   any number of tensors, added or averaged
``max min``                    two tensors, one may be constant
``neg abs square``             x
``pow``                        x, a constant
``where``                      condition, x, other
``greater less``               two tensors, one may be constant: conditions
``greaterorequal lessorequal`` as these
``einsum``                     tensors, of which one is not constant; ``equation``
``glu``                        x; ``axis``
``prelu``                      x, slopes; ``axis``
``activation``                 x; ``function``, an ActivationFunction, or what returns it or refuses
``clip``                       x, min, max (or attributes ``min``, ``max``); either may be left out
``transpose``                  x; ``perm`` (default: all axes reversed), or ``swap``, two axes to exchange
``reshape``                    x, shape; or attribute ``shape``, a list of whole numbers and of names of
                               tensors of one size each; ``allowzero``
``squeeze``, ``unsqueeze``     x; ``axes`` (squeeze: default all), ``strict`` (squeeze: refuse other sizes)
``flatten``                    x; ``start``, ``end``: merges these axes; ``axis``: ONNX's, to two axes
``slice``                      x; ``starts``, ``ends``, ``axes``, ``steps``
``select``                     x; ``axis``, ``index``: one element, and the axis goes
``gather``                     x, indices; ``axis``
``split``                      x; ``axis``, ``split`` (sizes; default: equal parts, one for each output)
``concat``, ``stack``          any number of tensors; ``axis``
``expand``, ``tile``           x, sizes or how often: an input without steps
``reduce_sum reduce_mean``     x; ``axes`` (default: all), ``keepdims`` (1)
``reduce_max reduce_min``      as these
``softmax log_softmax argmax`` x; ``axis``: classes of scores, which the host computes at the end
``embedding``                  numbers, table: the host looks rows up
``identity``                   x: computes nothing when the model is used
``cast``                       x; ``floating``: whether it stays a number with a fraction
``pack``, ``unpack``           x: sequences of several lengths; ``batch_first`` is their layout outside
``shape``, ``size``            x -> whole numbers; ``start``, ``end``
``refused``                    anything; ``why``: a sentence to refuse it with, if the core needs it
============================== ========================================================================

``LAYERS``, ``MOVES`` and ``ARITHMETIC``, in modules of these names, have what applies each.
Any other operator is not supported: its :attr:`Node.kind` is what the refusal names.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from rtlstm.gen.frontends.arrays import fresh
from rtlstm.gen.frontends.reading import IntegerRows
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, PseudoLayer
from rtlstm.spec.plugins import Registry

Layers = tuple[PseudoLayer | Bidirectional, ...]

BY_INDEX = (
    "takes steps by a tensor of indices, which the core does not; for the last valid step of each sequence "
    "give the driver the lengths, run(x, lengths), and let it return the last step, outputs='last'"
)
"""Why elements that a run chooses are refused."""


@dataclass(frozen=True, eq=False)
class Recurrent:
    """What the attribute ``layers`` of a ``recurrent`` node returns when it is called: its layers, in order.

    The node's other attributes are ``axes``, those of x: ("T", "N", "F"), ("N", "T", "F"), or ("N", "F") of a
    cell that computes one step; ``y_axes`` (the same) and ``h_axes`` (("N", "F")), those of the results. In
    these "D" is an axis of directions (and, of a final state, of layers); without it the directions'
    features are side by side.
    """

    layers: Layers
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Node:
    """One operator with the names of the tensors that it reads and gives.

    ``label`` is its name in the model and ``kind`` the operator's, as reports and messages have them.
    ``noun`` follows ``kind`` in messages (" node" in ONNX). ``notes`` go to the report if the core has it.
    A node with ``hidden`` is one that the translator needed in addition: reports leave it out.
    ``inner`` are tensors that graphs inside it read, which are nodes of a condition or a loop.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    label: str
    kind: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    noun: str = ""
    notes: tuple[str, ...] = ()
    hidden: bool = False
    inner: tuple[str, ...] = ()
    title: str = ""

    def reading(self, names: Mapping[str, str]) -> "Node":
        """Return the same node with other tensors in place of some that it reads."""
        return replace(self, inputs=tuple(names.get(name, name) for name in self.inputs))

    def function(self) -> ActivationFunction:
        """The function that an ``activation`` computes; raise a ModelError if it is refused."""
        given: Any = self.attributes["function"]
        return given if isinstance(given, ActivationFunction) else given()

    @property
    def where(self) -> str:
        """The node as messages name it: ``title``, if it has one."""
        return self.title or f"{self.kind}{self.noun} {self.label!r}"


class Constants(Protocol):
    """Tensors that do not depend on the model's inputs; a value may be computed when it is asked for."""

    def add(self, name: str, value: Any) -> str:
        """Add a constant under a new name that begins with this one, and return its name."""

    def __contains__(self, tensor: object) -> bool: ...

    def get(self, tensor: str) -> Any | None:
        """Return a tensor's value as an array; None if it depends on the inputs."""


@dataclass(frozen=True)
class Words:
    """How a front end names its parts in messages."""

    begin: str
    """What ``lstm`` names: "a node", "a recurrent module"."""
    end: str
    """What ``output`` names: "a tensor", "a node or module"."""
    supported: str = ""
    """What may stand around a recurrent layer, of which the refusal of something else names the like."""
    needed: str = "a recurrent layer, or one with weights, on the way to its output"
    """What a model must have."""
    split: str = ""
    """How what stands outside of the core is kept as it is; empty if it is not."""
    attach: str = ""
    """How the core computes each call of a part, ``{part!r}``, alone; empty if it cannot."""
    sequences_first: str = "the model's input has sequences before steps"
    """Why data have sequences first, if the layers show that they have."""


N = TypeVar("N")


class Wiring(Generic[N]):
    """Nodes in an order in which they can be computed, and the tensors between them.

    ``reads`` and ``gives`` return the names of the tensors that a node reads and gives.
    """

    nodes: list[N]
    constants: Constants

    def _wire(self, reads: Callable[[N], Iterable[str]], gives: Callable[[N], Iterable[str]]) -> None:
        self._read = [tuple(filter(None, dict.fromkeys(reads(node)))) for node in self.nodes]
        self._given = [tuple(filter(None, gives(node))) for node in self.nodes]
        self._producer = {name: at for at, names in enumerate(self._given) for name in names}
        self._consumers: dict[str, list[int]] = {}
        for at, names in enumerate(self._read):
            for name in names:
                self._consumers.setdefault(name, []).append(at)

    @staticmethod
    def where(node: Any) -> str:
        """The text by which messages name a node."""
        return str(node.where)

    @staticmethod
    def operator(node: Any) -> str:
        """What a node computes."""
        return str(node.operator)

    def producer(self, tensor: str) -> N | None:
        """The node that gives a tensor, or None for an input or a stored constant."""
        index = self._producer.get(tensor)
        return None if index is None else self.nodes[index]

    def index_of(self, tensor: str) -> int:
        """Index of the node that gives a tensor; -1 for an input or a stored constant."""
        return self._producer.get(tensor, -1)

    def reads(self, index: int) -> tuple[str, ...]:
        """The tensors that a node reads, by its index."""
        return self._read[index]

    def gives(self, index: int) -> tuple[str, ...]:
        """The tensors that a node gives, by its index."""
        return self._given[index]

    def consumers(self, tensor: str) -> list[int]:
        """Indices of the nodes that read a tensor."""
        return self._consumers.get(tensor, [])

    def ancestors(self, tensors: Iterable[str]) -> set[int]:
        """Indices of all nodes that the tensors depend on."""
        found: set[int] = set()
        waiting = list(tensors)
        while waiting:
            index = self._producer.get(waiting.pop())
            if index is not None and index not in found:
                found.add(index)
                waiting += self._read[index]
        return found

    def descendants(self, nodes: Collection[int]) -> set[int]:
        """Indices of all nodes that depend on nodes, which are given by their indices."""
        found: set[int] = set()
        for index, names in enumerate(self._read):
            read = {self.index_of(name) for name in names}
            if not read.isdisjoint(found) or any(position in nodes for position in read):
                found.add(index)
        return found

    def is_constant(self, tensor: str) -> bool:
        """Whether a tensor does not depend on the model's inputs; nothing is computed for this."""
        return tensor in self.constants

    def constant(self, tensor: str) -> Any | None:
        """The value of a tensor that does not depend on the model's inputs, or None.

        Raises ModelError if it cannot be computed.
        """
        return self.constants.get(tensor)

    def integers(self, tensor: str) -> list[int] | None:
        """The value of a constant integer tensor as a flat list, or None."""
        value = self.constant(tensor)
        return None if value is None else [int(item) for item in np.asarray(value).reshape(-1)]

    def behind(self, tensor: str, *operators: str) -> str:
        """What a tensor is made of by nothing but these operators, each of what the one before it gives."""
        while (at := self.index_of(tensor)) >= 0 and self.operator(self.nodes[at]) in operators:
            tensor = self._read[at][0]
        return tensor

    def origin(self, tensor: str) -> str:
        """Say where a tensor comes from that is not constant, as the end of a sentence."""
        node = self.producer(tensor)
        return (
            "it is an input of the model" if node is None else f"{self.where(node)} computes it of the input"
        )


@dataclass(eq=False)
class Graph(Wiring[Node]):
    """The nodes of a model."""

    nodes: list[Node]
    inputs: list[str]
    outputs: list[str]
    constants: Constants
    """What is known without the inputs."""
    _: KW_ONLY
    words: Words
    dimensions: Callable[[str], Sequence[int | str]] = lambda _: ()
    """Returns sizes of a tensor: a number, a name for one that only a run knows; empty if none is known."""
    folded_dimensions: Callable[[str], Sequence[int | str]] | None = None
    """Returns them, found with more effort; None for what ``dimensions`` say."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Other names that the model gives to its outputs."""
    integer_rows: IntegerRows = field(default_factory=IntegerRows)
    offered: Registry[Any] | None = None
    """Operators of other packages, by the names that nodes give them."""
    unrolled: int = 0
    """Steps of loops that were gone through in place of all: they must be read as loops; 0 if all were."""
    results: Sequence[str] = ()
    """The model's results in order, of which two may be one output; empty for the outputs."""
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the axes of inputs are, as far as the model's format tells: "N", "T" and "F"."""

    def __post_init__(self) -> None:
        self._wire(lambda node: (*node.inputs, *node.inner), lambda node: node.outputs)

    def with_nodes(self, nodes: list[Node]) -> "Graph":
        """Return the same graph with other nodes."""
        return replace(self, nodes=nodes)

    def renamed(self, names: Mapping[str, str]) -> "Graph":
        """Return the graph whose nodes read other tensors in place of some."""
        return self.with_nodes([node.reading(names) for node in self.nodes])

    def is_tensor(self, name: str) -> bool:
        """Whether the graph has a tensor of this name."""
        return name in self._producer or name in self.inputs or self.is_constant(name)

    def numbers(self, node: Node, attribute: str, index: int) -> list[int] | None:
        """Whole numbers that a node has as an attribute or reads as a constant; None if it has none."""
        if attribute in node.attributes:
            given = node.attributes[attribute]
            values = given if isinstance(given, list | tuple) else [given]
            return None if given is None else [int(value) for value in values]
        return self.integers(node.inputs[index]) if len(node.inputs) > index else None

    def is_last(self, tensor: str, axis: int) -> bool:
        """Whether an axis is a tensor's last one; it has two, as a cell's step, if nothing is known."""
        return axis in (-1, (len(self.shape(tensor)) or 2) - 1)

    def shape(self, tensor: str, *, folded: bool = False) -> tuple[int | None, ...]:
        """Sizes of a tensor's axes with None for names; empty if nothing is known."""
        sizes = (folded and self.folded_dimensions) or self.dimensions
        return tuple(size if isinstance(size, int) else None for size in sizes(tensor))


def input_rank(producer: Callable[[str], Node | None], tensor: str, rank: int) -> tuple[str, int]:
    """The input that a tensor of this rank is made of, and how many axes that has.

    It looks through embeddings and operators that insert or remove axes, as a decoder's step has them.
    """
    while (node := producer(tensor)) is not None and any(node.inputs):
        removed = _REMOVED.get(node.operator)
        rank += 0 if removed is None else removed(node.attributes)
        tensor = next(each for each in node.inputs if each)
    return tensor, max(rank, 1)


_REMOVED: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "unsqueeze": lambda given: -len(given["axes"]),
    "squeeze": lambda given: len(given.get("axes", ())),
    "embedding": lambda given: -1,
    "stack": lambda given: -1,
    "select": lambda given: 1,
    "reshape": lambda given: -sum(size == 1 for size in given.get("shape", ())),
}
"""How many axes more an operator reads than it gives."""


class WeightsError(ModelError):
    """Weights that cannot be read, wherever they stand in a model."""


class Stored:
    """Constants by name: arrays, or functions that return them when they are asked for."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def add(self, name: str, value: Any) -> str:
        """Add a constant under a new name that begins with this one, and return its name."""
        name = fresh(name, self._values.__contains__)
        self._values[name] = value
        return name

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._values

    def get(self, tensor: str) -> Any | None:
        """Return a constant's value; None if there is none of this name."""
        value = self._values.get(tensor)
        if callable(value):
            try:
                value = self._values[tensor] = np.asarray(value())
            except ModelError as error:
                raise WeightsError(str(error)) from None
        return value
