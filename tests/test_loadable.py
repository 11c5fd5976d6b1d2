"""A loadable core in simulators: after every switch the golden model's bits and the schedule's cycles."""

from pathlib import Path

import numpy as np
import pytest
from loadable_builds import NARROW, Build, build_for, check, make_device, stacked
from random_builds import random_network, random_parameters

from rtlstm.gen.hardware import Hardware
from rtlstm.gen.loadable import with_capacity
from rtlstm.gen.quantise import quantise
from rtlstm.hdl.verilog import core_to_verilog
from rtlstm.host import Accelerator
from rtlstm.spec.capacity import Needs
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters, Pipeline
from rtlstm.spec.program import compile_program

NEAR = Parameters(lanes=8, macs=4, streams=2, beat_in=2)
FAR = NEAR.replace(
    gate_units=2,
    beat_out=2,
    pipeline=Pipeline(operand=3, multiplier=3, collect=2, narrow=4, table=2, window=2, accept=1, result=1),
)


def switch(device: Build, others: list[Build], backend: str, tmp_path: Path) -> None:
    """Run the device's own network, each of the others, and its own again."""
    verilog = core_to_verilog(device.manifest)
    # The hardware does not depend on the network that it is made from.
    builds = [device, *others, device]
    folders = [build.save(tmp_path / str(number), verilog) for number, build in enumerate(builds)]
    with Accelerator.open(folders[0], backend) as accelerator:
        check(accelerator, device, seed=0)
        for number, build in enumerate(builds[1:], 1):
            accelerator.load(folders[number])
            check(accelerator, build, seed=number)


@pytest.mark.parametrize("parameters", [NEAR, FAR], ids=["near", "far"])
def test_icarus_switches(parameters: Parameters, tmp_path: Path) -> None:
    """More and fewer layers, inputs, outputs; one that goes ahead in one word, and a single layer."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), parameters)
    others = [
        build_for(stacked(9, 4, 6, dense=((5, "relu"), (3, "tanh")), seed=1), device),
        build_for(stacked(1, 2, seed=2), device),
    ]
    switch(device, others, "icarus", tmp_path)


def test_hardware_does_not_depend_on_the_network() -> None:
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), NEAR)
    other = build_for(stacked(9, 4, 6, dense=((5, "relu"),), seed=1), device)
    texts = [core_to_verilog(build.manifest) for build in (device, other)]
    assert texts[0] == texts[1]


def test_a_core_without_a_program_takes_nothing(tmp_path: Path) -> None:
    """Reset takes the program away: nothing moves until it is there, and nothing is unset meanwhile."""
    device = make_device(stacked(2, 2), NEAR.replace(beat_in=1))
    folder = device.save(tmp_path / "device", core_to_verilog(device.manifest))
    from rtlstm.sim.devices import IcarusDevice
    from rtlstm.spec.errors import DeviceError
    from rtlstm.spec.registers import Register

    transport = IcarusDevice(folder, device.manifest)
    try:
        assert transport.read(Register.BUILD)[0] == device.manifest.build_number
        assert transport.read(Register.SHAPE)[0] == 0
        assert transport.read(Register.STATUS)[0] == 0
        with pytest.raises(DeviceError, match="no transfer on x or y"):
            transport.exchange(np.zeros(1, dtype=np.int64), np.zeros((1, 2), dtype=np.int64))
    finally:
        transport.close()


def random_pair(seed: int) -> tuple[Build, list[Build]]:
    """A device with capacities for three random networks."""
    rng = np.random.default_rng(seed)
    networks = [random_network(rng, (1, 2, 3, 5, 7, 11, 13, 17)) for _ in range(3)]
    parameters = random_parameters(rng)
    first = quantise(networks[0], NARROW, hardware=Hardware(headroom=12))
    needs = [compile_program(quantise(net, NARROW).shapes, parameters).needs for net in networks]
    most = {name: max(getattr(need, name) for need in needs) for name in Needs.model_fields}
    most["operations"] = max(4, most["operations"])
    parameters = with_capacity("device", first, parameters, most | {"headroom": 12})
    device = Build(first, Manifest.create("device", first.shapes, parameters, first.numerics))
    return device, [build_for(network, device) for network in networks[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("seed", range(1, 13))
def test_random_networks_share_a_core(seed: int, backend: str, tmp_path: Path) -> None:
    """Capacities just as large as the largest needs."""
    device, others = random_pair(seed)
    switch(device, others, backend, tmp_path)
