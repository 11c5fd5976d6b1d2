"""What is sent to the host, and when."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.link.bytes import read_bytes
from rtlstm.hdl.link.cobs import FRAMED
from rtlstm.hdl.link.requests import PREFIX, PREFIX_BYTES
from rtlstm.hdl.link.session import ANSWER
from rtlstm.hdl.pipeline import ReadPort
from rtlstm.spec.link import HEADER, FrameType, Report
from rtlstm.spec.parameters import ceil_log2

__all__ = ["Responder"]

_HEAD = StructLayout({"kind": 8, "session": 16, "number": 16, "ack": 16})


class Responder(wiring.Component):
    """Sends answers and responses, and forgets responses that the host has.

    Parameters
    ----------
    size
        Bytes of the :class:`~rtlstm.hdl.link.responses.ResponseMemory`.

    Members
    -------
    o : Out(stream of :data:`~rtlstm.hdl.link.cobs.FRAMED`)
    finished, base, oldest, address, word
        From and to the :class:`~rtlstm.hdl.link.responses.ResponseMemory`.
    session, expected, ack, acked, answer, answers, answered, again, ending
        From and to the :class:`~rtlstm.hdl.link.session.Session`.
    report : In
        Payload of the answers.
    idle : Out(1)
        Nothing is being sent.
    clear : In(1)
        Forget all responses; only while ``idle`` and ``ending``.
    """

    def __init__(self, size: int) -> None:
        bits = ceil_log2(size)
        super().__init__(
            {
                "o": Out(stream.Signature(FRAMED)),
                "finished": In(1),
                "base": In(bits + 1),
                "oldest": Out(bits + 1),
                "address": Out(bits),
                "word": In(8),
                "session": In(16),
                "expected": In(16),
                "ack": In(16),
                "acked": In(1),
                "answer": In(ANSWER),
                "answers": In(1),
                "answered": Out(1),
                "again": In(1),
                "ending": In(1),
                "report": In(8 * Report.LAYOUT.size),
                "idle": Out(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Numbers of the responses: the next to be made, the first that the host has not got, the oldest
        # that is kept, the next to be sent; and where the last two begin.
        following, wanted, oldest, sending = (
            Signal(16, name=f"{name}_number") for name in ("following", "wanted", "oldest", "sending")
        )
        place, cursor = Signal.like(self.oldest), Signal.like(self.oldest)
        rewinds = Signal()
        m.d.sync += following.eq(following + self.finished)
        # An old acknowledgement is behind the last one, and so further ahead than anything made.
        ahead, made = Signal(16), Signal(16)
        m.d.comb += [ahead.eq(self.ack - wanted), made.eq(following - wanted)]
        with m.If(self.acked & (ahead <= made)):
            m.d.sync += wanted.eq(self.ack)

        reads = Signal()
        valid, data, ready = read_bytes(m, ReadPort(self.address, self.word), cursor, reads)
        head, prefix = Signal(_HEAD, reset_less=True), Signal(PREFIX, reset_less=True)
        reports, frees, index = Signal(), Signal(), Signal(range(Report.LAYOUT.size))
        end = Signal.like(cursor)
        m.d.comb += [end.eq(cursor + prefix.length), self.o.payload.data.eq(head.kind)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += [index.eq(0), frees.eq(0), reports.eq(0), cursor.eq(place)]
                with m.If(self.ending):
                    m.d.sync += rewinds.eq(0)
                with m.Elif(oldest != wanted):
                    m.d.sync += [frees.eq(1), cursor.eq(self.oldest)]
                    m.next = "PREFIX"
                with m.Elif(self.answers):
                    m.d.comb += self.answered.eq(1)
                    m.d.sync += [
                        head.kind.eq(Mux(self.answer.lost, FrameType.LOST, FrameType.REPORT)),
                        head.session.eq(self.answer.session),
                        head.number.eq(self.answer.number),
                        head.ack.eq(self.expected),
                        reports.eq(1),
                    ]
                    m.next = "HEAD"
                with m.Elif(rewinds):
                    m.d.sync += [rewinds.eq(0), place.eq(self.oldest), sending.eq(oldest)]
                with m.Elif(sending != following):
                    m.next = "PREFIX"
            with m.State("PREFIX"):
                m.d.comb += [reads.eq(1), ready.eq(1)]
                with m.If(valid):
                    m.d.sync += [prefix.eq(Cat(Value.cast(prefix)[8:], data)), index.eq(index + 1)]
                    with m.If(index == PREFIX_BYTES - 1):
                        m.d.sync += index.eq(0)
                        m.next = "KNOWN"
            with m.State("KNOWN"):
                m.d.comb += reads.eq(1)
                with m.If(frees):
                    m.d.sync += [self.oldest.eq(end), oldest.eq(oldest + 1)]
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += [
                        head.kind.eq(prefix.kind),
                        head.session.eq(self.session),
                        head.number.eq(sending),
                        head.ack.eq(self.expected),
                    ]
                    m.next = "HEAD"
                with m.If(~frees | (sending == oldest)):
                    m.d.sync += [place.eq(end), sending.eq(sending + 1)]
            with m.State("HEAD"):
                empty = (prefix.length == 0) & ~reports
                m.d.comb += [
                    reads.eq(~reports),
                    self.o.valid.eq(1),
                    self.o.payload.last.eq((index == HEADER.size - 1) & empty),
                ]
                with m.If(self.o.ready):
                    m.d.sync += [head.eq(Value.cast(head) >> 8), index.eq(index + 1)]
                    with m.If(index == HEADER.size - 1):
                        m.d.sync += index.eq(0)
                        m.next = "REPORT"
                        with m.If(~reports):
                            m.next = "PAYLOAD"
                        with m.If(empty):
                            m.next = "IDLE"
            with m.State("PAYLOAD"):
                m.d.comb += [
                    reads.eq(1),
                    self.o.valid.eq(valid),
                    ready.eq(self.o.ready),
                    self.o.payload.data.eq(data),
                    self.o.payload.last.eq(prefix.length == 1),
                ]
                with m.If(valid & ready):
                    m.d.sync += prefix.length.eq(prefix.length - 1)
                    with m.If(prefix.length == 1):
                        m.next = "IDLE"
            with m.State("REPORT"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.data.eq(self.report.word_select(index, 8)),
                    self.o.payload.last.eq(index == Report.LAYOUT.size - 1),
                ]
                with m.If(self.o.ready):
                    m.d.sync += index.eq(index + 1)
                    with m.If(self.o.payload.last):
                        m.next = "IDLE"
        with m.If(self.again):
            m.d.sync += rewinds.eq(1)
        with m.If(self.clear):
            numbers = (following, wanted, oldest, sending)
            m.d.sync += [*(number.eq(0) for number in numbers), self.oldest.eq(0), place.eq(0)]
        return m
