"""Builds with a bus wrapper, and how the wrappers' testbenches are run on them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rtlstm import Bidirectional, Dense, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.sim.cocotb_run import build_design, run_tests
from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.buses import BusName
from rtlstm.spec.numerics import QuantizedNetwork
from support.loadable_builds import Build, build_for, make_device, stacked
from support.paths import TESTS
from support.small_builds import normal_lstm

# A narrow range of c, so that it saturates now and then; outputs of another number of bytes than inputs.
SETTINGS = QuantizationSettings(
    weight_bits=6, data_bits=10, output_bits=7, gate_bits=10, cell_bits=12, cell_range=1.0
)
SIZES = {"lanes": 8, "macs": 4, "beat_in": 2, "beat_out": 2, "streams": 3}
"""3 streams, so that a stream number can be wrong, and partly filled last beats."""
CAPACITIES = {"operations": 9, "inputs": 9, "outputs": 7, "weight_rows": 21, "shift_rows": 32}
CAPACITIES |= {"bias_rows": 22, "partial_rows": 10, "vector_words": 6, "cell_rows": 10}
"""What the largest of the loadable device's networks takes."""


def small_network(seed: int = 1) -> Network:
    """Two LSTM layers and a dense one, small; the same seed gives the same network."""
    rng = np.random.default_rng(seed)
    dense = Dense(weight=rng.normal(size=(3, 4)), bias=rng.normal(size=3), activation="tanh")
    return Network(layers=(normal_lstm(rng, 5, 6), normal_lstm(rng, 6, 4), dense))


def two_ways() -> Network:
    """A small network that takes whole sequences."""
    rng = np.random.default_rng(1)
    forward, backward = (normal_lstm(rng, 3, 2, reverse=reverse) for reverse in (False, True))
    return Network(layers=(Bidirectional(forward=forward, backward=backward),))


def quantised_network(seed: int = 1) -> QuantizedNetwork:
    """The small network in integers."""
    return quantise(small_network(seed), SETTINGS)


def write_build(folder: Path, bus: BusName, **parameters: Any) -> Manifest:
    """Write a build."""
    network = quantised_network()
    if rows := parameters.get("token_rows"):
        form, shape = network.numerics.input, (rows, network.inputs)
        codes = np.random.default_rng(2).integers(form.lowest, form.maximum, shape, endpoint=True)
        network = replace(network, tokens=codes)
    build = Build(network, Manifest.of("dut", network, Parameters(bus=bus, **(SIZES | parameters))))
    build.save(folder, core_to_verilog(build.manifest))
    return build.manifest


def write_loadable(folder: Path, bus: BusName, **parameters: int) -> Manifest:
    """Write a loadable build of the same network, and in ``others`` two for it.

    One has more inputs and outputs, one a single input and output.
    """
    chosen = Parameters(bus=bus, **(SIZES | parameters))
    device = make_device(small_network(), chosen, SETTINGS, "dut", **CAPACITIES)
    device.save(folder, core_to_verilog(device.manifest))
    networks = (
        stacked(9, 4, 6, dense=((5, "relu"), (7, "tanh")), seed=1),
        stacked(1, 3, dense=((1, "tanh"),)),
    )
    for number, network in enumerate(networks):
        build_for(network, device).save(folder / "others" / str(number))
    return device.manifest


def play_testbench(folder: Path, module: str, top: str, simulator: Simulator, seeds: str) -> dict[str, str]:
    """Run a cocotb module of tests/support/testbenches on a build's wrapper; return each test's failure."""
    path = TESTS / "support" / "testbenches" / f"{module}.py"
    variables = {"RTLSTM_SEEDS": seeds, "COCOTB_LOG_LEVEL": "WARNING"}
    design = build_design(folder, top=top)
    run = run_tests(path, folder, design, simulator, folder / simulator, variables=variables)
    return {each.name: each.failure for each in run.outcomes}
