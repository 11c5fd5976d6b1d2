"""TFLite files written with the schema's own classes, without TensorFlow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

TYPES = {
    "int4": "INT4", "float16": "FLOAT16", "float32": "FLOAT32", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64",
}  # fmt: skip
VERSIONS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": 2, "FULLY_CONNECTED": 5, "STRIDED_SLICE": 2}


@dataclass
class Tensor:
    """A tensor: ``array`` is its constant value; one without, and int4, has ``shape`` and ``kind``."""

    array: NDArray[Any] | None = None
    shape: Sequence[int] = ()
    kind: str = "float32"
    scale: Sequence[float] = ()
    zero: Sequence[int] = ()
    axis: int = 0
    variable: bool = False
    name: str = ""


@dataclass
class Operator:
    """An operator: names of tensors, empty for one that is left out, and options by the schema's names."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    table: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    intermediates: Sequence[str] = ()


class _Builder:
    def __init__(self) -> None:
        self.bytes = flatbuffers.Builder(1024)

    def table(self, kind: str, **fields: Any) -> int:
        getattr(tflite, f"{kind}Start")(self.bytes)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(self.bytes, value)
        return getattr(tflite, f"{kind}End")(self.bytes)

    def tables(self, offsets: Sequence[int]) -> int:
        self.bytes.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.bytes.PrependUOffsetTRelative(offset)
        return self.bytes.EndVector()

    def numbers(self, values: Any, kind: str = "int32") -> int:
        return self.bytes.CreateNumpyVector(np.asarray(values, kind))


def build(
    tensors: dict[str, Tensor], operators: Sequence[Operator], inputs: Sequence[str], outputs: Sequence[str]
) -> bytes:
    """A file of one graph."""
    builder, names = _Builder(), list(tensors)

    def indices(given: Sequence[str]) -> int:
        return builder.numbers([names.index(name) if name else -1 for name in given])

    buffers, made = [builder.table("Buffer")], []
    for name, tensor in tensors.items():
        at = 0
        if tensor.array is not None:
            data = builder.numbers(
                np.frombuffer(np.ascontiguousarray(tensor.array).tobytes(), np.uint8), "uint8"
            )
            at, _ = len(buffers), buffers.append(builder.table("Buffer", Data=data))
        shape = tensor.shape if tensor.array is None or tensor.shape else tensor.array.shape
        kind = tensor.kind if tensor.array is None or tensor.kind == "int4" else tensor.array.dtype.name
        fields: dict[str, Any] = {
            "Shape": builder.numbers(shape),
            "Name": builder.bytes.CreateString(tensor.name or name),
        }
        if len(tensor.scale):
            scale = builder.numbers(tensor.scale, "float32")
            zero = builder.numbers(tensor.zero if len(tensor.zero) else [0] * len(tensor.scale), "int64")
            parts = {"Scale": scale, "ZeroPoint": zero, "QuantizedDimension": tensor.axis}
            fields["Quantization"] = builder.table("QuantizationParameters", **parts)
        fields |= {
            "Type": getattr(tflite.TensorType, TYPES[kind]),
            "Buffer": at,
            "IsVariable": tensor.variable,
        }
        made.append(builder.table("Tensor", **fields))
    kinds = list(dict.fromkeys(operator.kind for operator in operators))
    codes = []
    for kind in kinds:
        number = getattr(tflite.BuiltinOperator, kind)
        versions = {
            "DeprecatedBuiltinCode": min(number, 127),
            "BuiltinCode": number,
            "Version": VERSIONS.get(kind, 1),
        }
        codes.append(builder.table("OperatorCode", **versions))
    steps = []
    for operator in operators:
        fields = {"Inputs": indices(operator.inputs), "Outputs": indices(operator.outputs)}
        if operator.intermediates:
            fields["Intermediates"] = indices(operator.intermediates)
        if operator.table:
            given = operator.options.items()
            operator.options = {
                name: builder.numbers(value) if isinstance(value, list) else value for name, value in given
            }
            fields["BuiltinOptions"] = builder.table(operator.table, **operator.options)
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, operator.table)
        steps.append(builder.table("Operator", OpcodeIndex=kinds.index(operator.kind), **fields))
    graph = {"Tensors": builder.tables(made), "Inputs": indices(inputs), "Outputs": indices(outputs)}
    graph["Operators"] = builder.tables(steps)
    graphs = builder.tables([builder.table("SubGraph", **graph)])
    parts = {"OperatorCodes": builder.tables(codes), "Buffers": builder.tables(buffers), "Subgraphs": graphs}
    builder.bytes.Finish(builder.table("Model", Version=3, **parts), b"TFL3")
    return bytes(builder.bytes.Output())


# Files with one LSTM

GATES = ("input", "forget", "cell", "output")
LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def lstm(
    rng: np.random.Generator,
    inputs: int = 3,
    units: int = 4,
    *,
    steps: int = 6,
    outputs: int = 0,
    peephole: bool = False,
    coupled: bool = False,
    projection_bias: bool = False,
    time_major: bool = False,
    read: str = "x",
    gives: str = "y",
    **options: Any,
) -> tuple[dict[str, Tensor], Operator]:
    """The tensors of a float LSTM with random weights, those of its ends among them, and its operator."""
    wide = outputs or units
    shape = (steps, 1) if time_major else (1, steps)

    def draw(*sizes: int) -> Tensor:
        return Tensor(rng.uniform(-0.8, 0.8, sizes).astype(np.float32))

    parts = [(f"w_{gate}", draw(units, inputs)) for gate in GATES]
    parts += [(f"r_{gate}", draw(units, wide)) for gate in GATES]
    parts += [(f"p_{gate}", draw(units) if peephole else None) for gate in ("input", "forget", "output")]
    parts += [(f"b_{gate}", draw(units)) for gate in GATES]
    parts += [("projection", draw(outputs, units) if outputs else None)]
    parts += [("projection_bias", draw(outputs) if projection_bias else None)]
    parts += [("h", Tensor(shape=(1, wide), variable=True)), ("c", Tensor(shape=(1, units), variable=True))]
    parts += [(f"norm_{gate}", None) for gate in GATES]
    if coupled:
        parts = [(name, None if name.endswith("_input") else part) for name, part in parts]
    tensors = {read: Tensor(shape=(*shape, inputs)), gives: Tensor(shape=(*shape, wide))}
    tensors |= {f"{gives}/{name}": part for name, part in parts if part is not None}
    names = [f"{gives}/{name}" if part is not None else "" for name, part in parts]
    options = {"FusedActivationFunction": 4, "TimeMajor": time_major, **options}
    return tensors, Operator(LSTM, [read, *names], [gives], "UnidirectionalSequenceLSTMOptions", options)
