"""Cycles of single steps on a simulated core, measured through the driver."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.host import Accelerator
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.spec.registers import Register

SETTLE_STEPS = 8
"""Steps at the start of a sequence that are not yet back to back."""


class Latencies(NamedTuple):
    """Cycles from a step's last input beat to its last output beat."""

    first_step: int
    """Latency of the first step after a reset."""
    warm: int
    """Latency of a step whose recurrent part was ready."""


def wait_for_core(accelerator: Accelerator) -> None:
    """Wait until the core has finished what it computes after a step."""
    # Every bus read takes a cycle or more.
    cycles = 2 * accelerator.manifest.cycles.step_interval_cycles
    accelerator.device.transport.read(Register.CYCLES, cycles)


def measure_latencies(accelerator: Accelerator, x: ArrayLike) -> Latencies:
    """Run ``x``, one step's inputs, twice on a new stream."""
    with accelerator.stream() as stream:
        stream.step(x)
        first_step = accelerator.measured_latency_cycles
        wait_for_core(accelerator)
        stream.step(x)
        return Latencies(first_step, accelerator.measured_latency_cycles)


def last_intervals(accelerator: Accelerator) -> set[int]:
    """Cycles from step to step in the last exchange of one stream, once steps are back to back."""
    device = accelerator.device.transport
    assert isinstance(device, SimulatedDevice)
    return set(np.diff(device.last_cycles.offered)[SETTLE_STEPS - 1 :].tolist())
