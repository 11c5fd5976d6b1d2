"""The link on SPI, in mode 0: the host gives the clock, and a byte goes each way at a time.

The bits are in the clock of the wires, so this clock need not be slower than the link's by any factor. Whole
bytes cross to the link's clock, which must be at least as fast as that of the wires: a byte then takes eight
of its cycles. Where the device has nothing to send, the host reads zeros, which lie between frames.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer

from rtlstm.hdl.component import Component, Domain, In, Out, Ports, connect_some
from rtlstm.hdl.core.core import CoreSide
from rtlstm.hdl.link.serial_link import LinkDevice
from rtlstm.spec.manifest import Manifest

_SAFE = 3
"""Cycles behind a byte in which the next one may be replaced: it is sent eight bits later, and the news that
the byte has ended is up to three cycles old."""


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


class SpiBytes(SpiWires, Component):
    """Converts the bits of the wires to bytes and back.

    A byte that the host breaks off is not received, and sent again from its first bit.

    Latency: four cycles from a byte's last rising edge to ``received``. A byte that is there when the host
    begins is the second one that the host reads.
    """

    received: stream.Interface = Out(stream.Signature(8))
    """It is lost if it is not accepted before the next one."""
    sent: stream.Interface = In(stream.Signature(8))

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
        m.d.rising += [bits.eq(Cat(self.mosi, bits)), count.eq(count + 1)]
        with m.If(count == 7):
            m.d.come += [whole.eq(Cat(self.mosi, bits)), complete.eq(~complete)]
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
        following, safe = Mux(seen, full[0], full[1]), ended | (left != 0) | idle
        m.d.comb += self.sent.ready.eq(safe & (ended | ~following))
        for number in range(2):
            # What the host reads now is not changed, and the other one only by a byte, or as it ends.
            with m.If((seen != number) & safe & (ended | ~full[number])):
                m.d.sync += [
                    held[number].eq(Mux(self.sent.valid, self.sent.payload, 0)),
                    full[number].eq(self.sent.valid),
                ]
        m.d.comb += self.waiting.eq(full[0] | full[1])


class SpiLink(SpiPorts, CoreSide, Component):
    """The link on SPI; see :class:`~rtlstm.hdl.link.serial_link.LinkDevice`."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.wires = wires = SpiBytes()
        m.submodules.engine = engine = LinkDevice(self._manifest, crc_bits=8)
        outside = wiring.flipped(self)
        connect_some(m, outside, wires, SpiWires.port_names())
        wiring.connect(m, wires.received, engine.i)
        wiring.connect(m, engine.o, wires.sent)
        connect_some(m, outside, engine, ("errors", "active", *CoreSide.declared_members(self._manifest)))
        return m
