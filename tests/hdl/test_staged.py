"""Values of different stages meet for the same input, and uses of a value share its delays."""

from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import Const, Module, Signal, signed

from rtlstm.hdl.primitives.staged import Staged, combine, mux
from rtlstm.sim.amaranth_platform import simulator
from rtlstm.spec.inventory import MultiplierSpec

INPUTS = [(7, -3), (-8, 5), (0, 0), (3, 7), (-1, -8), (6, 1), (2, -2), (-5, 4)]
"""One pair per cycle."""
BITS = 4


class Bench:
    """A module with two inputs, one there two stages before the other."""

    def __init__(self) -> None:
        self.m = Module()
        self.inputs = Signal(signed(BITS), name="a"), Signal(signed(BITS), name="b")
        self.zero = Signal()
        self.a, self.b = (
            Staged(self.m, signal, stage) for signal, stage in zip(self.inputs, (-1, 1), strict=True)
        )

    def run(self, result: Staged) -> list[int]:
        """Return the result of every input."""
        found, shown = list[int](), Signal(signed(16))
        self.m.d.comb += shown.eq(result.value)

        async def bench(ctx: Any) -> None:
            for stage in range(-1, result.stage + len(INPUTS)):
                for place, (signal, first) in enumerate(zip(self.inputs, (-1, 1), strict=True)):
                    if 0 <= stage - first < len(INPUTS):
                        ctx.set(signal, INPUTS[stage - first][place])
                if stage >= result.stage:
                    found.append(ctx.get(shown))
                await ctx.tick()

        simulation: Any = simulator(self.m)
        simulation.add_testbench(bench)
        simulation.run()
        return found


FORMULAS: dict[str, tuple[Callable[[Bench], Staged], int, Callable[[int, int], int]]] = {
    "sum": (lambda bench: bench.a + bench.b, 1, lambda a, b: a + b),
    "with a constant": (lambda bench: (bench.a + 3) - bench.b, 1, lambda a, b: a + 3 - b),
    "logic": (lambda bench: (~bench.a & bench.b) | (bench.a ^ bench.b), 1, lambda a, b: (~a & b) | (a ^ b)),
    "shift": (lambda bench: bench.a >> bench.b[:2], 1, lambda a, b: a >> (b & 3)),
    "register": (
        lambda bench: (bench.a + bench.b).registered("both", signed(8)) + bench.b,
        2,
        lambda a, b: a + 2 * b,
    ),
    "later": (lambda bench: bench.b.later(2) - bench.a, 3, lambda a, b: b - a),
    "choice": (
        lambda bench: mux(bench.a[BITS - 1], bench.b, bench.a.later(3)),
        2,
        lambda a, b: b if a < 0 else a,
    ),
    "named": (lambda bench: (bench.a + bench.b).named("both").later(1), 2, lambda a, b: a + b),
    "fewer bits": (lambda bench: (bench.a + bench.b).as_signed(2), 1, lambda a, b: (a + b + 2) % 4 - 2),
    "three": (lambda bench: combine(lambda *all: sum(all), bench.a, bench.b, 5), 1, lambda a, b: a + b + 5),
    "equal": (lambda bench: bench.a == bench.b, 1, lambda a, b: int(a == b)),
    "not equal": (lambda bench: (bench.a != 3).later(1), 0, lambda a, b: int(a != 3)),
    "less": (lambda bench: bench.a < bench.b, 1, lambda a, b: int(a < b)),
    "at most": (lambda bench: bench.a <= bench.b, 1, lambda a, b: int(a <= b)),
    "greater": (lambda bench: (bench.a > bench.b).later(1), 2, lambda a, b: int(a > b)),
    "at least": (lambda bench: bench.a >= bench.b, 1, lambda a, b: int(a >= b)),
    "constant": (lambda bench: Staged(bench.m, Const(5, 5), -3) + bench.a.later(1), 0, lambda a, b: 5 + a),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_operands_are_of_one_input(name: str) -> None:
    make, stage, formula = FORMULAS[name]
    bench = Bench()
    result = make(bench)
    assert result.stage == stage
    assert bench.run(result) == [formula(a, b) for a, b in INPUTS]


@pytest.mark.parametrize("stages", [1, 2])
def test_product(stages: int) -> None:
    bench = Bench()
    spec = MultiplierSpec("tried", 1, 1, BITS, BITS, stages=stages, kind="lut")
    product = bench.a.times(bench.b, spec, "product")
    assert product.stage == 1 + stages
    assert bench.run(product + bench.a) == [a * b + a for a, b in INPUTS]


def test_unsigned_factor_gets_a_sign() -> None:
    bench = Bench()
    spec = MultiplierSpec("tried", 1, 1, BITS + 1, BITS, stages=1, kind="lut")
    product = bench.a[:BITS].times(bench.b, spec, "product")
    assert bench.run(product) == [(a % 16) * b for a, b in INPUTS]


def test_register_is_zero_on_demand() -> None:
    bench = Bench()
    kept = (bench.a + bench.b).registered("kept", zero=bench.zero)
    bench.m.d.comb += bench.zero.eq(bench.b.value == 7)
    assert bench.run(kept) == [0 if b == 7 else a + b for a, b in INPUTS]


def test_uses_share_their_delays() -> None:
    bench = Bench()
    later = bench.a.later(2)
    assert bench.a.at(1) is later.value and bench.a.at(3) is later.at(3)
    constant = Staged(bench.m, Const(1), 0)
    assert constant.at(4) is constant.value
    assert bench.run(later) == [a for a, _ in INPUTS]


def test_before_its_stage_there_is_no_value() -> None:
    bench = Bench()
    with pytest.raises(AssertionError, match="a value of stage 1 is used in stage 0"):
        bench.b.at(0)
    assert bench.run(bench.b.later(1)) == [b for _, b in INPUTS]


def test_hardware_decides_no_branch() -> None:
    bench = Bench()
    equal = bench.a == bench.b
    with pytest.raises(TypeError, match="choose with mux"):
        bool(equal)
    with pytest.raises(TypeError, match="unhashable"):
        hash(equal)
    assert bench.run(equal.later(1)) == [int(a == b) for a, b in INPUTS]
