"""Several networks in one core: which one a stream runs, bit by bit and cycle by cycle."""

from pathlib import Path

import numpy as np
import pytest
from support.loadable_builds import Build, build_for, make_device, stacked
from support.quick import quick

from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host import Accelerator
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.golden import Golden
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import step_cycles

pytestmark = pytest.mark.rtl

PARAMETERS = Parameters(lanes=8, macs=4, streams=2, beat_in=2)


@pytest.fixture(scope="module")
def device() -> Build:
    return make_device(
        stacked(3, 5, dense=((2, "sigmoid"),)), PARAMETERS, networks=2, operations=40, weight_rows=400
    )


@pytest.fixture(scope="module")
def other(device: Build) -> Build:
    return build_for(stacked(7, 4, 9, dense=((6, "relu"), (3, "identity")), seed=1), device)


@pytest.fixture(scope="module")
def folders(device: Build, other: Build, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("builds")
    verilog = core_to_verilog(device.manifest)
    return [build.save(folder / name, verilog) for name, build in (("device", device), ("other", other))]


@pytest.mark.parametrize("backend", quick(["golden", "icarus", "verilator"], "golden", "icarus"))
def test_streams_of_two_networks(backend: str, device: Build, other: Build, folders: list[Path]) -> None:
    """Steps in turn: each is its own network's, and takes the time of a first step, but no longer."""
    builds = device, other
    with Accelerator.open(folders[0], backend, verify=backend != "icarus") as accelerator:
        speech = accelerator.load(folders[1], verify=backend != "icarus", network=1)
        streams = accelerator.stream(), accelerator.stream(network=1)
        x = [build.inputs(6, seed)[:, 0] for seed, build in enumerate(builds)]
        found: list[list[IntArray]] = [[], []]
        for step in range(6):
            for network, stream in enumerate(streams):
                found[network].append(stream.step(x[network][step]))
                check_latency(speech if network else accelerator, first=step == 0, changed=step + network > 0)
        for network, build in enumerate(builds):
            np.testing.assert_array_equal(
                found[network], Golden(build.network).run(x[network][:, None]).y[:, 0]
            )
        assert speech.manifest.build_hash == other.manifest.build_hash


def check_latency(accelerator: Accelerator, *, first: bool, changed: bool) -> None:
    """Compare the last step's cycles with the schedule's."""
    manifest = accelerator.manifest
    cycles = step_cycles(manifest.program, manifest.parameters, [0], [] if first else [0], changed=changed)
    predicted = cycles[0][1] - cycles[0][0]
    assert predicted <= manifest.cycles.first_step_latency_cycles
    assert accelerator.measured_latency_cycles == predicted
    if isinstance(transport := accelerator.device.transport, SimulatedDevice):
        assert transport.last_cycles.latency.tolist() == [predicted]
