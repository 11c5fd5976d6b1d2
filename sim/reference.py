"""The float reference: the network in float64, for accuracy and for calibration."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.spec.cells.evaluate import Reals, evaluate
from rtlstm.spec.cells.kinds import cells_of, norm_cell
from rtlstm.spec.network import (
    LINEAR,
    Bidirectional,
    CellLayer,
    Dense,
    Gru,
    Lstm,
    LstmNorms,
    Network,
    Norm,
    PseudoLayer,
    Rnn,
    keeps_cell_state,
)
from rtlstm.spec.program.passes import reverse_valid

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
FloatState = tuple[Sequence[Floats], Sequence[Floats]]


RangeName = Literal["output", "inner", "input_sums", "input_norm", "hidden_sums", "hidden_norm", "cell_norm"]
"""A magnitude of a :class:`LayerRange`, of values that a layer of the array gives."""


@dataclass
class LayerRange:
    """Largest magnitudes in a dense layer or in one direction of a recurrent one."""

    preactivation: float = 0.0
    """Largest magnitude of the values that an activation reads."""
    cell: float = 0.0
    """Largest magnitude of c, or of a GRU's h."""
    inner: float = 0.0
    """Largest magnitude of the values that a projection or a norm reads, or of ``r * h``."""
    input_sums: float = 0.0
    input_norm: float = 0.0
    hidden_sums: float = 0.0
    hidden_norm: float = 0.0
    cell_norm: float = 0.0
    """Largest magnitudes of what the norms of an LSTM read and give."""
    output: float = 0.0

    def see(self, name: str, values: Floats) -> None:
        """Include values."""
        setattr(self, name, max(getattr(self, name), float(np.abs(values).max(initial=0.0))))


@dataclass(frozen=True)
class FloatResult:
    """Values of a float run, and the largest magnitudes of all intermediate values."""

    y: Floats
    """Outputs, ``(T, N, outputs)``; zero past a sequence's length."""
    h: tuple[Floats, ...]
    """Final h of each pseudo-layer, ``(N, outputs)``."""
    c: tuple[Floats, ...]
    """Final c of each pseudo-layer that has one, ``(N, units)``."""
    preactivation: float
    """Largest magnitude of what any activation of a gate or of a sigmoid or tanh dense layer reads."""
    cell: float
    """Largest magnitude of any cell state, or of a GRU's h."""
    layers: tuple[float, ...]
    """Largest magnitude of each layer's output."""
    layer_ranges: tuple[tuple[LayerRange, ...], ...]
    """Ranges of each layer; a bidirectional layer has two."""


def _clip(x: Floats, limit: float | None) -> Floats:
    return x if limit is None else np.clip(x, -limit, limit)


