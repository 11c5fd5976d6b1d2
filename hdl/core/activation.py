"""Interpolated sigmoid or tanh in hardware."""

from amaranth.hdl import Cat, Const, Module, Signal, Value

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.primitives.pipeline import constant_table, delay, delay_event, storage, storage_pair
from rtlstm.hdl.primitives.staged import Staged
from rtlstm.spec.inventory import ActivationSpec


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
