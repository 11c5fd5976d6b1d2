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
a + c                  the new c, rounded and saturated, written to memory; a cycle later if layers have
                       different formats of c
2 a + p + 2            tanh of the argument
2 a + 2 p + 2          the product o * tanh, exact
2 a + 2 p + 2 + r      h, the result: rounded in the first of the r cycles, limited behind it; odd codes
                       need none of these cycles
=====================  =================================================================================

With different formats of c, the sum has one binary point: the old c, or f * c, is shifted left by its layer's
shift, and the sum back before it is rounded to c. With different formats of h, the output gate is shifted
left by its layer's shift while it waits for tanh(c), and the product has one binary point.

A table in block RAM with its output register takes two cycles. It reads its argument a cycle before that is
in a register of its own: the block RAM's address register stands beside it.

A dense output skips the cell: its activation is there in cycle a, the result in a + 1 + r. One that is the
sum itself, perhaps with ReLU, skips the tables, too: the result is there in 1 + r.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Value, signed

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.layouts import upper_sum_bits
from rtlstm.hdl.core.rounding import clipped, exact_sum, odd_codes, rounded_state, with_sign
from rtlstm.hdl.core.unit import ResultKind, Unit, round_down
from rtlstm.hdl.primitives.pipeline import delay
from rtlstm.hdl.primitives.staged import Staged, combine, mux
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.fixed import Format
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import LINEAR
from rtlstm.spec.registers import Region

GATES = ("input", "forget", "candidate", "output")


