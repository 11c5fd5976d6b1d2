"""Norms: a vector's values, less their mean, times gain and inverse root, plus a bias, one beat a cycle.

The values are kept as they are stored. A norm's operation reads its vector's words, for nothing but to wait
for them; its last word starts this part. With the scaled variance of :class:`Statistics` there for a beat in
cycle 0, ``p`` the cycles of a product, ``g`` as many (0 without gains) and ``r`` those to the root:

==================  ====================================================================================
cycle               what a register holds
==================  ====================================================================================
0                   the value; its gain's row is read in time, as is its bias's
1                   the deviation: the value times the number of values, less the sum
2, 3                it, shifted left to be finer, and right by the power of two in the root, in two steps
3 + g               that times the gain, some bits dropped
max(3 + g, r) + p   that times the root
... + 1             with the bias and half a unit
... + 2             rounded and limited: the result
==================  ====================================================================================

Where a result goes comes from the drain, as that of any other.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring

from rtlstm.hdl.component import In, Out, Struct, connect_some
from rtlstm.hdl.core.layouts import norms_of, result_layout, row_bits, token_layout
from rtlstm.hdl.core.program_store import CorePart, program_store
from rtlstm.hdl.core.unit import ActivationUnit
from rtlstm.hdl.primitives.pipeline import delay, delay_event, storage
from rtlstm.hdl.primitives.staged import Staged, combine
from rtlstm.spec.inventory import activations, memories, multipliers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.norms import (
    ADDED_PER_REGISTER,
    ADDED_TO_SUMS,
    COARSE,
    PART_BITS,
    digits,
    norm_results,
    root_stage,
    scales_first,
    spread_stage,
    value_cycles,
)
from rtlstm.spec.registers import Region

K = TypeVar("K")

_STARTS = 3
"""Cycles from a word's issue to the registers of its norm."""


def program_bits(manifest: Manifest) -> int | None:
    """Width of what a loadable program says of norms; None of a fixed one."""
    widths = manifest.program_memories.get("program, norms")
    return None if widths is None else sum(widths.values())


def spread_bits(manifest: Manifest) -> int:
    """Width of the widest scaled variance."""
    return max(norm.spread_bits for norm in norms_of(manifest).normalisations)


def sum_bits(manifest: Manifest) -> int:
    """Width of the sum of a vector's values; 1 if no norm subtracts a mean."""
    return max((norm.sum_bits for norm in norms_of(manifest).normalisations if norm.centre), default=1)


def times(value: Value, number: int) -> Value:
    """Return a value times a constant, by adders."""
    total: Value = Const(0, 1)
    for power, minus in reversed(digits(number)):
        term = value.shift_left(power)
        total = total - term if minus else total + term
    return total


def of_norm(number: Value, keys: Sequence[K], value: Callable[[K], Value]) -> Value:
    """Return a value of the norm with an index; ``keys`` has what it depends on, and each is made once."""
    made: dict[K, Value] = {}
    for key in keys:
        if key not in made:
            made[key] = value(key)
    found = made[keys[0]]
    for index, key in enumerate(keys):
        if key != keys[0]:
            found = Mux(number == index, made[key], found)
    return found


