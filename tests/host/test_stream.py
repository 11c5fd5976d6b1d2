"""Streams: state that stays on the device, also where nobody holds a stream any more; and integers."""

import asyncio
import gc
import warnings

import numpy as np
import pytest

from rtlstm.host import AsyncAccelerator, CodesWarning, SaturationWarning, SharedAccelerator
from rtlstm.spec.errors import DeviceError, InputError


def test_steps_equal_a_run(small):
    accelerator, x = small.open(), small.inputs(7)
    expected, state = accelerator.run(x)
    with accelerator.stream() as stream:
        np.testing.assert_array_equal(np.stack([stream.step(x_t) for x_t in x]), expected)
        np.testing.assert_array_equal(stream.state_integers, state)
        stream.reset()
        np.testing.assert_array_equal(stream.steps(x), expected)
        assert stream.steps(x[:0]).shape == (0, 3)


def test_steps_one_by_one_and_several_mix(small):
    accelerator, x = small.open(), small.inputs(12)
    expected, _ = accelerator.run(x)
    with accelerator.stream() as stream, accelerator.stream() as other:
        found = [stream.step(x[0]), *stream.steps(x[1:4]), stream.step(x[4])]
        found += [stream.step(x[5]), accelerator.step_many([stream, other], x[[6, 0]])[0]]
        saved = stream.state_integers
        found.append(stream.step(x[7]))
        stream.state = saved
        np.testing.assert_array_equal(stream.step(x[7]), found[-1])
        found.append(stream.step(x[8]))
        other.state = stream.state_integers
        accelerator.step_many([other, stream], x[[9, 9]])
        other.reset()
        found += [expected[9], *stream.steps(x[10:11]), stream.step(x[11])]
    np.testing.assert_array_equal(np.stack(found), expected)


def test_streams_do_not_disturb_each_other(small):
    accelerator, x = small.open(), small.inputs(6, 3)
    expected, (h, _) = accelerator.run(x)
    streams = [accelerator.stream() for _ in range(3)]
    rng = np.random.default_rng(1)
    done, outputs = [0, 0, 0], np.zeros_like(expected)
    for turn in rng.permutation(np.repeat(np.arange(3), 6)):
        outputs[done[turn], turn] = streams[turn].step(x[done[turn], turn])
        done[turn] += 1
    np.testing.assert_array_equal(outputs, expected)
    for index, stream in enumerate(streams):
        np.testing.assert_array_equal(stream.state_integers[0], h[:, index])


def test_step_many(small):
    accelerator, x = small.open(), small.inputs(6, 3)
    expected = accelerator.run(x)[0]
    streams = [accelerator.stream() for _ in range(3)]
    for x_t, y_t in zip(x, expected, strict=True):
        np.testing.assert_array_equal(accelerator.step_many(streams, x_t), y_t)
    streams[0].reset()
    twice = accelerator.step_many([streams[0], streams[0]], x[:2, 0])
    np.testing.assert_array_equal(twice, expected[:2, 0])
    with pytest.raises(InputError, match=r"x must be \(3, 5\), not \(2, 5\)"):
        accelerator.step_many(streams, x[0, :2])
    with pytest.raises(InputError, match="of another"):
        small.open().step_many(streams, x[0])


def test_state_is_zero_after_reset(small):
    stream = small.open().stream()
    assert not np.any(stream.state)
    stream.steps(small.inputs(3))
    assert np.any(stream.state)
    stream.reset()
    assert not np.any(stream.state)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("name", ["small", "uneven"])
def test_state_round_trip(request, name, raw):
    build = request.getfixturevalue(name)
    accelerator, x = build.open(), build.inputs(8)
    with accelerator.stream() as stream:
        stream.steps(x[:3])
        saved = stream.state_integers if raw else stream.state
        expected = stream.steps(x[3:])
        stream.reset()
        stream.state = saved
        for before, after in zip(saved, stream.state_integers if raw else stream.state, strict=True):
            for one, other in zip(before, after, strict=True):
                np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(stream.steps(x[3:]), expected)
    with accelerator.stream(), accelerator.stream() as other:
        other.state = saved
        np.testing.assert_array_equal(other.steps(x[3:]), expected)


def test_floats(small):
    x = np.maximum(small.inputs(3), -127)
    stream = small.open().stream()
    y = stream.steps(x)
    stream.reset()
    floats = stream.steps(small.network.numerics.input.to_floats(x))
    np.testing.assert_array_equal(floats, small.manifest.layers[-1].output.to_floats(y))


def test_wrong_arguments(small):
    stream = small.open().stream()
    with pytest.raises(InputError, match=r"x must be \(5,\), not \(4,\)"):
        stream.step(np.zeros(4))
    with pytest.raises(InputError, match=r"x must be \(5,\), not \(1, 5\)"):
        stream.step(np.zeros((1, 5)))
    with pytest.raises(InputError, match=r"x must be \(T, 5\), not \(5,\)"):
        stream.steps(np.zeros(5))
    with pytest.raises(InputError, match=r"x must be finite"):
        stream.step(np.full(5, np.inf))
    with pytest.raises(InputError, match=r"h_0 must be an array \(2, 6\)"):
        stream.state = (np.zeros((2, 1, 6)), np.zeros((2, 1, 6)))


def test_saturation_warnings_point_at_the_caller(small):
    accelerator = small.open()
    stream, with_output = accelerator.stream(), np.full(5, 1e9)
    for call in (
        lambda: stream.step(with_output),
        lambda: stream.steps(with_output[None]),
        lambda: accelerator.step_many([stream], with_output[None]),
        lambda: setattr(stream, "state", (np.zeros((2, 6)), np.full((2, 6), 1e9))),
    ):
        with pytest.warns(SaturationWarning) as caught:
            call()
        assert [item.filename for item in caught] == [__file__]
    assert accelerator.saturated_inputs == 15


def test_streams_run_out_and_come_back(small):
    accelerator = small.open()
    streams = [accelerator.stream() for _ in range(3)]
    assert [stream.number for stream in streams] == [0, 1, 2]
    with pytest.raises(DeviceError, match=r"no stream is free, but all 3.* `streams=4`"):
        accelerator.stream()
    streams[1].steps(small.inputs(3))
    streams[1].close()
    streams[1].close()
    with accelerator.stream() as again:
        assert again.number == 1 and not np.any(again.state)
    with pytest.raises(DeviceError, match="the stream is closed"):
        again.step(small.inputs())


def test_max_steps_does_not_limit_streams(make_build):
    build = make_build(max_steps=2)
    x = build.inputs(5)
    np.testing.assert_array_equal(build.open().stream().steps(x), build.golden.run(x[:, None]).y[:, 0])


# Lost and closed


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
    streams[0].close()
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
