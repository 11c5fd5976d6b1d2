"""Reads TFLite files: their graph is translated into the one that is read, with weights dequantised.

Tensors keep their names. ``lstm_0`` is a recurrent layer that the file's operator 0 is, ``dense_3`` a fully
connected one.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import expect_shape, listed
from rtlstm.gen.frontends.graph import Recurrent
from rtlstm.gen.frontends.onnx.quantised import Rounding, input_text, results_text
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator, load_tflite
from rtlstm.gen.frontends.tflite.operators import (
    OPERATORS,
    STEPWISE,
    GraphWriter,
    function_operators,
    write_function,
    write_slice,
)
from rtlstm.spec.activations.functions import IDENTITY, RELU, TANH, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Lstm, Network

_REVERSE: Final = "REVERSE_V2"
_SLICE: Final = "STRIDED_SLICE"
_CLASSES: Final = ("SOFTMAX", "LOG_SOFTMAX")


def read_tflite(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file; ``report`` records how every operator is treated, and what the file rounds.

    Raises
    ------
    ModelError
        If it is damaged, or has an operator on the way that is not supported; the message has its name.
    ToolError
        If the package tflite is not installed.
    """
    report.format = "tflite"
    file = load_tflite(path)
    _check_loops(file)
    translator = _Translator(file, GraphWriter(file, report))
    translator.write()
    network = read(
        translator.writer.graph([LSTM, _SLICE, _REVERSE, *OPERATORS, *function_operators()]), options, report
    )
    translator.note(report)
    return network


def _check_loops(file: TfliteFile) -> None:
    kinds = [operator.kind for operator in file.operators]
    if "WHILE" in kinds and LSTM not in kinds:
        raise ModelError(
            "has a WHILE operator, but no UNIDIRECTIONAL_SEQUENCE_LSTM: the converter left the recurrent "
            "layer as a loop, as it does with Keras 3, with GRU and with a number of sequences that is not "
            "fixed; convert an LSTM of Keras 2 (TF_USE_LEGACY_KERAS=1) with a batch of 1, or give the "
            "Keras file itself"
        )


