"""What the units share that turn a beat's pre-activations into a result; interpolated sigmoid and tanh."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import View

from rtlstm.hdl.component import Component, In, Out, SharedModule, Struct
from rtlstm.hdl.core.layouts import DelayLine, beat_layout, region_bits, result_layout, upper_sum_bits
from rtlstm.hdl.primitives.pipeline import constant_table, delay, delay_event, storage, storage_pair
from rtlstm.hdl.primitives.staged import Staged
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.inventory import ActivationSpec, activations, memories, multipliers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region


class ActivationUnit(Component):
    """Piecewise linear function by table; :meth:`ActivationTable.magnitude` in hardware.

    Latency: ``ActivationSpec.latency``. Entries of direct tables are the results. Throughput: one per cycle.
    Within 1 unit in the last place of the correctly rounded function. It gives the magnitude:
    :attr:`ActivationTable.negates` says which sign belongs to it.

    """

    negative: Signal = In(1)
    """Sign of the input."""
    magnitude: Signal = In(lambda unit: unit._spec.table.magnitude_bits)
    """Magnitude of the input. While the memory window is open, its row."""
    value: Signal = Out(lambda unit: unit._spec.table.output.bits - 1)
    """Never negative."""
    entry: Signal = Out(lambda unit: unit._spec.memory.width)
    """The table's word, the memory's latency after its row was in ``negative`` and ``magnitude``."""
    write: Signal = In(lambda unit: None if unit._spec.constant else 1)
    write_row: Signal = In(lambda unit: None if unit._spec.constant else range(unit._spec.table.rows))
    write_data: Signal = In(lambda unit: None if unit._spec.constant else unit._spec.memory.width)
    """Store ``write_data`` in row ``write_row``. A constant table has no such ports."""
    second_negative: Signal = In(lambda unit: 1 if unit._paired else None)
    second_magnitude: Signal = In(lambda unit: unit._spec.table.magnitude_bits if unit._paired else None)
    second_value: Signal = Out(lambda unit: unit._spec.table.output.bits - 1 if unit._paired else None)
    """Only if ``paired``: the same for another input. Then the row written is that in ``negative`` and
    ``magnitude`` a cycle after ``write``, and ``write_row`` is not looked at."""

    def __init__(self, spec: ActivationSpec, paired: bool = False) -> None:
        self._spec = spec
        self._paired = paired
        super().__init__(self)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spec, base_bits = self._spec, self._spec.table.base_bits
        if spec.constant:
            read = constant_table(m, spec)
        elif self._paired:
            read, second, write = storage_pair(m, spec.memory, "table")
            m.d.comb += [
                second.addr.eq(self._row(self.second_negative, self.second_magnitude)),
                self.second_value.eq(second.data[:base_bits]),
                write.data.eq(delay(m, self.write_data, 1)),
                write.en.eq(delay_event(m, self.write, 1)),
            ]
        else:
            read, write = storage(m, spec.memory, "table")
            m.d.comb += [
                write.addr.eq(self.write_row),
                write.data.eq(self.write_data),
                write.en.eq(self.write),
            ]
        m.d.comb += [
            read.addr.eq(self._row(self.negative, self.magnitude)),
            self.entry.eq(read.data),
            self.value.eq(read.data[:base_bits] if spec.direct else self._interpolated_value(m, read.data)),
        ]
        return m

    def _row(self, negative: Signal, magnitude: Signal) -> Value:
        table = self._spec.table
        segment = magnitude[table.low_bits :]
        return Cat(segment, negative) if table.halves == 2 else segment

    def _interpolated_value(self, m: Module, word: Value) -> Value:
        spec, table, read = self._spec, self._spec.table, self._spec.memory.latency
        base = Staged(m, word[: table.base_bits], read)
        rise: Staged | Value = Const(0, 1)
        if spec.slope is not None:
            low = Staged(m, self.magnitude[: table.low_bits], 0)
            slope = Staged(m, word[table.base_bits :].as_signed(), read)
            rise = slope.times(low, spec.slope, "rise")
        value = (base + rise).map(lambda total: total.shift_right(table.extra))
        return value.registered("value", len(self.value)).at(spec.latency)


@dataclass(frozen=True)
class ResultKind:
    """Results that are there the same number of cycles after their pre-activations."""

    stage: int
    """That number."""
    single: bool
    """They are results of single rows, and not of units."""
    wanted: Callable[[Struct], Value]
    """Whether a beat has one."""


class Entries(Protocol):
    """Words of a unit's memories: those that it has of these, and others by their regions' names."""

    cells: Signal
    tables: Signal


def _entry_bits(manifest: Manifest) -> dict[str, int]:
    """Bits of each memory that the window reads back, by name."""
    unit = manifest.numerics.unit
    # Of tables by number, a fused unit has none: the root's is in the part that computes norms.
    outside = {Region.TABLES} if isinstance(unit, FusedUnit) else set()
    regions = (Region.CELLS, *(region for region in unit.memories if region not in outside))
    return {region.name.lower(): manifest.regions[region].width for region in regions}


class Unit(SharedModule):
    """A unit: its members, the memory of its states, and its tables, all open to the memory window."""

    next_beat: Struct = In(beat_layout)
    """The beat whose pre-activations come in the next cycle; the lowest bit of its mask is the unit's."""
    cell_row: Signal = In(lambda manifest: beat_layout(manifest)["cell_row"].shape)
    """Row of the cell memory, three cycles before the old state is used."""
    negative: Signal = In(4)
    magnitudes: Signal = In(lambda manifest: 4 * (manifest.numerics.preactivation.bits - 1))
    """Pre-activations."""
    upper: Signal = In(upper_sum_bits)
    """Upper bits of gate 0's magnitude, if sums of linear rows have more than pre-activations."""
    next_negative: Signal = In(4)
    next_magnitudes: Signal = In(lambda manifest: 4 * (manifest.numerics.preactivation.bits - 1))
    """The pre-activations of the next cycle."""
    last_pass: Signal = In(lambda manifest: 1 if manifest.ends_passes_in_both_widths else None)
    """Results are those of a sequence's last pass."""
    result: Struct = Out(result_layout)
    value: Signal = Out(lambda manifest: signed(manifest.numerics.result_bits))
    """A new h or dense output, and where it goes."""
    of_units: Signal = Out(lambda manifest: signed(manifest.numerics.result_bits))
    of_rows: Signal = Out(lambda manifest: signed(manifest.numerics.result_bits))
    """The same, where it is the result of a unit or of a single row; ``result.single`` says which."""
    normed: Signal = In(
        lambda manifest: signed(manifest.numerics.result_bits) if manifest.numerics.norms else None
    )
    """Results of norms, from the part that computes them."""
    coming: Struct = Out(result_layout)
    """Where the result goes that is there in ``parameters.announced`` cycles."""
    saturated: Signal = Out(1)
    """A state saturated in this cycle."""
    window: Signal = In(1)
    window_row: Signal = In(32)
    """The memory window is open; the row that it looks at or writes."""
    table_row: Signal = In(32)
    """That row for the tables' read ports, and 0 while the window is closed; also the row of a write, in the
    cycle after it. The row of the cell memory comes with the beat."""
    write: Signal = In(region_bits)
    write_data: Signal = In(lambda manifest: max(_entry_bits(manifest).values()))
    """One bit per region: store ``write_data`` in row ``window_row``; of the cell memory, a cycle later."""
    entries: Entries = Out(
        lambda manifest: wiring.Signature(
            {name: wiring.Out(bits) for name, bits in _entry_bits(manifest).items()}
        )
    )
    """Words of the memories, for read-back."""

    def __init__(self, manifest: Manifest) -> None:
        self._activations, self._multipliers = activations(manifest), multipliers(manifest)
        super().__init__(manifest, "gate_unit")

    def connect_beat(self, m: Module, unit_constants: Value, cell_zero_state: Value) -> None:
        """Connect ports that not all units have: per-unit constants, and early whether a state is zero."""

    def connect_bank(self, m: Module, bank: Value) -> None:
        """Connect the window's bank, if there are several tables in a region."""

    def _begin(self, m: Module, last: int) -> None:
        """Begin to elaborate: no table has a memory yet; keep a beat for ``last`` cycles after its sums."""
        self._pairs = [
            some.memory.pairs // self._manifest.parameters.gate_units for some in self._activations
        ]
        self._second_ports: dict[int, ActivationUnit] = {}
        self._beats = DelayLine(m, beat_layout(self._manifest), self.next_beat, "beat", last + 1)

    def _beat_at(self, stage: int) -> Struct:
        """Return the beat whose pre-activations were there ``stage`` cycles ago, or come in the next (-1)."""
        return self._beats.at(stage + 1)

    def _announce(self, m: Module, kinds: Sequence[ResultKind]) -> None:
        """Give where results go, and before that where they will go."""
        layout, announced = result_layout(self._manifest), self._manifest.parameters.announced
        # As early as the beats of all kinds are there, up to a register before what is announced.
        ahead = min(announced, *(kind.stage for kind in kinds)) + 1
        target = View(layout, Signal(layout, name="target"))
        for kind in kinds:
            beat = self._beat_at(kind.stage - ahead)
            with m.If(beat.valid & kind.wanted(beat)):
                m.d.comb += [
                    target[name].eq(kind.single if name == "single" else beat[name])
                    for name in layout.members
                ]
        targets = DelayLine(m, layout, target, "target", ahead)
        m.d.comb += [self.coming.eq(targets.at(ahead - announced)), self.result.eq(targets.at(ahead))]

    def of_norms(self) -> list[ResultKind]:
        """Return the kind of norms' results, if there are some."""
        if not self._manifest.numerics.norms:
            return []
        return [ResultKind(self._manifest.timing.of_norms, single=True, wanted=lambda beat: beat.norm)]

    def gate_sum(self, gate: int, wide: bool) -> tuple[Value, Value]:
        """Return sign and magnitude of a gate's sum; ``wide``, with the upper bits."""
        bits = self._manifest.numerics.preactivation.bits - 1
        magnitude = self.magnitudes.word_select(gate, bits)
        return self.negative[gate], Cat(magnitude, self.upper) if wide else magnitude

    def _table_argument(self, m: Module, gate: int) -> tuple[Staged, Staged]:
        """Return sign and magnitude of a gate's pre-activation when its table reads them."""
        bits = self._manifest.numerics.preactivation.bits - 1
        if self._manifest.parameters.pipeline.table > 1:
            negative, magnitudes, stage = self.next_negative, self.next_magnitudes, -1
        else:
            negative, magnitudes, stage = self.negative, self.magnitudes, 0
        return Staged(m, negative[gate], stage), Staged(m, magnitudes.word_select(gate, bits), stage)

    def _add_table(
        self, m: Module, name: str, index: int, negative: Staged, magnitude: Staged, write: Value
    ) -> tuple[Staged, Value]:
        """Add one of the numerics' tables; while the window is open it looks at the window's row.

        The argument is 0 then: so the row passes the address's last LUT. Every other use of a table takes the
        second read port of the memory of the use before, if the inventory has pairs.

        Returns the value, and the memory's entry at the window's row.
        """
        spec = self._activations[index]
        assert negative.stage == magnitude.stage, "sign and magnitude of a table's argument come together"
        table, stage = spec.table, magnitude.stage + spec.latency
        if index in self._second_ports:
            unit = self._second_ports.pop(index)
            m.d.comb += [unit.second_negative.eq(negative.value), unit.second_magnitude.eq(magnitude.value)]
            return Staged(m, unit.second_value, stage), unit.entry
        paired = self._pairs[index] > 0
        m.submodules[name] = unit = ActivationUnit(spec, paired)
        if paired:
            self._pairs[index] -= 1
            self._second_ports[index] = unit
        row = self.table_row[: table.segment_bits + table.halves - 1]
        m.d.comb += [
            unit.negative.eq(negative.value | row[table.segment_bits :]),
            unit.magnitude.eq(magnitude.value | row[: table.segment_bits].shift_left(table.low_bits)),
        ]
        if not spec.constant:
            m.d.comb += [
                unit.write.eq(write),
                unit.write_row.eq(self.window_row),
                unit.write_data.eq(self.write_data),
            ]
        return Staged(m, unit.value, stage), unit.entry

    def _read_state(self, m: Module) -> Value:
        """Return the state as it is in memory, two cycles after its row."""
        read, self._state_write = storage(m, memories(self._manifest)["cell states"], "cells")
        m.d.comb += [read.addr.eq(self.cell_row), self.entries.cells.eq(read.data)]
        return read.data.as_signed()

    def _old_state(
        self, m: Module, state: Value, zero_state: Value, shifts: Sequence[int] = (0,), name: str = "old"
    ) -> Staged:
        """Return a state a cycle later: zero if ``zero_state``, and shifted left as the beat's c is."""
        stage = self._manifest.timing.state
        state = self.shifted(state, stage - 1, shifts, "cell_shift")
        old = Signal(state.shape(), reset_less=True, name=name)
        m.d.sync += old.eq(Mux(zero_state, 0, state))
        return Staged(m, old, stage)

    def shifted(
        self, value: Value, stage: int, shifts: Sequence[int], field: str, right: bool = False
    ) -> Value:
        """Return a value, shifted left or right by one of these, from 0 on, as a stage's beat says."""
        found = value
        for number, shift in enumerate(shifts[1:], 1):
            other = value.shift_right(shift) if right else value.shift_left(shift)
            found = Mux(self._beat_at(stage)[field] == number, other, found)
        return found

    def _write_state(self, m: Module, writes: Value, state: Staged, clipped: Staged) -> None:
        """Keep a beat's new state, or the window's; ``clipped`` says that it saturated.

        It is written a cycle later: the memory is far, and read much later.
        """
        stage = self._manifest.timing.keep
        beat, write = self._beat_at(stage), self._state_write
        counts = beat.mask[0]
        m.d.comb += [
            write.en.eq(delay_event(m, writes | self.write[Region.CELLS], 1)),
            write.addr.eq(delay(m, Mux(writes, beat.cell_row, self.window_row), 1)),
            # Also where a beat has no unit of its own: the host reads whole rows.
            write.data.eq(delay(m, Mux(writes, Mux(counts, state.at(stage), 0), self.write_data), 1)),
            self.saturated.eq(writes & counts & clipped.at(stage)),
        ]


def round_down(
    value: Value, drop: int, bits: int, more: int = 0, wide: Value | None = None
) -> tuple[Value, Value]:
    """Drop low bits of a signed value and limit it to ``bits`` bits, or ``more`` than these if ``wide``.

    No carry chain. Returns the sign, and the magnitude with a bit less, as a ``middle`` table counts it: -1
    has 0.
    """
    assert value.shape().signed
    # Amaranth makes an operator again for each use of its value, here for each bit. Slices are none, and Mux
    # uses its condition once. With shifters, conversion took twice as long.
    kept = value.shift_right(drop)
    negative = kept[-1]
    magnitude = kept[:-1] ^ negative.replicate(len(kept) - 1)
    most = bits - 1 + more
    above = magnitude[most:].any()
    if wide is not None:
        above |= ~wide & magnitude[bits - 1 : most].any()
    return negative, Mux(above, (1 << most) - 1, magnitude[:most])
