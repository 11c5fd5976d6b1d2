"""The registers of a bus wrapper; accesses to the core's registers are passed to the core."""

from typing import Literal

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from rtlstm.hdl.buses.request_port import NUMBER_BITS, FifoPort, RequestPort
from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.core.memory_window import CoreBus
from rtlstm.hdl.core.register_bank import ADDRESS_BITS
from rtlstm.spec.buses import registers_of
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Register


class Control(Component):
    """Answers a bus' requests for registers of the wrapper, the core, and the data FIFOs, if any.

    Latency: a register of the wrapper is answered in the cycle after ``valid``; one of the core 3 cycles
    after it (4 if read), and later if the core makes the request wait.
    """

    bus: RequestPort = In(RequestPort)
    """From the bus."""
    port: FifoPort = Out(FifoPort)
    """To the data FIFOs."""
    core: CoreBus = Out(CoreBus)
    """To the registers of the core."""
    done: Signal = In(1)
    malformed: Signal = In(1)
    """A step's last output beat is given; a malformed input was found."""
    reset: Signal = Out(1)
    """High for one cycle to reset core and data path."""
    irq: Signal = Out(1)
    """An enabled interrupt is pending."""

    def __init__(self, manifest: Manifest) -> None:
        self._bus = manifest.parameters.bus
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, to_core = self.bus, self.bus.number < 1 << ADDRESS_BITS
        asked, sent = bus.valid & ~bus.done, Signal()
        permitted = Mux(bus.write, self._permitted("w"), self._permitted("r")).bit_select(bus.number, 1)
        permitted = permitted & bus.whole
        answered_here = asked & ~(permitted & to_core)
        refused = ~permitted | self.port.refused
        taken = self.core.valid & self.core.ready
        m.d.comb += [
            self.core.address.eq(bus.number[:ADDRESS_BITS]),
            self.core.write.eq(bus.write),
            self.core.data.eq(bus.data),
            self.core.valid.eq(asked & permitted & to_core & ~sent),
            self.port.number.eq(bus.number),
            self.port.write.eq(bus.write),
            self.port.data.eq(bus.data),
            self.port.decided.eq(answered_here & permitted),
        ]
        word = self._registers(
            m, written=answered_here & permitted & bus.write, failed=answered_here & refused
        )
        m.d.sync += [
            sent.eq((sent | (taken & ~bus.write)) & ~self.core.read_valid),
            bus.done.eq(answered_here | (taken & bus.write) | self.core.read_valid),
            bus.refused.eq(answered_here & refused),
            bus.read_data.eq(Mux(self.core.read_valid, self.core.read_data, word)),
        ]
        return m

    def _permitted(self, access: Literal["r", "w"]) -> Value:
        """Return a mask with one bit per register number."""
        return Const(sum(1 << register for register in registers_of(self._bus, access)), 1 << NUMBER_BITS)

    def _registers(self, m: Module, written: Value, failed: Value) -> Value:
        """Implement the wrapper's registers; return the value of the requested one."""
        number, data = self.bus.number, self.bus.data
        enabled, pending = Signal(2, name="enabled"), Signal(2, name="pending")
        errors = Signal(32)
        cleared = Mux(written & (number == Register.IRQ_PENDING), data[:2], 0)
        m.d.sync += [
            self.reset.eq(written & (number == Register.CONTROL) & data[0]),
            errors.eq(errors + self.malformed + failed),
            # An event in the cycle of clearing is kept.
            pending.eq((pending & ~cleared) | Cat(self.done, self.malformed | failed)),
            self.irq.eq((enabled & pending).any()),
        ]
        with m.If(written & (number == Register.IRQ_ENABLE)):
            m.d.sync += enabled.eq(data[:2])
        word = Signal(32)
        contents = {
            Register.LINK_ERRORS: errors,
            Register.IRQ_ENABLE: enabled,
            Register.IRQ_PENDING: pending,
        }
        with m.Switch(number):
            for register, content in contents.items():
                with m.Case(register):
                    m.d.comb += word.eq(content)
            with m.Default():
                m.d.comb += word.eq(self.port.read_data)
        return word
