"""A TFLite file as tensors and operators; nothing of it is trusted."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import Floats, along_axis, half_bytes, import_extra, one_error
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import Budget, read_file

_TYPES: Final = {
    "FLOAT16": "<f2", "FLOAT32": "<f4", "FLOAT64": "<f8", "INT4": "u1", "INT8": "i1", "UINT8": "u1",
    "INT16": "<i2", "UINT16": "<u2", "INT32": "<i4", "UINT32": "<u4", "INT64": "<i8",
}  # fmt: skip
_BITS: Final = {"INT4": 4, "INT8": 8, "UINT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_AGAIN = "convert the model again"
_DAMAGED = f"is a damaged TFLite file ({{}}); {_AGAIN}"


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor's values, ``(integer - zero point) * scale`` for quantised ones, exact in float64.

    ``steps`` has their shape: the scale of each, if they are quantised.
    """

    values: Floats
    steps: Floats | None = None
    bits: int = 0
    zero_points: bool = False


@dataclass(frozen=True, eq=False)
class TfliteTensor:
    """One tensor; a size of -1 in ``shape`` is known in a run only. ``data`` is None if it is no constant."""

    name: str
    shape: tuple[int, ...]
    kind: str
    variable: bool
    data: NDArray[Any] | None
    scales: Floats
    zeros: NDArray[np.int64]
    axis: int

    @property
    def bits(self) -> int:
        """Bits of its integers; 0 if it has floats, or integers that stand for themselves."""
        return _BITS.get(self.kind, 0) if self.scales.size else 0

    @property
    def limits(self) -> tuple[float, float]:
        """The range of quantised values that have one scale."""
        low = 0 if self.kind == "UINT8" else -(2 ** (self.bits - 1))
        first, last = ((low + more - self.zeros[0]) * self.scales[0] for more in (0, 2**self.bits - 1))
        return float(first), float(last)


@dataclass(frozen=True, eq=False)
class TfliteOperator:
    """One operator: its inputs and outputs are numbers of tensors, -1 of one that is left out."""

    kind: str
    index: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any

    @property
    def name(self) -> str:
        """How reports and layers name it: its kind, and its place in the file."""
        return f"{_SHORT.get(self.kind, self.kind.lower())}_{self.index}"

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.kind} operator {self.name!r}"

    def option(self, name: str, *arguments: int) -> Any:
        """An option by the name that the schema's classes give it; 0 without options, as in the schema.

        Raises ModelError if the file is damaged there: options are read when they are asked for.
        """
        with one_error(_DAMAGED):
            return getattr(self.options, name)(*arguments) if hasattr(self.options, name) else 0

    @property
    def given(self) -> dict[str, Any]:
        """All options that are numbers or truth values, by names without capital letters."""
        names = vars(type(self.options)) if self.options is not None else ()
        fields = [name for name in names if name[0].isupper() and not name.startswith(("GetRoot", "Init"))]
        fields = [name for name in fields if not name.endswith("BufferHasIdentifier")]
        return {name.lower(): self.option(name) for name in fields}

    def input(self, number: int) -> int:
        """The tensor of an input; -1 if it is left out."""
        return self.inputs[number] if number < len(self.inputs) else -1


_SHORT: Final = {"UNIDIRECTIONAL_SEQUENCE_LSTM": "lstm", "FULLY_CONNECTED": "dense"}


