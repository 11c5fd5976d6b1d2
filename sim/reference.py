"""The float reference: the network in float64, for accuracy and for calibration.

Equations are those of ``torch.nn.LSTM``, ``GRU`` and ``RNN``, with the options of ONNX's operators.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.spec.activations.functions import ActivationFunction
from rtlstm.spec.network import LINEAR, Bidirectional, CellLayer, Dense, Gru, Lstm, Network, PseudoLayer
from rtlstm.spec.program.passes import reverse_valid

__all__ = ["FloatResult", "FloatState", "LayerRange", "run_float"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
FloatState = tuple[Sequence[Floats], Sequence[Floats]]


@dataclass
class LayerRange:
    """Largest magnitudes in a dense layer or in one direction of a recurrent one."""

    preactivation: float = 0.0
    """Largest magnitude of the values that an activation reads."""
    cell: float = 0.0
    """Largest magnitude of c, or of a GRU's h."""
    inner: float = 0.0
    """Largest magnitude of the values that a projection reads, or of ``r * h``."""
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
        # The initial state is stored in the same formats as the states that follow.
        self.ranges.see("output", h)
        self.ranges.see("cell", h if c is None else c)

    def inputs(self, x: Floats) -> Floats:
        """Compute the part that does not depend on the state."""
        layer = self.layer
        bias = layer.bias_ih if isinstance(layer, Gru) else layer.bias
        return np.asarray(x @ layer.w_ih.T + bias)

    def step(self, part: Floats) -> tuple[Floats, Floats | None]:
        """Compute the next h and c."""
        if isinstance(self.layer, Lstm):
            return self._lstm(self.layer, part)
        if isinstance(self.layer, Gru):
            return self._gru(self.layer, part), None
        if isinstance(self.layer, CellLayer):
            return self._of_cell(self.layer, part)
        return self._apply(self.layer.activation, part + self.h @ self.layer.w_hh.T), None

    def _apply(self, function: ActivationFunction, pre: Floats) -> Floats:
        pre = _clip(pre, self.layer.clip)
        self.ranges.see("preactivation", pre)
        return function(pre)

    def _lstm(self, layer: Lstm, part: Floats) -> tuple[Floats, Floats]:
        assert self.c is not None
        i, f, g, o = np.split(part + self.h @ layer.w_hh.T, 4, axis=1)
        p_i, p_f, p_o = (0.0, 0.0, 0.0) if layer.peephole is None else np.split(layer.peephole, 3)
        if layer.peephole is not None:
            # The rows must fit their format before the peepholes are added, which may reduce them.
            self.ranges.see("preactivation", np.stack([i, i if layer.coupled else f, o]))
        i = self._apply(layer.gate, i + p_i * self.c)
        f = 1.0 - i if layer.coupled else self._apply(layer.gate, f + p_f * self.c)
        c = _clip(f * self.c + i * self._apply(layer.candidate, g), layer.cell_clip)
        self.ranges.see("cell", c)
        h = self._apply(layer.gate, o + p_o * c) * layer.output_activation(c)
        self.ranges.see("inner", h)
        return (h if layer.projection is None else h @ layer.projection.T), c

    def _of_cell(self, layer: CellLayer, part: Floats) -> tuple[Floats, Floats | None]:
        gates = np.split(part + self.h @ layer.w_hh.T, layer.gates, axis=1)
        self.ranges.see("preactivation", np.stack(gates))
        constants = () if layer.parameters is None else tuple(layer.parameters.T)
        cell = layer.step_cell()
        values = cell.values(gates, self.c if layer.has_cell_state else self.h, constants)
        for step in cell.read:
            self.ranges.see("preactivation", values[step])
        h, kept = values[cell.result], None if cell.state is None else values[cell.state]
        self.ranges.see("cell", h if kept is None else kept)
        return h, kept if layer.has_cell_state else None

    def _gru(self, layer: Gru, part: Floats) -> Floats:
        r, z, n = np.split(part, 3, axis=1)
        w_r, w_z, w_n = np.split(layer.w_hh, 3)
        b_r, b_z, b_n = np.split(layer.bias_hh, 3)
        r = self._apply(layer.gate, r + self.h @ w_r.T + b_r)
        z = self._apply(layer.gate, z + self.h @ w_z.T + b_z)
        if layer.reset_after:
            linear = self.h @ w_n.T + b_n
            self.ranges.see("preactivation", linear)
            self.ranges.see("preactivation", n)
            n = self._apply(layer.candidate, n + r * linear)
        else:
            self.ranges.see("inner", r * self.h)
            n = self._apply(layer.candidate, n + (r * self.h) @ w_n.T + b_n)
        h = (1.0 - z) * n + z * self.h
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


@dataclass
class _States:
    """Hands out initial states one by one, and collects final ones."""

    batch: int
    given: FloatState | None
    cell_limit: float | None
    h: list[Floats] = field(default_factory=list)
    c: list[Floats] = field(default_factory=list)

    def cell(self, layer: PseudoLayer) -> _Cell:
        """A direction with its initial state."""
        given = self.given
        h = np.zeros((self.batch, layer.outputs)) if given is None else np.asarray(given[0][len(self.h)])
        c = None
        if isinstance(layer, Lstm) or (isinstance(layer, CellLayer) and layer.has_cell_state):
            c = np.zeros((self.batch, layer.units)) if given is None else np.asarray(given[1][len(self.c)])
        return _Cell(layer, h, c, self.cell_limit)

    def keep(self, cell: _Cell) -> None:
        """Take its final state."""
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

    Parameters
    ----------
    state
        Initial h of each pseudo-layer and c of each that has one, ``(N, ...)``; zeros if None.
    lengths
        Valid steps of each sequence, ``(N,)``; all if None. A reverse direction begins at the last valid one.
    cell_limit
        Magnitude at which the stored c saturates, as in the hardware's format; no limit if None.
    """
    values = np.asarray(x, dtype=np.float64)
    steps, batch, _ = values.shape
    valid = np.full(batch, steps) if lengths is None else np.asarray(lengths)
    alive = np.arange(steps)[:, None] < valid
    states = _States(batch, state, cell_limit)
    layer_ranges: list[tuple[LayerRange, ...]] = []
    given = [values]
    for layer in network.layers:
        values = np.maximum(values, 0.0) if layer.input_relu else values
        if isinstance(layer, Dense):
            ranges = LayerRange()
            pre = values @ layer.weight.T + layer.bias
            if layer.skip is not None:
                other = given[-layer.skips]
                pre = pre + (np.maximum(other, 0.0) if layer.skip_relu else other) @ layer.skip.T
            ranges.see("preactivation", pre)
            values = np.where(alive[..., None], layer.function(pre), 0.0)
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
