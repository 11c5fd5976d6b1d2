"""Interpolated sigmoid or tanh in hardware."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.primitives.pipeline import constant_table, delay, delay_event, storage, storage_pair
from rtlstm.hdl.primitives.staged import Staged
from rtlstm.spec.inventory import ActivationSpec


class ActivationUnit(Component):
    """Piecewise linear function by table; :meth:`ActivationTable.magnitude` in hardware.

    Latency: ``ActivationSpec.latency``. Entries of direct tables are the results. Throughput: one per cycle.
    Within 1 unit in the last place of the correctly rounded function. It gives the magnitude:
    :attr:`ActivationTable.negates` says which sign belongs to it.

    Members
    -------
    negative : In(1)
        Sign of the input.
    magnitude : In(input.bits - 1)
        Magnitude of the input. While the memory window is open, its row.
    value : Out(output.bits - 1)
        Never negative.
    entry : Out
        The table's word, the memory's latency after its row was in ``negative`` and ``magnitude``.
    write : In(1)
        Store ``write_data`` in row ``write_row``. A constant table has no such ports.
    second_negative, second_magnitude : In, second_value : Out
        Only if ``paired``: the same for another input. Then the row written is that in ``negative`` and
        ``magnitude`` a cycle after ``write``, and ``write_row`` is not looked at.
    """

    negative: Signal
    magnitude: Signal
    value: Signal
    entry: Signal
    write: Signal
    write_row: Signal
    write_data: Signal

    second_negative: Signal
    second_magnitude: Signal
    second_value: Signal

    def __init__(self, spec: ActivationSpec, paired: bool = False) -> None:
        self._spec = spec
        self._paired = paired
        table, width = spec.table, spec.memory.width
        second = {
            "second_negative": In(1),
            "second_magnitude": In(table.magnitude_bits),
            "second_value": Out(table.output.bits - 1),
        }
        writes = {"write": In(1), "write_row": In(range(table.rows)), "write_data": In(width)}
        super().__init__(
            {
                "negative": In(1),
                "magnitude": In(table.magnitude_bits),
                "value": Out(table.output.bits - 1),
                "entry": Out(width),
                **({} if spec.constant else writes),
                **(second if paired else {}),
            }
        )

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
