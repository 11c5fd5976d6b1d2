"""A case of whole sequences on a simulated core: words, states, registers and cycles against golden."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.host import Accelerator
from rtlstm.host.raw_values import to_caller
from rtlstm.host.state import State, StateLayout
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.golden import Golden, GoldenResult
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.program.sequences import sequence_lengths
from support.device_pair import pair
from support.random_sequences import SequenceCase


class _Ends:
    """Keeps the marks of what an accelerator sends last."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device

    def __getattr__(self, name: str) -> object:
        return getattr(self.device, name)

    def exchange(
        self,
        streams: IntArray,
        x: IntArray,
        suppress: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> IntArray:
        self.ends, self.suppress = ends, suppress
        return self.device.exchange(streams, x, suppress, ends)


def record(accelerator: Accelerator, device: SimulatedDevice) -> _Ends:
    """Put a recorder in the place of an accelerator's device."""
    recorder: Any = _Ends(device)
    accelerator.device._transport = recorder
    return recorder


def check_device(case: SequenceCase, folder: Path, backend: str) -> None:
    """Run the batch with stalls and without; compare words, states and cycles."""
    case.write(folder)
    golden, layout = Golden(case.network), StateLayout(case.manifest)
    *state, _ = layout.parse(case.state, len(case.lengths), raw=True)
    expected = golden.run(case.x, state, case.lengths)
    emitted = case.manifest.emitted(expected.y)
    emitted[np.arange(len(emitted))[:, None] >= case.lengths] = 0
    wanted = to_caller(emitted[..., case.manifest.schedule.output_index], case.manifest, case.x)
    wanted = wanted[..., 0] if case.manifest.gives_number else wanted
    with pair(folder, backend) as both:
        accelerator, twin = both.both
        device = both.transport
        recorder = record(accelerator, device)
        for stalls in (case.stalls, (0.0, 0.0)):
            both.stalls(1, *stalls)
            y, found = accelerator.run(case.x, case.lengths, case.state)
            np.testing.assert_array_equal(y, wanted)
            check_states(layout, found, expected)
            twin.run(case.x, case.lengths, case.state)
            both.check_registers()
        check_cycles(case, device, recorder)
        last, found = accelerator.run(case.x, case.lengths, case.state, outputs="last")
        np.testing.assert_array_equal(last, wanted[case.lengths - 1, np.arange(len(case.lengths))])
        check_states(layout, found, expected)
        check_cycles(case, device, recorder)
        twin.run(case.x, case.lengths, case.state, outputs="last")
        both.check_registers()
        _, found = accelerator.run(case.x, case.lengths, outputs="none")
        check_states(layout, found, golden.run(case.x, None, case.lengths))
        twin.run(case.x, case.lengths, outputs="none")
        both.check_registers()


def check_states(layout: StateLayout, found: State, expected: GoldenResult) -> None:
    """Compare final states, as the driver gives them."""
    wanted = layout.present(expected.h, expected.c, raw=True, batched=True)
    for parts, wanted_parts in zip(found, wanted, strict=True):
        for part, wanted_part in zip(parts, wanted_parts, strict=True):
            np.testing.assert_array_equal(part, wanted_part)


def check_cycles(case: SequenceCase, device: SimulatedDevice, recorder: _Ends) -> None:
    """Compare the last exchange with the schedule."""
    lengths = sequence_lengths(recorder.ends)
    predicted = case.manifest.schedule.cycles(lengths, recorder.suppress)
    cycles = device.last_cycles
    begins = np.cumsum([0, *lengths[:-1]])
    start = cycles.begun[0]
    np.testing.assert_array_equal(cycles.begun[begins] - start, [one.begun for one in predicted])
    found = np.where(cycles.offered < 0, -1, cycles.offered - start)
    np.testing.assert_array_equal(found, [at for one in predicted for at in one.offered])
