"""The gate unit: from four pre-activations to new c and h; and the dense layers' activation.

One beat enters per cycle. With its pre-activations in cycle 0, ``a = parameters.activation`` (table, and for
interpolated tables product and sum), ``p = pipeline.product``, ``c = p - 1 + pipeline.cell`` and
``r = pipeline.result``:

=====================  =================================================================================
cycle                  what is in registers
=====================  =================================================================================
a - 3                  row of the old c at the cell memory (from the drain, before the beat if a < 3)
a                      the gates: sigmoid of i, f, o, tanh of g; the old c, or 0 for a zero state
a + p                  the products f * c and i * g
a + p + 1              their exact sum
a + p + 2              the argument of tanh: the sum, rounded down and limited
a + c                  the new c, rounded and saturated, written to memory
2 a + p + 2            tanh of the argument
2 a + 2 p + 2          the product o * tanh, exact
2 a + 2 p + 2 + r      h, the result: rounded in the first of the r cycles, limited behind it
=====================  =================================================================================

A table in block RAM with its output register takes two cycles. It reads its argument a cycle before that is
in a register of its own: the block RAM's address register stands beside it.

A dense output skips the cell: its activation is there in cycle a, the result in a + 1 + r. One that is the
sum itself, perhaps with ReLU, skips the tables, too: the result is there in 1 + r.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.unit import ResultKind, Unit, round_down
from rtlstm.hdl.primitives.pipeline import delay, multiply
from rtlstm.spec.fixed import Format
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import LINEAR
from rtlstm.spec.registers import Region

__all__ = ["GateUnit"]

GATES = ("input", "forget", "candidate", "output")


class GateUnit(Unit):
    """``c = f * c + i * g``, ``h = o * tanh(c)``, with the gates' activations, for one unit a cycle.

    Latency, from pre-activations: ``timing.of_units`` cycles to h, ``timing.of_rows`` to a dense result, and
    ``timing.of_linear_rows`` to one without a table; ``pipeline.result`` more. Throughput: one beat per
    cycle. Rounding: half up at c and at h, down at tanh's argument, all from the exact sum or product before;
    saturation is symmetric.
    """

    def __init__(self, manifest: Manifest, index: int) -> None:
        self._stages = manifest.parameters.activation
        self._tables = tuple(manifest.numerics.unit.memories)
        regions = (Region.CELLS, *self._tables)
        super().__init__(
            manifest, index, {region.name.lower(): manifest.regions[region].width for region in regions}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        timing, pipeline = self._manifest.timing, self._manifest.parameters.pipeline
        result, self._cell_stages, self._product_stages = pipeline.result, pipeline.cell, pipeline.product
        self._follow_beats(m, timing.of_units + result)
        gates = self._gates(m)
        old = self._read_state(m, self._beat_at(timing.state - 1).zero_state)
        total = self._cell_sum(m, gates, old, self.negative[2])
        self._round_cell(m, total, self._beat_at(timing.keep))
        # A register before the limits, if there is one.
        self._compared = min(1, result)
        hidden = delay(m, self._hidden(m, gates[3], total), result - self._compared)
        m.d.comb += self.of_units.eq(hidden)
        kinds = [ResultKind(timing.of_units + result, single=False, wanted=lambda beat: beat.lstm)]
        kinds += self._single_rows(m, gates)
        self._announce(m, kinds)
        m.d.comb += self.value.eq(Mux(self.result.single, self.of_rows, self.of_units))
        return m

    def _single_rows(self, m: Module, gates: list[Value]) -> list[ResultKind]:
        """Give the results of single rows.

        They take fewer cycles than an LSTM layer's, but never end in the same cycle as one before or earlier:
        in the networks of this unit (``is_fused`` in :mod:`rtlstm.gen.quantise.lowering`), a dense operation
        reads the results of the layer before it and waits until they have been written
        (``waits_for_results`` in :mod:`rtlstm.spec.program.step`), and a pass over a sequence begins when the
        results of the pass before have been written.
        """
        timing, result = self._manifest.timing, self._manifest.parameters.pipeline.result
        functions, found = self._manifest.single_functions, list[tuple[ResultKind, Value]]()
        if functions & LINEAR:
            found.append((self._rows(timing.of_linear_rows, _is_linear), self._linear(m)))
        if functions - LINEAR:
            found.append((self._rows(timing.of_rows, _is_bent), self._activated(m, gates)))
        value: Value = Const(0)
        for kind, given in found:
            beat = self._beat_at(kind.stage - 1)
            here = delay(m, beat.valid & kind.wanted(beat), 1) if len(found) > 1 else Const(1)
            value = Mux(here, delay(m, given, result - self._compared), value)
        m.d.comb += self.of_rows.eq(value)
        return [kind for kind, _ in found]

    def _rows(self, cycles: int, wanted: Callable[[Struct], Value]) -> ResultKind:
        """Results of single rows, ``cycles`` and ``pipeline.result`` after their pre-activations."""
        return ResultKind(cycles + self._manifest.parameters.pipeline.result, single=True, wanted=wanted)

    def _table(self, m: Module, region: Region, name: str, negative: Value, magnitude: Value) -> Value:
        index = self._tables.index(region)
        write = self.write.bit_select(int(region), 1)
        value, entry = self._add_table(m, name, index, negative, magnitude, write)
        m.d.comb += getattr(self.entries, region.name.lower()).eq(entry)
        return value

    def _gates(self, m: Module) -> list[Value]:
        values = []
        for gate, name in enumerate(GATES):
            region = Region.TANH if name == "candidate" else Region.SIGMOID
            values.append(self._table(m, region, f"{name}_gate", *self._table_argument(gate)))
        return values

    def _cell_sum(self, m: Module, gates: list[Value], old: Signal, g_negative: Value) -> Signal:
        """Return the exact ``f * c + i * g``, in a cycle after the products."""
        numerics = self._manifest.numerics
        fraction = numerics.cell_sum_fraction
        kept = multiply(m, _positive(gates[1]), old, self._multipliers["f c"], "kept")
        added = multiply(m, _positive(gates[0]), _positive(gates[2]), self._multipliers["i g"], "added")
        total = Signal(signed(_sum_bits(self._manifest)), reset_less=True)
        minus = delay(m, g_negative, self._stages + self._product_stages)
        kept_wide = kept << (fraction - numerics.gate.fraction - numerics.cell.fraction)
        added_wide = (added << (fraction - 2 * numerics.gate.fraction)) ^ minus.replicate(
            len(total)
        ).as_signed()
        # -a is ~a + 1, and the 1 comes in as the carry below the lowest bit.
        with_carry = Cat(Const(1, 1), kept_wide).as_signed() + Cat(minus, added_wide).as_signed()
        m.d.sync += total.eq(with_carry >> 1)
        with m.If(self.window):
            m.d.sync += total.eq(0)
        return total

    def _round_cell(self, m: Module, total: Signal, beat: Struct) -> None:
        """Round the sum to the cell that is kept.

        Limits are compared with the sum as it is, beside the rounding and not behind it.
        """
        numerics = self._manifest.numerics
        drop = numerics.cell_sum_fraction - numerics.cell.fraction
        limit, half = numerics.cell.maximum, (1 << drop) >> 1
        cell = Signal(signed(numerics.cell.bits), reset_less=True)
        clipped = Signal(reset_less=True)
        extra = self._cell_stages - 3
        over = delay(m, total >= ((limit + 1) << drop) - half, extra)
        under = delay(m, total < (-limit << drop) - half, extra)
        m.d.sync += [
            cell.eq(Mux(over, limit, Mux(under, -limit, delay(m, _round(total, drop), extra)))),
            clipped.eq(over | under),
        ]
        self._write_state(m, beat, beat.valid & beat.lstm, cell, clipped)

    def _hidden(self, m: Module, output_gate: Value, total: Signal) -> Signal:
        """Multiply tanh of the sum, rounded down, with the output gate."""
        numerics, pipeline = self._manifest.numerics, self._manifest.parameters.pipeline
        drop = numerics.cell_sum_fraction - numerics.cell_argument.fraction
        argument = round_down(total, drop, numerics.cell_argument.bits)
        negative, magnitude = (delay(m, value, 1) for value in argument)
        address = argument if pipeline.table > 1 else (negative, magnitude)
        activated = self._table(m, Region.CELL_TANH, "cell_tanh", *address)
        gate = delay(m, output_gate, self._product_stages + 2 + self._stages)
        product = multiply(m, _positive(gate), _positive(activated), self._multipliers["o tanh(c)"], "hidden")
        drop = 2 * numerics.gate.fraction - numerics.hidden.fraction
        sign = delay(m, negative, self._stages + self._product_stages)
        return _signed(m, product[:-1], sign, drop, numerics.hidden, "h", self._compared)

    def _linear(self, m: Module) -> Signal:
        """Return the sum itself, perhaps with ReLU, ``1 + result`` cycles after the pre-activations."""
        bits = self._manifest.numerics.preactivation.bits - 1
        negative, magnitude = self.negative[0], self.magnitudes[:bits]
        value = Cat(magnitude ^ negative.replicate(bits), negative).as_signed()
        zero = self._beat_at(0).relu & negative

        def fit(width: int) -> Signal:
            limit = Format(bits=width, fraction=0).maximum
            # The lowest code of this width, whose magnitude counts as the limit, is beyond it, too.
            beyond = (magnitude > limit) | (negative & (magnitude == limit))
            over, below, none, kept = (
                delay(m, each, self._compared) for each in (beyond, negative, zero, value)
            )
            result = Signal(signed(width), name=f"linear{width}")
            m.d.comb += result.eq(Mux(none, 0, Mux(over, Mux(below, -limit, limit), kept)))
            return result

        return self._dense(m, fit, self._beat_at(self._compared))

    def _activated(self, m: Module, gates: list[Value]) -> Signal:
        """Return sigmoid of gate 0 or tanh of gate 2, ``1 + result`` cycles after the gates."""
        gate, sigmoid = self._manifest.numerics.gate, self._beat_at(self._stages).sigmoid
        value = Mux(sigmoid, gates[0], gates[2])
        sign = delay(m, self.negative[0], self._stages) & ~sigmoid
        # What comes straight from a block RAM is chosen in one cycle and rounded in the next.
        chosen = self._compared if self._manifest.parameters.tables == "direct" else 0
        value, sign = delay(m, value, chosen), delay(m, sign, chosen)

        def fit(width: int) -> Signal:
            form, drop = Format(bits=width, fraction=0), gate.fraction - (width - 1)
            return _signed(m, value, sign, drop, form, f"activated{width}", self._compared - chosen)

        return self._dense(m, fit, self._beat_at(self._stages + self._compared))

    def _dense(self, m: Module, fit: Callable[[int], Signal], beat: Struct) -> Signal:
        """Register results as wide as the beat's layer needs them."""
        widths = self._dense_bits()
        result = Signal(signed(max(widths)), reset_less=True)
        fitted = [fit(width) for width in widths]
        m.d.sync += result.eq(fitted[0] if len(fitted) == 1 else Mux(beat.emit, fitted[1], fitted[0]))
        return result

    def _dense_bits(self) -> tuple[int, ...]:
        """Bits of dense layers' results: those that other layers read, and those of outputs."""
        manifest = self._manifest
        inner, outer = manifest.numerics.data_bits, manifest.numerics.output_bits
        if inner == outer:
            return (inner,)
        if not manifest.stores_single_rows:
            return (outer,)
        return (inner, outer)


