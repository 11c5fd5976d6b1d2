"""The cocotb module of tests/test_cocotb.py that resets a core without a bus at awkward moments.

And what follows a call that has ended with an error.
"""

from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.simtime import get_sim_time
from cocotb.triggers import ClockCycles, Event, RisingEdge, with_timeout

from rtlstm.cocotb import Core
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.registers import IDENTITY, Register


async def send(core: Core, value: int) -> None:
    """Send a step whose words are all the same."""
    dut = core.dut
    dut.x_data.value, dut.x_valid.value = value, 1
    for _ in range(core.scoreboard.ports.beats_in):
        await RisingEdge(dut.clk)
        while not dut.x_ready.value:
            await RisingEdge(dut.clk)
    dut.x_valid.value = 0


@cocotb.test()
@cocotb.parametrize(again=[False, True])
async def output_that_a_reset_takes_back(dut: Any, again: bool) -> None:
    """The output that was offered before the reset is gone, and the next one is another."""
    core = await Core.open(dut)
    dut.y_ready.value = 0
    await send(core, 0x55)
    await ClockCycles(dut.clk, 400)
    assert dut.y_valid.value
    await core.reset()
    if again:
        await send(core, 0x23)
        await ClockCycles(dut.clk, 400)
        assert dut.y_valid.value
    dut.y_ready.value = 1
    await ClockCycles(dut.clk, 20)
    await send(core, 0x31)
    await core.drain()
    assert core.scoreboard.words == (1 + again) * core.manifest.outputs


@cocotb.test()
@cocotb.parametrize(cycles=[3, 4])
async def requests_right_after_a_reset(dut: Any, cycles: int) -> None:
    """Every request that the core takes is seen, from the first cycle after its reset on."""
    core = Core(dut, core=dut)
    await core.start()
    seen: list[int] = []
    core.scoreboard.wrote = lambda register, word, cycle: seen.append(register)  # type: ignore[method-assign]
    dut.bus_address.value, dut.bus_write.value, dut.bus_data.value = Register.ROW, 1, 0
    dut.rst.value, dut.bus_valid.value = 1, 1
    await ClockCycles(dut.clk, cycles)
    dut.rst.value = 0
    taken = 0
    for _ in range(12):
        await RisingEdge(dut.clk)
        taken += int(dut.bus_ready.value)
    dut.bus_valid.value = 0
    await RisingEdge(dut.clk)
    assert seen == [Register.ROW] * taken and taken > 0


@cocotb.test()
async def outputs_that_come_after_the_call(dut: Any) -> None:
    """A call that ends with an error leaves nothing that the next one takes for its output."""
    core = await Core.open(dut)
    x = np.linspace(-1, 1, 5 * core.manifest.program.inputs).reshape(5, -1)
    stream = await core.stream()
    wanted = (await stream.steps(x))[-1]
    core.scoreboard.ports = replace(core.scoreboard.ports, timeout_cycles=500)
    for steps, reset in ((1, True), (4, False), (4, True)):
        await stream.reset()
        dut.y_ready.value = 0
        with pytest.raises(DeviceError, match="it offers one, but y_ready is 0"):
            await stream.steps(x[:steps])
        with pytest.raises(DeviceError, match="but has [1-4] of an earlier call, .*; drain or reset first"):
            await stream.step(x[4])
        dut.y_ready.value = 1
        if reset:
            await ClockCycles(dut.clk, 400 // steps)
            await core.reset()
            stream = await core.stream()
        else:
            await core.drain()
            await stream.reset()
        assert ((await stream.steps(x))[-1] == wanted).all()


@cocotb.test()
async def step_by_hand_before_a_call(dut: Any) -> None:
    """The call waits for no output of the other step, and takes none."""
    core = await Core.open(dut)
    x = np.linspace(-1, 1, core.manifest.program.inputs)
    stream = await core.stream()
    wanted = await stream.step(x)
    await stream.reset()
    await send(core, 0x11)
    with pytest.raises(DeviceError, match="but has 1 of an earlier call, or sent by hand; drain"):
        await stream.step(x)
    assert (await core.output() != wanted).any()
    await send(core, 0x11)
    await core.drain()
    await stream.reset()
    assert (await stream.step(x) == wanted).all()
    dut.x_valid.value = 1
    await RisingEdge(dut.clk)
    dut.x_valid.value = 0
    with pytest.raises(DeviceError, match="a part is missing; send it, or reset first"):
        await stream.step(x)


@cocotb.test()
async def reset_that_is_cancelled(dut: Any) -> None:
    """It ends where it is cancelled, and the calls that wait for its end go on."""
    core = await Core.open(dut)
    resetting = cocotb.start_soon(core.reset(1000))
    await ClockCycles(dut.clk, 10)
    assert dut.rst.value
    reading = cocotb.start_soon(core.read(Register.ID))
    await RisingEdge(dut.clk)
    resetting.cancel()
    await ClockCycles(dut.clk, 2)
    assert not dut.rst.value
    assert await with_timeout(reading, 1, "us") == await core.read(Register.ID) == IDENTITY


@cocotb.test()
async def reset_without_a_port(dut: Any) -> None:
    """A design that cannot be reset goes on."""
    core = await Core.open(dut)
    core._reset_name = None
    with pytest.raises(ConfigurationError, match="must have a reset to be reset"):
        await core.reset()
    assert await with_timeout(cocotb.start_soon(core.read(Register.ID)), 1, "us") == IDENTITY


@cocotb.test()
async def what_is_written_after_a_wait_that_was_too_long(dut: Any) -> None:
    """It is written after an edge, like all else."""
    core = Core(dut)
    await core.start(load=False)
    await RisingEdge(dut.clk)
    before = get_sim_time("step")
    await RisingEdge(dut.clk)
    period = get_sim_time("step") - before
    assert not await core.clock.wait(Event().wait(), 5)
    assert dut.clk.value
    assert get_sim_time("step") - before in (6 * period, 7 * period)
