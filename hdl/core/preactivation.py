"""From the array's totals to rounded pre-activations.

With ``blocks`` and ``lanes`` selecting a beat in cycle 0, ``collect = parameters.collect`` (0 to 2) and
``narrow = pipeline.narrow`` (2 to 4) and ``scale = pipeline.scale`` (0, 2 or 3):

======================  ================================================================================
cycle                   what happens
======================  ================================================================================
-1                      ``shift_row`` and ``addend_row`` are at this part's ports (at the memories a cycle
                        later if ``collect`` is 2)
0                       a multiplexer picks the totals of the selected block (a register per block if
                        ``collect`` is 2, and one behind the choice if it is not 0)
collect - 1             if ``narrow`` is 2, the row's shift is read, and its first part is made before that
                        register
collect                 the picked totals; the row's shift and addend are read
collect + narrow - 1    shifted right and added to the bias or the stored partial sum: in one cycle, or
                        partly shifted in one before if ``narrow`` is 3; if it is 4, shifted in two cycles and
                        added in a third; with scales, it is this cycle's value that is multiplied by the
                        row's scale, and the product is added ``scale`` cycles later
collect + narrow        rounded down and saturated, as sign and magnitude; also then, the sum of an operation
+ scale                 that stores partial sums is written back
======================  ================================================================================
"""

from functools import cached_property

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from rtlstm.hdl.component import In, Out, SharedModule, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import beat_layout, upper_sum_bits
from rtlstm.hdl.core.unit import round_down
from rtlstm.hdl.primitives.pipeline import delay, storage
from rtlstm.hdl.primitives.staged import Staged, combine
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.inventory import memories, multipliers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import GUARD_BITS, SCALED_FRACTION
from rtlstm.spec.registers import Region

GATES = 4
"""Rows of a unit."""
CANDIDATE = 2


