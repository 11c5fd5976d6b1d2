"""Handles each frame from the host."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream
from amaranth.lib.data import StructLayout, View

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.link.framing import DECODED
from rtlstm.spec.link import CRC_BYTES, HEADER, NUMBERED, FrameType

ANSWER = StructLayout({"lost": 1, "session": 16, "number": 16})
"""A REPORT (or LOST) to be sent, and the fields that its header repeats."""

_HELLO_BYTES = HEADER.size + 3
_HEAD = StructLayout({"kind": 8, "session": 16, "number": 16, "ack": 16})
_BELIEVED = HEADER.size + 1
"""Index of HELLO's bytes with the session in which the host believes the device to be."""
_KIND = 0xF0


class LinkSession(Component):
    """Processes frames of the host: accepts requests, answers other frames, drops wrong ones."""

    i: stream.Interface = In(stream.Signature(DECODED))
    write: Signal = Out(1)
    data: Signal = Out(8)
    forget: Signal = Out(1)
    commit: Signal = Out(1)
    kind: Signal = Out(4)
    publish: Signal = Out(1)
    fits: Signal = In(1)
    long: Signal = In(1)
    """To the :class:`~rtlstm.hdl.link.memories.RequestMemory`."""
    session: Signal = Out(16)
    expected: Signal = Out(16)
    """The device's session, and the number of the next request."""
    ack: Signal = Out(16)
    acked: Signal = Out(1)
    """An acknowledgement has come; it may be old."""
    answer: Struct = Out(ANSWER)
    answers: Signal = Out(1)
    answered: Signal = In(1)
    """The last answer that must still be sent; whether there is one; it is being sent."""
    again: Signal = Out(1)
    """The stored responses must be sent again."""
    ending: Signal = Out(1)
    ended: Signal = In(1)
    """The session ends, and its requests and responses are dropped; none is in progress any more."""
    foreign: Signal = In(1)
    """Something that is no frame was dropped, in this cycle."""
    dropped: Signal = Out(32)
    """Frames dropped, and what is none."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        head = View(_HEAD, Signal(_HEAD, reset_less=True))
        count = Signal(range(_HELLO_BYTES + CRC_BYTES + 1))
        # The current frame began in a session that has ended.
        waiting, drops, outdated = Signal(), Signal(), Signal()
        # HELLO names the device's session.
        knows, same = Signal(reset_less=True), Signal()
        m.d.comb += [
            same.eq(self.i.payload.data == Mux(count == _BELIEVED, self.session[:8], self.session[8:])),
            self.data.eq(self.i.payload.data),
            self.kind.eq(head.kind),
            self.publish.eq(head.kind != FrameType.PART),
            self.ack.eq(head.ack),
            self.answers.eq(waiting & ~self.ending),
        ]
        # Whether the frame's session is the device's; whether its number is the next one, or an earlier one.
        mine, due, behind = self._seen = tuple(Signal(name=name) for name in ("mine", "due", "behind"))
        ahead = Signal(16)
        m.d.comb += ahead.eq(head.number - self.expected)
        m.d.sync += [
            self.dropped.eq(self.dropped + drops + self.foreign),
            mine.eq(head.session == self.session),
            due.eq(ahead == 0),
            behind.eq(ahead[-1]),
        ]
        with m.If(self.answered):
            m.d.sync += waiting.eq(0)
        with m.If(self.ended):
            m.d.sync += [self.ending.eq(0), self.session.eq(self.answer.session), self.expected.eq(0)]
            m.d.sync += outdated.eq(count != 0)
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid & ~self.i.payload.end):
                    m.d.comb += self.write.eq(count >= HEADER.size)
                    m.d.sync += count.eq(Mux(count == _HELLO_BYTES + CRC_BYTES, count, count + 1))
                    with m.If(count < HEADER.size):
                        m.d.sync += head.eq(Cat(Value.cast(head)[8:], self.i.payload.data))
                    with m.If(count == _BELIEVED):
                        m.d.sync += knows.eq(same)
                    with m.If(count == _BELIEVED + 1):
                        m.d.sync += knows.eq(knows & same)
                with m.Elif(self.i.valid & (count != 0)):
                    m.d.sync += [count.eq(0), outdated.eq(0)]
                    whole = self.i.payload.good & (count >= HEADER.size + CRC_BYTES) & ~self.long
                    with m.If(whole & ~self.ending & ~outdated):
                        with m.If((head.kind != FrameType.HELLO) | (count == _HELLO_BYTES + CRC_BYTES)):
                            m.next = "WEIGH"
                        with m.Else():
                            m.d.comb += [drops.eq(1), self.forget.eq(1)]
                    with m.Else():
                        m.d.comb += [drops.eq(1), self.forget.eq(1)]
            # The inputs of these decisions come from registers.
            with m.State("WEIGH"):
                m.next = "JUDGE"
            with m.State("JUDGE"):
                m.next = "TAKE"
                m.d.comb += [drops.eq(1), self.forget.eq(1)]
                self._judge(m, head, knows, waiting, drops)
        return m

    def _judge(self, m: Module, head: Struct, knows: Signal, waiting: Signal, drops: Signal) -> None:
        mine, due, behind = self._seen
        noticed = Signal()
        with m.If(head.kind == FrameType.RESUME):
            self._answer(m, waiting, head.session, head.number, ~mine)
            m.d.comb += [drops.eq(0), self.acked.eq(mine), self.again.eq(mine)]
            with m.If(mine):
                m.d.sync += noticed.eq(0)
        with m.Elif(head.kind == FrameType.HELLO):
            swaps = knows & ~mine
            self._answer(m, waiting, head.session, head.number, ~mine & ~swaps)
            m.d.comb += drops.eq(0)
            with m.If(swaps):
                m.d.sync += [self.ending.eq(1), noticed.eq(0)]
        with m.Elif(mine & ((head.kind & _KIND) == NUMBERED)):
            m.d.comb += self.acked.eq(1)
            with m.If(due & self.fits):
                m.d.comb += [drops.eq(0), self.forget.eq(0), self.commit.eq(1)]
                m.d.sync += [self.expected.eq(self.expected + 1), noticed.eq(0)]
            with m.Elif(~behind & ~noticed):
                self._answer(m, waiting, head.session, 0, 0)
                m.d.sync += noticed.eq(1)

    def _answer(self, m: Module, waiting: Signal, session: Value, number: ValueLike, lost: ValueLike) -> None:
        m.d.sync += [
            waiting.eq(1),
            self.answer.session.eq(session),
            self.answer.number.eq(number),
            self.answer.lost.eq(lost),
        ]
