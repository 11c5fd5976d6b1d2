"""Padding in front of sequences: where Keras puts it by default."""

import numpy as np
import pytest
from support.small_builds import INPUTS, network

import rtlstm
from rtlstm.gen.accuracy.samples import Labels, Samples
from rtlstm.gen.builds.compare import _first_steps
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.layout import padded_behind, padded_in_front

LENGTHS = np.array([4, 9, 1])


def fronted(x, filler=0):
    """The same sequences with their padding in front."""
    moved = np.full_like(x, filler)
    for number, length in enumerate(LENGTHS):
        moved[len(x) - length :, number] = x[:length, number]
    return moved


def test_each_way_back():
    x = np.random.default_rng(0).normal(size=(9, 3, 2))
    clean = np.where((np.arange(9)[:, None] < LENGTHS)[..., None], x, 0)
    np.testing.assert_array_equal(padded_in_front(clean, LENGTHS), fronted(x))
    np.testing.assert_array_equal(padded_behind(padded_in_front(x, LENGTHS), LENGTHS), x)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("floats", [False, True])
def test_a_run_of_padding_in_front(small, batch_first, floats):
    codes = small.inputs(9, 3)
    x = small.network.numerics.input.to_floats(np.maximum(codes, -127)) if floats else codes
    accelerator = small.open()
    given = fronted(x, np.nan if floats else 99)
    swap = (lambda array: array.swapaxes(0, 1)) if batch_first else (lambda array: array)
    behind = {outputs: accelerator.run(x, LENGTHS, outputs=outputs) for outputs in ("all", "last", "none")}
    for outputs, (wanted, state) in behind.items():
        y, found = accelerator.run(swap(given), LENGTHS, None, batch_first, outputs, pad="front")
        if outputs == "all":
            np.testing.assert_array_equal(swap(y), fronted(wanted))
            assert np.any(wanted[:, 1]), "the case must have outputs"
        else:
            np.testing.assert_array_equal(y, wanted if outputs == "last" else swap(wanted))
        for one, other in zip(found, state, strict=True):
            np.testing.assert_array_equal(one, other)


def test_one_sequence_with_padding_in_front(small):
    x = small.inputs(6, 1)[:, 0]
    y, _ = small.open().run(np.concatenate([x[:2] * 0 + 7, x]), [6], pad="front")
    wanted, _ = small.open().run(x)
    np.testing.assert_array_equal(y[2:], wanted)
    assert not y[:2].any()


def test_a_bad_value_is_named_where_the_caller_has_it(small):
    x = np.zeros((9, 3, small.manifest.program.inputs))
    x[7, 0, 1] = np.nan
    with pytest.raises(InputError, match=r"x\[7, 0, 1\]"):
        small.open().run(x, LENGTHS, pad="front")


@pytest.mark.parametrize(
    ("given", "named"),
    [({"pad": "pre", "lengths": LENGTHS}, "back, front, not 'pre'"), ({"pad": "front"}, "no lengths")],
)
def test_padding_that_says_nothing_is_refused(small, given, named):
    x = small.inputs(9, 3)
    with pytest.raises(InputError, match=named):
        small.open().run(x, **given)
    calibration = np.zeros((9, 3, INPUTS))
    with pytest.raises(InputError, match=named):
        Calibration.of(network(), calibration, **given)
    with pytest.raises(InputError, match=named):
        Samples.of(calibration, INPUTS, **given)
    with pytest.raises(InputError, match="no lengths"):
        Calibration.given(network(), None, None, pad="front")


@pytest.mark.parametrize("batch_first", [False, True])
def test_typical_inputs_with_padding_in_front(batch_first):
    x = np.random.default_rng(1).normal(size=(9, 3, INPUTS))
    given = fronted(x, np.nan)
    given = given.swapaxes(0, 1) if batch_first else given
    found = Calibration.of(network(), given, LENGTHS, batch_first=batch_first, pad="front")
    wanted = Calibration.of(network(), x, LENGTHS)
    np.testing.assert_array_equal(found.x, wanted.x)
    numerics = [quantise(network(), calibration=each.x, lengths=LENGTHS).numerics for each in (found, wanted)]
    assert numerics[0] == numerics[1]


@pytest.mark.parametrize("batch_first", [False, True])
def test_labels_of_steps_stand_where_the_steps_do(batch_first):
    x, labels = np.zeros((9, 3, INPUTS)), np.random.default_rng(2).integers(0, 2, (9, 3))
    arrays = (fronted(x), fronted(labels))
    arrays = tuple(each.swapaxes(0, 1) for each in arrays) if batch_first else arrays
    samples = Samples.of(arrays[0], INPUTS, LENGTHS, batch_first, pad="front")
    found = Labels.of(arrays[1], samples, 2, 0.0)
    wanted = Labels.of(labels, Samples.of(x, INPUTS, LENGTHS), 2, 0.0)
    np.testing.assert_array_equal(found.values, wanted.values)
    np.testing.assert_array_equal(found.chosen, wanted.chosen)
    np.testing.assert_array_equal(samples.as_given(padded_behind(fronted(labels), LENGTHS)), arrays[1])


def test_the_first_steps_of_padding_in_front_are_the_last(small):
    x = small.inputs(9, 3)
    cut, lengths = _first_steps(small.manifest, x, LENGTHS, 3, batch_first=False, pad="front")
    np.testing.assert_array_equal(cut, x[6:])
    assert lengths.tolist() == [3, 3, 1]


@pytest.mark.rtl
def test_a_build_calibrated_and_run_with_padding_in_front(tmp_path):
    x = np.random.default_rng(3).normal(size=(9, 3, INPUTS)).astype("float32")
    common = {"calibration_lengths": LENGTHS, "lanes": 4, "macs": 2}
    one = rtlstm.compile(network(), calibration=x, folder=tmp_path / "one", **common)
    given = fronted(x, 100)
    other = rtlstm.compile(network(), calibration=given, pad="front", folder=tmp_path / "other", **common)
    assert (tmp_path / "one/weights.bin").read_bytes() == (tmp_path / "other/weights.bin").read_bytes()
    y, _ = one.run(x, LENGTHS)
    np.testing.assert_array_equal(other.run(given, LENGTHS, pad="front")[0], fronted(y))
    errors = [one.accuracy(x, lengths=LENGTHS), other.accuracy(given, lengths=LENGTHS, pad="front")]
    assert errors[0].output == errors[1].output
    compared = other.simulate(given, LENGTHS, pad="front", simulator="icarus", steps=2, verify=False)
    assert compared.passed and compared.steps == 5


def test_a_prepared_model_has_its_padding_already(tmp_path):
    prepare = pytest.importorskip("rtlstm.train").prepare
    x = np.random.default_rng(4).normal(size=(9, 3, INPUTS))
    wanted = prepare(network(), calibration=x, calibration_lengths=LENGTHS).calibration
    given = fronted(x, 50)
    found = prepare(network(), calibration=given, calibration_lengths=LENGTHS, pad="front")
    np.testing.assert_array_equal(found.calibration.x, wanted.x)
    with pytest.raises(ConfigurationError, match="leave out pad"):
        rtlstm.compile(found, pad="front", folder=tmp_path / "build")
