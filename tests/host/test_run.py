"""Batches of sequences."""

import warnings

import numpy as np
import pytest
from support.loadable_builds import Build
from support.small_builds import INPUTS, NARROW, TINY, network

from rtlstm import Accelerator, DeviceError, InputError, Manifest, SaturationWarning
from rtlstm.gen.quantise.quantiser import quantise


def nan_at(shape, index):
    x = np.zeros(shape)
    x[index] = np.nan
    return x


def same_state(left, right):
    for one, other in zip(left, right, strict=True):
        assert isinstance(one, tuple) == isinstance(other, tuple)
        if isinstance(one, tuple):
            assert len(one) == len(other)
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7])
def test_integers_equal_golden(small, batch):
    x = small.inputs(9, batch)
    y, (h, c) = small.open().run(x)
    expected = small.golden.run(x)
    assert y.dtype == np.int64 and np.any(y)
    np.testing.assert_array_equal(y, expected.y)
    np.testing.assert_array_equal(h, np.stack(expected.h))
    np.testing.assert_array_equal(c, np.stack(expected.c))


@pytest.mark.parametrize("seed", range(3))
def test_lengths_in_any_order(small, seed):
    x = small.inputs(9, 8, seed=seed)
    lengths = np.random.default_rng(seed).integers(1, 10, 8)
    accelerator = small.open()
    y, state = accelerator.run(x, lengths=lengths)
    expected = small.golden.run(x, lengths=lengths)
    np.testing.assert_array_equal(y, expected.y)
    same_state(state, (np.stack(expected.h), np.stack(expected.c)))
    for index, length in enumerate(lengths):
        alone, (h, c) = accelerator.run(x[:length, index])
        np.testing.assert_array_equal(y[:length, index], alone)
        assert not y[length:, index].any()
        same_state((state[0][:, index], state[1][:, index]), (h, c))


def test_padded_steps_are_not_sent(small):
    accelerator = small.open()
    sent = []
    transport = accelerator.device.transport
    run_steps = transport.run_steps
    transport.run_steps = lambda steps: sent.append(len(steps)) or run_steps(steps)
    accelerator.run(small.inputs(9, 4), lengths=[1, 9, 2, 3])
    assert sum(sent) == 15


def test_padding_may_hold_anything(small):
    x = small.network.numerics.input.to_floats(np.maximum(small.inputs(4, 2), -127))
    padded = np.concatenate([x, np.full((3, *x.shape[1:]), np.nan)])
    y, state = small.open().run(padded, lengths=[4, 4])
    expected, expected_state = small.open().run(x)
    np.testing.assert_array_equal(y[:4], expected)
    same_state(state, expected_state)


def test_floats(small):
    numerics, x = small.network.numerics, small.inputs(6, 4)
    x = np.maximum(x, -numerics.input.maximum)
    raw_y, (raw_h, raw_c) = small.open().run(x)
    y, (h, c) = small.open().run(numerics.input.to_floats(x).astype(np.float32))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, small.manifest.layers[-1].output.to_floats(raw_y))
    np.testing.assert_array_equal(h, numerics.hidden.to_floats(raw_h))
    np.testing.assert_array_equal(c, numerics.cell.to_floats(raw_c))


def test_shapes_follow_torch(small):
    x, accelerator = small.inputs(6, 4), small.open()
    y, (h, c) = accelerator.run(x)
    assert y.shape == (6, 4, 3) and h.shape == c.shape == (2, 4, 6)
    first, state = accelerator.run(x.swapaxes(0, 1), batch_first=True)
    np.testing.assert_array_equal(first, y.swapaxes(0, 1))
    same_state(state, (h, c))
    for batch_first in (False, True):
        alone, state = accelerator.run(x[:, 1], batch_first=batch_first)
        np.testing.assert_array_equal(alone, y[:, 1])
        same_state(state, (h[:, 1], c[:, 1]))
    empty, (h, c) = accelerator.run(x[:, :0])
    assert empty.shape == (6, 0, 3) and h.shape == (2, 0, 6)


