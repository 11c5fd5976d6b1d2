"""Wrappers of all buses: core, registers, and separate paths for data, or FIFOs of a value per word."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, ClassVar, Literal

from amaranth.hdl import Cat, ClockSignal, Const, DomainRenamer, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import fifo, wiring
from amaranth.lib.stream import Interface as Stream

from rtlstm.hdl.buses.axi_stream import InputStream, OutputStream
from rtlstm.hdl.buses.request_port import NUMBER_BITS, BusSlave, FifoPort, RequestPort
from rtlstm.hdl.component import Component, Domain, In, Out, connect_some
from rtlstm.hdl.core.core import core_instance
from rtlstm.hdl.core.layouts import input_beats, output_beats
from rtlstm.hdl.core.memory_window import CoreBus
from rtlstm.hdl.core.program_store import StepPart, count_values, program_store
from rtlstm.hdl.core.register_bank import ADDRESS_BITS
from rtlstm.spec.buses import BUSES, NO_BUS, registers_of
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.inventory import WAITING_STEPS, MemorySpec, wrapper_memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Register


def _queue(memory: MemorySpec, width: int) -> fifo.SyncFIFOBuffered:
    """Return a FIFO around a memory of the inventory; its output register holds one word more."""
    assert memory.width == width, f"{memory.name} has {memory.width} bits, not {width}"
    return fifo.SyncFIFOBuffered(width=memory.width, depth=memory.depth + 1)


class InputFifo(StepPart):
    """Collects values written to X_DATA into beats for the core.

    Free space is counted in whole steps: there is always space for the rest of a step that has begun.
    Latency: a beat is offered to the core 2 cycles after its last value was written.
    """

    port: FifoPort = In(FifoPort)
    """X_DATA, X_STREAM and X_ROOM; others are not looked at, and read 0."""
    x: Stream = Out(input_beats)
    """To the core."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, bits = self._manifest.input_port.beat, self._manifest.input_port.bits
        port = self.port
        x = self.x.payload
        leaves = Signal()
        m.submodules.queue = queue = _queue(
            wrapper_memories(self._manifest)["input FIFO"], len(Cat(x, leaves))
        )
        room = Signal(range(WAITING_STEPS + 1), init=WAITING_STEPS)
        stream, suppress = Signal.like(x.stream), Signal()
        slot, accepted = Signal(range(beat)), Signal()
        step = count_values(m, self._program, self, "inputs", accepted, stream)
        first, last = step.first, step.last
        named, suppressed = Signal.like(stream, name="step_stream"), Signal(name="step_quiet")
        mine, wants_stream = port.number == Register.X_DATA, port.number == Register.X_STREAM
        unknown = self._program.unknown(port.data[:16], self.shape)
        # In reset, as while another network is loaded, no value is accepted.
        rooms = Mux(ResetSignal(), 0, room)
        full: Value = rooms == 0
        if self._program.several:
            # Its network may be gone since the stream was named.
            full |= self._program.unknown(stream, self.shape)
        refused = (mine & first & full) | (wants_stream & port.write & (unknown | ResetSignal()))
        m.d.comb += accepted.eq(port.decided & port.write & mine & ~refused)
        with m.If(port.decided & port.write & wants_stream & ~unknown):
            m.d.sync += [stream.eq(port.data[: len(stream)]), suppress.eq(port.data[31])]
        beats = Signal.like(x.data)
        ends = Signal()
        m.d.sync += ends.eq(accepted & (last | (slot == beat - 1)))
        final = Signal()
        with m.If(accepted):
            m.d.sync += [
                slot.eq(Mux(last | (slot == beat - 1), 0, slot + 1)),
                final.eq(last),
                beats.word_select(slot, bits).eq(port.data[:bits]),
            ]
            with m.If(first):
                m.d.sync += [named.eq(stream), suppressed.eq(suppress)]
        gone = self.x.valid & self.x.ready & leaves
        m.d.sync += room.eq(room - (accepted & first) + gone)
        m.d.comb += [
            port.refused.eq(refused),
            queue.w_en.eq(ends),
            queue.w_data.eq(Cat(beats, named, suppressed, final)),
            Cat(x, leaves).eq(queue.r_data),
            self.x.valid.eq(queue.r_rdy & ~ResetSignal()),
            queue.r_en.eq(self.x.valid & self.x.ready),
        ]
        with m.If(wants_stream):
            m.d.comb += port.read_data.eq(Cat(stream, Const(0, 31 - len(stream)), suppress))
        with m.Elif(port.number == Register.X_ROOM):
            m.d.comb += port.read_data.eq(rooms)
        return m


