"""Manifests of small builds, by what matters to the streams: sizes of steps, beats and words."""

import numpy as np

from rtlstm import Dense, Lstm, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from support.loadable_builds import make_device

NARROW = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)
"""Few bits of data: what happens to one happens to all."""


def _network(inputs: int, outputs: int, dense: int = 0) -> Network:
    """An LSTM layer, and perhaps a dense one with so many outputs."""
    shapes = ((4 * outputs, inputs), (4 * outputs, outputs), (4 * outputs,))
    w_ih, w_hh, bias = (np.ones(shape) for shape in shapes)
    layers: tuple[Lstm | Dense, ...] = (Lstm(w_ih=w_ih, w_hh=w_hh, bias=bias),)
    if dense:
        layers += (Dense(weight=np.ones((dense, outputs)), bias=np.ones(dense)),)
    return Network(layers=layers)


def fixed_manifest(inputs: int = 3, outputs: int = 2, dense: int = 0, **parameters: object) -> Manifest:
    """A build of one LSTM layer, and perhaps a dense one."""
    found = quantise(_network(inputs, outputs, dense), NARROW)
    return Manifest.of("dut", found, Parameters(**{"macs": 4} | parameters))


def sequence_manifest(inputs: int = 3, outputs: int = 2, steps: int = 3, **parameters: object) -> Manifest:
    """A build of one LSTM layer in reverse, which takes sequences of up to so many steps."""
    layer = _network(inputs, outputs).layers[0].replace(reverse=True)
    found = quantise(Network(layers=(layer,)), NARROW)
    return Manifest.of("dut", found, Parameters(**{"macs": 4, "max_steps": steps} | parameters))


def loadable_manifest(inputs: int = 3, outputs: int = 2, **parameters: object) -> Manifest:
    """A loadable build for up to so many inputs and outputs."""
    chosen = Parameters(**{"macs": 4} | parameters)
    return make_device(_network(1, 1), chosen, NARROW, "dut", inputs=inputs, outputs=outputs).manifest
