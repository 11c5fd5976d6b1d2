"""Layers in space: products with constants as shared adders, and a gate unit for each hidden unit.

Values know their stage (:class:`~rtlstm.hdl.primitives.staged.Staged`), counted in cycles from a step's
acceptance. The plan says behind which kinds of values a register stands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib.memory import Memory

from rtlstm.hdl.core.rounding import clipped, exact_sum, odd_codes, rounded_state, with_sign
from rtlstm.hdl.core.unit import round_down
from rtlstm.hdl.primitives.pipeline import ConstantTable
from rtlstm.hdl.primitives.staged import Staged, combine, mux
from rtlstm.spec.adders import share_adders
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.inventory import ActivationSpec, activations, multipliers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import GUARD_BITS, LayerShape
from rtlstm.spec.program.spatial import Integers, ValueKind

Product = tuple[Staged, bool]
"""A row's product, and whether it is to be subtracted."""


@dataclass(frozen=True)
class Steps:
    """The steps on their way, by stage."""

    valid: Sequence[Value]
    """Whether there is one."""
    streams: Sequence[Value]
    """Its stream; while the memory window is open, that at which it looks. Empty, as the others, with one."""
    zero: Sequence[Value]
    """Whether that begins with zeros."""
    follows: Sequence[Value]
    """Whether a step of its stream is as many stages ahead as the loop has registers."""


@dataclass(frozen=True)
class StateAccess:
    """What the memory window writes of a layer's state, by unit."""

    writes_h: Sequence[Value]
    writes_c: Sequence[Value]
    h: Sequence[Value]
    data: Value
    """What is written to c."""
    reset: Value
    """All of them become zero; of several streams, :attr:`Steps.zero` says so."""
    stream: Value
    """Whose state is written."""


class SpatialLayer:
    """What all layers have: a layer's constants, and where registers stand."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        assert manifest.spatial is not None, "only a spatial build has such layers"
        self._plan = manifest.spatial
        self._constants = manifest.spatial.layers[index]
        self.shape: LayerShape = manifest.layers[index]
        self._numerics, self._streams = manifest.numerics, manifest.parameters.streams
        self._tables: Mapping[str, ActivationSpec] = {
            name: spec
            for (name, _, _), spec in zip(
                manifest.numerics.unit.table_uses, activations(manifest), strict=True
            )
        }
        self._multipliers = multipliers(manifest)

    def _behind(self, kind: ValueKind, value: Staged, name: str) -> Staged:
        """Return a value, behind a register if values of its kind have one."""
        return value.registered(name) if kind in self._plan.registered else value

    def _read(self, x: Sequence[Staged]) -> Sequence[Staged]:
        """Return what the layer's weights multiply: its input, perhaps with ReLU."""
        if not self.shape.input_relu:
            return x
        return [value.map(lambda bits: Mux(bits[-1], 0, bits).as_signed()) for value in x]

    def _products(
        self, m: Module, name: str, matrix: IntArray, shift: Integers, vector: Sequence[Staged]
    ) -> list[Product]:
        """Return a matrix' products, shifted to the format of the partial sums and rounded down."""
        graph, stage = share_adders(matrix), vector[0].stage
        bits = len(vector[0])
        nodes = [each.at(stage) for each in vector]
        for number, adder in enumerate(graph.adders, graph.inputs):
            total = Signal(
                signed((graph.largest[number] << bits - 1).bit_length() + 1), name=f"{name}_sum{number}"
            )
            first, second = (nodes[term.node].shift_left(term.shift) for term in (adder.first, adder.second))
            m.d.comb += total.eq(first - second if adder.second.negative else first + second)
            nodes.append(total)
        found = []
        for row, (term, drop) in enumerate(zip(graph.rows, shift, strict=True)):
            value: Value = Const(0, signed(1))
            negative, moves = False, self._numerics.accumulator.align - drop
            if term is not None:
                value, negative = nodes[term.node].shift_left(term.shift), term.negative
            if negative and moves < 0:
                # What is rounded down needs its sign before.
                value, negative = -value, False
            product = self._behind("products", Staged(m, value, stage), f"{name}_row{row}")
            aligned = product.map(partial(_moved, by=moves))
            found.append((aligned, negative))
        return found

    def _add(self, total: Staged, product: Product, name: str) -> Staged:
        """Add a product to a sum, which cannot overflow; the result is a signal of this name."""
        value, negative = product
        bits = self._numerics.accumulator.partial_bits
        result = total - value if negative else total + value
        return result.map(lambda whole: whole[:bits].as_signed()).named(name)

    def _sums(self, m: Module, name: str, x: Sequence[Staged]) -> list[Staged]:
        """Return the rows' sums of biases and products with the input."""
        constants = self._constants
        products = self._products(m, name, constants.matrices[0], constants.shift, self._read(x))
        bits, stage = self._numerics.accumulator.partial_bits, products[0][0].stage
        return [
            self._add(Staged(m, Const(bias, signed(bits)), stage), product, f"{name}_part{row}")
            for row, (bias, product) in enumerate(zip(constants.bias, products, strict=True))
        ]

    def _argument(self, total: Staged, name: str) -> tuple[Staged, Staged]:
        """Return sign and magnitude of a pre-activation."""
        bits = self._numerics.preactivation.bits
        parts = round_down(total.value, GUARD_BITS, bits)
        m = total._m
        negative, magnitude = (Staged(m, part, total.stage) for part in parts)
        return self._behind("sums", negative, f"{name}_negative"), self._behind("sums", magnitude, name)

    def _table(self, m: Module, kind: str, name: str, negative: Staged, magnitude: Staged) -> Staged:
        """Return a table's value, without its sign."""
        spec = self._tables[kind]
        m.submodules[name] = table = ConstantTable(spec)
        row = combine(Cat, magnitude, negative) if spec.table.halves == 2 else magnitude
        m.d.comb += table.read.addr.eq(row.value)
        return Staged(m, table.read.data[: spec.table.base_bits], row.stage)

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
    """A dense layer with its function; results come ``plan.registers(shape)`` cycles after its input."""

    def add(self, m: Module, name: str, x: Sequence[Staged]) -> list[Staged]:
        """Add it to a module; return its results."""
        sums = self._sums(m, name, x)
        return [self._result(m, f"{name}_{row}", total) for row, total in enumerate(sums)]

    def _result(self, m: Module, name: str, total: Staged) -> Staged:
        form, activation = self.shape.output, self.shape.activation
        if self.shape.linear:
            return self._linear(total, name)
        negative, magnitude = self._argument(total, f"{name}_argument")
        value = self._table(m, activation, f"{name}_table", negative, magnitude)
        value = self._behind("gates", value, f"{name}_value")
        sign = negative & (activation == "tanh")
        drop = self._numerics.gate.fraction - form.fraction
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


