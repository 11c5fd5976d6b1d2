"""The link in clock domains of its own, and on SPI: the core may have a faster clock, or a slower one.

In SPI, in mode 0, the host gives the clock, and a byte goes each way at a time. The bits are in the clock of
the wires, so this clock need not be slower than the link's by any factor. Whole bytes cross to the link's
clock, which must be at least as fast as that of the wires: a byte then takes eight of its cycles. Where the
device has nothing to send, the host reads zeros, which lie between frames.
"""

from fractions import Fraction

from amaranth.hdl import Cat, DomainRenamer, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer

from rtlstm.hdl.component import Component, Domain, In, Out, Ports, connect_some
from rtlstm.hdl.core.core import CoreSide
from rtlstm.hdl.core.program_store import CorePart, program_store
from rtlstm.hdl.link.datagrams import DatagramLink, DatagramPorts
from rtlstm.hdl.link.raw import RawLinkDevice
from rtlstm.hdl.link.serial_link import LinkDevice, SerialLink, SerialPorts
from rtlstm.hdl.primitives.pipeline import delay_event
from rtlstm.spec.manifest import Manifest

_SAFE = 3
"""Cycles behind a byte in which the next one may be replaced: it is sent eight bits later, and the news that
the byte has ended is up to three cycles old."""
_RESTED = 6
"""Cycles without a selection until what was sent and received in the last one is known."""


class SpiWires(Ports):
    """The wires of an SPI device. All inputs are asynchronous."""

    sck: Signal = In(1)
    cs_n: Signal = In(1)
    mosi: Signal = In(1)
    miso: Signal = Out(1)
    """Most significant bit first; it is taken at rising edges of ``sck`` and changes at falling ones."""
    waiting: Signal = Out(1)
    """There is a byte that the host has not read."""


class SpiPorts(SpiWires):
    """The ports of a link on SPI, away from the core."""

    errors: Signal = Out(32)
    active: Signal = Out(1)
    """Frames dropped since reset; a host has opened a session."""


class RawSpiPorts(SpiPorts):
    """The same with the raw mode."""

    raw_cs_n: Signal = In(1)
    """Selects the raw mode; not together with ``cs_n``."""


class SpiBytes(SpiWires, Component):
    """Converts the bits of the wires to bytes and back.

    A byte that the host breaks off is not received, and sent again from its first bit.

    Latency: four cycles from a byte's last rising edge to ``received``. A byte that is there when the host
    begins is the second one that the host reads.

    ``transfers`` says whether each selection is a transfer: what the host has not read of the last one is
    dropped.
    """

    received: stream.Interface = Out(stream.Signature(8))
    """It is lost if it is not accepted before the next one."""
    first: Signal = Out(1)
    """It is the first byte of a selection."""
    sent: stream.Interface = In(stream.Signature(8))
    again: Signal = Out(1)
    """A selection has ended, of ``transfers``: what is to be sent begins anew in the next cycle."""

    def __init__(self, transfers: bool = False) -> None:
        self._transfers = transfers
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The position within a byte begins anew with each selection. The bits that say that a byte is
        # complete do not.
        for name, edge, begins in (
            ("rising", "pos", True),
            ("falling", "neg", True),
            ("come", "pos", False),
            ("gone", "neg", False),
        ):
            domain = Domain(name, clk_edge=edge, async_reset=begins, reset_less=not begins, local=True)
            m.domains += domain
            m.d.comb += domain.clk.eq(self.sck)
            if begins:
                m.d.comb += domain.rst.eq(self.cs_n)
        self._receive(m)
        self._send(m)
        return m

    def _receive(self, m: Module) -> None:
        bits, count = Signal(7), Signal(3)
        # A reset of the link does not bring a byte again.
        whole, complete, seen, before = Signal(8), Signal(), Signal(), Signal(reset_less=True)
        fresh = Signal(init=1)
        m.d.rising += [bits.eq(Cat(self.mosi, bits)), count.eq(count + 1)]
        with m.If(count == 7):
            m.d.rising += fresh.eq(0)
            m.d.come += [whole.eq(Cat(self.mosi, bits)), complete.eq(~complete), self.first.eq(fresh)]
        m.submodules.complete = FFSynchronizer(complete, seen)
        m.d.sync += before.eq(seen)
        # The byte stands still for the eight bits of the next one.
        with m.If(seen != before):
            m.d.sync += [self.received.payload.eq(whole), self.received.valid.eq(1)]
        with m.Elif(self.received.ready):
            m.d.sync += self.received.valid.eq(0)

    def _send(self, m: Module) -> None:
        # One byte is being sent, the other one is next.
        position, which, seen, before = Signal(3), Signal(), Signal(), Signal(reset_less=True)
        held = [Signal(8, name=f"held{number}") for number in range(2)]
        full = [Signal(name=f"full{number}") for number in range(2)]
        m.d.falling += position.eq(position + 1)
        with m.If(position == 7):
            m.d.gone += which.eq(~which)
        m.d.comb += self.miso.eq(Mux(which, held[1], held[0]).bit_select(~position, 1))
        idle = Signal()
        m.submodules.which = FFSynchronizer(which, seen)
        m.submodules.idle = FFSynchronizer(self.cs_n, idle, init=1)
        m.d.sync += before.eq(seen)
        ended, left = Signal(), Signal(range(_SAFE + 1))
        m.d.comb += ended.eq(seen != before)
        m.d.sync += left.eq(Mux(ended, _SAFE - 1, left - (left != 0)))
        if self._transfers:
            rested = Signal(range(_RESTED + 2))
            m.d.sync += rested.eq(Mux(idle, rested + (rested <= _RESTED), 0))
            m.d.comb += self.again.eq(rested == _RESTED)
        following, safe = Mux(seen, full[0], full[1]) & ~self.again, ended | (left != 0) | idle
        taken = Signal()
        m.d.comb += [self.sent.ready.eq(safe & (ended | ~following) & ~self.again)]
        m.d.comb += taken.eq(self.sent.valid & ~self.again)
        for number in range(2):
            # What the host reads now is not changed, and the other one only by a byte, or as it ends.
            with m.If((seen != number) & safe & (ended | ~full[number] | self.again)):
                m.d.sync += [held[number].eq(Mux(taken, self.sent.payload, 0)), full[number].eq(taken)]
        m.d.comb += self.waiting.eq(full[0] | full[1])


