"""A device whose steps go through data FIFOs, on any bus; and what every such bus is tried with.

Runs inside the simulator, beside cocotb.
"""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from rtlstm.spec.registers import Interrupt, Register
from support.testbenches.bus_sequences import Device, load_network, restart


class FifoPort:
    """Feeds the FIFOs and takes what comes, in a task of its own."""

    def __init__(self, dut: Any, clock: Any, device: Device) -> None:
        self.dut, self.clock, self.device = dut, clock, device
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.queue: list[tuple[int, bool, list[int]]] = []
        self.found: list[tuple[int, list[int]]] = []
        self.due = 0
        self.pump: Any = None

    async def write(self, register: Register, word: int) -> None:
        raise NotImplementedError

    async def read(self, register: Register) -> int:
        raise NotImplementedError

    async def refuses(self, register: int, word: int | None) -> bool:
        """Say whether an access (a read, if there is no word) is answered with an error."""
        raise NotImplementedError

    def begin(self, stream: int, suppress: bool, x: list[int]) -> None:
        self.queue.append((stream, suppress, x))
        self.due += not suppress
        if self.pump is None or self.pump.done():
            self.pump = cocotb.start_soon(self.exchange())

    async def exchange(self) -> None:
        """Feed and take until all is done."""
        timeout_cycles = 1000
        while self.queue or self.due:
            timeout_cycles -= 1
            assert timeout_cycles, (len(self.queue), self.due)
            if self.queue and await self.read(Register.X_ROOM):
                stream, suppress, x = self.queue.pop(0)
                await self.write(Register.X_STREAM, stream | suppress << 31)
                for value in x:
                    await self.write(Register.X_DATA, value)
            for _ in range(await self.read(Register.Y_STEPS)):
                self.found.append(await self.take())
                self.due -= 1

    async def take(self) -> tuple[int, list[int]]:
        stream = await self.read(Register.Y_STREAM)
        y = [await self.read(Register.Y_DATA) for _ in range(self.device.manifest.program.outputs)]
        return stream, [word - (word >> 31 << 32) for word in y]

    async def outputs(self, steps: int) -> list[tuple[int, list[int]]]:
        if self.pump is not None:
            await self.pump
        found, self.found = self.found, []
        assert len(found) == steps
        return found


async def fill_fifos(port: FifoPort) -> None:
    """Steps go in until no more are taken; then their outputs come out, all of them."""
    device, x = port.device, [100, -100, 30, 40, -50]
    wanted = []
    for step in range(40):
        if not await port.read(Register.X_ROOM):
            # Room may come while the core still takes steps.
            await ClockCycles(port.clock, 4 * device.manifest.cycles.step_interval_cycles)
            if not await port.read(Register.X_ROOM):
                break
        await port.write(Register.X_STREAM, step % 3)
        for value in x:
            await port.write(Register.X_DATA, value)
        # The core has the step, or an earlier one, when the last value's write is answered.
        assert await port.read(Register.STATUS) & 1
        wanted.append((step % 3, device.step(step % 3, np.array(x))))
    assert 8 < len(wanted) < 40
    assert await port.refuses(Register.X_DATA, 1)
    found = []
    while len(found) < len(wanted):
        found += [await port.take() for _ in range(await port.read(Register.Y_STEPS))]
    assert found == wanted
    assert await port.read(Register.Y_STEPS) == 0
    assert await port.read(Register.X_ROOM) == 4
    assert await port.read(Register.LINK_ERRORS) == 1


async def load_in_mid_step(port: FifoPort) -> None:
    """Half a step, and an output that nobody has read, as another network is loaded: all after it is right.

    Without another network: nothing of them is lost.
    """
    device = port.device
    for turn in range(6):
        x = np.arange(device.manifest.program.inputs) + turn
        wanted = (0, device.step(0, x))
        await port.write(Register.X_STREAM, 0)
        for value in x.tolist():
            await port.write(Register.X_DATA, value)
        while not await port.read(Register.Y_STEPS):
            pass
        await port.write(Register.X_DATA, int(x[0]))
        errors = await port.read(Register.LINK_ERRORS)
        await load_network(port, device, device.builds[turn % len(device.builds)])
        if len(device.builds) > 1:
            assert await port.read(Register.Y_STEPS) == 0
            x = np.arange(device.manifest.program.inputs) - turn
            # No time to wait for room: the values follow the program's last word.
            await restart(port, device)
            while await port.refuses(Register.X_DATA, int(x[0]) & 0xFFFFFFFF):
                errors += 1
        else:
            # Streams have been reset; the step that had begun has its first value.
            assert await port.take() == wanted
        for value in x[1:].tolist():
            await port.write(Register.X_DATA, value)
        while not await port.read(Register.Y_STEPS):
            pass
        assert await port.take() == (0, device.step(0, x))
        assert await port.read(Register.LINK_ERRORS) == errors
        assert (await port.read(Register.Y_STEPS), await port.read(Register.X_ROOM)) == (0, 4)


async def interrupt_and_reset(port: FifoPort) -> None:
    """A step's output raises the interrupt; CONTROL forgets half a step."""
    await port.write(Register.IRQ_ENABLE, Interrupt.DONE)
    port.begin(1, False, [5] * 5)
    await RisingEdge(port.dut.irq)
    wanted = [(1, port.device.step(1, np.array([5] * 5)))]
    assert await port.outputs(1) == wanted
    await port.write(Register.IRQ_PENDING, Interrupt.DONE)
    assert port.dut.irq.value == 0
    await port.write(Register.X_DATA, 1)
    await port.write(Register.X_DATA, 2)
    await port.write(Register.CONTROL, 1)
    await ClockCycles(port.clock, 3)
    assert await port.read(Register.STEPS) == 0
    if len(port.device.builds) > 1:
        # A loadable core without a program: where would a step end?
        assert await port.read(Register.SHAPE) == await port.read(Register.X_ROOM) == 0
        assert await port.refuses(Register.X_DATA, 1)
        await restart(port, port.device)
    assert await port.read(Register.X_ROOM) == 4
    port.device.reset(range(3))
    port.begin(2, False, [5] * 5)
    assert await port.outputs(1) == [(2, port.device.step(2, np.array([5] * 5)))]
