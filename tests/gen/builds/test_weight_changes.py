"""What a build's report says of weights that are integers in the model."""

import json

import numpy as np
import pytest
from support.quantised_files import dynamic, float_model, inputs

import rtlstm
from rtlstm.gen.builds.advice import measure_changes
from rtlstm.gen.frontends.arrays import reorder
from rtlstm.gen.frontends.reading import IntegerRows, IntegerWeights
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.fixed import WeightFormat
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Bidirectional, Dense, Gru, Lstm, Network, Read
from rtlstm.spec.packing import unpack


@pytest.fixture
def quantised(tmp_path):
    """A file with integer weights in steps of 2^-7."""
    pytest.importorskip("onnxruntime.quantization")
    rng = np.random.default_rng(0)
    float_model(tmp_path / "float.onnx", rng)
    np.save(tmp_path / "x.npy", inputs(rng))
    return dynamic(tmp_path / "float.onnx")


@pytest.mark.slow
def test_generate_says_that_the_integers_are_kept(quantised, tmp_path, cli):
    found = cli("generate", quantised, "-o", tmp_path / "build", "--weight-bits", 8, "--json")
    assert found.code == 0 and "--weight-bits 8 or more holds them exactly" in found.err
    assert (
        "weights are the model's integers, exactly: those of the input products of 'rec_quant'" in found.err
    )
    changes = json.loads((tmp_path / "build" / "report.json").read_text())["weight_changes"]
    assert [change["largest"] for change in changes] == [0.0] * 4
    manifest = Manifest.load(tmp_path / "build")
    image = WeightImage.load(tmp_path / "build" / "weights.bin", manifest)
    lstm, first, second = unpack(image, manifest).layers
    codes = float_model(tmp_path / "again.onnx", np.random.default_rng(0))
    np.testing.assert_array_equal(lstm.w_ih, reorder(codes["W"][0], "onnx", "lstm"))
    np.testing.assert_array_equal(lstm.w_hh, reorder(codes["R"][0], "onnx", "lstm"))
    np.testing.assert_array_equal(first.weight, codes["G1"].T)
    np.testing.assert_array_equal(second.weight, codes["G2"].T)


@pytest.mark.usefixtures("without_verilog")
def test_narrower_weights_change(quantised, tmp_path):
    build = rtlstm.compile(quantised, folder=tmp_path / "build", weight_bits=4, lanes=4, macs=1)
    changes = build.report().weight_changes
    assert [change.layer for change in changes] == ["rec_quant", "rec_quant", "fc", "fc2"]
    assert all(change.largest_steps == pytest.approx(change.largest * 128, rel=1e-4) for change in changes)
    # 127 steps are 8 steps of 16, and 4 bits hold 7. A step of 32 is left, and half of it is the change.
    assert max(change.largest_steps for change in changes) == 16
    assert "weights differ from the model's integers" in "\n".join(build.report().notes)


@pytest.mark.slow
def test_inputs_with_factors(quantised, tmp_path):
    """Factors of small features divide their columns, which then need more bits; the change is measured."""
    x = np.random.default_rng(1).uniform(-1, 1, (30, 1, 3)) * [1, 2.0**-6, 1]
    changes = []
    for bits in (8, 16):
        build = rtlstm.compile(
            quantised,
            folder=tmp_path / str(bits),
            weight_bits=bits,
            data_bits=8,
            lanes=4,
            macs=1,
            calibration=x,
        )
        assert build.manifest.numerics.input_factors
        changes.append(build.report().weight_changes[0].largest_steps)
    assert changes[0] > 0 and changes[1] == 0


def integers(rng, *shape, step):
    return rng.integers(-127, 128, shape) * step


def layers(rng):
    """All kinds of lowering: two directions whose sum is folded, a GRU of two layers, a residual."""
    step, other = 0.011, 2.0**-7

    def lstm(name, reverse):
        weights = integers(rng, 12, 2, step=step), integers(rng, 12, 3, step=other)
        return Lstm(name=name, w_ih=weights[0], w_hh=weights[1], bias=np.zeros(12), reverse=reverse)

    gru = Gru(
        name="gru",
        w_ih=integers(rng, 12, 3, step=step),
        w_hh=integers(rng, 12, 4, step=step),
        bias_ih=np.zeros(12),
        bias_hh=np.zeros(12),
        reset_after=False,
    )
    both = Bidirectional(name="both", forward=lstm("f", False), backward=lstm("b", True), merge="average")
    return [both, gru]


