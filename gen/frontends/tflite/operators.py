"""TFLite's operators as nodes of the graph."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.gen.frontends.activations import function, functions
from rtlstm.gen.frontends.graph import Graph, Node, Stored, Words
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.errors import ModelError

Floats = NDArray[np.float64]

_FUSED: Final = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Activations that other operators have, by their numbers."""


class GraphWriter:
    """The nodes and constants so far; tensors keep their names, if these are unique."""

    def __init__(self, file: TfliteFile, report: ReportBuilder) -> None:
        self.file, self.report = file, report
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self._nodes: list[Node] = []
        self._constants = Stored()
        for index, tensor in enumerate(file.tensors):
            self._names[index] = self.fresh(tensor.name)

    # Names

    def fresh(self, name: str) -> str:
        """A name that no tensor has yet."""
        unique, count = name, 2
        while unique in self._taken:
            unique, count = f"{name}:{count}", count + 1
        self._taken.add(unique)
        return unique

    def tensor(self, index: int) -> str:
        """The name of a tensor of the file; empty of one that is left out."""
        return self._names[index] if index >= 0 else ""

    def alias(self, index: int, source: int) -> None:
        """From now on, a tensor is another one."""
        self._names[index] = self._names[source]

    # Constants

    def constant(self, name: str, values: ArrayLike) -> str:
        """Add a constant and return its name."""
        return self._constants.add(self.fresh(name), np.asarray(values))

    def integers(self, values: Sequence[int]) -> str:
        """Add whole numbers, as shapes and axes are, and return their name."""
        return self.constant("numbers", np.asarray(values, np.int64))

    def weights(self, index: int, what: str, *, negative: bool = False) -> Floats:
        """A constant tensor's values, or these with the other sign; reports which are quantised.

        Raises
        ------
        ModelError
            If they are integers, and nothing says what scale they have; or as :meth:`TfliteFile.constant`.
        """
        tensor = self.file.tensors[index]
        if not (tensor.bits or tensor.kind.startswith("FLOAT")):
            raise ModelError(
                f"{what} ({tensor.name!r}) must be floats, or integers with a scale, but has {tensor.kind} "
                "without one; convert the model again"
            )
        return self._constant(index, what, negative)

    def _constant(self, index: int, what: str, negative: bool = False) -> Floats:
        found = self.file.constant(index, what)
        values = -found.values if negative else found.values
        if found.steps is not None and values.ndim == 2:
            self.report.integer_rows.add(
                self.tensor(index), values, found.steps, found.bits, found.zero_points
            )
        return values

    def operand(self, index: int, what: str) -> str:
        """The name of a tensor that may be constant."""
        if not self.file.is_constant(index):
            return self.tensor(index)
        return self.constant(self.tensor(index), self._constant(index, what))

    # Nodes

    def node(
        self,
        operator: TfliteOperator,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        part: str = "",
        **attributes: Any,
    ) -> None:
        """Add a node of an operator; ``part`` names one of several, which reports leave out."""
        label = f"{operator.name}/{part}" if part else operator.name
        read, given = tuple(inputs), tuple(outputs)
        self._nodes.append(
            Node(kind, read, given, label, operator.kind, attributes, " operator", hidden=bool(part))
        )

    def activation(self, operator: TfliteOperator) -> str:
        """The name of an operator's fused activation function."""
        number = int(operator.option("FusedActivationFunction"))
        return _FUSED[number] if 0 <= number < len(_FUSED) else f"number {number}"

    def activated(self, operator: TfliteOperator) -> str:
        """The tensor that an operator must give, so that its fused activation function gives its output.

        The node of the function is added by :meth:`activate`.
        """
        given = self.tensor(operator.outputs[0])
        return given if self.activation(operator) == "NONE" else self.fresh(f"{operator.name}/sum")

    def activate(self, operator: TfliteOperator, source: str) -> None:
        """Add an operator's fused activation function behind ``source``."""
        kind, given = self.activation(operator), self.tensor(operator.outputs[0])
        if source == given:
            return
        found = read_function(kind, {}, operator.where)
        if found is not None:
            self.node(operator, "activation", [source], [given], "activation", function=found)
        else:
            why = f"{operator.where}: fused_activation_function={kind} is not supported"
            self.node(operator, "refused", [source], [given], "activation", why=why)

    def graph(self, supported: Sequence[str]) -> Graph:
        """The whole graph; ``supported`` are the operators that are read.

        Raises
        ------
        ModelError
            If nodes do not stand in their order, or two give one tensor.
        """
        file = self.file
        known = {self.tensor(index) for index in file.inputs} | {""}
        for node in self._nodes:
            lost = {name for name in node.inputs if name not in known and name not in self._constants}
            twice = known.intersection(filter(None, node.outputs))
            if lost or twice:
                what = "read a tensor that is there" if lost else "give a new tensor"
                names = ", ".join(sorted(map(repr, lost or twice)))
                raise ModelError(f"{node.label!r} must {what}, not {names}; convert the model again")
            known |= set(node.outputs)
        shapes = {self.tensor(index): tuple(each.shape) for index, each in enumerate(file.tensors)}
        return Graph(
            self._nodes,
            [self.tensor(index) for index in file.inputs],
            [self.tensor(index) for index in file.outputs],
            self._constants,
            words=Words(
                "a recurrent operator",
                "a tensor or an operator",
                ", ".join(sorted(supported)),
                "a UNIDIRECTIONAL_SEQUENCE_LSTM, or a FULLY_CONNECTED on the way to its output",
            ),
            dimensions=lambda name: tuple("" if size < 0 else size for size in shapes.get(name, ())),
            integer_rows=self.report.integer_rows,
        )


