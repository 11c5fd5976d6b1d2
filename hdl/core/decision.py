"""What is decided of a step's results: the number of the largest one, or which are the largest ones."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from rtlstm.hdl.component import In, Out, Struct
from rtlstm.hdl.core.layouts import result_layout
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.primitives.pipeline import delay, delay_event
from rtlstm.spec.parameters import ceil_log2

_Found = tuple[Value, Value, Value]
"""Whether there is a result, the result, and its index in the beat."""


class Decision(CorePart):
    """Gives the number of a step's largest emitted result in place of its results; of equal ones the first.

    Latency: ``manifest.decision_cycles`` from the step's last beat. The results of a beat are registered,
    then compared in pairs with a register behind each level, then the best with the best of the beats before.
    """

    result: Struct = In(result_layout)
    values: Signal = In(lambda manifest: manifest.parameters.gate_units * manifest.numerics.output_bits)
    """Results being written, ``gate_units`` side by side; those that count are the first ones."""
    decided: Struct = Out(result_layout)
    number: Signal = Out(lambda manifest: manifest.parameters.gate_units * manifest.numerics.output_bits)
    """The decision in place of a step's results: its only one, of the first gate unit, or beats of them."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters, bits = self._manifest.parameters, self._manifest.numerics.output_bits
        units, cycles = parameters.gate_units, self._manifest.decision_cycles
        come, first = self._come(m)
        found: list[_Found] = [
            (
                delay(m, self.result.mask[unit], 1),
                delay(m, self.values.word_select(unit, bits), 1).as_signed(),
                Const(unit, ceil_log2(units)),
            )
            for unit in range(units)
        ]
        while len(found) > 1:
            pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
            larger = [_larger(m, *pair) for pair in pairs]
            found = [(delay(m, there, 1), delay(m, value, 1), delay(m, at, 1)) for there, value, at in larger]
        _, value, index = found[0]
        value = value.as_signed()
        compared, last = delay_event(m, come, cycles - 1), delay(m, self.result.last, cycles - 1)
        its_first = delay(m, first, cycles - 1)
        begins = Signal(init=1)
        best = Signal(value.shape(), reset_less=True)
        number = Signal.like(first, name="number_of_best", reset_less=True)
        with m.If(compared):
            m.d.sync += begins.eq(last)
            with m.If(begins | (value > best)):
                m.d.sync += [best.eq(value), number.eq(its_first + index)]
        m.d.comb += [
            self.decided.valid.eq(delay_event(m, come & self.result.last, cycles)),
            self.decided.emit.eq(1),
            self.decided.last.eq(1),
            self.decided.mask.eq(1),
            self.decided.stream.eq(delay(m, self.result.stream, cycles)),
            self.number.eq(Cat(number, Const(0, len(self.number) - len(number)))),
        ]
        return m

    def _come(self, m: Module) -> tuple[Value, Signal]:
        """Return whether results come that count, and the number of the first one in the step."""
        bits = self._manifest.numerics.output_bits
        # A loadable core does not know how many outputs other networks have.
        most = self._manifest.classes if self._manifest.parameters.capacity is None else 1 << bits - 1
        first = Signal(range(max(most, 2)), name="first_number")
        come = self.result.valid & self.result.emit
        with m.If(come):
            m.d.sync += first.eq(Mux(self.result.last, 0, first + self._manifest.parameters.gate_units))
        return come, first


