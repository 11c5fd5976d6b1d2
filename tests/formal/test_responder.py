"""The link's responder: each response is sent whole, in order, and dropped only when it was acknowledged."""

from pathlib import Path

import pytest
from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, before, distance, free_inputs, holds, implies, stage_of
from support.proofs import cases, covered, found, prove, slow_cases
from support.quick import quick

from rtlstm.hdl.link.responder import Responder
from rtlstm.spec.link import HEADER, FrameType, LinkReport

pytestmark = pytest.mark.tools

STAGES = 3
"""Which response is sent or dropped; a frame; the followed response."""

REPORT_BYTES = HEADER.size + LinkReport.LAYOUT.size


class Harness(Elaboratable):
    """A responder, a store of responses, a session, and a sender that takes bytes when it likes.

    The store makes one response after the other, and has fewer than 256. It keeps those from ``oldest`` on,
    as its own proof shows, and tells the end of one two cycles after its number. All is dropped only while
    nothing is sent.

    Follow any response by the lower bits of its number, and any byte in it. What the store tells of the ends
    of other responses is free, but for the one before.

    Parameters
    ----------
    eager
        All responses have one byte, which is taken at once, and nothing else is sent: what takes more than
        one of them is then found in seconds.
    """

    def __init__(
        self, size: int, kind: type[Responder] = Responder, stage: int | None = None, eager: bool = False
    ) -> None:
        self._responder, self._stage, self._eager = kind(size), stage, eager

    def elaborate(self, platform: object) -> Module:
        m = Module()
        part, o = self._responder, self._responder.o
        free_inputs(m, part)
        inside = Inside(m, part)
        running, whole = ~ResetSignal(), len(part.oldest_address)
        made, oldest, wanted, sending = part.made, part.oldest, inside["wanted"], inside["_sending"]
        idle, taken = inside.state("IDLE"), o.valid & o.ready & running
        index = len(oldest)
        numbers, frames, followed = (stage_of(stage, self._stage) for stage in range(STAGES))

        # The store: how many responses it keeps.
        fresh, was_made, kept = Signal(init=1), before(m, made), distance(made[:index], oldest)
        m.d.sync += fresh.eq(part.clear)
        grows = (made == (was_made + 1)[:16]) & (before(m, kept) != 255)
        m.d.comb += [
            Assume(Mux(fresh, made == 0, (made == was_made) | grows)),
            Assume(implies(part.clear, part.idle & part.ending & running)),
        ]

        # The followed response: its begin, which is the end of the one before, its end, and what it is, from
        # when they are known. ``byte`` is its byte so many places after its begin.
        number, chosen = AnyConst(index), AnyConst(whole)
        start, stop, bad, byte = AnySeq(whole), AnySeq(whole), AnySeq(1), AnySeq(8)
        away, before_it = distance(number, oldest), (number - 1)[:index]
        begun, stored, follows_stored = away <= kept, away < kept, distance(before_it, oldest) < kept
        length = distance(stop, start)
        for known, facts in ((begun, start), (stored, Cat(stop, bad, byte))):
            m.d.comb += Assume(fresh | implies(before(m, known) & known, facts == before(m, facts)))
        m.d.comb += Assume(implies(fresh & (number == 0), start == 0))
        asked, asked_before = (part.number == number) & stored, (part.number == before_it) & follows_stored
        told, told_before = before(m, asked), before(m, asked_before)
        is_chosen = stored & (part.address == (start + chosen)[: whole - 1]) & (chosen < length)
        m.d.comb += [
            Assume(implies(before(m, told), (part.end == stop) & (part.error == bad))),
            Assume(implies(before(m, told_before), part.end == start)),
            Assume(implies(before(m, is_chosen), part.word == byte)),
        ]

        if self._eager:
            m.d.comb += [
                Assume(running & o.ready & ~part.answers & ~part.ending & (length == 1)),
                Assume(part.end == before(m, before(m, part.number)) + 1),
            ]

        # An acknowledgement counts if it is neither behind the last one nor beyond what was made. A response
        # is dropped only if it was acknowledged, and not while anything is sent.
        acked, was_oldest = Signal(16), before(m, oldest)
        with m.If(part.acked & (distance(part.ack, acked) <= distance(made, acked))):
            m.d.sync += acked.eq(part.ack)
        with m.If(part.clear):
            m.d.sync += acked.eq(0)
        drops = before(m, (oldest != acked[:index]) & inside.state("FREE"))
        m.d.comb += [
            numbers(wanted == acked),
            numbers(fresh | (oldest == (was_oldest + drops)[:index])),
            followed(implies(oldest == number, part.oldest_address == start)),
        ]

        # Responses are sent in order, but begin anew at the first that is kept when that is asked for.
        was_sending, ends = before(m, sending), before(m, (o.payload.end & taken) | inside.state("FREE"))
        again = (sending == before(m, acked)) & before(m, idle & inside["_rewinds"])
        with m.If(~fresh & (sending != was_sending)):
            m.d.comb += numbers(((sending == (was_sending + 1)[:16]) & ends) | again)
        asks_again = part.again | (inside["_rewinds"] & ~idle)
        stays = before(m, asks_again & ~part.clear & running)
        m.d.comb += numbers(implies(stays & running, inside["_rewinds"]))

        # A frame is an answer, if there is one, or a response; its header is told as it begins.
        answers, lost, header, place = Signal(), Signal(), Signal(48), Signal(16)
        with m.If(idle):
            session = Mux(part.answers, part.answer.session, part.session)
            name = Mux(part.answers, part.answer.number, sending)
            m.d.sync += [
                answers.eq(part.answered),
                lost.eq(part.answer.lost),
                place.eq(0),
                header.eq(Cat(session, name, part.expected)),
            ]
        with m.Elif(taken & ~o.payload.end):
            m.d.sync += place.eq(place + 1)
        next_is_mine = sending[:index] == number
        mine = next_is_mine & ~answers
        in_head, in_payload, at_end = inside.state("HEAD"), inside.state("PAYLOAD"), inside.state("END")
        kind = Mux(
            answers, Mux(lost, FrameType.LOST, FrameType.REPORT), Mux(bad, FrameType.ERROR, FrameType.DONE)
        )
        # The report's byte is the one of the cycle before it is offered.
        report = Signal.like(part.report)
        with m.If(~inside["_known"]):
            m.d.sync += report.eq(part.report)
        with m.If(in_head):
            m.d.comb += frames(place < Mux(answers, REPORT_BYTES, HEADER.size))
            with m.If(o.valid):
                with m.If(place == 0):
                    m.d.comb += frames(implies(answers | mine, o.payload.data == kind))
                with m.Elif(place < HEADER.size):
                    m.d.comb += frames(o.payload.data == header.word_select((place - 1)[:3], 8))
                with m.Else():
                    m.d.comb += frames(o.payload.data == report.word_select((place - HEADER.size)[:5], 8))
        sent = (place - HEADER.size)[:whole]
        m.d.comb += [
            followed(implies(in_payload & o.valid & mine & (sent == chosen), o.payload.data == byte)),
            followed(implies(in_payload & o.valid & mine, sent < length)),
            followed(implies(at_end & mine, sent == length)),
            numbers(implies(part.answered & running, part.answers & idle)),
            frames(implies(at_end & answers, place == REPORT_BYTES)),
            frames(implies(o.valid, o.payload.end == at_end)),
        ]

        # What is offered stays as it is.
        is_known = Mux(in_payload, mine & (sent == chosen), answers | mine | (place != 0))
        m.d.comb += followed(implies(is_known & running, holds(m, o)))
        waits = before(m, o.valid & ~o.ready & (mine | ~in_payload))
        m.d.comb += followed(implies(waits & running, o.valid))

        # What its registers hold for that.
        cursor, frees = inside["_cursor"], inside["_frees"]
        left, asks = distance(made, sending), inside.state("ASK", "LOOK")
        response = (in_head | in_payload | at_end) & ~answers
        for is_it, once in ((asked, told), (asked_before, told_before)):
            knows = (inside.state("FREE") | response) & is_it
            m.d.comb += [
                frames(implies(inside.state("LOOK") & is_it, once)),
                frames(implies(knows, once & before(m, once))),
            ]
        m.d.comb += [
            numbers(inside.state("IDLE", "ASK", "LOOK", "FREE", "HEAD", "PAYLOAD", "END")),
            numbers(distance(made, wanted) <= 255),
            numbers(distance(wanted[:index], oldest) <= kept),
            numbers((left <= 255) & (distance(sending[:index], oldest) <= kept)),
            numbers(implies((asks & ~frees) | response, left != 0)),
            numbers(implies((asks & frees) | inside.state("FREE"), frees & (oldest != wanted[:index]))),
            numbers(implies(in_head | in_payload | at_end, ~frees)),
            numbers(implies(asks | inside.state("FREE") | in_payload, ~answers)),
            numbers(idle | (inside["_reports"] == answers)),
            frames(idle | (Cat(inside["_numbers"]) == header)),
            frames(idle | (inside["_lost"] == lost)),
            frames(implies(asks, (inside["_index"] == 0) & ~inside["_known"] & (place == 0))),
            frames(implies(in_head, inside["_index"] == place)),
            frames(in_payload | ~inside["read_bytes.valid"]),
            followed(implies(next_is_mine & ~(response & ~in_head), cursor == start)),
            followed(implies(mine & (in_payload | at_end), distance(cursor, start) == sent)),
            followed(implies(mine & (in_payload | at_end), sent <= length)),
            followed(implies(at_end & ~answers & (sending[:index] == before_it), cursor == start)),
            followed(implies(mine & in_payload & o.valid, cursor != stop)),
        ]

        # All of this happens: a response is dropped, and a later one sent.
        m.d.comb += Cover(at_end & mine & taken & (oldest == 1) & (number == 1))
        return m


