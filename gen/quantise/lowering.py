"""Lowers a model's layers to the layers that the array computes, still in floats.

A projection becomes a dense layer whose results its LSTM reads back. A GRU that resets before the recurrent
product becomes two layers. A layer that reads several results gets a layer in front of it for each but the
last, which stores that product. A norm's layer multiplies with an identity; behind the input or two
directions it gets a copy. Every layer gets the cell that computes its results.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.directions import Product, Unfolded
from rtlstm.sim.reference import RangeName
from rtlstm.spec.activations.functions import IDENTITY, RELU
from rtlstm.spec.cells.description import Cell
from rtlstm.spec.cells.kinds import (
    dense_cell,
    gru_candidate_cell,
    gru_cell,
    gru_reset_cell,
    is_fused_cell,
    lstm_cell,
    lstm_output_cell,
    lstm_state_cell,
    norm_cell,
    product_cell,
    rnn_cell,
)
from rtlstm.spec.network import Activation, CellLayer, Dense, Gru, Lstm, LstmNorms, Norm, Reader, Rnn
from rtlstm.spec.numerics import SKIPS, ShapeKind, has_four_rows, steps_back
from rtlstm.spec.program.passes import Passes, feeds, part_layers

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ArrayLayer:
    """A layer of the array: its rows gate by gate, and the cell that computes results from their sums."""

    kind: ShapeKind
    name: str
    origin: int
    """Index of the unfolded network's layer that it is made from; -1 for a skip's copy of the input."""
    w_in: Floats
    bias: Floats
    cell: Cell
    w_rec: Floats | None = None
    range_of: RangeName = "output"
    """Which magnitude of the float reference is that of its results."""
    within_one: bool = False
    """Whether its results are within -1 .. 1 for any input, if sequences begin in such states."""
    linear: bool = False
    """Whether its results are its rows' sums, or parts of them: then the sums have the result's format."""
    wide: bool = False
    """Whether large sums matter, at which sigmoid and tanh are flat."""
    state: Literal["cell", "hidden", "earlier"] | None = None
    """The state that its cell keeps: an LSTM's c, or h itself, or the c of an earlier layer."""
    output_saturates: bool = True
    feedback: int = 0
    skips: int = 0
    copies: bool = False
    """Whether its results are what it reads, in the same format."""
    input_relu: bool = False
    activation: Activation = "identity"
    unit_constants: Floats | None = None
    """Per-unit constants, ``(units, K)``."""

    @property
    def recurrent(self) -> bool:
        """Whether it has a recurrent product."""
        return self.w_rec is not None

    @property
    def matrices(self) -> tuple[Floats, ...]:
        """The weights for each vector that it reads."""
        return (self.w_in,) if self.w_rec is None else (self.w_in, self.w_rec)

    @property
    def before(self) -> int:
        """How many layers before this one the layer is whose results it reads."""
        return steps_back(self.kind, self.skips)

    @property
    def projected(self) -> bool:
        """Whether its results are not h, but what a projection or a norm makes h of."""
        return self.kind == "lstm" and self.feedback > 0

    @property
    def in_format_of_h(self) -> bool:
        """Whether its results are within -1 .. 1 but for a larger h in which sequences begin."""
        return (
            self.within_one
            and self.kind not in ("dense", "sum", "norm", "recall", *SKIPS)
            and not self.projected
        )

    @property
    def outputs(self) -> int:
        """Number of results."""
        return len(self.w_in) // (4 if has_four_rows(self.kind) else 1)


def reads_input(passes: Passes, index: int, layer: ArrayLayer) -> bool:
    """Whether a layer reads the network's input."""
    return not feeds(passes, index, layer.before)


def fold_zeros(layers: Sequence[ArrayLayer], passes: Passes, offset: Floats) -> tuple[ArrayLayer, ...]:
    """Return the layers whose results for ``x + offset`` are those of ``layers`` for x: biases change."""
    if not offset.any():
        return tuple(layers)
    return tuple(
        replace(layer, bias=layer.bias - layer.w_in @ np.broadcast_to(offset, layer.w_in.shape[1]))
        if reads_input(passes, index, layer)
        else layer
        for index, layer in enumerate(layers)
    )


def is_fused(layers: Sequence[ArrayLayer], passes: Passes, there: bool = False) -> bool:
    """Whether the fused LSTM gate unit computes a network.

    It does if all cells but norms are that unit's, each layer reads the one before it alone, and, unless
    there are passes or the unit is ``there``, in a device, dense layers come last, but for a copy of the
    input.
    """
    dense = [layer.kind == "dense" for layer in layers[layers[0].copies :] if layer.kind != "norm"]
    return (bool(passes) or there or dense == sorted(dense)) and all(
        (is_fused_cell(layer.cell) or layer.kind == "norm")
        and layer.feedback == 0
        and layer.before == 1
        and (layer.kind in ("dense", "norm") or (layer.kind == "lstm" and layer.within_one))
        for layer in layers
    )


