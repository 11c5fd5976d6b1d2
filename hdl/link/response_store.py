"""Stores responses until the host has received them."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.primitives.pipeline import storage
from rtlstm.spec.inventory import link_memories
from rtlstm.spec.link import PAYLOAD_LIMIT, RECORDS, Limits
from rtlstm.spec.parameters import ceil_log2


class ResponseMemory(Component):
    """Writes responses into a ring, one after the other. The end of each is in a separate memory.

    Parameters
    ----------
    limits
        What the link can hold.

    Members
    -------
    i : In(stream of 8)
        The payload of the response being made; not accepted while there is no space.
    full : Out(1)
        It has as many bytes as a frame may have, and accepts no more.
    restart : In(1)
        Drop its bytes so far.
    finish : In(1), failed : In(1)
        It is complete, if there is ``room``; it is an ERROR.
    room : Out(1)
        There is space for another byte, or for the end.
    discard : In(1)
        Drop bytes and responses as they are written.
    made : Out(16)
        Number of the response being made: those before it are stored.
    oldest : In(8), oldest_address : In
        Number of the oldest response that is still needed, and its first address.
    clear : In(1)
        Drop all responses.
    address : In, word : Out(8)
        Clocked read of bytes, one cycle.
    number : In(8), end : Out, error : Out(1)
        Clocked read, two cycles: the end of the response with this number, and whether it is an ERROR.
    """

    i: stream.Interface
    full: Signal
    restart: Signal
    finish: Signal
    failed: Signal
    room: Signal
    discard: Signal
    made: Signal
    oldest: Signal
    oldest_address: Signal
    clear: Signal
    address: Signal
    word: Signal
    number: Signal
    end: Signal
    error: Signal

    def __init__(self, limits: Limits) -> None:
        self._bits = ceil_log2(limits.response_bytes)
        self._memories = link_memories(limits)
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "full": Out(1),
                "restart": In(1),
                "finish": In(1),
                "failed": In(1),
                "room": Out(1),
                "discard": In(1),
                "made": Out(16),
                "oldest": In(range(RECORDS)),
                "oldest_address": In(self._bits + 1),
                "clear": In(1),
                "address": In(self._bits),
                "word": Out(8),
                "number": In(range(RECORDS)),
                "end": Out(self._bits + 1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, self._memories["responses"], "responses")
        known, note = storage(m, self._memories["records of responses"], "records")
        # Addresses of the open response's first byte and of its next byte.
        base, byte_address, used = (
            Signal(self._bits + 1, name=name) for name in ("base", "byte_address", "used")
        )
        following, size = Signal.like(self.made), Signal(range(PAYLOAD_LIMIT + 1))
        taken = Signal()
        m.d.comb += [
            read.addr.eq(self.address),
            self.word.eq(read.data),
            known.addr.eq(self.number),
            Cat(self.end, self.error).eq(known.data),
            used.eq(byte_address - self.oldest_address),
            size.eq(byte_address - base),
            self.full.eq(size == PAYLOAD_LIMIT),
            taken.eq(self.i.valid & self.i.ready),
            write.addr.eq(byte_address),
            write.data.eq(self.i.payload),
            write.en.eq(taken & ~self.discard),
            following.eq(self.made + 1),
            note.addr.eq(self.made),
            note.data.eq(Cat(byte_address, self.failed)),
            note.en.eq(self.finish & ~self.discard),
        ]
        # Whether there is space comes from registers, because it takes one or two adders.
        spare, more = ~used[-1] | self.discard, (following[: len(self.oldest)] != self.oldest) | self.discard
        m.d.sync += [
            self.room.eq(spare & more & ~taken & ~self.finish),
            self.i.ready.eq(spare & ~taken & ~self.full & ~self.finish),
        ]
        with m.If(taken):
            m.d.sync += byte_address.eq(byte_address + 1)
        with m.If(self.restart):
            m.d.sync += byte_address.eq(base)
        with m.If(note.en):
            m.d.sync += [base.eq(byte_address), self.made.eq(following)]
        with m.If(self.finish & self.discard):
            m.d.sync += byte_address.eq(base)
        with m.If(self.clear):
            m.d.sync += [base.eq(0), byte_address.eq(0), self.made.eq(0)]
        return m
