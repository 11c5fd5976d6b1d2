"""From the lanes' totals to rounded pre-activations, one item per cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import View
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.layouts import DelayLine, item_layout, row_bits, token_layout
from rtlstm.hdl.pipeline import WritePort, lookup, read_twice, storage
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import GUARD_BITS
from rtlstm.spec.program import Op
from rtlstm.spec.registers import Region

__all__ = ["Drain"]

ITEM_FLAGS = ("park", "lstm", "dense", "relu", "sigmoid", "tanh", "emit", "store")


class Drain(wiring.Component):
    """Takes a row group's totals when its last word is summed and drains them in row order.

    Each item's four totals (a dense item's one, four times) are shifted right by their rows' own
    shifts, rounding down, and added to a bias or to what the recurrent operation parked.
    Parking items are written back; the others come out limited, as sign and magnitude.

    Latency: with a group's last word issued in cycle ``n`` and ``S = n + summed``, item ``i``
    comes out in cycle ``S + 4 + i``. Throughput: one item per cycle. Rounding: down when
    shifting, half up at the end (the bias holds the half); saturation is symmetric.

    Members
    -------
    token : In
        The array's word two cycles before its products' sum stands in a register.
    totals : In
        Totals of all lanes, one cycle after that sum.
    item : Out
        The item coming out.
    negative : Out(4)
        Signs of its pre-activations.
    magnitudes : Out(4 * (preactivation.bits - 1))
        Magnitudes of its pre-activations, gates i, f, g, o.
    window, window_row : In
        While the memory window is open, the row that all read ports look at.
    shifts, partials : Out
        Words of the two memories, two cycles after their rows, for read-back.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        numerics, lanes = manifest.numerics, manifest.parameters.lanes
        self._shift_layout = manifest.regions[Region.SHIFTS]
        self._partial_layout = manifest.regions[Region.PARTIALS]
        super().__init__(
            {
                "token": In(token_layout(manifest)),
                "totals": In(lanes * numerics.accumulator.bits),
                "item": Out(item_layout(manifest)),
                "negative": Out(4),
                "magnitudes": Out(4 * (numerics.preactivation.bits - 1)),
                "window": In(1),
                "window_row": In(32),
                "write_shifts": In(1),
                "write_partials": In(1),
                "write_data": In(max(self._shift_layout.width, self._partial_layout.width)),
                "shifts": Out(self._shift_layout.width),
                "partials": Out(self._partial_layout.width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tokens = DelayLine(m, token_layout(self._manifest), self.token, "token", 3)
        item, shift_row, addend_row = self._sequence(m, tokens)
        items = DelayLine(m, item_layout(self._manifest), item, "item", 4)
        held = self._hold(m, tokens.at(3), items.at(2))
        shifts, addends, write = self._memories(m, shift_row, addend_row)
        self._narrow(m, held, shifts, addends, items, write)
        m.d.comb += self.item.eq(items.at(4))
        return m

    def _sequence(self, m: Module, tokens: DelayLine) -> tuple[View, Signal, Signal]:
        """Count items and their rows; an item's first cycle is the one its group is summed in."""
        program = self._manifest.program
        item = Signal(item_layout(self._manifest), name="item0")
        shift_row = Signal(row_bits(self._shift_layout.rows), reset_less=True)
        addend_row = Signal(row_bits(self._partial_layout.rows), reset_less=True)
        park_row, cell_row, row, slot = (
            Signal(item[field].shape(), reset_less=True, name=field)
            for field in ("park_row", "cell_row", "row", "slot")
        )
        count = Signal(range(max(op.items for op in program.ops) + 1), reset_less=True)
        last_count = Signal.like(count, reset_less=True)
        remaining = Signal.like(count, reset_less=False)
        in_last_group = Signal(reset_less=True)
        flags = Signal(len(ITEM_FLAGS), reset_less=True)

        ends = tokens.at(2).valid & tokens.at(2).last
        group_last = Mux(ends, tokens.at(2).group_last, in_last_group)
        left = Mux(ends, Mux(tokens.at(2).group_last, last_count, count), remaining)
        valid = left != 0
        wraps = slot == self._manifest.parameters.macs - 1
        with m.If(valid):
            m.d.sync += [
                remaining.eq(left - 1),
                shift_row.eq(shift_row + 1),
                addend_row.eq(addend_row + 1),
                park_row.eq(park_row + 1),
                cell_row.eq(cell_row + 1),
                slot.eq(Mux(wraps, 0, slot + 1)),
                row.eq(row + wraps),
            ]
        with m.If(ends):
            m.d.sync += in_last_group.eq(tokens.at(2).group_last)
        bases = self._bases(m, tokens)
        with m.If(_opens(tokens.at(1))):
            m.d.sync += [
                target.eq(base)
                for target, base in zip(
                    (shift_row, addend_row, park_row, cell_row, row, count, last_count, flags),
                    bases,
                    strict=True,
                )
            ]
            m.d.sync += slot.eq(0)
        with m.If(self.window):
            m.d.sync += [register.eq(self.window_row) for register in (shift_row, addend_row, cell_row)]
        m.d.comb += [
            item.valid.eq(valid),
            item.last.eq(group_last & (left == 1)),
            item.fresh.eq(tokens.at(2).fresh),
            item.stream.eq(tokens.at(2).stream),
            item.park_row.eq(park_row),
            item.cell_row.eq(cell_row),
            item.row.eq(row),
            item.slot.eq(slot),
            Cat(item[name] for name in ITEM_FLAGS).eq(flags),
        ]
        fresh, stream = Signal(reset_less=True), Signal.like(item.stream, reset_less=True)
        with m.If(ends):
            m.d.sync += [fresh.eq(tokens.at(2).fresh), stream.eq(tokens.at(2).stream)]
        with m.Else():
            m.d.comb += [item.fresh.eq(fresh), item.stream.eq(stream)]
        return item, shift_row, addend_row

    def _bases(self, m: Module, tokens: DelayLine) -> list[Value]:
        """Look up an operation's first rows, one cycle ahead of the stream's offsets."""
        program = self._manifest.program
        streams = range(self._manifest.parameters.streams)
        op, stream = tokens.at(0).op, tokens.at(1).stream

        def registered(name: str, values: list[int]) -> Signal:
            value = lookup(m, op, values, f"{name}_op")
            register = Signal.like(value, reset_less=True, name=f"{name}_base")
            m.d.sync += register.eq(value)
            return register

        def offset(name: str, size: int) -> Value:
            return lookup(m, stream, [index * size for index in streams], f"{name}_stream")

        ops = program.ops
        parked = registered("input", [op.kind == "input" for op in ops])
        park = offset("park", program.park_context) + program.bias_rows
        packed = [_flags(op, self._manifest.layers[op.layer].activation) for op in ops]
        return [
            registered("shift", [op.shifts for op in ops]),
            registered("addend", [op.addends for op in ops]) + Mux(parked, park, 0),
            registered("park", [op.park for op in ops]) + park,
            registered("cell", [op.cell for op in ops]) + offset("cell", program.cell_context),
            registered("row", [op.destination or 0 for op in ops]) + offset("row", program.vector_context),
            registered("items", [op.items for op in ops]),
            registered("last_items", [op.last_items for op in ops]),
            registered("flags", packed),
        ]

    def _hold(self, m: Module, token: View, item: View) -> Signal:
        """Keep a group's totals while they drain: by four rows, or by one for a dense item."""
        bits = self._manifest.numerics.accumulator.bits
        held = Signal(self.totals.shape(), reset_less=True)
        with m.If(token.valid & token.last):
            m.d.sync += held.eq(self.totals)
        with m.Else():
            m.d.sync += held.eq(Mux(item.dense, held >> bits, held >> 4 * bits))
        return held

    def _memories(self, m: Module, shift_row: Signal, addend_row: Signal) -> tuple[Signal, Signal, WritePort]:
        shift_read, shift_write = storage(
            m, "shift_memory", self._shift_layout.width, self._shift_layout.rows
        )
        read, write = storage(m, "partial_memory", self._partial_layout.width, self._partial_layout.rows)
        m.d.comb += [
            shift_read.addr.eq(shift_row),
            shift_write.addr.eq(self.window_row),
            shift_write.data.eq(self.write_data),
            shift_write.en.eq(self.write_shifts),
            read.addr.eq(addend_row),
        ]
        shifts = read_twice(m, shift_read, "shifts_q")
        addends = read_twice(m, read, "addends_q")
        m.d.comb += [self.shifts.eq(shifts), self.partials.eq(addends)]
        return shifts, addends, write

    def _narrow(
        self,
        m: Module,
        held: Signal,
        shifts: Signal,
        addends: Signal,
        items: DelayLine,
        write: WritePort,
    ) -> None:
        """Shift, add, and round to sign and magnitude in two stages."""
        numerics = self._manifest.numerics
        bits, width = numerics.accumulator.bits, numerics.accumulator.partial_bits
        magnitude_bits = numerics.preactivation.bits - 1
        parked = Signal(4 * width, reset_less=True)
        for gate in range(4):
            total = Mux(items.at(2).dense, held[:bits], held.word_select(gate, bits)).as_signed()
            amount = shifts.word_select(gate, numerics.shift_bits)
            addend = addends.word_select(gate, width).as_signed()
            shifted = Signal(signed(width), reset_less=True, name=f"shifted{gate}")
            plus = Signal(signed(width), reset_less=True, name=f"plus{gate}")
            minus = Signal(signed(width + 1), reset_less=True, name=f"minus{gate}")
            # -(a + b) rounded up is (~a + (~b + 2**guard + 1)) rounded down: the magnitude of a
            # negative sum needs one adder, beside that of a positive one.
            m.d.sync += [
                shifted.eq((total << numerics.accumulator.align) >> amount),
                plus.eq(addend),
                minus.eq(~addend + ((1 << GUARD_BITS) + 1)),
            ]
            total_sum = Signal(signed(width), name=f"sum{gate}")
            negated = Signal(signed(width + 1), name=f"negated{gate}")
            m.d.comb += [total_sum.eq(shifted + plus), negated.eq(~shifted + minus)]
            m.d.sync += parked.word_select(gate, width).eq(total_sum)
            magnitude = Mux(total_sum < 0, negated, total_sum) >> GUARD_BITS
            limited = Signal(magnitude_bits, reset_less=True, name=f"magnitude{gate}")
            sign = Signal(reset_less=True, name=f"negative{gate}")
            m.d.sync += [
                limited.eq(Mux(magnitude[magnitude_bits:].any(), -1, magnitude)),
                sign.eq(total_sum < 0),
            ]
            m.d.comb += [
                self.negative[gate].eq(sign),
                self.magnitudes.word_select(gate, magnitude_bits).eq(limited),
            ]
        parks = items.at(4).valid & items.at(4).park
        m.d.comb += [
            write.en.eq(parks | self.write_partials),
            write.addr.eq(Mux(parks, items.at(4).park_row, self.window_row)),
            write.data.eq(Mux(parks, parked, self.write_data)),
        ]


def _flags(op: Op, activation: str) -> int:
    """Pack what an operation's items share, in the order of ``ITEM_FLAGS``."""
    dense = op.kind == "dense"
    flags = {
        "park": op.kind == "recurrent",
        "lstm": op.kind == "input",
        "dense": dense,
        "relu": dense and activation == "relu",
        "sigmoid": dense and activation == "sigmoid",
        "tanh": dense and activation == "tanh",
        "emit": op.emit,
        "store": op.destination is not None,
    }
    return sum(flags[name] << position for position, name in enumerate(ITEM_FLAGS))


def _opens(token: View) -> Value:
    """Whether this word ends its operation's first group."""
    return token.valid & token.last & token.group_first