def lower(unfolded: Unfolded) -> tuple[tuple[ArrayLayer, ...], Passes]:
    """Return the array's layers, and the passes that they belong to."""
    layers: list[ArrayLayer] = []
    readers = [(at, layer) for at, layer in enumerate(unfolded.layers) if isinstance(layer, Reader)]
    of_input = [(at, read) for at, layer in readers for read in layer.sources if read.back == at + 1]
    first = isinstance(unfolded.layers[0], Norm)
    if not unfolded.passes and len(of_input) + first > 1:
        layers.append(_copy(unfolded.layers[0].inputs if first else of_input[0][1].width, "input copy", -1))
    begins = {part[0] for parts in part_layers(unfolded.passes) for part in parts}
    begins |= set() if unfolded.passes or layers else {0}
    for origin, layer in enumerate(unfolded.layers):
        match layer:
            case Lstm(norms=LstmNorms() as norms):
                found = _normed_lstm(layer, norms, origin)
            case Lstm():
                found = _lstm(layer, origin)
            case Gru():
                found = _gru(layer, origin)
            case Rnn():
                found = [_rnn(layer, origin)]
            case CellLayer():
                found = [_of_cell(layer, origin)]
            case Product():
                found = [_product(layer, origin, layers)]
            case Dense():
                found = [_dense(layer, origin)]
            case Norm():
                # The sums of what it reads are made as the layer before it stores its results.
                copy = [_copy(layer.inputs, f"{layer.name} copy", origin)] if origin in begins else []
                found = [*copy, _norm(layer, origin)]
        if isinstance(layer, Reader) and not unfolded.passes:
            found = _reading(found, layer, layers)
        layers += found
    counts = Counter(layer.origin for layer in layers)
    passes = tuple(
        tuple(
            part.replace(layers=sum(counts[index] for index in indices))
            for part, indices in zip(parts, found, strict=True)
        )
        for parts, found in zip(unfolded.passes, part_layers(unfolded.passes), strict=True)
    )
    return tuple(layers), passes


def _lstm(layer: Lstm, origin: int) -> list[ArrayLayer]:
    constants = None if layer.peephole is None else layer.peephole.reshape(3, layer.units).T
    functions = (layer.gate, layer.candidate)
    core = ArrayLayer(
        kind="lstm",
        name=layer.name,
        origin=origin,
        w_in=layer.w_ih,
        w_rec=layer.w_hh,
        bias=layer.bias,
        cell=lstm_cell(layer),
        range_of="output" if layer.projection is None else "inner",
        within_one=layer.gate.within_one and layer.output_activation.within_one,
        wide=constants is not None or not all(function.saturates for function in functions),
        state="cell",
        output_saturates=layer.output_activation.saturates,
        feedback=0 if layer.projection is None else 1,
        input_relu=layer.input_relu,
        unit_constants=constants,
    )
    if layer.projection is None:
        return [core]
    projection = ArrayLayer(
        kind="dense",
        name=f"{layer.name}_projection",
        origin=origin,
        w_in=layer.projection,
        bias=np.zeros(layer.outputs),
        cell=dense_cell(),
        linear=True,
    )
    return [core, projection]