def test_layers_of_different_sizes(uneven):
    x = uneven.inputs(5, 3)
    y, (h, c) = uneven.open().run(x)
    expected = uneven.golden.run(x)
    assert isinstance(h, tuple) and [part.shape for part in h] == [(3, 7), (3, 2)]
    np.testing.assert_array_equal(y, expected.y)
    same_state((h, c), (expected.h, expected.c))
    _, state = uneven.open().run(x[:, 0])
    same_state(state, (tuple(part[0] for part in h), tuple(part[0] for part in c)))
    resumed = uneven.open().run(x, state=(h, c))[0]
    np.testing.assert_array_equal(resumed, uneven.golden.run(x, state=(h, c)).y)


@pytest.mark.parametrize("raw", [True, False])
def test_state_carries_on(small, raw):
    x = np.maximum(small.inputs(8, 5), -127)
    x = x if raw else small.network.numerics.input.to_floats(x)
    whole, end = small.open().run(x)
    first, middle = small.open().run(x[:3])
    second, state = small.open().run(x[3:], state=middle)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    same_state(state, end)
    again, _ = small.open().run(x[3:], state=tuple(list(part) for part in middle))
    np.testing.assert_array_equal(again, second)


def test_runs_do_not_depend_on_what_was_before(small):
    x, accelerator = small.inputs(4, 5), small.open()
    first = accelerator.run(x)[0]
    np.testing.assert_array_equal(accelerator.run(x)[0], first)


def test_run_beside_open_streams(small):
    accelerator, x = small.open(), small.inputs(4, 5)
    with accelerator.stream() as one:
        one.steps(x[:2, 0])
        saved = one.state_integers
        np.testing.assert_array_equal(accelerator.run(x)[0], small.golden.run(x).y)
        same_state(one.state_integers, saved)
        held = [accelerator.stream(), accelerator.stream()]
        with pytest.raises(DeviceError, match="at least one free stream, but all 3"):
            accelerator.run(x)
        for stream in held:
            stream.close()
    accelerator.run(x)


def test_saturation_is_counted_and_told(small):
    accelerator = small.open()
    x = np.zeros((4, 2, 5))
    x[0, 0, 0], x[3, 1, 4] = 1e9, -1e9
    with pytest.warns(SaturationWarning, match="2 of 40 values of x") as caught:
        accelerator.run(x)
    assert caught[0].filename == __file__
    assert accelerator.saturated_inputs == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accelerator.run(x * 0)
    state = (np.full((2, 2, 6), 7.0), np.full((2, 2, 6), 1e6))
    with pytest.warns(SaturationWarning) as caught:
        accelerator.run(x * 0, state=state)
    assert [str(item.message).split(" were")[0] for item in caught] == [
        "24 of 24 values of h_0",
        "24 of 24 values of c_0",
    ]
    assert {item.filename for item in caught} == {__file__}


