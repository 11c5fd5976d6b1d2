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

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring

from rtlstm.hdl.component import In, Out, Struct, connect_some
from rtlstm.hdl.core.layouts import norms_of, result_layout, row_bits, token_layout
from rtlstm.hdl.core.program_store import CorePart, program_store
from rtlstm.hdl.core.statistics import Statistics, of_norm, times
from rtlstm.hdl.primitives.pipeline import delay, delay_event, storage
from rtlstm.hdl.primitives.staged import Staged, combine
from rtlstm.spec.inventory import memories, multipliers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.norms import norm_results, root_stage, value_cycles
from rtlstm.spec.registers import Region

_STARTS = 3
"""Cycles from a word's issue to the registers of its norm."""


def program_bits(manifest: Manifest) -> int | None:
    """Width of what a loadable program says of norms; None of a fixed one."""
    widths = manifest.program_memories.get("program, norms")
    return None if widths is None else sum(widths.values())


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