class Ranking(Decision):
    """Gives numbers of a step's largest results, of equal ones the first, and then these, the largest first.

    Latency: their last beat comes ``manifest.decision_cycles`` after the step's. The results of a beat are
    registered and go through one stage for each that is found. A stage finds the largest in a beat, with a
    register behind each comparison, keeps it if it is larger than what it has of the step, and passes on the
    beat with the smaller of both in that position. Behind the last stage all are taken at once, and given.

    A result is compared with its number, inverted, below it: so no two of a step are equal. The least there
    is stands for none: a step has more results than are found.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters, bits = self._manifest.parameters, self._manifest.numerics.output_bits
        units, best, beats = parameters.gate_units, parameters.best, parameters.best_beats
        levels = ceil_log2(units)
        come, first = self._come(m)
        shape = signed(bits + len(first))
        least = Const(-1 << bits + len(first) - 1, shape)
        beat = [
            delay(m, Mux(self.result.mask[unit], self._key(first, unit), least).as_signed(), 1)
            for unit in range(units)
        ]
        event, begins = delay_event(m, come, 1), delay(m, first == 0, 1)
        ends, stream = delay(m, self.result.last, 1), delay(m, self.result.stream, 1)
        found: list[Value] = []
        for stage in range(best):
            ahead: list[tuple[Value, Value]] = [(key, Const(unit, levels)) for unit, key in enumerate(beat)]
            while len(ahead) > 1:
                pairs = [ahead[at : at + 2] for at in range(0, len(ahead), 2)]
                larger = [_first_of(*pair) for pair in pairs]
                ahead = [(delay(m, key, 1), delay(m, at, 1)) for key, at in larger]
            largest, position = ahead[0][0].as_signed(), ahead[0][1]
            event, begins, ends, stream = (
                delay_event(m, event, levels),
                *(delay(m, each, levels) for each in (begins, ends, stream)),
            )
            kept = Signal(shape, name=f"kept{stage}", reset_less=True)
            takes, smaller = Signal(name=f"takes{stage}"), Signal(shape, name=f"smaller{stage}")
            m.d.comb += [
                takes.eq(begins | (largest > kept)),
                smaller.eq(Mux(begins, least, kept)),
            ]
            with m.If(event & takes):
                m.d.sync += kept.eq(largest)
            if stage < best - 1:
                beat = [
                    delay(m, Mux(takes & (position == unit), smaller, key).as_signed(), 1)
                    for unit, key in enumerate(delay(m, key, levels) for key in beat)
                ]
            event, begins, ends, stream = (
                delay_event(m, event, 1),
                *(delay(m, each, 1) for each in (begins, ends, stream)),
            )
            found = [*(delay(m, each, levels + 1) for each in found), kept]
        numbers = (Cat(~key[: len(first)], Const(0, bits - len(first))) for key in found)
        given = Signal(beats * units * bits, reset_less=True)
        left, whose = Signal(beats), Signal.like(stream, name="given_stream", reset_less=True)
        m.d.sync += [given.eq(given >> units * bits), left.eq(left >> 1)]
        with m.If(event & ends):
            m.d.sync += [
                given.eq(Cat(*numbers, *(key[len(first) :] for key in found))),
                left.eq(-1),
                whose.eq(stream),
            ]
        last = left == 1
        m.d.comb += [
            self.decided.valid.eq(left[0]),
            self.decided.emit.eq(1),
            self.decided.last.eq(last),
            self.decided.mask.eq(Mux(last, (1 << (2 * best - 1) % units + 1) - 1, -1)),
            self.decided.stream.eq(whose),
            self.number.eq(given),
        ]
        return m

    def _key(self, first: Value, unit: int) -> Value:
        """Return what a result is compared by."""
        number = (first + unit)[: len(first)]
        bits = self._manifest.numerics.output_bits
        return Cat(~number, self.values.word_select(unit, bits)).as_signed()


def _first_of(one: tuple[Value, Value], other: tuple[Value, Value] | None = None) -> tuple[Value, Value]:
    """Return the larger of two results, and its position in the beat; one alone as it is."""
    if other is None:
        return one
    takes = other[0].as_signed() > one[0].as_signed()
    return Mux(takes, other[0], one[0]), Mux(takes, other[1], one[1])


def _larger(m: Module, one: _Found, other: _Found | None = None) -> _Found:
    """Return the larger of two results, the first of equal ones; one alone as it is."""
    if other is None:
        return one
    takes = Signal(name="takes_other")
    m.d.comb += takes.eq(other[0] & (other[1].as_signed() > one[1].as_signed()))
    return one[0], Mux(takes, other[1], one[1]), Mux(takes, other[2], one[2])
