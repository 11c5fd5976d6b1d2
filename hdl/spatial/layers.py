"""Layers in space: products with constants as shared adders, and a gate unit for each hidden unit.

Values know their stage (:class:`~rtlstm.hdl.primitives.staged.Staged`), counted in cycles from a step's
acceptance. Where registers stand is decided in :mod:`rtlstm.spec.program.spatial`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib.memory import Memory

from rtlstm.hdl.core.cell_graph import CellValues, Signed
from rtlstm.hdl.core.rounding import clipped, exact_sum, odd_codes, rounded_state, with_sign
from rtlstm.hdl.core.unit import round_down
from rtlstm.hdl.primitives.pipeline import ConstantTable
from rtlstm.hdl.primitives.staged import Staged, combine, mux
from rtlstm.spec.adders import Term, share_adders
from rtlstm.spec.cells.graph import Node
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.inventory import ActivationSpec, activations, multipliers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import GUARD_BITS, LayerShape
from rtlstm.spec.program.spatial import ConstantLayer, Integers, ValueKind, input_sum_bits

KEPT_SUM = "_sum"
"""Part of the names of sums that synthesis keeps; their number follows. Without that, synthesis would make
carry-save adders of sums that are used once, which take LUTs beside the carry chains."""


@dataclass(frozen=True)
class Source:
    """What a layer multiplies with a matrix for its input."""

    constants: ConstantLayer
    """The matrix, its shifts, and a share of the biases."""
    shape: LayerShape
    x: Sequence[Staged]


@dataclass(frozen=True)
class Steps:
    """The steps on their way, by stage."""

    valid: Sequence[Value]
    """Whether there is one."""
    streams: Sequence[Value]
    """Its stream; in the first stage, while the memory window is open, the stream at which that looks. With
    one stream, this and what follows are empty."""
    zero: Sequence[Value]
    """Whether its stream begins with zeros."""
    follows: Sequence[Value]
    """Whether a step of the same stream is exactly as many stages ahead as the loop has registers."""


@dataclass(frozen=True)
class StateAccess:
    """What the memory window writes of a layer's state, by unit."""

    writes_h: Sequence[Value]
    writes_c: Sequence[Value]
    h: Sequence[Value]
    data: Value
    """What is written to c."""
    reset: Value
    """The states become zero. Of several streams, :attr:`Steps.zero` says so instead."""
    stream: Value
    """Whose state is written."""


