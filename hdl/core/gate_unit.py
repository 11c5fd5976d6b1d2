"""The gate unit: from four pre-activations to new c and h; and the dense layers' activation.

One beat enters per cycle. With its pre-activations in cycle 0, ``a = parameters.activation`` (table, and for
interpolated tables product and sum), ``c = pipeline.cell``, ``r = pipeline.result`` and
``w = FusedUnit.argument_cycles``:

=====================  =================================================================================
cycle                  what is in registers
=====================  =================================================================================
a - 3                  row of the old c at the cell memory (from the drain, before the beat if a < 3)
a                      the gates: sigmoid of i, f, o, tanh of g; the old c, or 0 for a zero state
a + 1                  the products f * c and i * g
a + 2                  their exact sum
a + c                  the new c, rounded and saturated, written to memory; apart, the argument of tanh
2 a + c + w            tanh(c)
2 a + c + w + 1        the product o * tanh(c), exact
2 a + c + w + 2        (only if r is 2) the product, rounded
2 a + c + w + 1 + r    h, the result: rounded and saturated, behind the product's register if r is 0;
                       ``next_result`` says one cycle before where it goes
=====================  =================================================================================

A table in block RAM with its output register takes two cycles. It reads its argument a cycle before that is
in a register of its own: the block RAM's address register stands beside it.

A dense output skips the cell: its activation is there in cycle a, the result in a + 1 + r. One that is the
sum itself, perhaps with ReLU, skips the tables, too: the result is there in 1 + r.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.layouts import DelayLine, beat_layout, result_layout
from rtlstm.hdl.core.unit import Unit
from rtlstm.hdl.primitives.pipeline import delay, multiply
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.fixed import Format
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region

__all__ = ["GateUnit"]

GATES = ("input", "forget", "candidate", "output")


class GateUnit(Unit):
    """``c = f * c + i * g``, ``h = o * tanh(c)``, with the gates' activations, for one unit a cycle.

    Latency, from pre-activations: ``timing.of_units`` cycles to h, ``timing.of_rows`` to a dense result, and
    ``timing.of_linear_rows`` to one without a table; ``pipeline.result`` more. Throughput: one beat per
    cycle. Rounding: half up at c, at tanh's argument and at h, all from the exact sum or product before;
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
        # Stage k of ``beats`` is k cycles after the pre-activations.
        timing, pipeline = self._manifest.timing, self._manifest.parameters.pipeline
        result, self._cell_stages = pipeline.result, pipeline.cell
        last = timing.of_units + result
        beats = DelayLine(m, beat_layout(self._manifest), self.beat, "beat", last - 1)
        negative = self.negative
        gates = self._gates(m)
        old = self._read_state(m, beats.at(timing.state - 1).zero_state)
        total = self._cell_sum(m, gates, old, negative[2])
        argument = self._round_cell(m, total, beats.at(timing.keep))
        self._compared = max(0, result - 1)
        hidden = delay(m, self._hidden(m, gates[3], *argument), result - self._compared)
        results = [(hidden, beats.at(last - 1), beats.at(last - 1).lstm)]
        functions = self._manifest.single_functions
        if functions & {"identity", "relu"}:
            beat = beats.at(result)
            linear = delay(m, self._linear(m, beats), result - self._compared)
            results.append((linear, beat, beat.dense & ~(beat.sigmoid | beat.tanh)))
        if functions & {"sigmoid", "tanh"}:
            beat = beats.at(self._stages + result)
            activated = delay(m, self._activated(m, gates, beats), result - self._compared)
            results.append((activated, beat, beat.dense & (beat.sigmoid | beat.tanh)))
        self._select(m, results)
        return m

    def _table(self, m: Module, region: Region, name: str, negative: Value, magnitude: Value) -> Value:
        index = self._tables.index(region)
        unit = self._add_table(m, name, index, negative, magnitude, self.write.bit_select(int(region), 1))
        m.d.comb += getattr(self.entries, region.name.lower()).eq(unit.entry)
        return unit.value

    def _gates(self, m: Module) -> list[Value]:
        values = []
        for gate, name in enumerate(GATES):
            region = Region.TANH if name == "candidate" else Region.SIGMOID
            values.append(self._table(m, region, f"{name}_gate", *self._table_argument(gate)))
        return values

    def _cell_sum(self, m: Module, gates: list[Value], old: Signal, g_negative: Value) -> Signal:
        """Return the exact ``f * c + i * g``, in two stages."""
        numerics = self._manifest.numerics
        fraction = numerics.cell_sum_fraction
        kept = multiply(m, _positive(gates[1]), old, self._multipliers["f c"], "kept")
        added = multiply(m, _positive(gates[0]), _positive(gates[2]), self._multipliers["i g"], "added")
        total = Signal(signed(_sum_bits(self._manifest)), reset_less=True)
        minus = delay(m, g_negative, self._stages + 1)
        kept_wide = kept << (fraction - numerics.gate.fraction - numerics.cell.fraction)
        added_wide = (added << (fraction - 2 * numerics.gate.fraction)) ^ minus.replicate(
            len(total)
        ).as_signed()
        # -a is ~a + 1, and the 1 comes in as the carry below the lowest bit.
        with_carry = Cat(Const(1, 1), kept_wide).as_signed() + Cat(minus, added_wide).as_signed()
        m.d.sync += total.eq(with_carry >> 1)
        return total

    def _round_cell(self, m: Module, total: Signal, beat: Struct) -> tuple[Value, Value]:
        """Round the sum to the cell that is kept and, apart, to what tanh reads.

        Limits are compared with the sum as it is, beside the rounding and not behind it. Returns sign and
        magnitude of what tanh reads, a cycle before the cell is in its register.
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
        drop = numerics.cell_sum_fraction - numerics.cell_argument.fraction
        most, half = numerics.cell_argument.maximum, (1 << drop) >> 1
        # The magnitude of a negative sum, half of a unit going towards zero: ~t is -t - 1.
        size = Signal(signed(len(total)))
        m.d.comb += size.eq(total ^ (total < 0).replicate(len(total)).as_signed())
        beyond = delay(m, size >= ((most + 1) << drop) - half, extra)
        negative = delay(m, total < 0, extra)
        magnitude = Signal(numerics.cell_argument.bits - 1, name="argument")
        m.d.comb += magnitude.eq(Mux(beyond, most, delay(m, _round(size, drop), extra)))
        return negative, magnitude

    def _hidden(self, m: Module, output_gate: Value, next_negative: Value, next_magnitude: Value) -> Signal:
        """Multiply tanh of the argument, given a cycle before its register, with the output gate."""
        numerics, parameters = self._manifest.numerics, self._manifest.parameters
        negative, magnitude = delay(m, next_negative, 1), delay(m, next_magnitude, 1)
        waits = FusedUnit.argument_cycles(parameters)
        beside = parameters.pipeline.table > 1 and not waits
        address = (next_negative, next_magnitude) if beside else (negative, magnitude)
        activated = self._table(m, Region.CELL_TANH, "cell_tanh", *address)
        gate = delay(m, output_gate, self._stages + self._cell_stages + waits)
        product = multiply(m, _positive(gate), _positive(activated), self._multipliers["o tanh(c)"], "hidden")
        drop = 2 * numerics.gate.fraction - numerics.hidden.fraction
        sign = delay(m, negative, self._stages + waits + 1)
        return _signed(m, product[:-1], sign, drop, numerics.hidden, "h", self._compared)

    def _linear(self, m: Module, beats: DelayLine) -> Signal:
        """Return the sum itself, perhaps with ReLU, ``1 + result`` cycles after the pre-activations."""
        bits = self._manifest.numerics.preactivation.bits - 1
        negative = self.negative[0]
        value = Mux(beats.at(0).relu & negative, 0, self.magnitudes[:bits])

        def fit(width: int) -> Signal:
            form = Format(bits=width, fraction=0)
            return _signed(m, value, negative, 0, form, f"linear{width}", self._compared)

        return self._dense(m, fit, beats.at(self._compared))

    def _activated(self, m: Module, gates: list[Value], beats: DelayLine) -> Signal:
        """Return sigmoid of gate 0 or tanh of gate 2, ``1 + result`` cycles after the gates."""
        gate, sigmoid = self._manifest.numerics.gate, beats.at(self._stages).sigmoid
        value = Mux(sigmoid, gates[0], gates[2])
        sign = delay(m, self.negative[0], self._stages) & ~sigmoid
        # What comes straight from a block RAM is chosen in one cycle and rounded in the next.
        chosen = self._compared if self._manifest.parameters.tables == "direct" else 0
        value, sign = delay(m, value, chosen), delay(m, sign, chosen)

        def fit(width: int) -> Signal:
            form, drop = Format(bits=width, fraction=0), gate.fraction - (width - 1)
            return _signed(m, value, sign, drop, form, f"activated{width}", self._compared - chosen)

        return self._dense(m, fit, beats.at(self._stages + self._compared))

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
        if manifest.parameters.capacity is None and not any(layer.dense for layer in manifest.layers[:-1]):
            return (outer,)
        return (inner, outer)

    def _select(self, m: Module, results: list[tuple[Value, Struct, Value]]) -> None:
        """Give the result, and in the cycle before, where it goes.

        Each kind of result comes with the beat of the next one, and whether that is of the kind. Dense beats
        take fewer cycles than an LSTM layer's, but never end in the same cycle as one before or earlier: in
        the networks of this unit (``is_fused`` in :mod:`rtlstm.gen.quantise.lowering`), a dense
        operation reads the results of the layer before it and waits until they have been written
        (``waits_for_results`` in :mod:`rtlstm.spec.program.step`), and a pass over a sequence begins when
        the results of the pass before have been written.
        """
        layout = result_layout(self._manifest)
        chosen: Value = results[0][0]
        for _, beat, wanted in results:
            with m.If(beat.valid & wanted):
                m.d.comb += [self.next_result[name].eq(beat[name]) for name in layout.members]
        for value, beat, wanted in results[1:]:
            chosen = Mux(delay(m, beat.valid & wanted, 1), value, chosen)
        destination = DelayLine(m, layout, self.next_result, "result", 1).at(1)
        m.d.comb += [self.result.eq(destination), self.value.eq(chosen)]


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
