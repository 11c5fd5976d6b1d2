"""Responses, kept until the host has them."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.link.requests import PREFIX, PREFIX_BYTES
from rtlstm.hdl.pipeline import storage
from rtlstm.spec.link import PAYLOAD_LIMIT
from rtlstm.spec.parameters import ceil_log2

__all__ = ["ResponseMemory"]


class ResponseMemory(wiring.Component):
    """Writes responses into a ring, one after the other.

    Parameters
    ----------
    size
        Bytes, a power of two. A response takes 3 more than its payload.

    Members
    -------
    i : In(stream of 8)
        The payload of the response being made; held back while there is no room.
    full : Out(1)
        It has as many bytes as a frame may have: it takes no more.
    restart : In(1)
        Throw away what it has so far.
    finish : In(1), kind : In(8), busy : Out(1)
        It is complete, if there is ``room``. Takes three cycles; in the last two ``busy`` is 1. Nothing else
        may be asked in them.
    room : Out(1)
        There is room for another byte, or for the end.
    discard : In(1)
        Throw away whatever is written and finished.
    finished : Out(1), base : Out
        A response has been stored; where the next will begin.
    oldest : In
        Where the oldest response begins that is still wanted.
    clear : In(1)
        Forget everything.
    address : In, word : Out(8)
        Clocked read, one cycle.
    """

    def __init__(self, size: int) -> None:
        self._bits = ceil_log2(size)
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "full": Out(1),
                "restart": In(1),
                "finish": In(1),
                "kind": In(8),
                "busy": Out(1),
                "room": Out(1),
                "discard": In(1),
                "finished": Out(1),
                "base": Out(self._bits + 1),
                "oldest": In(self._bits + 1),
                "clear": In(1),
                "address": In(self._bits),
                "word": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, "responses", 8, 1 << self._bits)
        count, step = Signal(range(PAYLOAD_LIMIT + 1)), Signal(range(PREFIX_BYTES + 1))
        end, used = Signal.like(self.base), Signal.like(self.base)
        taken, last, prefix = Signal(), Signal(), Signal(PREFIX)
        m.d.comb += [
            read.addr.eq(self.address),
            self.word.eq(read.data),
            end.eq(self.base + count + PREFIX_BYTES),
            used.eq(end - self.oldest),
            prefix.length.eq(count),
            prefix.kind.eq(self.kind),
            self.full.eq(count == PAYLOAD_LIMIT),
            self.busy.eq(step != 0),
            last.eq(step == PREFIX_BYTES - 1),
            self.finished.eq(last & ~self.discard),
            taken.eq(self.i.valid & self.i.ready),
        ]
        # What is written comes from registers, and so does whether there is room: both take an adder or two.
        ends = self.finish | self.busy
        m.d.sync += [
            self.room.eq((~used[-1] | self.discard) & ~taken),
            self.i.ready.eq((~used[-1] | self.discard) & ~taken & ~self.full & ~ends),
            write.addr.eq(Mux(ends, self.base + step, end)),
            write.data.eq(Mux(ends, Value.cast(prefix).word_select(step, 8), self.i.payload)),
            write.en.eq((ends | taken) & ~self.discard),
        ]
        with m.If(taken):
            m.d.sync += count.eq(count + 1)
        with m.If(ends):
            m.d.sync += step.eq(Mux(last, 0, step + 1))
        with m.If(last | self.restart):
            m.d.sync += count.eq(0)
        with m.If(self.finished):
            m.d.sync += self.base.eq(end)
        with m.If(self.clear):
            m.d.sync += self.base.eq(0)
        return m
