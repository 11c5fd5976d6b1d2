"""Loads a build's weights out of the flash memory from which the FPGA got its bitstream.

The flash has the build's ``weights.bin`` from some address on. Nobody else loads the core: it starts when the
power comes.
"""

from typing import Any, Final

import numpy as np
from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.core.memory_window import CoreBus
from rtlstm.spec.image import WeightImage
from rtlstm.spec.registers import Register, field

READ: Final = 0x03
"""The command that every serial flash has: an address of three bytes follows, then bytes come."""
_POLYNOMIAL = 0xEDB88320


class FlashLoader(Component):
    """Reads a ``weights.bin`` once after reset and writes it to the core's registers.

    All of it must be this build's: header and table are compared, and so is the CRC at its end. Bytes come
    every 32 cycles while the core takes them.

    Parameters
    ----------
    image
        The build's.
    address
        Where it begins in the flash.
    """

    select: Signal = Out(1)
    """High while the flash is asked: the inverse of its pin CS."""
    sck: Signal = Out(1)
    mosi: Signal = Out(1)
    miso: Signal = In(1)
    bus: CoreBus = Out(CoreBus)
    loaded: Signal = Out(1)
    failed: Signal = Out(1)
    """High from when the weights are there, or are found not to be the build's."""

    def __init__(self, image: WeightImage, address: int) -> None:
        self._address = address
        data = np.frombuffer(image.to_bytes(), dtype="<u4")
        sizes = [words.shape for words in image.regions.values()]
        words = sum(int(np.prod(size)) for size in sizes)
        self._head = data[: len(data) - 1 - words].tolist()
        self._segments = [
            (int(region), size[0], size[1] * size[2])
            for region, size in zip(image.regions, sizes, strict=True)
        ]
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        head: Memory[Any, Any] = Memory(shape=32, depth=len(self._head), init=self._head)
        m.submodules.head = head
        expected = head.read_port(domain="comb")

        # Words: 32 bits at a time, each of four cycles. The flash gives the highest bit of a byte first, the
        # bytes of a word come lowest first.
        clock, bits, shift, out, runs = Signal(2), Signal(5), Signal(32), Signal(32), Signal()
        came, miso = Signal(), Signal()
        m.submodules.line = FFSynchronizer(self.miso, miso)
        word = Cat(*(shift.word_select(byte, 8) for byte in (3, 2, 1, 0)))
        m.d.comb += [self.sck.eq(clock[1]), self.mosi.eq(out[-1])]
        m.d.sync += came.eq(0)
        with m.If(runs):
            m.d.sync += clock.eq(clock + 1)
            with m.If(clock == 3):
                m.d.sync += [shift.eq((shift << 1) | miso), out.eq(out << 1), bits.eq(bits + 1)]
                m.d.sync += came.eq(bits == 31)

        # A bit in each cycle, as words come every 128 cycles.
        crc, checked, check = Signal(32, init=0xFFFFFFFF), Signal(32), Signal(range(33))
        with m.If(check != 0):
            m.d.sync += [check.eq(check - 1), checked.eq(checked >> 1)]
            m.d.sync += crc.eq((crc >> 1) ^ Mux(crc[0] ^ checked[0], _POLYNOMIAL, 0))
        counts = [checked.eq(word), check.eq(32)]
        index, segment = Signal(range(len(self._head) + 1)), Signal(range(len(self._segments) + 1))
        bank, left = Signal(16), Signal(32)
        regions, banks, sizes = (Array(kind)[segment] for kind in zip(*self._segments, strict=True))
        m.d.comb += expected.addr.eq(index)
        bus = self.bus
        m.d.comb += bus.write.eq(1)
        with m.FSM():
            with m.State("START"):
                m.d.sync += out.eq(READ << 24 | self._address)
                m.next = "COMMAND"
            with m.State("COMMAND"):
                m.d.comb += [self.select.eq(1), runs.eq(1)]
                with m.If(came):
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [self.select.eq(1), runs.eq(1)]
                with m.If(came):
                    m.d.sync += [*counts, index.eq(index + 1)]
                    with m.If(index == len(self._head) - 1):
                        m.next = "SELECT"
                    with m.If(word != expected.data):
                        m.next = "FAILED"
            with m.State("SELECT"):
                m.d.comb += [self.select.eq(1), bus.valid.eq(1), bus.address.eq(Register.SELECT)]
                m.d.comb += bus.data.eq(regions << field(Register.SELECT, "REGION").low | bank)
                with m.If(bus.ready):
                    m.next = "ROW"
            with m.State("ROW"):
                m.d.comb += [self.select.eq(1), bus.valid.eq(1), bus.address.eq(Register.ROW)]
                m.d.sync += left.eq(sizes)
                with m.If(bus.ready):
                    m.next = "WORD"
            with m.State("WORD"):
                m.d.comb += [self.select.eq(1), runs.eq(1)]
                with m.If(came):
                    m.d.sync += counts
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [
                    self.select.eq(1),
                    bus.valid.eq(1),
                    bus.address.eq(Register.DATA),
                    bus.data.eq(word),
                ]
                with m.If(bus.ready):
                    m.d.sync += left.eq(left - 1)
                    m.next = "WORD"
                    with m.If(left == 1):
                        last_bank = bank == banks - 1
                        m.d.sync += [bank.eq(Mux(last_bank, 0, bank + 1)), segment.eq(segment + last_bank)]
                        m.next = "SELECT"
                        with m.If(last_bank & (segment == len(self._segments) - 1)):
                            m.next = "CRC"
            with m.State("CRC"):
                m.d.comb += [self.select.eq(1), runs.eq(1)]
                with m.If(came):
                    m.next = "DONE"
                    with m.If(word != ~crc):
                        m.next = "FAILED"
            with m.State("DONE"):
                m.d.comb += self.loaded.eq(1)
            with m.State("FAILED"):
                m.d.comb += self.failed.eq(1)
        return m