class SpatialLayer:
    """What all layers have: a layer's constants, and where registers stand."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        assert manifest.spatial is not None, "only a spatial build has such layers"
        self._plan = manifest.spatial
        self.constants = manifest.spatial.layers[index]
        self.stages = manifest.spatial_schedule.stages[index]
        self._row_sums = partial(manifest.spatial_schedule.row_sums, index)
        self.shape: LayerShape = manifest.layers[index]
        self.numerics, self._streams = manifest.numerics, manifest.parameters.streams
        self._tables = activations(manifest)
        self._multipliers = multipliers(manifest)

    def _behind(self, kind: ValueKind, value: Staged, name: str) -> Staged:
        """Return a value, behind a register if values of its kind have one."""
        here = kind in self._plan.registered and not self.stages.nodes
        return value.registered(name) if here else value

    def _weighted(
        self,
        m: Module,
        name: str,
        matrix: IntArray,
        shift: Integers,
        x: Sequence[Staged],
        addends: Sequence[Staged],
        number: int,
    ) -> list[Staged]:
        """Return addends plus a matrix' products, shifted to their format and rounded down.

        ``number`` says which of the layer's matrices it is, for :meth:`SpatialSchedule.row_sums`.
        """
        bits, first = self.numerics.accumulator.partial_bits, x[0].stage
        moves = [self.numerics.accumulator.align - drop for drop in shift]
        sums = self._row_sums(number)
        halves, joined, stage = sums.halves, sums.joined, first + sums.stage
        graph = share_adders(matrix, moves if joined else None, sums.groups)
        nodes, depths = [*x, *addends][: graph.inputs], [0] * graph.inputs
        inputs = [len(node) for node in nodes]
        # Of what is shifted right, and of a result, no more bits are read.
        most = bits - min(0, *moves)
        half = graph.depth // 2 if halves else graph.depth

        def term_of(term: Term, stage: int) -> Staged:
            """Return a node's value, shifted; what half of the adders gave has a register."""
            value = nodes[term.node].later(stage - nodes[term.node].stage)
            return value.map(lambda bits: bits.shift_left(term.shift))

        for number, adder in enumerate(graph.adders, graph.inputs):
            depths.append(1 + max(depths[term.node] for term in (adder.first, adder.second)))
            at = first + (depths[-1] > half)
            one, other = term_of(adder.first, at), term_of(adder.second, at)
            shape = signed(min(most, graph.bits(number, inputs)))
            total = Signal(shape, name=f"{name}{KEPT_SUM}{number}")
            m.d.comb += total.eq((one - other if adder.second.negative else one + other).value)
            nodes.append(Staged(m, total, at))
        found = []
        for row, (term, move, addend) in enumerate(zip(graph.rows, moves, addends, strict=True)):
            value, negative = Staged(m, Const(0, signed(1)), first + halves), False
            if term is not None:
                value, negative = term_of(term, first + halves), term.negative
            if joined:
                result = value.map(partial(_moved, by=min(0, move)))
            else:
                if negative and move < 0:
                    # What is rounded down needs its sign before.
                    value, negative = value.map(lambda value: -value), False
                product = self._behind("products", value, f"{name}_row{row}")
                product = product.later(max(0, stage - product.stage)).map(partial(_moved, by=move))
                result = addend - product if negative else addend + product
            # It cannot overflow.
            found.append(result.named(f"{name}_part{row}", signed(bits)))
        return found

    def _sums(self, m: Module, name: str, sources: Sequence[Source]) -> list[Staged]:
        """Return the rows' sums of biases and products with the input."""
        bits = self.numerics.accumulator.partial_bits
        biases = np.sum([source.constants.bias for source in sources], axis=0).tolist()
        first = sources[0].x[0].stage
        sums = [Staged(m, Const(bias, signed(bits)), first) for bias in biases]
        for number, source in enumerate(sources):
            mine, constants, x = f"{name}{number or ''}", source.constants, source.x
            if source.shape.input_relu:
                x = [value.map(lambda bits: Mux(bits[-1], 0, bits).as_signed()) for value in x]
            sums = self._weighted(m, mine, constants.matrices[0], constants.shift, x, sums, number)
        return sums

    def _argument(self, total: Staged, kind: str, name: str) -> tuple[Staged, Staged]:
        """Return sign and magnitude of a pre-activation, the argument of a table.

        A table in block RAM has a register already, in place of that behind pre-activations.
        """
        bits = self.numerics.preactivation.bits
        parts = round_down(total.value, GUARD_BITS, bits)
        m = total._m
        negative, magnitude = (Staged(m, part, total.stage) for part in parts)
        if self._spec(kind).memory.latency:
            return negative, magnitude
        return self._behind("sums", negative, f"{name}_negative"), self._behind("sums", magnitude, name)

    def cell(
        self, m: Module, first: int, sums: Sequence[Staged], number: int, old: Staged | None = None
    ) -> "GraphCell":
        """Add the cell of a unit or a row; stages of the plan count from ``first``: h, or else the input."""
        bits, stage = self.numerics.sum_bits(self.shape.cell), first + self.stages.gates
        gates = list[Signed]()
        for total in sums:
            total = total.later(stage - total.stage)
            negative, magnitude = round_down(total.value, GUARD_BITS, bits)
            gates.append((Staged(m, negative, stage), Staged(m, magnitude, stage)))
        return GraphCell(m, self, first, gates, number, old)

    def _table(self, m: Module, kind: str, name: str, negative: Staged, magnitude: Staged) -> Staged:
        """Return a table's value, without its sign."""
        return self.look_up(m, name, self._spec(kind).number, negative, magnitude)

    def _spec(self, kind: str) -> ActivationSpec:
        return self._tables[[use for use, _, _ in self.numerics.unit.table_uses].index(kind)]

    def look_up(self, m: Module, name: str, number: int, negative: Staged, magnitude: Staged) -> Staged:
        """Return the value, without its sign, of one of the unit's ``table_uses``."""
        spec = self._tables[number]
        m.submodules[name] = table = ConstantTable(spec)
        row = combine(Cat, magnitude, negative) if spec.table.halves == 2 else magnitude
        m.d.comb += table.read.addr.eq(row.value)
        return Staged(m, table.read.data[: spec.table.base_bits], row.stage + spec.memory.latency)

    def _product(self, kind: ValueKind, spec_name: str, name: str, a: Staged, b: Staged) -> Staged:
        """Return the exact product of two values, behind a register if products have one."""
        spec = self._multipliers[spec_name]
        if kind in self._plan.registered:
            return a.times(b, spec, name)

        def times(a: Value, b: Value) -> Value:
            # Of signed factors, as DSP blocks take them.
            return (Cat(a, Const(0, 1)).as_signed() if not a.shape().signed else a) * (
                Cat(b, Const(0, 1)).as_signed() if not b.shape().signed else b
            )

        return combine(times, a, b).named(name)


