"""The link in a clock domain of its own: the core may have a faster clock, or a slower one."""

from fractions import Fraction

from amaranth.hdl import DomainRenamer, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer

from rtlstm.hdl.component import Component, In, Out, Ports, connect_some
from rtlstm.hdl.core.core import CoreSide
from rtlstm.hdl.core.program_store import program_store
from rtlstm.hdl.link.datagrams import DatagramLink, DatagramPorts
from rtlstm.hdl.link.serial_link import SerialLink, SerialPorts
from rtlstm.hdl.link.spi import RawSpiLink, RawSpiPorts, SpiLink, SpiPorts
from rtlstm.spec.manifest import Manifest

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


class _Crossing(CoreSide, Component):
    """A link in the domain ``link``, for a core in ``sync``.

    Its ports away from the core are those of the link. Steps and requests to registers cross the same way,
    so the core takes them in the order in which they were sent.
    """

    def __init__(
        self, manifest: Manifest, link: SerialLink | DatagramLink | SpiLink | RawSpiLink, outside: type[Ports]
    ) -> None:
        self._manifest, self._link, self._outside = manifest, link, outside.port_names()
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link = self._link
        m.submodules.link = DomainRenamer(LINK)(link)
        connect_some(m, wiring.flipped(self), link, self._outside)
        self._ask(m, link)
        self._answer(m, link)
        if "shape" in program_store(self._manifest).told:
            # A program's shape changes while one is loaded, long before a host sends its first step.
            m.submodules.shape = FFSynchronizer(self.shape, link.shape, o_domain=LINK)
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
            self.bus.valid.eq(asked.there & request),
            self.x.valid.eq(asked.there & ~request),
            asked.take.eq(Mux(request, self.bus.ready, self.x.ready)),
        ]

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

    Parameters
    ----------
    divisor
        Cycles of the link's clock per bit, perhaps a fraction.
    """

    def __init__(self, manifest: Manifest, divisor: Fraction | int) -> None:
        super().__init__(manifest, SerialLink(manifest, divisor), SerialPorts)


class CrossingDatagrams(DatagramPorts, _Crossing):
    """A :class:`~rtlstm.hdl.link.datagrams.DatagramLink` likewise; see there for the parameters."""

    def __init__(self, manifest: Manifest, peer: int | None, any_peer: bool, raw: bool) -> None:
        super().__init__(manifest, DatagramLink(manifest, peer, any_peer, raw), DatagramPorts)


class CrossingSpi(SpiPorts, _Crossing):
    """A :class:`~rtlstm.hdl.link.spi.SpiLink` likewise."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, SpiLink(manifest), SpiPorts)


class CrossingRawSpi(RawSpiPorts, _Crossing):
    """A :class:`~rtlstm.hdl.link.spi.RawSpiLink` likewise."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, RawSpiLink(manifest), RawSpiPorts)
