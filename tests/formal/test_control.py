"""The registers of a bus wrapper: each request takes effect once, where it belongs, and is answered once."""

from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal, Value
from support.formal import Inside, before, free_inputs, holds, implies
from support.formal_shapes import fixed_manifest
from support.proofs import cases, covered, found, proven

from rtlstm.hdl.buses.wrappers import Control
from rtlstm.spec.buses import registers_of
from rtlstm.spec.registers import REGISTERS, Register

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """The registers of a wrapper, a bus that keeps the contract of requests, the core and the data FIFOs.

    The core gives a word for each read that it took, when it likes. The FIFOs refuse requests for
    their registers only; else their answers are free.
    """

    def __init__(self, bus: str, kind: type[Control] = Control) -> None:
        self._bus = bus
        self._control = kind(fixed_manifest(bus=bus))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self._control
        bus, core, port = control.bus, control.core, control.port
        free_inputs(m, control)
        inside = Inside(m, control)
        running = ~ResetSignal()

        # The bus: a request stays until it is done; what is read has no word to write.
        asked = Cat(bus.number, bus.write, Mux(bus.write, bus.data, 0), bus.whole)
        m.d.comb += Assume(holds(m, SimpleNamespace(payload=asked, valid=bus.valid, ready=bus.done)))

        # The core: ``reads`` are those that it took and has not answered.
        reads, taken = Signal(), core.valid & core.ready & running
        m.d.comb += Assume(implies(core.read_valid, reads & running))
        m.d.sync += reads.eq((reads & ~core.read_valid) | (taken & ~core.write))

        # The FIFOs.
        of_fifo = bus.number >= Register.X_DATA
        m.d.comb += Assume(implies(port.refused, of_fifo))

        # What a request may do, as the list of registers says.
        written, read = (self._is_one_of(registers_of(self._bus, access)) for access in ("w", "r"))
        of_core = self._is_one_of(number for number, what in REGISTERS.items() if what.owner == "core")
        permitted = Mux(bus.write, written, read) & bus.whole

        # It takes effect once: at the core if that has its register, else here or in a FIFO. It does so as
        # soon as it is there and the core takes it.
        effect, had_effect = taken | (port.decided & running), Signal()
        asks = bus.valid & ~bus.done & running
        m.d.sync += had_effect.eq((had_effect | effect) & ~bus.done)
        offered = Cat(core.address, core.write, Mux(core.write, core.data, 0))
        with m.If(running):
            m.d.comb += [
                Assert(implies(effect, asks & permitted & ~had_effect)),
                Assert(port.decided == (asks & permitted & ~of_core)),
                Assert(core.valid == (asks & permitted & of_core & ~had_effect)),
                Assert(Cat(port.number, port.write) == Cat(bus.number, bus.write)),
                Assert(implies(bus.write, port.data == bus.data)),
                Assert(implies(core.valid, Cat(core.address, core.write) == Cat(bus.number[:4], bus.write))),
                Assert(implies(core.valid & core.write, core.data == bus.data)),
                Assert(holds(m, SimpleNamespace(payload=offered, valid=core.valid, ready=core.ready))),
            ]

        # It is answered once, in the next cycle, with the core's word if it is to be read there.
        at_core = permitted & of_core
        answers = asks & Mux(at_core, Mux(bus.write, taken, core.read_valid), 1)
        refuses = asks & ~(at_core | (permitted & ~port.refused))
        has_word = ~bus.write & (of_core | of_fifo)
        word = Mux(at_core, core.read_data, port.read_data)
        with m.If(running):
            m.d.comb += [
                Assert(bus.done == before(m, answers)),
                Assert(implies(bus.done, bus.valid & (bus.refused == before(m, refuses)))),
                Assert(implies(bus.done & ~bus.refused & has_word, bus.read_data == before(m, word))),
            ]

        # Events are kept until a one is written to them, also those of that cycle.
        stores, data = port.decided & port.write & running, bus.data[:2]
        enabled, pending = Signal(2), Signal(2)
        clears = Mux(stores & (bus.number == Register.IRQ_PENDING), data, 0)
        m.d.sync += pending.eq((pending & ~clears) | Cat(control.done, control.malformed | refuses))
        with m.If(stores & (bus.number == Register.IRQ_ENABLE)):
            m.d.sync += enabled.eq(data)
        resets = before(m, stores & (bus.number == Register.CONTROL) & data[0])
        raised = before(m, (enabled & pending).any())
        seen = before(m, pending)
        reads_pending = bus.done & ~bus.refused & ~bus.write & (bus.number == Register.IRQ_PENDING)
        with m.If(running):
            m.d.comb += [
                Assert((control.reset == resets) & (control.irq == raised)),
                Assert(implies(reads_pending, bus.read_data == seen)),
            ]

        # What its registers hold for that.
        with m.If(running):
            m.d.comb += [
                Assert(inside["sent"] == reads),
                Assert(
                    Cat(inside["_registers.enabled"], inside["_registers.pending"]) == Cat(enabled, pending)
                ),
                Assert(implies(reads, asks & at_core & ~bus.write)),
                Assert(had_effect == Mux(bus.done, bus.valid & before(m, permitted), reads)),
            ]

        # All of this happens: a read waited at the core, and a refused request interrupts.
        waited = Signal()
        m.d.sync += waited.eq(waited | (core.read_valid & ~before(m, taken)))
        m.d.comb += Cover(waited & control.irq & bus.done & bus.refused & running)
        return m

    def _is_one_of(self, registers: Iterable[Register]) -> Value:
        """Whether the request is for one of these registers."""
        return Cat(self._control.bus.number == register for register in registers).any()


BUSES = {bus: bus for bus in ("axi", "axilite", "wishbone")}


test_holds = proven(Harness, cases(BUSES, "axilite"))
test_reached = covered(Harness, 16, cases(BUSES, "axilite"))

BUGS = {
    "the core's word is asked for again": ("& to_core & ~sent", "& to_core"),
    "a FIFO takes it twice": ("asked, sent = bus.valid & ~bus.done,", "asked, sent = bus.valid,"),
    "done before the core took it": ("| (taken & bus.write)", "| (self.core.valid & bus.write)"),
    "done before the core has read": ("(taken & bus.write)", "taken"),
    "refused, but for the core": ("permitted & to_core & ~sent", "to_core & ~sent"),
    "refused, but for a FIFO": ("decided.eq(answered_here & permitted)", "decided.eq(answered_here)"),
    "a part of a word": ("permitted = permitted & bus.whole", "permitted = permitted"),
    "a FIFO's refusal is not told": ("refused = ~permitted | self.port.refused", "refused = ~permitted"),
    "an event in the cycle of clearing": (
        "(pending & ~cleared) | Cat(self.done, self.malformed | failed)",
        "(pending | Cat(self.done, self.malformed | failed)) & ~cleared",
    ),
    "a read resets": ("written & (number == Register.CONTROL)", "(number == Register.CONTROL)"),
}
test_bug_is_found = found(Harness, Control, cases(BUGS, "the core's word is asked for again"), 12, "axilite")
