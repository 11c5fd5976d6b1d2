"""Consistent overhead byte stuffing: frames without zeros, and a zero after each."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.link.bytes import read_bytes
from rtlstm.hdl.primitives.pipeline import storage
from rtlstm.spec.inventory import LINK_BLOCKS

DECODED = StructLayout({"data": 8, "end": 1, "good": 1})
"""A byte of a frame, or its end (then without a byte), and whether the frame was whole."""
FRAMED = StructLayout({"data": 8, "last": 1})
"""A byte of a frame, and whether it is the last one."""

_LONGEST = 254
"""Bytes in a block without a zero."""


class CobsDecoder(Component):
    """Converts received bytes to frames. No latency; at most one output for each byte.

    Members
    -------
    i : In(stream of 8)
    o : Out(stream of :data:`DECODED`)
        ``good`` is 0 if the frame ended within a block.
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

    A block is offered when it is complete, while the next one is filled: the transmitter never waits if
    bytes come faster than it sends them. Throughput: one byte every second cycle.

    Members
    -------
    i : In(stream of :data:`FRAMED`)
    o : Out(stream of 8)
    """

    i: stream.Interface
    o: stream.Interface

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(FRAMED)),
                "o": Out(stream.Signature(8)),
            }
        )

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
            self.o.valid.eq(valid),
            self.o.payload.eq(data),
            ready.eq(self.o.ready),
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
                m.d.comb += [closes.eq(1), write.data.eq(0)]
                m.next = "TAKE"
        return m
