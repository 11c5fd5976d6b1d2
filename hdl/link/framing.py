"""Frames with a checksum on a line of bytes: CRC-32C inside, COBS around."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ISCSI
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.link.cobs import DECODED, FRAMED, CobsDecoder, CobsEncoder
from rtlstm.spec.link import CRC_BYTES

__all__ = ["Crc32c", "FrameReceiver", "FrameSender"]


class Crc32c(wiring.Component):
    """CRC-32C, a bit a cycle: a byte on the line takes at least forty.

    Members
    -------
    i : In(stream of 8)
        Bytes; one is taken when the one before has been worked in.
    start : In(1)
        Begin anew; only while ``i.ready``.
    crc : Out(32), good : Out(1)
        The checksum of the bytes so far, while ``i.ready``; it is that of bytes that end with their checksum.
    """

    i: In(stream.Signature(8))
    start: In(1)
    crc: Out(32)
    good: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The catalogue's name of CRC-32C.
        m.submodules.processor = processor = CRC32_ISCSI(data_width=1).create()
        bits, left = Signal(8, reset_less=True), Signal(range(9))
        m.d.comb += [
            self.i.ready.eq(left == 0),
            processor.valid.eq(left != 0),
            processor.data.eq(bits[0]),
            processor.start.eq(self.start),
            self.crc.eq(processor.crc),
            self.good.eq(processor.match_detected),
        ]
        with m.If(left != 0):
            m.d.sync += [bits.eq(bits >> 1), left.eq(left - 1)]
        with m.Elif(self.i.valid):
            m.d.sync += [bits.eq(self.i.payload), left.eq(8)]
        return m


class FrameReceiver(wiring.Component):
    """Line bytes to bodies, each followed by its checksum's bytes. No latency; a byte in nine cycles.

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
        m.submodules.crc = crc = Crc32c()
        wiring.connect(m, wiring.flipped(self.i), cobs.i)
        taken = Signal()
        m.d.comb += [
            self.o.valid.eq(cobs.o.valid & crc.i.ready),
            cobs.o.ready.eq(self.o.ready & crc.i.ready),
            self.o.payload.eq(cobs.o.payload),
            self.o.payload.good.eq(cobs.o.payload.good & crc.good),
            taken.eq(self.o.valid & self.o.ready),
            crc.i.payload.eq(self.o.payload.data),
            crc.i.valid.eq(taken & ~self.o.payload.end),
            crc.start.eq(taken & self.o.payload.end),
        ]
        return m


class FrameSender(wiring.Component):
    """Bodies to line bytes. Throughput: a byte in nine cycles.

    Members
    -------
    i : In(stream of :data:`~rtlstm.hdl.link.cobs.FRAMED`)
    o : Out(stream of 8)
    """

    i: In(stream.Signature(FRAMED))
    o: Out(stream.Signature(8))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = Crc32c()
        m.submodules.cobs = cobs = CobsEncoder()
        wiring.connect(m, cobs.o, wiring.flipped(self.o))
        checksum, index = Signal(), Signal(range(CRC_BYTES))
        last = index == CRC_BYTES - 1
        m.d.comb += [
            cobs.i.valid.eq((self.i.valid | checksum) & crc.i.ready),
            cobs.i.payload.data.eq(Mux(checksum, crc.crc.word_select(index, 8), self.i.payload.data)),
            cobs.i.payload.last.eq(checksum & last),
            self.i.ready.eq(cobs.i.ready & crc.i.ready & ~checksum),
            crc.i.payload.eq(self.i.payload.data),
            crc.i.valid.eq(self.i.valid & self.i.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += checksum.eq(self.i.payload.last)
        with m.If(checksum & cobs.i.valid & cobs.i.ready):
            m.d.sync += index.eq(index + 1)
            with m.If(last):
                m.d.sync += checksum.eq(0)
                m.d.comb += crc.start.eq(1)
        return m
