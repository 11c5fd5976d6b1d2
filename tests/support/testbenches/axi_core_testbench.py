"""The cocotb module of tests/test_cocotb.py for what only an AXI build has: answers that come late."""

from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from rtlstm.cocotb import Core
from rtlstm.sim.cocotb_ports import AxiLiteRegisters, AxiStreams
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.registers import Command, Register


@cocotb.test()
async def a_write_counts_when_the_core_takes_it(dut: Any) -> None:
    """A step that follows a write is judged by it, though the bus has not answered the write yet."""
    core = await Core.open(dut)
    assert isinstance(core.registers, AxiLiteRegisters) and isinstance(core.streams, AxiStreams)
    stream, layer = await core.stream(), core.manifest.layers[-1]
    x = np.arange(4 * core.manifest.program.inputs).reshape(4, -1)
    first, *_, last = await stream.steps(x)
    assert (first != last).any()
    await core.write(Register.STREAM, stream.stream.number)
    answers = core.registers.master.write_if.b_channel
    answers.clear_pause_generator()
    answers.pause = True
    writing = cocotb.start_soon(core.write(Register.COMMAND, Command.RESET))
    while not (core.core.bus_valid.value and core.core.bus_ready.value):
        await RisingEdge(core.clock.signal)
    core.streams.source.send_nowait(core.streams.frame(stream.stream.number, False, x[0].tolist()))
    assert (await core.output() == layer.output.to_floats(first)).all()
    assert not writing.done()
    answers.pause = False
    await writing


@cocotb.test()
async def packets_that_come_after_the_call(dut: Any) -> None:
    """A call that ends with an error, or a step sent by hand, leaves no packet that the next one takes."""
    core = await Core.open(dut)
    assert isinstance(core.streams, AxiStreams)
    sink, stream = core.streams.sink, await core.stream()
    x = np.arange(8 * core.manifest.program.inputs).reshape(8, -1)
    wanted = await stream.steps(x)
    core.scoreboard.ports = replace(core.scoreboard.ports, timeout_cycles=500)
    for count in (1, 8):
        await stream.reset()
        sink.clear_pause_generator()
        sink.pause = True
        with pytest.raises(DeviceError, match="it offers one, but y_ready is 0|not all have come out"):
            await stream.steps(x[:count])
        sink.pause = False
        await core.drain()
        await stream.reset()
        assert (await stream.steps(x[3:]) != wanted[3:]).any()
        await stream.reset()
        assert (await stream.steps(x) == wanted).all()
    await stream.reset()
    core.streams.source.send_nowait(core.streams.frame(stream.stream.number, False, x[7].tolist()))
    await ClockCycles(core.clock.signal, core.scoreboard.ports.beats_in + 8)
    await core.drain()
    await stream.reset()
    assert (await stream.steps(x) == wanted).all()
