"""Turns a network into passes: one layer per direction, and layers that merge two directions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rtlstm.sim.reference import FloatResult, LayerRange
from rtlstm.spec.network import Bidirectional, Dense, Network, Norm, PseudoLayer, StatelessLayer
from rtlstm.spec.program.passes import Part, Passes


@dataclass(frozen=True)
class Product:
    """A layer that multiplies the outputs of two directions, ``outputs`` values each."""

    name: str
    outputs: int
    kind: ClassVar[str] = "product"

    @property
    def inputs(self) -> int:
        """Width of the two together."""
        return 2 * self.outputs


FlatLayer = PseudoLayer | Dense | Norm | Product
"""A layer with one direction."""


@dataclass(frozen=True)
class Unfolded:
    """Layers with one direction each, part by part, and the passes that they belong to.

    ``origins`` names, for each of them, the network's layer that it comes from and its direction there (None
    for the layer's merged output).
    """

    layers: tuple[FlatLayer, ...]
    passes: Passes
    origins: tuple[tuple[int, int | None], ...]

    def measured_range(self, reference: FloatResult, layer: int) -> LayerRange:
        """Return the largest magnitudes of a layer in a float run of the network."""
        index, direction = self.origins[layer]
        if direction is None:
            read = max(one.output for one in reference.layer_ranges[index])
            return LayerRange(preactivation=read, output=reference.layers[index])
        return reference.layer_ranges[index][direction]


def unfold(network: Network) -> Unfolded:
    """Return a network's layers in the order in which the hardware computes them.

    A network with forward layers only has no passes. Otherwise a bidirectional layer becomes two parts. Their
    merging is folded into the next layer's weights, or becomes a layer: dense, or a product.
    """
    if not network.whole_sequences:
        origins = tuple((index, 0) for index in range(len(network.layers)))
        return Unfolded(
            tuple(layer for layer in network.layers if not isinstance(layer, Bidirectional)), (), origins
        )
    builder = _Builder()
    merged: tuple[int, float] | None = None
    for index, layer in enumerate(network.layers):
        following = network.layers[index + 1 : index + 2]
        if isinstance(layer, Bidirectional):
            builder.add_pass(index, [_repeat(one, merged) for one in (layer.forward, layer.backward)])
        else:
            builder.extend(index, _repeat(layer, merged))
        merged = None
        if isinstance(layer, Bidirectional) and layer.merge == "product":
            builder.extend(index, Product(f"{layer.name}_product", layer.outputs), direction=None)
        elif isinstance(layer, Bidirectional) and layer.merge != "concat":
            share = 0.5 if layer.merge == "average" else 1.0
            if following and not (following[0].input_relu or isinstance(following[0], Norm)):
                merged = (layer.outputs, share)
            else:
                builder.extend(index, _merging(layer, share), direction=None)
    return builder.build()


class _Builder:
    """Collects the layers of passes and parts."""

    def __init__(self) -> None:
        self._passes: list[list[list[FlatLayer]]] = []
        self._origins: list[tuple[int, int | None]] = []

    def add_pass(self, index: int, directions: Sequence[FlatLayer]) -> None:
        """Add the directions of a layer, as a pass of their own."""
        self._passes.append([[one] for one in directions])
        self._origins += [(index, direction) for direction in range(len(directions))]

    def extend(self, index: int, layer: FlatLayer, direction: int | None = 0) -> None:
        """Add a layer to the last part if that has the same direction, else as a pass of its own."""
        self._origins.append((index, direction))
        last = self._passes[-1] if self._passes else []
        if len(last) == 1:
            before, these = _recurrent(last[0]), _recurrent([layer])
            orders = {other.reverse for other in before + these}
            # A reversed output is read in the opposite order.
            reversed_output = bool(these) and any(other.reversed_output for other in before)
            # A recurrent layer behind a dense one needs a pass of its own: the dense layer's results of the
            # next step would overtake its results.
            overtaken = bool(these) and not _recurrent(last[0][:1])
            if len(orders) <= 1 and not (overtaken or reversed_output):
                last[0].append(layer)
                return
        self._passes.append([[layer]])

    def build(self) -> Unfolded:
        passes = tuple(tuple(_part(layers) for layers in parts) for parts in self._passes)
        layers = tuple(layer for parts in self._passes for part in parts for layer in part)
        return Unfolded(layers, passes, tuple(self._origins))


def _recurrent(layers: Sequence[FlatLayer]) -> list[PseudoLayer]:
    return [layer for layer in layers if not isinstance(layer, StatelessLayer | Product)]


def _part(layers: list[FlatLayer]) -> Part:
    orders = _recurrent(layers)
    return Part(
        layers=len(layers),
        reverse=any(layer.reverse for layer in orders),
        reversed_output=any(layer.reversed_output for layer in orders),
    )


def _repeat(
    layer: PseudoLayer | StatelessLayer, merged: tuple[int, float] | None
) -> PseudoLayer | StatelessLayer:
    """Return a layer that reads both directions instead of their merged value; ``merged``: width, factor."""
    if merged is None or isinstance(layer, Norm):
        return layer
    width, share = merged
    name = "weight" if isinstance(layer, Dense) else "w_ih"
    weights = np.tile(getattr(layer, name), 2) * share
    assert weights.shape[1] == 2 * width
    return layer.replace(**{name: weights})


def _merging(layer: Bidirectional, share: float) -> Dense:
    """Return a dense layer that adds two directions."""
    width = layer.outputs
    return Dense(
        name=f"{layer.name}_{layer.merge}",
        weight=np.tile(np.eye(width), 2) * share,
        bias=np.zeros(width),
    )
