"""Converts to and from cuDNN's flat weight vector of an LSTM, which ``jax.experimental.rnn`` uses.

Pseudo-layers are counted as cuDNN does: layer by layer, the forward direction before the reverse one.
The vector holds ``w_ih, w_hh`` of all pseudo-layers, then ``b_ih, b_hh`` of all of them; every array is
row-major, its first axis stacking the gates i, f, g, o. Both biases are added to a gate. Source of the
layout: the text of ``jax.experimental.rnn``.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.gen.frontends.arrays import Floats, stacked_layer, to_float64
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Lstm, Network, PseudoLayer


@dataclass(frozen=True)
class CudnnWeights:
    """Arrays of one pseudo-layer: ``(4 * hidden, inputs)``, ``(4 * hidden, hidden)`` and two biases."""

    w_ih: Floats
    w_hh: Floats
    b_ih: Floats
    b_hh: Floats

    def layer(self, name: str, *, reverse: bool = False) -> PseudoLayer:
        """Return the layer of one direction, in the project's gate order, the biases added."""
        weights = (self.w_ih, self.w_hh, self.b_ih, self.b_hh)
        return stacked_layer("cudnn", "lstm", name, weights, reverse=reverse)


@dataclass(frozen=True)
class CudnnLstm:
    """Sizes of an LSTM whose weights are one vector.

    >>> lstm = CudnnLstm(inputs=3, hidden=4, layers=2)
    >>> network = lstm.network(lstm.initial(np.random.default_rng(0)))
    >>> weights = lstm.vector(network)

    ``dropout`` is taken, so that the arguments of ``jax.experimental.rnn`` can be given as they are: between
    layers, in training, and without weights, so the network is the same.

    Raises
    ------
    ModelError
        If a size is below 1, or ``dropout`` is no share from 0 to 1.
    """

    inputs: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("inputs", "hidden", "layers"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} of a cuDNN LSTM must be at least 1, not {getattr(self, name)}")
        if not 0.0 <= self.dropout <= 1.0:
            raise ModelError(f"dropout of a cuDNN LSTM must be a share from 0 to 1, not {self.dropout}")

    @property
    def directions(self) -> int:
        """Two if it is bidirectional."""
        return 2 if self.bidirectional else 1

    @property
    def pseudo_layers(self) -> int:
        """Number of pseudo-layers: each direction of each layer counts."""
        return self.layers * self.directions

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of all arrays in the vector's order."""
        rows = 4 * self.hidden
        below = self.directions * self.hidden
        matrices: list[tuple[int, ...]] = []
        for index in range(self.pseudo_layers):
            matrices += [(rows, self.inputs if index < self.directions else below), (rows, self.hidden)]
        return (*matrices, *[(rows,)] * (2 * self.pseudo_layers))

    @property
    def parameter_count(self) -> int:
        """Length of the vector."""
        return sum(prod(shape) for shape in self.shapes)

    def initial(self, rng: np.random.Generator) -> Floats:
        """Draw a vector uniformly from -k to k, with ``k = 1 / sqrt(hidden)``."""
        k = self.hidden**-0.5
        return rng.uniform(-k, k, self.parameter_count)

    def unpack(self, weights: ArrayLike) -> tuple[CudnnWeights, ...]:
        """Split a vector into the arrays of each pseudo-layer.

        Raises
        ------
        ModelError
            If it is not a vector of :attr:`parameter_count` finite floating-point numbers.
        """
        vector = to_float64(np.asarray(weights), "the cuDNN weight vector")
        if vector.shape != (self.parameter_count,):
            raise ModelError(
                f"the cuDNN weight vector must have shape ({self.parameter_count},) for {self._text}, "
                f"not {vector.shape}"
            )
        ends = np.cumsum([prod(shape) for shape in self.shapes])
        arrays = [
            part.reshape(shape) for part, shape in zip(np.split(vector, ends[:-1]), self.shapes, strict=True)
        ]
        matrices, biases = arrays[: 2 * self.pseudo_layers], arrays[2 * self.pseudo_layers :]
        return tuple(
            CudnnWeights(*matrices[2 * index : 2 * index + 2], *biases[2 * index : 2 * index + 2])
            for index in range(self.pseudo_layers)
        )

    def pack(self, weights: tuple[CudnnWeights, ...]) -> Floats:
        """Join the arrays of all pseudo-layers to a vector; the inverse of :meth:`unpack`.

        Raises
        ------
        ModelError
            If there are too few or too many, or one has another shape.
        """
        if len(weights) != self.pseudo_layers:
            raise ModelError(
                f"there must be {self.pseudo_layers} pseudo-layers for {self._text}, not {len(weights)}"
            )
        arrays = [array for layer in weights for array in (layer.w_ih, layer.w_hh)]
        arrays += [array for layer in weights for array in (layer.b_ih, layer.b_hh)]
        for position, (array, shape) in enumerate(zip(arrays, self.shapes, strict=True)):
            if np.shape(array) != shape:
                raise ModelError(
                    f"array {position} of the cuDNN weight vector must have shape {shape} for {self._text}, "
                    f"not {np.shape(array)}"
                )
        return np.concatenate([to_float64(np.asarray(array), "a cuDNN weight").ravel() for array in arrays])

    def vector(self, network: Network) -> Floats:
        """Return a network's weights as a vector; the inverse of :meth:`network`.

        Both biases are in ``b_ih``, and ``b_hh`` is zeros: a network has their sum.

        Raises
        ------
        ModelError
            If the network is no LSTM of these sizes, or has what the vector has no place for.
        """
        layers: list[Any] = []
        for layer in network.layers:
            both = isinstance(layer, Bidirectional) and layer.merge == "concat"
            layers += [layer.forward, layer.backward] if both else [layer]  # type: ignore[union-attr]
        parts = []
        for layer in layers:
            plain = {"name", "w_ih", "w_hh", "bias", "reverse", "reversed_output"}
            if not isinstance(layer, Lstm) or any(
                getattr(layer, name) != field.default
                for name, field in Lstm.model_fields.items()
                if name not in plain
            ):
                raise ModelError(
                    f"layer {layer.name!r} must be an LSTM with cuDNN's equations and nothing else, for the "
                    "vector has no place for more; take the layers before it alone"
                )
            parts.append(CudnnWeights(layer.w_ih, layer.w_hh, layer.bias, np.zeros_like(layer.bias)))
        return self.pack(tuple(parts))

    def network(self, weights: ArrayLike, name: str = "network") -> Network:
        """Return the network of a vector; outputs of both directions are concatenated, forward first.

        Raises
        ------
        ModelError
            If the vector does not fit.
        """
        layers: list[Any] = []
        for index, part in enumerate(self.unpack(weights)):
            number, reverse = divmod(index, self.directions)
            title = f"lstm{number}"
            layer = part.layer(title + "_reverse" * reverse, reverse=bool(reverse))
            layers.append(
                Bidirectional(name=title, forward=layers.pop(), backward=layer) if reverse else layer
            )
        return Network(name=name, layers=tuple(layers))

    @property
    def _text(self) -> str:
        both = ", bidirectional" if self.bidirectional else ""
        return f"{self.layers} layers of {self.hidden} units on {self.inputs} inputs{both}"