class GateUnit(Unit):
    """``c = f * c + i * g``, ``h = o * tanh(c)``, with the gates' activations, for one unit a cycle.

    Latency, from pre-activations: ``timing.of_units`` cycles to h, ``timing.of_rows`` to a dense result, and
    ``timing.of_linear_rows`` to one without a table. Throughput: one beat per cycle. Rounding: half up at c
    and at h (or to odd codes of h, which need no limit), down at tanh's argument, all from the exact sum or
    product before; saturation is symmetric.
    """

    def __init__(self, manifest: Manifest) -> None:
        unit = manifest.numerics.unit
        assert isinstance(unit, FusedUnit)
        self._unit, self._tables = unit, tuple(unit.memories)
        super().__init__(manifest)

    def inside(self) -> Module:
        m = Module()
        timing = self._manifest.timing
        self._begin(m, max(timing.of_units, timing.of_norms))
        # A register before the limits, if there is one.
        self._compared = min(1, self._manifest.parameters.pipeline.result)
        gates = self._gates(m)
        total = self._cell_sum(m, gates)
        self._round_cell(m, total)
        m.d.comb += self.of_units.eq(self._hidden(m, gates[3], total).at(timing.of_units))
        kinds = [ResultKind(timing.of_units, single=False, wanted=lambda beat: beat.lstm)]
        kinds += self._single_rows(m, gates)
        self._announce(m, kinds)
        m.d.comb += self.value.eq(Mux(self.result.single, self.of_rows, self.of_units))
        return m

    def _single_rows(self, m: Module, gates: list[Staged]) -> list[ResultKind]:
        """Give the results of single rows.

        They take fewer cycles than an LSTM layer's, but never end in the same cycle as one before or earlier:
        in the networks of this unit (``is_fused`` in :mod:`rtlstm.gen.quantise.lowering`), a dense operation
        reads the results of the layer before it and waits until they have been written
        (``waits_for_results`` in :mod:`rtlstm.spec.program.step`), and a pass over a sequence begins when the
        results of the pass before have been written.
        """
        timing = self._manifest.timing
        functions, found = self._manifest.single_functions, list[tuple[ResultKind, Staged]]()
        if functions & LINEAR:
            kind = ResultKind(timing.of_linear_rows, single=True, wanted=_is_linear)
            found.append((kind, self._linear(m)))
        if functions - LINEAR:
            kind = ResultKind(timing.of_rows, single=True, wanted=_is_bent)
            found.append((kind, self._activated(m, gates)))
        for kind in self.of_norms():
            found.append((kind, Staged(m, self.normed, kind.stage)))
        value: Value = Const(0)
        for kind, given in found:
            beat = self._beat_at(kind.stage - 1)
            here = delay(m, beat.valid & kind.wanted(beat), 1) if len(found) > 1 else Const(1)
            value = Mux(here, given.at(kind.stage), value)
        m.d.comb += self.of_rows.eq(value)
        return [kind for kind, _ in found]

    def _table(self, m: Module, region: Region, name: str, negative: Staged, magnitude: Staged) -> Staged:
        index = self._tables.index(region)
        write = self.write.bit_select(int(region), 1)
        value, entry = self._add_table(m, name, index, negative, magnitude, write)
        m.d.comb += getattr(self.entries, region.name.lower()).eq(entry)
        return value

    def _gates(self, m: Module) -> list[Staged]:
        values = []
        for gate, name in enumerate(GATES):
            region = Region.TANH if name == "candidate" else Region.SIGMOID
            values.append(self._table(m, region, f"{name}_gate", *self._table_argument(m, gate)))
        return values

    def _cell_sum(self, m: Module, gates: list[Staged]) -> Staged:
        """Return the exact ``f * c + i * g``, in a cycle after the products."""
        numerics, bits = self._manifest.numerics, _sum_bits(self._manifest)
        fraction, shifts = numerics.cell_sum_fraction, self._unit.cell_shifts
        zero_state = self._beat_at(self._manifest.timing.state - 1).zero_state
        of_c, of_product = (shifts, (0,)) if self._unit.shifts_read else ((0,), shifts)
        old = self._old_state(m, self._read_state(m), zero_state, of_c)
        kept = gates[1].times(old, self._multipliers["f c"], "kept")
        kept = kept.map(lambda product: self.shifted(product, kept.stage, of_product, "cell_shift"))
        added = gates[0].times(gates[2], self._multipliers["i g"], "added")

        shifts_to_sum = (
            fraction - numerics.gate.fraction - numerics.cell.fraction,
            fraction - 2 * numerics.gate.fraction,
        )
        total = exact_sum(kept, added, Staged(m, self.negative[2], 0), shifts_to_sum, bits)
        return total.registered("total", signed(bits), zero=self.window)

    def _round_cell(self, m: Module, total: Staged) -> None:
        """Round the sum to the cell that is kept."""
        numerics, timing = self._manifest.numerics, self._manifest.timing
        drop = numerics.cell_sum_fraction - numerics.cell.fraction
        if len(shifts := self._unit.cell_shifts) > 1:
            # What is shifted out changes neither a comparison with a limit nor what is rounded half up.
            shifted = self.shifted(total.value, total.stage, shifts, "cell_shift", right=True)
            total = Staged(m, shifted, total.stage).registered("shifted_total")
        registers = self._manifest.parameters.pipeline.cell - 3
        cell, clips = rounded_state(total, drop, numerics.cell.maximum, registers)
        cell = cell.registered("cell", signed(numerics.cell.bits))
        beat = self._beat_at(timing.keep)
        self._write_state(m, beat.valid & beat.lstm, cell, clips.registered("clipped"))

    def _hidden(self, m: Module, output_gate: Staged, total: Staged) -> Staged:
        """Multiply tanh of the sum, rounded down, with the output gate."""
        numerics, pipeline = self._manifest.numerics, self._manifest.parameters.pipeline
        drop = numerics.cell_sum_fraction - numerics.cell_argument.fraction
        # A table that takes two cycles has the argument's register inside.
        registers = 0 if pipeline.table > 1 else 1
        negative, magnitude = (
            Staged(m, value, total.stage).later(registers)
            for value in round_down(total.value, drop, numerics.cell_argument.bits)
        )
        activated = self._table(m, Region.CELL_TANH, "cell_tanh", negative, magnitude)
        if len(shifts := self._unit.hidden_shifts) > 1:
            before = activated.stage - 1
            shifted = self.shifted(output_gate.at(before), before, shifts, "hidden_shift")
            output_gate = Staged(m, shifted, before).registered("shifted_gate")
        product = output_gate.times(activated, self._multipliers["o tanh(c)"], "hidden")
        drop = 2 * numerics.gate.fraction - numerics.hidden.fraction
        if numerics.hidden_rounding == "odd":
            nothing = (output_gate == 0) | (activated == 0)
            return odd_codes(product[:-1], negative & ~nothing, drop, numerics.hidden).named("h")
        return with_sign(product[:-1], negative, drop, numerics.hidden, "h", self._compared)

    def _linear(self, m: Module) -> Staged:
        """Return the sum itself, perhaps with ReLU, ``1 + result`` cycles after the pre-activations."""
        negative, magnitude = (
            Staged(m, part, 0) for part in self.gate_sum(0, upper_sum_bits(self._manifest) is not None)
        )
        bits = len(magnitude)
        value = combine(
            lambda negative, magnitude: Cat(magnitude ^ negative.replicate(bits), negative).as_signed(),
            negative,
            magnitude,
        )
        zero = negative & self._beat_at(0).relu

        def fit(width: int) -> Staged:
            limit = Format(bits=width, fraction=0).maximum
            # The lowest code of this width, whose magnitude counts as the limit, is beyond it, too.
            over = ((magnitude > limit) | (negative & (magnitude == limit))).later(self._compared)
            result = mux(zero, 0, clipped(over, negative, limit, value))
            return result.as_signed(width).named(f"linear{width}")

        return self._dense(fit)

    def _activated(self, m: Module, gates: list[Staged]) -> Staged:
        """Return sigmoid of gate 0 or tanh of gate 2, ``1 + result`` cycles after the gates."""
        gate, stage = self._manifest.numerics.gate, gates[0].stage
        sigmoid = Staged(m, self._beat_at(stage).sigmoid, stage)
        # What comes straight from a block RAM is chosen in one cycle and rounded in the next.
        chosen = self._compared if self._manifest.parameters.tables == "direct" else 0
        value = mux(sigmoid, gates[0], gates[2]).later(chosen)
        sign = (Staged(m, self.negative[0], 0) & ~sigmoid).later(chosen)

        def fit(width: int) -> Staged:
            form, drop = Format(bits=width, fraction=0), gate.fraction - (width - 1)
            # Results that are wider than gates have zeros behind.
            given = value if drop >= 0 else value.map(lambda bits: bits.shift_left(-drop))
            return with_sign(given, sign, max(0, drop), form, f"activated{width}", self._compared - chosen)

        return self._dense(fit)

    def _dense(self, fit: Callable[[int], Staged]) -> Staged:
        """Register results as wide as the beat's layer needs them."""
        widths = self._dense_bits()
        fitted = [fit(width) for width in widths]
        result = fitted[0]
        if len(fitted) > 1:
            outer = self._beat_at(result.stage).emit
            if self._manifest.ends_passes_in_both_widths:
                # Long before this pass's first results.
                outer &= self.last_pass
            result = mux(outer, fitted[1], fitted[0])
        return result.registered("dense", signed(max(widths)))

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
    kept = numerics.gate.bits + numerics.cell.bits + numerics.cell_shifts[-1] - 1
    kept += fraction - numerics.gate.fraction - numerics.cell.fraction
    added = 2 * (numerics.gate.bits - 1) + fraction - 2 * numerics.gate.fraction + 1
    return max(kept, added) + 1
