"""Builds with random integer weights, for the driver's tests."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import loadable_builds
from support.fused_cells import DENSE, LSTM, fused_numerics
from support.golden_runs import random_codes

from rtlstm.host import Accelerator, pack
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import (
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    QuantizedRecurrent,
    bound_sums,
)
from rtlstm.spec.parameters import Parameters

STATE = Format(bits=16, fraction=11)


class Build(loadable_builds.Build):
    """A network of random integers and the build made for it."""

    @property
    def golden(self) -> Golden:
        return Golden(self.network)

    def inputs(self, *lead: int, seed: int = 0) -> IntArray:
        """Random integers of the input format, ``(*lead, inputs)``."""
        return random_codes(self.network, *lead, seed=seed)

    def open(self) -> Accelerator:
        """Open it on the golden device, weights loaded."""
        accelerator = Accelerator(GoldenDevice(Path(), self.manifest), self.manifest)
        accelerator.load_weights(pack(self.network, self.manifest))
        return accelerator


def _layers(shapes: list[LayerShape], rng: np.random.Generator, bits: int) -> tuple[QuantizedLayer, ...]:
    limit = 1 << (bits - 1)

    def matrix(rows: int, columns: int) -> IntArray:
        return rng.integers(-limit, limit, (rows, columns))

    def shift(rows: int) -> IntArray:
        return rng.integers(max(0, bits - 5), bits + 4, rows)

    layers: list[QuantizedLayer] = []
    for shape in shapes:
        rows = shape.rows
        bias = rng.integers(-(1 << 12), 1 << 12, rows)
        if shape.kind == "lstm":
            w_ih, w_hh = matrix(rows, shape.inputs), matrix(rows, shape.outputs)
            layers.append(QuantizedRecurrent(w_ih, w_hh, bias, shift(rows), shift(rows)))
        else:
            layers.append(QuantizedDense(matrix(rows, shape.inputs), bias, shift(rows)))
    return tuple(layers)


def _numerics(layers: tuple[QuantizedLayer, ...], weight_bits: int, data_bits: int) -> Numerics:
    gate = Format(bits=max(8, data_bits), fraction=max(8, data_bits) - 1)
    read = Format(bits=10, fraction=6)
    data = Format(bits=data_bits, fraction=data_bits - 3)
    return fused_numerics(
        Format(bits=data_bits, fraction=data_bits - 1),
        weight_bits=weight_bits,
        input=data,
        gate=gate,
        preactivation=read,
        cell=STATE,
        cell_argument=read,
        accumulator=bound_sums(layers, data, 0).widths(0, weight_bits),
        shift_bits=5,
    )


def build(
    inputs: int = 5,
    hidden: tuple[int, ...] = (6, 6),
    dense: tuple[int, ...] = (3,),
    weight_bits: int = 8,
    data_bits: int = 8,
    seed: int = 0,
    **parameters: int,
) -> Build:
    """Make a build of LSTM layers ``hidden``, then dense layers ``dense``."""
    rng = np.random.default_rng(seed)
    output = Format(bits=data_bits, fraction=data_bits - 1)
    shapes, width = [], inputs
    for index, (kind, units) in enumerate(
        [("lstm", units) for units in hidden] + [("dense", units) for units in dense]
    ):
        shapes.append(
            LayerShape(
                kind=kind,
                name=f"layer{index}",
                inputs=width,
                outputs=units,
                output=output,
                cell=LSTM if kind == "lstm" else DENSE,
                state=STATE if kind == "lstm" else None,
            )
        )
        width = units
    layers = _layers(shapes, rng, weight_bits)
    numerics = _numerics(layers, weight_bits, data_bits)
    network = QuantizedNetwork(shapes=tuple(shapes), numerics=numerics, layers=layers)
    settings = Parameters(**({"lanes": 4, "macs": 3, "streams": 3} | parameters))
    return Build(network, Manifest.create("test", tuple(shapes), settings, numerics))


@pytest.fixture
def make_build() -> Callable[..., Build]:
    return build


@pytest.fixture
def small() -> Build:
    return build()


@pytest.fixture
def uneven() -> Build:
    """LSTM layers of different sizes."""
    return build(hidden=(7, 2), dense=(), streams=2)
