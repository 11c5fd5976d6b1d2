"""TFLite's UNIDIRECTIONAL_SEQUENCE_LSTM as a node: every input and option is read, or an error names it."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import expect_shape
from rtlstm.gen.frontends.graph import Recurrent
from rtlstm.gen.frontends.tflite.file import TfliteFile, TfliteOperator
from rtlstm.gen.frontends.tflite.operators import GraphWriter
from rtlstm.spec.activations.functions import IDENTITY, RELU, TANH, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Lstm

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
