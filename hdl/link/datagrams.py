"""The link on datagrams, such as those of UDP: each holds whole frames.

Datagrams are in a clock domain of their own, since their network has a clock of its own.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.fifo import AsyncFIFO, AsyncFIFOBuffered

from rtlstm.hdl.component import Component, In, Out, Ports, connect_some
from rtlstm.hdl.core.core import CoreSide
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.link.raw import RawLinkDevice
from rtlstm.hdl.link.serial_link import LinkDevice
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.inventory import raw_sizes
from rtlstm.spec.link import RAW_DATAGRAM_LIMIT, RAW_STEP
from rtlstm.spec.manifest import Manifest

NETWORK = "network"
"""The datagrams' clock domain."""

RECEIVED = StructLayout({"data": 8, "last": 1, "error": 1, "length": 16, "address": 32, "port": 16})
"""A byte of a datagram, whether it is the last one, and whether the datagram is damaged; the datagram's size,
behind which there may be more bytes up to the last one; who sent it."""
SENT = StructLayout({"data": 8, "last": 1, "length": 16, "address": 32, "port": 16})
"""A byte of a datagram and whether it is the last one; the datagram's bytes, and who is to receive it."""

_ARRIVED = 2048
"""Bytes of datagrams that wait for the link, which takes one in each of its cycles."""
_LEAVING = 1024
"""Bytes of frames that wait to be sent, more than the longest frame has."""
_LENGTHS = 8
"""Frames that wait to be sent."""


class DatagramPorts(Ports):
    """The ports of a link on datagrams, away from the core."""

    i: stream.Interface = In(stream.Signature(RECEIVED))
    o: stream.Interface = Out(stream.Signature(SENT))
    """Datagrams, in the domain ``network``. ``i`` is accepted in all cycles but three at a datagram's end."""
    errors: Signal = Out(32)
    active: Signal = Out(1)
    """Frames dropped since reset; a host has opened a session."""
    hears: Signal = Out(1)
    """A byte arrives at the link."""


class Arrivals(Component):
    """Takes datagrams of one peer, and passes on their bytes with a zero after each datagram.

    A datagram from elsewhere becomes a frame that the link drops and counts. What finds no room is lost: its
    frame is then damaged. All of it is in the domain ``network``. ``peer`` is the address of the only peer,
    or None for the one that sends the first datagram after reset. With ``any_peer`` every host is the peer,
    and is answered until another sends a datagram. ``raw`` says whether a datagram may be raw.
    """

    i: stream.Interface = In(stream.Signature(RECEIVED))
    o: stream.Interface = Out(stream.Signature(8))
    """Bytes; ``ready`` says that there is room for one."""
    raw: Signal = Out(1)
    first: Signal = Out(1)
    last: Signal = Out(1)
    """The byte is of a raw datagram; it is its first and its last one."""
    address: Signal = Out(32)
    port: Signal = Out(16)
    known: Signal = Out(1)
    """Who has sent the last whole datagram; whether there was one."""

    def __init__(self, peer: int | None, any_peer: bool, raw: bool = False) -> None:
        self._peer, self._any_peer, self._raw = peer, any_peer, raw
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        item, known = self.i.payload, self.known
        ours: Value | bool = (~known | (item.address == self.address)) | self._any_peer
        if self._peer is not None:
            ours = item.address == self._peer
        lost, left, damaged, count = Signal(), Signal(range(2)), Signal(), Signal(16)
        with m.FSM(domain=NETWORK):
            with m.State("TAKE"):
                m.d.comb += [
                    self.i.ready.eq(1),
                    self.o.payload.eq(item.data),
                    self.o.valid.eq(self.i.valid & ours & ~lost & (count != item.length)),
                ]
                m.d[NETWORK] += left.eq(1)
                if self._raw:
                    self._mark(m, count)
                with m.If(self.i.valid):
                    m.d[NETWORK] += damaged.eq((damaged | item.error) & ~item.last)
                with m.If(item.last & self.i.valid):
                    m.d[NETWORK] += count.eq(0)
                with m.Elif(self.o.valid):
                    m.d[NETWORK] += count.eq(count + 1)
                with m.If(self.o.valid & ~self.o.ready):
                    m.d[NETWORK] += lost.eq(1)
                with m.If(self.i.valid & item.last):
                    m.d[NETWORK] += lost.eq(0)
                    m.next = "FOREIGN"
                    with m.If(ours):
                        m.next = "END"
                    with m.If(ours & ~item.error & ~damaged):
                        m.d[NETWORK] += [self.address.eq(item.address), self.port.eq(item.port), known.eq(1)]
            # The shortest frame that the link counts: after COBS it is one zero.
            with m.State("FOREIGN"):
                m.d.comb += [self.o.payload.eq(1), self.o.valid.eq(1)]
                with m.If(self.o.ready):
                    m.d[NETWORK] += left.eq(left - 1)
                    with m.If(left == 0):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [self.o.payload.eq(0), self.o.valid.eq(1)]
                with m.If(self.o.ready):
                    m.next = "TAKE"
        return m

    def _mark(self, m: Module, count: Signal) -> None:
        """Find the bytes of raw datagrams."""
        item, raw = self.i.payload, Signal()
        m.d.comb += [
            self.first.eq(count == 0),
            self.last.eq(count == item.length - 1),
            self.raw.eq(Mux(self.first, item.data == RAW_STEP, raw)),
        ]
        with m.If(self.i.valid):
            m.d[NETWORK] += raw.eq(self.raw)


