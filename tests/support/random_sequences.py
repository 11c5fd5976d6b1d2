"""Seeded random networks with reverse directions: what the tests of whole sequences draw from."""

from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np
from numpy.random import Generator

from rtlstm import Bidirectional, Dense, Gru, Lstm, Manifest, Network, Parameters
from rtlstm.host.state import StateLayout
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import QuantizedNetwork
from support.random_builds import ACTIVATIONS, random_integers, random_parameters, write_build


@dataclass(frozen=True)
class SequenceCase:
    """A network with its hardware, and a batch of sequences."""

    network: QuantizedNetwork
    manifest: Manifest
    x: IntArray
    """``(T, N, inputs)``."""
    lengths: IntArray
    state: tuple[tuple[IntArray, ...], tuple[IntArray, ...]]
    """Initial h of each pseudo-layer and c of each LSTM, ``(N, units)``."""
    stalls: tuple[float, float]

    def write(self, folder: Path) -> Path:
        """Write the build folder."""
        return write_build(folder, self.network, self.manifest)


def random_lstm(rng: Generator, inputs: int, units: int, reverse: bool = False, relu: bool = False) -> Lstm:
    """Draw a layer."""
    scale = float(rng.choice([0.5, 1.0, 2.0]))
    return Lstm(
        name="backward" if reverse else "forward",
        w_ih=rng.normal(size=(4 * units, inputs)) * scale / np.sqrt(inputs),
        w_hh=rng.normal(size=(4 * units, units)) * scale / np.sqrt(units),
        bias=rng.normal(size=4 * units) * scale,
        input_relu=relu,
        reverse=reverse,
        reversed_output=reverse and bool(rng.random() < 0.3),
    )


def random_projection(rng: Generator, inputs: int, units: int, outputs: int, reverse: bool) -> Lstm:
    """Draw an LSTM layer whose h is projected."""
    return Lstm(
        w_ih=rng.normal(size=(4 * units, inputs)),
        w_hh=rng.normal(size=(4 * units, outputs)),
        bias=rng.normal(size=4 * units),
        projection=rng.normal(size=(outputs, units)),
        reverse=reverse,
    )


def random_gru(
    rng: Generator, inputs: int, units: int, reverse: bool = False, reset_after: bool = False
) -> Gru:
    """Draw a layer."""
    return Gru(
        w_ih=rng.normal(size=(3 * units, inputs)),
        w_hh=rng.normal(size=(3 * units, units)),
        bias_ih=rng.normal(size=3 * units),
        bias_hh=rng.normal(size=3 * units),
        reverse=reverse,
        reset_after=reset_after,
    )


def random_dense(rng: Generator, inputs: int, outputs: int) -> Dense:
    """Draw a layer."""
    return Dense(
        weight=rng.normal(size=(outputs, inputs)) / np.sqrt(inputs),
        bias=rng.normal(size=outputs),
        activation=str(rng.choice(ACTIVATIONS)),
        input_relu=bool(rng.random() < 0.3),
    )


def random_sequence_network(rng: Generator, sizes: tuple[int, ...]) -> Network:
    """Draw 1 to 3 layers, at least one of which goes backward, and at times a head."""
    width = int(rng.choice(sizes))
    layers: list[Lstm | Bidirectional | Dense] = []
    count = int(rng.integers(1, 4))
    backward = int(rng.integers(0, count))
    for index in range(count):
        relu, units = bool(rng.random() < 0.2), int(rng.choice(sizes))
        kinds = (
            ["bidirectional", "reverse"]
            if index == backward
            else ["bidirectional", "forward", "reverse", "dense"]
        )
        kind = str(rng.choice(kinds, p=[0.7, 0.3] if index == backward else None))
        if kind == "bidirectional":
            merge = str(rng.choice(["concat", "concat", "sum", "average", "product"]))
            other = int(rng.choice(sizes)) if merge == "concat" else units
            forward, back = (
                random_lstm(rng, width, units, relu=relu),
                random_lstm(rng, width, other, True, relu),
            )
            layers.append(Bidirectional(forward=forward, backward=back, merge=merge))
        elif kind == "dense":
            layers.append(random_dense(rng, width, units))
        else:
            layers.append(random_lstm(rng, width, units, kind == "reverse", relu))
        width = layers[-1].outputs
    if rng.random() < 0.5:
        layers.append(random_dense(rng, width, int(rng.choice(sizes))))
    return Network(layers=tuple(layers))


def random_sequence_case(seed: int, sizes: tuple[int, ...], steps: int = 5) -> SequenceCase:
    """Draw a case; the same seed gives the same case."""
    rng = np.random.default_rng(seed)
    settings, network = random_integers(rng, random_sequence_network(rng, sizes))
    drawn = random_parameters(rng, settings.tables)
    # The gate units of a core that takes whole sequences divide the multipliers of a lane.
    units = gcd(drawn.gate_units, drawn.macs)
    parameters = drawn.replace(gate_units=units, max_steps=steps + int(rng.integers(0, 3)))
    return make_sequence_case(seed, network, parameters, steps)


def make_sequence_case(
    seed: int, network: QuantizedNetwork, parameters: Parameters, steps: int
) -> SequenceCase:
    """Draw a batch and initial states for a network."""
    rng = np.random.default_rng(seed)
    manifest = Manifest.of(f"sequences{seed}", network, parameters)
    count = parameters.streams + int(rng.integers(1, 3))
    low, high = network.numerics.input.lowest, network.numerics.input.maximum
    h, c = _random_state(rng, manifest, count)
    return SequenceCase(
        network,
        manifest,
        rng.integers(low, high, (steps, count, network.inputs), endpoint=True),
        rng.integers(1, steps, count, endpoint=True),
        (h, c),
        (float(rng.choice([0.1, 0.5, 0.8])), float(rng.choice([0.1, 0.5, 0.8]))),
    )


def _random_state(rng: Generator, manifest: Manifest, count: int) -> tuple[tuple[IntArray, ...], ...]:
    """Draw h of each pseudo-layer and c of each LSTM, in integers, as the driver takes them."""
    layout, numerics = StateLayout(manifest), manifest.numerics
    zeros = layout.present(*layout.zeros(count), raw=True, batched=True)
    # A GRU's h has as many bits as a cell state.
    limits = min(numerics.hidden.maximum, numerics.cell.maximum), numerics.cell.maximum
    h, c = (
        tuple(rng.integers(-limit, limit, part.shape, endpoint=True) for part in parts)
        for limit, parts in zip(limits, zeros, strict=True)
    )
    return h, c