def test_outputs_at_the_end_of_their_format_are_counted_and_told(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, (6, 2, INPUTS))
    quantised = quantise(network(), NARROW.replace(input_range=4.0, quick=True), x * 0.01)
    folder = Build(quantised, Manifest.of("tiny", quantised, TINY)).save(tmp_path)
    with Accelerator.open(folder) as accelerator:
        accelerator.run(x * 0.01)
        assert accelerator.saturated_outputs == 0
        with pytest.warns(
            SaturationWarning, match=r"of 24 values of y are at the limits.*calibration"
        ) as caught:
            y, _ = accelerator.run(x * 3)
        assert caught[0].filename == __file__
        limit = np.abs(y).max()
        count = int(np.count_nonzero(np.abs(y) == limit))
        assert accelerator.saturated_outputs == count > 1
        with accelerator.stream() as stream, pytest.warns(SaturationWarning, match="values of y") as caught:
            stream.steps(x[:, np.abs(y).max(axis=(0, 2)).argmax()] * 3)
        assert caught[0].filename == __file__
        assert accelerator.saturated_outputs > count


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((4, 2, 6))}, r"x must be \(T, N, 5\).* not \(4, 2, 6\)"),
        ({"x": np.zeros((4, 6))}, r"x must be \(T, 5\), not \(4, 6\)"),
        ({"x": np.zeros(5)}, r"not \(5,\)"),
        ({"x": np.zeros((0, 2, 5))}, "at least one step"),
        ({"x": np.full((4, 5), np.nan)}, r"x must be finite, but x\[0, 0\] is nan and 19 more"),
        ({"x": np.full((4, 2, 5), np.nan)}, r"x must be finite, but x\[0, 0, 0\] is nan and 39 more"),
        # The index is that of the caller's array.
        ({"x": nan_at((2, 4, 5), (1, 3, 2)), "batch_first": True}, r"but x\[1, 3, 2\] is nan"),
        ({"x": np.full((4, 2, 5), 128)}, r"within -128 to 127 \(s8.5\), but x\[0, 0, 0\] is 128"),
        ({"x": np.zeros((4, 2, 5), bool)}, "not bool"),
        ({"x": np.zeros((4, 2, 5), complex)}, "not complex128"),
        ({"x": "abc"}, "must hold floats"),
        ({"x": [[1.0], [1.0, 2.0]]}, "must be an array of numbers"),
        ({"lengths": [1, 2, 3]}, r"lengths must be 2 integers.* not an array of shape \(3,\) and type int64"),
        ({"lengths": ["1", "2"]}, r"lengths must be 2 integers, one per sequence, not .* type <U1"),
        ({"lengths": [1.0, 2.0]}, r"not an array of shape \(2,\) and type float64"),
        ({"lengths": [0, 2]}, "within 1 to T = 4, but they range from 0 to 2"),
        ({"lengths": [1, 5]}, "range from 1 to 5"),
        ({"state": np.zeros((2, 2, 2, 6))}, r"state must be a pair \(h_0, c_0\)"),
        ({"state": (np.zeros((2, 2, 6)),) * 3}, "must be a pair"),
        ({"state": (np.zeros((2, 6)),) * 2}, r"h_0 must be an array \(2, 2, 6\)"),
        ({"state": (np.zeros((2, 2, 6)), np.zeros((1, 2, 6)))}, r"c_0 must be .* not arrays of"),
        ({"state": (np.zeros((2, 2, 6), int),) * 2}, "state must be floats because x is"),
        ({"state": (np.full((2, 2, 6), np.inf),) * 2}, r"h_0\[0\] must be finite"),
        ({"x": np.zeros((4, 2, 5), int), "state": (np.full((2, 2, 6), 128),) * 2}, "within -127 to 127"),
        ({"x": np.zeros((4, 2, 5), int), "state": (np.zeros((2, 2, 6)),) * 2}, "must be integers"),
    ],
)
def test_wrong_arguments(small, change, words):
    with pytest.raises(InputError, match=words):
        small.open().run(**({"x": np.zeros((4, 2, 5))} | change))


def test_wrong_state_of_uneven_layers(uneven):
    with pytest.raises(InputError, match=r"h_0 must be a tuple of \[\(2, 7\), \(2, 2\)\]"):
        uneven.open().run(uneven.inputs(3, 2), state=(np.zeros((2, 2, 7), int),) * 2)


def test_max_steps(make_build):
    build = make_build(max_steps=4)
    build.open().run(build.inputs(4, 2))
    with pytest.raises(InputError, match="at most 4 steps, not 5"):
        build.open().run(build.inputs(5, 2))


def test_progress(small):
    accelerator = small.open()
    seen = []
    accelerator._progress = lambda *news: seen.append(news)
    accelerator.run(small.inputs(2, 5))
    assert seen == [("run", 3, 5), ("run", 5, 5)]


def test_last_output_or_none(small):
    x = small.inputs(9, 4)
    lengths = [3, 9, 1, 5]
    accelerator = small.open()
    y, state = accelerator.run(x, lengths=lengths)
    last, last_state = accelerator.run(x, lengths=lengths, outputs="last")
    np.testing.assert_array_equal(last, [y[length - 1, index] for index, length in enumerate(lengths)])
    nothing, no_state = accelerator.run(x, lengths=lengths, outputs="none")
    assert nothing.shape == (0, 4, y.shape[2])
    same_state(last_state, state)
    same_state(no_state, state)
    alone, _ = accelerator.run(x[:, 0], outputs="last")
    np.testing.assert_array_equal(alone, accelerator.run(x[:, 0])[0][-1])
    floats = small.network.numerics.input.to_floats(np.maximum(x, -127))
    swapped, _ = accelerator.run(floats.swapaxes(0, 1), batch_first=True, outputs="last")
    np.testing.assert_array_equal(swapped, accelerator.run(floats)[0][-1])
    with pytest.raises(InputError, match=r"outputs must be one of all, last, none, not 'first'"):
        accelerator.run(x, outputs="first")
