"""Factors of input features: how they are chosen, folded, applied and told."""

import json
import re

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import golden_outputs
from support.small_builds import NARROW, TINY, network

from rtlstm import Accelerator, ConfigurationError, ImageError, Manifest, SaturationWarning, SharedAccelerator
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.ip.files import c_header
from rtlstm.gen.quantise.plan import fold_factors
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.host.device import check_loadable
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network, Norm

PEAKS = 2.0 ** np.arange(2, -12, -1)
SMALL = np.array([1.0, 2.0**-6, 2.0**-9])
"""Peaks of three features."""


def uneven(law: float, units: int = 24) -> tuple[Network, np.ndarray]:
    """A network and inputs of such peaks; a feature's weights grow as ``peak**-law``."""
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(size=(150, 3, len(PEAKS))) * PEAKS / 4, -PEAKS, PEAKS)
    lstm = Lstm(
        w_ih=rng.normal(size=(4 * units, len(PEAKS))) * 2 / PEAKS**law,
        w_hh=rng.normal(size=(4 * units, units)) * 0.15,
        bias=rng.normal(size=4 * units) * 0.1,
    )
    return Network(layers=(lstm, Dense(weight=rng.normal(size=(4, units)) * 0.3, bias=np.zeros(4)))), x


def cosine(source: Network, x: np.ndarray, **settings: object) -> float:
    quantised = quantise(source, QuantizationSettings(**settings), x)
    both = golden_outputs(quantised, x), run_float(source, x).y
    found, wanted = (values - values.mean(axis=(0, 1)) for values in both)
    return float((found * wanted).sum() / np.sqrt((found**2).sum() * (wanted**2).sum()))


def small_inputs(*lead: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.99, 0.99, (*lead, 3)) * SMALL


def test_small_features_keep_their_codes():
    source, x = uneven(1.0)
    assert cosine(source, x) > 0.9995
    # With one format for all, stated, as it was for all data before.
    assert cosine(source, x, input_range=4.0) < 0.99
    assert np.count_nonzero(quantise(source, calibration=x).numerics.quantise_input(x)) > 0.999 * x.size


def test_small_features_have_room_for_other_data():
    """Twice what calibration met is not limited; features of about the largest's size have no factor."""
    source, _ = uneven(0.0)
    peaks = np.linspace(4.0, 0.1, len(PEAKS))
    numerics = quantise(source, QuantizationSettings(quick=True), np.tile(peaks, (20, 1))).numerics
    factors = np.broadcast_to(numerics.input_factor, len(peaks))
    assert factors.max() > 1 and (factors[peaks > 2] == 1).all()
    held_out = np.where(factors > 1, 2 * peaks, peaks)
    found = numerics.input.to_floats(numerics.quantise_input(held_out)) / factors
    np.testing.assert_allclose(found, held_out, atol=numerics.input.step)


