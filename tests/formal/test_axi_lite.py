"""AXI4-Lite: each transfer is one request, whole and in order, and each request has one response."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal, Value
from support.formal import Inside, before, free_inputs, holds, implies
from support.proofs import cases, covered, found, proven

from rtlstm.hdl.buses.axi import AxiLite

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """AXI4-Lite's slave, a master that keeps the rule of the channels, and registers.

    The registers answer requests only, each when they like.
    """

    def __init__(self, kind: type[AxiLite] = AxiLite) -> None:
        self._slave = kind()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slave, bus = self._slave, self._slave.bus
        free_inputs(m, slave)
        inside = Inside(m, slave)
        running = ~ResetSignal()
        done, writes = bus.done & running, bus.write

        # The master and the registers.
        m.d.comb += [
            *(Assume(holds(m, self._channel(name))) for name in ("aw", "w", "ar")),
            Assume(implies(bus.done, bus.valid)),
        ]

        # A transfer of the master's waits until its request is done. None is lost: one that is taken finds
        # nothing that waits.
        written = done & writes
        waits_address, address = self._wait(m, "aw", written)
        waits_word, word = self._wait(m, "w", written)
        waits_read, read_address = self._wait(m, "ar", done & ~writes)

        # Each request is for what waits, and its answer finds no other that has not been taken.
        has_response, response = self._answer(m, "b", written, Cat(bus.refused << 1))
        has_word, answer = self._answer(m, "r", done & ~writes, Cat(bus.refused << 1, bus.read_data))
        asked = Cat(bus.number, writes, Mux(writes, bus.data, 0), bus.whole)
        with m.If(running):
            m.d.comb += [
                Assert(holds(m, SimpleNamespace(payload=asked, valid=bus.valid, ready=bus.done))),
                Assert(slave.bvalid == has_response),
                Assert(slave.rvalid == has_word),
                Assert(implies(has_response, slave.bresp == response)),
                Assert(implies(has_word, Cat(slave.rresp, slave.rdata) == answer)),
            ]
            with m.If(bus.valid & writes):
                m.d.comb += [
                    Assert(waits_address & waits_word & ~has_response),
                    Assert((bus.number == address[2:]) & (bus.data == word[:32])),
                    Assert(bus.whole == ((address[:2] == 0) & word[32:].all())),
                ]
            with m.Elif(bus.valid):
                m.d.comb += [
                    Assert(waits_read & ~has_word),
                    Assert((bus.number == read_address[2:]) & (bus.whole == (read_address[:2] == 0))),
                ]

        # Nobody waits for ever. What may begin begins in the next cycle, a write first; but a read that
        # waited for a write comes before the next one.
        may_write, may_read = waits_address & waits_word & ~has_response, waits_read & ~has_word
        could_write, could_read = before(m, may_write), before(m, may_read)
        begins, passed = bus.valid & ~before(m, bus.valid & ~bus.done), Signal()
        with m.If(begins):
            m.d.sync += passed.eq(writes & could_read)
        with m.If(running):
            m.d.comb += [
                Assert(implies((could_write | could_read) & ~before(m, bus.valid), bus.valid)),
                Assert(implies(begins & ~writes, ~could_write)),
                Assert(implies(begins & passed, ~writes)),
            ]

        # What its registers hold for that.
        just_written = before(m, written)
        with m.If(running):
            m.d.comb += [
                Assert(slave.awready == ~waits_address),
                Assert(slave.wready == ~waits_word),
                Assert(slave.arready == ~waits_read),
                Assert(implies(waits_address, inside["written_address"] == address)),
                Assert(implies(waits_word, Cat(inside["written"], inside["strobes"]) == word)),
                Assert(implies(waits_read, inside["read_address"] == read_address)),
                Assert(implies(before(m, done), ~bus.valid)),
                Assert(implies(passed & ~begins, may_read & Mux(bus.valid, writes, just_written))),
            ]

        # All of this happens: a read waited for a write, and was refused, and the write's response waited.
        waited, answered = Signal(), Signal()
        m.d.sync += [
            waited.eq(waited | passed),
            answered.eq(answered | (waited & slave.rvalid & slave.rready & slave.rresp.any())),
        ]
        m.d.comb += Cover(answered & slave.bvalid & slave.bready & (slave.bresp == 0) & running)
        return m

    def _channel(self, name: str) -> SimpleNamespace:
        """A channel from the master, as a stream."""
        payload = {
            "aw": Cat(self._slave.awaddr),
            "w": Cat(self._slave.wdata, self._slave.wstrb),
            "ar": Cat(self._slave.araddr),
        }[name]
        valid, ready = (getattr(self._slave, name + end) for end in ("valid", "ready"))
        return SimpleNamespace(payload=payload, valid=valid, ready=ready)

    def _wait(self, m: Module, name: str, done: Value) -> tuple[Signal, Signal]:
        """Keep a channel's transfer until its request is done; return whether there is one, and which."""
        channel = self._channel(name)
        waits, kept = Signal(name=f"{name}_waits"), Signal(len(channel.payload), name=f"{name}_kept")
        comes = channel.valid & channel.ready & ~ResetSignal()
        with m.If(comes):
            m.d.sync += [waits.eq(1), kept.eq(channel.payload)]
        with m.Elif(done):
            m.d.sync += waits.eq(0)
        m.d.comb += Assert(implies(comes, ~waits))
        return waits, kept

    def _answer(self, m: Module, name: str, done: Value, answer: Value) -> tuple[Signal, Signal]:
        """Keep a request's answer until the master takes it; return whether there is one, and what it is."""
        valid, ready = (getattr(self._slave, name + end) for end in ("valid", "ready"))
        waits, kept = Signal(name=f"{name}_waits"), Signal(len(answer), name=f"{name}_kept")
        with m.If(done):
            m.d.sync += [waits.eq(1), kept.eq(answer)]
        with m.Elif(valid & ready):
            m.d.sync += waits.eq(0)
        m.d.comb += Assert(implies(done, ~waits))
        return waits, kept


test_holds = proven(Harness)
test_reached = covered(Harness, 16)

BUGS = {
    "a response that was not taken is lost": (
        "address_held & data_held & ~self.bvalid",
        "address_held & data_held",
    ),
    "a word is lost": ("read_waits = read_held & ~self.rvalid", "read_waits = read_held"),
    "a write without its word": ("write_waits = address_held & data_held", "write_waits = address_held"),
    "a transfer that is not waited for": ("ready.eq(~held & ~ResetSignal())", "ready.eq(~ResetSignal())"),
    "a request is doubled": ("[address_held.eq(0), data_held.eq(0)]", "[address_held.eq(0)]"),
    "a response to both": ("with m.If(self.bus.done & mine):", "with m.If(self.bus.done):"),
    "a response is withdrawn": ("with m.Elif(ready):", "with m.Else():"),
    "a read waits for ever": ("active.eq(write_waits | read_waits)", "active.eq(write_waits)"),
    "a request changes": ("with m.If(~active):", "with m.If(1):"),
    "a part of a word is written": ("(~writing | strobes.all())", "1"),
}
test_bug_is_found = found(Harness, AxiLite, cases(BUGS, "a response that was not taken is lost"), 20)
