"""Translates TFLite files into the graph that is read, with weights dequantised.

Tensors keep their names. ``lstm_0`` is a recurrent layer that the file's operator 0 is, ``dense_3`` a fully
connected one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, expect_shape, fresh, listed
from rtlstm.gen.frontends.graph import Graph, Node, Recurrent, Stored, Words
from rtlstm.gen.frontends.onnx.quantised import Rounding, dynamic_text, input_text, results_text
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator, load_tflite
from rtlstm.spec.activations.functions import IDENTITY, RELU, TANH, ActivationFunction, function, functions
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Lstm, Network

_AGAIN = "convert the model again"
_LSTM: Final = "UNIDIRECTIONAL_SEQUENCE_LSTM"
_CLASSES: Final = ("SOFTMAX", "LOG_SOFTMAX")
_FUSED: Final = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Activations that other operators have, by their numbers."""
_LAST: Final = 2**31 - 1


def read_tflite(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file; ``report`` records how every operator is treated, and what the file rounds.

    Raises ModelError if it is damaged, or has an operator on the way that is not supported; the message has
    its name. Raises ToolError if the package tflite is not installed.
    """
    report.format = "tflite"
    file = load_tflite(path)
    _check_loops(file)
    translator = _Translator(file, report)
    network = read(translator.graph(), options, report)
    translator.note()
    return network


def _check_loops(file: TfliteFile) -> None:
    kinds = [operator.kind for operator in file.operators]
    if "WHILE" in kinds and _LSTM not in kinds:
        raise ModelError(
            "has a WHILE operator, but no UNIDIRECTIONAL_SEQUENCE_LSTM: the converter left the recurrent "
            "layer as a loop, as it does with Keras 3, with GRU and with a number of sequences that is not "
            "fixed; convert an LSTM of Keras 2 (TF_USE_LEGACY_KERAS=1) with a batch of 1, or give the "
            "Keras file itself"
        )


def _function_operators() -> list[str]:
    """Operators that are activation functions."""
    return ["RELU6", *functions("tflite")]


def _function(kind: str, options: Mapping[str, Any], where: str) -> ActivationFunction | None:
    """The activation function that an operator is, with its options; None if it is another operator."""
    if kind == "RELU6":
        return ActivationFunction.of("hard_tanh", 0.0, 6.0)
    name = functions("tflite").get(kind)
    return None if name is None else function(name, options, where)


class _Translator:
    """Translates operator by operator; tensors keep their names, if these are unique."""

    operator: TfliteOperator
    """The operator at hand."""
    axis: int | None
    """The axis that is backwards in what it reads."""

    def __init__(self, file: TfliteFile, report: ReportBuilder) -> None:
        self.file, self.report = file, report
        self.constants = Stored()
        self.nodes: list[Node] = []
        self.backward: dict[int, int] = {}
        """The axis of steps of tensors that the file has backwards; nodes give them in the steps' order."""
        self._taken: set[str] = set()
        self._names = [self.fresh(tensor.name) for tensor in file.tensors]

    def graph(self) -> Graph:
        """The whole graph. Raises ModelError if nodes do not stand in their order, or two give one tensor."""
        file = self.file
        for operator in file.operators:
            if -1 in (operator.input(0), *(operator.outputs[:1] or (-1,))):
                raise ModelError(f"{operator.where} must have inputs and outputs; {_AGAIN}")
            self.operator = operator
            self.axis = self._backward_axis()
            self._translate()
        known = {self.tensor(index) for index in file.inputs} | {""}
        for node in self.nodes:
            lost = {name for name in node.inputs if name not in known and name not in self.constants}
            twice = known.intersection(filter(None, node.outputs))
            if lost or twice:
                what = "read a tensor that is there" if lost else "give a new tensor"
                names = ", ".join(sorted(map(repr, lost or twice)))
                raise ModelError(f"{node.label!r} must {what}, not {names}; {_AGAIN}")
            known |= set(node.outputs)
        shapes = {self.tensor(index): tuple(each.shape) for index, each in enumerate(file.tensors)}
        return Graph(
            self.nodes,
            [self.tensor(index) for index in file.inputs],
            [self.tensor(index) for index in file.outputs],
            self.constants,
            words=Words(
                "a recurrent operator",
                "a tensor or an operator",
                ", ".join(sorted([*_OPERATORS, *_function_operators()])),
                "a UNIDIRECTIONAL_SEQUENCE_LSTM, or a FULLY_CONNECTED on the way to its output",
            ),
            dimensions=lambda name: tuple("" if size < 0 else size for size in shapes.get(name, ())),
            integer_rows=self.report.integer_rows,
        )

    # What nodes have

    def fresh(self, name: str) -> str:
        """A name that no tensor has yet."""
        self._taken.add(name := fresh(name, self._taken.__contains__))
        return name

    def tensor(self, index: int) -> str:
        """The name of a tensor of the file; empty of one that is left out."""
        return self._names[index] if index >= 0 else ""

    def read(self, number: int = 0) -> str:
        """The name of a tensor that the operator at hand reads."""
        return self.tensor(self.operator.input(number))

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: str | Sequence[str] = "",
        part: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node of the operator at hand; return the name of its result, by default the operator's.

        ``part`` names one of several, which reports leave out.
        """
        operator = self.operator
        given = (outputs or self.tensor(operator.outputs[0]),) if isinstance(outputs, str) else tuple(outputs)
        label = f"{operator.name}/{part}" if part else operator.name
        how: dict[str, Any] = {"attributes": attributes, "noun": " operator", "hidden": bool(part)}
        self.nodes.append(Node(kind, tuple(inputs), given, label, operator.kind, **how))
        return given[0]

    def constant(self, name: str, values: Any) -> str:
        """Add a constant and return its name."""
        return self.constants.add(self.fresh(name), np.asarray(values))

    def integers(self, number: int, what: str) -> list[int]:
        """The whole numbers of an input, which must be constant."""
        return self.file.integers(self._given(number, what), f"{self.operator.where}: {what}")

    def weights(self, number: int, what: str, *, negative: bool = False) -> Floats:
        """The values of an input, or these with the other sign; reports which are quantised.

        Raises ModelError if they are integers, and nothing says what scale they have; or as
        :meth:`TfliteFile.constant`.
        """
        index, what = self._given(number, what), f"{self.operator.where}: {what}"
        tensor = self.file.tensors[index]
        if not (tensor.bits or tensor.kind.startswith("FLOAT")):
            raise ModelError(
                f"{what} ({tensor.name!r}) must be floats, or integers with a scale, but has {tensor.kind} "
                f"without one; {_AGAIN}"
            )
        return self._constant(index, what, negative)

    def _given(self, number: int, what: str) -> int:
        """The tensor of an input that must be there."""
        index = self.operator.input(number)
        if index < 0:
            raise ModelError(f"{self.operator.where} must have {what}; {_AGAIN}")
        return index

    def _constant(self, index: int, what: str, negative: bool = False) -> Floats:
        found = self.file.constant(index, what)
        values = -found.values if negative else found.values
        if found.steps is not None and values.ndim == 2:
            rows = self.report.integer_rows
            rows.add(self.tensor(index), values, found.steps, found.bits, found.zero_points)
        return values

    def operand(self, index: int) -> str:
        """The name of a tensor that may be constant."""
        if not self.file.is_constant(index):
            return self.tensor(index)
        return self.constant(self.tensor(index), self._constant(index, self.operator.where))

    def fused(self) -> str:
        """The name of the operator's fused activation function."""
        number = int(self.operator.option("FusedActivationFunction"))
        return _FUSED[number] if 0 <= number < len(_FUSED) else f"number {number}"

    def activated(self, operator: str, inputs: Sequence[str], **attributes: Any) -> None:
        """Add a node, and one of the operator's fused activation function behind it."""
        kind, name, where = self.fused(), self.operator.name, self.operator.where
        if kind == "NONE":
            self.node(operator, inputs, **attributes)
            return
        source = self.node(operator, inputs, self.fresh(f"{name}/sum"), **attributes)
        found = _function(kind, {}, where)
        if found is not None:
            self.node("activation", [source], part="activation", function=found)
        else:
            why = f"{where}: fused_activation_function={kind} is not supported"
            self.node("refused", [source], part="activation", why=why)

    # Steps that stand backwards

    def _translate(self) -> None:
        operator, kind, axis = self.operator, self.operator.kind, self.axis
        if kind not in _IN_ANY_ORDER and kind in _OPERATORS and axis is not None:
            raise ModelError(f"{operator.where} reads steps that stand backwards, which is not supported")
        if kind in _OPERATORS:
            _OPERATORS[kind](self)
        elif kind in _function_operators():
            self.node(
                "activation", [self.read()], function=partial(_function, kind, operator.given, operator.where)
            )
        else:  # The reader refuses it by its name, if the core needs it.
            sources = [index for index in operator.inputs if index >= 0 and not self.file.is_constant(index)]
            self.node(kind, [*map(self.tensor, sources)], [*map(self.tensor, operator.outputs)])
        if axis is not None and kind not in ("REVERSE_V2", "STRIDED_SLICE"):
            self.backward[operator.outputs[0]] = axis

    def _backward_axis(self) -> int | None:
        """The axis that is backwards in what the operator reads; None without one."""
        read = [index for index in self.operator.inputs if index >= 0 and not self.file.is_constant(index)]
        read = [index for index in read if not self.file.tensors[index].variable]
        found = {self.backward.get(index) for index in read} or {None}
        if len(found) > 1:
            raise ModelError(
                f"{self.operator.where} reads steps in their order and backwards at once, which is not "
                "supported"
            )
        return found.pop()

    def reverse(self) -> None:
        """Two reversals are none; the layer between them goes backwards."""
        operator, axis, axes = self.operator, self.axis, self.integers(1, "axis")
        given = operator.outputs[0]
        if len(axes) != 1 or axis not in (None, axes[0]):
            raise ModelError(f"{operator.where} must reverse one axis, that of the steps")
        if axis is None:
            self.backward[given] = axes[0]
        self._names[given] = self.read()
        self.report.node(operator.name, operator.kind, "shape", "the direction of a layer")

    def lstm(self) -> None:
        """A recurrent node: every input and option is read, or an error names it."""
        axis, first = self.axis, not self.operator.option("TimeMajor")
        if axis not in (None, int(first)):
            raise ModelError(
                f"{self.operator.where} reads axis {axis} backwards, but its steps are axis {int(first)}"
            )
        lstm = _Lstm(self)
        lstm.check()
        layer = lstm.layer(backward=axis is not None)
        axes = ("N", "T", "F") if first else ("T", "N", "F")
        given: dict[str, Any] = {"axes": axes, "why_sequences_first": "has layout 1" if first else ""}
        self.node("recurrent", [self.read()], layers=partial(Recurrent, (layer,)), **given)

    def slice(self) -> None:
        """A strided slice: a slice of ranges, and a selection of each single element.

        If the file has the steps from their end, the nodes have them in their own order.
        """
        backward = self.axis is not None
        ranges, single = self._parts()
        if backward and (ranges or [index for _, index in single] != [-1]):
            raise ModelError(
                f"{self.operator.where} reads steps that stand backwards; of these only the last, [-1], can "
                "be taken"
            )
        limits = zip(("axes", "starts", "ends", "steps"), zip(*ranges, strict=True), strict=False)
        moves: list[tuple[str, dict[str, Any]]] = [("slice", dict(limits))] if ranges else []
        for axis, index in reversed(single):
            moves.append(("select", {"axis": axis, "index": 0 if backward else index}))
        source, count = self.read(), len(moves)
        for at, (kind, attributes) in enumerate(moves or [("identity", {})]):
            given = self.fresh(f"{self.operator.name}/part") if at + 1 < count else ""
            source = self.node(kind, [source], given, **attributes)

    def _parts(self) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int]]]:
        """Axis, start, end and stride of each range that is not whole; axis and index of single elements."""
        operator, where = self.operator, self.operator.where
        begin, end, strides = map(self.integers, (1, 2, 3), ("begin", "end", "strides"))
        shape = self.file.tensors[operator.input(0)].shape
        if any(int(operator.option(name)) for name in ("EllipsisMask", "NewAxisMask")) or not (
            len(begin) == len(end) == len(strides) <= len(shape)
        ):
            raise ModelError(
                f"{where} must have a begin, an end and a stride of each axis, and no other axes"
            )
        if operator.option("Offset"):  # Ends count from where ranges begin; -2 and 2 go to the end, not to 0.
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

    # The other operators

    def same(self) -> None:
        """What rounds, or changes the type: a DequantizeLinear of constants is one, too."""
        self.node("identity", [self.operand(self.operator.input(0))])

    def cast(self) -> None:
        """A change of type that keeps values: integers of floats would leave out their fractions."""
        operator, tensors = self.operator, self.file.tensors
        source, given = (tensors[index].kind for index in (operator.input(0), operator.outputs[0]))
        if source.startswith("FLOAT") and not given.startswith("FLOAT"):
            raise ModelError(f"{operator.where} makes {given} of {source}, which drops what the core keeps")
        self.same()

    def dense(self) -> None:
        """A matrix and a bias; without KeepNumDims, it makes rows of what it reads."""
        operator, read = self.operator, self.read()
        if operator.option("WeightsFormat"):
            raise ModelError(f"{operator.where}: weights_format must be DEFAULT; {_AGAIN}")
        weight = self.weights(1, "weights")
        if weight.ndim != 2:
            raise ModelError(f"{operator.where}: weights must have 2 axes, not {weight.ndim}; {_AGAIN}")
        if not operator.option("KeepNumDims") and len(self.file.tensors[operator.input(0)].shape) != 2:
            rows = self.fresh(f"{operator.name}/rows")
            read = self.node("reshape", [read], rows, "rows", shape=[-1, weight.shape[1]])
        inputs = [read, self.constant(f"{operator.name}/weights", weight)]
        if operator.input(2) >= 0:
            inputs.append(self.constant(f"{operator.name}/bias", self.weights(2, "bias")))
        self.activated("linear", inputs)

    def join(self) -> None:
        """A concatenation."""
        sources = [self.operand(index) for index in self.operator.inputs]
        self.activated("concat", sources, axis=int(self.operator.option("Axis")))

    def softmax(self) -> None:
        """A softmax, whose ``beta`` is a factor in front of it."""
        source, beta = self.read(), float(self.operator.option("Beta"))
        if beta != 1.0:
            scaled = self.fresh(f"{self.operator.name}/scaled")
            source = self.node("mul", [source, self.constant("beta", beta)], scaled, "beta")
        self.node("softmax", [source], axis=-1)

    def reshape(self) -> None:
        """To a constant shape, or to that of its output, whose one unknown size then follows."""
        operator = self.operator
        if self.file.is_constant(operator.input(1)):
            shape = self.integers(1, "shape")
        else:
            shape = list(self.file.tensors[operator.outputs[0]].shape)
        if shape.count(-1) > 1:
            raise ModelError(
                f"{operator.where} must have a shape with one unknown size at most, not {shape}; convert the "
                "model with a fixed number of sequences, or of steps"
            )
        self.node("reshape", [self.read()], shape=shape)

    def squeeze(self) -> None:
        """Axes of size 1 that go; all of them if none is named."""
        count = int(self.operator.option("SqueezeDimsLength"))
        axes = [int(self.operator.option("SqueezeDims", at)) for at in range(min(count, 64))]
        self.node("squeeze", [self.read()], axes=axes or None)

    # Notes

    def note(self) -> None:
        """Say what the file rounds, and how its state and its data differ."""
        report = self.report
        rounded = [one for one in map(self._rounding, range(len(self.file.tensors))) if one is not None]
        inputs = {self.tensor(index) for index in self.file.inputs}
        if rounded:
            report.note(results_text(rounded))
        # The reader begins at the input, or behind the operators that only round it.
        alike = inputs | {report.input} if report.input in self._copies() else inputs
        for one in rounded:
            if one.tensor in alike:
                report.note(input_text(one))
                break
        for ends, what in ((self.file.inputs, "takes"), (self.file.outputs, "gives")):
            for index in ends:
                tensor = self.file.tensors[index]
                if tensor.bits and tensor.scales.size == 1:
                    report.note(
                        f"the file {what} {self.tensor(index)!r} as integers of {tensor.bits} bits; here are "
                        f"their values, (integer {-tensor.zeros[0]:+d}) * {tensor.scales[0]:.6g}"
                    )
        self._note_lstms()

    def _copies(self) -> set[str]:
        """The inputs, and what only rounding makes of them."""
        found = set(self.file.inputs)
        for operator in self.file.operators:
            if operator.kind == "QUANTIZE" and operator.input(0) in found:
                found.add(operator.outputs[0])
        return {self.tensor(index) for index in found}

    def _rounding(self, index: int) -> Rounding | None:
        """How the file rounds a tensor that it computes; not that of a softmax, which stays on the host."""
        tensor = self.file.tensors[index]
        made = [operator for operator in self.file.operators if index in operator.outputs]
        if not tensor.bits or tensor.scales.size != 1 or not tensor.scales[0] > 0 or tensor.data is not None:
            return None
        if not (made or index in self.file.inputs) or any(operator.kind in _CLASSES for operator in made):
            return None
        low, high = tensor.limits
        source = made[0].input(0) if made and made[0].kind == "QUANTIZE" else index
        return Rounding(
            tensor=self.tensor(source),
            gives=self.tensor(index),
            bits=tensor.bits,
            low=low,
            high=high,
            step=float(tensor.scales[0]),
            centred=not tensor.zeros.any(),
            relu=False,
            sum=False,
        )

    def _note_lstms(self) -> None:
        report, tensors = self.report, self.file.tensors
        lstms = [operator for operator in self.file.operators if operator.kind == _LSTM]
        if lstms:
            report.note(
                "the file keeps h and c from call to call, until reset_all_variables: use a stream, which "
                "does so too, or run, which begins with zeros"
            )
        for operator in lstms:
            cell = tensors[operator.input(_C)]
            if cell.bits:
                low, high = cell.limits
                report.note(
                    f"the file keeps c of {operator.name!r} in {cell.bits} bits, {low:.4g} to {high:.4g} "
                    "with saturation; here calibration chooses its range, and `cell_bits` its bits"
                )
        hybrid = [operator.name for operator in self.file.operators if self._hybrid(operator)]
        if hybrid:
            report.note(dynamic_text(f"what {listed(map(repr, hybrid))} read"))

    def _hybrid(self, operator: TfliteOperator) -> bool:
        """Whether its weights are integers, but not what it reads."""
        at = {_LSTM: 2, "FULLY_CONNECTED": 1}.get(operator.kind, 0)
        source, weights = (self.file.tensors[operator.input(number)] for number in (0, at))
        return at > 0 and bool(weights.bits) and not source.bits and not np.any(source.scales)