@pytest.mark.parametrize("size", cases({"2048 bytes": 2048, "32768 bytes": 32768}, "2048 bytes"))
@pytest.mark.parametrize("stage", quick(range(STAGES), 0))
def test_holds(size: int, stage: int, tmp_path: Path) -> None:
    prove(Harness(size, stage=stage), tmp_path)


test_reached = covered(Harness, 50, slow_cases({"2048 bytes": 2048}), eager=True)

BUGS = {
    "dropped without an acknowledgement": ("self.oldest != wanted[:bits]", "self.oldest != self.made[:bits]"),
    "acknowledged before it is made": ("(ahead[8:] == 0) & (left[8:] == 0)", "(ahead[8:] == 0)"),
    "the next one from the one before": ("m.d.sync += self._cursor.eq(self.end)", "pass"),
    "another session's answer": ("Mux(self.answers, self.answer.session, self.session)", "self.session"),
    "a report's byte changes while it is offered": ("with m.If(~known):", "with m.If(1):"),
    "never sent again": ("with m.If(self.again):", "with m.If(0):"),
}
test_bug_is_found = found(Harness, Responder, cases(BUGS, "dropped without an acknowledgement"), 20, 2048)

LATE_BUGS = {
    "sent again from elsewhere": ("self._cursor.eq(self.oldest_address), ", ""),
    "its last byte is lost": ("reads.eq(self._cursor != self.end)", "reads.eq(self._cursor + 1 != self.end)"),
}
test_late_bug_is_found = found(Harness, Responder, slow_cases(LATE_BUGS), 50, 2048, eager=True)