def _normed_lstm(layer: Lstm, norms: LstmNorms, origin: int) -> list[ArrayLayer]:
    """Return the products and their norms, the layer that keeps c, and of a norm of c that and the one that
    gives h, which may keep c in its stead.

    Both read the norms' results through identities, and their sums have the biases. The layer of the products
    with h multiplies a zero with the layer before, if the norms are not of both products together.
    """
    name, units, rows = layer.name, layer.units, 4 * layer.units
    found: list[ArrayLayer] = []
    gates: list[int] = []

    def linear(what: Literal["input", "hidden"], w_in: Floats, w_rec: Floats | None) -> None:
        """Append products, and their norm."""
        ranges: tuple[RangeName, RangeName] = ("input_sums", "input_norm")
        ranges = ranges if what == "input" else ("hidden_sums", "hidden_norm")
        bias = getattr(norms, f"{what}_bias")
        sums = ArrayLayer(
            kind="dense" if w_rec is None else "recall",
            name=f"{name}_{what}",
            origin=origin,
            w_in=w_in,
            w_rec=w_rec,
            bias=np.zeros(rows) if bias is None else bias,
            cell=dense_cell(),
            range_of=ranges[0],
            linear=True,
            input_relu=layer.input_relu and not found,
        )
        found.append(sums)
        norm = getattr(norms, what)
        if norm is not None:
            normed = replace(_norm(norm, origin), name=f"{name}_{what}_norm", range_of=ranges[1])
            found.append(normed)
        gates.append(len(found) - 1)

    def reading(products: list[tuple[int, Floats]], bias: Floats, core: ArrayLayer) -> None:
        """Append a layer with four rows a unit, and skips for all that it reads but the last."""
        for number, (at, weights) in enumerate(products, 1):
            last, distance = number == len(products), len(found) - at
            mine = replace(core, w_in=weights, bias=bias if number == 1 else np.zeros_like(bias))
            if not last:
                mine = replace(mine, kind="unit_skip", name=f"{core.name}_skip{number}", state=None)
            found.append(replace(mine, skips=distance if distance > 1 or not last else 0))

    if norms.together:
        linear("hidden", layer.w_ih, layer.w_hh)
    else:
        linear("input", layer.w_ih, None)
        linear("hidden", np.zeros((rows, 1)), layer.w_hh)
    core = ArrayLayer(
        kind="lstm",
        name=name,
        origin=origin,
        w_in=np.eye(rows),
        bias=layer.bias,
        cell=lstm_cell(layer),
        within_one=layer.gate.within_one and layer.output_activation.within_one,
        wide=not (layer.gate.saturates and layer.candidate.saturates),
        state="cell",
        output_saturates=layer.output_activation.saturates,
    )
    if norms.cell is None:
        reading([(at, np.eye(rows)) for at in gates], layer.bias, core)
    else:
        first, last = np.eye(rows), np.zeros((rows, rows))
        first[3 * units :], last[:units, 3 * units :] = 0.0, np.eye(units)
        bias_o = np.concatenate([layer.bias[3 * units :], np.zeros(3 * units)])
        kept = replace(core, cell=lstm_state_cell(layer), within_one=False, range_of="inner")
        reading([(at, first) for at in gates], layer.bias, kept)
        found.append(replace(_norm(norms.cell, origin), name=f"{name}_cell_norm", range_of="cell_norm"))
        normed = np.zeros((rows, units))
        normed[units : 2 * units] = np.eye(units)
        given = replace(core, kind="product", name=f"{name}_output", cell=lstm_output_cell(layer))
        given = replace(given, state="earlier" if norms.kept else None)
        reading([*((at, last) for at in gates), (len(found) - 1, normed)], bias_o, given)
    end = len(found) - 1
    return [
        replace(each, feedback=end - at) if each.kind in ("recall", "lstm") else each
        for at, each in enumerate(found)
    ]


def _gru(layer: Gru, origin: int) -> list[ArrayLayer]:
    units = layer.units
    w_r, w_z, w_n = layer.w_ih.reshape(3, units, -1)
    u_r, u_z, u_n = layer.w_hh.reshape(3, units, -1)
    b_r, b_z, _ = (layer.bias_ih + layer.bias_hh).reshape(3, units)
    b_n, c_n = layer.bias_ih[2 * units :], layer.bias_hh[2 * units :]
    no_input, no_h, none = np.zeros_like(w_r), np.zeros_like(u_r), np.zeros(units)
    part = partial(
        ArrayLayer,
        origin=origin,
        within_one=layer.gate.is_share and layer.candidate.within_one,
        wide=layer.reset_after or not (layer.gate.saturates and layer.candidate.saturates),
        state="hidden",
    )
    reset = part(
        kind="gru" if layer.reset_after else "gru_reset",
        name=layer.name,
        w_in=np.concatenate([w_r, w_z, w_n, no_input]),
        w_rec=np.concatenate([u_r, u_z, no_h, u_n if layer.reset_after else no_h]),
        bias=np.concatenate([b_r, b_z, *((b_n, c_n) if layer.reset_after else (b_n + c_n, none))]),
        cell=gru_cell(layer) if layer.reset_after else gru_reset_cell(layer),
        range_of="output" if layer.reset_after else "inner",
        feedback=0 if layer.reset_after else 1,
        input_relu=layer.input_relu,
    )
    if layer.reset_after:
        return [reset]
    candidate = part(
        kind="gru_candidate",
        name=f"{layer.name}_candidate",
        w_in=np.concatenate([no_h, no_h, u_n, no_h]),
        bias=np.zeros(4 * units),
        cell=gru_candidate_cell(layer),
    )
    return [reset, candidate]


