"""Applies one ONNX node to its inputs."""

import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.describe import layer_options
from rtlstm.gen.frontends.onnx.activations import functions_of, included_operators, operator_functions
from rtlstm.gen.frontends.onnx.arithmetic import ARITHMETIC
from rtlstm.gen.frontends.onnx.layers import LAYERS, activation
from rtlstm.gen.frontends.onnx.movers import MOVERS
from rtlstm.gen.frontends.onnx.quantised import INTEGER_ADVICE, is_integer_operator
from rtlstm.gen.frontends.onnx.recurrent import RECURRENT, is_recurrent, read_recurrent_node
from rtlstm.gen.frontends.onnx.step_frames import check_frames
from rtlstm.gen.frontends.onnx.values import Known, OnnxNode, OnnxState, Value
from rtlstm.gen.frontends.plugins import blamed
from rtlstm.gen.frontends.reading import Role
from rtlstm.spec.activations.functions import ACTIVATIONS
from rtlstm.spec.errors import ConfigurationError, ModelError
from rtlstm.spec.network import Bidirectional
from rtlstm.spec.plugins import Registry

__all__ = ["OPERATORS", "STATE_ONLY", "Applied", "apply_node", "check_meanings", "cut_earlier", "supported"]

_ELSEWHERE = (*MOVERS, *RECURRENT, "If", "Shape", "Size")
"""Operators of rtlstm that are not in :data:`OPERATORS`, beside activation functions."""
OPERATORS: Final = Registry[Callable[[OnnxNode], Value]](
    "ONNX operator",
    "rtlstm.onnx_operators",
    {**LAYERS, **ARITHMETIC},
    taken=(*_ELSEWHERE, *included_operators()),
)
"""The operators of the core, in addition to activation functions: functions from a node to its results.

The name is the operator's; for one of another domain than ONNX's, ``DOMAIN.OPERATOR``.
"""
STATE_ONLY = (
    "Cast", "Concat", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that may output a final state."""


def supported() -> list[str]:
    """The supported operators behind the recurrent ones."""
    return sorted({*OPERATORS, *operator_functions(), *MOVERS})


@dataclass(frozen=True)
class Applied:
    """The results of a node, one for each output; its role in the report, and notes for the user."""

    outputs: tuple[Known | None, ...]
    role: Role
    why: str = ""
    notes: tuple[str, ...] = ()


def check_meanings(nodes: Iterable[Any]) -> None:
    """Refuse operators of these nodes that more than one package defines.

    Raises
    ------
    ConfigurationError
        If a package or this program offers an operator that rtlstm or another one has, as an operator or
        as an activation function.
    """
    for operator in sorted({_operator(node) for node in nodes}):
        OPERATORS.check(operator)
        readers = [ACTIVATIONS.label(name) for name in functions_of(operator)]
        if operator in OPERATORS or operator in _ELSEWHERE:
            readers.append(OPERATORS.label(operator))
        if len(readers) > 1:
            raise ConfigurationError(
                f"ONNX operator {operator!r} is {' and also '.join(readers)}; rename one of "
                "them, or leave it out"
            )


def _operator(node: Any) -> str:
    """The name of a node's operator; of another domain than ONNX's, with the domain."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def cut_earlier() -> str:
    """Return the advice to leave the rest of a model outside of the core."""
    return "to end earlier, give the tensor to end at as `output`"


def apply_node(step: OnnxNode) -> Applied:
    """Apply a node that reads at least one value that the core computes.

    Raises
    ------
    ModelError
        If the node or one of its attributes is not supported; the message names it.
    ConfigurationError
        If another package's operator raises something else, or returns no value; the message names it.
    """
    node = step.node
    if node.op_type not in ("Conv", "Pad") and any(value.front for value in step.values):
        raise ModelError(
            f"{step.where} reads steps with zeros in front, which only a causal Conv may do; {cut_earlier()}"
        )
    step = check_frames(step)
    if is_recurrent(node):
        return _recurrent(step)
    operator = _operator(node)
    moves = MOVERS.get(operator)
    if moves is not None:
        moved = moves(step)
        return Applied(tuple(moved) if isinstance(moved, list) else (moved,), "shape")
    if operator in operator_functions():
        return Applied((activation(step),), "core")
    if operator in OPERATORS:
        return Applied((_computed(operator, step),), "core")
    tensor = next(name for name, value in zip(node.input, step.inputs, strict=True) if value is not None)
    if is_integer_operator(operator):
        raise ModelError(
            f"{step.where}, which reads {tensor!r}, is not supported: {INTEGER_ADVICE}; to leave it outside "
            f"of the core, end at `output={tensor!r}`"
        )
    raise ModelError(
        f"{step.where}, which reads {tensor!r}, is not supported; supported are LSTM, GRU, RNN, "
        f"{', '.join(supported())}; to leave it outside of the core, end at `output={tensor!r}`"
    )


def _computed(operator: str, step: OnnxNode) -> Value:
    if operator in OPERATORS.included:
        return OPERATORS[operator](step)
    label = OPERATORS.label(operator)
    with blamed(f"{label} must return a Value or raise a ModelError"):
        value: object = OPERATORS[operator](step)
    if not isinstance(value, Value):
        raise ConfigurationError(f"{label} must return a Value, not {reprlib.repr(value)}; correct it")
    return value


def _recurrent(step: OnnxNode) -> Applied:
    value, where = step.inputs[0], step.where
    if value is None:
        raise ModelError(
            f"{where} must read its input X ({step.node.input[0]!r}) from what the core computes, but only "
            f"another input does; {cut_earlier()}"
        )
    read = read_recurrent_node(step.graph, step.node)
    layer = read.layer
    layout = ("N", "T", "F") if read.layout else ("T", "N", "F")
    read_axes = value.axes.settle(layout, layer.inputs, where)
    kept: dict[str, Any] = {"shown": read_axes.shown, "single": read_axes.single}
    flow = value.flow.recurrent(layer, where)
    width, across, reverse = layer.outputs, "D", False
    if isinstance(layer, Bidirectional):
        width, across = layer.forward.outputs, "B"
    else:
        reverse = layer.reverse
    y = Axes(("N", "T", across, "F") if read.layout else ("T", across, "N", "F"), width, **kept)
    final = Axes(
        ("N", across, "F") if read.layout else (across, "N", "F"),
        width,
        last_step=not reverse,
        first_step=reverse,
        **kept,
    )
    names = [*step.node.output, "", ""]
    y_h = f"{where}: output Y_h ({names[1]!r})"
    hidden = Value(flow.final_states(), final, state=y_h)
    why = "but the core gives the cell state only as state"
    cell = OnnxState(
        f"{where}: output Y_c ({names[2]!r}) is read by {{reader}}, {why}; {cut_earlier()}", flow
    )
    outputs = (Value(flow, y), hidden, cell)[: len(step.node.output)]
    notes = tuple(f"{where}: {note}" for note in read.notes)
    options = [layer_options(layer), f"layout {read.layout}" if read.layout else ""]
    text = ", ".join(filter(None, [f"{layer.inputs} -> {layer.outputs}", *options]))
    return Applied(outputs, "core", text, notes)
