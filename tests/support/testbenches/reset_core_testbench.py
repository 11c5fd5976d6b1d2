"""The cocotb module of tests/test_cocotb.py that resets a core without a bus at awkward moments."""

from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from rtlstm.cocotb import Core
from rtlstm.spec.registers import Register


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
