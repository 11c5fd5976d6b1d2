"""Reads one ONNX LSTM, GRU or RNN node: every attribute and input is supported, or an error names it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rtlstm.gen.frontends.activations import functions
from rtlstm.gen.frontends.arrays import CellKind, Floats, reorder, stacked_layer, to_float64
from rtlstm.gen.frontends.graph import Recurrent
from rtlstm.gen.frontends.onnx.definitions import wrong_shape
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, name_of
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, FunctionName
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn


def operator_functions() -> dict[str, FunctionName]:
    """The functions that are operators, too, by the operators' names."""
    return {key: name for key, name in functions("onnx").items() if ACTIVATIONS[name].onnx_operator}


def included_operators() -> list[str]:
    """Operators of rtlstm's own functions."""
    return [each.onnx for each in ACTIVATIONS.included.values() if each.onnx and each.onnx_operator]


def functions_of(operator: str) -> list[FunctionName]:
    """Return all functions that are registered for this operator; there should be at most one."""
    return [name for name, each in ACTIVATIONS.items() if each.onnx == operator and each.onnx_operator]


def read_functions(
    attributes: dict[str, Any], defaults: Sequence[str], directions: int, problems: list[str]
) -> list[tuple[ActivationFunction, ...]]:
    """Return each direction's functions; reasons for a refusal are added to ``problems``.

    ONNX assigns ``activation_alpha`` and ``activation_beta`` in order to the functions that have such a
    parameter. When they are used up, the operator of that name gives the default. Affine and ScaledTanh are
    not operators, so they have none.
    """
    given = [str(name) for name in attributes.get("activations") or [*defaults] * directions]
    offered = functions("onnx")
    known = {operator.lower(): name for operator, name in offered.items()}
    names = [known.get(name.lower(), "") for name in given]
    if not all(names):
        problems.append(f"attribute activations={given} must be of {', '.join(sorted(offered))}")
        return []
    if len(names) != len(defaults) * directions:
        problems.append(
            f"attribute activations={given} must hold {len(defaults)} for each of {directions} directions"
        )
        return []
    alphas = _hand_out("activation_alpha", attributes, names, 0, problems)
    betas = _hand_out("activation_beta", attributes, names, 1, problems)
    found = [ActivationFunction.of(*each) for each in zip(names, alphas, betas, strict=True)]
    count = len(defaults)
    return [tuple(found[at * count : (at + 1) * count]) for at in range(directions)]


def _hand_out(
    attribute: str, attributes: dict[str, Any], names: list[FunctionName], which: int, problems: list[str]
) -> list[float | None]:
    """Parameter ``which`` (alpha, beta) of each function, None for its default."""
    values = [float(value) for value in attributes.get(attribute) or ()]
    definitions = [ACTIVATIONS[name] for name in names]
    taking = [function for function in definitions if len(function.defaults) > which]
    if len(values) > len(taking):
        takers = ", ".join(function.onnx for function in taking)
        problems.append(
            f"attribute {attribute}={[round(value, 6) for value in values]} must hold one value for each of "
            f"the functions that take one, which are {takers or 'none'}"
        )
    missing = [function.onnx for function in taking[len(values) :] if not function.onnx_operator]
    if missing:
        problems.append(f"attribute {attribute} must be given for {missing[0]}, which has no default")
    waiting = iter(values)
    return [next(waiting, None) if len(each.defaults) > which else None for each in definitions]


Direction = Lstm | Gru | Rnn


@dataclass(frozen=True)
class _Kind:
    cell: CellKind
    functions: tuple[str, ...]
    extra_attributes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ("X", "W", "R", "B", "sequence_lens", "initial_h")


_LSTM_INPUTS: Final = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_LSTM: Final = _Kind("lstm", ("Sigmoid", "Tanh", "Tanh"), ("input_forget",), _LSTM_INPUTS)
_SCALES: Final = ("W_scale", "W_zero_point", "R_scale", "R_zero_point")
_KINDS: Final[dict[str, _Kind]] = {
    "LSTM": _LSTM,
    "GRU": _Kind("gru", ("Sigmoid", "Tanh"), ("linear_before_reset",)),
    "RNN": _Kind("rnn", ("Tanh",)),
    "com.microsoft.DynamicQuantizeLSTM": _Kind(
        "lstm", _LSTM.functions, _LSTM.extra_attributes, (*_LSTM_INPUTS, *_SCALES)
    ),
}
RECURRENT: Final = tuple(_KINDS)
"""The recurrent operators, of another domain than ONNX's with the domain."""
_DIRECTIONS: Final = {"forward": 1, "reverse": 1, "bidirectional": 2}
_KNOWN: Final = (
    "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "layout",
)  # fmt: skip


def is_recurrent(node: Any) -> bool:
    """Whether it is one of the nodes that :func:`read_recurrent_node` reads."""
    return name_of(node) in _KINDS


def read_recurrent_node(graph: OnnxGraph, node: Any) -> Recurrent:
    """Read a recurrent node, or say all that stands against it."""
    return _Reader(graph, node, _KINDS[name_of(node)]).read()


