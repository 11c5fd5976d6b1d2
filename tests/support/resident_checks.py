"""Steps of several networks on one core, against the golden model and the schedule."""

from pathlib import Path
from typing import Literal

import numpy as np

from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host import Accelerator
from rtlstm.host.raw_values import Steps
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.golden import Golden
from rtlstm.spec.parameters import NETWORK_BIT
from rtlstm.spec.program.schedule import NetworkStep, resident_cycles
from rtlstm.spec.registers import Register
from support.loadable_builds import Build


def check_steps(
    builds: list[Build],
    rng: np.random.Generator,
    seed: int,
    backend: Literal["icarus", "verilator"],
    folder: Path,
) -> None:
    """Run steps of three networks on the core of the first, back to back: bits and cycles of each."""
    device = builds[0]
    parameters = device.manifest.parameters
    count = parameters.streams
    verilog = core_to_verilog(device.manifest)
    folders = [build.save(folder / str(number), verilog) for number, build in enumerate(builds)]
    streams = rng.integers(0, count, 40) if seed % 2 else np.repeat(rng.integers(0, count, 10), 4)
    chosen = streams % 3 if seed % 3 else rng.integers(0, 3, 40)
    form = device.network.numerics.input
    x = rng.integers(form.lowest, form.maximum, (40, device.network.inputs), endpoint=True)
    with Accelerator.open(folders[0], backend, verify=False) as accelerator:
        for network in (1, 2):
            accelerator.load(folders[network], verify=False, network=network)
        transport = accelerator.device.transport
        assert isinstance(transport, SimulatedDevice)
        # Its first operation is loaded then.
        transport.read(Register.ID, 8)
        marks = np.zeros(40, dtype=bool)
        y = transport.run_steps(Steps(chosen << NETWORK_BIT | streams, x, marks, marks))
        cycles = transport.last_cycles
    steps = [
        NetworkStep(int(stream), int(network), builds[network].manifest.program)
        for stream, network in zip(streams, chosen, strict=True)
    ]
    predicted = resident_cycles(steps, device.manifest.parameters, device.manifest.timing)
    begins = cycles.accepted[0] - (-(-x.shape[1] // parameters.beat_in) - 1)
    assert (cycles.offered - begins).tolist() == [offered for _, offered in predicted]
    since: dict[int, tuple[int, list[int]]] = {}
    for index, step in enumerate(steps):
        network, run = since.get(step.stream, (-1, []))
        since[step.stream] = step.network, [*(run if network == step.network else []), index]
        wanted = Golden(builds[step.network].network).run(x[since[step.stream][1]][:, None]).y[-1]
        np.testing.assert_array_equal(y[index], device.manifest.emitted(wanted)[0])
