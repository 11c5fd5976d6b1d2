"""The float reference: the network in float64, for accuracy and for calibration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.network import Dense, Lstm, Network

__all__ = ["FloatResult", "run_float"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FloatResult:
    """Values of a float run, and the largest magnitudes met on the way."""

    y: Floats
    """Outputs, ``(T, N, outputs)``."""
    h: tuple[Floats, ...]
    c: tuple[Floats, ...]
    """Final states of each LSTM layer, ``(N, units)``."""
    preactivation: float
    """Largest magnitude before any sigmoid or tanh."""
    cell: float
    """Largest magnitude of any cell state."""
    layers: tuple[float, ...]
    """Largest magnitude of each layer's output."""


def _sigmoid(x: Floats) -> Floats:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _activate(name: str, x: Floats) -> Floats:
    if name == "sigmoid":
        return _sigmoid(x)
    if name == "tanh":
        return np.tanh(x)
    return np.maximum(x, 0.0) if name == "relu" else x


def _run_lstm(layer: Lstm, x: Floats, h: Floats, c: Floats) -> tuple[Floats, Floats, Floats, float, float]:
    parts = x @ layer.w_ih.T + layer.bias
    outputs = np.empty((*x.shape[:2], layer.outputs))
    most_pre = most_cell = 0.0
    for step, part in enumerate(parts):
        pre = part + h @ layer.w_hh.T
        i, f, g, o = np.split(pre, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        outputs[step] = h
        most_pre = max(most_pre, float(np.abs(pre).max()))
        most_cell = max(most_cell, float(np.abs(c).max()))
    return outputs, h, c, most_pre, most_cell


def run_float(
    network: Network,
    x: Floats,
    state: tuple[Sequence[Floats], Sequence[Floats]] | None = None,
) -> FloatResult:
    """Run ``x`` of shape ``(T, N, inputs)`` through the float network.

    Equations and gate order are those of ``torch.nn.LSTM``.
    """
    values = np.asarray(x, dtype=np.float64)
    batch = values.shape[1]
    finals_h: list[Floats] = []
    finals_c: list[Floats] = []
    most_layers: list[float] = []
    most_pre = most_cell = 0.0
    for layer in network.layers:
        values = np.maximum(values, 0.0) if layer.input_relu else values
        if isinstance(layer, Dense):
            pre = values @ layer.weight.T + layer.bias
            if layer.activation in ("sigmoid", "tanh"):
                most_pre = max(most_pre, float(np.abs(pre).max()))
            values = _activate(layer.activation, pre)
        else:
            index = len(finals_h)
            h = np.zeros((batch, layer.outputs)) if state is None else np.asarray(state[0][index])
            c = np.zeros((batch, layer.outputs)) if state is None else np.asarray(state[1][index])
            values, h, c, pre_max, cell_max = _run_lstm(layer, values, h, c)
            most_pre, most_cell = max(most_pre, pre_max), max(most_cell, cell_max)
            finals_h.append(h)
            finals_c.append(c)
        most_layers.append(float(np.abs(values).max()))
    return FloatResult(values, tuple(finals_h), tuple(finals_c), most_pre, most_cell, tuple(most_layers))
