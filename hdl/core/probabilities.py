"""Softmax of a step's results, whose arithmetic is in :mod:`rtlstm.spec.softmax`.

Results are kept in a ring while the largest is found, read once for their powers, which are kept in another
and summed, and these once more, to be multiplied by the sum's reciprocal. Each pass takes a beat a cycle, as
results come at most, so that steps follow each other without a wait.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from rtlstm.hdl.core.decision import Decision
from rtlstm.hdl.primitives.pipeline import delay, delay_event, lookup, multiply, storage
from rtlstm.spec.inventory import memories, multipliers
from rtlstm.spec.parameters import ceil_log2


class Probabilities(Decision):
    """Gives a step's probabilities instead of its results.

    Latency: ``manifest.decision_cycles`` from the step's last beat to the last one given.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters, softmax = self._manifest.parameters, self._manifest.softmax
        units, stages = parameters.gate_units, parameters.softmax_stages
        bits, levels = softmax.bits, ceil_log2(units)
        beats = parameters.drain_beats(softmax.classes)
        in_last = Const((1 << (softmax.classes - 1) % units + 1) - 1, units)
        stored, factors = memories(self._manifest), multipliers(self._manifest)
        come = self.result.valid & self.result.emit

        # The largest result of a step, and all of them with their stream.
        known = delay_event(m, come & self.result.last, 2 + levels)
        largest = self._largest(m, come, levels)
        y_read, y_write = storage(m, stored["softmax outputs"], "outputs")
        event = delay_event(m, come, 1)
        m.d.comb += [
            y_write.addr.eq(_count(m, event, len(y_write.addr), "outputs_to")),
            y_write.data.eq(delay(m, Cat(self.values, self.result.stream), 1)),
            y_write.en.eq(event),
        ]

        # Powers of the differences from it, and their sum.
        busy, last = _walk(m, known, beats, y_read.addr, "powers")
        of_step = Signal(signed(bits), name="of_step", reset_less=True)
        with m.If(known):
            m.d.sync += of_step.eq(largest)
        top = delay(m, of_step, 1)
        power_bits, low_bits = softmax.power_bits, softmax.low_bits
        counts = delay(m, Mux(last, in_last, -1), 3 + stages)
        powers: list[Value] = []
        for unit in range(units):
            value = y_read.data.word_select(unit, bits).as_signed()
            away = delay(m, (top - value)[:bits], 1)
            high = delay(m, _table(m, away[low_bits:], softmax.high, "high"), 1)
            low = delay(m, _table(m, away[:low_bits], softmax.low, "low"), 1)
            spec = factors["softmax powers"]
            product = multiply(m, _wide(high, spec.a_bits), _wide(low, spec.b_bits), spec, f"power{unit}")
            power = (product + (1 << power_bits - 1))[power_bits : 2 * power_bits + 1]
            powers.append(delay(m, Mux(counts[unit], power, 0), 1))
        kept = delay_event(m, busy, 4 + stages)
        e_read, e_write = storage(m, stored["softmax powers"], "powers")
        stream = delay(m, y_read.data[units * bits :], 3 + stages)
        m.d.comb += [
            e_write.addr.eq(_count(m, kept, len(e_write.addr), "powers_to")),
            e_write.data.eq(Cat(*powers, stream)),
            e_write.en.eq(kept),
        ]
        sums = powers
        while len(sums) > 1:
            pairs = [sums[at : at + 2] for at in range(0, len(sums), 2)]
            sums = [delay(m, sum(pair[1:], pair[0]), 1) for pair in pairs]
        total = Signal(softmax.sum_bits, name="total", reset_less=True)
        event, ends = delay_event(m, kept, levels), delay(m, last, 4 + stages + levels)
        begins = Signal(init=1, name="begins_sum")
        with m.If(event):
            m.d.sync += [begins.eq(ends), total.eq(Mux(begins, 0, total) + sums[0])]

        # Each times the reciprocal of the sum.
        ready = delay_event(m, event & ends, 6 + 2 * stages)
        share = Signal(softmax.refined_bits + 1, name="share", reset_less=True)
        reciprocal = self._reciprocal(m, total)
        with m.If(ready):
            m.d.sync += share.eq(reciprocal)
        busy, last = _walk(m, ready, beats, e_read.addr, "shares")
        factor, spec = delay(m, share, 1), factors["softmax shares"]
        shift, most = power_bits + softmax.refined_bits - (bits - 1), softmax.output.maximum
        given: list[Value] = []
        for unit in range(units):
            power = e_read.data.word_select(unit, power_bits + 1)
            product = multiply(
                m, _wide(power, spec.a_bits), _wide(factor, spec.b_bits), spec, f"probability{unit}"
            )
            rounded = (product + (1 << shift - 1))[shift : shift + bits]
            given.append(delay(m, Mux(rounded[-1], most, rounded)[:bits], 1))
        m.d.comb += [
            self.decided.valid.eq(delay_event(m, busy, 2 + stages)),
            self.decided.emit.eq(1),
            self.decided.last.eq(delay(m, last, 2 + stages)),
            self.decided.mask.eq(Mux(self.decided.last, in_last, -1)),
            self.decided.stream.eq(delay(m, e_read.data[units * (power_bits + 1) :], 1 + stages)),
            self.number.eq(Cat(*given)),
        ]
        return m

    def _largest(self, m: Module, come: Value, levels: int) -> Value:
        """Return the largest result of a step so far, with a register behind each comparison."""
        units, bits = self._manifest.parameters.gate_units, self._manifest.numerics.output_bits
        least = Const(-1 << bits - 1, signed(bits))
        values = (self.values.word_select(unit, bits).as_signed() for unit in range(units))
        ahead = [delay(m, Mux(self.result.mask[unit], value, least), 1) for unit, value in enumerate(values)]
        while len(ahead) > 1:
            pairs = [ahead[at : at + 2] for at in range(0, len(ahead), 2)]
            ahead = [delay(m, Mux(pair[0] > pair[-1], pair[0], pair[-1]), 1) for pair in pairs]
        event, ends = delay_event(m, come, 1 + levels), delay(m, self.result.last, 1 + levels)
        begins, largest = Signal(init=1), Signal(signed(bits), name="largest", reset_less=True)
        with m.If(event):
            m.d.sync += begins.eq(ends)
            with m.If(begins | (ahead[0] > largest)):
                m.d.sync += largest.eq(ahead[0])
        return largest

    def _reciprocal(self, m: Module, total: Signal) -> Value:
        """Return the reciprocal of a sum, ``5 + 2 * stages`` cycles later: looked up, refined and shifted."""
        softmax, factors = self._manifest.softmax, multipliers(self._manifest)
        stages, most = self._manifest.parameters.softmax_stages, ceil_log2(softmax.classes)
        mantissa_bits, refined = softmax.mantissa_bits, softmax.refined_bits
        highest = Signal(range(most + 1), name="highest")
        for by in range(most + 1):
            with m.If(total[softmax.power_bits + by]):
                m.d.comb += highest.eq(by)
        shift, registered = delay(m, highest, 1), delay(m, total, 1)
        aligned = Signal(mantissa_bits + 1, name="aligned")
        with m.Switch(shift):
            for by in range(most + 1):
                with m.Case(by):
                    m.d.comb += aligned.eq(registered[softmax.power_bits + by - mantissa_bits :])
        mantissa = delay(m, aligned, 1)
        index = mantissa[mantissa_bits - softmax.index_bits : mantissa_bits]
        seed = delay(m, _table(m, index, softmax.seeds, "seed"), 1)
        spec = factors["softmax reciprocal"]
        product = multiply(
            m, _wide(delay(m, mantissa, 1), spec.a_bits), _wide(seed, spec.b_bits), spec, "near_one"
        )
        fraction = mantissa_bits + softmax.seed_bits
        rest = ((2 << fraction) - product)[fraction - refined : fraction + 1]
        spec = factors["softmax refined"]
        product = multiply(
            m,
            _wide(delay(m, rest, 1), spec.a_bits),
            _wide(delay(m, seed, 1 + stages), spec.b_bits),
            spec,
            "refined",
        )
        found = product[softmax.seed_bits : softmax.seed_bits + refined + 1]
        return delay(m, found >> delay(m, shift, 3 + 2 * stages), 1)


def _table(m: Module, index: Value, values: Sequence[int], name: str) -> Value:
    """Return an entry of a table in LUTs: no block RAM, which the inventory would not know."""
    return lookup(m, index, values, name, at_once=16)


def _wide(value: Value, bits: int) -> Value:
    """Return a value without sign as a factor of so many bits."""
    return Cat(value, Const(0, bits - len(value))).as_signed()


def _count(m: Module, event: Value, bits: int, name: str) -> Signal:
    """Return the number of an event, in so many bits."""
    number = Signal(bits, name=name)
    with m.If(event):
        m.d.sync += number.eq(number + 1)
    return number


def _walk(m: Module, start: Value, beats: int, address: Signal, name: str) -> tuple[Value, Value]:
    """Read a step's beats, one a cycle, from the cycle after ``start`` on; return whether, and the last."""
    left = Signal(range(beats + 1), name=f"{name}_left")
    busy = left != 0
    m.d.comb += address.eq(_count(m, busy, len(address), f"{name}_from"))
    with m.If(busy):
        m.d.sync += left.eq(left - 1)
    with m.If(start):
        m.d.sync += left.eq(beats)
    return busy, left == 1
