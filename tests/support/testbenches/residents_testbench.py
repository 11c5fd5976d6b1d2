"""The cocotb module of tests/test_cocotb.py for a device of two networks; NETWORKS names the builds."""

import os
import warnings
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from rtlstm import CodesWarning, ConfigurationError, DeviceError, Manifest, WeightImage
from rtlstm.cocotb import Core
from rtlstm.sim.golden import Golden
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.packing import unpack
from rtlstm.spec.parameters import NETWORK_BIT

FIRST, SECOND = (Path(path) for path in os.environ["NETWORKS"].split(os.pathsep))


def golden(folder: Path, steps: int) -> tuple[Golden, IntArray]:
    """The model of a build, and random codes for a sequence."""
    manifest = Manifest.load(folder)
    most = manifest.numerics.input.maximum
    x = np.random.default_rng(steps).integers(-most, most, (steps, 1, manifest.program.inputs))
    return Golden(unpack(WeightImage.load(folder / "weights.bin", manifest), manifest)), x


async def opened(dut: Any) -> Core:
    """A core with both networks."""
    warnings.simplefilter("ignore", CodesWarning)
    core = await Core.open(dut)
    await core.load(SECOND, network=1)
    return core


@cocotb.test()
async def networks_in_turn(dut: Any) -> None:
    """Steps of both in turn, whole sequences, and a stream that the other network goes on with."""
    core = await opened(dut)
    board = core.scoreboard
    (one, x), (other, z) = golden(FIRST, 4), golden(SECOND, 5)
    streams = await core.stream(), await core.stream(network=1)
    said: tuple[list[IntArray], list[IntArray]] = [], []
    for step in range(4):
        for network, values in enumerate((x, z)):
            said[network].append(await streams[network].step(values[step, 0]))
    result = one.run(x)
    np.testing.assert_array_equal(said[0], result.y[:, 0])
    np.testing.assert_array_equal(said[1], other.run(z[:4]).y[:, 0])
    await streams[1].close()
    after = await core.stream(network=1, after=streams[0])
    np.testing.assert_array_equal(await after.steps(z[:, 0]), other.run(z, (result.h, result.c)).y[:, 0])
    await after.close()
    if core.streams is not None:
        assert board.cycles == board.steps > 0, "the cycle of every step is predicted"
    for network in (0, 1, None):
        assert await core.check(steps=3, network=network) > 0
    core.stall(x=0.3, y=0.3)
    for network in (1, 0):
        assert await core.check(steps=3, network=network, seed=2) > 0
    core.stall()
    with pytest.raises(ConfigurationError, match="holds 2 networks, 0 to 1, and network 2 was named"):
        await core.load(SECOND, network=2)
    with pytest.raises(DeviceError, match="network 3 is not loaded, and the device holds 0, 1"):
        await core.check(network=3)


@cocotb.test()
async def resets_and_loads_again(dut: Any) -> None:
    """A reset takes both networks off the core; one that is loaded again in its place is another build's."""
    core = await opened(dut)
    stream = await core.stream(network=1)
    await core.reset()
    assert stream.stream.closed
    for network, folder in ((1, FIRST), (0, SECOND)):
        await core.load(folder, network=network)
    for network in (0, 1):
        assert await core.check(steps=3, network=network) > 0


@cocotb.test()
async def steps_of_a_design(dut: Any) -> None:
    """What the test sends by hand is compared, of either network; a build that nobody named is said."""
    core = await opened(dut)
    if not hasattr(dut, "x_stream"):
        return
    (one, x), (other, z) = golden(FIRST, 2), golden(SECOND, 2)
    for network, model, values in ((1, other, z), (0, one, x)):
        manifest = core.scoreboard.build_of(network << NETWORK_BIT)[0]
        for step in values[:, 0]:
            await send(core, manifest, network << NETWORK_BIT, step)
        for wanted in model.run(values).y[:, 0]:
            np.testing.assert_array_equal(await core.output(), manifest.output.to_floats(wanted))
    with pytest.raises(ConfigurationError, match="must have a loadable program|made for the device"):
        core.expect(Path(os.environ["FOREIGN"]))
    core.expect(SECOND)


async def send(core: Core, manifest: Manifest, number: int, x: IntArray) -> None:
    """Drive the beats of one step."""
    dut, bits, beat = core.dut, manifest.numerics.input.bits, manifest.parameters.beat_in
    for first in range(0, len(x), beat):
        words = [int(value) & (1 << bits) - 1 for value in x[first : first + beat]]
        dut.x_data.value = sum(word << bits * index for index, word in enumerate(words))
        dut.x_stream.value, dut.x_quiet.value, dut.x_valid.value = number, 0, 1
        await ClockCycles(core.clock.signal, 1)
        while not int(dut.x_ready.value):
            await ClockCycles(core.clock.signal, 1)
    dut.x_valid.value = 0
