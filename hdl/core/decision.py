"""What is decided of a step's results: the number of the largest one."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.core.layouts import result_layout
from rtlstm.hdl.primitives.pipeline import delay, delay_event
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import ceil_log2

_Found = tuple[Value, Value, Value]
"""Whether there is a result, the result, and its index in the beat."""


class Decision(Component):
    """Gives the number of a step's largest emitted result in place of its results; of equal ones the first.

    Latency: ``parameters.decision_cycles`` from the step's last beat. The results of a beat are registered,
    then compared in pairs with a register behind each level, then the best with the best of the beats before.
    """

    result: Struct = In(result_layout)
    values: Signal = In(lambda manifest: manifest.parameters.gate_units * manifest.numerics.output_bits)
    """Results being written, ``gate_units`` side by side; those that count are the first ones."""
    decided: Struct = Out(result_layout)
    number: Signal = Out(lambda manifest: manifest.parameters.gate_units * manifest.numerics.output_bits)
    """The decision as a step's only result, of the first gate unit."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters, bits = self._manifest.parameters, self._manifest.numerics.output_bits
        units, cycles = parameters.gate_units, parameters.decision_cycles
        # A loadable core does not know how many outputs other networks have.
        most = self._manifest.classes if parameters.capacity is None else 1 << bits - 1
        first = Signal(range(max(most, 2)), name="first_number")
        come = self.result.valid & self.result.emit
        with m.If(come):
            m.d.sync += first.eq(Mux(self.result.last, 0, first + units))
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


def _larger(m: Module, one: _Found, other: _Found | None = None) -> _Found:
    """Return the larger of two results, the first of equal ones; one alone as it is."""
    if other is None:
        return one
    takes = Signal(name="takes_other")
    m.d.comb += takes.eq(other[0] & (other[1].as_signed() > one[1].as_signed()))
    return one[0], Mux(takes, other[1], one[1]), Mux(takes, other[2], one[2])
