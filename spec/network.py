"""The network: recurrent and dense layers with float weights, as read from a model file."""

import base64
import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from rtlstm.spec.activations.functions import SIGMOID, TANH, ActivationFunction, FunctionName
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.layout import OutputPart, check_parts
from rtlstm.spec.record import Record

NETWORK_SCHEMA: Final = 1

Activation = FunctionName
"""Name of a dense layer's activation."""

LINEAR: Final = frozenset(("identity", "relu"))
"""Activations that need no table: the sum itself, or 0 for a negative one."""


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


class Recurrent(Record):
    """Base class of recurrent layers: rows gate by gate, units in order within a gate.

    ``w_ih`` is ``(gates * units, inputs)`` and ``w_hh`` ``(gates * units, outputs)``.
    """

    GATES: ClassVar[int] = 1

    name: str = "recurrent"
    w_ih: FloatArray
    w_hh: FloatArray
    input_relu: bool = False
    """Apply ReLU to the layer's input."""
    reverse: bool = False
    """Go from a sequence's last valid step to its first; each output has the index of its input."""
    reversed_output: bool = False
    """Outputs of a reverse layer are in the order in which they are computed (Keras ``go_backwards``): that
    of a sequence's first step is at its last valid step."""
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Largest magnitude of each gate's pre-activation, which is clipped to it (ONNX ``clip``)."""

    @model_validator(mode="after")
    def _check_matrices(self) -> Self:
        if self.reversed_output and not self.reverse:
            raise ValueError("only a layer in reverse can have its outputs reversed")
        gates = f"{self.gates} * units" if self.gates > 1 else "units"
        if self.w_ih.ndim != 2 or self.w_ih.shape[0] % self.gates or 0 in self.w_ih.shape:
            raise ValueError(f"w_ih must be ({gates}, inputs), not {self.w_ih.shape}")
        _expect_shape("w_hh", self.w_hh, (self.w_ih.shape[0], self.outputs))
        return self

    @property
    def gates(self) -> int:
        """Rows of a unit."""
        return self.GATES

    @property
    def inputs(self) -> int:
        """Width of the layer's input."""
        return int(self.w_ih.shape[1])

    @property
    def units(self) -> int:
        """Number of hidden units."""
        return int(self.w_ih.shape[0]) // self.gates

    @property
    def outputs(self) -> int:
        """Width of h."""
        return self.units


class Lstm(Recurrent):
    """An LSTM layer with PyTorch's equations and gate order i, f, g, o.

    ``bias`` is ``(4 * units,)``, the sum of PyTorch's two. With a ``projection`` ``(outputs, units)``,
    h is its product with ``o * output_activation(c)`` (``proj_size``). ``peephole`` ``(3 * units,)``, for i,
    f and o, multiplies the old c, for o the new one.
    """

    GATES: ClassVar[int] = 4

    kind: Literal["lstm"] = "lstm"
    name: str = "lstm"
    bias: FloatArray
    peephole: FloatArray | None = None
    projection: FloatArray | None = None
    gate: ActivationFunction = SIGMOID
    """Activation of the gates i, f and o."""
    candidate: ActivationFunction = TANH
    """Activation of the candidate g."""
    output_activation: ActivationFunction = TANH
    """Activation of c, for h."""
    coupled: bool = False
    """The forget gate is ``1 - i`` (ONNX ``input_forget``); the rows of f are not used."""
    cell_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Largest magnitude of c, which is clipped to it."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _expect_shape("bias", self.bias, (4 * self.units,))
        if self.peephole is not None:
            _expect_shape("peephole", self.peephole, (3 * self.units,))
        if self.projection is not None and (
            self.projection.ndim != 2 or self.projection.shape[1] != self.units
        ):
            raise ValueError(f"projection must be (outputs, {self.units}), not {self.projection.shape}")
        return self

    @property
    def outputs(self) -> int:
        """Width of h: that of the projection, if there is one."""
        return self.units if self.projection is None else int(self.projection.shape[0])


class Gru(Recurrent):
    """A GRU layer, ``h = (1 - z) * n + z * h``, with PyTorch's gate order r, z, n.

    With ``reset_after`` (PyTorch, cuDNN, ONNX ``linear_before_reset``)
    ``n = candidate(W x + b_ih + r * (U h + b_hh))``, without ``candidate(W x + b_ih + U (r * h) + b_hh)``.
    ``bias_ih`` and ``bias_hh`` are ``(3 * units,)``.
    """

    GATES: ClassVar[int] = 3

    kind: Literal["gru"] = "gru"
    name: str = "gru"
    bias_ih: FloatArray
    bias_hh: FloatArray
    gate: ActivationFunction = SIGMOID
    """Activation of r and z."""
    candidate: ActivationFunction = TANH
    """Activation of the candidate n."""
    reset_after: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        _expect_shape("bias_ih", self.bias_ih, (3 * self.units,))
        _expect_shape("bias_hh", self.bias_hh, (3 * self.units,))
        return self


