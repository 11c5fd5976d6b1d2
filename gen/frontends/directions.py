"""Two layers of opposite directions that read the same values are one bidirectional layer."""

from dataclasses import replace

import numpy as np

from rtlstm.gen.frontends.flow import Flow
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn

__all__ = ["pair_directions", "without_identity"]


def pair_directions(first: Flow, second: Flow) -> tuple[Flow, Flow]:
    """Return both as functions of one bidirectional layer's output, or as they are if they are not that."""
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


def _direction(flow: Flow) -> Lstm | Gru | Rnn | None:
    """The layer of one direction that a flow ends with."""
    last = flow.layers[-1] if flow.layers else None
    return last if isinstance(last, Lstm | Gru | Rnn) else None


def _widened(flow: Flow, both: Bidirectional) -> Flow:
    """The same function of one direction's features, as one of both directions' features."""
    own = flow.layers[-1]
    matrix = flow.matrix if flow.matrix.ndim else np.eye(own.outputs) * flow.matrix
    other = np.zeros((len(matrix), both.outputs - own.outputs))
    parts = (other, matrix) if own is both.backward else (matrix, other)
    return replace(
        flow, layers=(*flow.layers[:-1], both), width=both.outputs, matrix=np.concatenate(parts, axis=1)
    )


def without_identity(flow: Flow) -> Flow:
    """The same without a matrix that changes nothing."""
    if flow.matrix.ndim and not flow.dense and np.array_equal(flow.matrix, np.eye(flow.width or 0)):
        return replace(flow, matrix=np.asarray(1.0))
    return flow