class _Cell:
    """A direction's state, and a step of it."""

    def __init__(self, layer: PseudoLayer, h: Floats, c: Floats | None, cell_limit: float | None) -> None:
        self.layer = layer
        self.cell_limit = cell_limit
        self.ranges = LayerRange()
        self.h = h
        self.c = _clip(c, cell_limit) if c is not None else None
        self._cells = cells_of(layer)
        self._reals = [Reals(cell) for cell in self._cells]
        # The initial state is stored in the same formats as the states that follow.
        self.ranges.see("output", h)
        self.ranges.see("cell", h if c is None else c)

    def inputs(self, x: Floats) -> Floats:
        """Compute the part that does not depend on the state."""
        layer = self.layer
        if isinstance(layer, Lstm) and layer.norms is not None:
            products = x @ layer.w_ih.T
            return products if layer.norms.together else self._normed(layer.norms, "input", products)
        bias = layer.bias_ih if isinstance(layer, Gru) else layer.bias
        return np.asarray(x @ layer.w_ih.T + bias)

    def _normed(self, norms: LstmNorms, what: Literal["input", "hidden", "cell"], values: Floats) -> Floats:
        """Compute one of an LSTM's norms, if it has that, of values and the bias in front of it."""
        if what != "cell":
            bias = getattr(norms, f"{what}_bias")
            values = values if bias is None else values + bias
            self.ranges.see(f"{what}_sums", values)
        if (norm := getattr(norms, what)) is None:
            return values
        values = normed(norm, values)
        self.ranges.see(f"{what}_norm", values)
        return values

    def step(self, part: Floats) -> tuple[Floats, Floats | None]:
        layer = self.layer
        if isinstance(layer, Gru):
            return self._gru(layer, part), None
        if isinstance(layer, Lstm) and layer.norms is not None:
            return self._normed_lstm(layer, layer.norms, part)
        gates = np.split(part + self.h @ layer.w_hh.T, self._cells[0].gates, axis=1)
        constants: Sequence[Floats] = ()
        if isinstance(layer, Lstm) and layer.peephole is not None:
            constants = np.split(layer.peephole, 3)
            # The rows must fit their format before the peepholes are added, which may reduce them.
            self.ranges.see("preactivation", np.stack([gates[0], gates[0 if layer.coupled else 1], gates[3]]))
        elif isinstance(layer, CellLayer):
            constants = () if layer.parameters is None else tuple(layer.parameters.T)
            self.ranges.see("preactivation", np.stack(gates))
        h, kept = self._evaluate(0, gates, self.h if self.c is None else self.c, constants)
        if not isinstance(layer, Rnn):
            self.ranges.see("cell", h if kept is None else kept)
        if isinstance(layer, Lstm):
            self.ranges.see("inner", h)
            h = h if layer.projection is None else h @ layer.projection.T
        return h, None if self.c is None else kept

    def _evaluate(
        self, number: int, gates: Sequence[Floats], state: Floats, constants: Sequence[Floats] = ()
    ) -> tuple[Floats, Floats | None]:
        """Compute the result of one of the cells, and what it keeps."""
        values, cell = evaluate(self._reals[number], gates, state, constants), self._cells[number]
        for step in cell.read:
            self.ranges.see("preactivation", values[step])
        return values[cell.result], None if cell.state is None else values[cell.state]

    def _normed_lstm(self, layer: Lstm, norms: LstmNorms, part: Floats) -> tuple[Floats, Floats | None]:
        products = self.h @ layer.w_hh.T
        if norms.together:
            sums = self._normed(norms, "hidden", part + products)
        else:
            sums = part + self._normed(norms, "hidden", products)
        gates = np.split(sums + layer.bias, 4, axis=1)
        self.ranges.see("preactivation", np.stack(gates))
        assert self.c is not None
        h, kept = self._evaluate(0, gates, self.c)
        self.ranges.see("inner", h)
        if norms.cell is not None:
            c = self._normed(norms, "cell", h)
            self.ranges.see("preactivation", c)
            h, normed_c = self._evaluate(1, [gates[3], c], self.c)
            kept = normed_c if norms.kept else kept
        self.ranges.see("cell", h if kept is None else kept)
        return h, kept

    def _gru(self, layer: Gru, part: Floats) -> Floats:
        r, z, n = np.split(part, 3, axis=1)
        w_r, w_z, w_n = np.split(layer.w_hh, 3)
        b_r, b_z, b_n = np.split(layer.bias_hh, 3)
        gates = [r + self.h @ w_r.T + b_r, z + self.h @ w_z.T + b_z]
        if layer.reset_after:
            linear = self.h @ w_n.T + b_n
            self.ranges.see("preactivation", linear)
            self.ranges.see("preactivation", n)
            gates += [n, linear]
        else:
            reset, _ = self._evaluate(0, gates[:1], self.h)
            self.ranges.see("inner", reset)
            gates.append(n + reset @ w_n.T + b_n)
        h, _ = self._evaluate(-1, gates, self.h)
        self.ranges.see("cell", h)
        return h


def _run_direction(cell: _Cell, x: Floats, alive: Mask) -> Floats:
    """Run ``(T, N, inputs)``; sequences keep their state where they are not ``alive``, ``(T, N)``."""
    layer = cell.layer
    parts = cell.inputs(x)
    outputs = np.zeros((*x.shape[:2], layer.outputs))
    for step in range(len(x))[:: -1 if layer.reverse else 1]:
        h, c = cell.step(parts[step])
        cell.h = np.where(alive[step, :, None], h, cell.h)
        if c is not None and cell.c is not None:
            cell.c = np.where(alive[step, :, None], _clip(c, cell.cell_limit), cell.c)
        outputs[step] = np.where(alive[step, :, None], h, 0.0)
    cell.ranges.see("output", outputs)
    return outputs