def _is_linear(beat: Struct) -> Value:
    linear: Value = beat.dense & ~(beat.sigmoid | beat.tanh)
    return linear


def _is_bent(beat: Struct) -> Value:
    bent: Value = beat.dense & (beat.sigmoid | beat.tanh)
    return bent


def _sum_bits(manifest: Manifest) -> int:
    numerics = manifest.numerics
    fraction = numerics.cell_sum_fraction
    kept = numerics.gate.bits + numerics.cell.bits - 1
    kept += fraction - numerics.gate.fraction - numerics.cell.fraction
    added = 2 * (numerics.gate.bits - 1) + fraction - 2 * numerics.gate.fraction + 1
    return max(kept, added) + 1


def _round(value: Value, drop: int) -> Value:
    """Drop low bits, rounding half up."""
    return value if drop == 0 else (value + Const(1 << (drop - 1))) >> drop


def _positive(value: Value) -> Value:
    """An unsigned value as a signed one."""
    return Cat(value, Const(0, 1)).as_signed()


def _signed(
    m: Module, magnitude: Value, negative: Value, drop: int, form: Format, name: str, stages: int
) -> Signal:
    """Give a magnitude its sign, drop low bits rounding half up, and limit; one carry chain deep.

    Takes ``stages`` (0 or 1) cycles: the register, if any, stands before the limiting.
    """
    limit = form.maximum
    result = Signal(signed(form.bits), name=name)
    # In halves of its last place: 2 * m + 1 for m, 2 * ~m + 2 for -m.
    half = (1 << drop) >> 1
    wide = Cat(Const(1, 1), magnitude ^ negative.replicate(len(magnitude)), negative).as_signed()
    rounded = (wide + Cat(negative, Const(half, max(1, drop)), Const(0, 1)).as_signed()) >> (1 + drop)
    # Half a unit below the next value counts for a positive one and not for a negative one.
    over = Cat(~negative, magnitude) > 2 * (((limit + 1) << drop) - half) if drop else magnitude > limit
    over, below, rounded = (delay(m, value, stages) for value in (over, negative, rounded))
    m.d.comb += result.eq(Mux(over, Mux(below, -limit, limit), rounded))
    return result
