"""Memories of the link: requests until they are executed, responses until the host has received them."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream
from amaranth.lib.data import StructLayout

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.primitives.pipeline import ReadPort, WritePort, storage
from rtlstm.spec.inventory import link_memories
from rtlstm.spec.link import CRC_BYTES, PAYLOAD_LIMIT, RECORDS, REQUEST_FIELDS, Limits
from rtlstm.spec.parameters import ceil_log2

REQUEST = StructLayout(REQUEST_FIELDS)
"""A record's length, and the type of its request."""


def read_bytes(
    m: Module, read: ReadPort, byte_address: Signal, there: Value
) -> tuple[Signal, Signal, Signal]:
    """Read a memory byte by byte; return ``(valid, data, ready)`` of that stream.

    Throughput: one byte every second cycle. ``byte_address`` is that of the next byte, incremented when the
    byte is accepted; it may be set while ``there`` is 0, which says whether that byte has been written.
    """
    valid, ready = Signal(name=f"{byte_address.name}_valid"), Signal(name=f"{byte_address.name}_ready")
    m.d.comb += read.addr.eq(byte_address)
    m.d.sync += valid.eq(there & ~(valid & ready))
    with m.If(valid & ready):
        m.d.sync += byte_address.eq(byte_address + 1)
    return valid, read.data, ready


class RequestMemory(Component):
    """A ring buffer of payloads, which are written before their checksum is known.

    Bytes go to an open record. It is committed if its checksum is right, else dropped. The reader sees
    committed records after the next ``publish``: the parts of a chain together. Lengths and types are in a
    separate memory. ``limits`` is what the link can hold. A record takes the bytes of its payload and of its
    checksum.
    """

    write: Signal = In(1)
    data: Signal = In(8)
    """Append a byte, also of the checksum, to the open record."""
    forget: Signal = In(1)
    commit: Signal = In(1)
    """End the open record."""
    kind: Signal = In(4)
    publish: Signal = In(1)
    """Type of the record being committed, and whether the reader may see it."""
    fits: Signal = Out(1)
    long: Signal = Out(1)
    """There was space for all bytes of the open record; they are too many for a frame."""
    there: Signal = Out(1)
    request: Struct = Out(REQUEST)
    o: stream.Interface = Out(stream.Signature(8))
    """The oldest record: its type, the number of its bytes not yet read, and these without the checksum."""
    close: Signal = In(1)
    """Go on to the next record; no byte may be read in this cycle."""
    clear: Signal = In(1)
    """Drop all records, and a byte that is written in this cycle; none may be read in it."""

    def __init__(self, limits: Limits) -> None:
        self._size = limits.request_bytes
        self._memories = link_memories(limits)
        super().__init__()

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


class ResponseMemory(Component):
    """Writes responses into a ring, one after the other. The end of each is in a separate memory.

    ``limits`` is what the link can hold.
    """

    i: stream.Interface = In(stream.Signature(8))
    """The payload of the response being made; not accepted while there is no space."""
    full: Signal = Out(1)
    """It has as many bytes as a frame may have, and accepts no more."""
    restart: Signal = In(1)
    """Drop its bytes so far."""
    finish: Signal = In(1)
    failed: Signal = In(1)
    """It is complete, if there is ``room``; it is an ERROR."""
    room: Signal = Out(1)
    """There is space for another byte, or for the end."""
    discard: Signal = In(1)
    """Drop bytes and responses as they are written."""
    made: Signal = Out(16)
    """Number of the response being made: those before it are stored."""
    oldest: Signal = In(range(RECORDS))
    oldest_address: Signal = In(lambda limits: ceil_log2(limits.response_bytes) + 1)
    """Number of the oldest response that is still needed, and its first address."""
    clear: Signal = In(1)
    """Drop all responses."""
    address: Signal = In(lambda limits: ceil_log2(limits.response_bytes))
    word: Signal = Out(8)
    """Clocked read of bytes, one cycle."""
    number: Signal = In(range(RECORDS))
    end: Signal = Out(lambda limits: ceil_log2(limits.response_bytes) + 1)
    error: Signal = Out(1)
    """Clocked read, two cycles: the end of the response with this number, and whether it is an ERROR."""

    def __init__(self, limits: Limits) -> None:
        self._bits = ceil_log2(limits.response_bytes)
        self._memories = link_memories(limits)
        super().__init__(limits)

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
