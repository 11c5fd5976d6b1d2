"""A loadable core in simulators: after every switch the golden model's bits and the schedule's cycles."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from support.linked_core import LinkedPort, compile_linked
from support.loadable_builds import NARROW, Build, build_for, check, make_device, stacked, switch
from support.netlist import netlist_build
from support.quick import quick
from support.random_builds import random_network, random_parameters
from support.random_sequences import random_gru
from support.resident_checks import check_steps
from support.small_builds import normal_lstm

from rtlstm import Accelerator, ConfigurationError, DeviceError, Manifest
from rtlstm.bench.shapes import SHAPES
from rtlstm.gen.builds.hardware import with_capacity
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.hdl.emit.verilog import core_to_verilog, linked_core_to_verilog
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.backends import IcarusDevice
from rtlstm.spec.family import Pipeline
from rtlstm.spec.network import Dense, Gru, Lstm, LstmNorms, Network, Norm
from rtlstm.spec.parameters import Needs, Parameters
from rtlstm.spec.program.step import compile_program
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.rtl

SMALL = Parameters(lanes=8, macs=4, streams=2, beat_in=2)
WIDE = SMALL.replace(
    gate_units=2,
    beat_out=2,
    pipeline=Pipeline(operand=3, multiplier=3, collect=2, narrow=4, table=2, window=2, accept=1, result=1),
)


@pytest.mark.parametrize("parameters", quick((SMALL, WIDE), SMALL), ids=["small", "wide"])
def test_icarus_switches(parameters: Parameters, tmp_path: Path) -> None:
    """More and fewer layers, inputs, outputs; one that goes ahead in one word, and a single layer."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), parameters)
    others = [
        build_for(stacked(9, 4, 6, dense=((5, "relu"), (3, "tanh")), seed=1), device),
        build_for(stacked(1, 2, seed=2), device),
    ]
    switch(device, others, "icarus", tmp_path)


def test_dense_layers_in_front_of_an_lstm(tmp_path: Path) -> None:
    """A device of plain LSTMs takes dense layers anywhere; one of other cells names that device."""
    device = make_device(stacked(3, 5), SMALL)
    front, (lstm,) = stacked(3, dense=((4, "relu"), (4, "tanh"))).layers, stacked(4, 3).layers
    behind = stacked(3, dense=((2, "identity"),)).layers
    networks = [Network(layers=layers) for layers in ((*front, lstm), (front[0], lstm, *behind), front)]
    switch(device, [build_for(network, device) for network in networks], "icarus", tmp_path)
    other = make_device(networks[0], SMALL)
    with pytest.raises(ConfigurationError, match="of LSTMs with dense layers behind them alone"):
        build_for(networks[1], other)


def normed(seed: int, *layers: str, inputs: int = 3, most: float = 1.0) -> Network:
    """LSTMs of five units, ``"lstm"``, and norms of them, by their name: gains and biases up to ``most``."""
    rng = np.random.default_rng(seed)
    found: list[Lstm | Norm | Gru | Dense] = []
    for number, kind in enumerate(layers):
        width = 5 if found else inputs
        if kind in ("layer", "rms", "plain"):
            gain, bias = (rng.uniform(most / 2, most, 5) if kind != "plain" else None for _ in range(2))
            found.append(Norm(name=f"norm{number}", values=5, gain=gain, bias=bias, centre=kind != "rms"))
        elif kind == "gru":
            found.append(random_gru(rng, width, 5).replace(name=f"gru{number}"))
        else:
            norms = LstmNorms(hidden=Norm(values=20), together=True) if kind == "normed" else None
            found.append(normal_lstm(rng, width, 5, name=f"lstm{number}").replace(norms=norms))
    weight = rng.normal(size=(2 + seed % 2, 5))
    return Network(layers=(*found, Dense(weight=weight, bias=weight[:, 0], activation="tanh")))


@pytest.mark.parametrize("case", quick(["lstm", "two norms", "gru", "within", "wide"], "lstm"))
def test_networks_with_norms_share_a_core(case: str, tmp_path: Path) -> None:
    """A device takes networks with its norms in other places, with other weights, and without norms."""
    first, *others = {
        "lstm": [("lstm", "layer"), ("lstm", "layer", "lstm"), ("lstm", "lstm"), ("lstm", "layer")],
        "wide": [("lstm", "layer"), ("lstm", "layer", "lstm", "layer")],
        "two norms": [("lstm", "layer", "lstm", "rms"), ("lstm", "rms", "lstm", "layer"), ("lstm", "rms")],
        "gru": [("gru", "layer", "gru"), ("gru", "gru", "layer")],
        "within": [("normed",), ("normed",)],
    }[case]
    device = make_device(normed(0, *first, most=1.9), WIDE if case == "wide" else SMALL)
    networks = [normed(seed, *layers, inputs=2 + seed) for seed, layers in enumerate(others, 1)]
    builds = [build_for(network, device) for network in networks]
    assert len({build.manifest.device_hash for build in (device, *builds)}) == 1
    switch(device, builds, "icarus" if case != "two norms" else "verilator", tmp_path)


def test_other_norms_than_the_devices_are_refused(tmp_path: Path) -> None:
    """Its gains are larger, or it has another kind; a device of a network that has them takes both."""
    device = make_device(normed(0, "lstm", "layer", most=0.9), SMALL)
    larger, other = normed(1, "lstm", "layer", most=1.9), normed(1, "lstm", "rms")
    for network in (larger, other):
        with pytest.raises(
            ConfigurationError, match="'norm1' differ; generate a loadable device from a network"
        ):
            build_for(network, device)
    wider = make_device(normed(0, "lstm", "layer", "lstm", "rms", most=1.9), SMALL)
    switch(wider, [build_for(network, wider) for network in (larger, other)], "golden", tmp_path)


