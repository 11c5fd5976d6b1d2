"""Frames with a checksum on a line of bytes: CRC-32C inside, COBS around."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ISCSI
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.link.cobs import DECODED, FRAMED, CobsDecoder, CobsEncoder
from rtlstm.spec.link import CRC_BYTES

__all__ = ["FrameReceiver", "FrameSender"]

CRC = CRC32_ISCSI(data_width=8)
"""The catalogue's name of CRC-32C."""


class FrameReceiver(wiring.Component):
    """Line bytes to bodies, each followed by its checksum's bytes. No latency.

    Members
    -------
    i : In(stream of 8)
    o : Out(stream of :data:`~rtlstm.hdl.link.cobs.DECODED`)
        At the end ``good`` says whether stuffing and checksum were right.
    """

    i: In(stream.Signature(8))
    o: Out(stream.Signature(DECODED))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.cobs = cobs = CobsDecoder()
        m.submodules.crc = crc = CRC.create()
        wiring.connect(m, wiring.flipped(self.i), cobs.i)
        wiring.connect(m, cobs.o, wiring.flipped(self.o))
        taken = Signal()
        m.d.comb += [
            taken.eq(self.o.valid & self.o.ready),
            crc.data.eq(self.o.payload.data),
            crc.valid.eq(taken & ~self.o.payload.end),
            crc.start.eq(taken & self.o.payload.end),
            self.o.payload.good.eq(cobs.o.payload.good & crc.match_detected),
        ]
        return m


class FrameSender(wiring.Component):
    """Bodies to line bytes.

    Members
    -------
    i : In(stream of :data:`~rtlstm.hdl.link.cobs.FRAMED`)
    o : Out(stream of 8)
    """

    i: In(stream.Signature(FRAMED))
    o: Out(stream.Signature(8))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = CRC.create()
        m.submodules.cobs = cobs = CobsEncoder()
        wiring.connect(m, cobs.o, wiring.flipped(self.o))
        checksum, index = Signal(), Signal(range(CRC_BYTES))
        last = index == CRC_BYTES - 1
        m.d.comb += [
            cobs.i.valid.eq(self.i.valid | checksum),
            cobs.i.payload.data.eq(Mux(checksum, crc.crc.word_select(index, 8), self.i.payload.data)),
            cobs.i.payload.last.eq(checksum & last),
            self.i.ready.eq(cobs.i.ready & ~checksum),
            crc.data.eq(self.i.payload.data),
            crc.valid.eq(self.i.valid & self.i.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += checksum.eq(self.i.payload.last)
        with m.If(checksum & cobs.i.ready):
            m.d.sync += index.eq(index + 1)
            with m.If(last):
                m.d.sync += checksum.eq(0)
                m.d.comb += crc.start.eq(1)
        return m