@dataclass(eq=False)
class _Translator:
    """Writes the operators in their order."""

    file: TfliteFile
    writer: GraphWriter
    backward: dict[int, int] = field(default_factory=dict)
    """The axis of steps of tensors that the file has backwards; their nodes give them in the steps' order."""

    def write(self) -> None:
        for operator in self.file.operators:
            if not operator.inputs or not operator.outputs:
                raise ModelError(f"{operator.where} must have inputs and outputs; convert the model again")
            self._write(operator)

    def _write(self, operator: TfliteOperator) -> None:
        kind, given = operator.kind, operator.outputs[0]
        axis = self._backward_axis(operator)
        if kind == LSTM:
            along = 0 if operator.option("TimeMajor") else 1
            if axis not in (None, along):
                raise ModelError(
                    f"{operator.where} reads axis {axis} backwards, but its steps are axis {along}"
                )
            write_lstm(self.writer, operator, backward=axis is not None)
        elif kind == _REVERSE:
            self._reverse(operator, axis)
            return
        elif kind == _SLICE:
            write_slice(self.writer, operator, backward=axis is not None)
            axis = None
        elif kind in OPERATORS:
            if axis is not None and kind not in STEPWISE:
                raise ModelError(f"{operator.where} reads steps that stand backwards, which is not supported")
            OPERATORS[kind](self.writer, operator)
        elif kind in function_operators():
            write_function(self.writer, operator)
        else:
            self._leave(operator)
        if axis is not None:
            self.backward[given] = axis

    def _backward_axis(self, operator: TfliteOperator) -> int | None:
        """The axis that is backwards in what an operator reads; None without one."""
        read = [index for index in operator.inputs if index >= 0 and not self.file.is_constant(index)]
        read = [index for index in read if not self.file.tensors[index].variable]
        found = {self.backward.get(index) for index in read} or {None}
        if len(found) > 1:
            raise ModelError(
                f"{operator.where} reads steps in their order and backwards at once, which is not supported"
            )
        return found.pop()

    def _reverse(self, operator: TfliteOperator, axis: int | None) -> None:
        """Two reversals are none; the layer between them goes backwards."""
        axes = self.file.integers(operator.input(1), f"{operator.where}: axis")
        if len(axes) != 1 or axis not in (None, axes[0]):
            raise ModelError(f"{operator.where} must reverse one axis, that of the steps")
        if axis is None:
            self.backward[operator.outputs[0]] = axes[0]
        self.writer.alias(operator.outputs[0], operator.input(0))
        self.writer.report.node(operator.name, operator.kind, "shape", "the direction of a layer")

    def _leave(self, operator: TfliteOperator) -> None:
        """An operator that is not read: the reader refuses it by its name, if the core needs it."""
        file = self.file
        sources = [
            self.writer.tensor(index)
            for index in operator.inputs
            if index >= 0 and not file.is_constant(index)
        ]
        outputs = [self.writer.tensor(index) for index in operator.outputs]
        self.writer.node(operator, operator.kind, sources, outputs)

    # Notes

    def note(self, report: ReportBuilder) -> None:
        """Say what the file rounds, and how its state and its data differ."""
        rounded = [one for one in map(self._rounding, range(len(self.file.tensors))) if one is not None]
        inputs = {self.writer.tensor(index) for index in self.file.inputs}
        if rounded:
            report.note(results_text(rounded))
        # The reader begins at the input, or behind the operators that only round it.
        alike = inputs | {report.input} if report.input in self._copies() else inputs
        for one in rounded:
            if one.tensor in alike:
                report.note(input_text(one))
                break
        self._note_data(report)
        self._note_lstms(report)

    def _copies(self) -> set[str]:
        """The inputs, and what only rounding makes of them."""
        found = set(self.file.inputs)
        for operator in self.file.operators:
            if operator.kind == "QUANTIZE" and operator.input(0) in found:
                found.add(operator.outputs[0])
        return {self.writer.tensor(index) for index in found}

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
            tensor=self.writer.tensor(source),
            gives=self.writer.tensor(index),
            bits=tensor.bits,
            low=low,
            high=high,
            step=float(tensor.scales[0]),
            centred=not tensor.zeros.any(),
            relu=False,
            sum=False,
        )

    def _note_data(self, report: ReportBuilder) -> None:
        ends = [
            *((each, "takes") for each in self.file.inputs),
            *((each, "gives") for each in self.file.outputs),
        ]
        for index, what in ends:
            tensor = self.file.tensors[index]
            if tensor.bits and tensor.scales.size == 1:
                report.note(
                    f"the file {what} {self.writer.tensor(index)!r} as integers of {tensor.bits} bits; here "
                    f"are their values, (integer {-tensor.zeros[0]:+d}) * {tensor.scales[0]:.6g}"
                )

    def _note_lstms(self, report: ReportBuilder) -> None:
        lstms = [operator for operator in self.file.operators if operator.kind == LSTM]
        if lstms:
            report.note(
                "the file keeps h and c from call to call, until reset_all_variables: use a stream, which "
                "does so too, or run, which begins with zeros"
            )
        tensors = self.file.tensors
        for operator in lstms:
            cell = tensors[lstm_state(operator)[1]]
            if cell.bits:
                low, high = cell.limits
                report.note(
                    f"the file keeps c of {operator.name!r} in {cell.bits} bits, {low:.4g} to {high:.4g} "
                    "with saturation; here calibration chooses its range, and `cell_bits` its bits"
                )
        hybrid = [
            one for one in self.file.operators if one.kind in (LSTM, "FULLY_CONNECTED") and self._hybrid(one)
        ]
        if hybrid:
            report.note(
                f"the file rounds what {listed(repr(one.name) for one in hybrid)} read to 8 bits before "
                "products, the values of each call to a range of their own; here they have the core's "
                "formats (`data_bits`)"
            )

    def _hybrid(self, operator: TfliteOperator) -> bool:
        """Whether its weights are integers, but not what it reads."""
        source, weights = (
            self.file.tensors[operator.input(at)] for at in (0, 2 if operator.kind == LSTM else 1)
        )
        return bool(weights.bits) and not source.bits and not np.any(source.scales)


