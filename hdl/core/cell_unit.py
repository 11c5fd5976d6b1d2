"""The cell unit: a network's cells, each a pipeline made from its graph."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.unit import ResultKind, Unit, round_down
from rtlstm.hdl.primitives.pipeline import delay, multiply
from rtlstm.spec.activations.piecewise import PiecewiseLinear
from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.inventory import MultiplierSpec
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

__all__ = ["CellUnit"]


class CellUnit(Unit):
    """Computes every cell of the network for one unit a cycle; a beat says which one counts.

    Latency, from pre-activations to results: ``manifest.timing.of_units`` cycles, whatever the cell, and
    ``pipeline.result`` more. Throughput: one beat per cycle. Rounding: as the graphs say, half up with
    symmetric saturation wherever a value is narrowed.

    Members
    -------
    unit_constants : In
        The per-unit constants, with the pre-activations.
    cell_zero_state : In
        Whether the state is zero, with ``cell_row``, three cycles before ``timing.state``.
    window_bank : In
        While the memory window is open, the table that it looks at.
    """

    cell_zero_state: Signal
    unit_constants: Signal
    window_bank: Signal

    def __init__(self, manifest: Manifest, index: int) -> None:
        self._timing = manifest.timing
        numerics = manifest.numerics
        tables = manifest.regions[Region.TABLES].width if numerics.tables else 1
        super().__init__(
            manifest,
            index,
            {"cells": numerics.cell.bits, "tables": tables},
            {
                "cell_zero_state": In(1),
                "unit_constants": In(max(1, numerics.unit_parameters * numerics.weight_bits)),
                "window_bank": In(row_bits(max(2, len(numerics.tables)))),
            },
        )

    def connect_beat(self, m: Module, unit_constants: Value, cell_zero_state: Value) -> None:
        """Connect per-unit constants, and early whether the state is zero."""
        m.d.comb += [self.unit_constants.eq(unit_constants), self.cell_zero_state.eq(cell_zero_state)]

    def connect_bank(self, m: Module, bank: Value) -> None:
        """Connect the window's bank: which table it looks at."""
        m.d.comb += self.window_bank.eq(bank)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        timing, result = self._timing, self._manifest.parameters.pipeline.result
        self._follow_beats(m, timing.of_units + result)
        old = self._read_state(m, delay(m, self.cell_zero_state, 2))
        self._entries: dict[int, Value] = {}
        cells = [
            _Cell(self, m, number, graph, old) for number, graph in enumerate(self._manifest.numerics.cells)
        ]
        self._keep(m, cells, self._beat_at(timing.keep))
        self._give(m, cells)
        # A table's rows past its own read as zero, as the image has them.
        tables = self._manifest.numerics.tables
        entries = [
            Mux((self.window_bank == bank) & (self.window_row < tables[bank].rows), word, 0)
            for bank, word in sorted(self._entries.items())
        ]
        if entries:
            m.d.comb += self.entries.tables.eq(any_of(entries))
        return m

    def add_table(self, m: Module, name: str, index: int, negative: Value, magnitude: Value) -> Value:
        """Add one of the network's tables; equal ones are written at once, and the first is read back."""
        table = self._manifest.numerics.tables[index]
        mine = self.write[Region.TABLES] & (self.window_bank == index) & (self.window_row < table.rows)
        value, entry = self._add_table(m, name, index, negative, magnitude, mine)
        self._entries.setdefault(index, entry)
        return value

    def add_gate_table(self, m: Module, name: str, index: int, gate: int) -> Value:
        """Add one of the network's tables, of a gate."""
        return self.add_table(m, name, index, *self._table_argument(gate))

    def multiplier(self, name: str) -> MultiplierSpec:
        """Return the multiplier of a cell's node, which the inventory has by the node's name in Verilog."""
        return self._multipliers[name]

    def _chosen(self, beat: Struct, number: int) -> Value:
        """Whether a cell is the beat's."""
        return beat.cell == number if len(self._manifest.numerics.cells) > 1 else Const(1)

    def _keep(self, m: Module, cells: list["_Cell"], beat: Struct) -> None:
        """Write new states."""
        stage = self._timing.keep
        keeping = [cell for cell in cells if cell.graph.state is not None]
        kept = Signal(self._widths["cells"], name="kept")
        writes, clipped = Signal(name="keeps"), Signal(name="kept_clipped")
        for cell in keeping:
            assert cell.graph.state is not None
            new, beyond = cell.at(cell.graph.state, stage), cell.clipped_at(stage)
            with m.If(self._chosen(beat, cell.number)):
                m.d.comb += [
                    kept.eq(new),
                    writes.eq(beat.valid & _yields(beat)),
                    clipped.eq(beyond),
                ]
        self._write_state(m, beat, writes, kept, clipped)

    def _give(self, m: Module, cells: list["_Cell"]) -> None:
        """Give results and where they go."""
        last, result = self._timing.of_units, self._manifest.parameters.pipeline.result
        value = Signal(self.value.shape(), name="chosen")
        for cell in cells:
            found = cell.at(cell.graph.result, last)
            with m.If(self._chosen(self._beat_at(last), cell.number)):
                m.d.comb += value.eq(found)
        self._announce(m, [ResultKind(last + result, single=False, wanted=_yields)])
        m.d.comb += [self.of_units.eq(delay(m, value, result)), self.value.eq(self.of_units)]