class DenseLayer(SpatialLayer):
    """A dense layer with its function; results come ``stages.registers`` cycles after its input."""

    def add(self, m: Module, name: str, sources: Sequence[Source]) -> list[Staged]:
        """Add it to a module; return its results."""
        sums = self._sums(m, name, sources)
        return [self._result(m, f"{name}_{row}", total) for row, total in enumerate(sums)]

    def _result(self, m: Module, name: str, total: Staged) -> Staged:
        form, activation = self.shape.output, self.shape.activation
        if self.shape.linear:
            return self._linear(total, name)
        negative, magnitude = self._argument(total, activation, f"{name}_argument")
        value = self._table(m, activation, f"{name}_table", negative, magnitude)
        value = self._behind("gates", value, f"{name}_value")
        sign = negative & (activation == "tanh")
        drop = self.numerics.gate.fraction - form.fraction
        # Results that are wider than gates have zeros behind.
        value = value if drop >= 0 else value.map(lambda bits: bits.shift_left(-drop))
        return with_sign(value, sign, max(0, drop), form, f"{name}_signed", 0).registered(name)

    def _linear(self, total: Staged, name: str) -> Staged:
        limit = self.shape.output.maximum
        total = self._behind("sums", total, f"{name}_total").map(lambda bits: bits.shift_right(GUARD_BITS))
        negative = total.map(lambda bits: bits[-1])
        found = clipped((total > limit) | (total < -limit), negative, limit, total)
        if self.shape.activation == "relu":
            found = mux(negative, 0, found)
        return found.as_signed(self.shape.output.bits).registered(name)


