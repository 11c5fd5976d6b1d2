"""Statistics of a vector: the sums that a norm needs, made of results as they are stored.

With a vector's last results in cycle 0, ``A`` = ``pipeline.product`` + the adders of several units + 1:

==============  ========================================================================================
cycle           what a register holds
==============  ========================================================================================
A               the sum of all values, and that of their squares
A + 1, A + 2    the sum of squares times the number of values; with epsilon; beside it the sum's square
A + 3           their difference: the scaled variance
A + 4 to A + 6  it, shifted left until one of its highest two bits is set; then the root table's argument,
                in the first gate unit, beside whose tables the root's is
... + 1         the table's latency later, what all gate units read: the total, the root and its exponent
==============  ========================================================================================

All of it stands still from then on, until the next vector that is measured is complete. The vector's norm is
the next operation with results, so nothing is measured in between.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.core.layouts import result_layout
from rtlstm.hdl.primitives.pipeline import delay, delay_event
from rtlstm.hdl.primitives.staged import Staged, combine
from rtlstm.spec.inventory import multipliers
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.norms import ADDED_PER_REGISTER, Normalisation, digits, statistics_cycles


def total_bits(manifest: Manifest) -> int | None:
    """Width of the sum of a vector's values; None without norms."""
    return max((norm.sum_bits for norm in manifest.numerics.norms), default=None)


def mantissa_bits(manifest: Manifest) -> int | None:
    """Width of the mantissa that the root's table reads; None without norms."""
    norms = manifest.numerics.norms
    return norms[0].mantissa_bits if norms else None


def root_bits(manifest: Manifest) -> int | None:
    """Width of the root, unsigned; None without norms."""
    norms, tables = manifest.numerics.norms, manifest.numerics.tables
    return tables[norms[0].table].output.bits - 1 if norms else None


def exponent_bits(manifest: Manifest) -> int | None:
    """Width of the root's exponent; None without norms."""
    norms = manifest.numerics.norms
    return _widest(norms).spread_bits.bit_length() - 1 if norms else None


def _widest(norms: tuple[Normalisation, ...]) -> Normalisation:
    return max(norms, key=lambda norm: norm.spread_bits)


def times(value: Value, number: int) -> Value:
    """Return a value times a constant, by adders."""
    total: Value = Const(0, 1)
    for power, minus in reversed(digits(number)):
        term = value.shift_left(power)
        total = total - term if minus else total + term
    return total


