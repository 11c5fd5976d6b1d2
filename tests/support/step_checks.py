"""A case of single time steps on a simulated core: words, states, registers and cycles against golden."""

from pathlib import Path

import numpy as np

from rtlstm.host import Accelerator
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.spec.program.schedule import offer_cycles
from support.device_pair import pair
from support.netlist import netlist_build
from support.random_builds import Case


def check_device(case: Case, folder: Path, backend: str, verify: bool | None = None) -> None:
    """Play the case with stalls and without; compare words, states, registers and cycles.

    ``verify``: the driver reads the weights back. That takes Icarus longer than all the rest, so there it is
    left out if nothing is said.
    """
    case.write(folder)
    if verify is None:
        verify = backend != "icarus"
    y, results = case.golden()
    with pair(folder, backend, verify) as both:
        for stalls in (case.stalls, (0.0, 0.0)):
            both.stalls(case.seed, *stalls)
            both.write_states(case)
            np.testing.assert_array_equal(both.exchange(case.streams, case.x), y)
        check_cycles(case, both.transport, first_step=True)
        # Without some of the outputs: the others are the same, and so are the states.
        both.write_states(case)
        suppress = both.exchange(case.streams, case.x, case.suppress)
        np.testing.assert_array_equal(suppress, y * ~case.suppress[:, None])
        check_cycles(case, both.transport, first_step=True, suppress=case.suppress)
        # Once more, from the states that are there, after the window was open: every stream is warm.
        np.testing.assert_array_equal(both.exchange(case.streams, case.x), case.golden(results)[0])
        check_cycles(case, both.transport, first_step=False)


def check_netlist(case: Case, folder: Path, verify: bool = False) -> None:
    """Synthesise the case's core; its netlist gives the golden model's words, from the case's states on.

    ``verify``: the driver reads the weights back.
    """
    netlist = netlist_build(case.write(folder / "rtl"), case.manifest, folder / "netlist")
    y, _ = case.golden()
    with Accelerator.open(netlist, backend="icarus", verify=verify) as accelerator:
        for stream in range(case.manifest.parameters.streams):
            h, c = ([part[stream] for part in parts] for parts in case.state)
            accelerator.device.write_state(stream, h, c)
        assert accelerator.device.exchange(case.streams, case.x).tolist() == y.tolist()


def check_cycles(
    case: Case, transport: SimulatedDevice, first_step: bool, suppress: np.ndarray | None = None
) -> None:
    """Compare the last exchange, which nothing stalled, with the schedule, step by step."""
    cycles = transport.last_cycles
    program, parameters = case.manifest.program, case.manifest.parameters
    beats = -(-program.inputs // parameters.beat_in)
    offered = cycles.offered - (cycles.accepted[0] - (beats - 1))
    streams = case.streams.tolist()
    if case.manifest.spatial is None:
        predicted = offer_cycles(
            program, parameters, len(case.x), first_step=first_step, streams=streams, suppress=suppress
        )
    else:
        predicted = case.manifest.schedule.offered(case.streams, np.zeros(len(streams), dtype=bool))
    with_output = slice(None) if suppress is None else ~suppress
    np.testing.assert_array_equal(offered[with_output], np.asarray(predicted)[with_output])