@dataclass(frozen=True, eq=False)
class TfliteFile:
    """The file's main graph."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    budget: Budget

    def is_constant(self, index: int) -> bool:
        """Whether the file has a tensor's values."""
        return index >= 0 and self.tensors[index].data is not None

    def constant(self, index: int, what: str) -> Constant:
        """A constant tensor's values.

        Raises ModelError if it is none, or its values are damaged; ``what`` names it.
        """
        tensor = self.tensors[index]
        what = f"{what} ({tensor.name!r})"
        if tensor.data is None:
            raise ModelError(f"{what} must be constant, but it is computed at run time")
        values = self._values(tensor, what)
        if not tensor.bits:
            return Constant(values.astype(np.float64))
        scales, zeros = (
            _along(each, values.shape, tensor.axis, what) for each in (tensor.scales, tensor.zeros)
        )
        whole = values.astype(np.int64) - zeros
        # 24 bits of the scale and at most 32 of the integer: exact, but for the rarest of biases.
        return Constant(whole * scales, np.abs(scales), tensor.bits, bool(zeros.any()))

    def integers(self, index: int, what: str) -> list[int]:
        """A constant tensor's whole numbers, as a flat list.

        Raises ModelError if it is no such tensor, or has more numbers than a tensor has axes.
        """
        found = self.constant(index, what).values
        if found.size > 64 or not np.array_equal(found, np.round(found)):
            raise ModelError(f"{what} must be at most 64 whole numbers; {_AGAIN}")
        return [int(each) for each in found.reshape(-1)]

    def _values(self, tensor: TfliteTensor, what: str) -> NDArray[Any]:
        assert tensor.data is not None
        if tensor.kind not in _TYPES:
            raise ModelError(f"{what} has type {tensor.kind}, which is not supported")
        if min(tensor.shape, default=0) < 0:
            raise ModelError(f"{what} must have a fixed shape, not {tensor.shape}; {_AGAIN}")
        self.budget.take(tensor.shape, what)
        count = math.prod(tensor.shape)
        kind = np.dtype(_TYPES[tensor.kind])
        size = -(-count // 2) if tensor.kind == "INT4" else count * kind.itemsize
        if tensor.data.size != size:
            raise ModelError(f"{what} must have {size:,} bytes, not {tensor.data.size:,}; {_AGAIN}")
        found = tensor.data.view(kind)
        if tensor.kind == "INT4":
            found = half_bytes(found, 0, count)
        return found.reshape(tensor.shape)


def _along(each: NDArray[Any], shape: tuple[int, ...], axis: int, what: str) -> NDArray[Any]:
    """One for all elements, or one for each index of an axis."""
    found = along_axis(each, shape, axis if axis >= 0 else len(shape))
    if found is None:
        raise ModelError(
            f"{what} must have one scale and zero point, or {shape} of them along an axis, not {each.size} "
            f"along axis {axis}; {_AGAIN}"
        )
    return found


def load_tflite(path: Path) -> TfliteFile:
    """Read a file.

    Raises ModelError if it is damaged, or keeps its weights elsewhere. Raises ToolError if the package tflite
    is not installed.
    """
    schema = import_extra("tflite", "tflite")
    try:
        data = read_file(path)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}") from None
    with one_error(_DAMAGED):
        return _File(schema, data).read()