_LAST: Final = 2**31 - 1


def _same(writer: GraphWriter, operator: TfliteOperator) -> None:
    """What rounds, or changes the type: a DequantizeLinear of constants is one, too."""
    source = writer.operand(operator.input(0), operator.where)
    writer.node(operator, "identity", [source], [writer.tensor(operator.outputs[0])])


def _cast(writer: GraphWriter, operator: TfliteOperator) -> None:
    """A change of type that keeps values: integers of floats would leave out their fractions."""
    tensors = writer.file.tensors
    source, given = (tensors[index].kind for index in (operator.input(0), operator.outputs[0]))
    if source.startswith("FLOAT") and not given.startswith("FLOAT"):
        raise ModelError(f"{operator.where} makes {given} of {source}, which drops what the core keeps")
    _same(writer, operator)


def _dense(writer: GraphWriter, operator: TfliteOperator) -> None:
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
        writer.node(operator, "reshape", [read, shape], [rows], "rows")
        read = rows
    inputs = [read, writer.constant(f"{operator.name}/weights", weight)]
    if bias >= 0:
        values = writer.weights(bias, f"{operator.where}: bias")
        inputs.append(writer.constant(f"{operator.name}/bias", values))
    writer.node(operator, "linear", inputs, [given])
    writer.activate(operator, given)


def _binary(kind: str) -> Callable[[GraphWriter, TfliteOperator], None]:
    def write(writer: GraphWriter, operator: TfliteOperator) -> None:
        sources = [writer.operand(operator.input(at), operator.where) for at in range(2)]
        given = writer.activated(operator)
        writer.node(operator, kind, sources, [given])
        writer.activate(operator, given)

    return write


def _join(writer: GraphWriter, operator: TfliteOperator) -> None:
    sources = [writer.operand(index, operator.where) for index in operator.inputs]
    given = writer.activated(operator)
    writer.node(operator, "concat", sources, [given], axis=int(operator.option("Axis")))
    writer.activate(operator, given)


def _simple(kind: str, **attributes: Any) -> Callable[[GraphWriter, TfliteOperator], None]:
    """An operator of one input; ``attributes`` say more about it."""

    def write(writer: GraphWriter, operator: TfliteOperator) -> None:
        source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
        writer.node(operator, kind, [source], [given], **attributes)

    return write


def function_operators() -> list[str]:
    """Operators that are activation functions."""
    return ["RELU6", *functions("tflite")]


