"""Joins two layers of opposite directions that read the same values to a bidirectional one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtlstm.gen.frontends.flow import Flow
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn

if TYPE_CHECKING:
    from rtlstm.gen.frontends.step import Value


def pair_directions(first: Flow, second: Flow) -> tuple[Flow, Flow]:
    """Return both as functions of one bidirectional layer's output, or unchanged if they are not."""
    mine, theirs = _direction(first), _direction(second)
    below = [flow.layers[:-1] for flow in (first, second)]
    if (
        mine is None
        or theirs is None
        or mine.reverse == theirs.reverse
        or first.relu != second.relu
        or len(below[0]) != len(below[1])
        or any(a is not b for a, b in zip(*below, strict=True))
        or (mine.inputs, mine.input_relu) != (theirs.inputs, theirs.input_relu)
    ):
        return first, second
    forward, backward = (theirs, mine) if mine.reverse else (mine, theirs)
    both = Bidirectional(name=forward.name, forward=forward, backward=backward)
    return _widened(first, both), _widened(second, both)


def at_last_step(values: Sequence["Value"]) -> list["Value"]:
    """Bring final states of both directions to the same step.

    The backward direction has its final state at the first step, the forward one at the last. A layer whose
    backward direction is reversed has both at the last step. Other values are returned unchanged.
    """
    steps = [(value.axes.first_step, value.axes.last_step) for value in values]
    if len(set(steps)) == 1 or not all(first != last for first, last in steps):
        return list(values)
    flows = [value.flow for value in values]
    if len(flows) == 2:
        flows = list(pair_directions(*flows))
    parts = list(zip(values, flows, (first for first, _ in steps), strict=True))
    if not all(flow.reads_alone(backward=first) for _, flow, first in parts):
        return list(values)
    return [
        replace(
            value,
            flow=flow.final_states() if first else flow,
            axes=replace(value.axes, first_step=False, last_step=True),
        )
        for value, flow, first in parts
    ]


def _direction(flow: Flow) -> Lstm | Gru | Rnn | None:
    """Return the layer of one direction at the end of a flow."""
    last = flow.layers[-1] if flow.layers else None
    return last if isinstance(last, Lstm | Gru | Rnn) else None


def _widened(flow: Flow, both: Bidirectional) -> Flow:
    """Return a function of one direction's features as a function of both directions' features."""
    last_layer = flow.layers[-1]
    matrix = flow.matrix if flow.matrix.ndim else np.eye(last_layer.outputs) * flow.matrix
    other = np.zeros((len(matrix), both.outputs - last_layer.outputs))
    parts = (other, matrix) if last_layer is both.backward else (matrix, other)
    return replace(
        flow, layers=(*flow.layers[:-1], both), width=both.outputs, matrix=np.concatenate(parts, axis=1)
    )


def without_identity(flow: Flow) -> Flow:
    """Return the flow without an identity matrix; with a skip, which has a matrix, too, the matrix stays."""
    if flow.skip is not None or flow.dense or flow.matrix.ndim == 0:
        return flow
    rows, columns = flow.matrix.shape
    if rows == columns and np.array_equal(flow.matrix, np.eye(rows)):
        return replace(flow, matrix=np.asarray(1.0))
    return flow
