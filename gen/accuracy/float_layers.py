"""The layers of a quantised network in float: those of its model, or those that its integers stand for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import ArrayLayer, fold_zeros, lower
from rtlstm.gen.quantise.plan import fold_factors
from rtlstm.gen.quantise.target import describe_layer
from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.formats import CellFormats, Functions, resolve
from rtlstm.spec.cells.graph import CellGraph, NodeKind
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import (
    GUARD_BITS,
    SKIPS,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    RowPart,
    rounding_offsets,
    row_parts,
    sum_readers,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FloatLayer:
    """A layer whose rows are in float, scaled as the hardware's sums are."""

    layer: QuantizedLayer
    """Weights and biases as floats in the units of the quantised layer's; nothing is added for rounding."""
    cell: Cell | CellGraph
    """What computes its results: the description, or the quantised layer's graph."""
    nodes: tuple[int, ...]
    """The node of that graph that each of its operations became."""
    constants: Floats | None
    """Per-unit constants, ``(units, K)``, real values."""
    offsets: IntArray
    """What the biases of the quantised layer hold for rounding, ``(rows,)``."""


def _format_of(graph: CellGraph, kind: NodeKind) -> Format | None:
    return next((node.format for node in graph.nodes if node.kind == kind), None)


def gate_format(network: QuantizedNetwork, index: int) -> Format:
    """Return the format of a layer's pre-activations."""
    found = _format_of(network.numerics.cells[network.shapes[index].cell], "gate")
    assert found is not None
    return found


def _offsets(network: QuantizedNetwork, cells: Sequence[Cell | CellGraph], index: int) -> IntArray:
    """Return what the biases of a layer hold for rounding; ``cells`` are those of all layers."""
    shape = network.shapes[index]
    return rounding_offsets(sum_readers(network.shapes, cells, index), shape.rows, shape.outputs)


def layers_of_build(network: QuantizedNetwork) -> tuple[FloatLayer, ...]:
    """Return the layers with the weights that their integers stand for."""
    graphs = [network.numerics.cells[shape.cell] for shape in network.shapes]
    found = []
    for index, (layer, graph) in enumerate(zip(network.layers, graphs, strict=True)):
        offsets, nodes = _offsets(network, graphs, index), tuple(range(len(graph.nodes)))
        exact = replace(layer, bias=layer.bias - offsets)
        found.append(FloatLayer(exact, graph, nodes, unit_constants(network, index), offsets))
    return tuple(found)


def unit_constants(network: QuantizedNetwork, index: int) -> Floats | None:
    """Return the real values of a layer's per-unit constants."""
    layer = network.layers[index]
    graph = network.numerics.cells[network.shapes[index].cell]
    form = _format_of(graph, "parameter")
    if form is None or layer.parameters is None:
        return None
    return form.to_floats(layer.parameters)


def float_layers(model: Network, network: QuantizedNetwork) -> tuple[FloatLayer, ...]:
    """Return the layers of the model that a network was quantised from.

    Raises InputError if it was quantised from another model.
    """
    if model.inputs != network.inputs:
        raise _other(f"it has {model.inputs} inputs and the build {network.inputs}")
    numerics = network.numerics
    layers, passes = lower(unfold(fold_factors(model, numerics.input_factors)))
    layers = fold_zeros(layers, passes, numerics.input_offset)
    ours, there = ([describe_layer(layer) for layer in each] for each in (layers, network.shapes))
    for number, (mine, built) in enumerate(zip(ours, there, strict=False), 1):
        if mine != built:
            raise _other(f"its layer {number} is {mine} and the build's {built}")
    if len(ours) != len(there) or passes != network.passes:
        raise _other(f"it becomes {len(ours)} layers in another order, and the build has {len(there)}")
    cells = [layer.cell for layer in layers]
    found = [
        _scaled(layer, network, index, _offsets(network, cells, index)) for index, layer in enumerate(layers)
    ]
    _check_weights(found, network)
    return tuple(found)


def _other(why: str) -> InputError:
    return InputError(
        f"the model must be the one that the build was generated from, read with the same options, but {why}"
    )


