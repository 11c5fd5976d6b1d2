"""Datapath values that know their pipeline stage.

Where two of them meet, the earlier one is delayed until both belong to the same input: who writes a formula
counts no registers, and a longer table or multiplier before it moves all that follows.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, ValueLike

from rtlstm.hdl.primitives.pipeline import delay, multiply
from rtlstm.spec.inventory import MultiplierSpec


class Staged:
    """A value, and its stage: the cycles from an input's stage 0 to the cycle with its value.

    Operators give their result in the stage of the latest operand, without a register behind it. Earlier
    operands are delayed to that stage; all uses of a value share these registers, which carry no reset. An
    operand that is not ``Staged``, such as a constant, counts as the same in every stage.

    What an operator gives is a value of its own, which is delayed as a whole: of ``(few ^ bits) + late`` that
    is what few bits became. Where a choice of many bits hangs on few, :func:`combine` does all in one stage.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, m: Module, value: ValueLike, stage: int) -> None:
        self._m = m
        self._values = {stage: Value.cast(value)}
        self.stage = stage

    @property
    def value(self) -> Value:
        """The value, in its own stage."""
        return self._values[self.stage]

    def __len__(self) -> int:
        return len(self.value)

    def at(self, stage: int) -> Value:
        """Return the value in a stage that is not before its own.

        Not within ``m.If``: the registers would load under its condition.
        """
        assert stage >= self.stage, f"a value of stage {self.stage} is used in stage {stage}"
        if stage not in self._values:
            before = self.at(stage - 1)
            self._values[stage] = before if isinstance(before, Const) else delay(self._m, before, 1)
        return self._values[stage]

    def later(self, cycles: int) -> "Staged":
        """Return it ``cycles`` stages later."""
        self.at(self.stage + cycles)
        moved = copy(self)
        moved.stage += cycles
        return moved

    def map(self, function: Callable[[Value], ValueLike]) -> "Staged":
        """Return a function of it, in the same stage."""
        return Staged(self._m, function(self.value), self.stage)

    def named(self, name: str, shape: Shape | int | None = None) -> "Staged":
        """Return it as a signal of this name, by default as wide as it is; its delays are named after it."""
        signal = Signal(self.value.shape() if shape is None else shape, name=name)
        self._m.d.comb += signal.eq(self.value)
        return Staged(self._m, signal, self.stage)

    def as_signed(self, bits: int) -> "Staged":
        """Return its low bits as a signed value."""
        return self.map(lambda value: value[:bits].as_signed())

    def registered(
        self, name: str, shape: Shape | int | None = None, zero: ValueLike | None = None
    ) -> "Staged":
        """Return it one stage later, in a register of this name; by default as wide as it is.

        The register becomes 0 while ``zero`` is 1. It carries no reset.
        """
        register = Signal(self.value.shape() if shape is None else shape, reset_less=True, name=name)
        self._m.d.sync += register.eq(self.value)
        if zero is not None:
            with self._m.If(zero):
                self._m.d.sync += register.eq(0)
        return Staged(self._m, register, self.stage + 1)

    def times(self, other: "Staged", spec: MultiplierSpec, name: str) -> "Staged":
        """Return the exact product, ``spec.stages`` later, by one of the inventory's multipliers.

        These are signed: an unsigned factor gets a sign bit of 0.
        """
        stage = max(self.stage, other.stage)
        a, b = (_extended(factor.at(stage)) for factor in (self, other))
        return Staged(self._m, multiply(self._m, a, b, spec, name), stage + spec.stages)

    def __add__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a + b, self, other)

    def __sub__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a - b, self, other)

    def __and__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a & b, self, other)

    def __or__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a | b, self, other)

    def __xor__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a ^ b, self, other)

    def __rshift__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a >> b, self, other)

    def __eq__(self, other: object) -> "Staged":  # type: ignore[override]
        return combine(lambda a, b: a == b, self, other)

    def __ne__(self, other: object) -> "Staged":  # type: ignore[override]
        return combine(lambda a, b: a != b, self, other)

    def __lt__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a < b, self, other)

    def __le__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a <= b, self, other)

    def __gt__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a > b, self, other)

    def __ge__(self, other: "Staged | ValueLike") -> "Staged":
        return combine(lambda a, b: a >= b, self, other)

    def __bool__(self) -> bool:
        raise TypeError("a value in hardware is not known here: choose with mux, not with if")

    def __invert__(self) -> "Staged":
        return self.map(lambda value: ~value)

    def __getitem__(self, key: int | slice) -> "Staged":
        return self.map(lambda value: value[key])


def combine(function: Callable[..., ValueLike], *operands: Any) -> Staged:
    """Return a function of values, at least one of them ``Staged``, in the latest one's stage."""
    staged = [operand for operand in operands if isinstance(operand, Staged)]
    stage = max(operand.stage for operand in staged)
    values = [operand.at(stage) if isinstance(operand, Staged) else operand for operand in operands]
    return Staged(staged[0]._m, function(*values), stage)


def mux(choice: Staged | ValueLike, first: "Staged | ValueLike", other: "Staged | ValueLike") -> Staged:
    """Return ``first`` where ``choice`` is 1, else ``other``."""
    return combine(Mux, choice, first, other)


def _extended(factor: Value) -> Value:
    """Return an unsigned value as a signed one."""
    return factor if factor.shape().signed else Cat(factor, Const(0, 1)).as_signed()
