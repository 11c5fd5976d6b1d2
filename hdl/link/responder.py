"""Handles each frame from the host, and sends answers and responses to it."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream
from amaranth.lib.data import StructLayout, View

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.link.framing import BODY, DECODED
from rtlstm.hdl.link.memories import read_bytes
from rtlstm.hdl.primitives.pipeline import ReadPort
from rtlstm.spec.link import CRC_BYTES, HEADER, NUMBERED, RECORDS, FrameType, LinkReport
from rtlstm.spec.parameters import ceil_log2

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


class Responder(Component):
    """Sends answers and responses, and drops responses that the host has received.

    ``size`` is the size of the :class:`~rtlstm.hdl.link.memories.ResponseMemory` in bytes.
    """

    o: stream.Interface = Out(stream.Signature(BODY))
    made: Signal = In(16)
    oldest: Signal = Out(range(RECORDS))
    oldest_address: Signal = Out(lambda size: ceil_log2(size) + 1)
    address: Signal = Out(ceil_log2)
    word: Signal = In(8)
    number: Signal = Out(range(RECORDS))
    end: Signal = In(lambda size: ceil_log2(size) + 1)
    error: Signal = In(1)
    """From and to the :class:`~rtlstm.hdl.link.memories.ResponseMemory`."""
    session: Signal = In(16)
    expected: Signal = In(16)
    ack: Signal = In(16)
    acked: Signal = In(1)
    answer: Struct = In(ANSWER)
    answers: Signal = In(1)
    answered: Signal = Out(1)
    again: Signal = In(1)
    ending: Signal = In(1)
    """From and to the :class:`~rtlstm.hdl.link.responder.LinkSession`."""
    report: Signal = In(8 * LinkReport.LAYOUT.size)
    """Payload of the answers."""
    idle: Signal = Out(1)
    """Nothing is being sent."""
    clear: Signal = In(1)
    """Drop all responses; only while ``idle`` and ``ending``."""

    def __init__(self, size: int) -> None:
        super().__init__(size)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The first response that the host has not acknowledged, and the next to be sent.
        wanted, self._sending = (Signal(16, name=f"{name}_number") for name in ("wanted", "sending"))
        self._cursor = Signal.like(self.oldest_address, name="cursor")
        self._acknowledge(m, wanted)
        # Whether an answer is being sent; whether to drop the next response; to begin again at the first one;
        # to go on to the next one.
        self._reports, self._frees, self._rewinds, self._passes = Signal(), Signal(), Signal(), Signal()
        self._lost = Signal(reset_less=True, name="lost")
        # Of the header, at the frame's begin.
        self._numbers = [Signal(16, reset_less=True, name=name) for name in ("session", "number", "ack")]
        self._index, reads = Signal(range(HEADER.size + LinkReport.LAYOUT.size)), Signal(name="reads")
        # The byte at ``index``, and whether it is valid already.
        self._byte, self._known = Signal(8, reset_less=True), Signal(name="known")
        valid, data, ready = read_bytes(m, ReadPort(self.address, self.word), self._cursor, reads)
        with m.FSM():
            self._choose(m, wanted)
            self._send_head(m)
            with m.State("PAYLOAD"):
                m.d.comb += [
                    reads.eq(self._cursor != self.end),
                    self.o.valid.eq(valid),
                    self.o.payload.data.eq(data),
                    ready.eq(self.o.ready),
                ]
                with m.If(~valid & ~reads):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.end.eq(1)]
                with m.If(self.o.ready):
                    m.d.comb += self._passes.eq(~self._reports)
                    m.next = "IDLE"
        with m.If(self._passes):
            m.d.sync += self._sending.eq(self._sending + 1)
        m.d.comb += self.number.eq(Mux(self._frees, self.oldest, self._sending))
        with m.If(self.again):
            m.d.sync += self._rewinds.eq(1)
        with m.If(self.clear):
            pointers = (wanted, self._sending, self.oldest, self.oldest_address, self._cursor)
            m.d.sync += [position.eq(0) for position in pointers]
        return m

    def _choose(self, m: Module, wanted: Signal) -> None:
        """Begin what is to be done next: drop a response, send an answer, or send a response."""
        bits, sending, (session, number, ack) = len(self.oldest), self._sending, self._numbers
        with m.State("IDLE"):
            m.d.comb += self.idle.eq(1)
            m.d.sync += [
                self._index.eq(0),
                self._known.eq(0),
                self._frees.eq(0),
                self._reports.eq(0),
                self._lost.eq(self.answer.lost),
                session.eq(Mux(self.answers, self.answer.session, self.session)),
                number.eq(Mux(self.answers, self.answer.number, sending)),
                ack.eq(self.expected),
            ]
            with m.If(self.ending):
                m.d.sync += self._rewinds.eq(0)
            with m.Elif(self.oldest != wanted[:bits]):
                m.d.sync += self._frees.eq(1)
                m.next = "ASK"
            with m.Elif(self.answers):
                m.d.comb += self.answered.eq(1)
                m.d.sync += self._reports.eq(1)
                m.next = "HEAD"
            with m.Elif(self._rewinds):
                m.d.sync += [self._rewinds.eq(0), self._cursor.eq(self.oldest_address), sending.eq(wanted)]
            with m.Elif(sending[:bits] != self.made[:bits]):
                m.next = "ASK"
        # The end of a response is there two cycles after its number.
        with m.State("ASK"):
            m.next = "LOOK"
        with m.State("LOOK"):
            m.next = "HEAD"
            with m.If(self._frees):
                m.next = "FREE"
        with m.State("FREE"):
            m.d.sync += [self.oldest_address.eq(self.end), self.oldest.eq(self.oldest + 1)]
            m.next = "IDLE"
            with m.If(sending[:bits] == self.oldest):
                m.d.comb += self._passes.eq(1)
                m.d.sync += self._cursor.eq(self.end)

    def _send_head(self, m: Module) -> None:
        """Send the header, and behind it the report if it is an answer."""
        kind = Mux(
            self._reports,
            Mux(self._lost, FrameType.LOST, FrameType.REPORT),
            Mux(self.error, FrameType.ERROR, FrameType.DONE),
        )
        header = [kind, *(half for number in self._numbers for half in (number[:8], number[8:]))]
        index, known = self._index, self._known
        with m.State("HEAD"):
            m.d.comb += [self.o.valid.eq(known), self.o.payload.data.eq(self._byte)]
            m.d.sync += known.eq(~known | ~self.o.ready)
            # What the report tells may change while its byte is offered.
            with m.If(~known):
                m.d.sync += self._byte.eq(self._byte_at(m, header))
            with m.If(known & self.o.ready):
                m.d.sync += index.eq(index + 1)
                with m.If((index == HEADER.size - 1) & ~self._reports):
                    m.next = "PAYLOAD"
                with m.If(index == HEADER.size + LinkReport.LAYOUT.size - 1):
                    m.next = "END"

    def _acknowledge(self, m: Module, wanted: Signal) -> None:
        """Accept an ``ack`` that is neither before the last one nor after the last response made.

        Both distances must be below 256; far fewer responses are stored.
        """
        ahead, left = Signal(16), Signal(16)
        m.d.comb += [ahead.eq(self.ack - wanted), left.eq(self.made - self.ack)]
        with m.If(self.acked & (ahead[8:] == 0) & (left[8:] == 0)):
            m.d.sync += wanted.eq(self.ack)

    def _byte_at(self, m: Module, header: list[Value]) -> Signal:
        """Return the header's or the report's byte at the index.

        A multiplexer needs fewer LUTs than a shift register, because most bytes of a report are constant.
        """
        byte = Signal(8)
        report = [self.report.word_select(position, 8) for position in range(LinkReport.LAYOUT.size)]
        with m.Switch(self._index):
            for position, value in enumerate(header + report):
                with m.Case(position):
                    m.d.comb += byte.eq(value)
        return byte
