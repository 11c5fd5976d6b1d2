"""Frames with a checksum on a serial link: CRC-32C inside, COBS around."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.link.memories import read_bytes
from rtlstm.hdl.primitives.pipeline import storage
from rtlstm.spec.inventory import LINK_BLOCKS
from rtlstm.spec.link import AHEAD_BYTES, CRC_BYTES, CRC_POLYNOMIAL, CRC_RESIDUE

BODY = StructLayout({"data": 8, "end": 1})
"""A byte of a body, or its end, then without a byte."""


DECODED = StructLayout({"data": 8, "end": 1, "good": 1})
"""A byte of a frame, or its end (then without a byte), and whether the frame was whole."""
FRAMED = StructLayout({"data": 8, "last": 1})
"""A byte of a frame, and whether it is the last one."""

_LONGEST = 254
"""Bytes in a block without a zero."""


class CobsDecoder(Component):
    """Converts received bytes to frames. No latency; at most one output for each byte."""

    i: stream.Interface = In(stream.Signature(8))
    o: stream.Interface = Out(stream.Signature(DECODED))
    """``good`` is 0 if the frame ended within a block."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Bytes left in the block; whether a zero followed it, if it is not the frame's last.
        left, zero_due = Signal(8), Signal()
        delimiter, code = Signal(), Signal()
        m.d.comb += [
            delimiter.eq(self.i.payload == 0),
            code.eq(left == 0),
            self.o.payload.data.eq(Mux(code, 0, self.i.payload)),
            self.o.payload.end.eq(delimiter),
            self.o.payload.good.eq(code),
            self.o.valid.eq(self.i.valid & (delimiter | ~code | zero_due)),
            self.i.ready.eq(self.o.ready),
        ]
        with m.If(self.i.valid & self.i.ready):
            with m.If(delimiter):
                m.d.sync += [left.eq(0), zero_due.eq(0)]
            with m.Elif(code):
                m.d.sync += [left.eq(self.i.payload - 1), zero_due.eq(self.i.payload != _LONGEST + 1)]
            with m.Else():
                m.d.sync += left.eq(left - 1)
        return m


class CobsEncoder(Component):
    """Converts frames to bytes to transmit, with a zero after each frame.

    A block is offered when it is complete, while the next one is filled: the transmitter never waits if bytes
    come faster than it sends them. Throughput: one byte every second cycle. With ``gapless`` a frame's first
    byte is offered late enough for all others to follow without a gap, if one is accepted in every eighth
    cycle at most.
    """

    i: stream.Interface = In(stream.Signature(FRAMED))
    o: stream.Interface = Out(stream.Signature(8))

    def __init__(self, gapless: bool = False) -> None:
        self._gapless = gapless
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, LINK_BLOCKS, "blocks")
        # Addresses of the open block's code and of its next byte; bytes before the code are ready to be sent.
        head, following, tail = Signal(9), Signal(9, init=1), Signal(9)
        code, held = Signal(8), Signal(9)
        valid, data, ready = read_bytes(m, read, tail, head != tail)
        stores, closes = Signal(), Signal()
        m.d.comb += [
            code.eq(following - head),
            held.eq(head - tail),
            self.o.valid.eq(valid & self._goes(m, held)),
            self.o.payload.eq(data),
            ready.eq(self.o.ready & self.o.valid),
            write.addr.eq(Mux(closes, head, following)),
            write.data.eq(Mux(closes, code, self.i.payload.data)),
            write.en.eq(stores | closes),
        ]
        with m.If(write.en):
            m.d.sync += following.eq(following + 1)
        with m.If(closes):
            m.d.sync += head.eq(following)
        with m.FSM():
            with m.State("TAKE"):
                # Half of the memory is for bytes to be sent, half for the open block.
                m.d.comb += self.i.ready.eq(~held[8])
                with m.If(self.i.valid & self.i.ready):
                    m.d.comb += [
                        closes.eq(self.i.payload.data == 0),
                        stores.eq(self.i.payload.data != 0),
                    ]
                    with m.If(stores & (code == _LONGEST)):
                        m.next = "FULL"
                    with m.If(self.i.payload.last):
                        m.next = "LAST"
            with m.State("FULL"):
                m.d.comb += closes.eq(1)
                m.next = "TAKE"
            with m.State("LAST"):
                m.d.comb += closes.eq(1)
                m.next = "DELIMIT"
            with m.State("DELIMIT"):
                m.d.comb += [closes.eq(1), self._ends.eq(1), write.data.eq(0)]
                m.next = "TAKE"
        return m

    def _goes(self, m: Module, held: Value) -> Value:
        """Return whether the next byte may be sent: with a gap, a frame may have one between two blocks."""
        self._ends = Signal()
        if not self._gapless:
            return Const(1)
        whole, within, ended = Signal(range(1 << len(held))), Signal(), Signal()
        m.d.comb += ended.eq(self.o.valid & self.o.ready & (self.o.payload == 0))
        m.d.sync += whole.eq(whole + self._ends - ended)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += within.eq(~ended)
        return within | (whole != 0) | (held >= AHEAD_BYTES)


