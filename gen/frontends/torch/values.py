"""Values of the nodes of a traced PyTorch module; a message may show any of them, so each has words."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.sizes import Size, axis_sizes
from rtlstm.spec.errors import ModelError

__all__ = [
    "Constant",
    "Data",
    "Outside",
    "TorchNode",
    "TorchState",
    "flatten",
    "outside_refusal",
    "packed_refusal",
]

_BEFORE_CONVOLUTION = ("conv1d", "contiguous", "dropout", "pad", "permute", "transpose")


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """A tensor with a value for every step, that the core can compute."""

    flow: Flow
    axes: Axes
    source: str = ""
    """The model's input that it came from, if no layer has read it."""
    packed: str = ""
    """What gave it, if it is a PackedSequence or the ``data`` of one."""
    padded: str = ""
    """What padded it, if it has sequences of several lengths."""
    margin: tuple[int, int] = (0, 0)
    """Zero steps padded in front, and steps too many at the end, as a causal convolution has them."""
    state: bool = False
    """It is the final states of both directions of a layer, as that gives them."""

    def __repr__(self) -> str:
        return "a tensor of the core"

    @property
    def of_layers(self) -> bool:
        """Whether it has states of several layers, of which the core gives the last one's."""
        return any(tag in ("L", "S") for tag in self.axes.tags)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Sizes of the axes, as far as they are known before the run."""
        return tuple(axis_sizes(self.axes.tags, self.axes.features))

    def with_flow(self, flow: Flow) -> "Data":
        """The same tensor with other features, of both directions if it has them apart."""
        features = (flow.outputs or 0) // (2 if "B" in self.axes.tags else 1)
        return replace(self, flow=flow, axes=self.axes.with_features(features), state=False)

    def with_axes(self, axes: Axes) -> "Data":
        """The same values with other axes."""
        return replace(self, axes=axes)


@dataclass(frozen=True, repr=False)
class TorchState:
    """A final state that no step's output holds; the driver returns it."""

    where: str
    what: str

    def __repr__(self) -> str:
        return f"the {self.what} of {self.where}"


@dataclass(frozen=True, repr=False)
class Outside:
    """What stays with the caller: sizes, lengths, and what the core cannot compute."""

    where: str
    sizes: tuple[Size, ...] = ()
    """If it is sizes of a tensor's axes, what is known of them."""

    def __repr__(self) -> str:
        return f"what {self.where} gives, which only a run knows"

    def item(self, where: str, key: Any) -> "Outside":
        """One of several values, by its number."""
        inside = isinstance(key, int) and -len(self.sizes) <= key < len(self.sizes)
        return Outside(where, (self.sizes[key],) if inside else ())


@dataclass(frozen=True, eq=False, repr=False)
class Constant:
    """A parameter or buffer of the model, or a constant of its code."""

    array: NDArray[np.float64]

    def __repr__(self) -> str:
        return "a constant"


@dataclass(frozen=True)
class TorchNode:
    """A node at hand: the operation's arguments with values in place of nodes."""

    name: str
    label: str
    where: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: Any | None = None

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """An argument of a function or method, the first being the tensor; of a module its attribute."""
        if self.module is not None and index:
            return getattr(self.module, name, default)
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)

    def rest(self, index: int, name: str) -> list[Any]:
        """Arguments given one by one or as one list."""
        values: Any = self.args[index:] or (self.kwargs.get(name),)
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = values[0]
        return list(values)

    def whole(self, value: Any) -> int:
        """A whole number known before the run."""
        if not isinstance(value, int):
            raise ModelError(f"{self.where} must have constant axes, not {value!r}")
        return int(value)

    @property
    def data(self) -> Data:
        """The first argument, which must be a tensor that the core computes."""
        return self.as_data(self.argument(0, "input"))

    def as_data(self, value: Any) -> Data:
        """A tensor to compute with, or a refusal that names what it is."""
        if isinstance(value, TorchState):
            raise ModelError(
                f"{value.where}: its {value.what} is read by {self.where}, but the core gives it only "
                "as state"
            )
        if isinstance(value, Outside):
            raise ModelError(outside_refusal(self.where, value))
        if not isinstance(value, Data):
            raise ModelError(f"{self.where} must read a tensor that the core computes, not {value!r}")
        if value.packed:
            raise ModelError(packed_refusal(self.where, value.packed))
        if value.of_layers:
            which = "-1" if "L" in value.axes.tags else "-2, its forward direction, or -1"
            raise ModelError(
                f"{self.where} reads the final states of all layers, but the core gives the last layer's "
                f"output; take element {which}"
            )
        if value.margin[0] and self.name not in _BEFORE_CONVOLUTION:
            raise ModelError(
                f"{self.where} reads steps with zeros padded in front, which only a Conv1d can have"
            )
        return value


def outside_refusal(where: str, value: Outside) -> str:
    """Return why an operator cannot read a value that is known only outside the core."""
    return f"{where} needs the result of {value.where}, which the core does not compute"


def packed_refusal(where: str, packed: str) -> str:
    """Return why an operator cannot read a PackedSequence, and a remedy."""
    return (
        f"{where} reads the PackedSequence of {packed}, which only recurrent modules and pad_packed_sequence "
        "can read; pad it first, with torch.nn.utils.rnn.pad_packed_sequence"
    )


def flatten(value: Any) -> Iterator[Any]:
    """What a nest of tuples, lists and dictionaries holds."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from flatten(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from flatten(item)
    elif value is not None:
        yield value
