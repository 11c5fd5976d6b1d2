"""The network: recurrent and dense layers with float weights, as read from a model file."""

import base64
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

from rtlstm.spec.activations.functions import SIGMOID, TANH, ActivationFunction, FunctionName
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.layout import OutputPart, Window, check_parts, check_window
from rtlstm.spec.record import Extended, Record

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


class Read(Record):
    """One of the results that a layer reads: ``width`` values of the layer that is ``back`` layers earlier.

    1 is the layer before; the position before the first layer is the network's input. ``relu`` applies ReLU.
    """

    back: Annotated[int, Field(ge=1)] = 1
    width: Annotated[int, Field(ge=1)]
    relu: bool = False


def read_fields(reads: Sequence[Read]) -> dict[str, Any]:
    """Return the fields of a :class:`Reader` that reads these, the shortest that say it."""
    if [read.back for read in reads] == [1]:
        return {"reads": (), "input_relu": reads[0].relu}
    return {"reads": tuple(reads), "input_relu": False}


class Reader(Record):
    """A layer that reads results of earlier layers, side by side, in the order of its matrix's columns."""

    reads: tuple[Read, ...] = ()
    """What it reads; nothing said, the results of the layer before."""
    input_relu: bool = False
    """Apply ReLU to all that the layer reads."""

    @property
    @abstractmethod
    def input_weights(self) -> NDArray[np.float64]:
        """The matrix that what it reads is multiplied by, ``(rows, inputs)``."""

    @property
    def inputs(self) -> int:
        """Number of values that the layer reads."""
        return int(self.input_weights.shape[1])

    @property
    def sources(self) -> tuple[Read, ...]:
        """What it reads, each with its width."""
        return self.reads or (Read(width=self.inputs, relu=self.input_relu),)

    @property
    def products(self) -> tuple[tuple[Read, NDArray[np.float64]], ...]:
        """What it reads, each with its columns of the matrix."""
        ends = np.cumsum([read.width for read in self.sources])[:-1]
        return tuple(zip(self.sources, np.split(self.input_weights, ends, axis=1), strict=True))

    @model_validator(mode="after")
    def _check_reads(self) -> Self:
        if not self.reads or self.input_weights.ndim != 2:
            return self
        if self.input_relu:
            raise ValueError("a layer whose reads are given has a ReLU in each of them; leave input_relu out")
        width = sum(read.width for read in self.reads)
        if width != self.inputs:
            raise ValueError(
                f"its reads must have the {self.inputs} values of its matrix's rows, not {width}"
            )
        return self


class Recurrent(Reader):
    """Base class of recurrent layers: rows gate by gate, units in order within a gate.

    ``w_ih`` is ``(gates * units, inputs)`` and ``w_hh`` ``(gates * units, outputs)``.
    """

    GATES: ClassVar[int] = 1

    name: str = "recurrent"
    w_ih: FloatArray
    w_hh: FloatArray
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
    def input_weights(self) -> NDArray[np.float64]:
        """The matrix ``w_ih``."""
        return cast(NDArray[np.float64], self.w_ih)

    @property
    def units(self) -> int:
        """Number of hidden units."""
        return int(self.w_ih.shape[0]) // self.gates

    @property
    def outputs(self) -> int:
        """Width of h."""
        return self.units


class Norm(Record):
    """A norm over the ``values`` features of a step, ``(x - mean) / sqrt(variance + epsilon) * gain + bias``.

    Without ``centre`` (RMSNorm) the mean is not subtracted, and the variance is the mean square. ``gain`` and
    ``bias`` are ``(values,)``, or None.
    """

    kind: Literal["norm"] = "norm"
    name: str = "norm"
    values: Annotated[int, Field(ge=1)]
    gain: FloatArray | None = None
    bias: FloatArray | None = None
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-5
    centre: bool = True
    input_relu: ClassVar[bool] = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("gain", "bias"):
            if (given := getattr(self, name)) is not None:
                _expect_shape(name, given, (self.values,))
        return self

    @property
    def inputs(self) -> int:
        """Width of the layer's input."""
        return self.values

    @property
    def outputs(self) -> int:
        """Width of the layer's output."""
        return self.values

    @property
    def sources(self) -> tuple[Read, ...]:
        """What it reads: the results of the layer before."""
        return (Read(width=self.values),)

    @property
    def constants(self) -> tuple[Any, ...]:
        """Gain and bias, those that it has."""
        return tuple(each for each in (self.gain, self.bias) if each is not None)


