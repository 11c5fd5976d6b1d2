"""The link's session: whatever frames come, each is decided once, and requests are accepted in order."""

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, before, free_inputs, holds, implies
from support.proofs import cases, covered, found, proven, refute, slow_cases, with_bug

from rtlstm.hdl.link.responder import LinkSession
from rtlstm.spec.link import CRC_BYTES, HEADER, NUMBERED, FrameType

pytestmark = pytest.mark.tools

HELLO_BYTES = HEADER.size + 3
MOST = HELLO_BYTES + CRC_BYTES
"""Bytes of a frame that are counted."""


class Harness(Elaboratable):
    """A session, a line that gives any bytes and ends, a queue, a responder, and parts that end a session.

    The queue does not call a record too long from one cycle to the next if it is not written. An answer is
    sent only while there is one, and a session ends only when it is to end.

    What a frame is to cause is told as docs/link.md does, from its bytes.

    Parameters
    ----------
    eager
        The line gives a byte in each cycle, and whole frames of equal length alone: what takes several frames
        is then found in seconds.
    """

    def __init__(self, kind: type[LinkSession] = LinkSession, eager: bool = False) -> None:
        self._session, self._eager = kind(), eager

    def elaborate(self, platform: object) -> Module:
        m = Module()
        session, i = self._session, self._session.i
        free_inputs(m, session)
        inside = Inside(m, session)
        running = ~ResetSignal()
        comes = i.valid & i.ready & running
        m.d.comb += [
            Assume(holds(m, i)),
            Assume(implies(before(m, ~session.long & ~session.write & running), ~session.long)),
            Assume(implies(session.answered & running, session.answers)),
            Assume(implies(session.ended, session.ending & running)),
        ]

        # The frame: its first bytes, and how many there are; whether an earlier session ended since it began.
        frame, count, old, ending = Signal(8 * HELLO_BYTES), Signal(range(MOST + 1)), Signal(), session.ending
        ends = comes & i.payload.end & (count != 0)
        with m.If(session.ended):
            m.d.sync += old.eq(count != 0)
        with m.If(ends):
            m.d.sync += [count.eq(0), old.eq(0)]
        with m.Elif(comes & ~i.payload.end):
            m.d.sync += count.eq(Mux(count == MOST, MOST, count + 1))
            with m.If(count < HELLO_BYTES):
                m.d.sync += frame.word_select(count, 8).eq(i.payload.data)
        if self._eager:
            m.d.comb += Assume(running & i.valid & i.payload.good & (i.payload.end == (count == MOST)))
        kind, name, number, ack = frame[:8], frame[8:24], frame[24:40], frame[40:56]
        believed = frame[-16:]

        # A frame that is whole is weighed, then judged; in these two cycles no byte is taken.
        whole = i.payload.good & (count >= HEADER.size + CRC_BYTES) & ~session.long & ~ending & ~old
        enough = (kind != FrameType.HELLO) | (count == MOST)
        weighed, judged = before(m, ends & whole & enough), Signal()
        m.d.sync += judged.eq(weighed)

        # What it causes then.
        expected, device, noticed = Signal(16), Signal(16), Signal()
        mine, ahead = name == device, Signal(16)
        resume, hello = judged & (kind == FrameType.RESUME), judged & (kind == FrameType.HELLO)
        numbered = judged & ((kind & 0xF0) == NUMBERED) & mine
        accepts = numbered & (number == expected) & session.fits
        notices = numbered & ~accepts & ~ahead[-1] & ~noticed
        swaps = hello & ~mine & (believed == device)
        dropped = (ends & ~(whole & enough)) | (judged & ~resume & ~hello & ~accepts)
        m.d.comb += ahead.eq(number - expected)
        with m.If(accepts | (resume & mine) | swaps):
            m.d.sync += noticed.eq(0)
        with m.Elif(notices):
            m.d.sync += noticed.eq(1)
        m.d.sync += expected.eq(expected + accepts)

        # The last answer, until it is sent; a session that is to end, until it does.
        answers, told, lost, next_device = Signal(), Signal(32), Signal(), Signal(16)
        m.d.sync += answers.eq((answers & ~session.answered) | resume | hello | notices)
        with m.If(resume | hello | notices):
            m.d.sync += [
                told.eq(Cat(name, Mux(notices, 0, number))),
                lost.eq(Mux(resume, ~mine, hello & ~mine & ~swaps)),
            ]
        wants_end = Signal()
        m.d.sync += wants_end.eq((wants_end & ~session.ended) | swaps)
        with m.If(swaps):
            m.d.sync += next_device.eq(name)
        with m.If(session.ended):
            m.d.sync += [device.eq(next_device), expected.eq(0)]

        # All of this is so.
        answer, rest = session.answer, before(m, session.dropped)
        told_of = dropped + session.foreign
        with m.If(running):
            m.d.comb += [
                Assert(i.ready == (~weighed & ~judged)),
                Assert(session.commit == accepts),
                Assert(session.forget == (dropped | resume | hello)),
                Assert((session.session == device) & (session.expected == expected)),
                Assert(session.acked == ((resume & mine) | numbered)),
                Assert(implies(session.acked, session.ack == ack)),
                Assert(session.again == (resume & mine)),
                Assert((ending == wants_end) & (session.answers == (answers & ~wants_end))),
                Assert(
                    implies(answers, (Cat(answer.session, answer.number) == told) & (answer.lost == lost))
                ),
                Assert(
                    implies(
                        accepts, (session.kind == kind[:4]) & (session.publish == (kind != FrameType.PART))
                    )
                ),
                Assert(implies(before(m, running), session.dropped == (rest + before(m, told_of))[:32])),
            ]

        # The queue gets the bytes behind the header, and commits none that it had when a session ended.
        pushed, outlived = Signal(3), Signal()
        decided = session.commit | session.forget
        with m.If(session.write):
            m.d.sync += pushed.eq(Mux(pushed.all(), pushed, pushed + 1))
        with m.If(decided | session.ended):
            m.d.sync += [pushed.eq(0), outlived.eq(~decided & (outlived | (pushed != 0) | session.write))]
        with m.If(running):
            m.d.comb += [
                Assert(session.write == (comes & ~i.payload.end & (count >= HEADER.size))),
                Assert(implies(session.write, session.data == i.payload.data)),
                Assert(~(session.write & decided) & ~(session.commit & session.forget)),
                Assert(
                    implies(
                        session.commit, ~session.long & (pushed >= CRC_BYTES) & ~outlived & ~session.ended
                    )
                ),
            ]

        # What its registers hold for that. The header is shifted in from the upper end.
        head, late = Cat(inside["head"].as_value()), weighed | judged
        for bytes_there in range(1, HEADER.size + 1):
            there = late | (count >= bytes_there) if bytes_there == HEADER.size else count == bytes_there
            bits = 8 * bytes_there
            m.d.comb += Assert(implies(there, head[-bits:] == frame[:bits]))
        begun = Mux(count > HEADER.size, count - HEADER.size, 0)
        knows, same = inside["knows"], believed == device
        m.d.comb += [
            Assert(inside.state("WEIGH") == weighed),
            Assert(inside.state("JUDGE") == judged),
            Assert(inside.state("TAKE") == ~late),
            Assert(implies(late, (count == 0) & ~old & ~ending) & ~(weighed & judged)),
            Assert((inside["count"] == count) & (count <= MOST)),
            Assert((inside["outdated"] == old) & implies(old, count != 0)),
            Assert((inside["waiting"] == answers) & (inside["_judge.noticed"] == noticed)),
            Assert(implies(wants_end, answer.session == next_device)),
            Assert(implies(~old & (count == HELLO_BYTES - 1), knows == (believed[:8] == device[:8]))),
            Assert(implies(~old & (count >= HELLO_BYTES), knows == same)),
            Assert(implies(late & (kind == FrameType.HELLO), knows == same)),
            Assert(Mux(late, pushed >= CRC_BYTES, old | (pushed == begun)) & implies(outlived, old)),
        ]

        # All of this happens: a request is accepted in a second session, behind one that was not.
        told_of = Signal()
        m.d.sync += told_of.eq((told_of | (notices & (device != 0))) & ~session.ended)
        m.d.comb += Cover(told_of & accepts)
        return m


test_holds = proven(Harness)
test_reached = covered(Harness, 56, slow_cases(), eager=True)

BUGS = {
    "accepted without room": ("due & self.fits", "due"),
    "accepted twice": ("self.expected.eq(self.expected + 1), ", ""),
    "accepted of another session": ("mine & ((head.kind & _KIND)", "((head.kind & _KIND)"),
    "a notice for each": ("~behind & ~noticed", "~behind"),
    "a notice for an old one": ("~behind & ~noticed", "~noticed"),
    "kept after its session": ("whole & ~self.ending & ~outdated", "whole & ~self.ending"),
    "any session ends": ("swaps = knows & ~mine", "swaps = ~mine"),
}
test_bug_is_found = found(Harness, LinkSession, cases(BUGS, "accepted without room"), 56, eager=True)


@pytest.mark.slow
def test_torn_frame_is_seen(tmp_path: Path) -> None:
    refute(Harness(with_bug(LinkSession, "self.i.payload.good & (count", "(count")), tmp_path, 20)