class SpiLink(SpiPorts, CoreSide, CorePart):
    """The link on SPI; see :class:`~rtlstm.hdl.link.serial_link.LinkDevice`."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.wires = wires = SpiBytes()
        m.submodules.engine = engine = LinkDevice(self._manifest, crc_bits=8, gapless=True)
        outside = wiring.flipped(self)
        connect_some(m, outside, wires, SpiWires.port_names())
        wiring.connect(m, wires.received, engine.i)
        wiring.connect(m, engine.o, wires.sent)
        connect_some(m, outside, engine, ("errors", "active", *CoreSide.declared_members(self._manifest)))
        return m


class RawSpiLink(RawSpiPorts, CoreSide, CorePart):
    """The same with the raw mode (:class:`~rtlstm.hdl.link.raw.RawSteps`), by a second wire that selects it.

    Each selection is a transfer. A host pauses for eight cycles between two of them.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.wires = wires = SpiBytes()
        m.submodules.raw_wires = raw = SpiBytes(transfers=True)
        m.submodules.engine = engine = RawLinkDevice(self._manifest, sized=False)
        outside = wiring.flipped(self)
        connect_some(m, outside, wires, ("sck", "cs_n", "mosi"))
        wiring.connect(m, wires.received, engine.i)
        wiring.connect(m, engine.o, wires.sent)
        item = engine.raw_i.payload
        m.d.comb += [
            raw.sck.eq(self.sck),
            raw.mosi.eq(self.mosi),
            raw.cs_n.eq(self.raw_cs_n),
            self.miso.eq(Mux(self.raw_cs_n, wires.miso, raw.miso)),
            self.waiting.eq(wires.waiting | engine.answers),
            raw.received.ready.eq(1),
            item.data.eq(raw.received.payload),
            item.first.eq(raw.first),
            engine.raw_i.valid.eq(raw.received.valid),
            raw.sent.payload.eq(engine.raw_o.payload.data),
            raw.sent.valid.eq(engine.raw_o.valid),
            engine.raw_o.ready.eq(raw.sent.ready),
            engine.again.eq(raw.again),
            engine.held.eq(raw.waiting),
        ]
        connect_some(m, outside, engine, ("errors", "active", *CoreSide.declared_members(self._manifest)))
        return m


_TOLD = 8
"""Cycles of the core in which a word that is written has become what the core tells of its program."""
LINK = "link"
"""The link's clock domain."""


class Handover(Component):
    """Offers something in one clock domain until it is taken in another; a change of a bit says each.

    What is handed over stands still meanwhile, as the payload of a stream does, so it crosses without
    registers of its own.

    Latency: three cycles of ``to`` until it is offered there, and three of ``source`` from when it is taken
    there to ``taken``. It may be offered again two cycles later.
    """

    offered: Signal = In(1)
    taken: Signal = Out(1)
    """In the domain ``source``: it is there; it has been taken, for one cycle."""
    there: Signal = Out(1)
    take: Signal = In(1)
    """In the domain ``to``: it is offered; it is taken in this cycle."""

    def __init__(self, source: str, to: str) -> None:
        self._source, self._to = source, to
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sent, seen, answered, heard = Signal(), Signal(), Signal(), Signal()
        m.submodules.sent = FFSynchronizer(sent, seen, o_domain=self._to)
        m.submodules.answered = FFSynchronizer(answered, heard, o_domain=self._source)
        under_way, before = sent != heard, Signal()
        m.d[self._source] += [before.eq(under_way), sent.eq(sent ^ (self.offered & ~under_way & ~before))]
        m.d[self._to] += answered.eq(answered ^ (self.there & self.take))
        m.d.comb += [self.taken.eq(before & ~under_way), self.there.eq(seen != answered)]
        return m