class Preactivation(SharedModule):
    """Takes a unit's four totals (a dense output's one) from the block that drains.

    They are shifted right by their rows' own shifts, rounding down, multiplied by their rows' scales, if
    there are some, and added to a bias or to the stored partial sum of another operation. Beats that store
    partial sums are written back; all come out saturated at the lowest and the highest code, as sign and
    magnitude.

    Latency: from ``blocks`` and ``lanes``, ``parameters.collect + pipeline.narrow + pipeline.scale`` cycles.
    Throughput: one beat per cycle. Rounding: down when shifting, multiplying and at the end; biases of rows
    that are to be rounded half up hold half a unit.
    """

    held: Signal = In(
        lambda manifest: manifest.parameters.blocks * GATES * manifest.numerics.accumulator.bits
    )
    """Totals of this unit's four lanes in every block."""
    blocks: Signal = In(lambda manifest: manifest.parameters.blocks)
    lanes: Signal = In(lambda manifest: GATES * manifest.parameters.blocks)
    """One-hot: the block whose totals are an LSTM layer's beat, the lane whose total is a dense layer's."""
    shift_row: Signal = In(lambda manifest: range(max(2, manifest.regions[Region.SHIFTS].rows)))
    addend_row: Signal = In(lambda manifest: range(max(2, manifest.regions[Region.PARTIALS].rows)))
    """The beat's rows, one cycle before ``blocks``."""
    next_beat: Struct = In(beat_layout)
    """The beat, a cycle before its pre-activations come out."""
    negative: Signal = Out(GATES)
    """Signs of the pre-activations, gates i, f, g, o."""
    magnitudes: Signal = Out(lambda manifest: GATES * (manifest.numerics.preactivation.bits - 1))
    """Their magnitudes as ``middle`` tables count them: -1 has 0."""
    upper: Signal = Out(upper_sum_bits)
    """Upper bits of gate 0's magnitude, if sums of linear rows have more than pre-activations."""
    next_negative: Signal = Out(GATES)
    next_magnitudes: Signal = Out(lambda manifest: GATES * (manifest.numerics.preactivation.bits - 1))
    """Those of the next cycle."""
    window: Signal = In(1)
    """The memory window is open: pre-activations are 0."""
    window_row: Signal = In(32)
    write_shifts: Signal = In(1)
    write_partials: Signal = In(1)
    write_data: Signal = In(
        lambda manifest: max(manifest.regions[each].width for each in (Region.SHIFTS, Region.PARTIALS))
    )
    """A row that the window writes."""
    unit_constants: Signal = Out(
        lambda manifest: max(1, manifest.numerics.unit_parameters * manifest.numerics.weight_bits)
    )
    """The per-unit constants, with the pre-activations."""
    shifts: Signal = Out(lambda manifest: manifest.regions[Region.SHIFTS].width)
    partials: Signal = Out(lambda manifest: manifest.regions[Region.PARTIALS].width)
    """Words of the two memories, for read-back."""
    totals: Signal = Out(lambda manifest: GATES * manifest.numerics.weight_bits)
    """Low bits of the picked totals, for read-back of weights."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, "preactivation")

    def inside(self) -> Module:
        m = Module()
        numerics, self._align = self._manifest.numerics, self._manifest.numerics.accumulator.align
        shifts, addends = self._memories(m)
        totals = self._collect(m, shifts)
        read = (total.value[self._align :][: numerics.weight_bits] for total in totals)
        m.d.comb += self.totals.eq(Cat(read))
        sums = [self._add(gate, total, shifts, addends) for gate, total in enumerate(totals)]
        for gate, row_sum in enumerate(sums):
            self._limit(m, gate, row_sum)
        self._write_partial(m, sums)
        return m

    def _collect(self, m: Module, shifts: Staged) -> list[Staged]:
        """Pick the draining block's totals, and make the first part of their shift where it is made here."""
        parameters, stages = self._manifest.parameters, self._manifest.parameters.collect
        straight = parameters.blocks == 1 and stages == 0
        later = self._later_row(m) if straight and self._shared else Const(0)
        totals = []
        for gate in range(GATES):
            if straight:
                picked = [self._straight_total(gate, later)]
            else:
                picked = [self._total_of_block(gate, block) for block in range(parameters.blocks)]
            terms = [Staged(m, total, 0).later(max(0, stages - 1)) for total in picked]
            total = combine(lambda *terms: any_of(list(terms)).shift_left(self._align), *terms)
            bits = self._manifest.numerics.accumulator.bits + self._align
            total = total.as_signed(bits).named(f"total{gate}")
            if parameters.shifts_collected:
                # While the window is open, totals are weights that are read back.
                _, upper = self._amount(shifts, gate)
                total >>= upper.map(lambda amount: Mux(self.window, 0, amount))
                total = total.named(f"part_shifted{gate}")
            totals.append(total.later(min(stages, 1)))
        return totals

    @cached_property
    def _shared(self) -> set[int]:
        """The gates where beats of one row are finished: dense tanh is the candidate's, all else gate 0's."""
        rows = {0} if self._manifest.has_single_rows else set[int]()
        return rows | ({CANDIDATE} if "tanh" in self._manifest.single_functions else set())

    def _held_total(self, block: int, lane: int) -> Value:
        return self.held.word_select(GATES * block + lane, self._manifest.numerics.accumulator.bits)

    def _total_of_block(self, gate: int, block: int) -> Value:
        """Return a block's total for a gate if that block drains, or else 0."""
        if gate not in self._shared:
            total = self._held_total(block, gate)
            # A block of its own has no other.
            return total if self._manifest.parameters.blocks == 1 else Mux(self.blocks[block], total, 0)
        terms: list[Value] = []
        for lane in range(GATES):
            chosen: Value = self.lanes[GATES * block + lane]
            if lane == gate:
                chosen = self.blocks[block] | chosen
            terms.append(Mux(chosen, self._held_total(block, lane), 0))
        return any_of(terms)

    def _straight_total(self, gate: int, later: Value) -> Value:
        """Return the total for a gate of a unit that reads no other lanes than its four."""
        its_total, first = self._held_total(0, gate), self._held_total(0, 0)
        if gate not in self._shared:
            return its_total
        return Mux(self.lanes[1:].any(), later, first if gate == 0 else Mux(self.lanes[0], first, its_total))

    def _later_row(self, m: Module) -> Value:
        """Return the total of a dense layer's next row, a cycle later; its first row is used at once."""
        following = any_of(
            [Mux(self.lanes[lane], self._held_total(0, lane + 1), 0) for lane in range(GATES - 1)]
        )
        return delay(m, following, 1)

    def _amount(self, shifts: Staged, gate: int) -> tuple[Staged, Staged]:
        """Return the two parts of a gate's shift, which add up to it."""
        amount = shifts.map(lambda word: word.word_select(gate, self._manifest.numerics.shift_bits))
        half = (len(amount) + 1) // 2
        return amount[:half], amount.map(lambda bits: Cat(Const(0, half), bits[half:]))

    def _add(self, gate: int, total: Staged, shifts: Staged, addends: Staged) -> Staged:
        """Shift a total, then add what the row brings."""
        parameters, width = self._manifest.parameters, self._manifest.numerics.accumulator.partial_bits
        narrow = parameters.pipeline.narrow
        lower, upper = self._amount(shifts, gate)
        addend = addends.map(lambda word: word.word_select(gate, width).as_signed())
        if not parameters.shifts_collected:
            # The amount's upper bits first; if there is a register between, its lower ones a cycle later.
            total = (total >> upper).later(1 if narrow > 2 else 0)
        bits = self._manifest.numerics.scaled_bits if parameters.pipeline.scale else width
        shifted = (total >> lower).as_signed(bits).named(f"shifted{gate}").later(max(0, narrow - 3))
        if parameters.pipeline.scale:
            shifted = self._scale(gate, shifted, shifts)
        return (shifted + addend).registered(f"sum{gate}", signed(width), zero=self.window)

    def _scale(self, gate: int, shifted: Staged, shifts: Staged) -> Staged:
        """Multiply by the row's scale, whose highest bit is set, and round down."""
        numerics = self._manifest.numerics
        first, bits = GATES * numerics.shift_bits, numerics.scale_field_bits
        scale = shifts.map(lambda word: Cat(word[first:].word_select(gate, bits), Const(1, 1)))
        spec = multipliers(self._manifest)["row scales"]
        more = numerics.scaled_bits - len(shifted.value)
        if more > 0:  # Totals are narrower than sums of several products.
            shifted = shifted.map(lambda value: Cat(value, value[-1].replicate(more)).as_signed())
        product = shifted.times(scale, spec, f"scaled{gate}")
        dropped = product.map(lambda value: value.shift_right(numerics.scale_bits + SCALED_FRACTION))
        return dropped.as_signed(numerics.accumulator.partial_bits).named(f"part{gate}")

    def _memories(self, m: Module) -> tuple[Staged, Staged]:
        """Add the two memories; return the row's shifts with its per-unit constants, and what it adds."""
        specs, parameters = memories(self._manifest), self._manifest.parameters
        shift_read, shift_write = storage(m, specs["row shifts"], "shift_memory")
        read, write = storage(m, specs["partial sums"], "partial_memory")
        shifts = Staged(m, shift_read.data, parameters.collect - parameters.shifts_collected)
        # Rows of addends are few bits, and so wait for the product in their place.
        addends = Staged(m, read.data, parameters.collect + parameters.pipeline.scale)
        shift_row, addend_row = Staged(m, self.shift_row, -1), Staged(m, self.addend_row, -1)
        m.d.comb += [
            shift_read.addr.eq(shift_row.at(shifts.stage - specs["row shifts"].latency)),
            shift_write.addr.eq(self.window_row),
            shift_write.data.eq(self.write_data),
            shift_write.en.eq(self.write_shifts),
            read.addr.eq(addend_row.at(addends.stage - specs["partial sums"].latency)),
            self.shifts.eq(shifts.value),
            self.partials.eq(addends.value),
        ]
        self._partial_write = write
        numerics = self._manifest.numerics
        unit_constants = shifts[GATES * (numerics.shift_bits + numerics.scale_field_bits) :]
        if len(unit_constants):
            given = unit_constants.at(parameters.preactivation - parameters.summed - parameters.HELD)
            m.d.comb += self.unit_constants.eq(given)
        return shifts, addends

    def _limit(self, m: Module, gate: int, row_sum: Staged) -> None:
        """Drop the guard bits and limit; no carry chain."""
        bits = self._manifest.numerics.preactivation.bits - 1
        # The sums of linear rows, which all are gate 0's.
        more = (upper_sum_bits(self._manifest) or 0) if gate == 0 else 0
        wide = self._wide() if more else None
        negative, magnitude = round_down(row_sum.value, GUARD_BITS, bits + 1, more, wide)
        next_negative = Signal(name=f"next_negative{gate}")
        next_magnitude = Signal(bits + more, name=f"next{gate}")
        m.d.comb += [next_negative.eq(negative), next_magnitude.eq(magnitude)]
        sign = Signal(reset_less=True, name=f"negative{gate}")
        magnitude = Signal(bits + more, reset_less=True, name=f"magnitude{gate}")
        m.d.sync += [sign.eq(next_negative), magnitude.eq(next_magnitude)]
        m.d.comb += [
            self.negative[gate].eq(sign),
            self.magnitudes.word_select(gate, bits).eq(magnitude),
            self.next_negative[gate].eq(next_negative),
            self.next_magnitudes.word_select(gate, bits).eq(next_magnitude),
        ]
        if more:
            m.d.comb += self.upper.eq(magnitude[bits:])

    def _wide(self) -> Value:
        """Whether the next beat has a linear row, whose sum may need all bits."""
        beat, unit = self.next_beat, self._manifest.numerics.unit
        if isinstance(unit, FusedUnit):
            linear: Value = beat.dense & ~(beat.sigmoid | beat.tanh)
            return linear
        bits = self._manifest.numerics.preactivation.bits
        wide = (number for number, each in enumerate(unit.pipelines) if each.graph.sum_bits > bits)
        return any_of([beat.cell == number for number in wide])

    def _write_partial(self, m: Module, sums: list[Staged]) -> None:
        write = self._partial_write
        sums_word = Signal(len(self.partials), reset_less=True)
        stores, row = Signal(), Signal.like(write.addr, reset_less=True)
        will_write = self.next_beat.valid & self.next_beat.writes_partial
        # The window's row stands longer than the cycle by which this is late.
        m.d.sync += [
            sums_word.eq(Cat(row_sum.value for row_sum in sums)),
            stores.eq(will_write),
            row.eq(Mux(will_write, self.next_beat.partial_row, self.window_row)),
        ]
        m.d.comb += [
            write.en.eq(stores | self.write_partials),
            write.addr.eq(row),
            write.data.eq(Mux(stores, sums_word, self.write_data)),
        ]
