"""The COBS decoder: from any bytes the frames that they mean, and after any zero the next frame anew."""

import pytest
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, free_inputs, holds, implies
from support.proofs import cases, covered, found, proven

from rtlstm.hdl.link.framing import CobsDecoder

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """A decoder, a line that gives any bytes, and a reader that takes what it likes.

    The meaning of bytes is told by counting up: a block is its code, and one byte less than the code says.
    """

    def __init__(self, kind: type[CobsDecoder] = CobsDecoder) -> None:
        self._decoder = kind()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        decoder, byte, o = self._decoder, self._decoder.i.payload, self._decoder.o.payload
        free_inputs(m, decoder)
        inside = Inside(m, decoder)
        running = ~ResetSignal()
        comes = decoder.i.valid & decoder.i.ready & running
        m.d.comb += Assume(holds(m, decoder.i))

        # The next byte's place in its block, of ``code`` bytes; and whether the block is its frame's first.
        place, code, first = Signal(8), Signal(8), Signal(init=1)
        is_zero, is_code = byte == 0, (byte != 0) & (place == 0)
        with m.If(comes & is_zero):
            m.d.sync += [place.eq(0), first.eq(1)]
        with m.Elif(comes & is_code):
            m.d.sync += [code.eq(byte), first.eq(0), place.eq(byte != 1)]
        with m.Elif(comes):
            m.d.sync += place.eq(Mux(place + 1 == code, 0, place + 1))

        # A zero ends the frame, which is whole if no block is open. A code stands for the zero behind the
        # block before, unless that was full. Other bytes are what they are. Each is taken once.
        means = Mux(is_code, ~first & (code != 255), 1)
        with m.If(running):
            m.d.comb += [
                Assert(decoder.o.valid == (decoder.i.valid & means)),
                Assert(implies(decoder.o.valid, decoder.i.ready == decoder.o.ready)),
                Assert(implies(decoder.o.ready, decoder.i.ready)),
                Assert(holds(m, decoder.o)),
            ]
            with m.If(decoder.o.valid):
                m.d.comb += [
                    Assert(o.end == is_zero),
                    Assert(implies(o.end, o.good == (place == 0))),
                    Assert(implies(~o.end, o.data == Mux(is_code, 0, byte))),
                ]

        # What its registers hold for that.
        with m.If(running):
            m.d.comb += [
                Assert(implies(place != 0, place < code)),
                Assert(implies(~first, code != 0)),
                Assert(implies(first, place == 0)),
                Assert(inside["left"] == Mux(place == 0, 0, code - place)),
                Assert(inside["zero_due"] == (~first & (code != 255))),
            ]

        # All of this happens: a frame is torn, and the next one is whole, with a zero in it.
        torn, zero = Signal(), Signal()
        taken = decoder.o.valid & decoder.o.ready & running
        m.d.sync += [
            torn.eq(torn | (taken & o.end & ~o.good)),
            zero.eq(torn & (zero | (taken & ~o.end & (o.data == 0))) & ~(taken & o.end)),
        ]
        m.d.comb += Cover(zero & taken & o.end & o.good)
        return m


test_holds = proven(Harness)
test_reached = covered(Harness, 12)

BUGS = {
    "an open block stays after a zero": ("[left.eq(0), zero_due.eq(0)]", "zero_due.eq(0)"),
    "a zero before a frame": ("[left.eq(0), zero_due.eq(0)]", "left.eq(0)"),
    "a torn frame is whole": ("good.eq(code)", "good.eq(1)"),
    "a byte is lost": ("self.i.ready.eq(self.o.ready)", "self.i.ready.eq(1)"),
    "a zero is lost": ("(delimiter | ~code | zero_due)", "(delimiter | ~code)"),
    "a block of one byte more": ("left.eq(self.i.payload - 1)", "left.eq(self.i.payload)"),
}
test_bug_is_found = found(Harness, CobsDecoder, cases(BUGS, "an open block stays after a zero"), 12)
