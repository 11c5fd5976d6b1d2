"""TFLite's UNIDIRECTIONAL_SEQUENCE_LSTM as a node: every input and option is read, or an error names it."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import expect_shape
from rtlstm.gen.frontends.onnx.recurrent import TFLITE_LSTM
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator
from rtlstm.gen.frontends.tflite.writer import OnnxWriter
from rtlstm.spec.errors import ModelError

__all__ = ["LSTM", "lstm_state", "write_lstm"]

Floats = NDArray[np.float64]

LSTM: Final = "UNIDIRECTIONAL_SEQUENCE_LSTM"
_GATES: Final = ("input", "forget", "cell", "output")
_ONNX_ORDER: Final = (0, 3, 1, 2)
"""TFLite's gates in ONNX' order, i, o, f and the candidate, which both call c."""
_FUNCTIONS: Final = {"TANH": "Tanh", "RELU": "Relu", "NONE": "Affine"}
_W, _R, _P, _B = 1, 5, 9, 12
_PROJECTION, _PROJECTION_BIAS, _H, _C, _NORM = 16, 17, 18, 19, 20


def lstm_state(operator: TfliteOperator) -> tuple[int, int]:
    """The tensors of h and c."""
    return operator.input(_H), operator.input(_C)


def write_lstm(writer: OnnxWriter, operator: TfliteOperator, *, backward: bool) -> None:
    """Write the operator as a node of the ONNX reader's own kind, and a Squeeze of its axis of directions."""
    lstm = _Lstm(writer, operator)
    lstm.check()
    attributes: dict[str, Any] = {
        "direction": "reverse" if backward else "forward",
        "layout": 0 if operator.option("TimeMajor") else 1,
        "hidden_size": lstm.units,
        "input_forget": int(lstm.coupled),
        **lstm.activations(),
    }
    clip = float(operator.option("CellClip"))
    if clip:
        attributes["cell_clip"] = clip
    constants = {
        name: writer.constant(f"{operator.name}/{name}", array) for name, array in lstm.arrays().items()
    }
    names = [constants.get(name, "") for name in ("W", "R", "B", "", "", "", "P", "projection")]
    while not names[-1]:
        names.pop()
    source = writer.tensor(operator.input(0))
    steps = writer.fresh(f"{operator.name}/Y")
    writer.node(TFLITE_LSTM[1], [source, *names], [steps], operator.name, domain=TFLITE_LSTM[0], **attributes)
    axis = writer.integers([2 if attributes["layout"] else 1])
    writer.node("Squeeze", [steps, axis], [writer.tensor(operator.outputs[0])], f"{operator.name}/squeeze")


@dataclass(frozen=True, eq=False)
class _Lstm:
    """One operator's inputs."""

    writer: OnnxWriter
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

    def activations(self) -> dict[str, Any]:
        """The functions as ONNX' attributes."""
        name = self.writer.activation(self.operator)
        quantised = self.file.tensors[self.operator.input(0)].bits > 0
        if name not in _FUNCTIONS or (quantised and name != "TANH"):
            known = "TANH, as all of integers have" if quantised else ", ".join(_FUNCTIONS)
            raise ModelError(f"{self.operator.where}: fused_activation_function={name} must be {known}")
        functions: dict[str, Any] = {"activations": ["Sigmoid", _FUNCTIONS[name], _FUNCTIONS[name]]}
        if name == "NONE":
            functions |= {"activation_alpha": [1.0, 1.0], "activation_beta": [0.0, 0.0]}
        return functions

    # Weights

    def arrays(self) -> dict[str, Floats]:
        """W, R, B and, if given, P and the projection, in ONNX' order and shapes."""
        units, where = self.units, self.operator.where
        w, r, b = (
            self._gates(_W, "input_to_{}_weights"),
            self._gates(_R, "recurrent_to_{}_weights"),
            self._bias(),
        )
        columns = [part.shape for part in (w[1], r[1])]
        for name, parts, shape in zip(("input", "recurrent"), (w, r), columns, strict=True):
            for gate, part in zip(_GATES, parts, strict=True):
                expect_shape(part, (units, shape[-1]), f"{where}: {name}_to_{gate}_weights")
        arrays = {
            "W": _stacked(w),
            "R": _stacked(r),
            "B": np.concatenate([_stacked(b), np.zeros((1, 4 * units))], 1),
        }
        if self.has(_P + 1):
            arrays["P"] = self._peephole()
        if self.has(_PROJECTION):
            arrays["projection"] = self.constant(_PROJECTION, "projection_weights")[None]
        return arrays

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
        i, f, o = parts
        return np.concatenate([i, o, f])[None]


def _stacked(parts: list[Floats]) -> Floats:
    """The gates' parts one below the other, with an axis of directions in front."""
    return np.concatenate([parts[at] for at in _ONNX_ORDER])[None]
