"""The cell unit: a network's cells, each a pipeline made from its graph."""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed

from rtlstm.hdl.component import In, Out, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.statistics import exponent_bits, mantissa_bits, root_bits, times, total_bits
from rtlstm.hdl.core.unit import ResultKind, Unit, round_down
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.hdl.primitives.staged import Staged, combine, mux
from rtlstm.spec.activations.functions import PiecewiseLinear
from rtlstm.spec.cells.graph import Node
from rtlstm.spec.cells.pipelines import CellPipeline
from rtlstm.spec.cells.unit import GraphUnit
from rtlstm.spec.fixed import Format
from rtlstm.spec.inventory import MultiplierSpec
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.norms import statistics_stage
from rtlstm.spec.registers import Region


class CellUnit(Unit):
    """Computes every cell of the network for one unit a cycle; a beat says which one counts.

    Latency, from pre-activations to results: ``manifest.timing.of_units`` cycles, whatever the cell.
    Throughput: one beat per cycle. Rounding: as the graphs say, half up with symmetric saturation wherever a
    value is narrowed.
    """

    cell_zero_state: Signal = In(1)
    """Whether the state is zero, with ``cell_row``, three cycles before ``timing.state``."""
    unit_constants: Signal = In(
        lambda manifest: max(1, manifest.numerics.unit_parameters * manifest.numerics.weight_bits)
    )
    """The per-unit constants, with the pre-activations."""
    total: Signal = In(lambda manifest: signed(bits) if (bits := total_bits(manifest)) else None)
    root: Signal = In(root_bits)
    exponent: Signal = In(exponent_bits)
    """What norms need of all values, while theirs come."""
    odd: Signal = In(lambda manifest: 1 if manifest.numerics.norms else None)
    mantissa: Signal = In(mantissa_bits)
    found_root: Signal = Out(root_bits)
    """The argument of the root's table, which is in the first unit, a cycle before its register; the root."""
    window_bank: Signal = In(lambda manifest: row_bits(max(2, len(manifest.numerics.tables))))
    """While the memory window is open, the table that it looks at."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        self._timing = manifest.timing
        tables = manifest.regions[Region.TABLES].width if manifest.numerics.tables else 1
        super().__init__(manifest, index, {"cells": manifest.numerics.cell.bits, "tables": tables})

    def connect_beat(self, m: Module, unit_constants: Value, cell_zero_state: Value) -> None:
        """Connect per-unit constants, and early whether the state is zero."""
        m.d.comb += [self.unit_constants.eq(unit_constants), self.cell_zero_state.eq(cell_zero_state)]

    def connect_bank(self, m: Module, bank: Value) -> None:
        """Connect the window's bank: which table it looks at."""
        m.d.comb += self.window_bank.eq(bank)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._begin(m, max(self._timing.of_units, self._timing.keep))
        unit = self._manifest.numerics.unit
        assert isinstance(unit, GraphUnit)
        state, zero = self._read_state(m), delay(m, self.cell_zero_state, 2)
        shifts = dict.fromkeys(pipeline.shifts for pipeline in unit.pipelines)
        old = {
            mine: self._old_state(m, state, zero, mine, f"old{number}" if number else "old")
            for number, mine in enumerate(shifts)
        }
        self._entries: dict[int, Value] = {}
        self._several = len(unit.pipelines) > 1
        cells = [
            _Cell(self, m, number, pipeline, old[pipeline.shifts])
            for number, pipeline in enumerate(unit.pipelines)
        ]
        self._keep(m, cells)
        self._give(m, cells)
        if self._manifest.numerics.norms and self._index == 0:
            self._find_root(m)
        # A table's rows past its own read as zero, as the image has them.
        tables = self._manifest.numerics.tables
        entries = [
            Mux((self.window_bank == bank) & (self.window_row < tables[bank].rows), word, 0)
            for bank, word in sorted(self._entries.items())
        ]
        if entries:
            m.d.comb += self.entries.tables.eq(any_of(entries))
        return m

    def add_table(self, m: Module, name: str, index: int, negative: Staged, magnitude: Staged) -> Staged:
        """Add one of the network's tables; equal ones are written at once, and the first is read back."""
        table = self._manifest.numerics.tables[index]
        mine = self.write[Region.TABLES] & (self.window_bank == index) & (self.window_row < table.rows)
        value, entry = self._add_table(m, name, index, negative, magnitude, mine)
        self._entries.setdefault(index, entry)
        return value

    def _find_root(self, m: Module) -> None:
        """Look up the root that the statistics ask for."""
        argument = (
            Staged(m, value, 0).registered(f"root_{name}", zero=self.window)
            for name, value in (("odd", self.odd), ("mantissa", self.mantissa))
        )
        found = self.add_table(m, "root", self._manifest.numerics.norms[0].table, *argument)
        m.d.comb += self.found_root.eq(found.value)

    def add_gate_table(self, m: Module, name: str, index: int, gate: int) -> Staged:
        """Add one of the network's tables, of a gate."""
        return self.add_table(m, name, index, *self._table_argument(m, gate))

    def multiplier(self, name: str) -> MultiplierSpec:
        """Return the multiplier of a cell's node, which the inventory has by the node's name in Verilog."""
        return self._multipliers[name]

    def _chosen(self, beat: Struct, number: int) -> Value:
        """Whether a cell is the beat's."""
        return beat.cell == number if self._several else Const(1)

    def _keep(self, m: Module, cells: list["_Cell"]) -> None:
        """Write new states."""
        stage = self._timing.keep
        beat = self._beat_at(stage)
        kept = Signal(self._widths["cells"], name="kept")
        writes, clipped = Signal(name="keeps"), Signal(name="kept_clipped")
        for cell in cells:
            if cell.graph.state is None:
                continue
            new, beyond = cell.kept.at(stage), cell.clipped.at(stage)
            with m.If(self._chosen(beat, cell.number)):
                m.d.comb += [
                    kept.eq(new),
                    writes.eq(beat.valid & _yields(beat)),
                    clipped.eq(beyond),
                ]
        self._write_state(m, writes, Staged(m, kept, stage), Staged(m, clipped, stage))

    def _give(self, m: Module, cells: list["_Cell"]) -> None:
        """Give results and where they go."""
        result = self._manifest.parameters.pipeline.result
        last = self._timing.of_units - result
        value = Signal(self.value.shape(), name="chosen")
        for cell in cells:
            found = cell.values[cell.graph.result].at(last)
            with m.If(self._chosen(self._beat_at(last), cell.number)):
                m.d.comb += value.eq(found)
        self._announce(m, [ResultKind(self._timing.of_units, single=False, wanted=_yields)])
        m.d.comb += [self.of_units.eq(delay(m, value, result)), self.value.eq(self.of_units)]


