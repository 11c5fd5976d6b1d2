"""Sends answers and responses to the host."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.link.framing import BODY
from rtlstm.hdl.link.memories import read_bytes
from rtlstm.hdl.link.session import ANSWER
from rtlstm.hdl.primitives.pipeline import ReadPort
from rtlstm.spec.link import HEADER, RECORDS, FrameType, LinkReport
from rtlstm.spec.parameters import ceil_log2


class Responder(Component):
    """Sends answers and responses, and drops responses that the host has received.

    Parameters
    ----------
    size
        Bytes of the :class:`~rtlstm.hdl.link.memories.ResponseMemory`.
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
    """From and to the :class:`~rtlstm.hdl.link.session.LinkSession`."""
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