class LstmNorms(Extended):
    """Norms inside an LSTM layer, each of which may be left out: ``hidden`` is of the gates' products with h,
    ``input`` of those with the input, both of ``4 * units`` values; ``cell`` is of c, ``(units,)``, where h
    reads it, and if it is ``kept``, in the next step, too.

    ``input_bias`` and ``hidden_bias`` ``(4 * units,)`` are added before the norms; None for zeros. If
    ``together``, the norm ``hidden`` is of the sum of both products, and there is none of the input's.
    """

    input: Norm | None = None
    hidden: Norm | None = None
    cell: Norm | None = None
    input_bias: FloatArray | None = None
    hidden_bias: FloatArray | None = None
    together: bool = False
    kept: bool = False
    """Keep what the norm of c gives as c."""
    _later = frozenset({"kept"})

    @property
    def each(self) -> dict[str, Norm]:
        """The norms that there are, by their fields' names."""
        found = {"input": self.input, "hidden": self.hidden, "cell": self.cell}
        return {name: norm for name, norm in found.items() if norm is not None}

    def check(self, units: int) -> None:
        """Raise ValueError if they are not of an LSTM of so many units."""
        for name, values in (("input", 4 * units), ("hidden", 4 * units), ("cell", units)):
            norm = getattr(self, name)
            if norm is not None and norm.values != values:
                raise ValueError(f"the norm {name!r} must be of {values} values, not {norm.values}")
            bias = getattr(self, f"{name}_bias", None)
            if bias is not None:
                _expect_shape(f"{name}_bias", bias, (values,))
        if not self.each:
            raise ValueError("norms of an LSTM must have one of input, hidden and cell; leave norms out")
        if self.kept and self.cell is None:
            raise ValueError("a c that is kept behind its norm must have one: give cell, or leave kept out")
        if self.together and (self.input is not None or self.input_bias is not None or self.hidden is None):
            raise ValueError("a norm of both products together is hidden; leave input and input_bias out")


class Lstm(Recurrent, Extended):
    """An LSTM layer with PyTorch's equations and gate order i, f, g, o.

    ``bias`` is ``(4 * units,)``, the sum of PyTorch's two. With a ``projection`` ``(outputs, units)``,
    h is its product with ``o * output_activation(c)`` (``proj_size``). ``peephole`` ``(3 * units,)``, for i,
    f and o, multiplies the old c, for o the new one.
    """

    GATES: ClassVar[int] = 4
    _later = frozenset({"norms"})

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
    norms: LstmNorms | None = None
    """Norms of the products, to which ``bias`` is added, and of c (LayerNorm LSTM)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _expect_shape("bias", self.bias, (4 * self.units,))
        if self.norms is not None:
            self.norms.check(self.units)
            if self.peephole is not None or self.projection is not None:
                raise ValueError("an LSTM with norms has no peepholes and no projection; leave them out")
        if self.peephole is not None:
            _expect_shape("peephole", self.peephole, (3 * self.units,))
        if self.projection is not None and (
            self.projection.ndim != 2 or self.projection.shape[1] != self.units
        ):
            raise ValueError(f"projection must be (outputs, {self.units}), not {self.projection.shape}")
        return self

    def with_input_bias(self, bias: NDArray[np.float64]) -> dict[str, Any]:
        """Return the fields with a bias more ``(4 * units,)`` of the products with the input."""
        norms = self.norms
        if norms is None or not (norms.together or norms.input is not None):
            return {"bias": self.bias + bias}
        name = "hidden_bias" if norms.together else "input_bias"
        there = getattr(norms, name)
        return {"norms": norms.replace(**{name: bias if there is None else there + bias})}

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
    reads_h: bool = True
    """Whether gates read h; by default, whether ``w_hh`` has a number that is not 0."""

    @abstractmethod
    def step_cell(self) -> Cell:
        """Return the step function."""

    @model_validator(mode="before")
    @classmethod
    def _find_reads_h(cls, fields: Any) -> Any:
        """Say whether gates read h, if the user has not."""
        if not isinstance(fields, dict) or "reads_h" in fields or "w_hh" not in fields:
            return fields
        return {**fields, "reads_h": bool(np.any(_load_array(fields["w_hh"])))}

    @model_validator(mode="after")
    def _check(self) -> Self:
        _expect_shape("bias", self.bias, (self.gates * self.units,))
        if not self.reads_h and self.w_hh.any():
            raise ValueError("a layer whose gates do not read h has a w_hh of zeros; leave reads_h out")
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


def keeps_cell_state(layer: PseudoLayer) -> bool:
    """Whether a layer has a c beside its h."""
    return isinstance(layer, Lstm) or (isinstance(layer, CellLayer) and layer.has_cell_state)


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

    @property
    def sources(self) -> tuple[Read, ...]:
        """What both directions read."""
        return self.forward.sources


class Dense(Reader):
    """A fully connected layer, ``activation(weight @ relu?(x) + bias)``.

    ``weight`` is ``(outputs, inputs)`` and ``bias`` ``(outputs,)``. ``input_relu`` applies ReLU
    to the layer's input, as in silero's head. ``skip=s`` ``(outputs, values)``, ``skips=2`` and
    ``skip_relu=False`` are short for a second :class:`Read`, of the layer that is ``skips`` layers earlier,
    with the matrix ``s``. An identity makes a residual.
    """

    kind: Literal["dense"] = "dense"
    name: str = "dense"
    weight: FloatArray
    bias: FloatArray
    activation: Activation = "identity"
    alpha: float | None = None
    beta: float | None = None
    """Parameters of the activation; its defaults if None."""

    @model_validator(mode="before")
    @classmethod
    def _with_skip(cls, fields: Any) -> Any:
        """Make a second read of a skip."""
        if not isinstance(fields, dict) or not {"skip", "skips", "skip_relu"} & fields.keys():
            return fields
        fields = dict(fields)
        skip, back, relu = fields.pop("skip", None), fields.pop("skips", 2), fields.pop("skip_relu", False)
        if skip is None:
            raise ValueError("skips and skip_relu need a skip: give its weights, too")
        weight, skip = _load_array(fields.get("weight", ())), _load_array(skip)
        if weight.ndim != 2 or skip.ndim != 2 or len(skip) != len(weight):
            raise ValueError(f"skip must be ({len(weight)}, values), not {skip.shape}")
        if fields.get("reads"):
            raise ValueError("a layer whose reads are given needs no skip: give one more of them")
        reads = (
            Read(width=weight.shape[1], relu=fields.pop("input_relu", False)),
            Read(back=back, width=skip.shape[1], relu=relu),
        )
        return {**fields, "weight": np.concatenate([weight, skip], axis=1), "reads": reads}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weight.ndim != 2 or 0 in self.weight.shape:
            raise ValueError(f"weight must be (outputs, inputs), not {self.weight.shape}")
        _expect_shape("bias", self.bias, (self.weight.shape[0],))
        return self

    @property
    def input_weights(self) -> NDArray[np.float64]:
        """The matrix ``weight``."""
        return cast(NDArray[np.float64], self.weight)

    @property
    def outputs(self) -> int:
        """Width of the layer's output."""
        return int(self.weight.shape[0])

    @property
    def function(self) -> ActivationFunction:
        """The activation with its parameters."""
        return ActivationFunction.of(self.activation, self.alpha, self.beta)