class _Crossing(CoreSide, CorePart):
    """A link in the domain ``link``, for a core in ``sync``.

    Its ports away from the core are those of the link. Steps and requests to registers cross the same way,
    so the core takes them in the order in which they were sent.
    """

    def __init__(
        self, manifest: Manifest, link: SerialLink | DatagramLink | SpiLink | RawSpiLink, outside: type[Ports]
    ) -> None:
        self._link, self._outside = link, outside.port_names()
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link = self._link
        m.submodules.link = DomainRenamer(LINK)(link)
        connect_some(m, wiring.flipped(self), link, self._outside)
        self._ask(m, link)
        self._answer(m, link)
        for told in program_store(self._manifest).told:
            # What is told changes bit by bit, but not within a step's bytes.
            m.submodules[told] = FFSynchronizer(getattr(self, told), getattr(link, told), o_domain=LINK)
        return m

    def _ask(self, m: Module, link: CoreSide) -> None:
        """Hand steps and requests to the core."""
        m.submodules.asked = asked = Handover(LINK, "sync")
        request = link.bus.valid
        m.d.comb += [
            asked.offered.eq(request | link.x.valid),
            link.bus.ready.eq(asked.taken & request),
            link.x.ready.eq(asked.taken & ~request),
            self.bus.address.eq(link.bus.address),
            self.bus.write.eq(link.bus.write),
            self.bus.data.eq(link.bus.data),
            self.x.payload.eq(link.x.payload),
            # Which of the two it is stands still as well.
            self.x.valid.eq(asked.there & ~request),
        ]
        done: Value = self.bus.ready
        wanted = asked.there & request
        if program_store(self._manifest).told:
            # The link hears of a word only after what that word has changed of the program: a step must not
            # be on its way to a core that stops.
            waits, wrote = Signal(), Signal()
            m.d.comb += wrote.eq(self.bus.valid & self.bus.ready & self.bus.write)
            heard = delay_event(m, wrote, _TOLD)
            m.d.sync += waits.eq(wrote | (waits & ~heard))
            done, wanted = Mux(self.bus.write, heard, done), wanted & ~waits
        m.d.comb += [self.bus.valid.eq(wanted), asked.take.eq(Mux(request, done, self.x.ready))]

    def _answer(self, m: Module, link: CoreSide) -> None:
        """Hand results, and the words of registers, to the link."""
        m.submodules.results = results = Handover("sync", LINK)
        m.d.comb += [
            results.offered.eq(self.y.valid),
            self.y.ready.eq(results.taken),
            link.y.payload.eq(self.y.payload),
            link.y.valid.eq(results.there),
            results.take.eq(link.y.ready),
        ]
        # A word is at the bus for one cycle. The link waits for it before it asks for the next one.
        word, waits = Signal(32, reset_less=True), Signal()
        m.submodules.words = words = Handover("sync", LINK)
        m.d.sync += waits.eq(self.bus.read_valid | (waits & ~words.taken))
        with m.If(self.bus.read_valid):
            m.d.sync += word.eq(self.bus.read_data)
        m.d.comb += [
            words.offered.eq(waits),
            link.bus.read_data.eq(word),
            link.bus.read_valid.eq(words.there),
            words.take.eq(1),
        ]


class CrossingLink(SerialPorts, _Crossing):
    """A :class:`~rtlstm.hdl.link.serial_link.SerialLink` in the domain ``link``, for a core in ``sync``.

    ``divisor`` is the number of cycles of the link's clock per bit, perhaps a fraction.
    """

    def __init__(self, manifest: Manifest, divisor: Fraction | int) -> None:
        super().__init__(manifest, SerialLink(manifest, divisor), SerialPorts)


class CrossingDatagrams(DatagramPorts, _Crossing):
    """A :class:`~rtlstm.hdl.link.datagrams.DatagramLink` likewise; see there for the parameters."""

    def __init__(self, manifest: Manifest, peer: int | None, any_peer: bool, raw: bool) -> None:
        super().__init__(manifest, DatagramLink(manifest, peer, any_peer, raw), DatagramPorts)


class CrossingSpi(SpiPorts, _Crossing):
    """A :class:`~rtlstm.hdl.link.crossing.SpiLink` likewise."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, SpiLink(manifest), SpiPorts)


class CrossingRawSpi(RawSpiPorts, _Crossing):
    """A :class:`~rtlstm.hdl.link.crossing.RawSpiLink` likewise."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, RawSpiLink(manifest), RawSpiPorts)
