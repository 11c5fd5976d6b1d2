"""Seeded random networks, hardware parameters and data: what the bit-exactness tests draw from."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rtlstm import ConfigurationError, Dense, Lstm, Manifest, Network
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise_with
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.state import StateLayout
from rtlstm.sim.golden import Golden, GoldenResult
from rtlstm.spec.family import Pipeline
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import pack
from rtlstm.spec.parameters import Parameters, TableKind
from rtlstm.spec.program.spatial import SpatialPlan

SIZES = (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 32, 37, 41, 43, 47, 53, 59, 61, 64, 67, 70)
ACTIVATIONS = ("identity", "relu", "sigmoid", "tanh")


@dataclass(frozen=True)
class Case:
    """A network with its hardware, and sequences for each of its streams."""

    seed: int
    network: QuantizedNetwork
    manifest: Manifest
    streams: IntArray
    """Stream of each step, ``(steps,)``: every stream has at least one."""
    x: IntArray
    """Inputs, ``(steps, inputs)``."""
    state: tuple[list[IntArray], list[IntArray]]
    """Initial h and c of each LSTM layer, ``(streams, units)``."""
    stalls: tuple[float, float]
    suppress: NDArray[np.bool_]
    """Steps whose output may be left out, ``(steps,)``."""

    def write(self, folder: Path) -> Path:
        """Write the build folder."""
        return write_build(folder, self.network, self.manifest)

    def golden(self, after: list[GoldenResult] | None = None) -> tuple[IntArray, list[GoldenResult]]:
        """Return y as the device gives it, in the order of the steps, and each stream's result.

        ``after`` is each stream's result that the states are taken from; the case's own if None.
        """
        model = Golden(self.network)
        y = np.empty((len(self.x), self.network.outputs), dtype=np.int64)
        results = []
        for stream in range(self.manifest.parameters.streams):
            mine = self.streams == stream
            h, c = ([part[stream : stream + 1] for part in parts] for parts in self.state)
            if after is not None:
                h, c = list(after[stream].h), list(after[stream].c)
            result = model.run(self.x[mine][:, None], (h, c))
            y[mine] = result.y[:, 0]
            results.append(result)
        return self.manifest.emitted(y), results


def write_build(folder: Path, network: QuantizedNetwork, manifest: Manifest) -> Path:
    """Write a build folder, without its report."""
    (folder / "rtl").mkdir(parents=True, exist_ok=True)
    verilog = core_to_verilog(manifest)
    (folder / "manifest.json").write_text(manifest.with_files({manifest.rtl: verilog}).to_json())
    (folder / "weights.bin").write_bytes(pack(network, manifest).to_bytes())
    (folder / manifest.rtl).write_text(verilog)
    return folder


TINY = (1, 2, 3, 4)
"""Sizes at which a layer is a single row group and drains are longer than columns."""


def random_network(rng: Generator, sizes: tuple[int, ...] = SIZES) -> Network:
    """Draw 1 to 3 LSTM layers and 0 to 2 dense layers."""
    width = int(rng.choice(sizes))
    layers: list[Lstm | Dense] = []
    scale = float(rng.choice([0.3, 1.0, 3.0]))
    for index in range(rng.integers(1, 4)):
        units = int(rng.choice(sizes))
        layers.append(
            Lstm(
                name=f"lstm{index}",
                w_ih=rng.normal(size=(4 * units, width)) * scale / np.sqrt(width),
                w_hh=rng.normal(size=(4 * units, units)) * scale / np.sqrt(units),
                bias=rng.normal(size=4 * units) * scale,
                input_relu=bool(rng.random() < 0.2),
            )
        )
        width = units
    for index in range(rng.integers(0, 3)):
        outputs = int(rng.choice(sizes))
        layers.append(
            Dense(
                name=f"dense{index}",
                weight=rng.normal(size=(outputs, width)) * scale / np.sqrt(width),
                bias=rng.normal(size=outputs) * scale,
                activation=str(rng.choice(ACTIVATIONS)),
                input_relu=bool(rng.random() < 0.3),
            )
        )
        width = outputs
    return Network(layers=tuple(layers))


def random_settings(rng: Generator) -> QuantizationSettings:
    """Draw widths and ranges."""
    data = int(rng.integers(4, 19))
    return QuantizationSettings(
        tables="direct" if data <= 12 and rng.random() < 0.3 else "interpolated",
        weight_bits=int(rng.integers(2, 19)),
        data_bits=data,
        gate_bits=int(rng.integers(max(6, data), 19)),
        cell_bits=int(rng.integers(8, 33)),
        input_range=float(rng.choice([0.5, 1.0, 4.0, 10.0])),
        cell_range=float(rng.choice([1.0, 2.0, 8.0, 64.0])),
        # From a generator of its own: what is drawn next stays as it was.
        hidden_rounding=("half_up", "half_up", "odd")[int(rng.spawn(1)[0].integers(0, 3))],
    )


def random_parameters(rng: Generator, tables: TableKind = "interpolated") -> Parameters:
    """Draw an array and its pipeline."""
    macs = int(rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 16]))
    lanes = int(rng.choice([4, 8, 12, 16, 20, 32]))
    units = int(rng.choice(possible_gate_units(lanes, macs)))
    return Parameters(
        lanes=lanes,
        macs=macs,
        gate_units=units,
        beat_in=int(rng.choice([beat for beat in range(1, macs + 1) if macs % beat == 0])),
        beat_out=units * int(rng.integers(1, 6)),
        streams=int(rng.integers(1, 5)),
        tables=tables,
        lut_macs=int(rng.integers(0, macs + 1)),
        weight_memory=("block", "large")[int(rng.integers(0, 2))],
        # From a generator of its own, as above.
        table_memory=("ram", "ram", "rom")[int(rng.spawn(1)[0].integers(0, 3))],
        pipeline=random_pipeline(rng),
    )


def random_pipeline(rng: Generator) -> Pipeline:
    """Draw register stages, and who has copies of them."""
    registers = {
        "multiplier": int(rng.integers(1, 4)),
        "tree_levels": int(rng.integers(1, 4)),
        "narrow": int(rng.integers(2, 5)),
        "collect": int(rng.integers(0, 3)),
        "table": int(rng.integers(1, 3)),
        "operand": int(rng.integers(2, 5)),
        "window": int(rng.integers(0, 3)),
        "cell": int(rng.integers(3, 5)),
        "accept": int(rng.integers(0, 2)),
        "result": int(rng.integers(0, 3)),
        "slope": int(rng.integers(1, 3)),
        "product": int(rng.integers(1, 3)),
        "adder_terms": int(rng.integers(2, 4)),
    }
    early = registers["operand"] + registers["multiplier"] >= 4
    copies = int(rng.integers(0, 3))
    return Pipeline(**registers, copies=copies if early or copies == 2 else 0)


def possible_gate_units(lanes: int, macs: int) -> list[int]:
    """Return the numbers of gate units that an array of time steps can have."""
    units = lanes // 4
    return [
        each for each in range(1, units + 1) if units % each == 0 and (macs % each == 0 or each % macs == 0)
    ]


def random_integers(rng: Generator, network: Network) -> tuple[QuantizationSettings, QuantizedNetwork]:
    """Quantise a network with drawn widths; those that cannot be built together are drawn again."""
    while True:
        settings = random_settings(rng)
        try:
            choices = choose_formats(network, settings, None)
            # From a copy: what is drawn next stays as it was.
            mine = copy.deepcopy(rng)
            if mine.random() < 0.5:
                ranges = mine.choice([1.0, 2.0, 4.0, 64.0, 128.0], len(choices.cell_ranges))
                choices = replace(choices, cell_ranges=tuple(ranges.tolist()))
            lstms = sum(isinstance(layer, Lstm) for layer in network.layers)
            if lstms and settings.hidden_rounding == "half_up" and mine.random() < 0.5:
                held = mine.choice([1.0, 0.5, 0.25, 0.125], lstms).tolist()
                settings = settings.replace(hidden_range=held)
            return settings, quantise_with(network, settings, choices)
        except ConfigurationError:
            continue


def random_case(seed: int, sizes: tuple[int, ...] = SIZES, steps: int = 4) -> Case:
    """Draw a case; the same seed gives the same case."""
    rng = np.random.default_rng(seed)
    settings, network = random_integers(rng, random_network(rng, sizes))
    return make_case(seed, network, random_parameters(rng, settings.tables), steps)


def make_case(
    seed: int,
    network: QuantizedNetwork,
    parameters: Parameters,
    steps: int,
    spatial: SpatialPlan | None = None,
) -> Case:
    """Draw states, stalls and ``steps`` steps (and one for each stream) for a network."""
    rng = np.random.default_rng(seed)
    manifest = Manifest.of(f"random{seed}", network, parameters, spatial=spatial)
    streams = manifest.parameters.streams
    order = np.concatenate([np.arange(streams), rng.integers(0, streams, size=steps)])
    rng.shuffle(order)
    if rng.integers(2):
        # A stream's steps one after the other: each finds its input there and goes ahead.
        order.sort()
    low, high = network.numerics.input.lowest, network.numerics.input.maximum
    x = rng.integers(low, high, size=(len(order), network.inputs), endpoint=True)
    layout = StateLayout(manifest)
    sizes = (network.numerics.hidden, layout.sizes), (network.numerics.cell, layout.cell_sizes)
    h, c = (
        [rng.integers(-form.maximum, form.maximum, size=(streams, unit), endpoint=True) for unit in units]
        for form, units in sizes
    )
    stalls = float(rng.choice([0.1, 0.5, 0.8])), float(rng.choice([0.1, 0.5, 0.8]))
    suppress = rng.random(len(order)) < rng.choice([0.3, 0.7])
    return Case(seed, network, manifest, order, x, (h, c), stalls, suppress)
