"""A quantised network of which some parts are in float: with none, the bits of the golden model.

Float layers are those of its model, or those that its integers stand for.

Values are real numbers in float64, which holds those of the hardware exactly: they have at most 48 bits.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.accuracy.records import PARTS, Part
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import ArrayLayer, fold_zeros, lower
from rtlstm.gen.quantise.plan import fold_factors
from rtlstm.gen.quantise.ranges import limits_there
from rtlstm.gen.quantise.target import describe_layer
from rtlstm.host.state import StateFormats
from rtlstm.sim.golden import ObservedGolden
from rtlstm.sim.golden_cells import CellNetwork, GraphLayer
from rtlstm.spec.activations.functions import IDENTITY, RELU
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.evaluate import Reals, evaluate, normalised
from rtlstm.spec.cells.formats import CellFormats, KnownFunctions, resolve
from rtlstm.spec.cells.graph import CellGraph, Node, NodeKind
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format, IntArray, odd_codes, round_half_up
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import (
    GUARD_BITS,
    SKIPS,
    Numerics,
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
    functions = KnownFunctions(direct, list(numerics.tables), list(numerics.pieces), list(numerics.norms))
    # Where units choose among formulas, the build says within which magnitude.
    for limit in limits_there([graph]) if layer.cell.chooses else [1.0]:
        resolved, nodes = resolve(layer.cell.choosing_within(limit), formats, functions)
        if resolved == graph:
            return nodes
    raise _other(f"its cell {layer.cell.name!r} is another one than the build's")


_MOST_UNITS, _MOST_SHARE, _OTHER_SHARE = 2.0, 0.25, 0.95
"""Rounding changes weights by less (root mean square): by so many units and a share of the weights, or by a
share of few bits. Some weights change by more than half a unit, so that the changes of a row cancel."""


def _check_weights(found: Sequence[FloatLayer], network: QuantizedNetwork) -> None:
    """Refuse a model that rounding does not make the build's weights of."""
    for mine, integers, shape in zip(found, network.layers, network.shapes, strict=True):
        for ours, theirs in zip(row_parts(mine.layer), row_parts(integers), strict=True):
            floats: NDArray[Any] = ours.weights
            codes = theirs.weights
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


Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]


class _CellValues(NamedTuple):
    """What a step of a cell gives."""

    result: Floats
    state: Floats | None
    result_saturated: NDArray[np.bool_]
    state_saturated: NDArray[np.bool_]


def reads_table(graph: CellGraph, numerics: Numerics) -> bool:
    """Whether a cell has a function other than ReLU, so that its pre-activations belong to the tables."""
    return any(
        node.kind == "table"
        or (node.kind == "pieces" and numerics.pieces[node.index].function not in (IDENTITY, RELU))
        for node in graph.nodes
    )