class Rnn(Recurrent):
    """A plain recurrent layer, ``h = activation(W x + U h + bias)``; ``bias`` is ``(units,)``."""

    GATES: ClassVar[int] = 1

    kind: Literal["rnn"] = "rnn"
    name: str = "rnn"
    bias: FloatArray
    activation: ActivationFunction = TANH

    @model_validator(mode="after")
    def _check(self) -> Self:
        _expect_shape("bias", self.bias, (self.units,))
        return self


class CellLayer(Recurrent):
    """A recurrent layer whose step function is a cell, written with a ``CellBuilder``.

    A subclass is a kind of layer and defines its cell. ``bias`` is ``(gates * units,)``; ``parameters``,
    ``(units, K)``, are the constants of each unit that the cell uses. The state is h if the cell's result is
    the value that it keeps; otherwise it is h and a c.
    """

    bias: FloatArray
    parameters: FloatArray | None = None

    @abstractmethod
    def step_cell(self) -> Cell:
        """Return the step function."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _expect_shape("bias", self.bias, (self.gates * self.units,))
        if self.clip is not None:
            raise ValueError("a custom layer clips only where its cell does; leave clip out")
        cell = self.step_cell()
        if cell.reads_state and cell.state is None:
            raise ValueError(
                f"cell {cell.name!r} reads its state, but keeps none; give the new state to CellBuilder.keep"
            )
        count = cell.parameters
        if count:
            constants = np.zeros((0,)) if self.parameters is None else self.parameters
            _expect_shape("parameters", constants, (self.units, count))
        return self

    @property
    def gates(self) -> int:
        """Rows of a unit."""
        return self.step_cell().gates

    @property
    def has_cell_state(self) -> bool:
        """Whether the state has a c in addition to h."""
        cell = self.step_cell()
        return cell.state not in (None, cell.result)


class Custom(CellLayer):
    """A recurrent layer with the user's step function ``cell``, made by a ``CellBuilder``.

    The rows of the gates stand one gate after the other, units in order within a gate: ``gate(k)`` of unit
    ``u`` is row ``k * units + u`` of ``w_ih`` ``(gates * units, inputs)``, of ``w_hh``
    ``(gates * units, units)`` and of ``bias`` ``(gates * units,)``. ``w_hh`` may be None if no gate reads the
    layer's h: then it is zeros. ``parameters`` ``(units, K)`` has a row for each unit and a column for each
    constant, ``parameter(0)`` to ``parameter(K - 1)``; None for a cell without.
    """

    kind: Literal["custom"] = "custom"
    name: str = "custom"
    cell: Cell

    @model_validator(mode="before")
    @classmethod
    def _without_feedback(cls, fields: Any) -> Any:
        """Put zeros for a ``w_hh`` of None."""
        if not isinstance(fields, dict) or fields.get("w_hh", ()) is not None:
            return fields
        cell, shape = fields.get("cell"), np.shape(fields.get("w_ih", ()))
        if not isinstance(cell, Cell) or len(shape) != 2:
            return fields  # The checks of the fields say what is wrong.
        return {**fields, "w_hh": np.zeros((shape[0], shape[0] // cell.gates))}

    def step_cell(self) -> Cell:
        """Return the step function."""
        return self.cell


PseudoLayer = Lstm | Gru | Rnn | Custom
RecurrentLayer = Annotated[PseudoLayer, Field(discriminator="kind")]


class Bidirectional(Record):
    """Two recurrent layers that read the same sequence, one from its first step, one from its last.

    ``merge``: outputs side by side, forward first; their sum; their mean; or their product. If the outputs of
    ``backward`` are reversed, a sequence's last valid step has the final h of both.
    """

    kind: Literal["bidirectional"] = "bidirectional"
    name: str = "bidirectional"
    forward: RecurrentLayer
    backward: RecurrentLayer
    merge: Literal["concat", "sum", "average", "product"] = "concat"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.forward.reverse or not self.backward.reverse:
            raise ValueError("backward must have reverse set, and forward must not")
        if self.forward.inputs != self.backward.inputs:
            raise ValueError(
                f"both directions read the same values, not {self.forward.inputs} and {self.backward.inputs}"
            )
        if self.forward.input_relu != self.backward.input_relu:
            raise ValueError("input_relu must be the same in both directions")
        if self.merge != "concat" and self.forward.outputs != self.backward.outputs:
            raise ValueError(
                f"to merge them by {self.merge}, both directions must give as many values, not "
                f"{self.forward.outputs} and {self.backward.outputs}"
            )
        return self

    @property
    def inputs(self) -> int:
        """Width of the layer's input."""
        return self.forward.inputs

    @property
    def outputs(self) -> int:
        """Width of the merged output."""
        both = self.forward.outputs + self.backward.outputs
        return both if self.merge == "concat" else self.forward.outputs

    @property
    def input_relu(self) -> bool:
        """Apply ReLU to what the layer reads."""
        return self.forward.input_relu