# UNIDIRECTIONAL_SEQUENCE_LSTM as a node: every input and option is read, or an error names it


Floats = NDArray[np.float64]

LSTM: Final = "UNIDIRECTIONAL_SEQUENCE_LSTM"
_GATES: Final = ("input", "forget", "cell", "output")
"""TFLite's gates, whose order is the project's."""
_FUNCTIONS: Final = {"TANH": TANH, "RELU": RELU, "NONE": IDENTITY}
_W, _R, _P, _B = 1, 5, 9, 12
_PROJECTION, _PROJECTION_BIAS, _H, _C, _NORM = 16, 17, 18, 19, 20


def lstm_state(operator: TfliteOperator) -> tuple[int, int]:
    """The tensors of h and c."""
    return operator.input(_H), operator.input(_C)


def write_lstm(writer: GraphWriter, operator: TfliteOperator, *, backward: bool) -> None:
    """Write the operator as a recurrent node."""
    lstm = _Lstm(writer, operator)
    lstm.check()
    layer = lstm.layer(backward)
    first = not operator.option("TimeMajor")
    axes = ("N", "T", "F") if first else ("T", "N", "F")
    writer.node(
        operator,
        "recurrent",
        [writer.tensor(operator.input(0))],
        [writer.tensor(operator.outputs[0])],
        layers=lambda: Recurrent((layer,)),
        axes=axes,
        y_axes=axes,
        h_axes=("N", "F"),
        why_sequences_first="has layout 1" if first else "",
    )


