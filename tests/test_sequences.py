"""Networks with reverse directions: golden model, Icarus and Verilator agree on every bit and every cycle."""

from pathlib import Path

import numpy as np
import pytest
from random_sequences import SequenceCase, random_sequence_case

from rtlstm.host import Accelerator
from rtlstm.sim.devices import SimulatedDevice
from rtlstm.sim.golden import Golden
from rtlstm.spec.sequence_schedule import sequence_cycles, sequence_lengths

TINY = (1, 2, 3, 4)
SMALL = (1, 2, 3, 5, 7, 11, 13)
LARGE = (17, 23, 32, 41, 64)
FAST = (301, 302, 303)


class _Ends:
    """Keeps the marks of what an accelerator sends last."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device

    def __getattr__(self, name: str) -> object:
        return getattr(self.device, name)

    def exchange(self, streams, x, quiet=None, ends=None):  # type: ignore[no-untyped-def]
        self.ends, self.quiet = ends, quiet
        return self.device.exchange(streams, x, quiet, ends)


def check_device(case: SequenceCase, folder: Path, backend: str) -> None:
    """Run the batch with stalls and without; compare words, states and cycles."""
    case.write(folder)
    expected = Golden(case.network).run(case.x, case.state, case.lengths)
    state = case.state
    with Accelerator.open(folder, backend=backend, verify=False) as accelerator:
        device = accelerator.device.transport
        assert isinstance(device, SimulatedDevice)
        accelerator.device._transport = recorder = _Ends(device)  # type: ignore[assignment]
        for stalls in (case.stalls, (0.0, 0.0)):
            device.stalls(1, *stalls)
            y, (h, c) = accelerator.run(case.x, case.lengths, state)
            np.testing.assert_array_equal(y, expected.y)
            for got, want in zip((*h, *c), (*expected.h, *expected.c), strict=True):
                np.testing.assert_array_equal(got, want)
        check_cycles(case, device, recorder)
        last, (h, c) = accelerator.run(case.x, case.lengths, state, outputs="last")
        np.testing.assert_array_equal(last, expected.y[case.lengths - 1, np.arange(len(case.lengths))])
        for got, want in zip((*h, *c), (*expected.h, *expected.c), strict=True):
            np.testing.assert_array_equal(got, want)
        check_cycles(case, device, recorder)
        _, (h, c) = accelerator.run(case.x, case.lengths, outputs="none")
        zeros = Golden(case.network).run(case.x, None, case.lengths)
        for got, want in zip((*h, *c), (*zeros.h, *zeros.c), strict=True):
            np.testing.assert_array_equal(got, want)


def check_cycles(case: SequenceCase, device: SimulatedDevice, recorder: _Ends) -> None:
    """Compare the last exchange with the schedule."""
    manifest = case.manifest
    lengths = sequence_lengths(recorder.ends.tolist())
    plan = manifest.sequence
    assert plan is not None
    predicted = sequence_cycles(manifest.program, plan, manifest.parameters, lengths, recorder.quiet)
    cycles = device.last_cycles
    begins = np.cumsum([0, *lengths[:-1]])
    start = cycles.begun[0]
    np.testing.assert_array_equal(cycles.begun[begins] - start, [one.begun for one in predicted])
    found = np.where(cycles.offered < 0, -1, cycles.offered - start)
    np.testing.assert_array_equal(found, [at for one in predicted for at in one.offered])


@pytest.mark.parametrize("seed", FAST)
def test_icarus_equals_golden(seed: int, tmp_path: Path) -> None:
    check_device(random_sequence_case(seed, TINY, steps=4), tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 41))
def test_sweep_of_icarus(seed: int, tmp_path: Path) -> None:
    check_device(random_sequence_case(seed, SMALL), tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(101, 113))
def test_sweep_of_verilator(seed: int, tmp_path: Path) -> None:
    check_device(random_sequence_case(seed, LARGE, steps=20), tmp_path, "verilator")