class RecurrentLayer(SpatialLayer):
    """A recurrent layer: h and what its cells keep, and a gate unit for each of its units.

    The input's share of the sums meets h ``stages.input`` cycles after the layer's input. The next h is there
    ``plan.loop_registers`` cycles after that.
    """

    def __init__(self, manifest: Manifest, index: int) -> None:
        super().__init__(manifest, index)
        shape, given = self.shape, manifest.layers[index + self.shape.feedback]
        self._tail = LoopTail(manifest, index + 1) if shape.feedback else None
        kept = [] if shape.state is None or not shape.has_state else [shape.state.bits] * shape.outputs
        self.h = [Signal(signed(given.output.bits), name=f"h{unit}") for unit in range(given.outputs)]
        self.c = [Signal(signed(bits), name=f"c{unit}") for unit, bits in enumerate(kept)]
        self.saturated = [Signal(name=f"saturated{unit}") for unit in range(len(kept))]
        """Which units' c saturated in the last cycle."""

    @abstractmethod
    def _unit(self, m: Module, number: int, sums: Sequence[Staged]) -> Staged:
        """Add a gate unit: what is kept follows from a unit's sums, and h, which is returned."""

    def add(
        self, m: Module, name: str, sources: Sequence[Source], steps: Steps, access: StateAccess
    ) -> list[Staged]:
        """Add it to a module; return h."""
        constants, units, stages = self.constants, self.shape.outputs, self.stages
        self._steps, self._access = steps, access
        self._first = stage = sources[0].x[0].stage + stages.input
        if self.shape.recurrent:
            parts = self._sums(m, f"{name}_x", sources)
            widths = input_sum_bits([source.constants for source in sources], self.numerics)
            parts = [
                part.later(stage - 1 - part.stage).registered(f"{name}_in{row}", signed(bits))
                for row, (part, bits) in enumerate(zip(parts, widths, strict=True))
            ]
            h, matrix = [Staged(m, value, stage) for value in self.h], constants.matrices[1]
            parts = [Staged(m, part.value, stage) for part in parts]
            parts = self._weighted(m, f"{name}_h", matrix, constants.recurrent_shift, h, parts, -1)
        else:
            later = [replace(each, x=[x.later(stages.input) for x in each.x]) for each in sources]
            parts = self._sums(m, f"{name}_x", later)
        results = list[tuple[Module, Staged]]()
        for number in range(units):
            m.submodules[f"{name}_unit{number}"] = unit = Module()
            sums = [Staged(unit, part.value, part.stage) for part in parts[number::units]]
            results.append((unit, self._unit(unit, number, sums)))
        if self._tail is not None:
            inner = [Staged(m, value.value, value.stage) for _, value in results]
            results = self._tail.add(m, f"{name}_tail", self, stage, inner, parts)
        given = []
        for number, (unit, new) in enumerate(results):
            # If the rows do not read h, nothing reads the old one before it is replaced.
            old = Staged(unit, self.h[number], stage if self.shape.recurrent else new.stage)
            given.append(self._keep(unit, old, new, access.writes_h[number], access.h[number]))
        return [Staged(m, value.value, value.stage) for value in given]

    def _keep(self, m: Module, old: Staged, new: Staged, writes: Value, data: Value) -> Staged:
        """Keep a value from step to step of a stream; return the new one a stage later. The window writes it,
        too.

        ``old`` is the value from the stream's last step, in the stage in which this step reads it; its signal
        becomes a register here. With one stream, the new value goes there. With several, a memory keeps it,
        and the register gets what that has of the stream, or the new value itself if that is just coming.
        """
        steps, access, value = self._steps, self._access, old.value
        assert isinstance(value, Signal)
        if not steps.streams:
            with m.If(steps.valid[new.stage]):
                m.d.sync += value.eq(new.value)
            with m.If(writes):
                m.d.sync += value.eq(data)
            with m.If(access.reset):
                m.d.sync += value.eq(0)
            return Staged(m, value, new.stage + 1)
        name = f"{value.name}_kept"
        memory: Memory[Any, Any] = Memory(shape=unsigned(len(value)), depth=self._streams, init=[])
        m.submodules[name] = memory
        read, write = memory.read_port(domain="comb"), memory.write_port()
        before = old.stage - 1
        found = Mux(steps.zero[before], 0, read.data)
        if new.stage == before + self._plan.loop_registers:
            found = Mux(steps.follows[before], new.value, found)
        m.d.comb += [
            read.addr.eq(steps.streams[before]),
            write.addr.eq(Mux(writes, access.stream, steps.streams[new.stage])),
            write.data.eq(Mux(writes, data, new.value)),
            write.en.eq(writes | steps.valid[new.stage]),
        ]
        m.d.sync += value.eq(found)
        return new.registered(f"{value.name}_new")

    def keep_cell(self, m: Module, number: int, cell: Staged, beyond: Staged, read: int) -> None:
        """Keep a unit's c, whose old value is read in the stage ``read``; note whether it saturated."""
        m.d.sync += self.saturated[number].eq(beyond.value & self._steps.valid[beyond.stage])
        old = Staged(m, self.c[number], read)
        self._keep(m, old, cell, self._access.writes_c[number], self._access.data)