class _MixedCell(Reals):
    """A layer's cell, of which ``exact`` parts are in float.

    ``floats`` is the layer in float, with the cell that is computed: exact constants and limits are its own.
    Each operation is rounded as its node in ``graph``, the quantised layer's.
    """

    def __init__(
        self, floats: FloatLayer, graph: CellGraph, numerics: Numerics, exact: Collection[Part]
    ) -> None:
        super().__init__(floats.cell)
        self._nodes, self._graph, self._numerics = floats.nodes, graph, numerics
        self._rounded = {part: part not in exact for part in PARTS}

    def compute(self, gates: Sequence[Floats], state: Floats | None, constants: Floats | None) -> _CellValues:
        """Compute a step.

        ``gates`` are real pre-activations of each gate, ``(N, units)``, rounded already if they are to be.
        ``state`` is the kept values, ``(N, units)``. ``constants`` are per-unit constants, ``(units, K)``.
        """
        shape, at = gates[0].shape, self.cell.state
        values = evaluate(self, gates, state, () if constants is None else tuple(constants.T))
        result, result_saturated = self._result(np.broadcast_to(values[self.cell.result], shape))
        kept, state_saturated = None, np.zeros(shape, dtype=np.bool_)
        if at is not None:
            kept = np.broadcast_to(values[at], shape)
            if self.operations[at].kind in ("keep", "narrow") and self._rounded["state"]:
                state_saturated |= _beyond(values[self.operations[at].args[0]], self._node(at).format)
        return _CellValues(result, kept, result_saturated, state_saturated)

    def _node(self, at: int) -> Node:
        return self._graph.nodes[self._nodes[at]]

    def number(self, at: int) -> float:
        """Return the real value of a constant or of a clip's magnitude."""
        node = self._node(at)
        return float(node.format.to_floats(node.value)) if self._rounded["tables"] else super().number(at)

    def clip(self, at: int, x: Floats) -> Floats:
        """Clip to a magnitude; what the format limits already has no node."""
        if self._rounded["tables"] and self._node(at).kind != "clamp":
            return x
        return np.asarray(super().clip(at, x))

    def apply(self, at: int, x: Floats) -> Floats:
        """Apply a function, with its argument and its table each rounded or not."""
        if self.operations[at].kind == "apply" and self.operations[at].function == IDENTITY:
            return x
        node, rounded = self._node(at), self._rounded["tables"]
        table, read = self._numerics.function(node), self._graph.nodes[node.args[0]]
        if not self._rounded[self._part_of_argument(read)]:
            exact = table.function(x)
            # A table reads rounded arguments only: of others, the result is rounded.
            return node.format.to_floats(node.format.to_integers(exact)) if rounded else exact
        if read.kind == "floor":
            # Rounded down, as a node ``floor`` does.
            codes = np.floor(np.ldexp(x, read.format.fraction))
            codes = np.clip(codes, read.format.lowest, read.format.maximum)
        else:
            codes = _round(x, read.format, read.kind == "narrow")
        if rounded:
            return node.format.to_floats(table.compute(codes.astype(np.int64)))
        middle = isinstance(table, ActivationTable) and table.middle
        return table.function(read.format.to_floats(codes + (0.5 if middle else 0.0)))

    def _part_of_argument(self, read: Node) -> Part:
        """Return what the rounding of a function's argument belongs to: the state if c's bits limit it."""
        if self._graph.state is None or read.kind not in ("narrow", "floor"):
            return "tables"
        kept = self._graph.nodes[self._graph.state]
        of_kept = kept.kind == "narrow" and kept.args == read.args
        return "state" if of_kept and read.format.fraction == kept.format.fraction else "tables"

    def normalise(self, at: int, x: Floats, gain: Floats | None) -> Floats:
        """Normalise over the units, times the gain."""
        node = self._node(at)
        norm, source = self._numerics.norms[node.index], self._graph.nodes[node.args[0]].format
        if self._rounded["tables"]:
            codes = [_round(x, source, False).astype(np.int64)]
            if gain is not None and norm.gain is not None:
                codes.append(_round(gain, norm.gain, True).astype(np.int64))
            return node.format.to_floats(
                norm.normalise(codes[0], self._numerics.tables[norm.table], *codes[1:])
            )
        if not isinstance(self.operations[at], Node):
            return np.asarray(super().normalise(at, x, gain))
        found = normalised(x, norm.centre, norm.real_epsilon(source))
        return np.asarray(found if gain is None else found * gain)

    def round(self, at: int, x: Floats) -> Floats:
        """Return a value as it is kept; functions round what they read, and the layer its results."""
        if self._nodes[at] != self._graph.state or not self._rounded["state"]:
            return x
        form = self._node(at).format
        return form.to_floats(_round(x, form, True))

    def _result(self, values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return values as results, and which of them saturated."""
        node = self._graph.nodes[self._graph.result]
        if not self._rounded["activations"]:
            return values, np.zeros(values.shape, dtype=np.bool_)
        if node.kind == "odd":
            odd = odd_codes(np.ldexp(values, node.format.fraction))
            # Exact factors may be 1, which those of the tables are not.
            limited = np.clip(odd, -node.format.maximum, node.format.maximum)
            return node.format.to_floats(limited), np.zeros(values.shape, dtype=np.bool_)
        narrowed = node.kind == "narrow"
        rounded = node.format.to_floats(_round(values, node.format, narrowed))
        # A value of 1, as a sigmoid gives, is a unit above the largest code: this is rounding.
        return rounded, _beyond(values, node.format, 1) & narrowed


def _round(values: Floats, form: Format, symmetric: bool) -> Floats:
    """Return codes, rounded half up; what is in the format already may have its lowest code."""
    lowest = -form.maximum if symmetric else form.lowest
    return np.clip(round_half_up(values, form.fraction), lowest, form.maximum)


def _beyond(values: Floats, form: Format, units: int = 0) -> NDArray[np.bool_]:
    """Say which values are beyond the format's limit by more than some units."""
    return np.abs(round_half_up(values, form.fraction)) > form.maximum + units


@dataclass(frozen=True)
class LayerValues:
    """A layer's results, real values, and how many of its values saturated."""

    results: Floats
    """``(T, N, outputs)``; zero past a sequence's length."""
    row_saturations: Counts
    """Pre-activations that saturated, of each row, gate by gate; 0 where they are in float."""
    state_saturations: Counts
    """States that saturated, of each unit."""
    result_saturations: Counts
    """Results that saturated, of each unit: that were more than a unit beyond their format's limit."""


@dataclass(frozen=True)
class MixedRun:
    """Real values of a run."""

    y: Floats
    """``(T, N, outputs)``; zero past a sequence's length."""
    layers: tuple[LayerValues, ...]


class _MixedLayer(GraphLayer):
    """A layer of which ``exact`` parts are in float.

    Results, and what layers read, are in units of their formats; states are real values.
    """

    def __init__(
        self, network: QuantizedNetwork, index: int, floats: FloatLayer, exact: Collection[Part]
    ) -> None:
        shape, numerics, integers = network.shapes[index], network.numerics, network.layers[index]
        graph = numerics.cells[shape.cell]
        rows: Part = "tables" if reads_table(graph, numerics) else "activations"
        self._exact_rows = rows in exact
        offsets, nothing = floats.offsets, np.zeros_like(floats.offsets)
        if "weights" in exact:
            used, constants = floats.layer, floats.constants
            more = nothing if self._exact_rows else offsets
        else:
            used, constants = integers, unit_constants(network, index)
            more = -offsets if self._exact_rows else nothing
        super().__init__(replace(used, bias=used.bias + more), shape, numerics)
        self._reals = constants
        self._mixed = _MixedCell(floats, graph, numerics, exact)
        self._fraction = gate_format(network, index).fraction
        self._seen: list[tuple[Floats, Mask, Mask, Mask]] = []

    def round_down(self, sums: Floats) -> Floats:  # type: ignore[override]
        """Round a part's sums, unless they are in float."""
        return sums if self._exact_rows else GraphLayer.round_down(sums)

    def results(self, sums: Floats, state: Any) -> tuple[Any, Any, Any]:
        """Return results, the new state, and which of its values saturated."""
        pre, limited = np.ldexp(sums, -self._fraction - GUARD_BITS), np.zeros(sums.shape, dtype=np.bool_)
        if not self._exact_rows:
            codes = self.preactivations(sums)
            limited = np.abs(np.floor(sums * 0.5**GUARD_BITS)) > np.abs(codes)
            pre = np.ldexp(codes.astype(np.float64), -self._fraction)
        found = self._mixed.compute(self.by_gate(pre), state, self._reals)
        self._seen.append((found.result, limited, found.state_saturated, found.result_saturated))
        return np.ldexp(found.result, self.shape.output.fraction), found.state, found.state_saturated

    def values(self, reverse: bool, alive: Mask) -> LayerValues:
        """Return what it computed where sequences are ``alive``, ``(T, N, 1)``."""
        if not self._seen:  # Of a product that another one adds to.
            shape = self.shape
            none = [np.zeros(size, dtype=np.int64) for size in (shape.rows, shape.outputs, shape.outputs)]
            return LayerValues(np.zeros((*alive.shape[:2], shape.outputs)), *none)
        order = slice(None, None, -1 if reverse else 1)
        results, *saturated = (np.stack(each)[order] for each in zip(*self._seen, strict=True))
        return LayerValues(np.where(alive, results, 0.0), *((each & alive).sum((0, 1)) for each in saturated))


def run_mixed(
    network: QuantizedNetwork,
    floats: Sequence[FloatLayer],
    exact: Collection[Part],
    samples: Samples,
) -> MixedRun:
    """Run real inputs.

    ``floats`` are the network's layers in float. ``exact`` is what is not rounded: with all parts the result
    is the network in float, with none the golden model.
    """
    numerics, x = network.numerics, samples.x

    def make(part: QuantizedNetwork, first: int) -> tuple[CellNetwork, list[_MixedLayer]]:
        indices = range(first, first + len(part.shapes))
        layers = [_MixedLayer(network, index, floats[index], exact) for index in indices]
        return CellNetwork(part, layers), layers

    model = ObservedGolden(network, make)
    values: NDArray[Any] = (
        np.ldexp(numerics.scale_input(x), numerics.input.fraction)
        if "activations" in exact
        else numerics.quantise_input(x)
    )
    alive: Mask = samples.alive[:, :, None]
    y = model._run(values, _begin(network, exact, samples), alive).y
    layers = tuple(layer.values(reverse, alive) for layer, reverse in model.observed())
    # Parts that end a network have one format.
    return MixedRun(network.shapes[-1].output.to_floats(y), layers)


def _begin(network: QuantizedNetwork, exact: Collection[Part], samples: Samples) -> Any:
    """Return h in units of its format, and states as real values; None for zeros."""
    codes = samples.integer_state(network)
    if codes is None or samples.state is None:
        return None
    h, states = samples.state
    formats = StateFormats(network.shapes, network.numerics)
    reads: list[Any] = list(codes[0])
    if "activations" in exact:
        pairs = zip(h, formats.hidden_formats, strict=True)
        reads = [np.ldexp(values, form.fraction) for values, form in pairs]
    kept = list(formats.cell_states(h, states))
    if "state" not in exact:
        kept = [form.to_floats(each) for each, form in zip(codes[1], formats.cell_formats, strict=True)]
    return reads, kept