class Statistics(CorePart):
    """Sums a vector's values and their squares; finds the root that divides its deviations.

    Latency: :func:`spread_stage` cycles from the vector's last results to its scaled variance, and
    :func:`root_stage` more to the root. Throughput: a beat per cycle. Exact but for the root.

    With a vector's last results in cycle 0, ``p = pipeline.product``, ``a`` the registers of the adders of
    several units and ``V = spread_stage()``:

    =============  =======================================================================================
    cycle          what a register holds
    =============  =======================================================================================
    a + 1          the sum of all values
    p              the squares of the last ones
    p + a + 1      the sum of all squares, with epsilon; the square of the sum, by three products if wide
    V              the scaled variance: multiples of the one, less the other; the sum, from now on beside it
    V + 1          it, shifted left by a multiple of ``COARSE`` until one of its highest bits is set; how far
    V + 2          the remaining shift; the root's argument, in the table's block RAM if that takes two cycles
    V + root       the root
    =============  =======================================================================================

    All of it stands still from then on, until the next vector that is measured is complete. The vector's norm
    is the next operation with results, so nothing is measured in between.
    """

    result: Struct = In(result_layout)
    values: Signal = In(lambda manifest: manifest.parameters.gate_units * manifest.numerics.data_bits)
    """Results of all gate units, and where they go."""
    total: Signal = Out(lambda manifest: signed(sum_bits(manifest)))
    """The sum of the values, in the cycle of the scaled variance."""
    coarse: Signal = Out(lambda manifest: spread_bits(manifest) // COARSE)
    """Multiples of ``COARSE`` by which that was shifted left, one-hot, a cycle later."""
    fine: Signal = Out(range(COARSE // 2))
    """Half of the zeros that were left, another cycle later."""
    root: Signal = Out(lambda manifest: norms_of(manifest).root.output.bits - 1)
    """The inverse root of what is left."""
    window: Signal = In(1)
    window_row: Signal = In(32)
    window_bank: Signal = In(lambda manifest: row_bits(max(2, len(manifest.numerics.tables))))
    table_row: Signal = In(32)
    write: Signal = In(1)
    write_data: Signal = In(lambda manifest: manifest.regions[Region.TABLES].width)
    """As at a :class:`~rtlstm.hdl.core.unit.Unit`, of the region of tables."""
    entry: Signal = Out(lambda manifest: manifest.regions[Region.TABLES].width)
    """The table's word, for read-back."""

    def __init__(self, manifest: Manifest) -> None:
        self._norms = norms_of(manifest)
        self._bits = spread_bits(manifest)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total, squares, number = self._sums(m)
        self._find_root(m, self._spread(m, total, squares, number))
        return m

    def _at(self, m: Module, stage: int) -> tuple[Value, Value, Value]:
        """Return whether a beat is measured, whether it is the vector's last, and for which norm."""
        result = self.result
        comes = delay_event(m, result.valid & (result.measured != 0), stage)
        return (
            comes,
            delay(m, result.last, stage),
            delay(m, (result.measured - 1)[: len(result.measured)], stage),
        )

    def _sums(self, m: Module) -> tuple[Value, Value, Value]:
        """Return the sums of a vector's values and of their squares, and its norm's index."""
        bits, norms = self._manifest.numerics.data_bits, self._norms.normalisations
        spec = multipliers(self._manifest)["squares"]
        values, squares = [], []
        for index in range(self._manifest.parameters.gate_units):
            # What a beat has no unit for counts as 0.
            value = Mux(self.result.mask[index], self.values.word_select(index, bits), 0).as_signed()
            staged = Staged(m, value, 0).named(f"value{index}")
            values.append(staged)
            squares.append(staged.times(staged, spec, f"square{index}"))
        total = self._accumulated(m, _added(values, "values"), signed(sum_bits(self._manifest)), "total")
        most = max(norm.square_bits for norm in norms)
        guards = [norm.guard for norm in norms]
        squared = [square.map(lambda value: value[:-1]) for square in squares]  # None is negative.
        sums = _added(squared, "squares")
        guarded = [
            combine(
                lambda value, number: of_norm(number, guards, lambda guard: value.shift_left(2 * guard)),
                each,
                self._at(m, each.stage)[2],
            )
            for each in sums
        ]
        number = Signal.like(self.result.measured, reset_less=True, name="number")
        comes, _, its_number = self._at(m, sums[0].stage)
        with m.If(comes):
            m.d.sync += number.eq(its_number)
        return total, self._accumulated(m, guarded, most, "squares", epsilon=True), number

    def _accumulated(
        self, m: Module, terms: list[Staged], shape: Any, name: str, epsilon: bool = False
    ) -> Value:
        """Return the sum of all beats of a vector: from nothing on, or from the norm's epsilon."""
        comes, last, number = self._at(m, terms[0].stage)
        begins = Signal(init=1, name=f"{name}_begin")
        found = Signal(shape, reset_less=True, name=f"{name}_sum")
        epsilons = [norm.epsilon if epsilon else 0 for norm in self._norms.normalisations]
        before = Mux(begins, of_norm(number, epsilons, Const), found)
        with m.If(comes):
            m.d.sync += [begins.eq(last), found.eq(sum((term.value for term in terms), before))]
        return found

    def _spread(self, m: Module, total: Value, squares: Value, number: Value) -> Value:
        """Return the scaled variance."""
        parameters, norms, found = (
            self._manifest.parameters,
            self._norms.normalisations,
            multipliers(self._manifest),
        )
        parts: list[Value] = []
        if "square of the sum" in found:
            whole = Staged(m, total, 0)
            upper = whole.map(lambda value: value.shift_right(PART_BITS))
            if "product of the sum's parts" in found:
                lower = whole[:PART_BITS]
                high = upper.times(upper, found["square of the sum"], "square_of_upper").value
                low = lower.times(lower, found["square of the sum's part"], "square_of_lower").value
                mixed = upper.times(lower, found["product of the sum's parts"], "product_of_parts").value
                parts = [Cat(low[: 2 * PART_BITS], high), mixed.shift_left(PART_BITS + 1)]
            else:
                parts = [whole.times(whole, found["square of the sum"], "square_of_sum").value]
        products = of_norm(number, [norm.values for norm in norms], lambda values: times(squares, values))
        if scales_first(norms):
            products = Staged(m, products, 0).registered("products", self._bits).value

        def less(part: Value) -> Value:
            return of_norm(
                number,
                [norm.guard if norm.centre else None for norm in norms],
                lambda guard: Const(0, 1) if guard is None else part.shift_left(2 * guard),
            )

        spread, result = Signal(self._bits, reset_less=True, name="spread"), self.result
        ends = result.valid & (result.measured != 0) & result.last
        with m.If(delay_event(m, ends, spread_stage(parameters, norms) - 1)):
            m.d.sync += [
                spread.eq(sum((-less(part) for part in parts), products)),
                self.total.eq(total),
            ]
        return spread

    def _find_root(self, m: Module, spread: Value) -> None:
        """Shift the scaled variance until its highest two bits are not zero; look up the root of that."""
        bits, spec = self._bits, activations(self._manifest)[self._table_number]
        groups = [spread[bits - first - COARSE : bits - first].any() for first in range(0, bits, COARSE)]
        shifted, coarse = Signal(bits, reset_less=True), Signal.like(self.coarse)
        above: Value = Const(0, 1)
        moved: Value = Const(0, bits)
        for number, here in enumerate(groups):
            last = number == len(groups) - 1
            chosen = ~above if last else ~above & here
            m.d.comb += coarse[number].eq(chosen)
            moved |= Mux(chosen, spread.shift_left(COARSE * number)[:bits], 0)
            above |= here
        m.d.sync += [shifted.eq(moved), self.coarse.eq(coarse)]
        fine, rest = Signal.like(self.fine, name="fine_shift"), Signal(bits)
        top = shifted[bits - COARSE :]
        with m.If(top[COARSE - 2 :].any()):
            m.d.comb += [fine.eq(0), rest.eq(shifted)]
        for number in range(1, COARSE // 2):
            here = top[COARSE - 2 - 2 * number : COARSE - 2 * number].any()
            with m.Elif(here if number < COARSE // 2 - 1 else Const(1)):
                m.d.comb += [fine.eq(number), rest.eq(shifted.shift_left(2 * number)[:bits])]
        m.d.sync += self.fine.eq(fine)
        odd, table = rest[-1], spec.table
        fraction = Mux(odd, rest[: bits - 1], rest[: bits - 2].shift_left(1))[-table.magnitude_bits :]
        argument = Staged(m, Mux(self.window, 0, Cat(fraction, odd)), 1)
        if self._manifest.parameters.pipeline.table == 1:
            argument = argument.registered("root_argument")
        assert argument.stage + spec.latency == root_stage(self._manifest.parameters)
        m.submodules.root = unit = ActivationUnit(spec)
        row = self.table_row[: table.segment_bits + table.halves - 1]
        mine: Value = Const(1)
        if len(self._manifest.numerics.unit.memories[Region.TABLES]) > 1:
            mine = self.window_bank == self._norms.bank
        there = mine & (self.window_row < table.rows)
        m.d.comb += [
            unit.negative.eq(argument.value[-1] | row[table.segment_bits :]),
            unit.magnitude.eq(argument.value[:-1] | row[: table.segment_bits].shift_left(table.low_bits)),
            self.root.eq(unit.value),
            self.entry.eq(Mux(there, unit.entry, 0)),
        ]
        if not spec.constant:
            m.d.comb += [
                unit.write.eq(self.write & there),
                unit.write_row.eq(self.window_row),
                unit.write_data.eq(self.write_data),
            ]

    @property
    def _table_number(self) -> int:
        """Number of the root's table among the unit's."""
        uses = self._manifest.numerics.unit.table_uses
        return next(number for number, (_, _, count) in enumerate(uses) if not count)


def _added(terms: list[Staged], name: str) -> list[Staged]:
    """Add values, some of them in each cycle, until few are left."""
    level = 0
    while len(terms) > ADDED_TO_SUMS:
        groups = [terms[at : at + ADDED_PER_REGISTER] for at in range(0, len(terms), ADDED_PER_REGISTER)]
        terms = [
            combine(lambda *some: sum(some[1:], some[0]), *group).registered(f"{name}{level}_{number}")
            for number, group in enumerate(groups)
        ]
        level += 1
    return terms


class Normaliser(CorePart):
    """Computes all norms of a network.

    Latency: :func:`norm_results` cycles from the issue of a norm's last word. Throughput: one beat per cycle.
    Rounding: half up with symmetric saturation, of a value within less than half a unit.
    """

    result: Struct = In(result_layout)
    values: Signal = In(lambda manifest: manifest.parameters.gate_units * manifest.numerics.data_bits)
    """Results of all gate units, and where they go."""
    token: Struct = In(token_layout)
    """The word that is issued."""
    normed: Signal = Out(lambda manifest: manifest.parameters.gate_units * manifest.numerics.result_bits)
    """Results of norms."""
    window: Signal = In(1)
    window_row: Signal = In(32)
    window_bank: Signal = In(lambda manifest: row_bits(max(2, len(manifest.numerics.tables))))
    table_row: Signal = In(32)
    write: Signal = In(1)
    write_shifts: Signal = In(lambda manifest: manifest.parameters.gate_units)
    write_data: Signal = In(
        lambda manifest: max(manifest.regions[each].width for each in (Region.SHIFTS, Region.TABLES))
    )
    """As at a :class:`~rtlstm.hdl.core.unit.Unit`, of the regions of tables, and of each unit's shifts."""
    entry: Signal = Out(lambda manifest: manifest.regions[Region.TABLES].width)
    """The root table's word, for read-back."""
    program_write: Signal = In(lambda manifest: 1 if program_bits(manifest) else None)
    program_data: Signal = In(lambda manifest: program_bits(manifest))
    program_word: Signal = Out(lambda manifest: program_bits(manifest))
    program_window: Signal = In(lambda manifest: 1 if program_bits(manifest) else None)
    """As at a :class:`~rtlstm.hdl.core.program_store.ProgramPart`, of a loadable program."""

    def __init__(self, manifest: Manifest) -> None:
        self._norms = norms_of(manifest)
        self._memories, self._multipliers = memories(manifest), multipliers(manifest)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.statistics = self._statistics = statistics = Statistics(self._manifest)
        same = ("result", "values", "window", "window_row", "window_bank", "table_row", "write", "entry")
        connect_some(m, wiring.flipped(self), statistics, same)
        m.d.comb += statistics.write_data.eq(self.write_data)
        beat, row, number = self._beats(m)
        values, constants = self._kept(m, beat), self._constants(m, row)
        width = self._manifest.numerics.result_bits
        data_bits = self._manifest.numerics.data_bits
        for index, each in enumerate(constants):
            value = values[index * data_bits : (index + 1) * data_bits].as_signed(data_bits)
            found = self._value(m, f"{index}", value, number, each)
            m.d.comb += self.normed.word_select(index, width).eq(found.as_signed(width).value)
        return m

    def _beats(self, m: Module) -> tuple[Staged, Staged, Staged]:
        """Count the beats of a norm; return the beat, the row of its constants, and the norm's index.

        They are there a cycle before the beat's values.
        """
        op = delay(m, self.token.op, 1)
        starts = delay_event(m, self.token.valid & self.token.last, 1)
        parameters = self._manifest.parameters
        found = norm_results(parameters, self._norms.normalisations)
        ahead = found - value_cycles(parameters, self._norms.normalisations) - 1 - _STARTS

        looked = self.program_window if program_bits(self._manifest) else Const(0)
        field = program_store(self._manifest).read_normed(m, self, looked, op)
        norm, first, stores = (delay(m, field(name), ahead) for name in ("norm", "constants", "stores"))
        begins = delay_event(m, starts, 1 + ahead) & (norm != 0)
        depth = self._memories["measured values"].depth
        beat, row = (
            Signal(range(depth), reset_less=True),
            Signal(range(max(2, self._manifest.regions[Region.SHIFTS].rows)), reset_less=True),
        )
        number = Signal(range(max(2, len(self._norms.forms))), reset_less=True)
        moves: Value = Const(1)
        if parameters.words_per_beat > 1:
            # Beats that fill several words of the vector memory come as many cycles apart.
            left, slow = Signal(range(parameters.words_per_beat)), Signal(reset_less=True)
            moves = left == 0
            m.d.sync += left.eq(Mux(left == 0, parameters.words_per_beat - 1, left - 1))
            with m.If(begins):
                m.d.sync += [left.eq(Mux(stores, parameters.words_per_beat - 1, 0)), slow.eq(stores)]
            with m.Elif(~slow):
                m.d.sync += left.eq(0)
        with m.If(begins):
            m.d.sync += [beat.eq(0), row.eq(first), number.eq(norm - 1)]
        with m.Elif(moves):
            m.d.sync += [beat.eq(beat + 1), row.eq(row + 1)]
        return Staged(m, beat, -1), Staged(m, row, -1), Staged(m, number, -1)

    def _kept(self, m: Module, beat: Staged) -> Staged:
        """Keep the values of a vector that is measured; return those of a beat."""
        spec, result = self._memories["measured values"], self.result
        read, write = storage(m, spec, "values")
        comes = result.valid & (result.measured != 0)
        position = Signal(range(spec.depth))
        with m.If(comes):
            m.d.sync += position.eq(Mux(result.last, 0, position + 1))
        m.d.comb += [
            write.addr.eq(position),
            write.data.eq(self.values),
            write.en.eq(comes),
            read.addr.eq(beat.value),
        ]
        return Staged(m, read.data, 0)

    def _constants(self, m: Module, row: Staged) -> list[Staged | None]:
        """Return each unit's gain and bias, beside its values."""
        numerics, units = self._manifest.numerics, self._manifest.parameters.gate_units
        spec = self._memories.get("gains and biases")
        if spec is None:
            return [None] * units
        found: list[Staged | None] = []
        first = self._manifest.regions[Region.SHIFTS].width - numerics.unit_parameters * numerics.weight_bits
        for index in range(units):
            read, write = storage(m, spec, f"constants{index}")
            m.d.comb += [
                write.addr.eq(self.window_row),
                write.data.eq(self.write_data[first:]),
                write.en.eq(self.write_shifts[index]),
                read.addr.eq(row.value),
            ]
            found.append(Staged(m, read.data, 0))
        return found

    def _value(self, m: Module, name: str, x: Staged, number: Staged, constants: Staged | None) -> Staged:
        """Return the result of one unit's value."""
        norms, forms, statistics = self._norms, self._norms.forms, self._statistics
        each = norms.normalisations
        deviation = combine(
            lambda value, number: of_norm(
                number,
                [(norm.values, norm.centre) for norm in each],
                lambda key: times(value, key[0]) - (statistics.total if key[1] else 0),
            ),
            x,
            number,
        ).registered(f"deviation{name}", signed(max(norm.deviation_bits for norm in each)))
        factor = self._divided(m, name, deviation, number)
        if norms.gain_bits:
            assert constants is not None
            gain = combine(
                lambda word, number: of_norm(
                    number,
                    [norm.gain for norm in each],
                    lambda gain: Const(1, 2).as_signed() if gain is None else word[: gain.bits].as_signed(),
                ),
                constants,
                number,
            ).as_signed(norms.gain_bits)
            factor = factor.times(gain, self._multipliers["gains"], f"gained{name}")
        factor = combine(
            lambda value, number: of_norm(
                number,
                [(form.norm.dropped, norms.ahead(form)) for form in forms],
                lambda key: value.shift_right(key[0]).shift_left(key[1]),
            ),
            factor,
            number,
        ).as_signed(norms.factor_bits)
        root = Staged(m, statistics.root, max(factor.stage, root_stage(self._manifest.parameters)))
        product = factor.times(root, self._multipliers["roots"], f"product{name}")
        return self._rounded(name, product, number, constants)

    def _divided(self, m: Module, name: str, deviation: Staged, number: Staged) -> Staged:
        """Shift a deviation left, to be finer, and right by the root's power of two: by most of it first."""
        norms, statistics, bits = self._norms, self._statistics, self._norms.shifted_bits
        fine = len(statistics.fine)
        most = (1 << fine) - 1
        kept = bits + most

        def coarse(value: Value) -> Value:
            found: Value = Const(0, kept)
            for position in range(len(statistics.coarse)):
                dropped = (len(statistics.coarse) - 1 - position) * (most + 1)
                shifted = value.shift_right(dropped)
                found |= Mux(statistics.coarse[position], Cat(shifted, shifted[-1].replicate(kept))[:kept], 0)
            return found.as_signed()

        def rest(value: Value) -> Value:
            found = value
            for number in range(most):
                found = Mux(statistics.fine == number, value.shift_right(most - number), found)
            return found[:bits].as_signed()

        finer = combine(
            lambda value, number: of_norm(
                number, [norm.left for norm in norms.normalisations], lambda left: value.shift_left(left)
            ),
            deviation,
            number,
        )
        coarsely = finer.map(coarse).registered(f"coarse{name}")
        return coarsely.map(rest).registered(f"divided{name}")

    def _rounded(
        self,
        name: str,
        product: Staged,
        number: Staged,
        constants: Staged | None,
    ) -> Staged:
        """Add the bias, round half up, and limit."""
        forms, drop = self._norms.forms, self._norms.drop
        half = (1 << drop) >> 1

        def bias(word: Value, number: Value) -> Value:
            keys = [
                None
                if form.bias is None
                else (form.bias[0], form.bias[1].bits, form.output.fraction + drop - form.bias[1].fraction)
                for form in forms
            ]
            return of_norm(
                number,
                keys,
                lambda key: (
                    Const(0, 1)
                    if key is None
                    else word.word_select(key[0], self._manifest.numerics.weight_bits)[: key[1]]
                    .as_signed()
                    .shift_left(key[2])
                ),
            )

        total: Staged = product + half
        if constants is not None and any(form.bias for form in forms):
            added = combine(bias, constants, number).map(lambda value: value + half)
            added = added.registered(f"bias{name}") if added.stage < product.stage else added
            total = product + added
        exact = total.map(lambda value: value.shift_right(drop)).registered(f"rounded{name}")

        def limit(number: Value) -> Value:
            return of_norm(number, [form.output.maximum for form in forms], Const)

        def clip(value: Value, number: Value) -> Value:
            most = limit(number)
            return Mux(value > most, most, Mux(value < -most, -most, value))

        return combine(clip, exact, number).registered(
            f"normed{name}", signed(self._manifest.numerics.result_bits)
        )
