"""The link's queue of requests: each that is committed comes once, whole, in order; no other ever comes."""

from pathlib import Path

import pytest
from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assume, Cat, Const, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, before, distance, free_inputs, holds, implies, stage_of, stored_word
from support.proofs import cases, covered, found, prove, slow_cases
from support.quick import quick

from rtlstm.hdl.link.memories import RequestMemory
from rtlstm.spec.link import BODY_LIMIT, CRC_BYTES, PAYLOAD_LIMIT, RECORDS, Limits

pytestmark = pytest.mark.tools

STAGES = 4
"""What is written; which record is read, and how much of it; the followed record; its byte."""


class Harness(Elaboratable):
    """A queue, a session that writes records, and an executor that reads what it likes of each.

    The session commits a record only if all of it is there, a checksum too, and never one that was open at a
    ``clear``, as its own proof shows. The executor closes a record that is there, once, and reads nothing in
    that cycle, nor as all is dropped.

    Follow any record, by its number, and any byte in it. Both memories are free, but for these two words: of
    the other records, the queue is told any lengths for which holds what is asserted of the followed one.
    """

    def __init__(
        self, limits: Limits, kind: type[RequestMemory] = RequestMemory, stage: int | None = None
    ) -> None:
        self._size, self._stage = limits.request_bytes, stage
        self._queue = kind(limits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        queue, size, o = self._queue, self._size, self._queue.o
        free_inputs(m, queue)
        inside = Inside(m, queue)
        running, whole = ~ResetSignal(), len(inside["byte_address"])
        taken = o.valid & o.ready & running
        written, ordered, whole_record, each_byte = (stage_of(stage, self._stage) for stage in range(STAGES))

        # The session. ``pushed`` bytes are in the open record, unless one was ``lost``.
        pushed, lost, outlived = Signal(10), Signal(), Signal()
        ends = queue.forget | queue.commit
        m.d.comb += [
            Assume(~(queue.write & ends) & ~(queue.forget & queue.commit)),
            Assume(implies(queue.commit, queue.fits & ~queue.long & (pushed >= CRC_BYTES))),
            Assume(implies(queue.commit, ~outlived & ~queue.clear & running)),
            Assume(implies(queue.write | queue.forget | queue.clear, running)),
        ]
        stores = inside["_write.write"].en
        with m.If(queue.write):
            m.d.sync += [pushed.eq(Mux(pushed.all(), pushed, pushed + 1)), lost.eq(lost | ~stores)]
        with m.If(ends | queue.clear):
            opens = (pushed != 0) | queue.write
            m.d.sync += [pushed.eq(0), lost.eq(0), outlived.eq(~ends & (outlived | opens))]
        with m.If(running):
            m.d.comb += written(implies(queue.fits & ~queue.long, ~lost))

        # The executor.
        m.d.comb += [
            Assume(implies(queue.close, queue.there & ~o.ready & ~queue.clear & running)),
            Assume(implies(queue.clear, ~o.ready)),
        ]

        # Records are numbered: from ``closed`` to ``opened`` they wait, and are told of up to ``seen``.
        opened, seen, closed = (Signal(8, name=name) for name in ("numbered", "seen", "closed"))
        m.d.sync += [opened.eq(opened + queue.commit), closed.eq(closed + queue.close)]
        with m.If(queue.commit & queue.publish):
            m.d.sync += seen.eq(opened + 1)
        with m.If(queue.clear):
            m.d.sync += [opened.eq(0), seen.eq(0), closed.eq(0)]

        # The followed record, from its commit until it has been read; any byte of it, until it has been read.
        base, end, at, record = (
            inside["_write.base"],
            inside["_write.end"],
            inside["byte_address"],
            inside["record"],
        )
        left, valid, ready = inside["_read.left"], inside["read_bytes.valid"], inside["read_bytes.ready"]
        number, length, kind = AnyConst(8), Signal(10), Signal(4)
        begin, stop, spot = (Signal(whole, name=name) for name in ("begin", "stop", "spot"))
        row, follows, index, value = AnyConst(whole - 1), Signal(), Signal(10), Signal(8)
        open_now, mine = opened == number, record == number
        waits = distance(number, record) < distance(opened, record)
        with m.If(queue.commit & open_now):
            m.d.sync += [length.eq(pushed), kind.eq(queue.kind), begin.eq(base), stop.eq(end)]
        with m.If(queue.write & stores & ~lost & open_now & ~follows & (end[:-1] == row) & AnySeq(1)):
            m.d.sync += [follows.eq(1), index.eq(pushed), value.eq(queue.data), spot.eq(end)]
        with m.If((queue.forget & open_now) | (waits & (at == spot) & valid & ready) | queue.clear):
            m.d.sync += follows.eq(0)

        # It comes in its turn, if it was to be told of, with its length and its kind. ``place`` of its bytes
        # have been taken: the next one is offered, unless only the checksum is left.
        place = Signal(10)
        m.d.sync += place.eq(Mux(queue.there & ~queue.close & ~queue.clear, place + taken, 0))
        here = queue.there & (closed == number)
        with m.If(running):
            m.d.comb += [
                ordered(implies(queue.there, closed != seen)),
                ordered(implies(queue.there, (queue.request.length >= CRC_BYTES) & (closed == record))),
                whole_record(implies(here, queue.request.length == length - place)),
                whole_record(implies(here, (queue.request.kind == kind) & waits)),
                ordered(implies(o.valid, queue.there & (queue.request.length > CRC_BYTES))),
                each_byte(implies(o.valid & here & follows & (place == index), o.payload == value)),
                each_byte(implies(before(m, ~queue.close & ~queue.clear) & (at[:-1] == row), holds(m, o))),
            ]

        # Nobody waits for ever: for a byte, for a record, for the end of one that was closed.
        stays = ~queue.close & ~queue.clear & running
        more = before(m, queue.there & (queue.request.length > CRC_BYTES) & ~taken & stays)
        next_comes = before(m, ~queue.there & ~inside["_read.closing"] & (closed != seen) & stays)
        with m.If(running):
            m.d.comb += [
                ordered(implies(more, o.valid)),
                ordered(implies(before(m, next_comes & stays) & next_comes, queue.there)),
                ordered(implies(before(m, inside["_read.closing"] & ~valid & stays), valid)),
                ordered(implies(inside["_read.closing"], ready)),
            ]

        # What its registers hold for that, of all records and of the one that is read.
        closing, there, looked = inside["_read.closing"], inside["_read.there"], inside["_read.looked"]
        stored, unread = distance(end, at), distance(base, at)
        open_size, last = distance(end, base), (record + 1)[:8] == opened
        m.d.comb += [
            written(open_size <= PAYLOAD_LIMIT + CRC_BYTES + 1),
            ordered((unread <= stored) & (stored <= size)),
            written(Mux(lost, inside["_write.refused"] | queue.long, open_size == pushed)),
            ordered((inside["_write.opened"] == opened) & (inside["published"] == seen)),
            ordered(
                (closed == (record + closing)[:8]) & (distance(seen, record) <= distance(opened, record))
            ),
            ordered(implies(closing, ~there) & implies(looked, ~there)),
            ordered(Mux(there, left >= CRC_BYTES, (left != 0) == closing)),
            ordered(implies(there | closing | looked, record != seen) & implies(valid, left != 0)),
            ordered(implies(left != 0, left <= unread) & implies((left != 0) & last, left == unread)),
            ordered(implies(record == opened, at == base)),
        ]

        # Of the followed record, and of its byte.
        ahead, next_mine = distance(begin, at), (record + 1)[:8] == number
        in_records = stored_word(m, inside["m"].submodules.records, number)
        in_bytes = stored_word(m, inside["m"].submodules.requests, row)
        with m.If(waits):
            m.d.comb += [
                whole_record(
                    (length >= CRC_BYTES)
                    & (in_records == Cat(length, kind))
                    & (distance(stop, begin) == length)
                ),
                whole_record(implies((opened - 1)[:8] == number, base == stop)),
                whole_record(distance(stop, at) <= unread),
                whole_record(implies(mine & (left == 0), at == begin)),
                whole_record(implies(mine & (left != 0), left == distance(stop, at))),
                whole_record(implies(~mine, ahead <= distance(stop, at))),
                whole_record(implies(~mine & (left != 0), Mux(next_mine, left == ahead, left <= ahead))),
                each_byte(implies(follows, distance(spot, at) < distance(stop, at))),
                each_byte(implies(follows, distance(spot, begin) == index)),
            ]
        m.d.comb += [
            whole_record(implies(here, (place + left == length) & (place == distance(at, begin)))),
            each_byte(implies(follows, (open_now | waits) & (spot[:-1] == row) & (in_bytes == value))),
            each_byte(
                implies(follows & open_now, (distance(spot, at) >= unread) & (distance(spot, at) < stored))
            ),
            each_byte(implies(follows & open_now, distance(spot, base) == index)),
        ]

        # What is so with the followed record, is so with any other that the reader begins.
        found = inside["_read.known"].data[:10]
        m.d.comb += whole_record(implies(looked & mine, (found >= CRC_BYTES) & (found <= unread)))
        m.d.comb += whole_record(implies(looked & mine & last, found == unread))
        with m.If(looked & (~mine | Const(self._stage == 1))):
            m.d.comb += Assume((found >= CRC_BYTES) & (found <= unread) & implies(last, found == unread))
        with m.If(looked & ~mine & waits):
            m.d.comb += Assume((found <= ahead) & implies(next_mine, found == ahead))

        # All of this happens: a record is forgotten, and of the second one after it the followed byte comes.
        forgotten = Signal()
        m.d.sync += forgotten.eq((forgotten | (queue.forget & (pushed != 0))) & ~queue.clear)
        m.d.comb += Cover(forgotten & here & follows & taken & (place == index) & (number == 1))
        return m


SHAPES = {
    f"{size} bytes": Limits(body=BODY_LIMIT, request_bytes=size, response_bytes=size, frames=RECORDS - 1)
    for size in (2048, 32768)
}


@pytest.mark.parametrize("stage", quick(range(STAGES), 0))
@pytest.mark.parametrize("limits", cases(SHAPES, "2048 bytes"))
def test_holds(limits: Limits, stage: int, tmp_path: Path) -> None:
    prove(Harness(limits, stage=stage), tmp_path)


test_reached = covered(Harness, 30, slow_cases(SHAPES, "2048 bytes"))

BUGS = {
    "told of too early": ("with m.If(self.publish):", "with m.If(1):"),
    "a forgotten record's bytes stay": ("[end.eq(base), refused.eq(0)]", "refused.eq(0)"),
    "a checksum is offered": ("valid & there & (left != CRC_BYTES)", "valid & there"),
    "a byte is lost": ("self.o.valid & self.o.ready))", "self.o.valid))"),
    "the next record begins in a checksum": (
        "with m.If(self.close):\n            m.d.sync += [there.eq(0), closing.eq(1)]",
        "with m.If(self.close):\n            m.d.sync += [there.eq(0), left.eq(0), record.eq(record + 1)]",
    ),
    "dropped records come": ("opened.eq(0), published.eq(0)]", "opened.eq(0)]"),
    "a length of the record before": (
        "looked.eq((left == 0) & (record != published) & ~looked)",
        "looked.eq((left <= valid) & (record != published) & ~looked)",
    ),
}
test_bug_is_found = found(Harness, RequestMemory, cases(BUGS, "told of too early"), 30, SHAPES["2048 bytes"])
