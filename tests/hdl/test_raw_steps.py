"""The raw mode's side of the device, without wires: when it takes steps, and until when it has news."""

import pytest
from amaranth.sim import Simulator
from support.loadable_builds import make_device, stacked
from support.raw_transfers import raw_step, sealed

from rtlstm import ConfigurationError, Manifest, Parameters
from rtlstm.hdl.link.datagrams import DatagramLink
from rtlstm.hdl.link.executor import Executor, low
from rtlstm.hdl.link.raw import RawSteps
from rtlstm.spec.link import ErrorCode, FrameType


def loadable(**capacities: int) -> Manifest:
    return make_device(stacked(3, 4), Parameters(), **capacities).manifest


@pytest.mark.parametrize("sized", [False, True])
def test_steps_need_a_program_and_results_are_news_until_they_were_read(sized: bool) -> None:
    steps, seen = RawSteps(loadable(), sized), {"dropped": 0, "there": 0}
    simulator = Simulator(steps)
    simulator.add_clock(1e-6)

    async def count(ctx) -> None:
        async for _, _, dropped, there in ctx.tick().sample(steps.dropped, steps.there):
            seen["dropped"] += dropped
            seen["there"] += there

    async def send(ctx, data: bytes) -> None:
        item = steps.i.payload
        for index, byte in enumerate(data):
            ctx.set(item, {"data": byte, "first": not index, "last": index == len(data) - 1})
            ctx.set(steps.i.valid, 1)
            await ctx.tick()
        ctx.set(steps.i.valid, 0)
        await ctx.tick().repeat(5)

    async def read(ctx, count: int) -> bytes:
        data = []
        ctx.set(steps.o.ready, 1)
        while len(data) < count:
            _, _, valid, item = await ctx.tick().sample(steps.o.valid, steps.o.payload)
            data += [item.data] * valid
        ctx.set(steps.o.ready, 0)
        await ctx.tick().repeat(5)
        return bytes(data)

    async def bench(ctx) -> None:
        step = raw_step(b"\1\2\3")
        # Of no inputs, as SHAPE says, and of those of the next program.
        await send(ctx, raw_step(b""))
        await send(ctx, step)
        assert seen == {"dropped": 2, "there": 0}
        ctx.set(steps.shape, 3 | 2 << 16)
        await send(ctx, step)
        assert seen["dropped"] == 2 and seen["there"] > 0 and not ctx.get(steps.answers)
        # Of an output that is not wanted, since memories have no contents in this simulation.
        ctx.set(steps.close, 1)
        await ctx.tick()
        ctx.set(steps.close, 0)
        ctx.set(steps.held, 1)
        result = sealed(bytes([FrameType.DONE]))
        assert await read(ctx, len(result)) == result and ctx.get(steps.answers)
        # The host breaks off the last byte, and reads all of them again.
        ctx.set(steps.again, 1)
        await ctx.tick()
        ctx.set(steps.again, 0)
        assert await read(ctx, len(result)) == result and ctx.get(steps.answers)
        ctx.set(steps.held, 0)
        await ctx.tick().repeat(2)
        assert not ctx.get(steps.answers) and seen["dropped"] == 2
        # Its program goes: the result is no answer to a step that is dropped.
        ctx.set(steps.shape, 0)
        await send(ctx, step)
        ctx.set(steps.again, 1)
        await ctx.tick()
        ctx.set(steps.again, 0)
        await ctx.tick().repeat(3)
        assert seen["dropped"] == 3 and not ctx.get(steps.o.valid)

    simulator.add_testbench(bench)
    simulator.add_testbench(count, background=True)
    simulator.run()


def test_a_step_for_a_core_that_has_stopped_is_refused() -> None:
    """It would wait for the core, and all requests behind it, with which the program is loaded."""
    executor = Executor(loadable())
    simulator = Simulator(executor)
    simulator.add_clock(1e-6)

    async def bench(ctx) -> None:
        ctx.set(executor.shape, 3 | 2 << 16)
        ctx.set(executor.room, 1)
        for stopped in (1, 0):
            ctx.set(executor.stopped, stopped)
            ctx.set(executor.request, {"kind": low(FrameType.STEPS), "length": 5})
            ctx.set(executor.there, 1)
            ctx.set(executor.i.valid, 1)
            ctx.set(executor.o.ready, 1)
            if stopped:
                (code,) = await ctx.tick().sample(executor.o.payload).until(executor.o.valid)
                assert code == ErrorCode.STREAM and ctx.get(executor.failed)
                await ctx.tick().until(executor.close)
            else:
                await ctx.tick().until(executor.x.valid)
                assert not ctx.get(executor.o.valid)

    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize(("most", "what"), [({"inputs": 995}, "step"), ({"outputs": 997}, "result")])
def test_raw_datagrams_have_at_most_1000_bytes(most: dict[str, int], what: str) -> None:
    DatagramLink(loadable(**most), raw=True)
    (larger,) = ({name: values + 1} for name, values in most.items())
    with pytest.raises(ConfigurationError, match=f"at most 1000 .* a {what} of this build has 1001; leave"):
        DatagramLink(loadable(**larger), raw=True)