class _File:
    """Reads one file by the schema's generated classes."""

    def __init__(self, schema: Any, data: bytes) -> None:
        self._schema = schema
        self._model = schema.Model.GetRootAs(data, 0)
        self._budget = Budget(ModelError)

    def read(self) -> TfliteFile:
        if self._model.SubgraphsLength() < 1:
            raise ModelError(f"has no graph; {_AGAIN}")
        graph = self._model.Subgraphs(0)
        tensors = self._each(graph.TensorsLength, lambda at: self._tensor(graph.Tensors(at), at), "tensors")
        operators = self._each(
            graph.OperatorsLength, lambda at: self._operator(graph.Operators(at), at), "operators"
        )
        inputs, outputs = self._numbers(graph, "Inputs"), self._numbers(graph, "Outputs")
        used = {number for one in operators for number in (*one.inputs, *one.outputs)} - {-1}
        if not {*used, *inputs, *outputs} <= {*range(len(tensors))}:
            raise ModelError(f"names tensors that it does not have; {_AGAIN}")
        return TfliteFile(*_dequantised(tensors, operators), inputs, outputs, self._budget)

    def _each(self, length: Callable[[], int], make: Callable[[int], Any], what: str) -> tuple[Any, ...]:
        self._budget.take((length(),), f"the list of {what}")
        return tuple(make(at) for at in range(length()))

    def _numbers(self, table: Any, name: str) -> tuple[int, ...]:
        return self._each(getattr(table, f"{name}Length"), lambda at: int(getattr(table, name)(at)), name)

    def _tensor(self, found: Any, index: int) -> TfliteTensor:
        fixed, flexible = self._numbers(found, "Shape"), self._numbers(found, "ShapeSignature")
        name = (found.Name() or b"").decode(errors="replace") or f"tensor {index}"
        scales, zeros, axis = self._quantisation(found.Quantization(), name)
        return TfliteTensor(
            name=name,
            shape=flexible or fixed,
            kind=_name(self._schema.TensorType, found.Type()),
            variable=bool(found.IsVariable()),
            data=self._data(found, name),
            scales=scales,
            zeros=zeros,
            axis=axis,
        )

    def _data(self, found: Any, name: str) -> NDArray[Any] | None:
        buffer = self._model.Buffers(found.Buffer()) if found.Buffer() else None
        if buffer is None:
            return None
        if found.Sparsity() is not None:
            raise ModelError(f"tensor {name!r} is stored sparsely, which is not supported; {_AGAIN} densely")
        if buffer.Offset() > 1:
            raise ModelError(
                f"tensor {name!r} is stored outside of the flatbuffer, as in files of more than 2 GiB, which "
                "is not supported"
            )
        return np.asarray(buffer.DataAsNumpy()) if buffer.DataLength() else None

    def _quantisation(self, given: Any, name: str) -> tuple[Floats, NDArray[np.int64], int]:
        count = given.ScaleLength() if given is not None else 0
        if not count:
            return np.zeros(0), np.zeros(0, np.int64), 0
        scales = np.asarray(given.ScaleAsNumpy()).astype(np.float64)
        zeros = np.zeros(count, np.int64)
        if given.ZeroPointLength():
            zeros = np.asarray(given.ZeroPointAsNumpy()).astype(np.int64)
        if zeros.size != count or not np.isfinite(scales).all() or scales.min() < 0:
            raise ModelError(
                f"tensor {name!r} must have finite scales of 0 or more, and a zero point for each; {_AGAIN}"
            )
        self._budget.take((count,), f"the scales of {name!r}")
        return scales, zeros, int(given.QuantizedDimension())

    def _operator(self, found: Any, index: int) -> TfliteOperator:
        schema = self._schema
        code = self._model.OperatorCodes(found.OpcodeIndex())
        # The old field has 8 bits: the larger of the two is meant.
        kind = _name(schema.BuiltinOperator, max(code.BuiltinCode(), code.DeprecatedBuiltinCode()))
        if kind == "CUSTOM":
            kind = f"CUSTOM:{(code.CustomCode() or b'').decode(errors='replace')}"
        options, table = None, found.BuiltinOptions()
        described = getattr(schema, _name(schema.BuiltinOptions, found.BuiltinOptionsType()), None)
        if table is not None and described is not None:
            options = described()
            options.Init(table.Bytes, table.Pos)
        inputs, outputs = self._numbers(found, "Inputs"), self._numbers(found, "Outputs")
        return TfliteOperator(kind, index, inputs, outputs, options)


def _dequantised(
    tensors: tuple[TfliteTensor, ...], operators: tuple[TfliteOperator, ...]
) -> tuple[tuple[TfliteTensor, ...], tuple[TfliteOperator, ...]]:
    """Make what DEQUANTIZE gives of constants constants, too, as weights in half precision."""
    made, left = list(tensors), []
    for one in operators:
        ends = (*one.inputs[:1], *one.outputs[:1])
        if one.kind == "DEQUANTIZE" and len(ends) == 2 and -1 not in ends and made[ends[0]].data is not None:
            made[ends[1]] = replace(made[ends[0]], name=made[ends[1]].name)
        else:
            left.append(one)
    return tuple(made), tuple(left)


def _name(enumeration: Any, value: int) -> str:
    """The name of an enumeration's value, in the package that is installed."""
    found = (name for name, each in vars(enumeration).items() if isinstance(each, int) and each == value)
    return next(found, f"number {value}")