@pytest.mark.parametrize("bits", [8, 12])
def test_changes_are_those_of_rounding_each_row(bits):
    """Where no scale is limited, every row is rounded at the finest scale: computed here from the layers."""
    network = Network(layers=layers(np.random.default_rng(2)))
    given = [
        IntegerWeights(layer=layer, weight=weight, bits=8, largest=127, zero_points=False, steps=(step,))
        for layer, weight, step in [
            ("f", "w_ih", 0.011),
            ("f", "w_hh", 2.0**-7),
            ("b", "w_ih", 0.011),
            ("b", "w_hh", 2.0**-7),
            ("gru", "w_ih", 0.011),
            ("gru", "w_hh", 0.011),
        ]
    ]
    changes = measure_changes(network, quantise(network, QuantizationSettings(weight_bits=bits)), given)
    found = {(change.layer, change.product): change for change in changes}
    assert [change.layer for change in changes] == ["f", "f", "b", "b", "gru", "gru", "gru_candidate"]
    form, f, gru = WeightFormat(bits), network.layers[0].forward, network.layers[1]
    for matrix, step, change in (
        (f.w_ih, 0.011, found["f", "input products"]),
        (f.w_hh, 2.0**-7, found["f", "products with h"]),
        (gru.w_ih / 2, 0.011 / 2, found["gru", "input products"]),  # the mean's share
        (gru.w_hh[8:], 0.011, found["gru_candidate", "products"]),
    ):
        scale = form.finest_scale(np.abs(matrix).max(axis=1))[:, None]
        expected = np.abs(form.to_integers(matrix, scale) / 2.0**scale - matrix).max()
        assert change.largest == pytest.approx(expected, rel=1e-4)
        assert change.largest_steps == pytest.approx(expected / step, rel=1e-4)
    assert found["f", "products with h"].largest == 0.0


def test_residuals_and_layers_that_were_floats():
    rng = np.random.default_rng(3)
    first = Lstm(w_ih=rng.normal(size=(8, 2)), w_hh=rng.normal(size=(8, 2)), bias=np.zeros(8))
    skip = Dense(
        name="sum",
        weight=integers(rng, 2, 2, step=0.01),
        bias=np.zeros(2),
        skip=rng.normal(size=(2, 2)),
        skips=2,
    )
    network = Network(layers=[first, skip])
    given = [
        IntegerWeights(layer="sum", weight="weight", bits=8, largest=127, zero_points=False, steps=(0.01,))
    ]
    (change,) = measure_changes(network, quantise(network, QuantizationSettings(weight_bits=8)), given)
    assert change.layer == "sum" and 0 < change.largest_steps <= 1
    assert measure_changes(network, quantise(network), ()) == ()


def test_integers_of_one_of_several_reads():
    rng = np.random.default_rng(4)
    first = Lstm(w_ih=rng.normal(size=(8, 2)), w_hh=rng.normal(size=(8, 2)), bias=np.zeros(8))
    known = integers(rng, 8, 2, step=0.01)
    both = Lstm(
        name="both",
        w_ih=np.concatenate([rng.normal(size=(8, 2)), known], axis=1),
        w_hh=rng.normal(size=(8, 2)),
        bias=np.zeros(8),
        reads=(Read(width=2), Read(back=2, width=2)),
    )
    network, rows = Network(layers=[first, both]), IntegerRows()
    rows.add("W", known, np.full_like(known, 0.01), 8, False)
    given, notes = rows.find(network)
    assert [(one.layer, one.weight, one.read) for one in given] == [("both", "w_ih", 1)]
    assert "w_ih (read 2) of 'both' has integers of 8 bits" in notes[0]
    (change,) = measure_changes(network, quantise(network, QuantizationSettings(weight_bits=8)), given)
    assert change.layer == "both_skip" and 0 < change.largest_steps <= 1
