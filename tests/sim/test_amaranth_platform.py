"""The models of memories and multipliers keep the contract of docs/primitives.md in Amaranth's simulator."""

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from amaranth.hdl import Instance, Module, Signal, signed
from support.small_builds import network

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.buses.wrappers import wrapper
from rtlstm.hdl.primitives.pipeline import (
    Primitive,
    copies,
    lookup,
    multiply,
    multiply_pair,
    product_sums,
    storage,
    storage_pair,
)
from rtlstm.sim.amaranth_platform import simulator
from rtlstm.spec.inventory import MemorySpec, MultiplierSpec
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

CYCLES = 400
MEMORIES = [
    MemorySpec("plain", 1, 9, 16),
    MemorySpec("registered", 1, 18, 32, output_register=True),
    MemorySpec("granules", 1, 12, 10, granules=3),
    MemorySpec("both", 1, 8, 7, granules=2, output_register=True, style="distributed"),
    MemorySpec("huge", 1, 16, 20, output_register=True, style="huge"),
    MemorySpec("smallest", 1, 1, 2),
]


class Contents:
    """A memory's words, of which some bits may never have been written, and what its read ports give when."""

    def __init__(self, spec: MemorySpec, ports: int = 1) -> None:
        self._spec = spec
        self._words = [0] * spec.depth
        self._known = [0] * spec.depth
        self._coming = [deque([(0, 0)] * spec.latency) for _ in range(ports)]

    def edge(self, reads: list[int], write: int, data: int, enable: int, undefined: list[bool]) -> None:
        """Pass an edge; an undefined read gives the old word inverted."""
        mask = (1 << self._spec.width) - 1
        for coming, address, inverts in zip(self._coming, reads, undefined, strict=True):
            coming.append((self._words[address] ^ (mask if inverts else 0), self._known[address]))
            coming.popleft()
        granule = self._spec.width // self._spec.granules
        for index in range(self._spec.granules):
            if enable >> index & 1:
                part = ((1 << granule) - 1) << index * granule
                self._words[write] = self._words[write] & ~part | data & part
                self._known[write] |= part

    def now(self) -> list[tuple[int, int]]:
        """What each port gives, and which of its bits were written."""
        return [coming[-self._spec.latency] for coming in self._coming]


def addresses(draw: Random, spec: MemorySpec) -> Iterator[int]:
    """Most of them one of four, so that reads and writes meet."""
    while True:
        yield draw.randrange(min(spec.depth, 4) if draw.random() < 0.8 else spec.depth)


def play(m: Module, bench: Any) -> None:
    simulation = simulator(m)
    simulation.add_testbench(bench)
    simulation.run()


@pytest.mark.parametrize("spec", MEMORIES, ids=lambda spec: spec.name)
def test_memory(spec: MemorySpec) -> None:
    m = Module()
    read, write = storage(m, spec, "tried")
    draw, contents, bits = Random(1), Contents(spec), [0, 0]
    drawn = addresses(draw, spec)

    async def bench(ctx: Any) -> None:
        for _ in range(CYCLES):
            reads, writes, data = next(drawn), next(drawn), draw.getrandbits(spec.width)
            enable = draw.getrandbits(spec.granules) if draw.random() < 0.5 else 0
            for signal, value in ((read.addr, reads), (write.addr, writes), (write.data, data)):
                ctx.set(signal, value)
            ctx.set(write.en, enable)
            undefined = enable != 0 and (reads == writes or spec.style == "huge")
            contents.edge([reads], writes, data, enable, [undefined])
            await ctx.tick()
            ((wanted, known),) = contents.now()
            assert (ctx.get(read.data) ^ wanted) & known == 0
            bits[0] += known.bit_count()
            bits[1] += undefined

    play(m, bench)
    assert bits[0] > CYCLES * spec.width // 2 and bits[1] > CYCLES // 20


@pytest.mark.parametrize("register", [False, True])
def test_memory_pair(register: bool) -> None:
    spec = MemorySpec("pair", 2, 6, 12, output_register=register, pairs=1)
    m = Module()
    first, second, write = storage_pair(m, spec, "tried")
    draw, contents, compared = Random(2), Contents(spec, ports=2), [0]
    drawn = addresses(draw, spec)

    async def bench(ctx: Any) -> None:
        for _ in range(CYCLES):
            one, two, data, enable = next(drawn), next(drawn), draw.getrandbits(6), draw.getrandbits(1)
            values = (one, two, data, enable)
            for signal, value in zip((first.addr, second.addr, write.data, write.en), values, strict=True):
                ctx.set(signal, value)
            contents.edge([one, two], one, data, enable, [enable == 1] * 2)
            await ctx.tick()
            for port, (wanted, known) in zip((first, second), contents.now(), strict=True):
                assert (ctx.get(port.data) ^ wanted) & known == 0
                compared[0] += known == 63

    play(m, bench)
    assert compared[0] > CYCLES


def test_what_was_never_written_is_not_zero() -> None:
    m = Module()
    read, _ = storage(m, MemorySpec("fresh", 1, 16, 64), "tried")
    words: set[int] = set()

    async def bench(ctx: Any) -> None:
        for row in range(64):
            ctx.set(read.addr, row)
            await ctx.tick()
            words.add(ctx.get(read.data))

    play(m, bench)
    assert len(words) > 60


SIZES = [(2, 2), (4, 8), (8, 5), (18, 13)]


