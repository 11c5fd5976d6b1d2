"""Many streams at once, from threads and from tasks, over a link and without one."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.link_bench import LinkBench

from rtlstm.host import Accelerator, AsyncAccelerator, SaturationWarning, SharedAccelerator
from rtlstm.spec.errors import DeviceError, InputError

pytestmark = pytest.mark.rtl

STREAMS, STEPS = 16, 25


@pytest.fixture(params=["golden", "link"])
def opened(make_build, request) -> tuple[object, Callable[[], Accelerator]]:
    build = make_build(streams=STREAMS)
    bench = LinkBench(build)
    return build, (build.open if request.param == "golden" else bench.open)


def expected(build, x):
    return build.golden.run(x).y


def test_threads(opened):
    build, open = opened
    x = build.inputs(STEPS, STREAMS)
    begin = threading.Barrier(STREAMS)

    def one(shared, index):
        with shared.stream() as stream:
            begin.wait()
            return [stream.step(x_t) for x_t in x[:, index]]

    with SharedAccelerator(open()) as shared, ThreadPoolExecutor(STREAMS) as pool:
        y = list(pool.map(lambda index: one(shared, index), range(STREAMS)))
    np.testing.assert_array_equal(np.stack(y, axis=1), expected(build, x))


def test_tasks(opened):
    build, open = opened
    # As a float, the lowest code saturates to the one above.
    x = np.maximum(build.inputs(STEPS, STREAMS), -build.manifest.numerics.input.maximum)
    floats = build.manifest.numerics.input.to_floats(x)

    async def one(accelerator, index):
        async with await accelerator.stream() as stream:
            return [await stream.step(x_t) for x_t in floats[:, index]]

    async def all():
        async with AsyncAccelerator(open()) as accelerator:
            return await asyncio.gather(*(one(accelerator, index) for index in range(STREAMS)))

    y = np.stack(asyncio.run(all()), axis=1)
    np.testing.assert_array_equal(y, build.manifest.layers[-1].output.to_floats(expected(build, x)))


def test_states_and_order(opened):
    build, open = opened
    x = build.inputs(30, 1)
    y = expected(build, x)[:, 0]

    async def run():
        async with AsyncAccelerator(open()) as accelerator, await accelerator.stream() as stream:
            # Asked for at once, computed in order, with the state read in between.
            tasks = [asyncio.ensure_future(stream.steps(x[:10, 0]))]
            await asyncio.sleep(0)
            tasks.append(asyncio.ensure_future(stream.state()))
            await asyncio.sleep(0)
            tasks.append(asyncio.ensure_future(stream.steps(x[10:, 0])))
            first, state, second = await asyncio.gather(*tasks)
            await stream.set_state(state)
            again = await stream.steps(x[10:, 0])
            await stream.reset()
            return first, second, again, await stream.steps(x[:10, 0])

    first, second, again, anew = asyncio.run(run())
    np.testing.assert_array_equal(first, y[:10])
    np.testing.assert_array_equal(second, y[10:])
    np.testing.assert_array_equal(again, y[10:])
    np.testing.assert_array_equal(anew, y[:10])
    with SharedAccelerator(open()) as shared, shared.stream() as stream:
        stream.steps(x[:10, 0])
        saved = stream.state
        stream.reset()
        stream.state = saved
        np.testing.assert_array_equal(stream.steps(x[10:, 0]), y[10:])


def test_steps_of_many_go_together(make_build):
    build = make_build(inputs=100, streams=STREAMS)
    bench = LinkBench(build, latency=0.01)
    held = threading.Event()
    with SharedAccelerator(bench.open()) as shared:
        streams = [shared.stream() for _ in range(STREAMS)]
        x, begun = build.inputs(STREAMS), bench.good.now()
        waiting = shared.call(lambda _: held.wait(10))
        futures = [stream.submit(x_t[None]) for stream, x_t in zip(streams, x, strict=True)]
        held.set()
        assert waiting.result()
        y = np.concatenate([future.result() for future in futures])
    np.testing.assert_array_equal(y, expected(build, x[None])[0])
    # One after the other they would take 20 ms each.
    assert bench.good.now() - begun < 0.1


def test_tasks_that_wait_for_their_answers_keep_the_line_full(make_build):
    build = make_build(inputs=256, hidden=(3,), dense=(), streams=64)
    bench = LinkBench(build, latency=0.001)
    x = build.inputs(5, 64)

    async def one(accelerator, index):
        async with await accelerator.stream() as stream:
            for x_t in x[:, index]:
                await stream.step(x_t)

    async def all():
        async with AsyncAccelerator(bench.open()) as accelerator:
            begun, busy = bench.good.now(), bench.good.busy_seconds[0]
            await asyncio.gather(*(one(accelerator, index) for index in range(64)))
            return (bench.good.busy_seconds[0] - busy) / (bench.good.now() - begun)

    # One at a time it would be a quarter: 0.9 ms to send a step, 3 ms until its answer.
    assert asyncio.run(all()) > 0.7


def test_cancelled_step_is_not_taken(small):
    held, x = threading.Event(), small.inputs(3)
    with SharedAccelerator(small.open()) as shared, shared.stream() as stream:
        shared.call(lambda _: held.wait(10))
        futures = [stream.submit(x[index : index + 1]) for index in range(3)]
        assert futures[1].cancel()
        held.set()
        y = np.concatenate([futures[0].result(), futures[2].result()])
    np.testing.assert_array_equal(y, small.golden.run(x[[0, 2], None]).y[:, 0])


def test_errors_reach_the_caller(small):
    bench = LinkBench(small)
    shared = SharedAccelerator(bench.open())
    stream = shared.stream()
    with pytest.raises(InputError, match=r"x must be \(5,\), not \(4,\)"):
        stream.step(np.zeros(4))
    with pytest.raises(InputError, match="finite"):
        stream.step(np.full(5, np.nan))
    with pytest.raises(InputError, match="pair"):
        stream.state = np.zeros(3)
    with pytest.raises(ZeroDivisionError):
        shared.call(lambda _: 1 / 0).result()
    stream.close()
    with pytest.raises(DeviceError, match="stream is closed"):
        stream.step(np.zeros(5))
    streams = [shared.stream() for _ in range(3)]
    with pytest.raises(DeviceError, match="no stream is free"):
        shared.stream()
    bench.device.reset()
    futures = [stream.submit(np.zeros((1, 5))) for stream in streams]
    for future in futures:
        with pytest.raises(DeviceError, match="was reset"):
            future.result()
    shared.close()
    shared.close()
    with pytest.raises(DeviceError, match="accelerator is closed"):
        streams[0].step(np.zeros(5))
    streams[0].close()


def test_steps_behind_a_call_that_closes_their_stream_fail(opened):
    """They are not run on the stream that then has its number."""
    build, open = opened
    x = build.inputs(4, 1)[:, 0]
    with SharedAccelerator(open()) as shared:
        closed, held = shared.stream(), threading.Event()
        shared.call(lambda _: held.wait())
        after = closed.call(lambda stream: stream.accelerator.stream(after=stream))
        late = closed.submit(x)
        held.set()
        with pytest.raises(DeviceError, match="the stream was closed before its steps"):
            late.result()
        y = shared.call(lambda _: after.result().steps(x)).result()
    np.testing.assert_array_equal(y, expected(build, x[:, None])[:, 0])


def test_serving_thread_does_not_wait_for_itself(small):
    """What would have waited for ever is refused, and not taken later; what does not wait is."""
    x, found = small.inputs(3), threading.Event()
    shared = SharedAccelerator(small.open())
    stream, errors = shared.stream(), []

    def step(_) -> None:
        try:
            stream.step(x[0])
        except DeviceError as error:
            errors.append(str(error))
        stream.submit(x[1:2]).add_done_callback(lambda done: found.set())

    for ask in (shared.call, lambda function: stream.submit(x[:1]).add_done_callback(function)):
        found.clear()
        stream.reset()
        ask(step)
        assert found.wait(10)
        taken = x[1:2] if ask == shared.call else x[:2]
        again = shared.stream()
        again.steps(taken)
        for one, other in zip(stream.state, again.state, strict=True):
            np.testing.assert_array_equal(one, other)
        again.close()
    with pytest.raises(DeviceError, match="must not wait for the shared accelerator"):
        shared.call(lambda _: shared.stream()).result()
    assert len(errors) == 2 and "use what call gives" in errors[0]
    shared.call(lambda _: shared.close()).result()
    shared.close()
    with pytest.raises(DeviceError, match="accelerator is closed"):
        stream.step(x[0])


def test_saturations_are_counted(opened):
    """As those of an accelerator alone."""
    build, open = opened
    x = build.manifest.numerics.input.to_floats(build.inputs(STEPS)) * 3
    with open() as alone:
        with pytest.warns(SaturationWarning):
            alone.run(x)
        expected = alone.saturated_inputs, alone.saturated_outputs
    with SharedAccelerator(open()) as shared, shared.stream() as stream:
        stream.steps(x)
        assert expected == shared.call(lambda acc: (acc.saturated_inputs, acc.saturated_outputs)).result()
    assert expected[0] > STEPS
