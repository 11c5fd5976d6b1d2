"""The cell unit: a network's cells, each a pipeline made from its graph."""

from amaranth.hdl import Const, Module, Mux, Signal, Value

from rtlstm.hdl.component import In, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.cell_graph import CellValues, Signed
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.unit import ResultKind, Unit
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.hdl.primitives.staged import Staged
from rtlstm.spec.cells.graph import CellPipeline, Node
from rtlstm.spec.cells.unit import GraphUnit
from rtlstm.spec.fixed import Format
from rtlstm.spec.inventory import MultiplierSpec
from rtlstm.spec.manifest import Manifest
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
    window_bank: Signal = In(lambda manifest: row_bits(max(2, len(manifest.numerics.tables))))
    """While the memory window is open, the table that it looks at."""

    def __init__(self, manifest: Manifest) -> None:
        self._timing = manifest.timing
        super().__init__(manifest)

    def connect_beat(self, m: Module, unit_constants: Value, cell_zero_state: Value) -> None:
        """Connect per-unit constants, and early whether the state is zero."""
        m.d.comb += [self.unit_constants.eq(unit_constants), self.cell_zero_state.eq(cell_zero_state)]

    def connect_bank(self, m: Module, bank: Value) -> None:
        """Connect the window's bank: which table it looks at."""
        m.d.comb += self.window_bank.eq(bank)

    def inside(self) -> Module:
        m = Module()
        self._begin(m, max(self._timing.slowest, self._timing.keep))
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
        kept = Signal(self._manifest.numerics.cell.bits, name="kept")
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
        self._announce(m, [ResultKind(self._timing.of_units, single=False, wanted=_yields), *self.of_norms()])
        m.d.comb += self.of_units.eq(delay(m, value, result))
        if self._manifest.numerics.norms:
            m.d.comb += [
                self.of_rows.eq(self.normed),
                self.value.eq(Mux(self.result.single, self.of_rows, self.of_units)),
            ]
        else:
            m.d.comb += self.value.eq(self.of_units)


def _yields(beat: Struct) -> Value:
    yields: Value = beat.lstm | (beat.dense & ~beat.writes_partial)
    return yields


class _Cell(CellValues):
    """A pipeline; ``values`` are its graph's nodes'."""

    def __init__(self, unit: CellUnit, m: Module, number: int, pipeline: CellPipeline, old: Staged) -> None:
        self._manifest = unit._manifest
        super().__init__(m, pipeline.graph, self._manifest.numerics, f"cell{number}")
        self._unit, self.number, self._pipeline = unit, number, pipeline
        self._kept: Staged | None = None
        stages = self.graph.stages(self._manifest.parameters)
        if self.graph.state is not None:
            stages[self.graph.state] += pipeline.extra
        for node_number, node in enumerate(self.graph.nodes):
            if node.kind == "state":
                self.values.append(old)
                continue
            value = self.node(node_number, node)
            assert value.stage == stages[node_number], f"{node} has another stage than the schedule says"
            self.values.append(value)

    @property
    def kept(self) -> Staged:
        assert self.graph.state is not None
        return self.values[self.graph.state] if self._kept is None else self._kept

    def signed_gate(self, node: Node) -> Signed:
        """Return what the drain gives."""
        wide = node.format.bits > self._numerics.preactivation.bits
        negative, magnitude = self._unit.gate_sum(node.index, wide)
        return Staged(self._m, negative, 0), Staged(self._m, magnitude, 0)

    def parameter(self, node: Node) -> Staged:
        """Return a field of what comes with the sums: it has the bits of the widest weights."""
        field = self._unit.unit_constants.word_select(node.index, self._numerics.weight_bits)
        return Staged(self._m, field, 0).as_signed(node.format.bits)

    def times(self, a: Staged, b: Staged, name: str) -> Staged:
        """Return a product of the node's multiplier, which the inventory has by this name."""
        return a.times(b, self._unit.multiplier(name), name)

    def times_slope(self, x: Staged, slope: Staged, name: str) -> Staged:
        """Return the product of the node's multiplier."""
        return x.times(slope, self._unit.multiplier(name), f"{name}_product")

    def look_up(self, name: str, node: Node, gate: Node | None, argument: Signed) -> Staged:
        """Return the value of a table in memory."""
        if gate is not None:
            return self._unit.add_gate_table(self._m, name, node.index, gate.index)
        return self._unit.add_table(self._m, name, node.index, *argument)

    def for_table(self, value: Staged, name: str, bits: int) -> Staged:
        """Return it behind a register, which is 0 while the window looks at the table."""
        return value.registered(name, bits, zero=self._unit.window)

    def rounded(self, value: Staged) -> Staged:
        """Return it behind the register that there is in deep pipelines."""
        return value.later(1 if self._manifest.parameters.pipeline.cell > 3 else 0)

    def narrow(self, node_number: int, node: Node, name: str, exact: Staged) -> Staged:
        """Round half up and limit; what is kept, in its layer's format of c."""
        shifts = self._pipeline.shifts if node_number == self.graph.state else (0,)
        if len(shifts) == 1:
            return super().narrow(node_number, node, name, exact)
        # What is shifted out changes neither a comparison with a limit nor what is rounded half up.
        value = self._unit.shifted(exact.value, exact.stage, shifts, "cell_shift", right=True)
        exact = Staged(self._m, value, exact.stage)
        exact = exact.registered(f"{name}_shifted") if self._pipeline.extra else exact
        form = Format(bits=node.format.bits - shifts[-1], fraction=0)
        self._kept = result = self._limited(node_number, node, name, exact, form)
        return Staged(
            self._m, self._unit.shifted(result.value, result.stage, shifts, "cell_shift"), result.stage
        )
