"""Registers, and the window through which the host reaches the core's memories."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Interface
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Command, Region, Register

__all__ = ["ADDRESS_BITS", "CoreBus", "CoreBusPort", "MemoryWindow"]

ADDRESS_BITS = 4
"""Width of the number of a register of the core."""

READ_WAIT = 16
"""Cycles from opening the window to its row's data standing at every read port near the window."""


class CoreBusPort(Interface):
    """A port with the members of :class:`CoreBus`."""

    address: Signal
    write: Signal
    data: Signal
    valid: Signal
    ready: Signal
    read_data: Signal
    read_valid: Signal


class CoreBus(wiring.Signature):
    """Requests to a core's registers; see ``docs/ports.md``.

    Members
    -------
    address, write, data : Out
        Register, whether it is written, and with what.
    valid : Out(1), ready : In(1)
        Handshake.
    read_data : In(32), read_valid : In(1)
        The word read, for one cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "address": Out(ADDRESS_BITS),
                "write": Out(1),
                "data": Out(32),
                "valid": Out(1),
                "ready": In(1),
                "read_data": In(32),
                "read_valid": In(1),
            }
        )

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> CoreBusPort:
        """Make a port."""
        return CoreBusPort(self, path=path, src_loc_at=src_loc_at + 1)


class MemoryWindow(Component):
    """The register bus: :mod:`rtlstm.spec.registers` in hardware.

    DATA and COMMAND are accepted when the core is idle; while one of them waits, no step begins.

    Parameters
    ----------
    manifest
        The build.
    read_back
        Cycles from ``multiplies`` to a row of weights at ``read_data``.

    Members
    -------
    bus : In(CoreBus)
        The port.
    busy, granted : In(1)
        Something is under way in the core, or a complete input waits in its buffer; nothing was under way in
        the cycle before, when ``active`` was set.
    active, opens : Out(1), row : Out(32), bank : Out(16)
        The bus waits for the core to be idle, or reads; address registers are to follow ``row``.
    write : Out(10)
        One bit per region: store ``write_data`` in ``row`` of ``bank``.
    write_data, read_data : Out, In
        A row of the widest region; narrower ones use its low bits.
    region : Out(4)
        Region being read.
    multiplies : Out(1)
        The row stands at every read port: the array is to give it, if it is one of weights.
    stream, reset_stream, state_written, weights_written : Out
        COMMAND, for the sequencer.
    flags, step_done, saturated, since, now
        What the counters count.
    stores : Out(1)
        A word is being stored: until the second cycle after it, ``weights_written`` may follow.
    touches : Out(1)
        A word of the program memory is being written.
    shape : In(32)
        Only with a loadable program: what SHAPE reads.
    """

    bus: CoreBusPort
    busy: Signal
    granted: Signal
    active: Signal
    opens: Signal
    row: Signal
    bank: Signal
    region: Signal
    multiplies: Signal
    write: Signal
    write_data: Signal
    read_data: Signal
    stream: Signal
    reset_stream: Signal
    state_written: Signal
    weights_written: Signal
    flags: Signal
    step_done: Signal
    saturated: Signal
    since: Signal
    now: Signal
    stores: Signal
    touches: Signal
    shape: Signal
    stopped: Signal

    def __init__(self, manifest: Manifest, read_back: int) -> None:
        self._manifest = manifest
        self._read_back = read_back
        self._width = 32 * max(layout.words for layout in manifest.regions.values())
        self._loadable = manifest.parameters.capacity is not None
        super().__init__(
            ({"touches": Out(1), "shape": In(32), "stopped": In(1)} if self._loadable else {})
            | {
                "bus": In(CoreBus()),
                "busy": In(1),
                "granted": In(1),
                "active": Out(1),
                "opens": Out(1),
                "row": Out(32),
                "bank": Out(16),
                "region": Out(4),
                "multiplies": Out(1),
                "write": Out(len(Region)),
                "write_data": Out(self._width),
                "read_data": In(self._width),
                "stream": Out(manifest.parameters.stream_bits),
                "reset_stream": Out(1),
                "state_written": Out(1),
                "weights_written": Out(1),
                "stores": Out(1),
                "flags": In(3),
                "step_done": In(1),
                "saturated": In(range(manifest.parameters.gate_units + 1)),
                "since": In(32),
                "now": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counters = self._counters(m)
        layouts = self._manifest.regions.values()
        # ROW and SELECT keep as many bits as there are rows and banks.
        row = Signal(row_bits(max(layout.rows for layout in layouts) + 1))
        bank = Signal(row_bits(max(layout.banks for layout in layouts) + 1))
        region, word = Signal(4), Signal(range(max(layout.words for layout in layouts)))
        staging = Signal(self._width, reset_less=True)
        words = Signal.like(word, name="words")
        with m.Switch(region):
            for number, layout in self._manifest.regions.items():
                with m.Case(int(number)):
                    m.d.comb += words.eq(layout.words - 1)
        m.d.comb += [self.region.eq(region), self.row.eq(row), self.bank.eq(bank)]
        # A request is looked at in the cycle after it came: the bus comes from far.
        address, write = Signal.like(self.bus.address, reset_less=True), Signal(reset_less=True, name="write")
        data, asked = Signal.like(self.bus.data, reset_less=True), Signal()
        to_data, commanding = Signal(reset_less=True), Signal(reset_less=True)
        to_window = to_data | commanding
        m.d.sync += [
            address.eq(self.bus.address),
            write.eq(self.bus.write),
            data.eq(self.bus.data),
            asked.eq(self.bus.valid & ~self.bus.ready),
            to_data.eq(self.bus.address == Register.DATA),
            commanding.eq((self.bus.address == Register.COMMAND) & self.bus.write),
        ]
        longest = READ_WAIT + self._read_back
        writes, reading, wait = Signal(), Signal(), Signal(range(longest + 1))
        written, takes, loads, gives = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.active.eq(reading | (asked & to_window)),
            self.opens.eq(reading | (asked & to_data)),
            # After a row was written, requests wait for the cycle in which that shows.
            self.bus.ready.eq(asked & ~reading & ~written & ~writes & ~gives & (~to_window | self.granted)),
        ]
        m.d.comb += self.stores.eq(takes | writes)
        accepted = self.bus.ready
        if self._loadable:
            m.d.comb += self.touches.eq(accepted & write & to_data & (region == Region.PROGRAM))
        # DATA's word, and what is done with the staged row, in the cycle after it is decided.
        given = Signal.like(data, reset_less=True)
        # Words are further apart than the cycle by which this is late.
        last_word = delay(m, word == words, 1)
        value, chosen, answers, answered = Signal(32, reset_less=True), Signal(), Signal(), Signal()
        # The reset comes a cycle late: what stands here until then is not meant.
        m.d.comb += self.bus.read_valid.eq(answered & ~ResetSignal())
        reads = accepted & ~write
        m.d.sync += [
            given.eq(data),
            takes.eq(accepted & write & to_data),
            loads.eq(reading & (wait == 1)),
            gives.eq(reading & (wait == 0)),
            self.multiplies.eq(reading & (wait == self._read_back + 1)),
            self.write.eq(0),
            writes.eq(0),
            chosen.eq(reads & ~to_data),
            answers.eq(chosen),
            value.eq(self._read_register(m, address, region, bank, row, counters)),
            answered.eq(answers | gives),
            self.bus.read_data.eq(Mux(gives, staging[:32], value)),
        ]
        staged_address = Signal.like(address, reset_less=True)
        commands = Cat(data == Command.RESET, data == Command.STATE_WRITTEN) & (
            accepted & commanding
        ).replicate(2)
        m.d.sync += [
            written.eq(accepted & write),
            staged_address.eq(address),
            # Decided beside the registers' writes and not behind them: the sequencer is far.
            Cat(self.reset_stream, self.state_written).eq(commands),
        ]
        with m.If(written):
            self._write_register(m, staged_address, given, region, bank, row, word)
        with m.If(takes):
            m.d.sync += staging.eq(Cat(staging[32:], given))
            with m.If(last_word):
                m.d.sync += [self.write.eq(Const(1, len(Region)) << region), writes.eq(1)]
        with m.If(loads):
            m.d.sync += staging.eq(self.read_data)
        with m.If(gives):
            m.d.sync += staging.eq(staging >> 32)
        with m.If(takes | gives):
            m.d.sync += word.eq(Mux(last_word, 0, word + 1))
        # A write reaches its memory in the cycle after it was staged; only then the row moves.
        with m.If(writes | (gives & last_word)):
            m.d.sync += row.eq(row + 1)
        with m.If(reads & to_data):
            m.d.sync += [reading.eq(1), wait.eq(Mux(word == 0, longest, 0))]
        with m.If(reading):
            m.d.sync += wait.eq(wait - 1)
            with m.If(wait == 0):
                m.d.sync += [reading.eq(0), wait.eq(0)]
        self._align(m, staging, region)
        # State memories are left out: STATE_WRITTEN says which stream they concern.
        state = 1 << Region.VECTORS | 1 << Region.CELLS
        m.d.sync += self.weights_written.eq((self.write & ~Const(state, len(Region))).any())
        return m

    def _align(self, m: Module, staging: Signal, region: Signal) -> None:
        """A written row stands at the staging register's top: bring it down."""
        regions = self._manifest.regions.items()
        for words in sorted({layout.words for _, layout in regions}):
            # The region stands long before its first row does.
            wide = Signal(name=f"words_{words}", reset_less=True)
            m.d.sync += wide.eq(
                Cat(region == number for number, layout in regions if layout.words == words).any()
            )
            with m.If(wide):
                m.d.comb += self.write_data.eq(staging[self._width - 32 * words :])

    def _write_register(
        self,
        m: Module,
        address: Signal,
        data: Signal,
        region: Signal,
        bank: Signal,
        row: Signal,
        word: Signal,
    ) -> None:
        with m.Switch(address):
            with m.Case(Register.STREAM):
                m.d.sync += self.stream.eq(data)
            with m.Case(Register.SELECT):
                m.d.sync += [region.eq(data[28:]), bank.eq(data), word.eq(0)]
            with m.Case(Register.ROW):
                m.d.sync += [row.eq(data), word.eq(0)]

    def _counters(self, m: Module) -> dict[Register, Signal]:
        steps, latency, saturations = Signal(32), Signal(32), Signal(32)
        # With a reset, so that nothing of before is counted after it.
        done, clipped = Signal(name="done"), Signal.like(self.saturated, name="clipped")
        m.d.sync += [
            self.now.eq(self.now + 1),
            done.eq(self.step_done),
            clipped.eq(self.saturated),
            steps.eq(steps + done),
            saturations.eq(saturations + clipped),
        ]
        with m.If(done):
            # The beat is offered one cycle after it enters the queue: now.
            m.d.sync += latency.eq(self.now - self.since)
        return {
            Register.STEPS: steps,
            Register.LATENCY: latency,
            Register.CELL_SATURATIONS: saturations,
            Register.CYCLES: self.now,
        }

    def _read_register(
        self,
        m: Module,
        address: Signal,
        region: Signal,
        bank: Signal,
        row: Signal,
        counters: dict[Register, Signal],
    ) -> Value:
        """What the register holds whose address stood here in the cycle before."""
        # The sequencer is far: what it says is looked at in the cycle in which the request is accepted.
        busy = delay(m, self.busy, 1)
        contents = {
            **{register: Const(word, 32) for register, word in self._manifest.constants.items()},
            Register.STATUS: Cat(busy, self.stopped) if self._loadable else busy,
            Register.STREAM: self.stream,
            Register.FLAGS: delay(m, self.flags, 1),
            Register.SELECT: Cat(bank, Const(0, 28 - len(bank)), region),
            Register.ROW: row,
            **counters,
            **({Register.SHAPE: self.shape} if self._loadable else {}),
        }
        value: Value = Const(0, 32)
        for register, content in contents.items():
            read = Signal(name=f"reads_{register.name.lower()}", reset_less=True)
            m.d.sync += read.eq(address == register)
            value |= Mux(read, content, 0)
        return value
