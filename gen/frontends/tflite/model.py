"""Reads TFLite files: their graph is translated into the one that is read, with weights dequantised.

Tensors keep their names. ``lstm_0`` is a recurrent layer that the file's operator 0 is, ``dense_3`` a fully
connected one.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from rtlstm.gen.frontends.arrays import listed
from rtlstm.gen.frontends.onnx.quantised import Rounding, input_text, results_text
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator, load_tflite
from rtlstm.gen.frontends.tflite.lstm import LSTM, lstm_state, write_lstm
from rtlstm.gen.frontends.tflite.operators import OPERATORS, STEPWISE, GraphWriter, write_slice
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network

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
    network = read(translator.writer.graph([LSTM, _SLICE, _REVERSE, *OPERATORS]), options, report)
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
