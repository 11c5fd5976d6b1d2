"""TFLite's operators as nodes of ONNX."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.tflite.file import TfliteOperator
from rtlstm.gen.frontends.tflite.writer import OnnxWriter
from rtlstm.spec.errors import ModelError

__all__ = ["OPERATORS", "STEPWISE", "write_slice"]

_LAST: Final = 2**31 - 1


def _same(writer: OnnxWriter, operator: TfliteOperator) -> None:
    """What rounds, or changes the type: a DequantizeLinear of constants is one, too."""
    source = writer.operand(operator.input(0), operator.where)
    writer.node("Identity", [source], [writer.tensor(operator.outputs[0])], operator.name)


def _cast(writer: OnnxWriter, operator: TfliteOperator) -> None:
    """A change of type that keeps values: integers of floats would leave out their fractions."""
    tensors = writer.file.tensors
    source, given = (tensors[index].kind for index in (operator.input(0), operator.outputs[0]))
    if source.startswith("FLOAT") and not given.startswith("FLOAT"):
        raise ModelError(f"{operator.where} makes {given} of {source}, which drops what the core keeps")
    _same(writer, operator)


def _dense(writer: OnnxWriter, operator: TfliteOperator) -> None:
    if operator.option("WeightsFormat"):
        raise ModelError(f"{operator.where}: weights_format must be DEFAULT; convert the model again")
    source, given = operator.input(0), writer.activated(operator)
    weight = writer.weights(operator.input(1), f"{operator.where}: weights")
    if weight.ndim != 2:
        raise ModelError(
            f"{operator.where}: weights must have 2 axes, not {weight.ndim}; convert the model again"
        )
    bias = operator.input(2)
    read = writer.tensor(source)
    if not operator.option("KeepNumDims") and len(writer.file.tensors[source].shape) != 2:
        rows = writer.fresh(f"{operator.name}/rows")
        shape = writer.integers([-1, weight.shape[1]])
        writer.node("Reshape", [read, shape], [rows], f"{operator.name}/rows")
        read = rows
    product = given if bias < 0 else writer.fresh(f"{operator.name}/product")
    matrix = writer.constant(f"{operator.name}/weights", weight.T)
    writer.node("MatMul", [read, matrix], [product], operator.name)
    if bias >= 0:
        addend = writer.constant(f"{operator.name}/addend", writer.weights(bias, f"{operator.where}: bias"))
        writer.node("Add", [product, addend], [given], f"{operator.name}/bias")
    writer.activate(operator, given)


def _binary(kind: str) -> Callable[[OnnxWriter, TfliteOperator], None]:
    def write(writer: OnnxWriter, operator: TfliteOperator) -> None:
        sources = [writer.operand(operator.input(at), operator.where) for at in range(2)]
        given = writer.activated(operator)
        writer.node(kind, sources, [given], operator.name)
        writer.activate(operator, given)

    return write


def _join(writer: OnnxWriter, operator: TfliteOperator) -> None:
    sources = [writer.operand(index, operator.where) for index in operator.inputs]
    given = writer.activated(operator)
    writer.node("Concat", sources, [given], operator.name, axis=int(operator.option("Axis")))
    writer.activate(operator, given)


def _function(kind: str) -> Callable[[OnnxWriter, TfliteOperator], None]:
    def write(writer: OnnxWriter, operator: TfliteOperator) -> None:
        source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
        writer.node(kind, [source], [given], operator.name)

    return write


def _limited(low: float, high: float) -> Callable[[OnnxWriter, TfliteOperator], None]:
    def write(writer: OnnxWriter, operator: TfliteOperator) -> None:
        source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
        writer.clip(source, given, operator.name, low, high)

    return write


def _leaky(writer: OnnxWriter, operator: TfliteOperator) -> None:
    source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
    writer.node("LeakyRelu", [source], [given], operator.name, alpha=float(operator.option("Alpha")))


def _softmax(writer: OnnxWriter, operator: TfliteOperator) -> None:
    source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
    beta = float(operator.option("Beta"))
    if beta != 1.0:
        scaled = writer.fresh(f"{operator.name}/scaled")
        writer.node(
            "Mul", [source, writer.constant("beta", np.float64(beta))], [scaled], f"{operator.name}/beta"
        )
        source = scaled
    writer.node("Softmax", [source], [given], operator.name, axis=-1)


def _argmax(writer: OnnxWriter, operator: TfliteOperator) -> None:
    (axis,) = writer.file.integers(operator.input(1), f"{operator.where}: axis")
    source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
    writer.node("ArgMax", [source], [given], operator.name, axis=axis, keepdims=0)


def _reshape(writer: OnnxWriter, operator: TfliteOperator) -> None:
    """To a constant shape, or to that of its output, whose one unknown size then follows."""
    file, given = writer.file, operator.outputs[0]
    index = operator.input(1)
    if file.is_constant(index):
        shape = file.integers(index, f"{operator.where}: shape")
    else:
        shape = list(file.tensors[given].shape)
    if shape.count(-1) > 1:
        raise ModelError(
            f"{operator.where} must have a shape with one unknown size at most, not {shape}; convert the "
            "model with a fixed number of sequences, or of steps"
        )
    names = [writer.tensor(operator.input(0)), writer.integers(shape)]
    writer.node("Reshape", names, [writer.tensor(given)], operator.name)


def _transpose(writer: OnnxWriter, operator: TfliteOperator) -> None:
    order = writer.file.integers(operator.input(1), f"{operator.where}: perm")
    source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
    writer.node("Transpose", [source], [given], operator.name, perm=order)


def _squeeze(writer: OnnxWriter, operator: TfliteOperator) -> None:
    count = int(operator.option("SqueezeDimsLength"))
    axes = [int(operator.option("SqueezeDims", at)) for at in range(min(count, 64))]
    names = [writer.tensor(operator.input(0)), *([writer.integers(axes)] if axes else [])]
    writer.node("Squeeze", names, [writer.tensor(operator.outputs[0])], operator.name)


def _unsqueeze(writer: OnnxWriter, operator: TfliteOperator) -> None:
    axes = writer.file.integers(operator.input(1), f"{operator.where}: axis")
    names = [writer.tensor(operator.input(0)), writer.integers(axes)]
    writer.node("Unsqueeze", names, [writer.tensor(operator.outputs[0])], operator.name)


def write_slice(writer: OnnxWriter, operator: TfliteOperator, *, backward: bool) -> None:
    """A strided slice: a Slice of ranges, and a Gather of each single element.

    ``backward`` says that the file has the steps from their end, the nodes in their own order.
    """
    ranges, single = _parts(writer, operator)
    if backward and (ranges or [index for _, index in single] != [-1]):
        raise ModelError(
            f"{operator.where} reads steps that stand backwards; of these only the last, [-1], can be taken"
        )
    chain: list[tuple[str, list[str], dict[str, Any]]] = []
    if ranges:
        axes, starts, ends, strides = (writer.integers(each) for each in zip(*ranges, strict=True))
        chain.append(("Slice", [starts, ends, axes, strides], {}))
    for axis, index in reversed(single):
        chain.append(
            ("Gather", [writer.constant("index", np.int64(0 if backward else index))], {"axis": axis})
        )
    chain = chain or [("Identity", [], {})]
    source, names = (
        writer.tensor(operator.input(0)),
        [writer.fresh(f"{operator.name}/part") for _ in chain[1:]],
    )
    for (kind, constants, attributes), given in zip(
        chain, [*names, writer.tensor(operator.outputs[0])], strict=True
    ):
        writer.node(kind, [source, *constants], [given], operator.name, **attributes)
        source = given


def _parts(
    writer: OnnxWriter, operator: TfliteOperator
) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int]]]:
    """Axis, start, end and stride of each range that is not whole; axis and index of each single element."""
    file, where = writer.file, operator.where
    names = ((1, "begin"), (2, "end"), (3, "strides"))
    begin, end, strides = (file.integers(operator.input(at), f"{where}: {name}") for at, name in names)
    shape = file.tensors[operator.input(0)].shape
    if any(int(operator.option(name)) for name in ("EllipsisMask", "NewAxisMask")) or not (
        len(begin) == len(end) == len(strides) <= len(shape)
    ):
        raise ModelError(f"{where} must have a begin, an end and a stride of each axis, and no other axes")
    if operator.option("Offset"):  # Ends count from where the ranges begin; -2 and 2 go to the end, not to 0.
        sums = [(first, first + length) for first, length in zip(begin, end, strict=True)]
        end = [_LAST if first < 0 <= stop else stop for first, stop in sums]
    masks = [int(operator.option(f"{name}Mask")) for name in ("Begin", "End", "ShrinkAxis")]
    ranges, single = [], []
    for axis, (first, last, stride) in enumerate(zip(begin, end, strides, strict=True)):
        from_start, to_end, alone = (bool(mask & 1 << axis) for mask in masks)
        start = 0 if from_start else -1 if 1 < shape[axis] == first + 1 else first
        stop = _LAST if to_end or 0 <= shape[axis] <= last else last
        if alone:
            single.append((axis, start))
        elif (start, stop, stride) != (0, _LAST, 1):
            ranges.append((axis, start, stop, stride))
    return ranges, single


OPERATORS: Final[dict[str, Callable[[OnnxWriter, TfliteOperator], None]]] = {
    "ADD": _binary("Add"),
    "ARG_MAX": _argmax,
    "CAST": _cast,
    "CONCATENATION": _join,
    "DEQUANTIZE": _same,
    "DIV": _binary("Div"),
    "ELU": _function("Elu"),
    "EXPAND_DIMS": _unsqueeze,
    "FULLY_CONNECTED": _dense,
    "LEAKY_RELU": _leaky,
    "LOGISTIC": _function("Sigmoid"),
    "LOG_SOFTMAX": _function("LogSoftmax"),
    "MUL": _binary("Mul"),
    "NEG": _function("Neg"),
    "QUANTIZE": _same,
    "RELU": _function("Relu"),
    "RELU6": _limited(0.0, 6.0),
    "RELU_N1_TO_1": _limited(-1.0, 1.0),
    "RESHAPE": _reshape,
    "SOFTMAX": _softmax,
    "SQUEEZE": _squeeze,
    "SUB": _binary("Sub"),
    "TANH": _function("Tanh"),
    "TRANSPOSE": _transpose,
}
"""The operators, each with the function that writes it."""
STEPWISE: Final = frozenset(OPERATORS) - {"ARG_MAX", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE"}
"""Those that leave the steps in their order."""
