"""What crosses between the clocks of link and core: each once, in order, at any ratio of the two."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.hdl.link.crossing import Handover
from rtlstm.host import Accelerator
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.simulated_board import BoardPort, NativeBoard

COUNT = 60


@pytest.mark.parametrize(
    ("source", "to"), [(1.0, 1.0), (1.0, 0.99), (1.0, 0.137), (0.137, 1.0), (0.31, 1.0), (1.0, 0.47)]
)
def test_everything_is_handed_over_once(source: float, to: float):
    """Periods of the clocks, in us; both sides pause now and then."""
    rng = random.Random(f"{source} {to}")
    m = Module()
    m.submodules.dut = dut = Handover("source", "to")
    value, got = Signal(16), list[int]()
    values = [rng.randrange(1 << 16) for _ in range(COUNT)]

    async def give(ctx):
        for each in values:
            await ctx.tick("source").repeat(rng.randrange(1, 5))
            ctx.set(value, each)
            ctx.set(dut.offered, 1)
            await ctx.tick("source").until(dut.taken)
            # What is not offered may be anything.
            ctx.set(dut.offered, 0)
            ctx.set(value, rng.randrange(1 << 16))
        await ctx.tick("source").repeat(20)
        assert ctx.get(dut.there) == 0

    async def take(ctx):
        while len(got) < COUNT:
            ctx.set(dut.take, rng.random() < 0.5)
            _, _, there, taken, now = await ctx.tick("to").sample(dut.there, dut.take, value)
            if there and taken:
                got.append(now)
        ctx.set(dut.take, 0)

    simulator = Simulator(m)
    simulator.add_clock(source * 1e-6, domain="source")
    simulator.add_clock(to * 1e-6, domain="to", phase=0.3e-6 * to)
    simulator.add_testbench(give)
    simulator.add_testbench(take)
    simulator.run()
    assert got == values


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("mhz", [150.0, 7.0])
def test_a_board_whose_core_is_faster_or_slower_than_its_link(on_board: OnBoard, tmp_path: Path, mhz: float):
    """Weights are loaded and read back, and steps give the golden model's results."""
    build = OnBoard.create(on_board.folder, on_board.board.name, mhz)
    assert float(build.timing.clock_hz) != float(build.timing.link_hz)
    moved = replace(build, board=build.board.replace(name=f"{build.board.name}-{mhz:g}"))
    native = NativeBoard(*moved.compile())
    assert native.clock_hz == pytest.approx(1e6 * build.timing.clock_mhz, rel=1e-6)
    with LinkTransport(BoardPort(native), build.manifest, seed=1) as transport:
        board = Accelerator(transport, build.manifest)
        board.load_weights(build.folder / "weights.bin", verify=True)
        x = np.random.default_rng(3).uniform(-0.5, 0.5, size=(5, build.manifest.program.inputs))
        y, _ = board.run(x)
    with Accelerator.open(build.folder, "golden") as golden:
        assert np.array_equal(y, golden.run(x)[0])