def _yields(beat: Struct) -> Value:
    yields: Value = beat.lstm | (beat.dense & ~beat.writes_partial)
    return yields


class _Cell:
    """One graph as a pipeline; ``at(node_number, stage)`` is a node's value at a pipeline stage."""

    def __init__(self, unit: CellUnit, m: Module, number: int, graph: CellGraph, old: Signal) -> None:
        self._unit = unit
        self._m = m
        self.number = number
        self.graph = graph
        self._manifest = unit._manifest
        self._stages = graph.stages(self._manifest.parameters)
        self._deep = self._manifest.parameters.pipeline.cell > 3
        self._delayed: dict[tuple[int, int], Value] = {}
        self._clipped: tuple[Value, int] = (Const(0, 1), 0)
        for node_number, node in enumerate(graph.nodes):
            stage = unit._timing.state if node.kind == "state" else self._stages[node_number]
            value = old if node.kind == "state" else self._node(node_number, node)
            self._delayed[node_number, stage] = value

    def at(self, node_number: int, stage: int) -> Value:
        """A node's value at a stage: its own or a later one."""
        if (node_number, stage) not in self._delayed:
            before = self.at(node_number, stage - 1)
            fixed = self.graph.nodes[node_number].kind == "constant"
            self._delayed[node_number, stage] = before if fixed else delay(self._m, before, 1)
        return self._delayed[node_number, stage]

    def clipped_at(self, stage: int) -> Value:
        """Whether what is kept saturated."""
        flag, since = self._clipped
        return delay(self._m, flag, stage - since)

    def _node(self, node_number: int, node: Node) -> Value:
        begins = max((self._stages[arg] for arg in node.args), default=0)
        args = [self.at(arg, begins) for arg in node.args]
        name = f"cell{self.number}_{node.kind}{node_number}"
        match node.kind:
            case "gate":
                return self._gate(node.index)
            case "parameter":
                # Its field has the bits of the widest weights.
                field = self._unit.unit_constants.word_select(node.index, self._manifest.numerics.weight_bits)
                return field[: node.format.bits].as_signed()
            case "constant":
                return Const(node.value, signed(node.format.bits))
            case "multiply":
                product = multiply(self._m, args[0], args[1], self._unit.multiplier(name), name)
                return product[: node.format.bits].as_signed()
            case "add" | "subtract":
                a, b = (
                    arg << (node.format.fraction - self.graph.nodes[index].format.fraction)
                    for arg, index in zip(args, node.args, strict=True)
                )
                return self._register(node, name, a + b if node.kind == "add" else a - b)
            case "clamp":
                over, under = args[0] > node.value, args[0] < -node.value
                return self._register(node, name, Mux(over, node.value, Mux(under, -node.value, args[0])))
            case "floor":
                drop = self.graph.nodes[node.args[0]].format.fraction - node.format.fraction
                negative, magnitude = round_down(args[0], drop, node.format.bits)
                return self._register(
                    node, name, Cat(magnitude ^ negative.replicate(len(magnitude)), negative)
                )
            case "narrow":
                return self._narrow(node_number, node, name, args[0])
            case "table":
                return self._table(node, name, args[0])
            case "pieces":
                return self._pieces(node, name, args[0], self._manifest.numerics.pieces[node.index])
            case _:
                raise AssertionError(node.kind)

    def _register(self, node: Node, name: str, value: Value) -> Signal:
        register = Signal(signed(node.format.bits), reset_less=True, name=name)
        self._m.d.sync += register.eq(value)
        return register

    def _gate(self, index: int) -> Value:
        negative, magnitude = self._signed_gate(index)
        value = Signal(signed(len(magnitude) + 1), name=f"cell{self.number}_gate{index}")
        self._m.d.comb += value.eq(Cat(magnitude ^ negative.replicate(len(magnitude)), negative))
        return value

    def _signed_gate(self, index: int) -> tuple[Value, Value]:
        bits = self._manifest.numerics.preactivation.bits - 1
        return self._unit.negative[index], self._unit.magnitudes.word_select(index, bits)

    def _narrow(self, node_number: int, node: Node, name: str, value: Value) -> Value:
        """Round half up and limit, beside each other."""
        m, most = self._m, node.format.maximum
        drop = self.graph.nodes[node.args[0]].format.fraction - node.format.fraction
        half = (1 << drop) >> 1 if drop > 0 else 0
        rounded = (value + half) >> drop if drop > 0 else value << -drop
        over = value >= ((most + 1) << drop) - half if drop >= 0 else rounded > most
        under = value < (-most << drop) - half if drop >= 0 else rounded < -most
        extra = 1 if self._deep else 0
        over, under, rounded = (delay(m, flag, extra) for flag in (over, under, rounded))
        result = self._register(node, name, Mux(over, most, Mux(under, -most, rounded)))
        if node_number == self.graph.state:
            self._clipped = delay(m, over | under, 1), self._stages[node_number]
        return result

    def _table(self, node: Node, name: str, value: Value) -> Value:
        """Look up a function; of what is not a gate, find sign and magnitude first."""
        m, source = self._m, self.graph.nodes[node.args[0]]
        table, parameters = self._manifest.numerics.tables[node.index], self._manifest.parameters
        cycles = parameters.activation
        if source.kind == "gate":
            negative, magnitude = self._signed_gate(source.index)
            found = self._unit.add_gate_table(m, name, node.index, source.index)
        else:
            negative, magnitude = Signal(reset_less=True), Signal(len(value) - 1, reset_less=True)
            minus = ~value if table.middle else -value
            m.d.sync += [negative.eq(value < 0), magnitude.eq(Mux(value < 0, minus, value))]
            with m.If(self._unit.window):
                m.d.sync += [negative.eq(0), magnitude.eq(0)]
            found = self._unit.add_table(m, name, node.index, negative, magnitude)
            cycles += parameters.pipeline.table - 1
        result = Signal(signed(node.format.bits), name=f"{name}_value")
        above, below = table.negates
        inverts: Value = Const(below, 1)
        if above != below:
            inverts = delay(m, negative, cycles) ^ above
        m.d.comb += result.eq(Mux(inverts, -found, found))
        return result

    def _pieces(self, node: Node, name: str, x: Value, function: PiecewiseLinear) -> Value:
        """Pick a line; multiply; add, round and limit."""
        m = self._m
        slope = Signal(signed(function.slope_bits), reset_less=True, name=f"{name}_slope")
        offset = Signal(_range(function.offsets), reset_less=True, name=f"{name}_offset")
        slopes, offsets = list(function.slopes), list(function.offsets)
        m.d.sync += [slope.eq(slopes[0]), offset.eq(offsets[0])]
        for threshold, a, b in zip(function.thresholds, slopes[1:], offsets[1:], strict=True):
            with m.If(x >= threshold):
                m.d.sync += [slope.eq(a), offset.eq(b)]
        moved = delay(m, x, 1)
        product = multiply(m, moved, slope, self._unit.multiplier(name), f"{name}_product")
        half = (1 << function.extra) >> 1
        registers = self._manifest.parameters.pipeline.product
        total = (product + delay(m, offset, registers) + half) >> function.extra
        low, high = function.lowest, function.highest
        return self._register(node, name, Mux(total > high, high, Mux(total < low, low, total)))


def _range(values: tuple[int, ...]) -> object:
    """A signed shape that holds all values."""
    return signed(max(2, *(value.bit_length() + 1 for value in values)))