class LstmLayer(RecurrentLayer):
    """An LSTM layer with the functions of the fused gate unit."""

    def _unit(self, m: Module, number: int, sums: Sequence[Staged]) -> Staged:
        signs, gates = list[Staged](), list[Staged]()
        for gate, total in enumerate(sums):
            kind = "tanh" if gate == 2 else "sigmoid"
            negative, magnitude = self._argument(total, kind, f"argument{gate}")
            value = self._table(m, kind, f"table{gate}", negative, magnitude)
            signs.append(negative)
            gates.append(self._behind("gates", value, f"gate{gate}"))
        total = self._cell_sum(m, number, gates, signs[2])
        drop = self._fraction - self._state.fraction
        cell, beyond = rounded_state(total, drop, self._state.maximum)
        self.keep_cell(m, number, cell, beyond, gates[1].stage)
        return self._hidden(m, gates[3], total)

    @property
    def _state(self) -> Format:
        assert self.shape.state is not None
        return self.shape.state

    @property
    def _fraction(self) -> int:
        """Fraction bits of ``f * c + i * g``."""
        gate = self.numerics.gate
        return gate.fraction + max(self._state.fraction, gate.fraction)

    def _cell_sum(self, m: Module, number: int, gates: Sequence[Staged], minus: Staged) -> Staged:
        gate = self.numerics.gate
        old = Staged(m, self.c[number], gates[1].stage)
        kept = self._product("multiplied", "f c", "kept", gates[1], old)
        added = self._product("multiplied", "i g", "added", gates[0], gates[2])
        shifts = self._fraction - gate.fraction - self._state.fraction, self._fraction - 2 * gate.fraction
        bits = 2 + max(gate.bits + self._state.bits + shifts[0], 2 * gate.bits + shifts[1])
        total = exact_sum(kept, added, minus, shifts, bits).as_signed(bits).named("total")
        return self._behind("total", total, "total_later")

    def _hidden(self, m: Module, output_gate: Staged, total: Staged) -> Staged:
        numerics, form = self.numerics, self.shape.output
        argument = numerics.cell_argument
        drop = self._fraction - argument.fraction
        parts = round_down(total.value, drop, argument.bits)
        negative, magnitude = (
            self._behind("argument", Staged(m, part, total.stage), name)
            for name, part in zip(("argument_negative", "argument"), parts, strict=True)
        )
        bent = self._table(m, "cell tanh", "cell_table", negative, magnitude)
        bent = self._behind("bent", bent, "bent")
        product = self._product("output", "o tanh(c)", "output", output_gate, bent)
        drop = 2 * numerics.gate.fraction - form.fraction
        if drop < 0:
            product, drop = product.map(partial(_moved, by=-drop)), 0
        if numerics.hidden_rounding == "odd":
            nothing = (output_gate == 0) | (bent == 0)
            return odd_codes(product[:-1], negative & ~nothing, drop, form).named("new")
        return with_sign(product[:-1], negative, drop, form, "new", 0)


class GraphCell(CellValues):
    """The cell of a unit or a row: each operation in the stage that the plan has for it."""

    def __init__(
        self,
        m: Module,
        layer: "SpatialLayer",
        first: int,
        gates: Sequence[Signed],
        number: int,
        old: Staged | None,
    ) -> None:
        numerics = layer.numerics
        super().__init__(m, numerics.cells[layer.shape.cell], numerics, "cell")
        self._layer, self._first, self._gates, self._number = layer, first, gates, number
        for position, node in enumerate(self.graph.nodes):
            self._stage = first + layer.stages.nodes[position]
            if node.kind == "state":
                assert old is not None, "a layer whose cell reads a state keeps one"
                self.values.append(old)
            else:
                self.values.append(self.node(position, node))

    def argument(self, node_number: int) -> Staged:
        """Return a value in the stage of the operation that reads it."""
        return self._here(self.values[node_number])

    def _here(self, value: Staged) -> Staged:
        return value.later(self._stage - value.stage)

    def signed_gate(self, node: Node) -> Signed:
        """Return a gate's rounded sum."""
        negative, magnitude = self._gates[node.index]
        return self._here(negative), self._here(magnitude)

    def parameter(self, node: Node) -> Staged:
        """Return a constant."""
        value = self._layer.constants.parameters[self._number][node.index]
        return Staged(self._m, Const(value, signed(node.format.bits)), self._first)

    def registered(self, value: Staged, name: str, shape: Shape | int | None = None) -> Staged:
        """Return it as a signal, without a register: :meth:`argument` delays what an operation reads."""
        signal = Signal(value.value.shape() if shape is None else shape, name=name)
        self._m.d.comb += signal.eq(value.value)
        return Staged(self._m, signal, value.stage)

    def times(self, a: Staged, b: Staged, name: str) -> Staged:
        """Return a product, which synthesis makes of a DSP block."""
        return combine(lambda a, b: a * b, a, b).named(name)

    def look_up(self, name: str, node: Node, gate: Node | None, argument: Signed) -> Staged:
        """Return the value of a constant table."""
        return self._layer.look_up(self._m, name, node.index, *argument)


