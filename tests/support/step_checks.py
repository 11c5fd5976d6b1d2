"""A case of single time steps on a simulated core: words, states, registers and cycles against golden."""

from pathlib import Path

import numpy as np

from rtlstm.sim.devices import SimulatedDevice
from rtlstm.spec.program.schedule import offer_cycles
from support.device_pair import pair
from support.random_builds import Case


def check_device(case: Case, folder: Path, backend: str, verify: bool = True) -> None:
    """Play the case with stalls and without; compare words, states, registers and cycles.

    ``verify``: the driver reads the weights back, which takes a simulator as long as all the rest.
    """
    case.write(folder)
    y, results = case.golden()
    with pair(folder, backend, verify) as both:
        for stalls in (case.stalls, (0.0, 0.0)):
            both.stalls(case.seed, *stalls)
            both.write_states(case)
            np.testing.assert_array_equal(both.exchange(case.streams, case.x), y)
        check_cycles(case, both.transport, cold=True)
        # Without some of the outputs: the others are the same, and so are the states.
        both.write_states(case)
        quiet = both.exchange(case.streams, case.x, case.quiet)
        np.testing.assert_array_equal(quiet, y * ~case.quiet[:, None])
        check_cycles(case, both.transport, cold=True, quiet=case.quiet)
        # Once more, from the states that are there, after the window was open: every stream is warm.
        np.testing.assert_array_equal(both.exchange(case.streams, case.x), case.golden(results)[0])
        check_cycles(case, both.transport, cold=False)


def check_cycles(case: Case, transport: SimulatedDevice, cold: bool, quiet: np.ndarray | None = None) -> None:
    """Compare the last exchange, which nothing stalled, with the schedule, step by step."""
    cycles = transport.last_cycles
    program, parameters = case.manifest.program, case.manifest.parameters
    beats = -(-program.inputs // parameters.beat_in)
    offered = cycles.offered - (cycles.accepted[0] - (beats - 1))
    streams = case.streams.tolist()
    predicted = offer_cycles(program, parameters, len(case.x), cold=cold, streams=streams, quiet=quiet)
    loud = slice(None) if quiet is None else ~quiet
    np.testing.assert_array_equal(offered[loud], np.asarray(predicted)[loud])