@pytest.mark.parametrize("backend", quick(["icarus", "verilator"], "icarus"))
def test_two_networks_with_norms_at_once(backend: Literal["icarus", "verilator"], tmp_path: Path) -> None:
    """Each has gains and biases in rows of its own."""
    device = make_device(
        normed(0, "lstm", "layer", most=1.9), SMALL.replace(beat_in=1), networks=3, operations=40
    )
    others = normed(2, "lstm", "layer"), normed(4, "lstm")
    builds = [device, *(build_for(network, device) for network in others)]
    check_steps(builds, np.random.default_rng(4), 4, backend, tmp_path)


@pytest.mark.slow
@pytest.mark.tools
def test_netlist_of_a_loadable_core_with_norms(tmp_path: Path) -> None:
    """What Yosys makes of it has the golden model's bits, with a network that it was not made from."""
    parameters = Parameters.for_family("ecp5", lanes=8, macs=4, streams=2)
    device = make_device(normed(0, "lstm", "layer", most=1.9), parameters)
    other = build_for(normed(1, "lstm", "layer", "lstm"), device)
    build = device.save(tmp_path / "rtl", core_to_verilog(device.manifest))
    netlist = netlist_build(build, device.manifest, tmp_path / "netlist")
    folder = other.save(tmp_path / "other")
    with Accelerator.open(netlist, "icarus", verify=False) as accelerator:
        check(accelerator.load(folder, verify=False), other, 1)


@pytest.mark.parametrize(
    ("first", "family"),
    [
        pytest.param(stacked(3, 5, dense=((2, "sigmoid"),)), "generic", id="recurrent"),
        pytest.param(stacked(2, dense=((2, "identity"),)), "ecp5", id="dense", marks=pytest.mark.slow),
    ],
)
def test_hardware_does_not_depend_on_the_network(first: Network, family: str) -> None:
    parameters = SMALL if family == "generic" else Parameters.for_family(family, lanes=8, macs=4)
    device = make_device(first, parameters)
    other = build_for(stacked(9, 4, 6, dense=((5, "relu"),), seed=1), device)
    assert other.manifest.device_hash == device.manifest.device_hash
    texts = [core_to_verilog(build.manifest) for build in (device, other)]
    assert texts[0] == texts[1]


def test_a_core_without_a_program_takes_nothing(tmp_path: Path) -> None:
    """Nothing moves until the program is there, and nothing is unset meanwhile."""
    device = make_device(stacked(2, 2), SMALL.replace(beat_in=1))
    folder = device.save(tmp_path / "device", core_to_verilog(device.manifest))
    transport = IcarusDevice(folder, device.manifest)
    try:
        assert transport.read(Register.BUILD)[0] == device.manifest.build_number
        assert transport.read(Register.SHAPE)[0] == 0 and transport.read(Register.STATUS)[0] == 2
        with pytest.raises(DeviceError, match="no transfer on x or y"):
            transport.exchange(np.zeros(1, dtype=np.int64), np.zeros((1, 2), dtype=np.int64))
    finally:
        transport.close()


@pytest.mark.slow
def test_another_network_over_a_serial_port(tmp_path: Path) -> None:
    """Steps of other sizes through the device's side of the link, in hardware."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), SMALL.replace(beat_out=2))
    other = build_for(stacked(9, 4, 6, dense=((5, "relu"), (3, "tanh")), seed=1), device)
    folders = [build.save(tmp_path / str(number)) for number, build in enumerate((device, other))]
    line = LinkedPort(compile_linked(linked_core_to_verilog(device.manifest, 4), "device_link"), 4)
    timeouts = LinkTimeouts(retry=0.05, least_retry=0.02, most_retry=1.0)
    with Accelerator(LinkTransport(line, device.manifest, timeouts, seed=1), device.manifest) as accelerator:
        for folder, build in zip((*folders, folders[0]), (device, other, device), strict=True):
            accelerator.load(folder)
            check(accelerator, build, seed=1)


def random_pair(seed: int) -> tuple[Build, list[Build]]:
    """A device with capacities for three random networks."""
    rng = np.random.default_rng(seed)
    networks = [random_network(rng, (1, 2, 3, 5, 7, 11, 13, 17)) for _ in range(3)]
    parameters = random_parameters(rng)
    first = quantise(networks[0], NARROW, hardware=TargetHardware(headroom=12))
    timing = first.numerics.unit.timing(parameters)
    needs = [compile_program(quantise(net, NARROW).shapes, parameters, timing).needs for net in networks]
    most = {name: max(getattr(need, name) for need in needs) for name in Needs.model_fields}
    most["operations"] = max(4, most["operations"])
    parameters = with_capacity("device", first, parameters, most | {"headroom": 12})
    device = Build(first, Manifest.of("device", first, parameters))
    return device, [build_for(network, device) for network in networks[1:]]


@pytest.mark.slow
def test_speech_detection_gives_way_to_top_tagging(tmp_path: Path) -> None:
    """Two published networks on one core, with the capacities that the larger one gets by itself."""
    settings = QuantizationSettings(weight_bits=8, data_bits=8)
    found = quantise(SHAPES["vad128"].network(), settings, hardware=TargetHardware(headroom=4))
    parameters = with_capacity("device", found, Parameters(lanes=32, macs=8, streams=2), {})
    device = Build(found, Manifest.of("device", found, parameters))
    switch(device, [build_for(SHAPES["toptag"].network(), device)], "verilator", tmp_path, steps=100)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("seed", range(1, 13))
def test_random_networks_share_a_core(seed: int, backend: str, tmp_path: Path) -> None:
    """Capacities just as large as the largest needs."""
    device, others = random_pair(seed)
    switch(device, others, backend, tmp_path)
