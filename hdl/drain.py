"""Drains finished row groups from the array, one item per cycle, and says where items belong."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import View
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.layouts import DelayLine, item_layout, row_bits, token_layout
from rtlstm.hdl.pipeline import delay, lookup
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.program import Op
from rtlstm.spec.registers import Region

__all__ = ["Drain"]

ITEM_FLAGS = ("park", "lstm", "dense", "relu", "sigmoid", "tanh", "emit", "store")


class Drain(wiring.Component):
    """Counts the items of every group and the memory rows that go with them.

    An LSTM layer's item is a block: the four totals of each of its ``gate_units`` units. A dense
    layer's item is one lane of four: a block drains in four cycles.

    Latency: with a group's last word issued in cycle ``n`` and ``S = n + summed``, item ``k`` has
    its memory rows in cycle ``S + k``, ``blocks`` and ``lanes`` in the cycle after that, and
    ``item`` when its pre-activations are ready. Throughput: one item per cycle.

    Members
    -------
    token : In
        The array's word three cycles before its products' sum stands in a register.
    blocks : Out(blocks), lanes : Out(4 * blocks)
        One-hot: the block whose held totals are an LSTM layer's item; the block, and the lane in
        each four, whose total is a dense layer's.
    shift_row, addend_row : Out
        Rows of the shift and partial-sum memories.
    item, soon : Out
        What comes out of the rounding, and what will in the next cycle.
    cell_row, cell_fresh : Out
        Row of the cell memory, in time for the item's gates; whether the stream's state is zero.
    window, window_row : In
        While the memory window is open, the row that all read ports look at.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._parameters = manifest.parameters
        self._shared = (*ITEM_FLAGS, "cell") if manifest.numerics.cells else ITEM_FLAGS
        super().__init__(
            {
                "token": In(token_layout(manifest)),
                "blocks": Out(self._parameters.blocks),
                "lanes": Out(4 * self._parameters.blocks),
                "shift_row": Out(row_bits(manifest.regions[Region.SHIFTS].rows)),
                "addend_row": Out(row_bits(manifest.regions[Region.PARTIALS].rows)),
                "item": Out(item_layout(manifest)),
                "soon": Out(item_layout(manifest)),
                "cell_row": Out(item_layout(manifest)["cell_row"].shape),
                "cell_fresh": Out(1),
                "window": In(1),
                "window_row": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tokens = DelayLine(m, token_layout(self._manifest), self.token, "token", 2)
        # Of the word at the line's end: it ends a group; that is its operation's first.
        ends, opens = Signal(), Signal()
        ending = tokens.at(1).valid & tokens.at(1).last
        opening = ending & tokens.at(1).group_first
        m.d.sync += [ends.eq(ending), opens.eq(opening)]
        item = self._sequence(m, tokens, ends, opens, opening)
        self._choose(m, ends, item)
        depth = self._parameters.preactivation - self._parameters.summed
        timing = self._manifest.timing
        early = depth + (timing.state if timing else self._parameters.activation) - 3
        items = DelayLine(m, item_layout(self._manifest), item, "item", max(depth, early))
        m.d.comb += [
            self.cell_row.eq(items.at(early).cell_row),
            self.cell_fresh.eq(items.at(early).fresh),
            self.item.eq(items.at(depth)),
            self.soon.eq(items.at(depth - 1)),
        ]
        return m

    def _sequence(self, m: Module, tokens: DelayLine, ends: Signal, opens: Signal, opening: Value) -> View:
        """Count items and their rows; a group's first item is there as soon as it is summed.

        Whether there is an item is decided one cycle ahead.
        """
        program, width = self._manifest.program, self._parameters.gate_units
        item = Signal(item_layout(self._manifest), name="item0")
        shift_row = Signal.like(self.shift_row, reset_less=True)
        addend_row = Signal.like(self.addend_row, reset_less=True)
        park_row, cell_row, row, slot = (
            Signal(item[field].shape(), reset_less=True, name=field)
            for field in ("park_row", "cell_row", "row", "slot")
        )
        tail = Signal(width, reset_less=True)
        in_last_group = Signal(reset_less=True)
        # What an operation's items share: also which cell computes them, where there are several kinds.
        shared = Cat(item[name] for name in self._shared)
        flags = Signal(len(shared), reset_less=True)

        # Items of the word's group but for its first, and what remains of the group that drains.
        items = self._of_op(m, tokens, "items", [op.items - 1 for op in program.ops])
        last_items = self._of_op(m, tokens, "last_items", [op.last_items - 1 for op in program.ops])
        more, remaining = Signal.like(items, reset_less=True), Signal.like(items, reset_less=False)
        m.d.sync += more.eq(Mux(tokens.at(1).group_last, last_items, items))
        valid, last = Signal(name="has_item"), Signal(reset_less=True, name="is_last")
        m.d.sync += [
            last.eq(Mux(ends, tokens.at(2).group_last & (more == 0), in_last_group & (remaining == 1))),
            remaining.eq(Mux(ends, more, remaining - (remaining != 0))),
        ]
        wraps = slot == self._parameters.macs // width - 1
        # The counters' enable (an item is there, or a group opens) is a register, too: it goes far.
        moves, has_next = Signal(reset_less=True), ends | (remaining != 0)
        m.d.sync += [valid.eq(has_next), moves.eq(has_next | opening)]
        counters = (shift_row, addend_row, park_row, cell_row)
        *firsts, first_row, first_tail, first_flags = self._bases(m, tokens)
        with m.If(moves):
            m.d.sync += [
                *(
                    counter.eq(Mux(opens, base, counter + 1))
                    for counter, base in zip(counters, firsts, strict=True)
                ),
                slot.eq(Mux(opens | wraps, 0, slot + 1)),
                row.eq(Mux(opens, first_row, row + wraps)),
            ]
        with m.If(opens):
            m.d.sync += [tail.eq(first_tail), flags.eq(first_flags)]
        with m.If(ends):
            m.d.sync += in_last_group.eq(tokens.at(2).group_last)
        with m.If(self.window):
            m.d.sync += [register.eq(self.window_row) for register in (shift_row, addend_row, cell_row)]
        m.d.comb += [
            self.shift_row.eq(shift_row),
            self.addend_row.eq(addend_row),
            item.valid.eq(valid),
            item.last.eq(last),
            item.mask.eq(Mux(last, tail, -1)),
            item.park_row.eq(park_row),
            item.cell_row.eq(cell_row),
            item.row.eq(row),
            item.slot.eq(slot),
            shared.eq(flags),
        ]
        fresh, stream = Signal(reset_less=True), Signal.like(item.stream, reset_less=True)
        quiet = Signal(reset_less=True)
        with m.If(ends):
            token = tokens.at(2)
            m.d.sync += [fresh.eq(token.fresh), stream.eq(token.stream), quiet.eq(token.quiet)]
        m.d.comb += [item.fresh.eq(fresh), item.stream.eq(stream)]
        with m.If(quiet):
            m.d.comb += item.emit.eq(0)
        return item

    def _of_op(self, m: Module, tokens: DelayLine, name: str, values: list[int]) -> Signal:
        """Return a value of a token's operation, one cycle after the token."""
        value = lookup(m, tokens.at(0).op, values, f"{name}_op")
        register = Signal.like(value, reset_less=True, name=f"{name}_of_op")
        m.d.sync += register.eq(value)
        return register

    def _bases(self, m: Module, tokens: DelayLine) -> list[Value]:
        """Find an operation's first rows: its own, then the stream's offset, two cycles after the token."""
        program = self._manifest.program
        ops, streams = program.ops, range(self._parameters.streams)

        def of_op(name: str, values: list[int]) -> Signal:
            return self._of_op(m, tokens, name, values)

        def offset(name: str, size: int) -> Signal:
            value = lookup(m, tokens.at(0).stream, [index * size for index in streams], f"{name}_stream")
            register = Signal.like(value, reset_less=True, name=f"{name}_of_stream")
            m.d.sync += register.eq(value)
            return register

        adds_parked = of_op("adds", [op.adds_parked for op in ops])
        park = offset("park", program.park_context)
        biases = [program.bias_rows * op.adds_parked for op in ops]
        row = of_op("row", [op.destination or 0 for op in ops])
        copied = [(op.destination or 0) + program.copy_words * (op.writes_copy is not None) for op in ops]
        other_row = of_op("other_row", copied)
        bases = [
            of_op("shift", [op.shifts for op in ops]),
            of_op("addend", [op.addends + more for op, more in zip(ops, biases, strict=True)])
            + Mux(adds_parked, park, 0),
            of_op("park", [op.park + program.bias_rows for op in ops]) + park,
            of_op("cell", [op.cell for op in ops]) + offset("cell", program.cell_context),
            Mux(tokens.at(1).copy, other_row, row) + offset("row", program.vector_context),
            of_op("tail", [(1 << op.tail) - 1 for op in ops]),
            of_op("flags", [_flags(op, self._manifest.layers[op.layer]) for op in ops]),
        ]
        return [delay(m, base, 1) for base in bases]

    def _choose(self, m: Module, ends: Signal, item: View) -> None:
        """Step through an LSTM layer's blocks, or a dense layer's lanes, behind a group's last word."""
        starts = Signal()
        blocks, lanes = Signal.like(self.blocks, reset_less=True), Signal.like(self.lanes, reset_less=True)
        m.d.sync += [
            starts.eq(ends),
            blocks.eq(Mux(starts, ~item.dense, blocks << 1)),
            lanes.eq(Mux(starts, item.dense, lanes << 1)),
        ]
        m.d.comb += [self.blocks.eq(blocks), self.lanes.eq(lanes)]


def _flags(op: Op, layer: LayerShape) -> int:
    """Pack what an operation's items share: ``ITEM_FLAGS``, then the number of their cell."""
    single = not op.quads
    finished = single and layer.cell is None
    flags = {
        "park": op.parks,
        "lstm": op.yields and not single,
        "dense": single,
        "relu": finished and layer.activation == "relu",
        "sigmoid": finished and layer.activation == "sigmoid",
        "tanh": finished and layer.activation == "tanh",
        "emit": op.emit,
        "store": op.destination is not None,
    }
    packed = sum(flags[name] << position for position, name in enumerate(ITEM_FLAGS))
    return packed | (layer.cell or 0) << len(ITEM_FLAGS)