class DatagramLink(DatagramPorts, CoreSide, CorePart):
    """The link on datagrams; see :class:`~rtlstm.hdl.link.serial_link.LinkDevice` and :class:`Arrivals`.

    Each frame of the device is a datagram, to the peer that has sent the last one. For ``peer`` and
    ``any_peer``, see :class:`Arrivals`. ``raw`` says whether it has the raw mode,
    :class:`~rtlstm.hdl.link.raw.RawSteps`. Raises ConfigurationError if a step or a result is too large for a
    raw datagram.
    """

    def __init__(
        self, manifest: Manifest, peer: int | None = None, any_peer: bool = False, raw: bool = False
    ) -> None:
        self._peer, self._any_peer, self._raw = peer, any_peer, raw
        for what, size in raw_sizes(manifest).items():
            if raw and size > RAW_DATAGRAM_LIMIT:
                raise ConfigurationError(
                    f"raw datagrams must have at most {RAW_DATAGRAM_LIMIT} bytes, but a {what} of this build "
                    f"has {size}; leave out `raw`"
                )
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        engine: LinkDevice | RawLinkDevice
        if self._raw:
            engine = RawLinkDevice(self._manifest, sized=True)
        else:
            engine = LinkDevice(self._manifest, crc_bits=8)
        m.submodules.engine = engine
        m.submodules.arrivals = arrivals = Arrivals(self._peer, self._any_peer, self._raw)
        marks = Cat(arrivals.raw, arrivals.first, arrivals.last) if self._raw else Cat()
        m.submodules.arrived = arrived = AsyncFIFO(
            width=8 + len(marks), depth=_ARRIVED, w_domain=NETWORK, r_domain="sync"
        )
        outside = wiring.flipped(self)
        wiring.connect(m, outside.i, arrivals.i)
        m.d.comb += [
            arrived.w_data.eq(Cat(arrivals.o.payload, marks)),
            arrived.w_en.eq(arrivals.o.valid),
            arrivals.o.ready.eq(arrived.w_rdy),
            engine.i.payload.eq(arrived.r_data),
            engine.i.valid.eq(arrived.r_rdy),
            arrived.r_en.eq(engine.i.ready),
            self.hears.eq(arrived.r_rdy),
        ]
        goes, ends = engine.o, engine.o.payload == 0
        if isinstance(engine, RawLinkDevice):
            raw, item = arrived.r_data[8], engine.raw_i.payload
            m.d.comb += [
                engine.i.valid.eq(arrived.r_rdy & ~raw),
                engine.raw_i.valid.eq(arrived.r_rdy & raw),
                arrived.r_en.eq(engine.i.ready | raw),
                Cat(item.data, item.first, item.last).eq(Cat(arrived.r_data[:8], arrived.r_data[9:])),
            ]
            goes, ends = self._merge(m, engine)
        self._send(m, goes, ends, arrivals)
        connect_some(m, outside, engine, ("errors", "active", *CoreSide.declared_members(self._manifest)))
        return m

    def _merge(self, m: Module, engine: RawLinkDevice) -> tuple[stream.Interface, Value]:
        """Return the bytes of frames and raw results, one datagram after the other, and whether one ends."""
        goes, within, which, raw = stream.Signature(8).create(), Signal(), Signal(), Signal()
        ends = Mux(raw, engine.raw_o.payload.last, engine.o.payload == 0)
        m.d.comb += [
            raw.eq(Mux(within, which, engine.raw_o.valid)),
            goes.valid.eq(Mux(raw, engine.raw_o.valid, engine.o.valid)),
            goes.payload.eq(Mux(raw, engine.raw_o.payload.data, engine.o.payload)),
            engine.raw_o.ready.eq(raw & goes.ready),
            engine.o.ready.eq(~raw & goes.ready),
        ]
        with m.If(goes.valid & goes.ready):
            m.d.sync += [within.eq(~ends), which.eq(raw)]
        return goes, ends

    def _send(self, m: Module, goes: stream.Interface, ends: Value, arrivals: Arrivals) -> None:
        """Collect each datagram until its end; then its length is known, which it begins with."""
        m.submodules.leaving = leaving = AsyncFIFOBuffered(
            width=8, depth=_LEAVING, w_domain="sync", r_domain=NETWORK
        )
        m.submodules.lengths = lengths = AsyncFIFOBuffered(
            width=_LEAVING.bit_length(), depth=_LENGTHS, w_domain="sync", r_domain=NETWORK
        )
        length, taken = Signal(_LEAVING.bit_length(), init=1), Signal()
        m.d.comb += [
            goes.ready.eq(leaving.w_rdy & lengths.w_rdy),
            taken.eq(goes.valid & goes.ready),
            leaving.w_data.eq(goes.payload),
            leaving.w_en.eq(taken),
            lengths.w_data.eq(length),
            lengths.w_en.eq(taken & ends),
        ]
        with m.If(taken):
            m.d.sync += length.eq(Mux(ends, length.init, length + 1))
        # The peer stays the same while a datagram is being sent.
        sends, left, item = Signal(), Signal.like(length, init=0), self.o.payload
        size, address, port = (Signal.like(each) for each in (item.length, item.address, item.port))
        m.d.comb += [
            self.o.valid.eq(sends & leaving.r_rdy),
            item.data.eq(leaving.r_data),
            item.last.eq(left == 1),
            item.length.eq(size),
            item.address.eq(address),
            item.port.eq(port),
            leaving.r_en.eq(sends & self.o.ready),
            lengths.r_en.eq(~sends & arrivals.known),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d[NETWORK] += [left.eq(left - 1), sends.eq(~item.last)]
        with m.If(lengths.r_en & lengths.r_rdy):
            m.d[NETWORK] += [
                sends.eq(1),
                left.eq(lengths.r_data),
                size.eq(lengths.r_data),
                address.eq(arrivals.address),
                port.eq(arrivals.port),
            ]