class GraphDenseLayer(SpatialLayer):
    """A dense layer whose function is a graph."""

    def add(self, m: Module, name: str, sources: Sequence[Source]) -> list[Staged]:
        """Add it to a module; return its results."""
        first, found = sources[0].x[0].stage, []
        for number, total in enumerate(self._sums(m, name, sources)):
            m.submodules[f"{name}_row{number}"] = row = Module()
            cell = self.cell(row, first, [Staged(row, total.value, total.stage)], number)
            value = cell.values[cell.graph.result]
            value = value.later(first + self.stages.registers - 1 - value.stage).registered("result")
            found.append(Staged(m, value.value, value.stage))
        return found


class GraphRecurrentLayer(RecurrentLayer):
    """A recurrent layer whose cell is a graph."""

    def _unit(self, m: Module, number: int, sums: Sequence[Staged]) -> Staged:
        cell = self.keep_graph(m, self, self._first, sums, number)
        value = cell.values[cell.graph.result]
        # A tail takes it as soon as it is there.
        registered = self._tail is None
        last = self._first + self.stages.registers - self.stages.input - registered
        return value.later(last - value.stage)

    def keep_graph(
        self, m: Module, layer: SpatialLayer, first: int, sums: Sequence[Staged], number: int
    ) -> "GraphCell":
        """Add the cell of a unit of this layer or its tail; what it keeps is this layer's state."""
        graph = layer.numerics.cells[layer.shape.cell]
        reads = [
            first + stage
            for node, stage in zip(graph.nodes, layer.stages.nodes, strict=True)
            if node.kind == "state"
        ]
        old = Staged(m, self.c[number], reads[0]) if reads else None
        cell = layer.cell(m, first, sums, number, old)
        if graph.state is not None:
            kept = cell.values[graph.state]
            self.keep_cell(m, number, kept, cell.clipped, reads[0] if reads else kept.stage)
        return cell


class LoopTail(SpatialLayer):
    """What gives the h of the layer before it: its projection, or the part of a GRU behind its reset.

    Its stages count from that layer's h on.
    """

    def add(
        self,
        m: Module,
        name: str,
        layer: RecurrentLayer,
        first: int,
        inner: Sequence[Staged],
        sums: Sequence[Staged],
    ) -> list[tuple[Module, Staged]]:
        """Add it to a module; return a module and its result for each of h, which is registered there.

        ``first`` is the stage of that layer's h, ``inner`` its results, ``sums`` those of its rows.
        """
        assert isinstance(layer, GraphRecurrentLayer), "the layer's stages say where its results are"
        constants, stages, shape = self.constants, self.stages, self.shape
        x = [value.later(first + stages.input - value.stage) for value in inner]
        if shape.four_rows:
            # Each row adds its products to the sum of the same row of the layer before.
            sums = self._weighted(m, name, constants.matrices[0], constants.shift, x, sums, 0)
        else:
            sums = self._sums(m, name, [Source(constants, shape, x)])
        found = []
        for number in range(shape.outputs):
            m.submodules[f"{name}{number}"] = unit = Module()
            mine = [Staged(unit, part.value, part.stage) for part in sums[number :: shape.outputs]]
            cell = layer.keep_graph(unit, self, first, mine, number)
            value = cell.values[cell.graph.result]
            found.append((unit, value.later(first + self._plan.loop_registers - 1 - value.stage)))
        return found


def _moved(value: Value, by: int) -> Value:
    """Return a value shifted left, or right if ``by`` is negative."""
    return value.shift_left(by) if by >= 0 else value.shift_right(-by)