class _Reader:
    """One node, its attributes and inputs by name, and what has been found out."""

    def __init__(self, graph: OnnxGraph, node: Any, kind: _Kind) -> None:
        self.graph, self.node, self.kind = graph, node, kind
        self.name, self.where = graph.label(node), graph.where(node)
        self.attributes = graph.attributes(node)
        self.inputs = {name: tensor for name, tensor in zip(kind.inputs, node.input, strict=False) if tensor}
        self.notes: list[str] = []

    def read(self) -> Recurrent:
        direction = self.attributes.get("direction", "forward")
        directions = _DIRECTIONS.get(direction, 1)
        problems = self._attribute_problems()
        functions = read_functions(self.attributes, self.kind.functions, directions, problems)
        if problems:
            raise ModelError(f"{self.where}: " + "; ".join(problems))
        arrays = self._arrays(directions)
        layers = [
            self._layer(arrays, at, functions[at], reverse=direction == "reverse" or at == 1)
            for at in range(directions)
        ]
        notes = tuple(f"{self.where}: {note}" for note in self.notes)
        if directions == 1:
            return Recurrent((layers[0],), notes)
        both = Bidirectional(name=self.name, forward=layers[0], backward=layers[1])
        return Recurrent((both,), notes)

    def _attribute_problems(self) -> list[str]:
        attributes = self.attributes
        problems = []
        direction = attributes.get("direction", "forward")
        if direction not in _DIRECTIONS:
            problems.append(f"attribute direction={direction!r} must be one of {', '.join(_DIRECTIONS)}")
        if not attributes.get("clip", 1.0) > 0.0:
            problems.append(f"attribute clip={attributes['clip']:g} must be above 0")
        for name in ("input_forget", "layout", "linear_before_reset"):
            if attributes.get(name, 0) not in (0, 1):
                problems.append(f"attribute {name}={attributes[name]} must be 0 or 1")
        unknown = set(attributes) - {*_KNOWN, *self.kind.extra_attributes}
        return problems + [f"attribute {name!r} is not known" for name in sorted(unknown)]

    # Weights

    def _constant(self, name: str) -> Any:
        if name not in self.inputs:
            raise ModelError(f"{self.where}: input {name} must be given, but is absent; the model is damaged")
        value = self.graph.constant(self.inputs[name])
        if value is None:
            raise ModelError(
                f"{self._what(name)} must be constant, but {self.graph.origin(self.inputs[name])}; export "
                "the model with its weights inside"
            )
        return value

    def _weight(self, name: str) -> Floats:
        value = self._constant(name)
        if f"{name}_scale" in self.kind.inputs:
            return self._dequantised(name, value)
        return to_float64(value, self._what(name))

    def _what(self, name: str) -> str:
        return f"{self.where}: input {name} ({self.inputs[name]!r})"

    def _dequantised(self, name: str, value: Any) -> Floats:
        """``(directions, columns, rows)`` of whole numbers, with a scale and a zero point for each of the
        rows or for all, as ``(directions, rows, columns)``.
        """
        self.notes.append("its weights were quantised once already, by the tool that wrote the model")
        if value.ndim != 3 or value.dtype.kind not in "iu":
            raise ModelError(
                f"{self._what(name)} must be whole numbers with 3 axes, not {value.dtype} {value.shape}"
            )
        directions, _, rows = value.shape
        result: Floats = value.astype(np.float64)
        scale = to_float64(self._constant(f"{name}_scale"), self._what(f"{name}_scale"))
        zero = self._constant(f"{name}_zero_point").astype(np.float64)
        for what, array in ((f"{name}_scale", scale), (f"{name}_zero_point", zero)):
            if array.shape not in ((directions,), (directions, rows)):
                raise ModelError(
                    f"{self._what(what)} must have shape ({directions},) or ({directions}, {rows}), "
                    f"not {array.shape}"
                )
        scale, zero = (array.reshape(directions, 1, -1) for array in (scale, zero))
        result = (result - zero) * scale
        steps, bits = np.broadcast_to(np.abs(scale), result.shape), 8 * value.dtype.itemsize
        self.graph.integer_rows.add(self.inputs[name], result, steps, bits, bool(zero.any()))
        return np.asarray(result.transpose(0, 2, 1))

    def _arrays(self, directions: int) -> dict[str, Floats]:
        """W, R, B and, if given, P, of the right shapes."""
        w, r = self._weight("W"), self._weight("R")
        if wrong := wrong_shape(self.graph, self.node, self._shape):
            raise ModelError(wrong)
        if 0 in w.shape:
            raise ModelError(f"{self._what('W')} must have inputs and units, not shape {w.shape}")
        given = {
            name: to_float64(self._constant(name), self._what(name)) for name in "BP" if name in self.inputs
        }
        return {"W": w, "R": r, "B": np.zeros((directions, 2 * w.shape[1])), **given}

    def _shape(self, tensor: str) -> tuple[int, ...] | None:
        """The shape of a weight; that of states and lengths depends on the input."""
        weights = [self.inputs.get(name) for name in ("W", "R", "B", "P")]
        value = self.graph.constant(tensor) if tensor in weights else None
        return None if value is None else value.shape

    def _layer(
        self, arrays: dict[str, Floats], at: int, functions: tuple[ActivationFunction, ...], reverse: bool
    ) -> Direction:
        """One direction's layer."""
        cell = self.kind.cell
        clip = float(self.attributes.get("clip", math.inf))
        given: dict[str, Any] = {"reverse": reverse, "clip": clip if math.isfinite(clip) else None}
        if cell == "gru":
            given["reset_after"] = bool(self.attributes.get("linear_before_reset", 0))
        if cell == "lstm":
            given["coupled"] = bool(self.attributes.get("input_forget", 0))
            given["peephole"] = reorder(arrays["P"][at], "onnx", "peephole") if "P" in arrays else None
        weights = (arrays["W"][at], arrays["R"][at], *np.split(arrays["B"][at], 2))
        name = f"{self.name}_reverse" if at else self.name
        return stacked_layer("onnx", cell, name, weights, functions, **given)
