"""What a model computes element by element of several results, and over the steps: custom layers.

Their gates are the affine functions that they read, so that such a layer costs the rows that stand in front
of it, and no recurrent product.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from rtlstm.gen.frontends.arrays import Floats
from rtlstm.gen.frontends.flow import Flow, Source, Term, is_stateless
from rtlstm.spec.activations.functions import IDENTITY, RELU, ActivationFunction
from rtlstm.spec.cells import description
from rtlstm.spec.cells.description import Cell, CellBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Custom, Dense, Gru, Lstm, Rnn

_Value = description.Term
_Limits = tuple[Floats, Floats]
"""The lowest and the highest value of each feature."""


def _largest(cell: CellBuilder, one: _Value, other: _Value) -> _Value:
    return one + cell.apply(RELU, other - one)


_FORMULAS: Final[dict[str, Callable[[CellBuilder, _Value, _Value], _Value]]] = {
    "product": lambda _, one, other: one * other,
    "largest": _largest,
    "smallest": lambda cell, one, other: one - cell.apply(RELU, one - other),
}


def combine(formula: str, first: Flow, second: Flow, name: str, where: str) -> Flow:
    """Return the ``product`` of two results, or the ``largest`` or ``smallest`` of each pair of values.

    One of them may have a single feature. Activations of dense layers that nothing else reads are computed in
    the same layer.
    """
    counts = [flow.outputs or 1 for flow in (first, second)]
    cell = CellBuilder()
    gates: list[Flow] = []
    values = []
    for flow, count in zip((first, second), counts, strict=True):
        inner, function = _unapplied(flow)
        wide = inner.pick([0] * max(counts), where) if count == 1 < max(counts) else inner
        if not gates or not _same(gates[0], wide):
            gates.append(wide)
        value = cell.gate(len(gates) - 1)
        values.append(value if function == IDENTITY else cell.apply(function, value))
    result = _FORMULAS[formula](cell, *values)
    return _layer(gates, cell, result, formula, name, where)


def magnitude(flow: Flow, name: str, where: str) -> Flow:
    """Return the magnitude of each value."""
    cell = CellBuilder()
    return _layer([flow], cell, _largest(cell, cell.gate(0), -cell.gate(0)), "magnitude", name, where)


def total(flow: Flow, name: str, where: str) -> Flow:
    """Return the sum of each feature over the steps so far."""
    cell = CellBuilder()
    return _layer([flow], cell, cell.keep(cell.state() + cell.gate(0)), "total", name, where)


def running_maximum(flow: Flow, name: str, where: str) -> Flow:
    """Return the largest value of each feature over the steps so far.

    The layer keeps how far it is above the lowest value that the feature can have, so that a stream begins at
    zero. Raises ModelError if a feature has no lowest value.
    """
    low, _ = _limits(flow)
    if not np.isfinite(low).all():
        raise ModelError(
            f"{where} needs values with a lower limit, as those of an LSTM, GRU, relu, tanh or sigmoid are; "
            "put one in front of it, or end before it and take the maximum on the host"
        )
    cell = CellBuilder()
    largest = cell.keep(_largest(cell, cell.state(), cell.gate(0)))
    return _layer([flow.shift(-low, where)], cell, largest, "maximum", name, where).shift(low, where)


def _layer(
    gates: Sequence[Flow], cell: CellBuilder, result: _Value, kind: str, name: str, where: str
) -> Flow:
    rows = gates[0].join(gates[1:], where)
    layer = Custom(
        name=name, w_ih=rows.matrix, w_hh=None, bias=rows.bias, cell=cell.build(kind, result)
    )  # fmt: skip
    return rows.with_layer(layer)


def _same(one: Flow, other: Flow) -> bool:
    """Whether two functions are the same."""
    pairs = list(zip(one.terms, other.terms, strict=False))
    sources = len(one.terms) == len(other.terms) and all(
        (a.source, a.relu) == (b.source, b.relu) and np.array_equal(a.matrix, b.matrix) for a, b in pairs
    )
    return sources and one.pace == other.pace and np.array_equal(one.bias, other.bias)


def _unapplied(flow: Flow) -> tuple[Flow, ActivationFunction]:
    """A dense layer's function, and what it is applied to; else the flow as it is."""
    source, layer = flow.terms[0].source, flow.last
    if not (flow.plain and isinstance(layer, Dense)) or flow.terms[0].relu:
        return flow, IDENTITY
    return replace(_read_by(source, layer.weight, layer.bias), pace=flow.pace), layer.function