@pytest.mark.parametrize("law", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("bits", [6, 8, 16])
def test_neither_inputs_nor_weights_vanish(law, bits):
    source, x = uneven(law)
    settings = {"weight_bits": bits, "data_bits": bits}
    found = cosine(source, x, **settings)
    assert found >= cosine(source, x, input_range=4.0, **settings)
    assert found > (0.97 if bits == 6 else 0.999)


def _sources():
    # What a norm reads first has no factors.
    reads = ((name, each) for name, each in CELL_NETWORKS.items() if not isinstance(each.layers[0], Norm))
    yield from (pytest.param(source, id=name) for name, source in reads)
    one, other, third = (network().layers[0].replace(w_hh=np.eye(16, 4) * scale) for scale in (0.5, 0.3, 0.2))
    both = Bidirectional(forward=one, backward=other.replace(reverse=True))
    yield pytest.param(
        Network(layers=(both, Dense(weight=np.ones((2, 8)), bias=np.zeros(2)))), id="both ways"
    )
    yield pytest.param(Network(layers=(third.replace(input_relu=True),)), id="relu of inputs")
    skip = Dense(weight=np.ones((3, 4)), bias=np.zeros(3), skip=np.eye(3))
    yield pytest.param(Network(layers=(one, skip)), id="residual")
    twice = Dense(weight=np.ones((2, 3)), bias=np.zeros(2), skip=np.ones((2, 3)), skips=3)
    yield pytest.param(Network(layers=(one, skip, twice)), id="two skips from the input")


@pytest.mark.parametrize("source", list(_sources()))
def test_all_that_reads_the_input_is_folded(source):
    factors = np.array([1.0, 16.0, 1.40625])[np.arange(source.inputs) % 3]
    x = small_inputs(6, 2)[..., np.arange(source.inputs) % 3]
    wanted = run_float(source, x).y
    np.testing.assert_allclose(
        run_float(fold_factors(source, factors.tolist()), x * factors).y, wanted, rtol=1e-12
    )
    quantised = quantise(source, QuantizationSettings(gate_bits=16, quick=True), x)
    assert max(quantised.numerics.input_factors) > 1
    assert np.abs(golden_outputs(quantised, x) - wanted).max() < 0.01 * max(1.0, np.abs(wanted).max())


def test_factors_need_data_and_no_stated_range():
    x = small_inputs(20, 2)
    assert quantise(network()).numerics.input_factors == ()
    assert quantise(network(), QuantizationSettings(input_range=1.0), x).numerics.input_factors == ()
    # Alike, or 0: nothing to equalise.
    assert quantise(network(), calibration=x / SMALL).numerics.input_factors == ()
    assert quantise(network(), calibration=x * [1.0, 0.0, 0.0]).numerics.input_factors == ()
    assert quantise(network(), calibration=np.zeros((4, 3))).numerics.input_factors == ()
    tiny = quantise(network(), calibration=x * [1.0, 1.0, 1e-300]).numerics
    assert max(tiny.input_factors) == 2.0**32


def test_features_fill_their_format_where_that_measures_better():
    """With few bits, and none of them a power of two; not where weights are integers and stay so."""
    source, _ = uneven(0.0)
    x = np.random.default_rng(3).uniform(-1.1, 1.1, (150, 8, len(PEAKS)))
    narrow = QuantizationSettings(weight_bits=12, data_bits=5, gate_bits=12, output_bits=12)
    factors = quantise(source, narrow, x).numerics.input_factor
    room = quantise(source, narrow, x).numerics.input.limit / (1.25 * np.abs(x).max(axis=(0, 1)))
    assert (factors > 1.3).all() and (factors <= 1.04 * room).all()
    np.testing.assert_array_equal(np.ldexp(factors, 7) % 1, 0)
    first, *others = source.layers
    whole = Network(layers=(first.replace(w_ih=np.rint(first.w_ih * 64) / 64), *others))
    assert quantise(whole, narrow, x).numerics.input_factors == ()
    assert quantise(source, narrow.replace(data_bits=12), x).numerics.input_factors == ()


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shifts") / "b"
    generate_build(
        network(),
        folder,
        settings=NARROW.replace(quick=True),
        parameters=TINY,
        calibration=small_inputs(40, 2),
        name="tiny",
    )
    return folder


def test_driver_scales_floats_and_takes_codes_as_they_are(build):
    x = small_inputs(7, 2, seed=1)
    numerics = Manifest.load(build).numerics
    codes = numerics.quantise_input(x)
    assert np.count_nonzero(codes) > np.count_nonzero(numerics.input.to_integers(x))
    with Accelerator.open(build) as accelerator:
        y, _ = accelerator.run(x)
        raw, _ = accelerator.run(codes)
        np.testing.assert_array_equal(y, accelerator.manifest.layers[-1].output.to_floats(raw))
        with accelerator.stream() as stream:
            np.testing.assert_array_equal(stream.steps(x[:, 0]), y[:, 0])
        np.testing.assert_array_equal(
            accelerator.run(x.swapaxes(0, 1), batch_first=True)[0], y.swapaxes(0, 1)
        )
        with pytest.warns(
            SaturationWarning, match=r"1 of 42 values of x .* their features' ranges, \+-0\.\d+ to \+-"
        ):
            accelerator.run(np.where(x == x[0, 0, 2], 0.9, x))
    with SharedAccelerator.open(build) as shared, shared.stream() as stream:
        np.testing.assert_array_equal(stream.steps(x[:, 0]), y[:, 0])


@pytest.mark.rtl
def test_rtl_equals_golden_model_on_inputs_with_factors(build):
    result, _ = compare(build, small_inputs(6, 2, seed=2), simulator="icarus", verify=False)
    assert result.passed, result.first_difference


def test_factors_are_told(cli, build):
    manifest, report = Manifest.load(build), json.loads((build / "report.json").read_text())
    factors = manifest.numerics.input_factors
    assert len(factors) == 3 and factors[0] == 1 < factors[1]
    assert report["input_factors"] == list(factors)
    (table,) = re.findall(
        r"#define RTLSTM_INPUT_FACTORS \{ (.*) \}", (build / "rtlstm_registers.h").read_text()
    )
    assert [float(factor) for factor in table.split(",")] == list(factors)
    assert cli("inspect", build, "--json").json["input_factors"] == list(factors)
    assert f"input x times 1 to {max(factors):g}, feature by feature" in cli("inspect", build).out
    plain = quantise(network(), NARROW)
    assert "RTLSTM_INPUT_FACTORS { 1.0, 1.0, 1.0 }" in c_header(Manifest.of("tiny", plain, TINY))


def test_factors_that_do_not_fit_the_inputs_are_refused(build):
    manifest = Manifest.load(build)
    numerics = manifest.numerics.replace(input_factors=(1, 2))
    with pytest.raises(ConfigurationError, match="one for each of 3 inputs, not 2"):
        Manifest.create("tiny", manifest.layers, TINY, numerics)


@pytest.mark.slow
def test_loadable_device_takes_a_network_with_other_factors(tmp_path, build):
    settings = {"settings": NARROW, "parameters": TINY, "name": "tiny"}
    x = small_inputs(5, 2, seed=3)
    for folder, data in (("device", x / SMALL), ("small", x)):
        generate_build(network(), tmp_path / folder, calibration=data, capacities={}, **settings)
    device, small = (Manifest.load(tmp_path / folder) for folder in ("device", "small"))
    assert device.numerics.input_factors == () != small.numerics.input_factors
    check_loadable(small, device)
    with Accelerator.open(tmp_path / "device") as accelerator, Accelerator.open(tmp_path / "small") as own:
        wanted, _ = own.run(x)
        with pytest.raises(ImageError, match="must belong to build"):
            accelerator.load_weights(tmp_path / "small" / "weights.bin")
        accelerator.load(tmp_path / "small")
        np.testing.assert_array_equal(accelerator.run(x)[0], wanted)


@pytest.mark.parametrize("calibrated", [True, False])
def test_retrained_network_takes_the_factors_of_a_fixed_device(tmp_path, build, calibrated):
    lstm, dense = network().layers
    retrained = Network(layers=(lstm.replace(w_ih=0.9 * lstm.w_ih), dense))
    x = small_inputs(5, 2, seed=3)
    made = generate_build(
        retrained, tmp_path / "b", device=build, calibration=x[:, :, ::-1] if calibrated else None
    )
    assert made.numerics == Manifest.load(build).numerics
    with Accelerator.open(build) as accelerator, Accelerator.open(tmp_path / "b") as own:
        accelerator.load_weights(tmp_path / "b" / "weights.bin")
        np.testing.assert_array_equal(accelerator.run(x)[0], own.run(x)[0])
        assert np.abs(own.run(x)[0] - run_float(retrained, x).y).max() < 0.05
    other = Network(layers=(lstm.replace(w_ih=lstm.w_ih[:, :2]), dense))
    with pytest.raises(ConfigurationError, match="layer 1 is lstm 2 -> 4 and there lstm 3 -> 4"):
        generate_build(other, tmp_path / "c", device=build)


@pytest.mark.slow
def test_what_is_lost_is_said(cli, tmp_path):
    source, x = uneven(1.0, units=4)
    options = {
        "settings": QuantizationSettings(data_bits=8, input_range=4.0),
        "parameters": TINY,
        "name": "lost",
    }
    generate_build(source, tmp_path / "b", calibration=x, **options)
    report = json.loads((tmp_path / "b" / "report.json").read_text())
    found = report["accuracy"]["losses"][0]
    codes = Manifest.load(tmp_path / "b").numerics.quantise_input(x)
    assert found["quantity"] == "input x"
    assert (found["values"], found["lost"]) == (x.size, np.count_nonzero(codes == 0))
    assert found["lost"] > 0.55 * x.size and set(range(9, 14)) <= set(found["columns"])
    (note,) = (text for text in report["notes"] if "input x" in text)
    assert re.match(r"6\d(\.\d)? % of the values of input x are below half a step", note)
    assert "Values that are not 0, and become 0" in (tmp_path / "b" / "report.html").read_text()
    generate_build(source, tmp_path / "b", calibration=x, **options | {"settings": QuantizationSettings()})
    report = json.loads((tmp_path / "b" / "report.json").read_text())
    assert not any("input x" in text for text in report["notes"])


@pytest.mark.usefixtures("without_verilog")
def test_weights_and_outputs_that_vanish_are_said(tmp_path):
    rows = np.full((2, 4), 2.0**-12)
    rows[:, 0] = 1.0
    lstm, dense = network().layers
    small = Network(layers=(lstm, dense.replace(weight=rows * [[1.0], [1e-4]], bias=np.zeros(2))))
    generate_build(small, tmp_path / "b", settings=NARROW, parameters=TINY, name="little")
    losses = {
        each["quantity"]: each
        for each in json.loads((tmp_path / "b" / "report.json").read_text())["accuracy"]["losses"]
    }
    assert (losses["weights of fc"]["values"], losses["weights of fc"]["lost"]) == (8, 6)
    assert losses["output y"]["columns"] == [1]
    assert losses["weights of lstm"]["lost"] < 5 and set(losses) >= {"h of lstm, at the end of sequences"}
