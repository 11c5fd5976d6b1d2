"""Stores requests that were accepted and not yet executed."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Struct
from rtlstm.hdl.link.bytes import read_bytes
from rtlstm.hdl.primitives.pipeline import ReadPort, WritePort, storage
from rtlstm.spec.inventory import link_memories
from rtlstm.spec.link import CRC_BYTES, PAYLOAD_LIMIT, RECORDS, REQUEST_FIELDS, Limits
from rtlstm.spec.parameters import ceil_log2

REQUEST = StructLayout(REQUEST_FIELDS)
"""A record's length, and the type of its request."""


class RequestMemory(Component):
    """A ring buffer of payloads, which are written before their checksum is known.

    Bytes go to an open record. It is committed if its checksum is right, else dropped. The reader sees
    committed records after the next ``publish``: the parts of a chain together. Lengths and types are in a
    separate memory.

    Parameters
    ----------
    limits
        What the link can hold. A record takes the bytes of its payload and of its checksum.

    Members
    -------
    write : In(1), data : In(8)
        Append a byte, also of the checksum, to the open record.
    forget, commit : In(1)
        End the open record.
    kind : In(4), publish : In(1)
        Type of the record being committed, and whether the reader may see it.
    fits, long : Out(1)
        There was space for all bytes of the open record; they are too many for a frame.
    there : Out(1), request : Out(:data:`REQUEST`), o : Out(stream of 8)
        The oldest record: its type, the number of its bytes not yet read, and these without the checksum.
    close : In(1)
        Go on to the next record; no byte may be read in this cycle.
    clear : In(1)
        Drop all records, and a byte that is written in this cycle; none may be read in it.
    """

    write: Signal
    data: Signal
    forget: Signal
    commit: Signal
    kind: Signal
    publish: Signal
    fits: Signal
    long: Signal
    there: Signal
    request: Struct
    o: stream.Interface
    close: Signal
    clear: Signal

    def __init__(self, limits: Limits) -> None:
        self._size = limits.request_bytes
        self._memories = link_memories(limits)
        super().__init__(
            {
                "write": In(1),
                "data": In(8),
                "forget": In(1),
                "commit": In(1),
                "kind": In(4),
                "publish": In(1),
                "fits": Out(1),
                "long": Out(1),
                "there": Out(1),
                "request": Out(REQUEST),
                "o": Out(stream.Signature(8)),
                "close": In(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = storage(m, self._memories["requests"], "requests")
        known, note = storage(m, self._memories["records of requests"], "records")
        # One bit more than an address, to tell a full ring from an empty one. Records never fill theirs.
        byte_address = Signal(ceil_log2(self._size) + 1)
        record, published = (Signal(range(RECORDS), name=name) for name in ("record", "published"))
        self._write(m, write, note, published, byte_address, record)
        self._read(m, read, known, published, byte_address, record)
        return m

    def _write(
        self,
        m: Module,
        write: WritePort,
        note: WritePort,
        published: Signal,
        byte_address: Signal,
        record: Signal,
    ) -> None:
        base, end, used = (Signal.like(byte_address, name=name) for name in ("base", "end", "used"))
        size, refused = Signal(REQUEST["length"].shape), Signal()
        opened, following = Signal.like(record, name="opened"), Signal.like(record, name="following")
        m.d.comb += [
            used.eq(end - byte_address),
            size.eq(end - base),
            following.eq(opened + 1),
            self.fits.eq(~refused & (following != record)),
            self.long.eq(size == PAYLOAD_LIMIT + CRC_BYTES + 1),
            write.addr.eq(end),
            write.data.eq(self.data),
            write.en.eq(self.write & ~used[-1] & ~self.long),
            note.addr.eq(opened),
            note.data.eq(Cat(size, self.kind)),
            note.en.eq(self.commit),
        ]
        with m.If(write.en):
            m.d.sync += end.eq(end + 1)
        with m.If(self.write & used[-1]):
            m.d.sync += refused.eq(1)
        with m.If(self.forget):
            m.d.sync += [end.eq(base), refused.eq(0)]
        with m.If(self.commit):
            m.d.sync += [base.eq(end), opened.eq(following)]
            with m.If(self.publish):
                m.d.sync += published.eq(following)
        with m.If(self.clear):
            m.d.sync += [base.eq(0), end.eq(0), opened.eq(0), published.eq(0)]

    def _read(
        self,
        m: Module,
        read: ReadPort,
        known: ReadPort,
        published: Signal,
        byte_address: Signal,
        record: Signal,
    ) -> None:
        left = Signal(REQUEST["length"].shape)
        kind, there, closing = Signal.like(self.kind, reset_less=True), Signal(), Signal()
        valid, data, ready = read_bytes(m, read, byte_address, (left != 0) & ~self.close & ~self.clear)
        m.d.comb += [
            known.addr.eq(record),
            self.there.eq(there),
            self.request.length.eq(left),
            self.request.kind.eq(kind),
            self.o.payload.eq(data),
            self.o.valid.eq(valid & there & (left != CRC_BYTES)),
            ready.eq(closing | (self.o.valid & self.o.ready)),
        ]
        # All of the record was read: the next one's length is at the memory's output a cycle later.
        looked = Signal()
        m.d.sync += looked.eq((left == 0) & (record != published) & ~looked)
        with m.If(looked):
            m.d.sync += [Cat(left, kind).eq(known.data), there.eq(1)]
        with m.Elif(valid & ready):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 1):
                m.d.sync += [record.eq(record + 1), closing.eq(0)]
        with m.If(self.close):
            m.d.sync += [there.eq(0), closing.eq(1)]
        with m.If(self.clear):
            m.d.sync += [
                record.eq(0),
                byte_address.eq(0),
                left.eq(0),
                there.eq(0),
                closing.eq(0),
                looked.eq(0),
            ]
