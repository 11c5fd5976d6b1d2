"""The network: recurrent and dense layers with float weights, as read from a model file."""

import base64
import math
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from rtlstm.spec.record import Record

__all__ = ["NETWORK_SCHEMA", "Activation", "Dense", "FloatArray", "Layer", "Lstm", "Network"]

NETWORK_SCHEMA: Final = 1

Activation = Literal["identity", "relu", "sigmoid", "tanh"]


def _load_array(value: Any) -> NDArray[np.float64]:
    if isinstance(value, dict):
        raw = np.frombuffer(base64.b64decode(value["float64"]), dtype="<f8")
        value = raw.reshape(value["shape"])
    array = np.array(value, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = int(np.count_nonzero(~np.isfinite(array)))
        raise ValueError(f"weights must be finite numbers, but {bad} of {array.size} are NaN or infinite")
    array.setflags(write=False)
    return array


def _dump_array(array: NDArray[np.float64]) -> dict[str, Any]:
    raw = np.ascontiguousarray(array, dtype="<f8").tobytes()
    return {"shape": list(array.shape), "float64": base64.b64encode(raw).decode()}


FloatArray = Annotated[Any, BeforeValidator(_load_array), PlainSerializer(_dump_array, return_type=dict)]
"""A read-only float64 array; in JSON its shape and base64 of its little-endian bytes."""


def _expect_shape(name: str, array: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, not {array.shape}")


class Lstm(Record):
    """One forward LSTM layer with PyTorch's equations and gate order i, f, g, o.

    ``w_ih`` is ``(4 * hidden, inputs)``, ``w_hh`` is ``(4 * hidden, hidden)`` and ``bias`` is
    ``(4 * hidden,)``, the sum of PyTorch's two biases. ``input_relu`` applies ReLU to what the
    layer reads.
    """

    kind: Literal["lstm"] = "lstm"
    name: str = "lstm"
    w_ih: FloatArray
    w_hh: FloatArray
    bias: FloatArray
    input_relu: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.w_ih.ndim != 2 or self.w_ih.shape[0] % 4 or 0 in self.w_ih.shape:
            raise ValueError(f"w_ih must be (4 * hidden, inputs), not {self.w_ih.shape}")
        rows = self.w_ih.shape[0]
        _expect_shape("w_hh", self.w_hh, (rows, rows // 4))
        _expect_shape("bias", self.bias, (rows,))
        return self

    @property
    def inputs(self) -> int:
        """Width of the layer's input."""
        return int(self.w_ih.shape[1])

    @property
    def outputs(self) -> int:
        """Number of hidden units."""
        return int(self.w_hh.shape[1])


class Dense(Record):
    """A fully connected layer, ``activation(weight @ relu?(x) + bias)``.

    ``weight`` is ``(outputs, inputs)`` and ``bias`` ``(outputs,)``. ``input_relu`` applies ReLU
    to what the layer reads (silero's head does so).
    """

    kind: Literal["dense"] = "dense"
    name: str = "dense"
    weight: FloatArray
    bias: FloatArray
    activation: Activation = "identity"
    input_relu: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weight.ndim != 2 or 0 in self.weight.shape:
            raise ValueError(f"weight must be (outputs, inputs), not {self.weight.shape}")
        _expect_shape("bias", self.bias, (self.weight.shape[0],))
        return self

    @property
    def inputs(self) -> int:
        """Width of the layer's input."""
        return int(self.weight.shape[1])

    @property
    def outputs(self) -> int:
        """Width of the layer's output."""
        return int(self.weight.shape[0])


Layer = Annotated[Lstm | Dense, Field(discriminator="kind")]


class Network(Record):
    """One or more LSTM layers, then any number of dense layers, in order of computation."""

    schema_version: Literal[1] = NETWORK_SCHEMA
    name: str = "network"
    layers: tuple[Layer, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.layers or self.layers[0].kind != "lstm":
            raise ValueError("a network must begin with an LSTM layer")
        for before, after in zip(self.layers, self.layers[1:], strict=False):
            if before.kind == "dense" and after.kind == "lstm":
                raise ValueError(
                    f"LSTM layer {after.name!r} follows dense layer {before.name!r}; "
                    "all LSTM layers must come before the dense layers"
                )
            if after.inputs != before.outputs:
                raise ValueError(
                    f"layer {after.name!r} reads {after.inputs} values, "
                    f"but layer {before.name!r} gives {before.outputs}"
                )
        return self

    @property
    def inputs(self) -> int:
        """Width of one step's input."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Width of one step's output."""
        return self.layers[-1].outputs

    @property
    def lstm_layers(self) -> tuple[Lstm, ...]:
        """The recurrent layers."""
        return tuple(layer for layer in self.layers if isinstance(layer, Lstm))

    @property
    def weight_count(self) -> int:
        """Number of weights and biases."""
        count = 0
        for layer in self.layers:
            arrays = (
                (layer.w_ih, layer.w_hh, layer.bias)
                if isinstance(layer, Lstm)
                else (layer.weight, layer.bias)
            )
            count += sum(math.prod(array.shape) for array in arrays)
        return count