class OutputFifo(StepPart):
    """Stores the core's output beats and gives their values one by one through Y_DATA."""

    port: FifoPort = In(FifoPort)
    """Y_DATA, Y_STREAM and Y_STEPS; others are not looked at, and read 0."""
    y: Stream = In(output_beats)
    """From the core."""
    done: Signal = Out(1)
    """A step's last beat arrives."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, bits, port = self._manifest.parameters.beat_out, self._manifest.numerics.output_bits, self.port
        y = self.y.payload
        memory = wrapper_memories(self._manifest)["output FIFO"]
        m.submodules.queue = queue = _queue(memory, len(Cat(y.data, y.stream)))
        most_steps = queue.depth // self._program.least_beats
        # A beat appears at the queue's output one or two cycles after it came, and so does the count of
        # steps.
        arrived, ready = Signal(2), Signal(range(most_steps + 2))
        slot, taken, mine = Signal(range(beat)), Signal(), port.number == Register.Y_DATA
        data, y_stream = Signal.like(y.data), Signal.like(y.stream, name="stream")
        last = count_values(m, self._program, self, "outputs", taken, y_stream).last
        refused = mine & (ready == 0)
        ends = taken & (last | (slot == beat - 1))
        word = data.word_select(slot, bits)
        m.d.comb += [
            taken.eq(port.decided & ~port.write & mine & ~refused),
            Cat(data, y_stream).eq(queue.r_data),
            # What the core still has in reset, as while another network is loaded, is dropped.
            self.y.ready.eq(queue.w_rdy | ResetSignal()),
            queue.w_en.eq(self.y.valid & queue.w_rdy & ~ResetSignal()),
            queue.w_data.eq(Cat(y.data, y.stream)),
            queue.r_en.eq(ends),
            self.done.eq(queue.w_en & y.last),
            port.refused.eq(refused),
        ]
        m.d.sync += [
            arrived.eq(Cat(self.done, arrived)),
            ready.eq(ready + arrived[-1] - (taken & last)),
        ]
        with m.If(taken):
            m.d.sync += slot.eq(Mux(ends, 0, slot + 1))
        with m.If(mine):
            m.d.comb += port.read_data.eq(Cat(word, word[-1].replicate(32 - bits)))
        with m.Elif(port.number == Register.Y_STREAM):
            m.d.comb += port.read_data.eq(y_stream)
        with m.Elif(port.number == Register.Y_STEPS):
            m.d.comb += port.read_data.eq(ready)
        return m


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


@dataclass(frozen=True)
class Pins:
    """Names of a top module's clock and reset, and whether the reset is active low."""

    clock: str = "clk"
    reset: str = "rst"
    reset_low: bool = False


