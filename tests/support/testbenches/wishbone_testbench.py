"""The cocotb module of tests/hdl/test_buses.py: a Wishbone build under cocotbext-wishbone's master."""

import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from cocotbext.wishbone.driver import WBOp, WishboneMaster

from rtlstm.spec.registers import IDENTITY, Interrupt, Register
from support.testbenches.bus_sequences import PERIOD, Device, open_port, play_all
from support.testbenches.fifo_port import FifoPort, fill_fifos, interrupt_and_reset, load_in_mid_step

ACK, ERR = 1, 2


class PipelinedMaster(WishboneMaster):
    """Looks at ``stall``."""

    _optional_signals = ("sel", "err", "stall")


class ClassicMaster(WishboneMaster):
    """Knows no ``stall``."""

    _optional_signals = ("sel", "err")


class WishbonePort(FifoPort):
    """The device behind a bus master."""

    def __init__(self, dut: Any, device: Device) -> None:
        super().__init__(dut, dut.clk, device)
        self.random, self.idle = random.Random(1), 0
        self.use(ClassicMaster)

    def use(self, kind: type[WishboneMaster]) -> None:
        names = {name: name for name in ("cyc", "stb", "we", "adr", "ack")}
        names |= {"datwr": "dat_w", "datrd": "dat_r"}
        self.kind = kind
        self.master = kind(self.dut, "wb", self.clock, signals_dict=names, timeout=2000)
        self.forget()

    async def start(self) -> None:
        self.dut.rst.value = 1
        self.dut.wb_cyc.value = self.dut.wb_stb.value = 0
        Clock(self.clock, PERIOD, unit="ns").start(start_high=False)
        await ClockCycles(self.clock, 8)
        self.dut.rst.value = 0
        await ClockCycles(self.clock, 2)

    async def access(self, number: int, word: int | None = None, sel: int = 0xF) -> tuple[int, int]:
        """One transfer; return the answer and the word read."""
        idle = self.random.randint(0, self.idle)
        (result,) = await self.master.send_cycle([WBOp(number, word, idle=idle, sel=sel, acktimeout=2000)])
        return result.ack, 0 if word is not None else result.datrd.to_unsigned()

    async def write(self, register: Register, word: int) -> None:
        answer, _ = await self.access(register, word & 0xFFFFFFFF)
        assert answer == ACK, (register, answer)

    async def read(self, register: Register) -> int:
        answer, word = await self.access(register)
        assert answer == ACK, (register, answer)
        return word

    async def refuses(self, register: int, word: int | None) -> bool:
        return (await self.access(register, word))[0] == ERR

    async def reset(self, cycles: int) -> list[tuple[int, list[int]]]:
        if self.pump is not None:
            self.pump.cancel()
        self.master.busy = False
        self.dut.rst.value = 1
        self.dut.wb_cyc.value = self.dut.wb_stb.value = 0
        await ClockCycles(self.clock, cycles)
        self.dut.rst.value = 0
        await ClockCycles(self.clock, 3)
        found = self.found
        self.use(self.random.choice((ClassicMaster, PipelinedMaster)))
        return found


async def opened(dut: Any) -> WishbonePort:
    """Reset it, weights loaded."""
    # Icarus does not hear of what the master sets before the simulation has begun.
    await Timer(PERIOD, unit="ns")
    return await open_port(dut, WishbonePort)


@cocotb.test()
async def plays_sequences(dut: Any) -> None:
    """Random sequences, random pauses, classic and pipelined masters: all bits are golden."""
    port = await opened(dut)

    def prepare(seed: int) -> None:
        port.use((ClassicMaster, PipelinedMaster)[seed % 2])
        port.idle = random.Random(seed).choice((0, 1, 5))

    await play_all(port, prepare)


@cocotb.test()
async def refused_accesses_are_errors(dut: Any) -> None:
    port = await opened(dut)
    refused = 0
    for kind in (ClassicMaster, PipelinedMaster):
        port.use(kind)
        for number, word, sel in (
            (Register.ID, 1, 0xF),
            (Register.X_DATA, None, 0xF),
            (Register.Y_DATA, None, 0xF),
            (Register.Y_DATA, 1, 0xF),
            (Register.X_STREAM, 3, 0xF),
            (Register.IRQ_ENABLE, 3, 0b0001),
            (Register.ID, None, 0b0011),
            (31, None, 0xF),
        ):
            assert (await port.access(number, word, sel))[0] == ERR, (number, word, sel)
            refused += 1
            assert await port.read(Register.ID) == IDENTITY
    assert await port.read(Register.LINK_ERRORS) == refused
    assert await port.read(Register.IRQ_ENABLE) == 0
    assert await port.read(Register.X_STREAM) == 0
    assert await port.read(Register.IRQ_PENDING) == Interrupt.LINK_ERROR


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def loading_in_mid_step(dut: Any) -> None:
    await load_in_mid_step(await opened(dut))


@cocotb.test()
async def full_fifos_lose_nothing(dut: Any) -> None:
    await fill_fifos(await opened(dut))


@cocotb.test()
async def interrupt_on_done_and_reset(dut: Any) -> None:
    await interrupt_and_reset(await opened(dut))


@cocotb.test()
async def transfers_given_up_answer_nobody(dut: Any) -> None:
    """A master that withdraws its request in any cycle does not hear of it in the next one."""
    port = await opened(dut)
    for cycles in range(1, 12):
        dut.wb_cyc.value = dut.wb_stb.value = 1
        dut.wb_we.value, dut.wb_adr.value, dut.wb_sel.value = 0, int(Register.STEPS), 0xF
        for _ in range(cycles):
            await RisingEdge(port.clock)
            if dut.wb_ack.value == 1:
                break
        dut.wb_cyc.value = dut.wb_stb.value = 0
        await ClockCycles(port.clock, port.random.randint(1, 3))
        assert await port.read(Register.ID) == IDENTITY, cycles
        assert await port.read(Register.BUILD) == port.device.manifest.build_number, cycles


@cocotb.test()
async def timing_is_as_documented(dut: Any) -> None:
    port = await opened(dut)
    for register, write, wanted in (
        (Register.IRQ_ENABLE, 0, 3),
        (Register.IRQ_ENABLE, 1, 3),
        (Register.STREAM, 1, 4),
        (Register.STREAM, 0, 7),
    ):
        dut.wb_we.value, dut.wb_adr.value, dut.wb_sel.value = write, int(register), 0xF
        dut.wb_dat_w.value = 0
        dut.wb_cyc.value = dut.wb_stb.value = 1
        cycles = -1
        while True:
            await RisingEdge(port.clock)
            cycles += 1
            if dut.wb_ack.value == 1:
                break
        dut.wb_cyc.value = dut.wb_stb.value = 0
        assert cycles == wanted, (register, write, cycles)
        await ClockCycles(port.clock, 2)
