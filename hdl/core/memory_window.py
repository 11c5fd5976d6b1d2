"""Registers, and the window through which the host reaches the core's memories."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring

from rtlstm.hdl.component import Component, In, Interface, Out, connect_some
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import if_several, number_bits, region_bits, row_bits
from rtlstm.hdl.core.preactivation import GATES
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.core.register_bank import ADDRESS_BITS, RegisterBank
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Command, Region, Register

READ_WAIT = 16
"""Cycles from opening the window to its row's data standing at every read port near the window."""


class CoreBus(Interface):
    """Requests to a core's registers, seen from where they begin; see ``docs/ports.md``."""

    address: Signal = Out(ADDRESS_BITS)
    write: Signal = Out(1)
    data: Signal = Out(32)
    """Register, whether it is written, and with what."""
    valid: Signal = Out(1)
    ready: Signal = In(1)
    """Handshake."""
    read_data: Signal = In(32)
    read_valid: Signal = In(1)
    """The word read, for one cycle."""


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


def _width(manifest: Manifest) -> int:
    """Width of a row of the widest region, in whole words."""
    return 32 * max(layout.words for layout in manifest.regions.values())


class MemoryWindow(CorePart):
    """The register bus: :mod:`rtlstm.spec.registers` in hardware.

    DATA and COMMAND are accepted when the core is idle; while one of them waits, no step begins.
    ``read_back`` is the number of cycles from ``multiplies`` to a row of weights at ``read_data``.
    """

    bus: CoreBus = In(CoreBus)
    """The port."""
    busy: Signal = In(1)
    granted: Signal = In(1)
    """Something is under way in the core, or a complete input waits in its buffer; nothing was under way in
    the cycle before, when ``active`` was set."""
    active: Signal = Out(1)
    opens: Signal = Out(1)
    row: Signal = Out(32)
    bank: Signal = Out(16)
    """The bus waits for the core to be idle, or reads; address registers are to follow ``row``."""
    write: Signal = Out(region_bits)
    """One bit per region: store ``write_data`` in ``row`` of ``bank``."""
    write_data: Signal = Out(_width)
    read_data: Signal = In(_width)
    """A row of the widest region; narrower ones use its low bits."""
    region: Signal = Out(4)
    """Region being read."""
    multiplies: Signal = Out(1)
    """The row stands at every read port: the array is to give it, if it is one of weights."""
    stream: Signal = Out(number_bits)
    reset_stream: Signal = Out(1)
    state_written: Signal = Out(1)
    handed_over: Signal = Out(if_several)
    weights_written: Signal = Out(1)
    """COMMAND, for the sequencer."""
    flags: Signal = In(3)
    step_done: Signal = In(1)
    saturated: Signal = In(lambda manifest: range(manifest.most_saturated + 1))
    since: Signal = In(32)
    now: Signal = Out(32)
    """What the counters count."""
    stores: Signal = Out(1)
    """A word is being stored: until the second cycle after it, ``weights_written`` may follow."""
    touches: Signal = Out(1)
    """A word of the program memory is being written."""
    shape: Signal = In(lambda manifest: 32 * manifest.parameters.networks)
    stopped: Signal = In(1)
    """What SHAPE and STATUS tell of the program."""

    def __init__(self, manifest: Manifest, read_back: int) -> None:
        self._read_back = read_back
        self._width = _width(manifest)
        super().__init__(manifest)

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
        m.d.sync += self.weights_written.eq((self.write & ~Const(state, len(self.write))).any())
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
        if self._program.several:
            hands_over = Signal(reset_less=True)
            m.d.sync += [
                hands_over.eq(data == Command.HAND_OVER),
                self.handed_over.eq(accepted & commanding & hands_over),
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
        longest = READ_WAIT + self._manifest.parameters.pipeline.scale + self._read_back
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
        bits = len(self.write)
        region = delay(m, Const(1, bits) << registers.region, 1)[:bits]
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


class WeightReader(Component):
    """Gives a lane's word of weights without wires from every lane: as products with unit vectors.

    While the memory window is open, the array multiplies and every word is the last of its row, so that each
    lane's total is the product with the word of one cycle. The host's bank selects the block that is
    collected. A 1 that passes from multiplier to multiplier gives a row's weights one after the other.

    =================================  ================================================================
    cycle                              what happens
    =================================  ================================================================
    0                                  ``start``; row and bank have stood long enough
    1 + blocks - b + k                 ``unit`` has the 1 of multiplier ``k``, for a row in block ``b``:
                                       an earlier block waits for what a later one takes longer
    3 + blocks + k                     the unit vector is at the inputs of block ``b``, or in their copies
    4 + blocks + k + sum + collect     weight ``k`` is at ``totals``; ``sum = summed - operand``
    =================================  ================================================================

    Latency: ``cycles`` from ``start``. Throughput: one word in this time. Exact: a lane's total is at least
    as wide as a weight. A bank that does not exist reads as zero.
    """

    start: Signal = In(1)
    """The row stands at every bank, and ``bank`` here."""
    bank: Signal = In(lambda manifest: row_bits(manifest.parameters.lanes + 1))
    """The lane."""
    block: Signal = Out(lambda manifest: manifest.parameters.blocks)
    """One-hot: the block whose totals are to be collected."""
    unit: Signal = Out(lambda manifest: manifest.parameters.macs)
    """What the array multiplies, two cycles before: 1 where a bit is set, 0 elsewhere."""
    totals: Signal = In(
        lambda manifest: manifest.parameters.gate_units * GATES * manifest.numerics.weight_bits
    )
    """Low bits of the totals collected for each gate unit."""
    weights: Signal = Out(lambda manifest: manifest.regions[Region.WEIGHTS].width)
    """The word, in that cycle only."""

    def __init__(self, manifest: Manifest) -> None:
        self._parameters = manifest.parameters
        self._bits = manifest.numerics.weight_bits
        # Registers behind the choice of a unit's total, where wires are long.
        self._chosen = min(manifest.parameters.pipeline.window, 1)
        super().__init__(manifest)

    @property
    def cycles(self) -> int:
        """Cycles from ``start`` to the cycle in which ``weights`` is the word."""
        parameters = self._parameters
        first = 4 + parameters.blocks + parameters.summed - parameters.pipeline.operand + parameters.collect
        return first + parameters.macs + self._chosen

    def elaborate(self, platform: object) -> Module:
        m = Module()
        blocks, units = self._parameters.blocks, self._parameters.gate_units
        fours = [self.bank[2:] == number for number in range(blocks * units)]
        block, unit = Signal(blocks, reset_less=True), Signal(units, reset_less=True)
        m.d.sync += [
            block.eq(Cat(any_of(fours[index * units : (index + 1) * units]) for index in range(blocks))),
            unit.eq(Cat(any_of(fours[index::units]) for index in range(units))),
        ]
        m.d.comb += self.block.eq(block)
        self._select(m, block)
        chosen = [Mux(unit[index], self._total(m, index), 0) for index in range(units)]
        weights = Signal.like(self.weights, reset_less=True)
        m.d.sync += weights.eq(Cat(weights[self._bits :], any_of(chosen)))
        m.d.comb += self.weights.eq(weights)
        return m

    def _select(self, m: Module, block: Signal) -> None:
        """Pass a 1 from the block's position to the last block's, and then through the multipliers."""
        # With a reset: nothing is added to the vectors of a step.
        position = Signal(len(block) + len(self.unit))
        m.d.sync += position.eq(Mux(self.start, block, position << 1))
        m.d.comb += self.unit.eq(position[len(block) :])

    def _total(self, m: Module, unit: int) -> Value:
        """Choose a gate unit's total of the bank's gate."""
        mine = self.totals.word_select(unit, GATES * self._bits)
        return delay(m, mine.word_select(self.bank[:2], self._bits), self._chosen)