def factors(draw: Random, bits: int) -> int:
    """A signed number, often one of the ends."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return draw.choice((low, high, -1, 0, draw.randint(low, high), draw.randint(low, high)))


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_multiplier(size: tuple[int, int], stages: int) -> None:
    m = Module()
    a, b = (Signal(signed(bits)) for bits in size)
    product = multiply(m, a, b, MultiplierSpec("tried", 1, 1, *size, stages), "tried")
    draw, coming = Random(3), deque([None] * (stages - 1))

    async def bench(ctx: Any) -> None:
        for _ in range(CYCLES):
            one, two = (factors(draw, bits) for bits in size)
            ctx.set(a, one)
            ctx.set(b, two)
            coming.append(one * two)
            await ctx.tick()
            wanted = coming.popleft()
            assert wanted is None or ctx.get(product) == wanted

    play(m, bench)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_multiplier_pair(size: tuple[int, int], shared: bool, stages: int) -> None:
    """Products with the same factor leave carries, and only they."""
    m = Module()
    signals = [Signal(signed(bits)) for bits in (*size, *size)]
    spec = MultiplierSpec("tried", 1, 2, *size, stages, pairing="lanes" if shared else "neighbours")
    first, second, carry = multiply_pair(m, tuple(signals[:2]), tuple(signals[2:]), spec, "tried")
    draw, coming, carries = Random(4), deque([None] * (stages - 1)), [0]

    async def bench(ctx: Any) -> None:
        for _ in range(CYCLES):
            values = [factors(draw, bits) for bits in (*size, *size)]
            if shared:
                values[3] = values[1]
            for signal, value in zip(signals, values, strict=True):
                ctx.set(signal, value)
            coming.append((values[0] * values[1], values[2] * values[3]))
            await ctx.tick()
            wanted = coming.popleft()
            if wanted is not None:
                assert ctx.get(first) == wanted[0] and ctx.get(second) + ctx.get(carry) == wanted[1]
                carries[0] += ctx.get(carry)

    play(m, bench)
    assert (carries[0] > CYCLES // 10) == shared


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_product_sum(size: tuple[int, int], lanes: int, stages: int) -> None:
    """A cycle later than products, with the second factors that two lanes share."""
    m = Module()
    spec = MultiplierSpec("tried", lanes, 2, *size, stages, sums=1)
    weights = [[Signal(signed(size[0])) for _ in range(2)] for _ in range(lanes)]
    values = [Signal(signed(size[1])) for _ in range(2)]
    given = [((first, values[0]), (second, values[1])) for first, second in weights]
    sums = product_sums(m, given, spec, "tried")
    draw, coming = Random(5), deque([None] * stages)

    async def bench(ctx: Any) -> None:
        for _ in range(CYCLES):
            vector = [factor(ctx, draw, value) for value in values]
            rows = [[factor(ctx, draw, weight) for weight in lane] for lane in weights]
            coming.append([sum(a * b for a, b in zip(row, vector, strict=True)) for row in rows])
            await ctx.tick()
            wanted = coming.popleft()
            assert wanted is None or [ctx.get(total) for total in sums] == wanted

    def factor(ctx: Any, draw: Random, signal: Signal) -> int:
        value = factors(draw, len(signal))
        ctx.set(signal, value)
        return value

    play(m, bench)


@pytest.mark.parametrize("family", ["generic", "ecp5"])
def test_copies(family: str) -> None:
    """A copy gives what was there a cycle ago, with its sign."""
    m = Module()
    parameters = Parameters.for_family(family, factor_bits=8)
    given: dict[str, Signal] = {"flag": Signal(), "number": Signal(signed(5)), "row": Signal(7)}
    every = [copies(m, given, f"copy{index}", parameters, 1) for index in range(2)]
    assert copies(m, given, "none", parameters, 0) == given
    assert all(seen[name].shape() == signal.shape() for seen in every for name, signal in given.items())
    draw = Random(4)

    async def bench(ctx: Any) -> None:
        for _ in range(50):
            values = {
                "flag": draw.getrandbits(1),
                "number": draw.randrange(-16, 16),
                "row": draw.getrandbits(7),
            }
            for name, value in values.items():
                ctx.set(given[name], value)
            await ctx.tick()
            for seen in every:
                assert {name: ctx.get(value) for name, value in seen.items()} == values

    play(m, bench)


def test_a_primitive_without_a_model_is_named() -> None:
    class Other(Primitive):
        def instance(self) -> Instance:
            return Instance("other")

    with pytest.raises(NotImplementedError, match="Other has no model"):
        simulator(Other())


def test_verilog_without_a_model_is_named() -> None:
    """Amaranth's simulator leaves it out without a word."""
    parameters = Parameters(lanes=4, macs=2, bus="axilite")
    made = quantise(network(), QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=6, cell_bits=8))
    design = wrapper(Manifest.of("wrapped", made, parameters))
    assert design is not None
    with pytest.raises(NotImplementedError, match="runs no Verilog, but these are: wrapped"):
        simulator(design)


@pytest.mark.parametrize("size", [3, 512, 1300])
def test_values_are_looked_up(size: int) -> None:
    """Long lists in several choices; 0 past the end."""
    draw = Random(size)
    values = [draw.randrange(200) for _ in range(size)]
    m, index, clock = Module(), Signal(range(2 * size)), Signal()
    m.d.sync += clock.eq(~clock)
    found = lookup(m, index, values, "value")

    async def bench(ctx: Any) -> None:
        for number in range(2 * size):
            ctx.set(index, number)
            assert ctx.get(found) == (values[number] if number < size else 0)

    play(m, bench)
