"""The cocotb module of tests/test_cocotb.py: rtlstm.cocotb on a small build, with any bus."""

import warnings
from typing import Any

import cocotb
import numpy as np

from rtlstm.cocotb import Core
from rtlstm.host.raw_values import CodesWarning
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
    else:
        assert board.cycles == board.steps, "stalled inputs are part of the prediction"
    core.stall(x=0.3, y=0.4, seed=3)
    await core.check(steps=3, seed=2)
    assert board.words == board.steps * core.manifest.outputs


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
    await core.reset()
    assert (await core.sequence(x) == first).all()
    assert await core.call(lambda driver: driver.measured_latency_cycles) > 0
