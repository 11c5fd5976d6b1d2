"""Registers, and the window through which the host reaches the core's memories."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Interface, connect_some
from rtlstm.hdl.core.program_store import program_store
from rtlstm.hdl.core.register_bank import ADDRESS_BITS, RegisterBank
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Command, Region, Register

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


@dataclass(frozen=True)
class _Request:
    """A request to a register, in the cycle after it came, and in those in which it waits."""

    number: Signal
    data: Signal
    write: Signal
    asked: Signal
    """There is one."""
    to_data: Signal
    to_window: Value
    """To DATA, or to write COMMAND: it waits until the core is idle."""
    accepted: Signal


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
    shape : In(32), stopped : In(1)
        What SHAPE and STATUS tell of the program.
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
        self._manifest, self._program = manifest, program_store(manifest)
        self._read_back = read_back
        self._width = 32 * max(layout.words for layout in manifest.regions.values())
        super().__init__(
            {
                "touches": Out(1),
                "shape": In(32),
                "stopped": In(1),
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
        m.submodules.registers = registers = RegisterBank(self._manifest)
        request = self._look_at_request(m)
        self._connect_registers(m, registers, request)
        staging = Signal(self._width, reset_less=True)
        self._serve(m, request, registers, staging)
        self._align(m, staging, registers.region)
        # State memories are left out: STATE_WRITTEN says which stream they concern.
        state = 1 << Region.VECTORS | 1 << Region.CELLS
        m.d.sync += self.weights_written.eq((self.write & ~Const(state, len(Region))).any())
        return m

    def _look_at_request(self, m: Module) -> _Request:
        """Look at a request in the cycle after it came: the bus comes from far."""
        bus = self.bus
        number, data = (Signal.like(each, reset_less=True) for each in (bus.address, bus.data))
        write, asked = Signal(reset_less=True, name="write"), Signal()
        to_data, commanding = Signal(reset_less=True), Signal(reset_less=True)
        resets, writes_state = Signal(reset_less=True), Signal(reset_less=True)
        # A request that is accepted stays at the bus for this cycle alone.
        accepted = bus.ready
        m.d.sync += [
            number.eq(bus.address),
            write.eq(bus.write),
            data.eq(bus.data),
            asked.eq(bus.valid & ~accepted),
            to_data.eq(bus.address == Register.DATA),
            commanding.eq((bus.address == Register.COMMAND) & bus.write),
            # A command is compared while it waits for the window, which takes two cycles or more.
            resets.eq(data == Command.RESET),
            writes_state.eq(data == Command.STATE_WRITTEN),
            # Decided beside the registers' writes and not behind them: the sequencer is far.
            self.reset_stream.eq(accepted & commanding & resets),
            self.state_written.eq(accepted & commanding & writes_state),
        ]
        return _Request(number, data, write, asked, to_data, to_data | commanding, accepted)

    def _connect_registers(self, m: Module, registers: RegisterBank, request: _Request) -> None:
        told = ("busy", "flags", "step_done", "saturated", "since", "now", "stream", "region")
        connect_some(m, wiring.flipped(self), registers, told)
        self._program.connect(m, wiring.flipped(self), registers, ("stopped", "shape"))
        m.d.comb += [
            self.row.eq(registers.row),
            self.bank.eq(registers.bank),
            registers.address.eq(request.number),
            registers.data.eq(delay(m, request.data, 1)),
        ]

    def _serve(self, m: Module, request: _Request, registers: RegisterBank, staging: Signal) -> None:
        """Serve one request after the other.

        =========  ======================================================================================
        state      what happens
        =========  ======================================================================================
        REQUEST    a request is accepted; values of registers are answered two cycles later, beside this
        REGISTER   a register is written
        WORD       a word of DATA enters the staging register at its top
        STORE      the staged row, which is complete, is written to its memory
        ROW        the row at the memories' read ports is waited for, and staged
        GIVE       the staging register's lowest word is given
        =========  ======================================================================================
        """
        longest = READ_WAIT + self._read_back
        wait, loads, accepted = Signal(range(longest + 1)), Signal(), request.accepted
        word, ends, last_word = self._word_of_row(m, registers)
        next_word = word.eq(Mux(last_word, 0, word + 1))
        gives = Signal()
        self._answer(m, accepted & ~request.write & ~request.to_data, registers.value, gives, staging[:32])
        # The staging register is wide: that it moves in WORD and GIVE, or is loaded, is known a cycle ahead.
        moves, row_ends = Signal(), Signal()
        with m.If(moves):
            m.d.sync += staging.eq(Mux(loads, self.read_data, Cat(staging[32:], registers.data)))
        # That a row is complete behind WORD is known a cycle ahead, too; the region stands long before.
        region = delay(m, Const(1, len(Region)) << registers.region, 1)[: len(Region)]
        m.d.sync += [
            self.write.eq(region & row_ends.replicate(len(region))),
            *(flag.eq(0) for flag in (loads, moves, row_ends, self.multiplies)),
        ]
        with m.FSM() as states:
            with m.State("REQUEST"):
                m.d.comb += accepted.eq(request.asked & (~request.to_window | self.granted))
                m.d.sync += [
                    moves.eq(accepted & request.to_data & (request.write | (word != 0))),
                    row_ends.eq(accepted & request.to_data & request.write & ends),
                ]
                with m.If(accepted & request.write):
                    m.next = "REGISTER"
                    with m.If(request.to_data):
                        m.next = "WORD"
                with m.Elif(accepted & request.to_data):
                    m.next = "GIVE"
                    with m.If(word == 0):
                        m.d.sync += wait.eq(longest)
                        m.next = "ROW"
            with m.State("REGISTER"):
                m.d.comb += registers.write.eq(1)
                m.next = "REQUEST"
            with m.State("WORD"):
                m.d.comb += self.stores.eq(1)
                m.d.sync += next_word
                m.next = "REQUEST"
                with m.If(row_ends):
                    m.next = "STORE"
            with m.State("STORE"):
                # The write reaches its memory; only then the row moves.
                m.d.comb += [self.stores.eq(1), registers.moves.eq(1)]
                m.next = "REQUEST"
            with m.State("ROW"):
                m.d.sync += [
                    wait.eq(wait - 1),
                    loads.eq(wait == 1),
                    moves.eq((wait == 1) | loads),
                    self.multiplies.eq(wait == self._read_back + 1),
                ]
                with m.If(loads):
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += [gives.eq(1), registers.moves.eq(last_word)]
                m.d.sync += next_word
                m.next = "REQUEST"
        waits = states.ongoing("ROW")
        m.d.comb += [
            self.active.eq(waits | (request.asked & request.to_window)),
            self.opens.eq(waits | (request.asked & request.to_data)),
        ]
        program = registers.region == Region.PROGRAM
        touches = accepted & request.write & request.to_data & program
        self._program.drive(m, [self.touches.eq(touches)])

    def _answer(self, m: Module, reads: Value, value: Value, gives: Value, word: Value) -> None:
        """Answer with a register's value, two cycles after its request, or with a row's word."""
        chosen, answers, answered = Signal(), Signal(), Signal()
        m.d.sync += [
            chosen.eq(reads),
            answers.eq(chosen),
            answered.eq(answers | gives),
            self.bus.read_data.eq(Mux(gives, word, value)),
        ]
        # The reset comes a cycle late: what stands here until then is not meant.
        m.d.comb += self.bus.read_valid.eq(answered & ~ResetSignal())

    def _word_of_row(self, m: Module, registers: RegisterBank) -> tuple[Signal, Value, Value]:
        """Number of the row's next word, and whether it is its row's last: now, and as it was a cycle ago."""
        most = max(layout.words for layout in self._manifest.regions.values())
        word, last = Signal(range(most)), Signal(range(most))
        with m.Switch(registers.region):
            for number, layout in self._manifest.regions.items():
                with m.Case(int(number)):
                    m.d.comb += last.eq(layout.words - 1)
        with m.If(registers.selects):
            m.d.sync += word.eq(0)
        # In WORD and GIVE, the word has stood for longer than the cycle by which this is late.
        return word, word == last, delay(m, word == last, 1)

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
