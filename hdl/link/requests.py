"""Requests that were accepted and not carried out."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.link.bytes import read_bytes
from rtlstm.hdl.pipeline import ReadPort, WritePort, storage
from rtlstm.spec.link import CRC_BYTES, PAYLOAD_LIMIT
from rtlstm.spec.parameters import ceil_log2

__all__ = ["PREFIX", "PREFIX_BYTES", "RequestMemory"]

PREFIX = StructLayout({"length": 10, "spare": 6, "kind": 8})
"""What stands before each payload in the memories of requests and of responses."""
PREFIX_BYTES = PREFIX.size // 8


class RequestMemory(wiring.Component):
    """A ring of payloads that are written before it is known whether they count.

    Bytes go to an open record. Once its checksum is known to be right it is committed, or forgotten. The
    reader sees committed records from the next ``publish`` on: the parts of a chain together.

    Parameters
    ----------
    size
        Bytes, a power of two. A record takes 3 more than its payload, and while it is open those of the
        checksum.

    Members
    -------
    write : In(1), data : In(8)
        Append a byte, also of the checksum, to the open record.
    forget, commit : In(1)
        End the open record. A commit takes three cycles, in which ``busy`` is 1 and nothing else may be
        asked.
    kind : In(8), publish : In(1)
        Of the record being committed; stable for these cycles.
    fits, long : Out(1)
        All bytes of the open record found room; they are too many for a frame.
    there : Out(1), request : Out(:data:`PREFIX`), o : Out(stream of 8)
        The oldest record: its type, bytes of its payload that were not taken, and these.
    close : In(1)
        Go on to the next record; nothing may be taken in this cycle.
    clear : In(1)
        Forget everything; nothing may be written or read in this cycle.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        super().__init__(
            {
                "write": In(1),
                "data": In(8),
                "forget": In(1),
                "commit": In(1),
                "busy": Out(1),
                "kind": In(8),
                "publish": In(1),
                "fits": Out(1),
                "long": Out(1),
                "there": Out(1),
                "request": Out(PREFIX),
                "o": Out(stream.Signature(8)),
                "close": In(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = ceil_log2(self._size)
        read, write = storage(m, "requests", 8, self._size)
        # One bit more than an address has: a full ring is not an empty one.
        base, published, place = (Signal(bits + 1, name=n) for n in ("base", "published", "place"))
        self._write(m, write, base, published, place)
        self._read(m, read, published, place)
        with m.If(self.clear):
            m.d.sync += [base.eq(0), published.eq(0), place.eq(0)]
        return m

    def _write(self, m: Module, write: WritePort, base: Signal, published: Signal, place: Signal) -> None:
        most = PAYLOAD_LIMIT + CRC_BYTES
        count, fits = Signal(range(most + 2)), Signal(init=1)
        end, used = Signal.like(base, name="end"), Signal.like(base, name="used")
        step = Signal(range(PREFIX_BYTES + 1))
        length = Signal(16)
        m.d.comb += [
            end.eq(base + count + PREFIX_BYTES),
            used.eq(end - place),
            length.eq(count - CRC_BYTES),
            self.fits.eq(fits),
            self.long.eq(count == most + 1),
            self.busy.eq(self.commit | (step != 0)),
            write.addr.eq(end),
            write.data.eq(self.data),
            write.en.eq(self.write & ~used[-1]),
        ]
        with m.If(self.write):
            m.d.sync += [count.eq(Mux(self.long, count, count + 1)), fits.eq(fits & ~used[-1])]
        with m.If(self.forget):
            m.d.sync += [count.eq(0), fits.eq(1)]
        with m.If(self.busy):
            m.d.comb += [
                write.addr.eq(base + step),
                write.data.eq(Cat(length, self.kind).word_select(step, 8)),
                write.en.eq(1),
            ]
            m.d.sync += step.eq(step + 1)
        with m.If(step == PREFIX_BYTES - 1):
            following = Signal.like(base)
            m.d.comb += following.eq(base + length + PREFIX_BYTES)
            m.d.sync += [step.eq(0), count.eq(0), fits.eq(1), base.eq(following)]
            with m.If(self.publish):
                m.d.sync += published.eq(following)

    def _read(self, m: Module, read: ReadPort, published: Signal, place: Signal) -> None:
        valid, data, ready = read_bytes(m, read, place, (published != place) & ~self.close & ~self.clear)
        prefix, index, there = Signal(PREFIX, reset_less=True), Signal(range(PREFIX_BYTES)), Signal()
        m.d.comb += [
            self.there.eq(there),
            self.request.eq(prefix),
            self.o.payload.eq(data),
            self.o.valid.eq(valid & there & (prefix.length != 0)),
            ready.eq(~there | (self.o.valid & self.o.ready)),
        ]
        with m.If(valid & ready):
            with m.If(there):
                m.d.sync += prefix.length.eq(prefix.length - 1)
            with m.Else():
                m.d.sync += [prefix.eq(Cat(Value.cast(prefix)[8:], data)), index.eq(index + 1)]
                with m.If(index == PREFIX_BYTES - 1):
                    m.d.sync += [index.eq(0), there.eq(1)]
        with m.If(self.close):
            m.d.sync += [place.eq(place + prefix.length), there.eq(0)]
        with m.If(self.clear):
            m.d.sync += [index.eq(0), there.eq(0)]