def _read_by(source: Source, matrix: Floats, bias: Floats) -> Flow:
    """What a layer makes of what it reads, before anything else."""
    ends = np.cumsum([read.features for read, _ in source.reads])[:-1]
    blocks = zip(source.reads, np.split(matrix, ends, axis=1), strict=True)
    return Flow(tuple(Term(read, relu, block) for (read, relu), block in blocks), bias)


def _of_cell(cell: Cell, low: Floats, high: Floats) -> _Limits:
    """The limits of what a cell without a state makes of its gates."""
    gates = list(zip(np.split(low, cell.gates), np.split(high, cell.gates), strict=True))
    found: list[_Limits] = []
    for step in cell.steps:
        args = [found[arg] for arg in step.args]
        lows, highs = [each[0] for each in args], [each[1] for each in args]
        limits = _of_function(-np.inf, np.inf, len(gates[0][0]))
        if step.kind == "gate":
            limits = gates[step.index]
        elif step.kind == "constant":
            limits = _of_function(step.value, step.value, len(limits[0]))
        elif step.kind == "add":
            limits = lows[0] + lows[1], highs[0] + highs[1]
        elif step.kind == "subtract":
            limits = lows[0] - highs[1], highs[0] - lows[1]
        elif step.kind == "multiply":
            ends = np.nan_to_num(
                [a * b for a in args[0] for b in args[1]], nan=0.0, posinf=np.inf, neginf=-np.inf
            )
            limits = ends.min(axis=0), ends.max(axis=0)
        elif step.function == RELU:
            limits = np.maximum(lows[0], 0.0), np.maximum(highs[0], 0.0)
        elif step.function is not None:
            limits = _of_function(*step.function.limits, len(limits[0]))
        found.append(limits)
    return found[cell.result]


def _limits(flow: Flow) -> _Limits:
    """The lowest and highest value that each feature can have; infinite if there is none."""
    low = high = np.broadcast_to(flow.bias, (flow.outputs or 1,))
    for term in flow.terms:
        least, most = (np.maximum(each, 0.0) if term.relu else each for each in _limits_of(term.source))
        matrix = term.matrix if term.matrix.ndim else np.eye(len(least)) * term.matrix
        with np.errstate(invalid="ignore"):
            ends = np.where(matrix == 0.0, 0.0, [matrix * least, matrix * most])
        low, high = low + ends.min(axis=0).sum(axis=1), high + ends.max(axis=0).sum(axis=1)
    return low, high


def _limits_of(source: Source) -> _Limits:
    layer, width = source.layer, source.features
    if isinstance(layer, Bidirectional) and layer.merge == "concat":
        both = [_of_function(*_range_of(one), one.outputs) for one in (layer.forward, layer.backward)]
        return np.concatenate([low for low, _ in both]), np.concatenate([high for _, high in both])
    if isinstance(layer, Custom) and is_stateless(layer):
        return _of_cell(layer.cell, *_limits(_read_by(source, layer.w_ih, layer.bias)))
    if isinstance(layer, Dense):
        low, high = _limits(_read_by(source, layer.weight, layer.bias))
        if layer.function in (IDENTITY, RELU):
            return (low, high) if layer.function == IDENTITY else (np.maximum(low, 0), np.maximum(high, 0))
        return _of_function(*layer.function.limits, width)
    return _of_function(*_range_of(layer), width)


def _range_of(layer: object) -> tuple[float, float]:
    """The limits of a recurrent layer's results, which begin at zero."""
    low, high = -np.inf, np.inf
    if isinstance(layer, Lstm) and layer.projection is None and layer.gate.limits == (0.0, 1.0):
        low, high = layer.output_activation.limits
    elif isinstance(layer, Gru) and layer.gate.limits == (0.0, 1.0):
        low, high = layer.candidate.limits
    elif isinstance(layer, Rnn):
        low, high = layer.activation.limits
    return min(low, 0.0), max(high, 0.0)


def _of_function(low: float, high: float, width: int) -> _Limits:
    return np.full(width, low), np.full(width, high)
