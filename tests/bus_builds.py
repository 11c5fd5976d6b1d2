"""Builds with a bus wrapper, and how the wrappers' benches are run on them."""

import xml.etree.ElementTree as Xml
from pathlib import Path

import numpy as np

from rtlstm.gen.quantise import QuantizationSettings, quantise
from rtlstm.hdl.verilog import core_to_verilog
from rtlstm.host.packing import pack
from rtlstm.sim.bench import Simulator, build_bench, simulator_environment
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Dense, Lstm, Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.registers import BusKind


def quantised_network(seed: int = 1) -> QuantizedNetwork:
    """Two LSTM layers and a dense one, small; the same seed gives the same network."""
    rng = np.random.default_rng(seed)

    def lstm(inputs: int, units: int) -> Lstm:
        shapes = ((4 * units, inputs), (4 * units, units), (4 * units,))
        return Lstm(**dict(zip(("w_ih", "w_hh", "bias"), (rng.normal(size=s) for s in shapes), strict=True)))

    dense = Dense(weight=rng.normal(size=(3, 4)), bias=rng.normal(size=3), activation="tanh")
    network = Network(layers=(lstm(5, 6), lstm(6, 4), dense))
    # A narrow range of c, so that it saturates now and then.
    settings = QuantizationSettings(weight_bits=6, data_bits=10, cell_bits=12, cell_range=1.0)
    return quantise(network, settings)


def write_build(folder: Path, bus: BusKind, **parameters: int) -> Manifest:
    """Write a build: 3 streams, so that a stream number can be wrong, and partly filled last beats."""
    network = quantised_network()
    sizes = {"lanes": 8, "macs": 4, "beat_in": 2, "beat_out": 2, "streams": 3} | parameters
    manifest = Manifest.create("dut", network.shapes, Parameters(bus=bus, **sizes), network.numerics)
    (folder / "rtl").mkdir(parents=True)
    (folder / "manifest.json").write_text(manifest.to_json())
    (folder / "weights.bin").write_bytes(pack(network, manifest).to_bytes())
    (folder / "rtl" / "dut.v").write_text(core_to_verilog(manifest))
    return manifest


def play_bench(folder: Path, module: str, top: str, simulator: Simulator, seeds: str) -> dict[str, str]:
    """Run a cocotb module on a build's wrapper; return each of its tests' failures."""
    from cocotb_tools.runner import get_runner

    program = build_bench(folder / "rtl" / "dut.v", top, "generic", simulator)
    results = folder / f"{simulator}.xml"
    variables = {"RTLSTM_BUILD": str(folder), "RTLSTM_SEEDS": seeds, "COCOTB_LOG_LEVEL": "WARNING"}
    with simulator_environment(simulator, variables):
        get_runner(simulator).test(
            test_module=module,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            build_dir=program,
            test_dir=folder,
            results_xml=str(results),
            seed=1,
            log_file=folder / f"{simulator}.log",
        )
    found = {}
    for case in Xml.parse(results).getroot().iter("testcase"):
        failed = case.find("failure")
        found[case.attrib["name"]] = "" if failed is None else str(failed.attrib)
    return found