class Dense(Record):
    """A fully connected layer, ``activation(weight @ relu?(x) + bias)``.

    ``weight`` is ``(outputs, inputs)`` and ``bias`` ``(outputs,)``. ``input_relu`` applies ReLU
    to the layer's input, as in silero's head. With a ``skip`` ``(outputs, values)`` the layer adds the
    product of the skip and the output of the layer that is ``skips`` layers earlier: 2 skips one layer. A
    number that leads to the position before the first layer means the network's input. An identity makes a
    residual.
    """

    kind: Literal["dense"] = "dense"
    name: str = "dense"
    weight: FloatArray
    bias: FloatArray
    activation: Activation = "identity"
    alpha: float | None = None
    beta: float | None = None
    """Parameters of the activation; its defaults if None."""
    input_relu: bool = False
    skip: FloatArray | None = None
    skips: Annotated[int, Field(ge=2)] = 2
    skip_relu: bool = False
    """Apply ReLU to the skip's input."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weight.ndim != 2 or 0 in self.weight.shape:
            raise ValueError(f"weight must be (outputs, inputs), not {self.weight.shape}")
        if self.skip is None and (self.skips != 2 or self.skip_relu):
            raise ValueError("skips and skip_relu need a skip: give its weights, too")
        if self.skip is not None and (self.skip.ndim != 2 or len(self.skip) != len(self.weight)):
            raise ValueError(f"skip must be ({len(self.weight)}, values), not {self.skip.shape}")
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

    @property
    def function(self) -> ActivationFunction:
        """The activation with its parameters."""
        return ActivationFunction.of(self.activation, self.alpha, self.beta)


Layer = Annotated[PseudoLayer | Bidirectional | Dense, Field(discriminator="kind")]


class Network(Record):
    """Recurrent and dense layers in order of computation, or dense layers alone."""

    schema_version: Literal[1] = NETWORK_SCHEMA
    name: str = "network"
    layers: tuple[Layer, ...]
    frames: Annotated[int, Field(ge=1)] = 1
    """Steps of the model in one step of the network, which reads them side by side, the oldest first."""
    parts: tuple[OutputPart, ...] = ()
    """The model's outputs, if it has several: parts of the network's."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.layers:
            raise ValueError("a network must have a layer")
        if self.inputs % self.frames:
            raise ValueError(f"{self.inputs} inputs must be {self.frames} frames of as many values each")
        for before, after in zip(self.layers, self.layers[1:], strict=False):
            if after.inputs != before.outputs:
                raise ValueError(
                    f"layer {after.name!r} reads {after.inputs} values, "
                    f"but layer {before.name!r} gives {before.outputs}"
                )
        check_parts(self.parts, self.outputs)
        widths = [self.layers[0].inputs, *(layer.outputs for layer in self.layers)]
        for index, layer in enumerate(self.layers):
            if isinstance(layer, Dense) and layer.skip is not None:
                self._check_skip(layer, layer.skip.shape[1], widths[: max(0, index + 2 - layer.skips)])
        return self

    def _check_skip(self, layer: Dense, width: int, given: list[int]) -> None:
        """Check the source of a skip and its width; ``given`` are the widths up to its source's."""
        if not given:
            raise ValueError(f"layer {layer.name!r} skips {layer.skips} layers, more than come before it")
        if width != given[-1]:
            raise ValueError(
                f"the skip of layer {layer.name!r} reads {width} values, but its source has {given[-1]}"
            )
        if self.whole_sequences:
            raise ValueError(
                f"layer {layer.name!r} has a skip, which a network with a reverse direction cannot have; "
                "build the layers before and after it, and add on the host"
            )

    @property
    def inputs(self) -> int:
        """Width of one step's input."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Width of one step's output."""
        return self.layers[-1].outputs

    @property
    def pseudo_layers(self) -> tuple[PseudoLayer, ...]:
        """Every direction of every recurrent layer: forward 0, backward 0, forward 1, ..."""
        found: list[PseudoLayer] = []
        for layer in self.layers:
            if isinstance(layer, Bidirectional):
                found += [layer.forward, layer.backward]
            elif not isinstance(layer, Dense):
                found.append(layer)
        return tuple(found)

    @property
    def whole_sequences(self) -> bool:
        """Whether a layer has a reverse direction, so that its first output needs a sequence's last step."""
        return any(layer.reverse for layer in self.pseudo_layers)

    @property
    def weight_count(self) -> int:
        """Number of weights and biases."""
        layers = (*self.pseudo_layers, *(layer for layer in self.layers if isinstance(layer, Dense)))
        arrays = (getattr(layer, name) for layer in layers for name in type(layer).model_fields)
        return sum(math.prod(array.shape) for array in arrays if isinstance(array, np.ndarray))