@dataclass(frozen=True, eq=False)
class _Lstm:
    """One operator's inputs."""

    writer: GraphWriter
    operator: TfliteOperator

    @property
    def file(self) -> TfliteFile:
        return self.writer.file

    def has(self, number: int) -> bool:
        return self.operator.input(number) >= 0

    @property
    def coupled(self) -> bool:
        """Whether the forget gate is 1 - i; TFLite leaves out the input gate, not that of f."""
        return not self.has(_W)

    @property
    def units(self) -> int:
        return int(self.constant(_R + 1, "recurrent_to_forget_weights").shape[0])

    def constant(self, number: int, what: str, *, negative: bool = False) -> Floats:
        if not self.has(number):
            raise ModelError(f"{self.operator.where} must have {what}; convert the model again")
        what = f"{self.operator.where}: {what}"
        return self.writer.weights(self.operator.input(number), what, negative=negative)

    # What is refused

    def check(self) -> None:
        """Refuse what no layer of the core computes."""
        problems = [
            f"{what} ({self.file.tensors[self.operator.input(number)].name!r}) is not supported"
            for number, what in (
                *((_NORM + at, f"{gate}_layer_norm_coefficients") for at, gate in enumerate(_GATES)),
                (_PROJECTION_BIAS, "projection_bias"),
            )
            if self.has(number)
        ]
        if self.operator.option("ProjClip"):
            problems.append(f"proj_clip={self.operator.option('ProjClip'):g} is not supported")
        if self.operator.option("DiagonalRecurrentTensors"):
            problems.append("diagonal_recurrent_tensors is not supported")
        if float(self.operator.option("CellClip")) < 0:
            problems.append(f"cell_clip={self.operator.option('CellClip'):g} must be 0 or more")
        problems += self._state_problems()
        if problems:
            raise ModelError(f"{self.operator.where}: " + "; ".join(problems))

    def _state_problems(self) -> list[str]:
        """Why states do not begin as zeros: variable tensors do, and constants of zeros."""
        problems = []
        for number, what in ((_H, "output_state"), (_C, "cell_state")):
            index = self.operator.input(number)
            if index >= 0 and self.file.is_constant(index):
                zeros = not self.file.constant(index, f"{self.operator.where}: {what}").values.any()
            else:
                zeros = index >= 0 and self.file.tensors[index].variable
            if not zeros:
                problems.append(
                    f"{what} must be a variable tensor or zeros (give another state to the driver when "
                    "running)"
                )
        wide = (self.constant(_R + 1, "recurrent_to_forget_weights").shape[-1:], (self.units,))
        for number, what, size in zip((_H, _C), ("output_state", "cell_state"), wide, strict=True):
            index = self.operator.input(number)
            shape = tuple(self.file.tensors[index].shape) if index >= 0 else ()
            if shape and shape[-1:] != size:
                problems.append(f"{what} must have shape (sequences, {size[0]}), not {shape}")
        return problems

    def function(self) -> ActivationFunction:
        """The function of the candidate and of c."""
        name = self.writer.activation(self.operator)
        quantised = self.file.tensors[self.operator.input(0)].bits > 0
        if name not in _FUNCTIONS or (quantised and name != "TANH"):
            known = "TANH, as all of integers have" if quantised else ", ".join(_FUNCTIONS)
            raise ModelError(f"{self.operator.where}: fused_activation_function={name} must be {known}")
        return _FUNCTIONS[name]

    # Weights

    def layer(self, backward: bool) -> Lstm:
        """The layer."""
        units, where = self.units, self.operator.where
        w, r = self._gates(_W, "input_to_{}_weights"), self._gates(_R, "recurrent_to_{}_weights")
        columns = [part.shape for part in (w[1], r[1])]
        for name, parts, shape in zip(("input", "recurrent"), (w, r), columns, strict=True):
            for gate, part in zip(_GATES, parts, strict=True):
                expect_shape(part, (units, shape[-1]), f"{where}: {name}_to_{gate}_weights")
        function, clip = self.function(), float(self.operator.option("CellClip"))
        return Lstm(
            name=self.operator.name,
            w_ih=np.concatenate(w),
            w_hh=np.concatenate(r),
            bias=np.concatenate(self._bias()),
            reverse=backward,
            candidate=function,
            output_activation=function,
            coupled=self.coupled,
            cell_clip=clip or None,
            peephole=self._peephole() if self.has(_P + 1) else None,
            projection=self.constant(_PROJECTION, "projection_weights") if self.has(_PROJECTION) else None,
        )

    def _gates(self, first: int, what: str) -> list[Floats]:
        """A matrix for each gate."""
        parts = [self._gate(first, at, what.format(gate)) for at, gate in enumerate(_GATES)]
        if any(part.ndim != 2 for part in parts):
            raise ModelError(f"{self.operator.where}: weights must have 2 axes; convert the model again")
        return parts

    def _gate(self, first: int, gate: int, what: str) -> Floats:
        """One gate's weights.

        Coupled, TFLite has the forget gate and 1 - f for i. The core has i and 1 - i for f: with the negative
        argument of a sigmoid both are the same.
        """
        if not self.coupled or gate > 1:
            return self.constant(first + gate, what)
        forget = self.constant(first + 1, what, negative=True)
        return forget if gate == 0 else np.zeros_like(forget)

    def _bias(self) -> list[Floats]:
        parts = [self._gate(_B, at, f"{gate}_gate_bias") for at, gate in enumerate(_GATES)]
        for gate, part in zip(_GATES, parts, strict=True):
            expect_shape(part, (self.units,), f"{self.operator.where}: {gate}_gate_bias")
        return parts

    def _peephole(self) -> Floats:
        names = ("input", "forget", "output")
        parts = [self._gate(_P, at, f"cell_to_{name}_weights") for at, name in enumerate(names)]
        for name, part in zip(names, parts, strict=True):
            expect_shape(part, (self.units,), f"{self.operator.where}: cell_to_{name}_weights")
        return np.concatenate(parts)
