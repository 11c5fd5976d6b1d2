"""cocotb tests of a board's SPI, by another project's master; ``tests/boards/test_spi.py`` runs them."""

import os
from pathlib import Path

import cocotb
import cocotb.clock
from cocotb.clock import Clock
from cocotb.triggers import Timer
from cocotb.types import Logic

from rtlstm.boards.catalogue import find_board
from rtlstm.host.link.framing import Deframer, Frame
from rtlstm.sim.cocotb_run import BUILD_VARIABLE
from rtlstm.spec.link import RESET_STATE, FrameType, LinkReport
from rtlstm.spec.manifest import Manifest
from support.raw_transfers import input_bytes, raw_step, result_bytes, result_in


class BaseClock:
    """What cocotb 1 had: cocotbext-spi 0.5 derives its clock from it."""

    def __init__(self, signal) -> None:
        self.signal = signal


cocotb.clock.BaseClock, Logic.integer = BaseClock, property(int)
from cocotbext.spi import SpiBus, SpiConfig, SpiMaster  # noqa: E402

HALF_NS = 20
"""Half a bit at the fastest clock."""
SPARE = 30
"""Bytes behind a step in which it is run."""
PAUSE_NS = 400
"""Between two selections: more than eight cycles of the link."""


class Host:
    """Another project's master, with one of the two selections."""

    def __init__(self, dut) -> None:
        manifest = Manifest.load(Path(os.environ[BUILD_VARIABLE]))
        self.dut, self.number, self.before = dut, 0, 0
        self.step = raw_step(bytes(range(1, 1 + input_bytes(manifest))), RESET_STATE)
        self.size = result_bytes(manifest)
        self.result = b""

    async def exchange(
        self, data: bytes, *, raw: bool = True, mode: int = 0, bits: int | None = None, mhz: float = 25
    ) -> bytes:
        """Exchange bytes in one selection, or their first bits alone."""
        count = 8 * len(data) if bits is None else bits
        word = int.from_bytes(data, "big") >> (8 * len(data) - count)
        came = await self._write([word], count, raw, mode, mhz)
        return (came[0] << (-count % 8)).to_bytes(-(-count // 8), "big")

    async def exchange_with_gaps(self, data: bytes, *, raw: bool = True) -> bytes:
        """Exchange bytes in one selection with pauses between them."""
        return bytes(await self._write(data, 8, raw, 0, 25))

    async def _write(self, words, width: int, raw: bool, mode: int, mhz: float) -> list[int]:
        config = SpiConfig(
            word_width=width,
            sclk_freq=mhz * 1e6,
            cpol=bool(mode & 2),
            cpha=bool(mode & 1),
            frame_spacing_ns=PAUSE_NS,
            data_output_idle=0,
        )
        selects = "raw_cs_n" if raw else "cs_n"
        bus = SpiBus(self.dut, "spi", sclk_name="sck", cs_name=selects)
        master = SpiMaster(bus, config)
        await Timer(PAUSE_NS, "ns")
        await master.write(words, burst=True)
        found = list(master.read_nowait())
        self.dut.spi_sck.value = 0
        await Timer(PAUSE_NS, "ns")
        return found

    async def edges(self, data: bytes) -> None:
        """Bits of bytes without a selection."""
        for bit in f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}":
            self.dut.spi_mosi.value = int(bit)
            await Timer(HALF_NS, "ns")
            self.dut.spi_sck.value = 1
            await Timer(HALF_NS, "ns")
            self.dut.spi_sck.value = 0

    async def run_step(self) -> bytes:
        """A step in one transfer, from a state of zeros."""
        came = await self.exchange(self.step + bytes(SPARE + self.size))
        return result_in(came[len(self.step) :])

    async def report(self) -> LinkReport:
        """Ask for a status in frames."""
        self.number += 1
        await self.exchange(b"\0" + Frame(FrameType.RESUME, 0, self.number, 0).to_wire(), raw=False)
        found = []
        deframer = Deframer()
        for _ in range(5):
            found += deframer.feed(await self.exchange(bytes(20), raw=False))
        (answer,) = [frame for frame in found if frame.seq == self.number]
        return LinkReport.from_bytes(answer.payload)

    async def is_alive(self) -> int:
        """Steps give what the first one gave, and frames are answered; return how many were dropped since."""
        found = await self.run_step()
        assert found[0] == FrameType.DONE and len(found) == self.size, found
        self.result = self.result or found
        assert found == self.result
        return (await self.report()).dropped - self.before


async def start(dut) -> Host:
    oscillator = dut.pll.model.oscillator
    oscillator.value = 0
    Clock(oscillator, 10, unit="ns").start()
    Clock(dut.clk, 40, unit="ns").start()
    dut.spi_sck.value = dut.spi_mosi.value = 0
    dut.spi_cs_n.value = dut.spi_raw_cs_n.value = 1
    dut.button.value = int(find_board("ulx3s-12f").button.inverted)
    await Timer(20, "us")
    host = Host(dut)
    host.before = await host.is_alive()
    return host


@cocotb.test()
async def broken_transfers_are_dropped(dut) -> None:
    """Short ones, at any bit; with wrong bits; with another first byte; and steps while one is in work."""
    host = await start(dut)
    dropped, step = 0, host.step
    for bits in (9, 16, 23, 24, 40, 8 * len(step) - 1):
        await host.exchange(step, bits=bits)
        dropped += 1
        assert await host.is_alive() == dropped, bits
    for index in (0, 1, 3, len(step) - 1):
        await host.exchange(step[:index] + bytes([step[index] ^ 0x10]) + step[index + 1 :])
        dropped += 1
        assert await host.is_alive() == dropped, index
    # Less than a byte is nothing.
    await host.exchange(step, bits=7)
    assert await host.is_alive() == dropped
    # Zeros ask for the result, as often as the host wants.
    for _ in range(3):
        assert result_in((await host.exchange(bytes(2 + host.size)))[1:]) == host.result
        assert not dut.spi_waiting.value
    # A wire says until when there is a result that was not read: up to the last bit of its first reading.
    for bits in range(1, 8 * (1 + host.size)):
        if bits == 1:
            await host.exchange(step)
            await Timer(5, "us")
        await host.exchange(bytes(2 + host.size), bits=bits)
        assert dut.spi_waiting.value, bits
    await host.exchange(bytes(1 + host.size))
    assert not dut.spi_waiting.value
    # A host that breaks off reads it anew.
    for bits in (8, 17, 24, 31, 40):
        await host.exchange(bytes(8), bits=bits)
        assert result_in((await host.exchange(bytes(2 + host.size)))[1:]) == host.result
    assert await host.is_alive() == dropped


@cocotb.test()
async def clocks_may_pause(dut) -> None:
    host = await start(dut)
    for _ in range(3):
        came = await host.exchange_with_gaps(host.step + bytes(SPARE + host.size))
        assert result_in(came[len(host.step) :]) == host.result
    for mhz in (1, 8, 12.5):
        came = await host.exchange(host.step + bytes(SPARE + host.size), mhz=mhz)
        assert result_in(came[len(host.step) :]) == host.result
    await host.exchange_with_gaps(b"\0" + Frame(FrameType.RESUME, 0, 9, 0).to_wire(), raw=False)
    frames = Deframer().feed(await host.exchange_with_gaps(bytes(60), raw=False))
    assert [frame.seq for frame in frames] == [9]
    assert await host.is_alive() == 0


@cocotb.test()
async def selections_may_glitch(dut) -> None:
    host = await start(dut)
    for wire in (dut.spi_raw_cs_n, dut.spi_cs_n):
        for width in (1, 5, 30, 90):
            wire.value = 0
            await Timer(width, "ns")
            wire.value = 1
            await Timer(PAUSE_NS, "ns")
            assert await host.is_alive() == 0
    # Edges of the clock without a selection.
    await host.edges(host.step)
    assert await host.is_alive() == 0
    # A selection that ends for a moment: what follows begins a transfer, with a wrong first byte.
    dropped = 0
    for width in (1, 9, 55):
        dut.spi_raw_cs_n.value = 0
        await host.edges(host.step[:4])
        dut.spi_raw_cs_n.value = 1
        await Timer(width, "ns")
        dut.spi_raw_cs_n.value = 0
        await host.edges(host.step[4:])
        dut.spi_raw_cs_n.value = 1
        await Timer(PAUSE_NS, "ns")
        dropped += 2
        assert await host.is_alive() == dropped
    # Both at once: frames and steps hear the same bytes.
    dut.spi_cs_n.value = 0
    await host.exchange(host.step)
    dut.spi_cs_n.value = 1
    await Timer(5, "us")
    await host.is_alive()


@cocotb.test()
async def other_modes_harm_nothing(dut) -> None:
    """In mode 3 answers are a bit early; in modes 1 and 2 bits change at the edges at which they are read."""
    host = await start(dut)
    for mode in (1, 2, 3):
        for raw in (False, True):
            frame = b"\0" + Frame(FrameType.RESUME, 0, 99, 0).to_wire()
            await host.exchange((host.step if raw else frame) + bytes(60), raw=raw, mode=mode)
            await host.exchange(bytes(60), raw=raw, mode=mode)
        dut._log.info("after mode %d", mode)
        await host.report()
        await host.is_alive()
    await host.exchange(host.step[:3])
    assert host.result not in await host.exchange(host.step + bytes(SPARE + host.size), mode=3)
    assert result_in((await host.exchange(bytes(2 + host.size)))[1:]) == host.result
