"""A float forward pass of a network for the front ends' tests, checked against PyTorch."""

import numpy as np

from rtlstm.spec.network import Dense, Network


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}


def forward(network: Network, x: np.ndarray) -> np.ndarray:
    """Run ``x`` of shape (T, N, I) through every layer from zero states; all steps come back."""
    values = x.astype(np.float64)
    for layer in network.layers:
        if layer.input_relu:
            values = np.maximum(values, 0)
        if isinstance(layer, Dense):
            values = ACTIVATIONS[layer.activation](values @ layer.weight.T + layer.bias)
            continue
        h = np.zeros((values.shape[1], layer.outputs))
        c = h
        steps = []
        for step in values:
            i, f, g, o = np.split(step @ layer.w_ih.T + h @ layer.w_hh.T + layer.bias, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            steps.append(h)
        values = np.stack(steps)
    return values


def close(actual, expected, tolerance=1e-5):
    """Fail unless both have the same shape and agree."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() < tolerance