def _binary(kind: str) -> Callable[[_Translator], None]:
    """Two tensors, of which one may be constant."""
    return lambda to: to.activated(kind, [to.operand(to.operator.input(at)) for at in range(2)])


def _simple(kind: str, **attributes: Any) -> Callable[[_Translator], Any]:
    """An operator of one input; ``attributes`` say more about it."""
    return lambda to: to.node(kind, [to.read()], **attributes)


def _with_numbers(kind: str, attribute: str, what: str, one: bool = False) -> Callable[[_Translator], None]:
    """An operator with whole numbers as its second input, or ``one``, which are ``attribute`` of the node."""

    def write(to: _Translator) -> None:
        numbers = to.integers(1, what)
        if one and len(numbers) != 1:
            raise ModelError(f"{to.operator.where} must have one {what}, not {numbers}; {_AGAIN}")
        given: dict[str, Any] = {attribute: numbers[0] if one else numbers}
        to.node(kind, [to.read()], **given)

    return write


_OPERATORS: Final[dict[str, Callable[[_Translator], Any]]] = {
    **{name.upper(): _binary(name) for name in ("add", "div", "mul", "sub")},
    "ARG_MAX": _with_numbers("argmax", "axis", "axis", one=True),
    "CAST": _Translator.cast,
    "CONCATENATION": _Translator.join,
    "DEQUANTIZE": _Translator.same,
    "EXPAND_DIMS": _with_numbers("unsqueeze", "axes", "axis"),
    "FULLY_CONNECTED": _Translator.dense,
    "LOG_SOFTMAX": _simple("log_softmax", axis=-1),
    "NEG": _simple("neg"),
    "QUANTIZE": _Translator.same,
    "RESHAPE": _Translator.reshape,
    "REVERSE_V2": _Translator.reverse,
    "SOFTMAX": _Translator.softmax,
    "SQUEEZE": _Translator.squeeze,
    "STRIDED_SLICE": _Translator.slice,
    "TRANSPOSE": _with_numbers("transpose", "perm", "perm"),
    _LSTM: _Translator.lstm,
}
"""The operators but for activation functions, each with what writes it."""
_IN_ANY_ORDER: Final = frozenset(_OPERATORS) - {"ARG_MAX", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE"}
"""Those that may read steps that stand backwards."""


_GATES: Final = ("input", "forget", "cell", "output")
"""TFLite's gates, whose order is the project's."""
_FUNCTIONS: Final = {"TANH": TANH, "RELU": RELU, "NONE": IDENTITY}
_W, _R, _P, _B = 1, 5, 9, 12
_PROJECTION, _PROJECTION_BIAS, _H, _C, _NORM = 16, 17, 18, 19, 20


class _Lstm:
    """The inputs of the operator at hand, an LSTM."""

    def __init__(self, to: _Translator) -> None:
        self.to, self.file, self.operator = to, to.file, to.operator
        self.coupled = not self.has(_W)
        """Whether the forget gate is 1 - i; TFLite leaves out the input gate, not that of f."""

    def has(self, number: int) -> bool:
        return self.operator.input(number) >= 0

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """How many values c and h have."""
        return self.to.weights(_R + 1, "recurrent_to_forget_weights").shape

    # What is refused

    def check(self) -> None:
        """Refuse what no layer of the core computes."""
        option = self.operator.option
        norms = [(_NORM + at, f"{gate}_layer_norm_coefficients") for at, gate in enumerate(_GATES)]
        problems = [
            f"{what} ({self.file.tensors[self.operator.input(number)].name!r}) is not supported"
            for number, what in (*norms, (_PROJECTION_BIAS, "projection_bias"))
            if self.has(number)
        ]
        if option("ProjClip"):
            problems.append(f"proj_clip={option('ProjClip'):g} is not supported")
        if option("DiagonalRecurrentTensors"):
            problems.append("diagonal_recurrent_tensors is not supported")
        if float(option("CellClip")) < 0:
            problems.append(f"cell_clip={option('CellClip'):g} must be 0 or more")
        states = ((_H, "output_state", self.widths[-1]), (_C, "cell_state", self.widths[0]))
        problems += [problem for state in states for problem in self._state_problems(*state)]
        if problems:
            raise ModelError(f"{self.operator.where}: " + "; ".join(problems))

    def _state_problems(self, number: int, what: str, size: int) -> Iterator[str]:
        """Why a state does not begin as zeros: a variable tensor does, and a constant of zeros."""
        index = self.operator.input(number)
        if index >= 0 and self.file.is_constant(index):
            zeros = not self.file.constant(index, f"{self.operator.where}: {what}").values.any()
        else:
            zeros = index >= 0 and self.file.tensors[index].variable
        if not zeros:
            yield (
                f"{what} must be a variable tensor or zeros (give another state to the driver when running)"
            )
        shape = tuple(self.file.tensors[index].shape) if index >= 0 else ()
        if shape and shape[-1] != size:
            yield f"{what} must have shape (sequences, {size}), not {shape}"

    def function(self) -> ActivationFunction:
        """The function of the candidate and of c."""
        name = self.to.fused()
        quantised = self.file.tensors[self.operator.input(0)].bits > 0
        if name not in _FUNCTIONS or (quantised and name != "TANH"):
            known = "TANH, as all of integers have" if quantised else ", ".join(_FUNCTIONS)
            raise ModelError(f"{self.operator.where}: fused_activation_function={name} must be {known}")
        return _FUNCTIONS[name]

    # Weights

    def layer(self, backward: bool) -> Lstm:
        """The layer."""
        w = self._gates(_W, "input_to_{}_weights", axes=2)
        r = self._gates(_R, "recurrent_to_{}_weights", axes=2)
        function, clip = self.function(), float(self.operator.option("CellClip"))
        peepholes = ("input", "forget", "output")
        return Lstm(
            name=self.operator.name,
            w_ih=w,
            w_hh=r,
            bias=self._gates(_B, "{}_gate_bias"),
            reverse=backward,
            candidate=function,
            output_activation=function,
            coupled=self.coupled,
            cell_clip=clip or None,
            peephole=self._gates(_P, "cell_to_{}_weights", peepholes) if self.has(_P + 1) else None,
            projection=self.to.weights(_PROJECTION, "projection_weights") if self.has(_PROJECTION) else None,
        )

    def _gates(self, first: int, what: str, gates: Sequence[str] = _GATES, axes: int = 1) -> Floats:
        """The weights of all gates, with a row for each unit.

        Coupled, TFLite has the forget gate and 1 - f for i. The core has i and 1 - i for f: with the negative
        argument of a sigmoid both are the same.
        """
        names, where = [what.format(gate) for gate in gates], self.operator.where
        parts = []
        for at, name in enumerate(names):
            negative = self.coupled and at == 0
            part = self.to.weights(first + at + negative, name, negative=negative)
            parts.append(np.zeros_like(part) if self.coupled and at == 1 else part)
        if axes == 2 and any(part.ndim != 2 for part in parts):
            raise ModelError(f"{where}: weights must have 2 axes; {_AGAIN}")
        for name, part in zip(names, parts, strict=True):
            expect_shape(part, (self.widths[0], *parts[1].shape[1:axes]), f"{where}: {name}")
        return np.concatenate(parts)