def read_function(kind: str, options: Mapping[str, Any], where: str) -> ActivationFunction | None:
    """The activation function that an operator is, with its options; None if it is another operator."""
    if kind == "RELU6":
        return ActivationFunction.of("hard_tanh", 0.0, 6.0)
    name = functions("tflite").get(kind)
    return None if name is None else function(name, options, where)


def write_function(writer: GraphWriter, operator: TfliteOperator) -> None:
    """Write an operator that is an activation function."""
    read = partial(read_function, operator.kind, operator.given, operator.where)
    _simple("activation", function=read)(writer, operator)


def _softmax(writer: GraphWriter, operator: TfliteOperator) -> None:
    source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
    beta = float(operator.option("Beta"))
    if beta != 1.0:
        scaled = writer.fresh(f"{operator.name}/scaled")
        writer.node(operator, "mul", [source, writer.constant("beta", np.float64(beta))], [scaled], "beta")
        source = scaled
    writer.node(operator, "softmax", [source], [given], axis=-1)


def _argmax(writer: GraphWriter, operator: TfliteOperator) -> None:
    (axis,) = writer.file.integers(operator.input(1), f"{operator.where}: axis")
    source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
    writer.node(operator, "argmax", [source], [given], axis=axis)


def _reshape(writer: GraphWriter, operator: TfliteOperator) -> None:
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
    writer.node(operator, "reshape", names, [writer.tensor(given)])


def _transpose(writer: GraphWriter, operator: TfliteOperator) -> None:
    order = writer.file.integers(operator.input(1), f"{operator.where}: perm")
    source, given = writer.tensor(operator.input(0)), writer.tensor(operator.outputs[0])
    writer.node(operator, "transpose", [source], [given], perm=order)


def _squeeze(writer: GraphWriter, operator: TfliteOperator) -> None:
    count = int(operator.option("SqueezeDimsLength"))
    axes = [int(operator.option("SqueezeDims", at)) for at in range(min(count, 64))]
    names = [writer.tensor(operator.input(0)), *([writer.integers(axes)] if axes else [])]
    writer.node(operator, "squeeze", names, [writer.tensor(operator.outputs[0])])


def _unsqueeze(writer: GraphWriter, operator: TfliteOperator) -> None:
    axes = writer.file.integers(operator.input(1), f"{operator.where}: axis")
    names = [writer.tensor(operator.input(0)), writer.integers(axes)]
    writer.node(operator, "unsqueeze", names, [writer.tensor(operator.outputs[0])])


def write_slice(writer: GraphWriter, operator: TfliteOperator, *, backward: bool) -> None:
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
        chain.append(("slice", [starts, ends, axes, strides], {}))
    for axis, index in reversed(single):
        chain.append(
            ("gather", [writer.constant("index", np.int64(0 if backward else index))], {"axis": axis})
        )
    chain = chain or [("identity", [], {})]
    source = writer.tensor(operator.input(0))
    names = [writer.fresh(f"{operator.name}/part") for _ in chain[1:]]
    names.append(writer.tensor(operator.outputs[0]))
    for (kind, constants, attributes), given in zip(chain, names, strict=True):
        writer.node(operator, kind, [source, *constants], [given], **attributes)
        source = given


def _parts(
    writer: GraphWriter, operator: TfliteOperator
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


OPERATORS: Final[dict[str, Callable[[GraphWriter, TfliteOperator], None]]] = {
    "ADD": _binary("add"),
    "ARG_MAX": _argmax,
    "CAST": _cast,
    "CONCATENATION": _join,
    "DEQUANTIZE": _same,
    "DIV": _binary("div"),
    "EXPAND_DIMS": _unsqueeze,
    "FULLY_CONNECTED": _dense,
    "LOG_SOFTMAX": _simple("log_softmax", axis=-1),
    "MUL": _binary("mul"),
    "NEG": _simple("neg"),
    "QUANTIZE": _same,
    "RESHAPE": _reshape,
    "SOFTMAX": _softmax,
    "SQUEEZE": _squeeze,
    "SUB": _binary("sub"),
    "TRANSPOSE": _transpose,
}
"""The operators but for activation functions, each with what writes it."""
STEPWISE: Final = frozenset(OPERATORS) - {"ARG_MAX", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE"}
"""Those that leave the steps in their order."""