class LstmLayer(SpatialLayer):
    """An LSTM layer: h and c in registers, and a gate unit for each of its units.

    From its input on, ``plan.input_registers`` cycles later the input's share of the sums meets h, and
    ``plan.loop_registers`` cycles later the next h is there.
    """

    def __init__(self, manifest: Manifest, index: int) -> None:
        super().__init__(manifest, index)
        shape = self.shape
        assert shape.state is not None
        self._state = shape.state
        self.h = [Signal(signed(shape.output.bits), name=f"h{unit}") for unit in range(shape.outputs)]
        self.c = [Signal(signed(shape.state.bits), name=f"c{unit}") for unit in range(shape.outputs)]
        self.saturated = [Signal(name=f"saturated{unit}") for unit in range(shape.outputs)]
        """Which units' c saturated in the last cycle."""

    def add(
        self, m: Module, name: str, x: Sequence[Staged], steps: Steps, access: StateAccess
    ) -> list[Staged]:
        """Add it to a module; return h."""
        constants, units = self._constants, self.shape.outputs
        self._steps, self._access = steps, access
        parts = [part.registered(f"{name}_in{row}") for row, part in enumerate(self._sums(m, f"{name}_x", x))]
        stage = parts[0].stage
        h = [Staged(m, value, stage) for value in self.h]
        products = self._products(m, f"{name}_h", constants.matrices[1], constants.recurrent_shift, h)
        given = []
        for number in range(units):
            m.submodules[f"{name}_unit{number}"] = unit = Module()
            rows = range(number, 4 * units, units)
            sums = [
                self._add(Staged(unit, parts[row].value, stage), products[row], f"sum{gate}")
                for gate, row in enumerate(rows)
            ]
            new = self._unit(unit, number, sums)
            window = access.writes_h[number], access.h[number]
            given.append(self._keep(unit, Staged(unit, self.h[number], stage), new, *window))
        return [Staged(m, value.value, value.stage) for value in given]

    def _keep(self, m: Module, old: Staged, new: Staged, writes: Value, data: Value) -> Staged:
        """Keep a value from step to step of a stream, written by the window, too; return it a stage later.

        ``old`` is a signal in the stage in which it is the step's value from before. It is a register of the
        only stream; or what a memory has of the step's stream, perhaps from a step that it just follows.
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

    def _unit(self, m: Module, number: int, sums: Sequence[Staged]) -> Staged:
        """Add a gate unit: c follows from the four sums, and h, which is returned."""
        signs, gates = list[Staged](), list[Staged]()
        for gate, total in enumerate(sums):
            negative, magnitude = self._argument(total, f"argument{gate}")
            kind = "tanh" if gate == 2 else "sigmoid"
            value = self._table(m, kind, f"table{gate}", negative, magnitude)
            signs.append(negative)
            gates.append(self._behind("gates", value, f"gate{gate}"))
        total = self._cell_sum(m, number, gates, signs[2])
        drop = self._fraction - self._state.fraction
        cell, beyond = rounded_state(total, drop, self._state.maximum)
        m.d.sync += self.saturated[number].eq(beyond.value & self._steps.valid[total.stage])
        old = Staged(m, self.c[number], gates[1].stage)
        self._keep(m, old, cell, self._access.writes_c[number], self._access.data)
        return self._hidden(m, gates[3], total)

    @property
    def _fraction(self) -> int:
        """Fraction bits of ``f * c + i * g``."""
        gate = self._numerics.gate
        return gate.fraction + max(self._state.fraction, gate.fraction)

    def _cell_sum(self, m: Module, number: int, gates: Sequence[Staged], minus: Staged) -> Staged:
        gate = self._numerics.gate
        old = Staged(m, self.c[number], gates[1].stage)
        kept = self._product("multiplied", "f c", "kept", gates[1], old)
        added = self._product("multiplied", "i g", "added", gates[0], gates[2])
        shifts = self._fraction - gate.fraction - self._state.fraction, self._fraction - 2 * gate.fraction
        bits = 2 + max(gate.bits + self._state.bits + shifts[0], 2 * gate.bits + shifts[1])
        total = exact_sum(kept, added, minus, shifts, bits).as_signed(bits).named("total")
        return self._behind("total", total, "total_later")

    def _hidden(self, m: Module, output_gate: Staged, total: Staged) -> Staged:
        numerics, form = self._numerics, self.shape.output
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


def _moved(value: Value, by: int) -> Value:
    """Return a value shifted left, or right if ``by`` is negative."""
    return value.shift_left(by) if by >= 0 else value.shift_right(-by)