def _yields(beat: Struct) -> Value:
    yields: Value = beat.lstm | (beat.dense & ~beat.writes_partial)
    return yields


class _Cell:
    """A pipeline; ``values`` are its graph's nodes'."""

    def __init__(self, unit: CellUnit, m: Module, number: int, pipeline: CellPipeline, old: Staged) -> None:
        self._unit = unit
        self._m = m
        self.number = number
        self._pipeline = pipeline
        self.graph = graph = pipeline.graph
        self._manifest = unit._manifest
        self.values: list[Staged] = []
        self.clipped = Staged(m, Const(0, 1), 0)
        """Whether what is kept saturated."""
        self._kept: Staged | None = None
        stages = graph.stages(self._manifest.parameters)
        if graph.state is not None:
            stages[graph.state] += pipeline.extra
        for node_number, node in enumerate(graph.nodes):
            if node.kind == "state":
                self.values.append(old)
                continue
            value = self._node(node_number, node)
            assert value.stage == stages[node_number], f"{node} has another stage than the schedule says"
            self.values.append(value)

    @property
    def kept(self) -> Staged:
        """What is kept, as it is in memory."""
        assert self.graph.state is not None
        return self.values[self.graph.state] if self._kept is None else self._kept

    def _node(self, node_number: int, node: Node) -> Staged:
        m, args = self._m, [self.values[arg] for arg in node.args]
        name = f"cell{self.number}_{node.kind}{node_number}"
        shape = signed(node.format.bits)
        match node.kind:
            case "gate":
                return combine(_with_sign, *self._signed_gate(node))
            case "parameter":
                # Its field has the bits of the widest weights.
                field = self._unit.unit_constants.word_select(node.index, self._manifest.numerics.weight_bits)
                return Staged(m, field, 0).as_signed(node.format.bits)
            case "constant":
                return Staged(m, Const(node.value, shape), 0)
            case "multiply":
                product = args[0].times(args[1], self._unit.multiplier(name), name)
                return product.as_signed(node.format.bits)
            case "add" | "subtract":
                left = [node.format.fraction - self.graph.nodes[index].format.fraction for index in node.args]

                def exact(a: Value, b: Value) -> Value:
                    a, b = a.shift_left(left[0]), b.shift_left(left[1])
                    return a + b if node.kind == "add" else a - b

                return combine(exact, *args).registered(name, shape)
            case "clamp":
                return _clipped(args[0], -node.value, node.value).registered(name, shape)
            case "floor":
                negative, magnitude = round_down(args[0].value, self._drop(node), node.format.bits)
                rounded = Staged(m, _with_sign(negative, magnitude), args[0].stage)
                return rounded.registered(name, shape)
            case "narrow":
                return self._narrow(node_number, node, name, args[0])
            case "table":
                return self._table(node, name, args[0])
            case "pieces":
                function = self._manifest.numerics.pieces[node.index]
                return self._pieces(name, args[0], function).registered(name, shape)
            case "normalise":
                return self._normalise(node, name, args[0])
            case _:
                raise AssertionError(node.kind)

    def _normalise(self, node: Node, name: str, x: Staged) -> Staged:
        """Subtract the mean, divide by the root's exponent, rounding down, and multiply with its mantissa."""
        unit, norm = self._unit, self._manifest.numerics.norms[node.index]
        x = x.later(statistics_stage(self._manifest.parameters) - x.stage)

        def deviation(value: Value) -> Value:
            scaled = times(value, norm.values)
            return scaled - unit.total if norm.centre else scaled

        def divided(value: Value, bits: range) -> Value:
            for bit in reversed(bits):
                kept = norm.shifted_bits + (1 << bit) - 1
                value = Mux(unit.exponent[bit], value.shift_right(1 << bit), value)[:kept].as_signed()
            return value

        bits, half = len(unit.exponent), len(unit.exponent) // 2
        found = x.map(deviation).registered(f"{name}_deviation", signed(norm.deviation_bits))
        found = found.map(lambda value: divided(value.shift_left(norm.left), range(half, bits)))
        found = found.registered(f"{name}_divided").map(lambda value: divided(value, range(half)))
        found = found.registered(f"{name}_factor", signed(norm.shifted_bits))
        product = found.times(Staged(self._m, unit.root, found.stage), unit.multiplier(name), name)
        return product.as_signed(node.format.bits)

    def _drop(self, node: Node) -> int:
        """Return the bits behind a node's last one that its argument has more."""
        return self.graph.nodes[node.args[0]].format.fraction - node.format.fraction

    def _signed_gate(self, node: Node) -> tuple[Staged, Staged]:
        wide = node.format.bits > self._manifest.numerics.preactivation.bits
        negative, magnitude = self._unit.gate_sum(node.index, wide)
        return Staged(self._m, negative, 0), Staged(self._m, magnitude, 0)

    def _narrow(self, node_number: int, node: Node, name: str, exact: Staged) -> Staged:
        """Round half up and limit, beside each other; what is kept, in its layer's format of c."""
        shifts = self._pipeline.shifts if node_number == self.graph.state else (0,)
        form, drop = Format(bits=node.format.bits - shifts[-1], fraction=0), self._drop(node)
        most = form.maximum
        if len(shifts) > 1:
            # What is shifted out changes neither a comparison with a limit nor what is rounded half up.
            value = self._unit.shifted(exact.value, exact.stage, shifts, "cell_shift", right=True)
            exact = Staged(self._m, value, exact.stage)
            exact = exact.registered(f"{name}_shifted") if self._pipeline.extra else exact
        half = (1 << drop) >> 1 if drop > 0 else 0

        def rounded(value: Value) -> Value:
            return (value + half).shift_right(drop)

        def over(value: Value) -> Value:
            return value >= ((most + 1) << drop) - half if drop >= 0 else rounded(value) > most

        def under(value: Value) -> Value:
            return value < (-most << drop) - half if drop >= 0 else rounded(value) < -most

        deep = 1 if self._manifest.parameters.pipeline.cell > 3 else 0
        above, below, kept = (exact.map(function).later(deep) for function in (over, under, rounded))
        if node_number == self.graph.state:
            self.clipped = (above | below).registered(f"{name}_clipped")
        result = mux(above, most, mux(below, -most, kept)).registered(name, signed(form.bits))
        if len(shifts) == 1:
            return result
        self._kept = result
        return Staged(
            self._m, self._unit.shifted(result.value, result.stage, shifts, "cell_shift"), result.stage
        )

    def _table(self, node: Node, name: str, x: Staged) -> Staged:
        """Look up a function; of what is not a gate, find sign and magnitude first."""
        source, table = self.graph.nodes[node.args[0]], self._manifest.numerics.tables[node.index]
        if source.kind == "gate":
            negative, _ = self._signed_gate(source)
            found = self._unit.add_gate_table(self._m, name, node.index, source.index)
        else:
            minus = x.map(lambda value: ~value if table.middle else -value)
            negative, magnitude = (
                each.registered(f"{name}_{part}", bits, zero=self._unit.window)
                for part, each, bits in (
                    ("negative", x[-1], 1),
                    ("magnitude", mux(x[-1], minus, x), len(x) - 1),
                )
            )
            found = self._unit.add_table(self._m, name, node.index, negative, magnitude)
        above, below = table.negates
        inverts: Staged | Value = Const(below, 1) if above == below else negative ^ above
        value = mux(inverts, found.map(lambda value: -value), found)
        return value.as_signed(node.format.bits).named(f"{name}_value")

    def _pieces(self, name: str, x: Staged, function: PiecewiseLinear) -> Staged:
        """Pick a line; multiply, add, round and limit."""
        slope, offset = (
            self._of_line(x, function.thresholds, values, f"{name}_{part}")
            for part, values in (("slope", function.slopes), ("offset", function.offsets))
        )
        product = x.times(
            slope.as_signed(function.slope_bits), self._unit.multiplier(name), f"{name}_product"
        )
        half = (1 << function.extra) >> 1
        total = (product + offset + half).map(lambda value: value.shift_right(function.extra))
        return _clipped(total, function.lowest, function.highest)

    def _of_line(self, x: Staged, thresholds: tuple[int, ...], values: tuple[int, ...], name: str) -> Staged:
        """Return the value of the last line whose threshold x has reached, from a register."""
        found = Signal(_range(values), name=f"{name}_of_line")
        self._m.d.comb += found.eq(values[0])
        for threshold, value in zip(thresholds, values[1:], strict=True):
            with self._m.If(x.value >= threshold):
                self._m.d.comb += found.eq(value)
        return Staged(self._m, found, x.stage).registered(name)


def _clipped(x: Staged, lowest: int, highest: int) -> Staged:
    return x.map(lambda value: Mux(value > highest, highest, Mux(value < lowest, lowest, value)))


def _with_sign(negative: Value, magnitude: Value) -> Value:
    """Return the value of a sign and a magnitude as a ``middle`` table counts it."""
    return Cat(magnitude ^ negative.replicate(len(magnitude)), negative).as_signed()


def _range(values: tuple[int, ...]) -> Shape:
    """A signed shape that holds all values."""
    return signed(max(2, *(value.bit_length() + 1 for value in values)))
