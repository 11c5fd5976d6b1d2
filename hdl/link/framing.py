"""Frames with a checksum on a serial link: CRC-32C inside, COBS around."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.link.cobs import DECODED, CobsDecoder, CobsEncoder
from rtlstm.spec.link import CRC_BYTES, CRC_POLYNOMIAL, CRC_RESIDUE

BODY = StructLayout({"data": 8, "end": 1})
"""A byte of a body, or its end, then without a byte."""


class Crc32c(Component):
    """CRC-32C, one bit per cycle: the UART takes at least forty cycles per byte.

    Members
    -------
    i : In(stream of 8)
        Bytes; one is accepted when the one before has been processed.
    start : In(1)
        Begin a new checksum; only while ``i.ready``.
    moves : In(1)
        The accepted byte is ignored: the checksum is shifted so that its next byte is in ``low``.
    low : Out(8), good : Out(1)
        While ``i.ready``: the lowest byte of the checksum of the bytes so far; whether they end with
        their checksum.
    """

    i: stream.Interface
    start: Signal
    moves: Signal
    low: Signal
    good: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "start": In(1),
                "moves": In(1),
                "low": Out(8),
                "good": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        crc, bits, left = Signal(32, init=-1), Signal(8, reset_less=True), Signal(range(9))
        moves, feedback = Signal(reset_less=True), Signal()
        m.d.comb += [
            self.i.ready.eq(left == 0),
            self.low.eq(~crc),
            self.good.eq(crc == CRC_RESIDUE ^ 0xFFFFFFFF),
            feedback.eq((crc[0] ^ bits[0]) & ~moves),
        ]
        with m.If(left != 0):
            m.d.sync += [
                crc.eq((crc >> 1) ^ (feedback.replicate(32) & CRC_POLYNOMIAL)),
                bits.eq(bits >> 1),
                left.eq(left - 1),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += [bits.eq(self.i.payload), moves.eq(self.moves), left.eq(8)]
        with m.If(self.start):
            m.d.sync += crc.eq(crc.init)
        return m


class FrameReceiver(Component):
    """Converts received bytes to bodies, each followed by its checksum. No latency; one byte in nine cycles.

    Members
    -------
    i : In(stream of 8)
    o : Out(stream of :data:`~rtlstm.hdl.link.cobs.DECODED`)
        At the end ``good`` says whether stuffing and checksum were right.
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(DECODED)),
            }
        )

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


class FrameSender(Component):
    """Converts bodies to bytes to transmit. Throughput: one byte in nine cycles.

    Members
    -------
    i : In(stream of :data:`BODY`)
    o : Out(stream of 8)
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(BODY)),
                "o": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = Crc32c()
        m.submodules.cobs = cobs = CobsEncoder()
        wiring.connect(m, cobs.o, wiring.flipped(self.o))
        checksum, index = Signal(), Signal(range(CRC_BYTES))
        taken, last = Signal(), Signal()
        m.d.comb += [
            last.eq(index == CRC_BYTES - 1),
            cobs.i.valid.eq((self.i.valid & ~self.i.payload.end | checksum) & crc.i.ready),
            cobs.i.payload.data.eq(Mux(checksum, crc.low, self.i.payload.data)),
            cobs.i.payload.last.eq(checksum & last),
            taken.eq(cobs.i.valid & cobs.i.ready),
            self.i.ready.eq(~checksum & (taken | (crc.i.ready & self.i.payload.end))),
            crc.i.payload.eq(self.i.payload.data),
            crc.i.valid.eq(taken & ~(checksum & last)),
            crc.moves.eq(checksum),
            crc.start.eq(taken & checksum & last),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += checksum.eq(self.i.payload.end)
        with m.If(taken & checksum):
            m.d.sync += index.eq(index + 1)
        with m.If(crc.start):
            m.d.sync += checksum.eq(0)
        return m