class Wrapper(Component):
    """Base class of wrappers: the core's instance, the registers, and a separate reset for data."""

    irq: Signal

    pins = Pins()
    port_texts: Mapping[str, str] = {}
    """Descriptions of the bus' ports for the Verilog's header; clk, rst and irq have theirs already."""
    port_attributes: Mapping[str, Mapping[str, str]] = {}
    """Attributes of ports in the Verilog, for tools that connect whole interfaces."""
    interfaces: ClassVar[Mapping[str, str]] = {}
    """Kind of each bus interface, such as ``aximm``, by its name: its ports begin with that and ``_``.
    Packages of the core tell of these; other ports are wires to them."""

    def __init__(self, manifest: Manifest, ports: Mapping[str, wiring.Member]) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        super().__init__({**ports, "irq": wiring.Out(1)})

    def _begin(self, m: Module) -> None:
        """Add registers and core; data paths go into the domains ``data`` and ``steps``."""
        m.submodules.control = self._control = Control(self._manifest)
        # Writing CONTROL resets all that the reset pin resets, except the registers and the bus.
        m.domains.data = data = Domain(local=True)
        m.d.comb += [
            data.clk.eq(ClockSignal()),
            data.rst.eq(ResetSignal() | self._control.reset),
            self.irq.eq(self._control.irq),
        ]
        self._core = core = core_instance(m, self._manifest, data.rst)
        wiring.connect(m, self._control.core, core.bus)
        # A core of one loadable network drops parts of steps when it is stopped, so the counters of steps are
        # reset, too.
        m.domains.steps = steps = Domain(local=True)
        self._switching = self._program.drops(partial(self._is_switching, m))
        m.d.comb += [steps.clk.eq(ClockSignal()), steps.rst.eq(data.rst | self._switching)]

    def _is_switching(self, m: Module) -> Value:
        """Whether another network is being loaded, or outputs of the former one still wait in the core."""
        stopped, waits = self._core.stopped, Signal(name="outputs_wait")
        with m.If(stopped):
            m.d.data += waits.eq(1)
        with m.Elif(~self._core.y.valid):
            m.d.data += waits.eq(0)
        return stopped | waits

    def _connect(self, m: Module, source: InputStream | InputFifo, sink: OutputStream | OutputFifo) -> None:
        """Connect the core's data ports to what feeds x and takes y."""
        wiring.connect(m, source.x, self._core.x)
        wiring.connect(m, self._core.y, sink.y)
        m.d.comb += self._control.done.eq(sink.done)
        for part in (source, sink):
            if isinstance(part, StepPart):
                self._program.connect(m, self._core, part, ("shape",))

    def _lead_out(self, m: Module, part: Component, prefix: str, names: Mapping[str, object]) -> None:
        """Connect a part's ports to the wrapper's, which have a prefix."""
        for name in names:
            ours, inner = getattr(self, prefix + name), getattr(part, name)
            outward = part.signature.members[name].flow is wiring.Out
            m.d.comb += ours.eq(inner) if outward else inner.eq(ours)


class FifoWrapper(Wrapper):
    """The core with registers and data FIFOs, for a bus that only accesses registers.

    Each such bus has a subclass that sets the two attributes below.
    """

    prefix: str
    """Prefix of the bus' ports."""
    slave: type[BusSlave]
    """Class that converts transfers to requests; it takes no arguments."""

    @classmethod
    def bus_ports(cls, prefix: str = "") -> dict[str, wiring.Member]:
        """Return the bus' ports, with a prefix: those that the slave's body declares."""
        return cls.slave.bus_ports(prefix)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, self.bus_ports(self.prefix))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._begin(m)
        source, sink = InputFifo(self._manifest), OutputFifo(self._manifest)
        m.submodules.source = DomainRenamer("steps")(source)
        m.submodules.sink = DomainRenamer("steps")(sink)
        m.submodules.registers = registers = self.slave()
        self._connect(m, source, sink)
        wiring.connect(m, registers.bus, self._control.bus)
        port = self._control.port
        for queue in (source, sink):
            connect_some(m, port, queue.port, ("number", "write", "data", "decided"))
        m.d.comb += [
            port.read_data.eq(source.port.read_data | sink.port.read_data),
            port.refused.eq(source.port.refused | sink.port.refused),
        ]
        self._lead_out(m, registers, self.prefix, self.bus_ports(""))
        return m


def wrapper_name(manifest: Manifest) -> str:
    """Return the name of the module that a system instantiates: the wrapper or, without one, the core."""
    bus = manifest.parameters.bus
    return manifest.name if bus == NO_BUS else f"{manifest.name}_{bus}"


def wrapper_class(bus: str) -> type[Wrapper] | None:
    """Return the class of a bus' wrapper, None for the core's own ports.

    Raises ConfigurationError if the bus names a wrapper that cannot be imported, or is not a wrapper.
    """
    named = BUSES[bus].wrapper
    if not named:
        return None
    try:
        kind: Any = resolve_name(named)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"the wrapper of bus {bus!r} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Wrapper)):
        raise ConfigurationError(f"the wrapper of bus {bus!r} must be a Wrapper, but {named} is {kind!r}")
    return kind


def wrapper(manifest: Manifest) -> Wrapper | None:
    """Return the wrapper that a build has, if any.

    Raises ConfigurationError if the bus names a wrapper that cannot be imported, or is not a wrapper.
    """
    kind: Any = wrapper_class(manifest.parameters.bus)
    if kind is None:
        return None
    made: Wrapper = kind(manifest)
    return made