StatelessLayer = Dense | Norm
"""A layer without a recurrent matrix."""
Layer = Annotated[PseudoLayer | Bidirectional | Dense | Norm, Field(discriminator="kind")]


class Network(Record):
    """Recurrent and dense layers in order of computation, or dense layers alone."""

    schema_version: Literal[1] = NETWORK_SCHEMA
    name: str = "network"
    layers: tuple[Layer, ...]
    frames: Annotated[int, Field(ge=1)] = 1
    """Steps of the model in one step of the network, which reads them side by side, the oldest first."""
    window: Window = (0, 0)
    """How many steps before and after each one the network reads beside it, the oldest first."""
    parts: tuple[OutputPart, ...] = ()
    """The model's outputs, if it has several: parts of the network's."""
    input_parts: tuple[OutputPart, ...] = ()
    """The model's inputs, if it has several: parts of the network's, in order."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.layers:
            raise ValueError("a network must have a layer")
        if self.inputs % self.frames:
            raise ValueError(f"{self.inputs} inputs must be {self.frames} frames of as many values each")
        check_window(self.window, self.inputs, self.frames)
        widths = [self.layers[0].sources[0].width, *(layer.outputs for layer in self.layers)]
        for index, layer in enumerate(self.layers):
            self._check_reads(layer, widths[: index + 1])
        for one in self.pseudo_layers if self.whole_sequences else ():
            if isinstance(one, Lstm) and one.norms is not None:
                raise ValueError(
                    f"layer {one.name!r} has norms, which a network with a reverse direction cannot have "
                    "inside an LSTM; build the layers before and after it, join on the host"
                )
        check_parts(self.parts, self.outputs)
        check_parts(self.input_parts, self.inputs, "inputs")
        return self

    def _check_reads(self, layer: Layer, given: list[int]) -> None:
        """Check what a layer reads; ``given`` are the widths of the input and of the layers before."""
        for read in layer.sources:
            if read.back > len(given):
                raise ValueError(
                    f"layer {layer.name!r} reads what stands {read.back} layers back, more than come before"
                )
            if read.width != given[-read.back]:
                source = self.layers[len(given) - 1 - read.back] if read.back < len(given) else None
                raise ValueError(
                    f"layer {layer.name!r} reads {read.width} values, but "
                    f"{'the input' if source is None else f'layer {source.name!r}'} gives {given[-read.back]}"
                )
        if self.whole_sequences and [read.back for read in layer.sources] != [1]:
            raise ValueError(
                f"layer {layer.name!r} reads other results than those of the layer before, which a network "
                "with a reverse direction cannot do; build the layers before and after it, join on the host"
            )

    @property
    def inputs(self) -> int:
        """Width of one step's input."""
        return self.layers[0].sources[0].width

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
            elif not isinstance(layer, StatelessLayer):
                found.append(layer)
        return tuple(found)

    @property
    def whole_sequences(self) -> bool:
        """Whether a layer has a reverse direction, so that its first output needs a sequence's last step."""
        return any(layer.reverse for layer in self.pseudo_layers)

    @property
    def weight_count(self) -> int:
        """Number of weights and biases."""
        layers = (*self.pseudo_layers, *(layer for layer in self.layers if isinstance(layer, StatelessLayer)))
        arrays = (getattr(layer, name) for layer in layers for name in type(layer).model_fields)
        return sum(math.prod(array.shape) for array in arrays if isinstance(array, np.ndarray))
