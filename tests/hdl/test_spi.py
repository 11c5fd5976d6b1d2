"""Bytes on the wires of SPI, with any clock up to the device's own, breaks within bytes and pauses."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator
from support.quick import quick

from rtlstm.hdl.link.crossing import SpiBytes

CYCLE = 1e-6


@pytest.mark.parametrize("cycles_per_bit", quick([1.0, 1.13, 2.0, 2.7, 9.0], 1.0, 2.7))
@pytest.mark.parametrize("seed", quick(range(5), 0))
def test_bytes_both_ways(cycles_per_bit: float, seed: int) -> None:
    """Whole bytes arrive, in order; bytes of the device arrive once, between zeros, although some are broken
    off."""
    rng, half = np.random.default_rng(seed), cycles_per_bit * CYCLE / 2
    top = Module()
    top.submodules.wires = wires = SpiBytes()
    simulator = Simulator(top)
    simulator.add_clock(CYCLE)
    given, arrived, offered, read = [], [], [], []

    async def exchange(ctx, byte: int, bits: int = 8) -> None:
        answer = 0
        for bit in range(bits):
            ctx.set(wires.mosi, byte >> (7 - bit) & 1)
            await ctx.delay(half * (1 + 20 * rng.random() * (rng.random() < 0.02)))
            ctx.set(wires.sck, 1)
            answer = answer << 1 | ctx.get(wires.miso)
            await ctx.delay(half)
            ctx.set(wires.sck, 0)
        if bits == 8:
            given.append(byte)
            read.append(answer)

    async def host(ctx) -> None:
        ctx.set(wires.cs_n, 1)
        await ctx.delay(20.3 * CYCLE)
        for number in range(40):
            ctx.set(wires.cs_n, 0)
            await ctx.delay(half * rng.uniform(1, 3))
            for _ in range(rng.integers(0, 12)):
                await exchange(ctx, int(rng.integers(256)))
            if number % 4 == 0:
                await exchange(ctx, 0xA5, int(rng.integers(8)))
            await ctx.delay(half)
            ctx.set(wires.cs_n, 1)
            await ctx.delay(half * rng.uniform(2, 60))
        ctx.set(wires.cs_n, 0)
        while ctx.get(wires.waiting):
            await exchange(ctx, 0)
        await ctx.delay(9 * CYCLE)

    async def take(ctx) -> None:
        ctx.set(wires.received.ready, 1)
        async for _, _, valid, byte in ctx.tick().sample(wires.received.valid, wires.received.payload):
            if valid:
                arrived.append(byte)

    async def offer(ctx) -> None:
        for _ in range(80):
            byte = int(rng.integers(1, 256))
            ctx.set(wires.sent.payload, byte)
            ctx.set(wires.sent.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(wires.sent.ready)
            offered.append(byte)
            ctx.set(wires.sent.valid, 0)
            if rng.random() < 0.3:
                await ctx.tick().repeat(int(rng.integers(1, 120)))

    simulator.add_testbench(host)
    simulator.add_testbench(take, background=True)
    simulator.add_testbench(offer, background=True)
    simulator.run()
    assert arrived == given and len(given) > 150
    sent = [byte for byte in read if byte]
    assert sent == offered[: len(sent)] and len(sent) >= len(offered) - 1 > 50
