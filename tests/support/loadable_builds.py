"""Loadable devices, and networks quantised and packed for them."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from rtlstm import Accelerator, Dense, Lstm, Manifest, Network, Parameters
from rtlstm.gen.builds.hardware import device_settings, with_capacity
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.state import StateLayout
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.golden import Golden
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import pack
from rtlstm.spec.program.schedule import offer_cycles
from support.golden_runs import random_codes
from support.sequence_checks import check_states
from support.small_builds import normal_lstm

NARROW = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=6, cell_bits=10)
ROOMY = {"operations": 20, "inputs": 20, "outputs": 20, "weight_rows": 200, "shift_rows": 100}
ROOMY |= {"bias_rows": 60, "partial_rows": 40, "vector_words": 40, "cell_rows": 40}


@dataclass(frozen=True)
class Build:
    """A network in integers, and its manifest."""

    network: QuantizedNetwork
    manifest: Manifest

    def save(self, folder: Path, verilog: str = "") -> Path:
        """Write a build folder."""
        (folder / "rtl").mkdir(parents=True, exist_ok=True)
        listed = self.manifest.with_files({self.manifest.rtl: verilog} if verilog else {})
        (folder / "manifest.json").write_text(listed.to_json())
        (folder / "weights.bin").write_bytes(pack(self.network, self.manifest).to_bytes())
        if verilog:
            (folder / "rtl" / f"{self.manifest.name}.v").write_text(verilog)
        return folder

    def inputs(self, steps: int, seed: int = 0) -> IntArray:
        """Random integers of the input format, a sequence per stream."""
        return random_codes(self.network, steps, self.manifest.parameters.streams, seed=seed)


def stacked(*sizes: int, dense: tuple[tuple[int, str], ...] = (), seed: int = 0) -> Network:
    """LSTM layers from the first size to the others, then dense layers."""
    rng = np.random.default_rng(seed)
    layers: list[Lstm | Dense] = []
    for index, (width, units) in enumerate(pairwise(sizes)):
        layers.append(normal_lstm(rng, width, units, name=f"lstm{index}"))
    width = sizes[-1]
    for index, (outputs, activation) in enumerate(dense):
        weight, bias = rng.normal(size=(outputs, width)), rng.normal(size=outputs)
        layers.append(Dense(name=f"dense{index}", weight=weight, bias=bias, activation=activation))
        width = outputs
    return Network(layers=tuple(layers))


def make_device(
    network: Network,
    parameters: Parameters,
    settings: QuantizationSettings = NARROW,
    name: str = "device",
    headroom: int = 6,
    **capacities: int,
) -> Build:
    """A loadable device, and the network that it is made from."""
    chosen = ROOMY | capacities
    found = quantise(network, settings, hardware=TargetHardware(headroom=headroom))
    parameters = with_capacity(name, found, parameters, chosen)
    return Build(found, Manifest.of(name, found, parameters))


def build_for(network: Network, device: Build) -> Build:
    """Another network for that device."""
    manifest = device.manifest
    found = quantise(
        network, device_settings(manifest, None), hardware=TargetHardware(device=manifest.numerics)
    )
    return Build(found, Manifest.of(manifest.name, found, manifest.parameters))


def check(accelerator: Accelerator, build: Build, seed: int, steps: int = 5) -> None:
    """Run a build that is loaded: every bit is the golden model's, every cycle the schedule's."""
    x = build.inputs(steps, seed)
    result = Golden(build.network).run(x)
    y, state = accelerator.run(x)
    np.testing.assert_array_equal(y, result.y)
    check_states(StateLayout(build.manifest), state, result)
    transport = accelerator.device.transport
    if isinstance(transport, SimulatedDevice):
        program, parameters = build.manifest.program, build.manifest.parameters
        cycles, beats = transport.last_cycles, -(-program.inputs // parameters.beat_in)
        streams = np.tile(np.arange(parameters.streams), steps).tolist()
        predicted = offer_cycles(program, parameters, len(streams), streams=streams)
        np.testing.assert_array_equal(cycles.offered - (cycles.accepted[0] - (beats - 1)), predicted)


def switch(device: Build, others: list[Build], backend: str, tmp_path: Path, steps: int = 5) -> None:
    """Run the device's own network, each of the others, and its own again."""
    verilog = core_to_verilog(device.manifest)
    # The hardware does not depend on the network that it is made from.
    builds = [device, *others, device]
    folders = [build.save(tmp_path / str(number), verilog) for number, build in enumerate(builds)]
    # Weights are read back where that takes little.
    verify = backend != "icarus"
    with Accelerator.open(folders[0], backend, verify) as accelerator:
        check(accelerator, device, 0, steps)
        for number, build in enumerate(builds[1:], 1):
            accelerator.load(folders[number], verify)
            check(accelerator, build, number, steps)
