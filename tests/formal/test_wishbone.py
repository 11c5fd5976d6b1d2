"""Wishbone: each transfer is one request, and its answer ends that transfer and no other."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, before, free_inputs, holds, implies
from support.proofs import cases, covered, found, proven

from rtlstm.hdl.buses.wishbone import Wishbone

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """Wishbone's slave, a master, and registers that answer requests only, each when they like.

    A transfer begins when the master asks (``cyc`` and ``stb``), and ends with its answer, or when the master
    gives it up. Until then it stays the same.
    """

    def __init__(self, kind: type[Wishbone] = Wishbone) -> None:
        self._slave = kind()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slave, bus = self._slave, self._slave.bus
        free_inputs(m, slave)
        inside = Inside(m, slave)
        running = ~ResetSignal()
        asks, answered = slave.cyc & slave.stb, slave.ack | slave.err

        # The master and the registers.
        wanted = Cat(slave.adr, slave.we, slave.dat_w, slave.sel.all())
        goes_on = before(m, asks & ~answered & running)
        m.d.comb += [
            Assume(implies(goes_on & asks, wanted == before(m, wanted))),
            Assume(implies(bus.done, bus.valid & running)),
        ]

        # A request is there for a transfer that was asked for in the cycle before, once, as it was asked. It
        # is the transfer's own until the master gives up.
        asked = Cat(bus.number, bus.write, bus.data, bus.whole)
        begins = bus.valid & ~before(m, bus.valid & ~bus.done)
        owned, own, done = Signal(), Signal(), Signal()
        m.d.comb += own.eq(Mux(begins, goes_on, owned) & asks)
        m.d.sync += [
            owned.eq(own & bus.valid & ~bus.done),
            # The transfer's request has been done, and its answer is due.
            done.eq(own & bus.valid & bus.done),
        ]
        with m.If(running):
            m.d.comb += [
                Assert(holds(m, SimpleNamespace(payload=asked, valid=bus.valid, ready=bus.done))),
                Assert(implies(begins, goes_on & (asked == before(m, wanted)))),
                Assert(implies(begins, ~done & ~owned)),
                # None waits for ever: it is asked for as soon as no other is under way.
                Assert(implies(before(m, asks & ~answered & ~bus.valid & running), bus.valid)),
            ]

        # An answer comes within a transfer, at once when its request is done, and only then.
        with m.If(running):
            m.d.comb += [
                Assert(answered == (asks & done)),
                Assert(~(slave.ack & slave.err)),
                Assert(implies(answered, slave.err == before(m, bus.refused))),
                Assert(implies(slave.ack, slave.dat_r == before(m, bus.read_data))),
                Assert(implies(asks, slave.stall == ~answered)),
            ]

        # What its registers hold for that.
        m.d.comb += Assert(implies(bus.valid & running, inside["given_up"] == ~(begins | owned)))

        # All of this happens: a transfer was given up, and the answer to the next one is its own.
        given_up = Signal()
        m.d.sync += given_up.eq(given_up | (bus.valid & bus.done & ~own))
        m.d.comb += Cover(given_up & slave.ack & running)
        return m


test_holds = proven(Harness)
test_reached = covered(Harness, 16)

BUGS = {
    "another transfer's answer": ("bus.done & asks & ~given_up", "bus.done & asks"),
    "an answer to nobody": ("self.ack.eq(acked & asks)", "self.ack.eq(acked)"),
    "a transfer is doubled": ("asks & ~answered & ~bus.valid", "asks & ~bus.valid"),
    "a request changes": ("asks & ~answered & ~bus.valid", "asks & ~answered"),
    "a refused one is done": ("heard & ~bus.refused", "heard"),
    "the answer comes again": ("bus.valid.eq(0), ", ""),
    "given up for ever": ("bus.valid & ~bus.done & (given_up | ~asks)", "given_up | (bus.valid & ~asks)"),
    "a pipelined master goes on": ("self.stall.eq(~answered)", "self.stall.eq(bus.valid)"),
}
test_bug_is_found = found(Harness, Wishbone, cases(BUGS, "another transfer's answer"), 16)
