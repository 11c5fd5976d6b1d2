"""The cocotb module of tests/test_cocotb.py: rtlstm.cocotb on a small build, with any bus."""

import warnings
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from rtlstm.cocotb import Core
from rtlstm.host.raw_values import CodesWarning
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.inventory import WAITING_STEPS
from rtlstm.spec.registers import IDENTITY, Register


@cocotb.test()
async def equals_golden_to_the_cycle(dut: Any) -> None:
    core = await Core.open(dut)
    assert await core.check(steps=3) > 0
    board = core.scoreboard
    assert board.cycles == board.steps > 0
    before = board.cycles
    core.stall(x=0.4, seed=3)
    await core.check(steps=3, seed=1)
    if core.streams is None:
        # Reads that wait fill the wrapper's FIFO, which then holds the core's outputs back.
        assert before < board.cycles <= board.steps
        await check_steps_that_fit(core)
    else:
        assert board.cycles == board.steps, "stalled inputs are part of the prediction"
    core.stall(x=0.3, y=0.4, seed=3)
    await core.check(steps=3, seed=2)
    assert board.words == board.steps * core.manifest.outputs


async def check_steps_that_fit(core: Core) -> None:
    """As many steps as a wrapper's FIFO holds are exact, however long they wait there."""
    board = core.scoreboard
    stream, x = await core.stream(), np.zeros((WAITING_STEPS, core.manifest.program.inputs))
    for count in (1, WAITING_STEPS, 1, 1):
        before = board.cycles
        await stream.steps(x[:count])
        assert board.cycles == before + count
    await stream.close()


@cocotb.test()
async def driver_drives_it(dut: Any) -> None:
    warnings.simplefilter("ignore", CodesWarning)
    core = await Core.open(dut)
    assert await core.read(Register.ID) == IDENTITY
    await core.write(Register.ROW, 1, 2)
    assert await core.read(Register.ROW) == 2
    x = np.linspace(-1, 1, 2 * core.manifest.program.inputs).reshape(2, -1)
    first = await core.sequence(x)
    state = await core.state()
    after = await core.step(x[0])
    await core.set_state(state)
    assert (await core.step(x[0]) == after).all()
    async_stream = await core.stream()
    assert (await async_stream.steps(x) == first).all()
    await async_stream.reset()
    assert (await async_stream.step(x[0]) == first[0]).all()
    await async_stream.close()
    y, _ = await core.run(x, outputs="last")
    assert (y == first[-1]).all()
    batched = 0 if core.manifest.batch_first else 1
    y, _ = await core.run(np.expand_dims(x, batched))
    assert (np.squeeze(y, batched) == first).all()
    await core.reset()
    assert (await core.sequence(x) == first).all()
    assert await core.call(lambda driver: driver.measured_latency_cycles) > 0


async def error_of(work: Any) -> str:
    """Return the DeviceError that a call must end with."""
    with pytest.raises(DeviceError) as caught:
        await work
    return str(caught.value)


async def pulse_reset(core: Core) -> None:
    """Reset a core as a test does that drives the port itself."""
    name, active = ("aresetn", 0) if hasattr(core.dut, "aresetn") else ("rst", 1)
    signal = getattr(core.dut, name)
    for value in (active, 1 - active):
        signal.value = value
        await ClockCycles(core.clock.signal, 8)


@cocotb.test()
async def resets_amid_sequences(dut: Any) -> None:
    """Each call ends with one error, what was under way is forgotten, and what follows is exact."""
    core = await Core.open(dut)
    board = core.scoreboard
    x = np.linspace(-1, 1, 40 * core.manifest.program.inputs).reshape(40, -1)
    first = await core.sequence(x[:3])
    for stalls, outputs, by_hand in ((0.0, 0, False), (0.0, 2, True), (0.4, 1, True), (0.4, 2, False)):
        stream = await core.stream()
        core.stall(x=stalls, y=stalls)
        calls = [cocotb.start_soon(error_of(call)) for call in (core.sequence(x), stream.step(x[0]))]
        begun, given = board.steps, board.words
        while board.steps == begun or board.words < given + outputs * core.manifest.outputs:
            await ClockCycles(core.clock.signal, 5)
        if by_hand:
            await pulse_reset(core)
        else:
            await core.reset()
        for call in calls:
            assert "must not be reset while a call is under way" in await call
        if by_hand:
            await core.call(lambda driver: driver.close_streams())
        assert not board.due and not board.beats_in
        core.stall()
        before = board.steps - board.cycles
        assert (await core.sequence(x[:3]) == first).all()
        assert board.steps - board.cycles == before