def _scaled(layer: ArrayLayer, network: QuantizedNetwork, index: int, offsets: IntArray) -> FloatLayer:
    """Return a layer in the units of its quantised one."""
    integers, align = network.layers[index], network.numerics.accumulator.align
    target = gate_format(network, index).fraction + GUARD_BITS
    source, *read_back = network.sources(index)

    def units(weights: Floats, form: Format, part: RowPart) -> IntArray:
        return cast(IntArray, weights / part.steps(align, target, form.fraction)[:, None])

    bias = cast(IntArray, np.ldexp(layer.bias, target))
    part, *recurrent = row_parts(integers)
    scaled: QuantizedLayer
    if isinstance(integers, QuantizedDense):
        scaled = replace(integers, weight=units(layer.w_in, source, part), bias=bias)
    else:
        assert layer.w_rec is not None
        scaled = replace(
            integers,
            w_ih=units(layer.w_in, source, part),
            w_hh=units(layer.w_rec, read_back[0], recurrent[0]),
            bias=bias,
        )
    if layer.kind in SKIPS:  # Its cell is that of the layer that it is part of, and computes nothing.
        graph = network.numerics.cells[network.shapes[index].cell]
        return FloatLayer(scaled, graph, tuple(range(len(graph.nodes))), None, offsets)
    return FloatLayer(scaled, layer.cell, _nodes(layer, network, index), layer.unit_constants, offsets)


class _TheirFunctions(Functions):
    """A build's tables and piecewise linear functions, to which none is added."""

    def table(self, function: ActivationFunction, input: Format, output: Format, middle: bool = False) -> int:
        """Return the index of a table; -1 if there is none."""
        wanted = (function, input, output, middle)
        found = [(table.function, table.input, table.output, table.middle) for table in self.tables]
        return found.index(wanted) if wanted in found else -1

    def linear(self, function: ActivationFunction, input: Format, output: Format) -> int:
        """Return the index of a piecewise linear function; -1 if there is none."""
        wanted = (function, input, output)
        found = [(pieces.function, pieces.input, pieces.output) for pieces in self.pieces]
        return found.index(wanted) if wanted in found else -1


def _nodes(layer: ArrayLayer, network: QuantizedNetwork, index: int) -> tuple[int, ...]:
    """Return the nodes of the quantised layer's graph that the steps of a cell became."""
    numerics, shape = network.numerics, network.shapes[index]
    graph = numerics.cells[shape.cell]
    keeps_c = layer.state == "cell"
    formats = CellFormats(
        preactivation=gate_format(network, index),
        gate=numerics.gate,
        output=shape.output,
        state=shape.state,
        argument=numerics.cell_argument if keeps_c else None,
        parameter=_format_of(graph, "parameter"),
        rounding=numerics.hidden_rounding if keeps_c else "half_up",
        normalised=(layer.outputs, network.sources(index)[0]) if layer.kind == "norm" else None,
    )
    direct = all(table.direct for table in numerics.tables)
    functions = _TheirFunctions(direct, list(numerics.tables), list(numerics.pieces), list(numerics.norms))
    resolved, nodes = resolve(layer.cell, formats, functions)
    if resolved != graph:
        raise _other(f"its cell {layer.cell.name!r} is another one than the build's")
    return nodes


def _matrices(layer: QuantizedLayer) -> list[NDArray[Any]]:
    """Return the matrices of a layer."""
    return [layer.weight] if isinstance(layer, QuantizedDense) else [layer.w_ih, layer.w_hh]


_MOST_UNITS, _MOST_SHARE, _OTHER_SHARE = 2.0, 0.25, 0.95
"""Rounding changes weights by less (root mean square): by so many units and a share of the weights, or by a
share of few bits. Some weights change by more than half a unit, so that the changes of a row cancel."""


def _check_weights(found: Sequence[FloatLayer], network: QuantizedNetwork) -> None:
    """Refuse a model that rounding does not make the build's weights of."""
    for mine, integers, shape in zip(found, network.layers, network.shapes, strict=True):
        for floats, codes in zip(_matrices(mine.layer), _matrices(integers), strict=True):
            # A weight at the limit may have been larger.
            change = np.where(np.abs(codes) < np.abs(codes).max(), np.abs(floats - codes), 0.0)
            rms, size = (float(np.sqrt(np.mean(values**2))) for values in (change, floats))
            if rms > min(_MOST_UNITS + _MOST_SHARE * size, max(1.0, _OTHER_SHARE * size)):
                row, column = (int(axis) for axis in np.unravel_index(np.argmax(change), change.shape))
                raise _other(
                    f"the weights of layer {shape.name!r} differ from the build's by {rms:.3g} units (root "
                    f"mean square); that in row {row}, column {column} is {floats[row, column]:.6g} in units "
                    f"of the build's, which has {codes[row, column]}"
                )
