"""The cocotb module of tests/hdl/test_buses.py: an AXI4-Lite build, driven by cocotbext-axi's master."""

import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from rtlstm.spec.registers import IDENTITY, MAP_VERSION, Register
from support.testbenches.axi_testbench import AxiRegisters
from support.testbenches.bus_sequences import PERIOD, Device, check_stable, open_port, play_all
from support.testbenches.fifo_port import FifoPort, fill_fifos, interrupt_and_reset, load_in_mid_step

CHANNELS = (
    ("s_axi_bvalid", "s_axi_bready", ("s_axi_bresp",)),
    ("s_axi_rvalid", "s_axi_rready", ("s_axi_rresp", "s_axi_rdata")),
)


class AxiLitePort(AxiRegisters, FifoPort):
    """The device behind the bus model."""

    def __init__(self, dut: Any, device: Device) -> None:
        super().__init__(dut, dut.aclk, device)
        bus = AxiLiteBus.from_prefix(dut, "s_axi")
        self.master = AxiLiteMaster(bus, dut.aclk, reset=dut.aresetn, reset_active_level=False)

    async def start(self) -> None:
        self.dut.aresetn.value = 0
        Clock(self.clock, PERIOD, unit="ns").start(start_high=False)
        await ClockCycles(self.clock, 8)
        await self.go()

    async def go(self) -> None:
        self.dut.aresetn.value = 1
        # The reset reaches the registers a cycle later: the shortest ends what is offered after its own end.
        await ClockCycles(self.clock, 3)
        self.check = cocotb.start_soon(check_stable(self.dut, self.clock, CHANNELS))

    async def refuses(self, register: int, word: int | None) -> bool:
        if word is None:
            return (await self.master.read(4 * register, 4)).resp == AxiResp.SLVERR
        return (await self.master.write(4 * register, word.to_bytes(4, "little"))).resp == AxiResp.SLVERR

    async def reset(self, cycles: int) -> list[tuple[int, list[int]]]:
        if self.pump is not None:
            self.pump.cancel()
        self.check.cancel()
        self.dut.aresetn.value = 0
        await ClockCycles(self.clock, cycles)
        await self.go()
        found = self.found
        self.forget()
        return found


async def opened(dut: Any) -> AxiLitePort:
    """Reset it, weights loaded."""
    return await open_port(dut, AxiLitePort)


@cocotb.test()
async def plays_sequences(dut: Any) -> None:
    """Random sequences, random pauses on every channel: all bits are golden."""
    port = await opened(dut)
    await play_all(port, lambda seed: port.pause(seed, random.Random(seed).choice((0.0, 0.2, 0.5, 0.8))))


@cocotb.test()
async def says_what_it_is_and_refuses_the_rest(dut: Any) -> None:
    port = await opened(dut)
    assert await port.read(Register.ID) == IDENTITY
    assert await port.read(Register.VERSION) == MAP_VERSION[0] << 16 | MAP_VERSION[1]
    refused = (
        (Register.ID, 1),
        (Register.X_DATA, None),
        (Register.Y_DATA, None),
        (Register.Y_DATA, 1),
        (Register.X_STREAM, 3),
        (31, None),
    )
    for number, word in refused:
        assert await port.refuses(number, word), (number, word)
    assert await port.read(Register.LINK_ERRORS) == len(refused)
    assert await port.read(Register.X_STREAM) == 0


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def loading_in_mid_step(dut: Any) -> None:
    await load_in_mid_step(await opened(dut))


@cocotb.test()
async def full_fifos_lose_nothing(dut: Any) -> None:
    await fill_fifos(await opened(dut))


@cocotb.test()
async def interrupt_on_done_and_reset(dut: Any) -> None:
    await interrupt_and_reset(await opened(dut))
