"""Reads one ONNX LSTM node: every attribute and input is honoured or refused by name."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import expect_shape, to_float64
from rtlstm.gen.frontends.chain import LstmWeights
from rtlstm.gen.frontends.gates import reorder
from rtlstm.gen.frontends.onnx_graph import OnnxGraph
from rtlstm.spec.errors import ModelError

__all__ = ["LstmNode", "read_lstm_node", "trace_state"]

_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_KNOWN = {
    "activation_alpha",
    "activation_beta",
    "activations",
    "clip",
    "direction",
    "hidden_size",
    "input_forget",
    "layout",
    "output_sequence",
}
_PASS_DATA = (
    "Identity", "Cast", "Expand", "Slice", "Split", "Squeeze", "Unsqueeze", "Reshape", "Transpose",
    "Gather", "Tile",
)  # fmt: skip
_DEFAULTS = ["sigmoid", "tanh", "tanh"]


@dataclass(frozen=True)
class LstmNode:
    """Weights and layout of one LSTM node, and what a user should know about it."""

    weights: LstmWeights
    layout: int
    notes: tuple[str, ...]


def _inputs(node: Any) -> dict[str, str]:
    return {name: tensor for name, tensor in zip(_INPUTS, node.input, strict=False) if tensor}


def _attribute_problems(attributes: dict[str, Any]) -> list[str]:
    problems = []
    direction = attributes.get("direction", "forward")
    if direction != "forward":
        problems.append(f"attribute direction={direction!r} is not supported, only 'forward'")
    activations = attributes.get("activations", _DEFAULTS)
    if [str(item).lower() for item in activations] != _DEFAULTS and direction == "forward":
        problems.append(
            f"attribute activations={list(activations)} is not supported, only ['Sigmoid', 'Tanh', 'Tanh']"
        )
    for name in ("activation_alpha", "activation_beta"):
        if attributes.get(name):
            problems.append(f"attribute {name}={list(attributes[name])} is not supported")
    if "clip" in attributes:
        problems.append(f"attribute clip={attributes['clip']:g} is not supported")
    if attributes.get("input_forget", 0):
        problems.append("attribute input_forget=1 (coupled gates) is not supported, only 0")
    if attributes.get("layout", 0) not in (0, 1):
        problems.append(f"attribute layout={attributes['layout']} must be 0 or 1")
    problems += [f"attribute {name!r} is not known" for name in sorted(set(attributes) - _KNOWN)]
    return problems


def trace_state(graph: OnnxGraph, tensor: str, seen: frozenset[str] = frozenset()) -> str:
    """Find what a state comes from: 'zeros', or the name of a model input.

    Raises
    ------
    ModelError
        If it is anything else; the message says what.
    """
    if tensor in graph.inputs:
        return tensor
    value = graph.constant(tensor)
    if value is not None:
        if not np.any(value):
            return "zeros"
        raise ModelError(f"is the constant {tensor!r}, which is not zero")
    node = graph.producer(tensor)
    if node is None or tensor in seen:
        raise ModelError(f"is {tensor!r}, which nothing computes")
    if node.op_type == "ConstantOfShape":
        fill = graph.attributes(node).get("value")
        if fill is None or not np.any(graph.array(fill)):
            return "zeros"
        raise ModelError(f"is the constant {tensor!r}, which is not zero")
    if node.op_type in _PASS_DATA:
        return trace_state(graph, node.input[0], seen | {tensor})
    raise ModelError(f"is computed by {graph.where(node)}")


def _state_problems(graph: OnnxGraph, inputs: dict[str, str], notes: list[str]) -> list[str]:
    problems = []
    for name in ("initial_h", "initial_c"):
        if name not in inputs:
            continue
        try:
            source = trace_state(graph, inputs[name])
        except ModelError as error:
            problems.append(
                f"input {name} {error}; it must be absent, zero or an input of the model "
                "(give a state to the driver when running)"
            )
            continue
        if source != "zeros":
            notes.append(f"{name} is the model's input {source!r}: give the state to the driver at run time")
    if "sequence_lens" in inputs:
        try:
            source = trace_state(graph, inputs["sequence_lens"])
        except ModelError as error:
            source, why = "zeros", f" ({error})"
        else:
            why = ""
        if source == "zeros":
            problems.append(
                f"input sequence_lens must be an input of the model{why}; remove it and give the lengths "
                "to the driver when running"
            )
        else:
            notes.append(
                f"sequence_lens is the model's input {source!r}: give the lengths to the driver at run time"
            )
    if "P" in inputs:
        problems.append(f"input P ({inputs['P']!r}, peephole weights) is not supported")
    return problems


def _weight(graph: OnnxGraph, inputs: dict[str, str], name: str, where: str) -> NDArray[np.float64]:
    if name not in inputs:
        raise ModelError(f"{where}: input {name} must be given, but is absent; the model is damaged")
    value = graph.constant(inputs[name])
    if value is None:
        raise ModelError(
            f"{where}: input {name} ({inputs[name]!r}) must be constant, but it is computed at run time; "
            "export the model with its weights inside"
        )
    return to_float64(value, f"{where}: input {name} ({inputs[name]!r})")


def _weights(graph: OnnxGraph, inputs: dict[str, str], hidden: int | None, where: str) -> LstmWeights:
    w, r = _weight(graph, inputs, "W", where), _weight(graph, inputs, "R", where)
    if hidden is None:
        hidden = int(r.shape[-1]) if r.ndim else 0
    if w.ndim != 3 or 0 in w.shape:
        raise ModelError(f"{where}: input W must have shape (1, {4 * hidden}, inputs), not {w.shape}")
    expect_shape(w, (1, 4 * hidden, w.shape[2]), f"{where}: input W ({inputs['W']!r})")
    expect_shape(r, (1, 4 * hidden, hidden), f"{where}: input R ({inputs['R']!r})")
    if "B" in inputs:
        b = _weight(graph, inputs, "B", where)
        expect_shape(b, (1, 8 * hidden), f"{where}: input B ({inputs['B']!r})")
        bias = b[0, : 4 * hidden] + b[0, 4 * hidden :]
    else:
        bias = np.zeros(4 * hidden)
    return LstmWeights(reorder(w[0], "onnx"), reorder(r[0], "onnx"), reorder(bias, "onnx"))


def read_lstm_node(graph: OnnxGraph, node: Any) -> LstmNode:
    """Read an LSTM node, or say all that stands against it."""
    where = graph.where(node)
    attributes, inputs = graph.attributes(node), _inputs(node)
    notes: list[str] = []
    problems = _attribute_problems(attributes) + _state_problems(graph, inputs, notes)
    if problems:
        raise ModelError(f"{where}: " + "; ".join(problems))
    weights = _weights(graph, inputs, attributes.get("hidden_size"), where)
    return LstmNode(weights, int(attributes.get("layout", 0)), tuple(notes))
