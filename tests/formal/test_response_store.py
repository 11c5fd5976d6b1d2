"""The link's store of responses: none is written over while it is needed, and all have room."""

import pytest
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, ResetSignal, Signal
from support.formal import Inside, before, free_inputs, implies
from support.proofs import cases, covered, found, proven

from rtlstm.hdl.link.memories import ResponseMemory
from rtlstm.spec.link import BODY_LIMIT, PAYLOAD_LIMIT, RECORDS, Limits

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """A store, an executor that makes responses, and a responder that drops the oldest when it likes.

    The executor gives bytes when they are accepted, and not as it ends a response or begins it anew; it ends
    one with ``room`` only. The responder goes on to the end of a response that is stored. A session ends with
    a time in which all is discarded, and that with a cycle that clears both sides.
    """

    def __init__(self, limits: Limits, kind: type[ResponseMemory] = ResponseMemory) -> None:
        self._size = limits.response_bytes
        self._store = kind(limits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        store, size = self._store, self._size
        free_inputs(m, store)
        inside = Inside(m, store)
        running, whole = ~ResetSignal(), len(store.oldest_address)
        base, end, oldest = inside["base"], inside["byte_address"], store.oldest_address

        # The executor.
        m.d.comb += [
            Assume(implies(store.finish | store.restart | store.clear, ~store.i.valid)),
            Assume(implies(store.finish, store.room & ~store.restart & ~store.clear & running)),
            Assume(implies(before(m, store.discard & ~store.clear), store.discard)),
            Assume(implies(store.clear, store.discard)),
        ]

        # The responder: what is stored, in bytes and in responses.
        used, stored, kept = Signal(whole), Signal(whole), Signal(len(store.oldest))
        fresh = Signal(init=1)
        m.d.sync += fresh.eq(store.clear)
        was_stored, was_kept = before(m, stored), before(m, kept)
        was_oldest, was_number = before(m, oldest), before(m, store.oldest)
        passes = store.oldest != was_number
        m.d.comb += [
            used.eq(end - oldest),
            stored.eq(base - oldest),
            kept.eq(store.made - store.oldest),
            Assume(implies(fresh, (oldest == 0) & (store.oldest == 0))),
            Assume(fresh | ((oldest - was_oldest)[:whole] <= was_stored)),
            Assume(fresh | ~passes | ((store.oldest == (was_number + 1)[: len(kept)]) & (was_kept != 0))),
        ]

        # No byte is written where one is stored, and no response where another is; a frame can carry each.
        writes = store.i.valid & store.i.ready & ~store.discard & running
        ends = store.finish & ~store.discard
        length = Signal(whole)
        m.d.comb += [
            length.eq(end - base),
            Assert(implies(writes, (used < size) & (length < PAYLOAD_LIMIT))),
            Assert(implies(ends, kept != RECORDS - 1)),
            Assert(stored <= size),
        ]
        with m.If(~store.discard & running):
            m.d.comb += [Assert(stored <= used), Assert(used <= size), Assert(length <= PAYLOAD_LIMIT)]

        # Nobody waits for ever: there is room as soon as it was free for a cycle in which nothing came.
        rests = before(m, ~(store.i.valid & store.i.ready) & ~store.finish & ~store.discard & running)
        free, more = before(m, used != size), before(m, kept != RECORDS - 1)
        m.d.comb += [
            Assert(implies(rests & free & more & running, store.room)),
            Assert(implies(rests & free & before(m, length != PAYLOAD_LIMIT) & running, store.i.ready)),
        ]

        # All of this happens: a response is stored and dropped, and another is begun anew.
        dropped = Signal()
        m.d.sync += dropped.eq(dropped | (passes & ~fresh & (oldest != was_oldest)))
        m.d.comb += Cover(dropped & store.restart & (length != 0) & running)
        return m


SHAPES = {
    f"{size} bytes": Limits(body=BODY_LIMIT, request_bytes=size, response_bytes=size, frames=RECORDS)
    for size in (8, 2048, 8192)
}
test_holds = proven(Harness, cases(SHAPES, "2048 bytes"))
test_reached = covered(Harness, 16, [SHAPES["2048 bytes"]])

BUGS = {
    "written where one is stored": ("spare & ~taken & ~self.full", "~taken & ~self.full"),
    "a byte too many": ("spare & ~taken & ~self.full", "spare & ~self.full"),
    "what is stored is dropped": (
        "with m.If(self.restart):\n            m.d.sync += byte_address.eq(base)",
        "with m.If(self.restart):\n            m.d.sync += byte_address.eq(0)",
    ),
    "no room for an end": ("spare & more & ~taken & ~self.finish", "0"),
}
test_bug_is_found = found(
    Harness, ResponseMemory, cases(BUGS, "written where one is stored"), 24, SHAPES["8 bytes"]
)
