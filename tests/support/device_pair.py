"""A simulated core beside the golden device: what both are told, and what both must answer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rtlstm.host import Accelerator
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.registers import Register
from support.random_builds import Case

STATE_FLAGS = 3
"""Bits of FLAGS that do not depend on time: the state is zero; the recurrent part is not ready."""


class Pair:
    """A simulated core and the golden device, which are told the same and must answer alike."""

    def __init__(self, core: Accelerator, golden: Accelerator) -> None:
        self.both = core, golden
        transport = core.device.transport
        assert isinstance(transport, SimulatedDevice)
        self.transport = transport
        self.stalled = False

    def write_states(self, case: Case) -> None:
        """Set every stream's state, one after the other."""
        for stream in range(case.manifest.parameters.streams):
            h, c = ([part[stream] for part in parts] for parts in case.state)
            self.write_state(stream, h, c)

    def write_state(self, stream: int, h: Sequence[IntArray], c: Sequence[IntArray]) -> None:
        """Set a stream's state; the others keep theirs."""
        for accelerator in self.both:
            accelerator.device.write_state(stream, h, c)
        self.check_flags()

    def exchange(self, streams: IntArray, x: IntArray, suppress: np.ndarray | None = None) -> IntArray:
        """Run steps; return the golden y. Outputs, states and what registers count are equal."""
        y, wanted = (accelerator.device.exchange(streams, x, suppress) for accelerator in self.both)
        np.testing.assert_array_equal(y, wanted)
        self.check_states()
        self.check_registers()
        return wanted

    def check_states(self) -> None:
        """Compare the states of all streams; the core is at rest then."""
        for stream in range(self.both[0].manifest.parameters.streams):
            states = [accelerator.device.read_state(stream) for accelerator in self.both]
            for core, golden in zip(*((*h, *c) for h, c in states), strict=True):
                np.testing.assert_array_equal(core, golden)

    def check_registers(self) -> None:
        """Compare flags and what is counted, of cores that are at rest."""
        self.check_flags()
        self.check_counters()

    def check_flags(self) -> None:
        """Compare the flags of all streams, of cores that are at rest."""
        for stream in range(self.both[0].manifest.parameters.streams):
            found = []
            for accelerator in self.both:
                accelerator.device.transport.write(Register.STREAM, [stream])
                found.append(accelerator.device.register(Register.FLAGS) & STATE_FLAGS)
            assert found[0] == found[1], f"FLAGS of stream {stream}"

    def check_counters(self) -> None:
        """Compare what the core counts; LATENCY only if nobody stalled."""
        registers = [Register.STEPS, Register.CELL_SATURATIONS]
        if not self.stalled:
            registers.append(Register.LATENCY)
        for register in registers:
            core, golden = (accelerator.device.register(register) for accelerator in self.both)
            assert core == golden, register.name

    def stalls(self, seed: int, p_in: float, p_out: float) -> None:
        """Stall the simulated core's ports at random; see :meth:`SimulatedDevice.stalls`."""
        self.stalled = p_in > 0 or p_out > 0
        self.transport.stalls(seed, p_in, p_out)


@contextmanager
def pair(folder: Path, backend: str, verify: bool = False) -> Iterator[Pair]:
    """Open a build in a simulator, and in the golden device."""
    with (
        Accelerator.open(folder, backend=backend, verify=verify) as core,
        Accelerator.open(folder, backend="golden") as golden,
    ):
        yield Pair(core, golden)
