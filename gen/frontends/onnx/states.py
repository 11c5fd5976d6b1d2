"""Finds where states and lengths of ONNX's recurrent nodes come from: the driver may have to give them."""

import numpy as np

from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph
from rtlstm.spec.errors import ModelError

__all__ = ["length_problems", "state_problems", "trace_state"]

_PASS_DATA = (
    "Identity", "Cast", "Expand", "Slice", "Split", "Squeeze", "Unsqueeze", "Reshape", "Transpose",
    "Gather", "Tile",
)  # fmt: skip


def trace_state(graph: OnnxGraph, tensor: str) -> str:
    """Find what a state comes from: 'zeros', or the name of a model input.

    Raises
    ------
    ModelError
        If it is anything else; the message says what.
    """
    while tensor not in graph.inputs:
        node = graph.producer(tensor)
        value = graph.constant(tensor)
        if value is None and node is not None and node.op_type == "ConstantOfShape":
            fill = graph.attributes(node).get("value")
            value = np.zeros(1) if fill is None else graph.array(fill)
        if value is not None:
            if not np.any(value):
                return "zeros"
            raise ModelError(f"is the constant {tensor!r}, which is not zero")
        if node is None:
            raise ModelError(f"is {tensor!r}, which nothing computes")
        if node.op_type not in _PASS_DATA:
            raise ModelError(f"is computed by {graph.where(node)}")
        tensor = node.input[0]
    return tensor


def state_problems(graph: OnnxGraph, inputs: dict[str, str], notes: list[str]) -> list[str]:
    """Return why the initial states of a node are refused; states that the driver gives go to ``notes``."""
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
    return problems


def length_problems(
    graph: OnnxGraph, inputs: dict[str, str], steps: int | None, notes: list[str]
) -> list[str]:
    """Return why a node's ``sequence_lens`` is refused; ``steps`` is the length of its input, if known."""
    if "sequence_lens" not in inputs:
        return []
    lengths = graph.integers(inputs["sequence_lens"])
    if lengths is not None and set(lengths) == {steps}:
        return []
    why = ""
    if lengths is not None:
        why = f", not the constant {lengths} (for an input of {steps or 'an unknown number of'} steps)"
    else:
        try:
            source = trace_state(graph, inputs["sequence_lens"])
            if source != "zeros":
                notes.append(
                    f"sequence_lens is the model's input {source!r}: give the lengths to the driver at run "
                    "time"
                )
                return []
        except ModelError as error:
            why = f" ({error})"
    return [
        f"input sequence_lens must be an input of the model{why}; remove it and give the lengths to the "
        "driver when running"
    ]
