"""Streams that nobody holds any more, streams of an accelerator that was closed, and integers."""

import asyncio
import gc
import warnings

import numpy as np
import pytest

from rtlstm.host import AsyncAccelerator, CodesWarning, SharedAccelerator
from rtlstm.spec.errors import DeviceError


def test_lost_stream_is_free_again(small):
    """As in a notebook whose cell is run again, or a function that forgets its stream."""
    accelerator, x = small.open(), small.inputs(4)
    expected, _ = accelerator.run(x)
    for _ in range(10):
        # Each is lost with the next.
        stream = accelerator.stream()
        np.testing.assert_array_equal(stream.steps(x), expected)
    streams = [stream, accelerator.stream(), accelerator.stream()]
    with pytest.raises(DeviceError, match="all 3 .* close one, or all with close_streams, or generate with"):
        accelerator.stream()
    number = streams[1].number
    del stream, streams[1]
    assert accelerator.stream().number == number
    with pytest.raises(DeviceError, match="the stream is closed"), streams[0] as first:
        first.close()
        first.step(x[0])


def test_lost_in_a_circle(small):
    """As one that a caught error's frames refer to."""
    accelerator, x = small.open(), small.inputs(4, 1)
    for lost in range(3):
        circle = [accelerator.stream()]
        assert circle[0].number == lost
        circle.append(circle)
    del circle
    assert accelerator.run(x)[0].shape[1] == 1
    assert sorted(accelerator.stream().number for _ in range(3)) == [0, 0, 0]


def test_a_stream_in_use_is_not_lost(small):
    accelerator, x = small.open(), small.inputs(4)
    step = accelerator.stream().step
    gc.collect()
    assert accelerator.stream().number == 1
    np.testing.assert_array_equal(np.stack([step(x_t) for x_t in x]), accelerator.run(x)[0])


def test_close_streams(small):
    """For streams that something holds which their user cannot reach, as a notebook's outputs."""
    accelerator, x = small.open(), small.inputs(4)
    held = [accelerator.stream() for _ in range(3)]
    accelerator.close_streams()
    assert all(stream.closed for stream in held)
    accelerator.close_streams()
    fresh = accelerator.stream()
    held[0].close()
    assert accelerator.stream().number == 1
    np.testing.assert_array_equal(fresh.steps(x), accelerator.run(x)[0])


@pytest.mark.slow
def test_shared_streams_are_lost_too(make_build):
    build = make_build(streams=1)
    x = build.inputs(3)
    with SharedAccelerator(build.open()) as shared:
        for _ in range(5):
            stream = None
            gc.collect()
            stream = shared.stream()
            np.testing.assert_array_equal(stream.steps(x), build.golden.run(x[:, None]).y[:, 0])

    async def all() -> None:
        async with AsyncAccelerator(build.open()) as accelerator:
            for _ in range(5):
                stream = None
                stream = await accelerator.stream()
                await stream.steps(x)
            with pytest.raises(DeviceError, match="no stream is free"):
                await accelerator.stream()
            del stream

    asyncio.run(all())


def test_closed_with_streams_open(small):
    """The error is that the accelerator is closed, not that it has no stream left."""
    accelerator, x = small.open(), small.inputs(4)
    streams = [accelerator.stream() for _ in range(3)]
    accelerator.close()
    accelerator.close()
    for call in (
        lambda: accelerator.run(x),
        lambda: accelerator.run("nothing"),
        accelerator.stream,
        lambda: accelerator.step_many(streams, x[:3]),
        lambda: accelerator.load_weights("none"),
        lambda: accelerator.load("none"),
        lambda: accelerator.measured_latency_cycles,
        lambda: accelerator.cell_saturations,
        lambda: streams[0].step(x[0]),
        lambda: streams[0].state,
        streams[0].reset,
    ):
        with pytest.raises(DeviceError, match="the accelerator is closed; open it again"):
            call()
    accelerator.close_streams()
    assert all(stream.closed for stream in streams)


def heard(call) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught if each.category is CodesWarning]


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int16"])
def test_integers_are_noted_once(small, dtype: str):
    """Classes and counts come as integers, which are codes here: said once by each accelerator."""
    accelerator = small.open()
    ones, floats = np.ones((2, 5), dtype), np.ones((2, 5))
    assert not heard(lambda: accelerator.run(floats))
    (said,) = heard(lambda: accelerator.run(ones))
    assert said.startswith(
        f"x holds {dtype}: integers are taken as codes of the input format s8.5 (1 is 0.03125)"
    )
    assert said.endswith("outputs are codes, too; give floats for real values")
    assert not heard(lambda: accelerator.run(ones))
    accelerator = small.open()
    with accelerator.stream() as stream:
        assert len(heard(lambda: stream.step(ones[0]))) == 1
        assert not heard(lambda: stream.steps(ones)) and not heard(lambda: accelerator.run(ones))
    assert len(heard(lambda: small.open().step_many([], ones[:0]))) == 1
    with SharedAccelerator(small.open()) as shared, shared.stream() as stream:
        assert len(heard(lambda: stream.submit(ones).result())) == 1
        assert not heard(lambda: stream.submit(ones).result())