def _rnn(layer: Rnn, origin: int) -> ArrayLayer:
    return ArrayLayer(
        kind="rnn",
        name=layer.name,
        origin=origin,
        w_in=layer.w_ih,
        w_rec=layer.w_hh,
        bias=layer.bias,
        cell=rnn_cell(layer),
        within_one=layer.activation.within_one,
        linear=layer.activation in (IDENTITY, RELU),
        wide=not layer.activation.saturates,
        input_relu=layer.input_relu,
    )


def _of_cell(layer: CellLayer, origin: int) -> ArrayLayer:
    cell = layer.step_cell()
    kind: ShapeKind = "lstm" if layer.has_cell_state else "unit" if cell.state is None else "gru"
    missing = (4 - cell.gates) * layer.units
    w_in, w_rec, bias = (
        np.concatenate([rows, np.zeros((missing, *rows.shape[1:]))])
        for rows in (layer.w_ih, layer.w_hh, layer.bias)
    )
    return ArrayLayer(
        kind=kind,
        name=layer.name,
        origin=origin,
        w_in=w_in,
        w_rec=w_rec if layer.reads_h else None,
        bias=bias,
        cell=cell,
        wide=True,
        state="cell" if kind == "lstm" else "hidden" if kind == "gru" else None,
        output_saturates=False,
        input_relu=layer.input_relu,
        unit_constants=layer.parameters,
    )


def _dense(layer: Dense, origin: int) -> ArrayLayer:
    return ArrayLayer(
        kind="dense",
        name=layer.name,
        origin=origin,
        w_in=layer.weight,
        bias=layer.bias,
        cell=dense_cell(layer.function),
        within_one=layer.function.within_one,
        linear=layer.function in (IDENTITY, RELU),
        wide=not layer.function.saturates,
        input_relu=layer.input_relu,
        activation=layer.activation,
    )


def _product(layer: Product, origin: int, before: list[ArrayLayer]) -> ArrayLayer:
    """Return a layer with a row for each of a unit's two values, which its cell multiplies."""
    both = np.eye(layer.inputs)
    # The two layers before it are the directions, of which a projection is the last.
    ends = {one.origin: one for one in before}
    bounded = ends[origin - 2].within_one and ends[origin - 1].within_one
    return ArrayLayer(
        kind="product",
        name=layer.name,
        origin=origin,
        w_in=np.concatenate([both, np.zeros_like(both)]),
        bias=np.zeros(4 * layer.outputs),
        cell=product_cell(),
        within_one=bounded,
        wide=not bounded,
    )


def _norm(layer: Norm, origin: int) -> ArrayLayer:
    return ArrayLayer(
        kind="norm",
        name=layer.name,
        origin=origin,
        w_in=np.eye(layer.inputs),
        bias=np.zeros(layer.outputs),
        cell=norm_cell(layer),
        linear=True,
        unit_constants=np.stack(layer.constants, axis=1) if layer.constants else None,
    )


def _copy(width: int, name: str, origin: int) -> ArrayLayer:
    """Return a layer that copies the input: the input buffer does not keep it until a second product."""
    return replace(_dense(Dense(name=name, weight=np.eye(width), bias=np.zeros(width)), origin), copies=True)


def _reading(found: list[ArrayLayer], layer: Reader, before: Sequence[ArrayLayer]) -> list[ArrayLayer]:
    """Return the layers that a layer became, with the results that it reads.

    What is there first is multiplied first, and all but the last of the products store their sums.
    """
    ends = {one.origin: at for at, one in enumerate(before)}
    core, origin = found[0], found[0].origin
    columns = np.split(core.w_in, np.cumsum([read.width for read in layer.sources])[:-1], axis=1)
    products = zip(layer.sources, columns, strict=True)
    *early, (read, weights) = sorted(products, key=lambda product: -product[0].back)
    skips: list[ArrayLayer] = []
    for number, (other, skipped) in enumerate(early, 1):
        skip = replace(
            core,
            kind="unit_skip" if has_four_rows(core.kind) else "skip",
            name=f"{core.name}_skip{number if number > 1 else ''}",
            w_in=skipped,
            w_rec=None,
            bias=core.bias if number == 1 and not core.recurrent else np.zeros_like(core.bias),
            state=None,
            feedback=0,
            unit_constants=None,
            skips=len(before) + len(skips) - ends.get(origin - other.back, -1),
            input_relu=other.relu,
        )
        skips.append(skip)
    kind: ShapeKind = "sum" if skips and core.kind == "dense" else core.kind
    distance = len(before) + len(skips) - ends.get(origin - read.back, -1)
    core = replace(
        core,
        kind=kind,
        w_in=weights,
        bias=core.bias if core.recurrent or not skips else np.zeros_like(core.bias),
        skips=0 if distance == steps_back(kind, 0) else distance,
        input_relu=read.relu,
    )
    return [*skips, core, *found[1:]]