def normed(layer: Norm, values: Floats) -> Floats:
    """Return a norm of values ``(..., layer.values)``."""
    cell = norm_cell(layer)
    return np.asarray(evaluate(Reals(cell), [values], None, layer.constants)[cell.result])


@dataclass
class _States:
    """Hands out initial states one by one, and collects final ones."""

    batch: int
    given: FloatState | None
    cell_limit: float | None
    h: list[Floats] = field(default_factory=list)
    c: list[Floats] = field(default_factory=list)

    def cell(self, layer: PseudoLayer) -> _Cell:
        given = self.given
        h = np.zeros((self.batch, layer.outputs)) if given is None else np.asarray(given[0][len(self.h)])
        c = None
        if keeps_cell_state(layer):
            c = np.zeros((self.batch, layer.units)) if given is None else np.asarray(given[1][len(self.c)])
        return _Cell(layer, h, c, self.cell_limit)

    def keep(self, cell: _Cell) -> None:
        self.h.append(cell.h)
        if cell.c is not None:
            self.c.append(cell.c)


def run_float(
    network: Network,
    x: Floats,
    state: FloatState | None = None,
    lengths: ArrayLike | None = None,
    cell_limit: float | None = None,
) -> FloatResult:
    """Run ``x`` of shape ``(T, N, inputs)`` through the float network.

    ``state`` has the initial h of each pseudo-layer and c of each that has one, ``(N, ...)``; zeros if None.
    ``lengths`` are the valid steps of each sequence, ``(N,)``; all if None: a reverse direction begins at the
    last valid one. The stored c saturates at the magnitude ``cell_limit``, as in the hardware's format, if
    that is not None.
    """
    values = np.asarray(x, dtype=np.float64)
    steps, batch, _ = values.shape
    valid = np.full(batch, steps) if lengths is None else np.asarray(lengths)
    alive = np.arange(steps)[:, None] < valid
    states = _States(batch, state, cell_limit)
    layer_ranges: list[tuple[LayerRange, ...]] = []
    given = [values]
    for layer in network.layers:
        read = [(given[-source.back], source.relu) for source in layer.sources]
        values = np.concatenate([np.maximum(x, 0.0) if relu else x for x, relu in read], axis=-1)
        if isinstance(layer, Dense):
            ranges = LayerRange()
            pre = values @ layer.weight.T + layer.bias
            ranges.see("preactivation", pre)
            values = np.where(alive[..., None], layer.function(pre), 0.0)
            ranges.see("output", values)
            layer_ranges.append((ranges,))
            given.append(values)
            continue
        if isinstance(layer, Norm):
            ranges = LayerRange()
            values = np.where(alive[..., None], normed(layer, values), 0.0)
            ranges.see("output", values)
            layer_ranges.append((ranges,))
            given.append(values)
            continue
        both = (layer.forward, layer.backward) if isinstance(layer, Bidirectional) else (layer,)
        found, mine = [], []
        for direction in both:
            cell = states.cell(direction)
            outputs = _run_direction(cell, values, alive)
            found.append(reverse_valid(outputs, valid) if direction.reversed_output else outputs)
            states.keep(cell)
            mine.append(cell.ranges)
        layer_ranges.append(tuple(mine))
        if isinstance(layer, Bidirectional) and layer.merge == "product":
            values = found[0] * found[1]
        elif isinstance(layer, Bidirectional) and layer.merge != "concat":
            values = sum(found[1:], found[0]) / (2.0 if layer.merge == "average" else 1.0)
        else:
            values = np.concatenate(found, axis=-1)
        given.append(values)
    return FloatResult(
        y=values,
        h=tuple(states.h),
        c=tuple(states.c),
        preactivation=_most_read(network, layer_ranges),
        cell=max((one.cell for mine in layer_ranges for one in mine), default=0.0),
        layers=tuple(float(np.abs(values).max(initial=0.0)) for values in given[1:]),
        layer_ranges=tuple(layer_ranges),
    )


def _most_read(network: Network, layer_ranges: list[tuple[LayerRange, ...]]) -> float:
    """Largest magnitude before a gate's activation, or a sigmoid or tanh dense layer's; 0 without any."""
    return max(
        (
            one.preactivation
            for layer, mine in zip(network.layers, layer_ranges, strict=True)
            for one in mine
            if not (isinstance(layer, Dense) and layer.activation in LINEAR)
        ),
        default=0.0,
    )
