"""Builds the chain of layers, and decides where an activation belongs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Activation, Dense, Lstm, Network

__all__ = ["Chain", "LstmWeights"]


@dataclass(frozen=True)
class LstmWeights:
    """Weights of one LSTM layer in the project's gate order."""

    w_ih: NDArray[np.float64]
    w_hh: NDArray[np.float64]
    bias: NDArray[np.float64]


@dataclass(frozen=True)
class _Layer:
    name: str
    where: str
    inputs: int
    outputs: int
    input_relu: bool
    weights: LstmWeights | tuple[NDArray[np.float64], NDArray[np.float64]]
    activation: Activation = "identity"

    @property
    def is_lstm(self) -> bool:
        return isinstance(self.weights, LstmWeights)


class Chain:
    """LSTM layers, then dense layers, in order of computation.

    ``where`` in every method is how a message names the node at hand, such as
    ``Relu node '/Relu_4'``. ``cut`` is what a message says about ending earlier.
    """

    def __init__(self, cut: str) -> None:
        self._layers: list[_Layer] = []
        self._relu: str | None = None
        self._cut = cut

    @property
    def width(self) -> int:
        """Width of the last layer's output."""
        return self._layers[-1].outputs

    def add_lstm(self, name: str, where: str, weights: LstmWeights) -> None:
        """Append an LSTM layer."""
        if self._layers and not self._layers[-1].is_lstm:
            raise ModelError(
                f"{where} follows dense {self._layers[-1].where}, but all LSTM layers must come "
                f"before the dense layers; {self._cut}"
            )
        self._append(name, where, weights.w_ih.shape[1], weights.w_hh.shape[1], weights)

    def add_dense(
        self, name: str, where: str, weight: NDArray[np.float64], bias: NDArray[np.float64]
    ) -> None:
        """Append a dense layer, ``weight`` being ``(outputs, inputs)``."""
        self._append(name, where, weight.shape[1], weight.shape[0], (weight, bias))

    def _append(self, name: str, where: str, inputs: int, outputs: int, weights: Any) -> None:
        if self._layers and self.width != inputs:
            before = self._layers[-1]
            raise ModelError(
                f"{where} reads {inputs} values, but {before.where} before it gives {before.outputs}"
            )
        taken = {layer.name for layer in self._layers}
        unique, count = name, 2
        while unique in taken:
            unique, count = f"{name}_{count}", count + 1
        self._layers.append(_Layer(unique, where, inputs, outputs, self._relu is not None, weights))
        self._relu = None

    def add_bias(self, bias: NDArray[np.float64], where: str) -> None:
        """Add a constant to the output of the last layer, which must be a dense layer."""
        last = self._layers[-1]
        if isinstance(last.weights, LstmWeights) or self._relu or last.activation != "identity":
            raise ModelError(
                f"{where} adds a constant to what is not a dense layer's plain output, "
                f"which the core cannot compute; {self._cut}"
            )
        weight, before = last.weights
        self._layers[-1] = replace(last, weights=(weight, before + bias))

    def add_activation(self, kind: Activation, where: str) -> None:
        """Apply an activation to the output of the last layer."""
        last = self._layers[-1]
        if kind == "identity":
            return
        if last.is_lstm:
            if kind != "relu":
                raise ModelError(
                    f"{where} follows {last.where} directly, where the core can apply relu "
                    f"(on what the next layer reads) but not {kind}; {self._cut}"
                )
            self._relu = where
        elif last.activation == "identity":
            self._layers[-1] = replace(last, activation=kind)
        elif (last.activation, kind) != ("relu", "relu"):
            raise ModelError(
                f"{where} is a second activation ({kind}) after the {last.activation} of {last.where}, "
                f"but a dense layer has one activation; {self._cut}"
            )

    def finish(self, name: str) -> Network:
        """Return the network."""
        if self._relu is not None:
            raise ModelError(
                f"{self._relu} follows the last LSTM layer with no layer after it, and the core "
                f"applies relu only on what a layer reads; {self._cut}"
            )
        layers: list[Lstm | Dense] = []
        for layer in self._layers:
            if isinstance(layer.weights, LstmWeights):
                w = layer.weights
                layers.append(
                    Lstm(name=layer.name, w_ih=w.w_ih, w_hh=w.w_hh, bias=w.bias, input_relu=layer.input_relu)
                )
            else:
                weight, bias = layer.weights
                layers.append(
                    Dense(
                        name=layer.name,
                        weight=weight,
                        bias=bias,
                        activation=layer.activation,
                        input_relu=layer.input_relu,
                    )
                )
        return Network(name=name, layers=tuple(layers))
