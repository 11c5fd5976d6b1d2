"""Interpolated sigmoid or tanh in hardware."""

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.primitives.pipeline import delay, multiply, storage
from rtlstm.spec.inventory import ActivationSpec

__all__ = ["ActivationUnit"]


class ActivationUnit(Component):
    """Piecewise linear function by table; :meth:`ActivationTable.magnitude` in hardware.

    Latency: that of the table's memory, and those of product and sum unless it is a direct one, whose entries
    are the results, or in a complemented one are it but for one LUT. The product takes ``slope_stages`` cycles, the sum one. Throughput: one result per cycle.
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
        Store ``write_data`` in row ``write_row``.
    """

    negative: Signal
    magnitude: Signal
    value: Signal
    entry: Signal
    write: Signal
    write_row: Signal
    write_data: Signal

    def __init__(self, spec: ActivationSpec) -> None:
        self._spec = spec
        table, width = spec.table, spec.memory.width
        super().__init__(
            {
                "negative": In(1),
                "magnitude": In(table.magnitude_bits),
                "value": Out(table.output.bits - 1),
                "entry": Out(width),
                "write": In(1),
                "write_row": In(range(table.rows)),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spec, table = self._spec, self._spec.table
        read, write = storage(m, spec.memory, "table")
        segment = self.magnitude[table.low_bits :]
        m.d.comb += [
            read.addr.eq(Cat(segment, self.negative) if table.halves == 2 else segment),
            write.addr.eq(self.write_row),
            write.data.eq(self.write_data),
            write.en.eq(self.write),
            self.entry.eq(read.data),
        ]
        base = read.data[: table.base_bits]
        if table.complemented:
            above = delay(m, ~self.negative, spec.memory.latency)
            entry = Cat(base, Const(0, len(self.value) - 1 - table.base_bits))
            m.d.comb += self.value.eq(Cat(entry ^ (~above).replicate(len(entry)), above))
            return m
        if spec.direct:
            m.d.comb += self.value.eq(base)
            return m
        slope = read.data[table.base_bits :].as_signed()
        rise: Value = Const(0, 1)
        if spec.slope is not None:
            low = delay(m, self.magnitude[: table.low_bits], spec.memory.latency)
            rise = multiply(m, slope, Cat(low, Const(0, 1)).as_signed(), spec.slope, "rise")
        total = Signal(signed(max(table.base_bits, len(rise)) + 2))
        m.d.comb += total.eq(delay(m, base, spec.slope_stages) + rise)
        value = Signal(len(self.value), reset_less=True)
        m.d.sync += value.eq(total >> table.extra)
        m.d.comb += self.value.eq(value)
        return m
