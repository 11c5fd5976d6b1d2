"""Sums and roundings of the LSTM gate unit, of an array or in space."""

from amaranth.hdl import Cat, Const, Mux, Value

from rtlstm.hdl.primitives.staged import Staged, combine, mux
from rtlstm.spec.fixed import Format


def exact_sum(kept: Staged, added: Staged, minus: Staged, shifts: tuple[int, int], bits: int) -> Staged:
    """Return ``kept + added`` in ``bits`` bits, or their difference if ``minus``; ``shifts`` align them."""

    def total(kept: Value, added: Value, minus: Value) -> Value:
        kept, added = kept.shift_left(shifts[0]), added.shift_left(shifts[1])
        added = added ^ minus.replicate(bits).as_signed()
        # -a is ~a + 1, and the 1 comes in as the carry below the lowest bit.
        with_carry = Cat(Const(1, 1), kept).as_signed() + Cat(minus, added).as_signed()
        return with_carry.shift_right(1)

    return combine(total, kept, added, minus)


def rounded_state(total: Staged, drop: int, limit: int, registers: int = 0) -> tuple[Staged, Staged]:
    """Drop low bits of a sum, rounding half up, and limit it; return that, and whether it was beyond.

    Limits are compared with the sum as it is, beside the rounding and not behind it; ``registers`` stand
    between rounding and limiting.
    """
    half = (1 << drop) >> 1
    over = (total >= ((limit + 1) << drop) - half).later(registers)
    under = (total < (-limit << drop) - half).later(registers)
    rounded = total.map(lambda value: half_up(value, drop)).later(registers)
    return mux(over, limit, mux(under, -limit, rounded)), over | under


def half_up(value: Value, drop: int) -> Value:
    """Drop low bits, rounding half up."""
    return value if drop == 0 else (value + Const(1 << (drop - 1))).shift_right(drop)


def with_sign(
    magnitude: Staged, negative: Staged, drop: int, form: Format, name: str, registers: int
) -> Staged:
    """Give a magnitude its sign, drop low bits rounding half up, and limit; one carry chain deep.

    Takes ``registers`` (0 or 1) cycles: the register, if any, stands before the limiting.
    """
    limit = form.maximum
    half = (1 << drop) >> 1

    def rounded_up(magnitude: Value, negative: Value) -> Value:
        # In halves of its last bit: 2 * m + 1 for m, 2 * ~m + 2 for -m.
        wide = Cat(Const(1, 1), magnitude ^ negative.replicate(len(magnitude)), negative).as_signed()
        rounding = Cat(negative, Const(half, max(1, drop)), Const(0, 1)).as_signed()
        return (wide + rounding).shift_right(1 + drop)

    def beyond(magnitude: Value, negative: Value) -> Value:
        # Half a unit below the next value counts for a positive one and not for a negative one.
        return Cat(~negative, magnitude) > 2 * (((limit + 1) << drop) - half) if drop else magnitude > limit

    over = combine(beyond, magnitude, negative).named(f"{name}_over").later(registers)
    rounded = combine(rounded_up, magnitude, negative).named(f"{name}_rounded").later(registers)
    return clipped(over, negative, limit, rounded).as_signed(form.bits).named(name)


def odd_codes(magnitude: Staged, negative: Staged, drop: int, form: Format) -> Staged:
    """Give a magnitude its sign, drop low bits, and set the last one that is left; no carry chain.

    Of a magnitude whose last bit is set, the complement with its last bit set is the negative: nothing is
    added. The magnitude is within the format's range.
    """
    kept = magnitude[drop + 1 : drop + form.bits - 1]
    return combine(
        lambda kept, negative: Cat(Const(1, 1), kept ^ negative.replicate(len(kept)), negative).as_signed(),
        kept,
        negative,
    )


def clipped(over: Staged, negative: Staged, limit: int, value: Staged) -> Staged:
    """Return the value, or beyond the limit, that with its sign; chosen where ``over`` is known."""
    return combine(
        lambda over, negative, value: Mux(over, Mux(negative, -limit, limit), value), over, negative, value
    )
