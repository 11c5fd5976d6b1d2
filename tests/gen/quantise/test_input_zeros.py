"""Codes of zero of input features: when they are taken, what they give, and where they are told."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import rms_error
from support.small_builds import TINY, network

from rtlstm import Accelerator, ConfigurationError, Manifest, SaturationWarning
from rtlstm.gen.accuracy.mixed import float_layers, run_mixed
from rtlstm.gen.accuracy.records import PARTS
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import (
    QuantizationSettings,
    _Formulas,
    choose_formats,
    quantise,
    quantise_with,
)
from rtlstm.gen.quantise.ranges import FORMULAS
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network

EIGHT = QuantizationSettings(weight_bits=8, data_bits=8)


def uneven(*lead: int, seed: int = 0) -> np.ndarray:
    """A temperature, a share of a spectrum that is often exactly 0, and a value that is even around 0."""
    rng = np.random.default_rng(seed)
    temperature = rng.normal(55.0, 0.4, lead)
    share = np.maximum(rng.normal(0.1, 0.4, lead), 0.0)
    return np.stack([temperature, share, rng.uniform(-1, 1, lead)], axis=-1)


def layers(seed: int = 1) -> tuple[Lstm, Dense]:
    """A network that reads the temperature's difference from 55."""
    rng, units = np.random.default_rng(seed), 12
    w_ih = rng.normal(size=(4 * units, 3))
    lstm = Lstm(w_ih=w_ih, w_hh=rng.normal(size=(4 * units, units)) * 0.2, bias=-55.0 * w_ih[:, 0])
    return lstm, Dense(weight=rng.normal(size=(2, units)), bias=np.zeros(2))