class Statistics(Component):
    """Sums a vector's values and their squares; finds the root that divides its deviations.

    Latency: :func:`statistics_cycles` from the vector's last results. Throughput: a beat per cycle. Exact but
    for the root.
    """

    result: Struct = In(result_layout)
    values: Signal = In(lambda manifest: manifest.parameters.gate_units * manifest.numerics.data_bits)
    """Results of all gate units, and where they go."""
    mantissa: Signal = Out(mantissa_bits)
    odd: Signal = Out(1)
    """The root's argument, a cycle before its register: fraction, and whether it is from 2 on."""
    found: Signal = In(root_bits)
    """The root of that argument, from the first gate unit's table."""
    total: Signal = Out(lambda manifest: signed(total_bits(manifest) or 1))
    root: Signal = Out(root_bits)
    exponent: Signal = Out(exponent_bits)
    """What a norm's values are less, times their number; what they are multiplied with, and the power of two
    that they are divided by."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._norms = manifest, manifest.numerics.norms
        self._spread_bits = _widest(self._norms).spread_bits
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total, squares = self._sums(m)
        spread = self._spread(m, total, squares)
        self._find_root(m, spread)
        done = delay_event(
            m, self._completes, statistics_cycles(self._manifest.parameters) - 1 - self._summed
        )
        with m.If(done):
            m.d.sync += [self.total.eq(total), self.root.eq(self.found), self.exponent.eq(self._exponent)]
        return m

    def _chosen(self, m: Module, name: str, value: Callable[[Normalisation], Value]) -> Value:
        """Return a value of the norm that is measured for."""
        values = [value(norm) for norm in self._norms]
        chosen = Signal(signed(self._spread_bits + 1), name=name)
        with m.Switch(self._number):
            for number, each in enumerate(values, 1):
                with m.Case(number):
                    m.d.comb += chosen.eq(each)
        return chosen

    def _sums(self, m: Module) -> tuple[Signal, Signal]:
        """Add the values of each beat, then those of all beats of a vector."""
        bits, result = self._manifest.numerics.data_bits, self.result
        spec = multipliers(self._manifest)["squares"]
        some, squares = [], []
        for index in range(self._manifest.parameters.gate_units):
            # What a beat has no unit for counts as 0.
            value = Mux(result.mask[index], self.values.word_select(index, bits), 0).as_signed()
            staged = Staged(m, value, 0).named(f"value{index}")
            some.append(staged.later(spec.stages))
            squares.append(staged.times(staged, spec, f"square{index}"))
        value_sum, square_sum = _added(some, "values"), _added(squares, "squares")
        summed = self._summed = square_sum.stage
        comes = delay_event(m, result.valid & (result.measured != 0), summed)
        ends = delay(m, result.last, summed)
        number = delay(m, result.measured, summed)
        self._completes = comes & ends
        self._number = Signal(result.measured.shape(), reset_less=True, name="number")
        fresh = Signal(init=1)
        total = Signal(signed(total_bits(self._manifest) or 1), reset_less=True, name="sum")
        squared = Signal(
            max(norm.square_bits for norm in self._norms), reset_less=True, name="sum_of_squares"
        )
        with m.If(comes):
            m.d.sync += [
                fresh.eq(ends),
                self._number.eq(number),
                total.eq(Mux(fresh, 0, total) + value_sum.value),
                squared.eq(Mux(fresh, 0, squared) + square_sum.value),
            ]
        return total, squared

    def _spread(self, m: Module, total: Signal, squares: Signal) -> Value:
        """Return the scaled variance, three cycles later."""
        scaled, added, spread = (
            Signal(self._spread_bits, reset_less=True, name=name) for name in ("scaled", "added", "spread")
        )
        products = self._chosen(
            m, "products", lambda norm: times(squares, norm.values).shift_left(2 * norm.guard)
        )
        epsilon = self._chosen(m, "epsilon", lambda norm: Const(norm.epsilon))
        square: Value = Const(0)
        if any(norm.centre for norm in self._norms):
            spec = multipliers(self._manifest)["square of the sum"]
            factor = Staged(m, total, 0).as_signed(spec.a_bits)
            whole = factor.times(factor, spec, "square_of_sum").value
            square = self._chosen(
                m, "less", lambda norm: whole.shift_left(2 * norm.guard) if norm.centre else Const(0)
            )
        m.d.sync += [scaled.eq(products), added.eq(scaled + epsilon), spread.eq(added - square)]
        return spread

    def _find_root(self, m: Module, spread: Value) -> None:
        """Shift the scaled variance until its highest two bits are not zero, in three cycles."""
        bits, shifts = self._spread_bits, _widest(self._norms).shifts
        moved = list[Value]()
        for number, shift in enumerate(shifts):
            moves = Signal(name=f"moves{shift}")
            m.d.comb += moves.eq(~spread[bits - shift :].any())
            after = Signal(bits, name=f"moved{shift}", reset_less=True)
            # A third of the shifts in each cycle; the last one's register is the table's argument.
            registered = (number + 1) * 3 // len(shifts) > number * 3 // len(shifts) and shift > 2
            domain = m.d.sync if registered else m.d.comb
            domain += after.eq(Mux(moves, spread.shift_left(shift)[:bits], spread))
            spread = after
            moved.append(moves)
        fraction = Mux(spread[-1], spread[: bits - 1], spread[: bits - 2].shift_left(1))
        m.d.comb += [self.odd.eq(spread[-1]), self.mantissa.eq(fraction[-len(self.mantissa) :])]
        self._exponent = (bits - 2) // 2 - Cat(reversed(moved))


def _added(terms: list[Staged], name: str) -> Staged:
    """Add values, some of them in each cycle."""
    level = 0
    while len(terms) > 1:
        groups = [terms[at : at + ADDED_PER_REGISTER] for at in range(0, len(terms), ADDED_PER_REGISTER)]
        terms = [
            combine(lambda *some: sum(some[1:], some[0]), *group).registered(f"{name}{level}_{number}")
            for number, group in enumerate(groups)
        ]
        level += 1
    return terms[0]