class Crc32c(Component):
    """CRC-32C.

    ``bits`` is the number of bits per cycle: 1, since a UART takes at least forty cycles per byte, or 8, a
    byte in every cycle.
    """

    i: stream.Interface = In(stream.Signature(8))
    """Bytes; one is accepted when the one before has been processed."""
    start: Signal = In(1)
    """Begin a new checksum; only while ``i.ready``."""
    moves: Signal = In(1)
    """The accepted byte is ignored: the checksum is shifted so that its next byte is in ``low``."""
    low: Signal = Out(8)
    good: Signal = Out(1)
    """While ``i.ready``: the lowest byte of the checksum of the bytes so far; whether they end with their
    checksum."""

    def __init__(self, bits: int = 1) -> None:
        self._bits = bits
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        crc, bits, left = Signal(32, init=-1), Signal(8, reset_less=True), Signal(range(9))
        if self._bits == 8:
            m.d.comb += [
                self.i.ready.eq(1),
                self.low.eq(~crc),
                self.good.eq(crc == CRC_RESIDUE ^ 0xFFFFFFFF),
            ]
            with m.If(self.start):
                m.d.sync += crc.eq(crc.init)
            with m.Elif(self.i.valid):
                m.d.sync += crc.eq(Mux(self.moves, crc >> 8, _with_byte(crc, self.i.payload)))
            return m
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


def _with_byte(crc: Value, byte: Value) -> Value:
    """Return the register of a checksum after another byte: eight bits choose what is added."""
    index, after = crc[:8] ^ byte, crc >> 8
    for position in range(8):
        term = 1 << position
        for _ in range(8):
            term = (term >> 1) ^ (CRC_POLYNOMIAL if term & 1 else 0)
        after = after ^ Mux(index[position], term, 0)
    return after


class FrameReceiver(Component):
    """Converts received bytes to bodies with their checksums. No latency.

    Throughput: one byte in nine cycles, or with ``crc_bits`` of 8 one in every cycle.
    """

    i: stream.Interface = In(stream.Signature(8))
    o: stream.Interface = Out(stream.Signature(DECODED))
    """At the end ``good`` says whether stuffing and checksum were right."""

    def __init__(self, crc_bits: int = 1) -> None:
        self._crc_bits = crc_bits
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.cobs = cobs = CobsDecoder()
        m.submodules.crc = crc = Crc32c(self._crc_bits)
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
    """Converts bodies to bytes to transmit.

    Throughput: one byte in nine cycles, or with ``crc_bits`` of 8 one in every second cycle. See
    :class:`CobsEncoder` for ``gapless``.
    """

    i: stream.Interface = In(stream.Signature(BODY))
    o: stream.Interface = Out(stream.Signature(8))

    def __init__(self, crc_bits: int = 1, gapless: bool = False) -> None:
        self._crc_bits, self._gapless = crc_bits, gapless
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = Crc32c(self._crc_bits)
        m.submodules.cobs = cobs = CobsEncoder(self._gapless)
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