def error(source: Network, settings: QuantizationSettings, x: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """The error on other data, by the spread of the outputs, and the codes of zero."""
    quantised, other = quantise(source, settings, x), uneven(30, 8, seed=5)
    error = rms_error(source, quantised, other) / float(run_float(source, other).y.std())
    return error, quantised.numerics.input_zeros


@pytest.mark.parametrize("bits", [8, 16])
def test_a_temperature_keeps_its_changes(bits: int):
    source, settings = Network(layers=layers()), EIGHT.replace(weight_bits=bits, data_bits=bits)
    x = uneven(30, 40)
    least, zeros = error(source, settings, x)
    assert len(zeros) == 3 and zeros[0] < -127
    most, none = error(source, settings.replace(quick=True), x)
    assert none == () and least < most / 8


def test_zero_is_exact():
    """A share that is 0 is exactly 0 on the device, and has a code that does not saturate."""
    numerics = quantise(Network(layers=layers()), EIGHT, uneven(30, 40)).numerics
    assert -127 < numerics.input_zeros[1] < 0
    assert numerics.read_input(numerics.quantise_input([55.0, 0.0, 0.0]))[1] == 0.0


def test_there_is_room_beyond_the_calibrated_values():
    """A quarter of their spread, or of how far they are from 0."""
    x = uneven(30, 40)
    low, high = x[..., 0].min(), x[..., 0].max()
    for bits in (8, 16):
        settings = EIGHT.replace(weight_bits=bits, data_bits=bits)
        numerics = quantise(Network(layers=layers()), settings, x).numerics
        for value in (low - 0.24 * (high - low), high + 0.24 * (high - low)):
            assert abs(numerics.read_input(numerics.quantise_input([value, 0.0, 0.0]))[0] - value) < 0.1


def test_a_middle_whose_code_is_too_large_stays():
    """The other features keep theirs."""
    x = uneven(30, 40)
    x[..., 0] = 1e6 + 1e-3 * (x[..., 0] - 55.0)
    lstm, dense = layers()
    w_ih = lstm.w_ih * [1e-9, 1.0, 1.0]
    source = Network(layers=(lstm.replace(w_ih=w_ih, bias=np.zeros(len(w_ih))), dense))
    # With the middles of the values, whatever they give.
    candidate, data = FORMULAS.replace(zero_points=True), Calibration.of(source, x)
    choices = _Formulas(source, EIGHT, None, {}, None, ()).choices(data, candidate, (1.0,) * 2)
    numerics = quantise_with(source, EIGHT, choices).numerics
    assert numerics.input_zeros[0] == 0 != numerics.input_zeros[1]
    assert numerics.input.saturated(numerics.scale_input(x)) == 0


DIRECTIONS = Network(
    layers=(Bidirectional(forward=layers(2)[0], backward=layers(3)[0].replace(reverse=True)),)
)
KINDS = CELL_NETWORKS | {"both directions": DIRECTIONS, "lstm": Network(layers=layers())}


@pytest.mark.parametrize("kind", [name for name, each in KINDS.items() if each.inputs == 3])
def test_all_kinds_of_layers_make_up_for_them(kind: str):
    """With all parts in float the network is the model, with none it is the golden model."""
    source, x = KINDS[kind], np.random.default_rng(3).uniform(-1, 1, (9, 3, 3))
    # With these codes of zero, whatever they give.
    choices = choose_formats(source, EIGHT.replace(quick=True), Calibration.of(source, x))
    step = quantise_with(source, EIGHT, choices).numerics.input.step
    moved = replace(choices, input_offsets=(-3 * step, 5 * step, -step))
    quantised = quantise_with(source, EIGHT, moved)
    assert quantised.numerics.input_zeros == (-3, 5, -1)
    samples = Samples.of(x, 3, np.array([9, 4, 7]))
    floats = float_layers(source, quantised)
    exact = run_mixed(quantised, floats, PARTS, samples).y
    alive = samples.alive
    np.testing.assert_allclose(
        exact[alive], run_float(source, x, None, samples.lengths).y[alive], rtol=1e-9, atol=1e-9
    )
    codes = quantised.numerics.quantise_input(x)
    golden = Golden(quantised).run(codes, None, samples.lengths).y
    found = run_mixed(quantised, floats, (), samples).y
    np.testing.assert_array_equal(found[alive], quantised.shapes[-1].output.to_floats(golden)[alive])


def test_none_where_a_zero_is_read_itself_or_the_range_is_stated():
    lstm, dense = layers()
    x = np.abs(uneven(30, 40))
    relu = Network(layers=(lstm.replace(input_relu=True), dense))
    assert quantise(relu, EIGHT, x).numerics.input_zeros == ()
    assert (
        quantise(Network(layers=(lstm, dense)), EIGHT.replace(input_range=64.0), x).numerics.input_zeros == ()
    )
    # A sparse one-hot row is exact already.
    rows = np.eye(3)[np.random.default_rng(0).integers(0, 3, (30, 40))]
    assert quantise(network(), EIGHT, rows).numerics.input_zeros == ()


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("zeros") / "build"
    made = {"settings": EIGHT, "parameters": TINY, "calibration": uneven(30, 40), "name": "zeros"}
    generate_build(Network(layers=layers()), folder, **made)
    return folder


def test_driver_adds_them(build: Path):
    x, numerics = uneven(7, 2, seed=1), Manifest.load(build).numerics
    factors, zeros = np.array(numerics.input_factors or 1.0), np.array(numerics.input_zeros)
    codes = np.floor(x * factors * 2.0**numerics.input.fraction + zeros + 0.5)
    np.testing.assert_array_equal(numerics.quantise_input(x), np.clip(codes, -127, 127))
    with Accelerator.open(build) as accelerator:
        y, _ = accelerator.run(x)
        raw, _ = accelerator.run(numerics.quantise_input(x))
        np.testing.assert_array_equal(y, accelerator.manifest.layers[-1].output.to_floats(raw))
        with pytest.warns(
            SaturationWarning, match=r"14 of 42 .* ranges, which begin at -\d.* and end at 5\d"
        ):
            accelerator.run(x * [2.0, 1.0, 1.0])


@pytest.mark.rtl
def test_rtl_equals_golden_model(build: Path):
    result, _ = compare(build, uneven(6, 2, seed=2), simulator="icarus", verify=False)
    assert result.passed, result.first_difference


def test_they_are_told(cli, build: Path):
    report, zeros = json.loads((build / "report.json").read_text()), Manifest.load(build).numerics.input_zeros
    assert report["input_zeros"] == list(zeros) == cli("inspect", build, "--json").json["input_zeros"]
    assert not any("far from 0" in text for text in report["assumptions"])
    header = (build / "rtlstm_registers.h").read_text()
    (table,) = re.findall(r"#define RTLSTM_INPUT_ZEROS \{ (.*) \}", header)
    assert [int(zero) for zero in table.split(",")] == list(zeros)
    assert f"codes of zero {min(zeros)} to {max(zeros)}" in cli("inspect", build).out


def test_wrong_ones_are_refused(build: Path):
    manifest = Manifest.load(build)
    numerics = manifest.numerics.replace(input_zeros=(1, 2))
    with pytest.raises(ConfigurationError, match="input_zeros must be one for each of 3 inputs, not 2"):
        Manifest.create("zeros", manifest.layers, TINY, numerics)


def test_a_retrained_network_takes_those_of_a_fixed_device(tmp_path: Path, build: Path):
    lstm, dense = layers()
    retrained = Network(layers=(lstm.replace(w_hh=0.9 * lstm.w_hh), dense))
    made = generate_build(retrained, tmp_path / "b", device=build)
    assert made.numerics == Manifest.load(build).numerics
    assert json.loads((tmp_path / "b" / "report.json").read_text())["accuracy"]["input_saturations"] == 0
    x = uneven(5, 2, seed=3)
    with Accelerator.open(build) as accelerator, Accelerator.open(tmp_path / "b") as own:
        accelerator.load_weights(tmp_path / "b" / "weights.bin")
        y = own.run(x)[0]
        np.testing.assert_array_equal(accelerator.run(x)[0], y)
    wanted = run_float(retrained, x).y
    assert np.abs(y - wanted).max() < 0.1 * np.abs(wanted).max()
