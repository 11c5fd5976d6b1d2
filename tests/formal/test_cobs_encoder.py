"""The COBS encoder: any frames become the bytes that they must, each once, in order."""

import pytest
from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Mux, ResetSignal, Signal, Value
from support.formal import Inside, before, free_inputs, holds, implies, stored_word
from support.proofs import cases, covered, found, proven, slow_cases

from rtlstm.hdl.link.framing import CobsEncoder
from rtlstm.spec.inventory import LINK_BLOCKS

pytestmark = pytest.mark.tools

LONGEST = 254
"""Bytes of a block without a zero."""
BITS = 9
"""Of a place in the memory."""


class Harness(Elaboratable):
    """An encoder, a source of any frames, and a transmitter that takes bytes when it likes.

    What must be sent is told by counting its bytes up, modulo the memory's size. The memory is free, but for
    any one byte.

    Parameters
    ----------
    floods
        The source gives ones and no end, always, and the transmitter takes nothing: what takes hundreds of
        cycles is then found in seconds.
    """

    def __init__(self, kind: type[CobsEncoder] = CobsEncoder, floods: bool = False) -> None:
        self._encoder, self._floods = kind(), floods

    def elaborate(self, platform: object) -> Module:
        m = Module()
        assert LINK_BLOCKS.depth == 1 << BITS
        encoder, byte, last = self._encoder, self._encoder.i.payload.data, self._encoder.i.payload.last
        free_inputs(m, encoder)
        inside = Inside(m, encoder)
        running = ~ResetSignal()
        comes, goes = encoder.i.valid & encoder.i.ready & running, encoder.o.valid & encoder.o.ready & running

        if self._floods:
            m.d.comb += Assume(encoder.i.valid & (byte == 1) & ~last & ~encoder.o.ready & running)

        # Places of the next byte to be sent, of the open block's code, and of the newest byte, which is this
        # code if the block has no other.
        sent, code, newest = Signal(BITS), Signal(BITS), Signal(BITS)
        decided, opened = _distance(code, sent), _distance(newest, code)
        m.d.sync += sent.eq(sent + goes)

        # What a byte adds: a zero ends a block, any other byte is in it; so many without a zero are a block,
        # too. With the frame its last block ends, which may be empty, and a zero follows.
        zero, full = byte == 0, (byte != 0) & (opened == LONGEST - 1)
        with m.If(comes):
            m.d.sync += newest.eq(newest + Mux(last, 3, 1 + full))
            with m.If(zero | full | last):
                m.d.sync += code.eq(newest + Mux(last, 3, 1 + full))

        # Follow any one place: what its byte must be, if that is known; it is, until the byte has been sent.
        row, known, must = AnyConst(BITS), Signal(), Signal(8)
        with m.If(goes & (sent == row)):
            m.d.sync += known.eq(0)
        with m.If(comes):
            with m.If((row == _on(newest, 1)) & (~zero | last)):
                m.d.sync += [known.eq(1), must.eq(Mux(zero, 1, byte))]
            with m.If((row == code) & (zero | full | last)):
                m.d.sync += [known.eq(1), must.eq(opened + 1 + ~zero)]
            with m.If((row == _on(newest, 2)) & last):
                m.d.sync += [known.eq(1), must.eq(0)]
        there = _distance(row, sent) <= _distance(newest, sent)
        m.d.comb += Assert(known == ((row != code) & there))

        # This byte is offered, as it must be, as soon as it is decided and those before it are sent; and
        # bytes are taken, but for two cycles, whenever at least half of the memory is free.
        rests = before(m, (decided != 0) & ~goes & running & inside.state("TAKE"))
        busy = before(m, ~inside.state("TAKE") & running)
        with m.If(running):
            m.d.comb += [
                Assert(implies(encoder.o.valid, decided != 0)),
                Assert(implies(encoder.o.valid & (sent == row), known & (encoder.o.payload == must))),
                Assert(implies(sent == row, holds(m, encoder.o))),
                Assert(implies(rests, encoder.o.valid)),
                Assert(implies(before(m, busy) & busy, inside.state("TAKE"))),
                Assert(implies(inside.state("TAKE") & (decided < 256), encoder.i.ready)),
            ]

        # What its registers hold for that: what is decided is written up to three cycles later.
        head, following = inside["head"], inside["following"]
        late, block = ~inside.state("TAKE"), _distance(following, head)
        with m.If(~late):
            m.d.comb += Assert((head == code) & (following == _on(newest, 1)) & (block <= LONGEST))
        with m.If(late):
            m.d.comb += Assert(newest == code)
        with m.If(inside.state("FULL")):
            m.d.comb += Assert((following == code) & (block == LONGEST + 1))
        with m.If(inside.state("LAST")):
            m.d.comb += Assert((_on(following, 1) == code) & (block <= LONGEST + 1))
        with m.If(inside.state("DELIMIT")):
            m.d.comb += Assert((following == code) & (block == 1))
        m.d.comb += [
            Assert(inside.state("TAKE", "FULL", "LAST", "DELIMIT") & (block != 0)),
            Assert(_distance(head, sent) <= _distance(newest, sent)),
            Assert(inside["tail"] == sent),
            Assert(implies(encoder.o.valid, head != sent)),
        ]
        stored = stored_word(m, inside["m"].submodules.blocks, row)
        in_head, in_following = late & (row == head), inside.state("LAST") & (row == following)
        m.d.comb += [
            Assert(implies(in_head, known & (must == Mux(inside.state("DELIMIT"), 0, block)))),
            Assert(implies(in_following, known & (must == 0))),
            Assert(implies(known & ~in_head & ~in_following, stored == must)),
        ]

        # All of this happens: the zero behind a frame leaves, and the next frame has begun with a zero.
        m.d.comb += Cover(goes & (sent == row) & known & (must == 0) & (row > 2) & (decided > 1))
        return m


def _distance(end: Value, start: Value) -> Value:
    return (end - start)[:BITS]


def _on(place: Value, steps: int) -> Value:
    return (place + steps)[:BITS]


test_holds = proven(Harness, slow_cases())
test_reached = covered(Harness, 24, slow_cases())

BUGS = {
    "a code before its block": ("code.eq(following - head)", "code.eq(following - head - 1)"),
    "no zero after a frame": ("write.data.eq(0)]", "write.data.eq(1)]"),
    "a zero ends no block": ("closes.eq(self.i.payload.data == 0)", "closes.eq(0)"),
    "an unfinished block leaves": (
        "read_bytes(m, read, tail, head != tail)",
        "read_bytes(m, read, tail, following != tail)",
    ),
    "the last block stays open": ('m.next = "LAST"', 'm.next = "DELIMIT"'),
    "taken while a block ends": (
        '                m.d.comb += closes.eq(1)\n                m.next = "DELIMIT"',
        '                m.d.comb += [closes.eq(1), self.i.ready.eq(1)]\n                m.next = "DELIMIT"',
    ),
}
test_bug_is_found = found(Harness, CobsEncoder, cases(BUGS, "a zero ends no block"), 12)

LATE_BUGS = {
    "a block too long": ("stores & (code == _LONGEST)", "stores & (code == _LONGEST + 1)"),
    "written over what waits": ("self.i.ready.eq(~held[8])", "self.i.ready.eq(1)"),
}
test_late_bug_is_found = found(Harness, CobsEncoder, slow_cases(LATE_BUGS), 520, floods=True)
