"""Outputs and dense weights of their own width: golden models and RTL, through every way out of a core."""

from itertools import product

import numpy as np
import pytest
from support.golden_runs import equals_second, rms_error
from support.link_bench import LinkBench
from support.loadable_builds import Build
from support.quick import quick
from support.random_sequences import make_sequence_case
from support.sequence_checks import check_device
from support.small_builds import NARROW, TINY, network

from rtlstm import Accelerator, Bidirectional, ConfigurationError, Dense, Gru, Manifest, Network, Parameters
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.rtl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2, 3))
LSTM, DENSE = network().layers
WIDE = QuantizationSettings(weight_bits=8, data_bits=8, output_bits=16, cell_bits=12, input_range=4.0)
NARROWER = WIDE.replace(data_bits=10, output_bits=6)
NARROW_GATES = WIDE.replace(gate_bits=9)
SETTINGS = {"wider": WIDE, "narrower": NARROWER, "wider than gates": NARROW_GATES}


def dense(outputs: int, inputs: int, **options: object) -> Dense:
    return Dense(weight=3 * RNG.normal(size=(outputs, inputs)), bias=RNG.normal(size=outputs), **options)


SHAPES = {"w_ih": (12, 3), "w_hh": (12, 4), "bias_ih": (12,), "bias_hh": (12,)}
GRU = Gru(**{name: RNG.normal(size=shape) for name, shape in SHAPES.items()})
NETWORKS = {
    # Without biases, so that larger inputs mean larger scores.
    "scores": Network(layers=(LSTM.replace(bias=np.zeros(16)), DENSE.replace(bias=np.zeros(2)))),
    "behind a ReLU": Network(layers=(LSTM, dense(5, 4, activation="relu"), dense(3, 5))),
    "sigmoid": Network(layers=(LSTM, DENSE.replace(activation="sigmoid"))),
    "tanh behind tanh": Network(
        layers=(LSTM, DENSE.replace(activation="tanh"), dense(3, 2, activation="tanh"))
    ),
    "GRU with a residual": Network(layers=(GRU, dense(3, 4, skip=np.eye(3)))),
}


@pytest.mark.parametrize(
    ("name", "width"),
    quick(product(NETWORKS, SETTINGS), ("scores", "wider"), ("GRU with a residual", "wider than gates")),
)
def test_rtl_equals_golden_model(name, width, tmp_path):
    """On every bit and cycle, with larger inputs than calibrated, so that outputs are limited."""
    settings = SETTINGS[width]
    parameters = TINY.replace(beat_out=2) if name == "scores" else TINY
    options = {"settings": settings.replace(quick=True), "parameters": parameters, "name": "tiny"}
    generate_build(NETWORKS[name], tmp_path / "b", calibration=0.02 * X, **options)
    manifest = Manifest.load(tmp_path / "b")
    output = manifest.layers[-1].output
    assert output.bits == manifest.numerics.output_bits == settings.output_bits
    assert {layer.output.bits for layer in manifest.layers if layer.kind not in ("skip", "sum")} <= {
        settings.data_bits,
        settings.output_bits,
    }
    codes = manifest.numerics.quantise_input(X)
    result, y = compare(tmp_path / "b", codes, simulator="icarus", verify=False)
    assert result.passed, result.first_difference
    assert np.abs(y).max() == output.maximum or name != "scores"


REVERSE = LSTM.replace(reverse=True)
BOTH = Bidirectional(forward=LSTM, backward=REVERSE)
GRUS = Bidirectional(forward=GRU, backward=GRU.replace(reverse=True), merge="sum")
SEQUENCES = {
    "both directions": Network(layers=(BOTH, dense(5, 8))),
    # Dense layers end a pass before the last one, and stand before the last layer.
    "sigmoid behind ReLU": Network(
        layers=(
            dense(3, 3, activation="relu"),
            BOTH,
            dense(4, 8, activation="tanh"),
            LSTM.replace(w_ih=RNG.normal(size=(16, 4))),
            dense(3, 4, activation="relu"),
            dense(3, 3, activation="sigmoid"),
        )
    ),
    "back to front": Network(layers=(REVERSE, dense(3, 4))),
    "reversed output": Network(layers=(REVERSE.replace(reversed_output=True), dense(3, 4))),
    "GRUs": Network(layers=(GRUS, dense(3, 4, activation="tanh"))),
    "the sum of both": Network(layers=(BOTH.replace(merge="sum"),)),
}
WHOLE = {
    "one": Parameters(lanes=4, macs=1, max_steps=7),
    "units side by side": Parameters(
        lanes=8,
        macs=4,
        gate_units=2,
        beat_in=2,
        beat_out=4,
        streams=2,
        max_steps=6,
        pipeline=FAMILIES.named("ecp5").pipeline,
    ),
}


@pytest.mark.parametrize(
    ("name", "width", "sizes"),
    quick(product(SEQUENCES, SETTINGS, WHOLE), ("the sum of both", "narrower", "one")),
)
def test_whole_sequences(name, width, sizes, tmp_path):
    """On every bit and cycle, with lengths, stalls, and steps whose output is not wanted."""
    network = quantise(SEQUENCES[name], SETTINGS[width], 0.02 * X)
    assert network.shapes[-1].output.bits == network.numerics.output_bits == SETTINGS[width].output_bits
    check_device(make_sequence_case(3, network, WHOLE[sizes], 5), tmp_path, "icarus")


def test_second_model_agrees():
    for source in (*NETWORKS.values(), *SEQUENCES.values()):
        for settings in SETTINGS.values():
            quantised = quantise(source, settings, X)
            equals_second(quantised, quantised.numerics.quantise_input(2 * X[:, :1]))


def test_scores_of_a_wide_range_keep_their_steps():
    """With 8-bit data, steps of .5 before: much more than the error of h makes of them."""
    scores = Network(layers=(LSTM, DENSE.replace(bias=np.array([50.0, 0.0]))))
    errors = []
    for bits in (8, None):
        quantised = quantise(scores, WIDE.replace(output_bits=bits, quick=True), X)
        errors.append((quantised.shapes[-1].output.step, rms_error(scores, quantised, X)))
    (coarse, before), (fine, after) = errors
    assert coarse >= 0.25 and fine == coarse / 256
    assert after < 0.1 * before


def test_over_a_link():
    quantised = quantise(NETWORKS["scores"], WIDE, X)
    build = Build(quantised, Manifest.of("tiny", quantised, TINY))
    codes = quantised.numerics.quantise_input(X)
    wanted = Golden(quantised).run(codes).y
    assert np.abs(wanted).max() > 127
    with LinkBench(build).open() as accelerator:
        np.testing.assert_array_equal(accelerator.run(codes)[0], wanted)
        assert accelerator.device.register(Register.CAPACITY) == 16 << 24 | 8 << 16 | 2


@pytest.mark.slow
def test_loadable_device_gives_h_in_wider_words(tmp_path):
    options = {
        "settings": NARROW.replace(gate_bits=12, output_bits=12),
        "parameters": TINY,
        "capacities": {"outputs": 4},
    }
    generate_build(NETWORKS["scores"], tmp_path / "device", name="tiny", **options)
    made = generate_build(Network(layers=(LSTM,)), tmp_path / "h", device=tmp_path / "device")
    assert (made.layers[-1].output.bits, made.numerics.output_bits) == (8, 12)
    with Accelerator.open(tmp_path / "device", "icarus", verify=False) as accelerator:
        accelerator.load(tmp_path / "h", verify=False)
        y, _ = accelerator.run(X[:4])
    with Accelerator.open(tmp_path / "h") as golden:
        np.testing.assert_array_equal(y, golden.run(X[:4])[0])


def test_what_has_no_outputs_of_its_own_is_refused():
    for source, said in (
        (
            Network(layers=(LSTM,)),
            "outputs of 16 bits need a dense layer at the network's end, but layer 'lstm'",
        ),
        (
            Network(layers=(BOTH,)),
            "outputs of 16 bits need a dense layer at the network's end, but layer 'lstm'",
        ),
    ):
        with pytest.raises(ConfigurationError, match=said):
            quantise(source, WIDE)
    projected = LSTM.replace(projection=np.ones((4, 4)))
    with pytest.raises(ConfigurationError, match="gives h, which has 8"):
        quantise(Network(layers=(projected,)), WIDE)
    with pytest.raises(ConfigurationError, match="`output_bits` must be at most 12 with direct tables"):
        WIDE.replace(tables="direct")
    with pytest.raises(ConfigurationError, match="gates have 8 to 18 bits .*; change `gate_bits`"):
        quantise(NETWORKS["scores"], WIDE.replace(gate_bits=7))
    assert quantise(Network(layers=(LSTM,)), WIDE.replace(output_bits=8)).numerics.output_bits == 8


def test_outputs_behind_a_dense_layer_have_16_bits():
    """Whatever the data have, and with gates as they would be without."""
    plain = WIDE.replace(output_bits=None)
    for source in NETWORKS.values():
        wide, same = (quantise(source, plain.replace(output_bits=bits), X) for bits in (None, 8))
        assert (wide.numerics.output_bits, wide.shapes[-1].output.bits) == (16, 16)
        assert (wide.numerics.gate, wide.numerics.preactivation) == (
            same.numerics.gate,
            same.numerics.preactivation,
        )
        assert wide.numerics.gate.bits == 12
    scores = NETWORKS["scores"]
    for changes, bits in (
        ({"data_bits": 16}, None),
        ({"data_bits": 18}, None),
        ({"tables": "direct"}, 12),
        ({"output_bits": 8}, 8),
    ):
        assert quantise(scores, plain.replace(**changes), X).numerics.own_output_bits == bits
    assert quantise(Network(layers=(LSTM,)), plain).numerics.own_output_bits is None


@pytest.mark.parametrize(("bits", "dense_bits"), quick([(4, 9), (9, 4)], (4, 9)))
def test_dense_weights_have_bits_of_their_own(tmp_path, bits, dense_bits):
    """Wider and narrower than an LSTM's, whose projection's are its own; RTL as the golden model."""
    projected = LSTM.replace(w_hh=LSTM.w_hh[:, :2], projection=RNG.normal(size=(2, 4)))
    source = Network(layers=(projected, dense(3, 2, activation="relu"), dense(2, 3)))
    settings = QuantizationSettings(
        weight_bits=bits, dense_weight_bits=dense_bits, data_bits=8, output_bits=12, cell_bits=12
    )
    quantised = quantise(source, settings, X)
    lstm, projection, *others = quantised.layers
    for weights in (lstm.w_ih, lstm.w_hh, projection.weight):
        assert np.abs(weights).max().item().bit_length() == bits - 1
    assert [np.abs(each.weight).max().item().bit_length() for each in others] == [dense_bits - 1] * 2
    assert (quantised.numerics.weight_bits, quantised.numerics.own_weight_bits) == (9, (bits, dense_bits))
    generate_build(source, tmp_path / "b", settings=settings, parameters=TINY, calibration=X, name="tiny")
    result, _ = compare(tmp_path / "b", X, simulator="icarus", verify=False)
    assert result.passed, result.first_difference
    # A retrained model for this device keeps both.
    retrained = source.replace(layers=(*source.layers[:2], source.layers[2].replace(bias=np.zeros(2))))
    made = generate_build(retrained, tmp_path / "retrained", device=tmp_path / "b")
    assert made.build_hash == Manifest.load(tmp_path / "b").build_hash


def test_wider_dense_weights_are_nearer_to_float():
    errors = []
    for bits in (None, 12):
        settings = QuantizationSettings(weight_bits=4, dense_weight_bits=bits)
        quantised = quantise(NETWORKS["scores"], settings, X)
        result = Golden(quantised).run(quantised.numerics.quantise_input(X))
        given = quantised.shapes[-1].output.to_floats(result.y[-1])
        wanted = quantised.shapes[0].output.to_floats(result.h[0]) @ NETWORKS["scores"].layers[-1].weight.T
        errors.append(float(np.abs(given - wanted).max()))
    assert errors[1] < 0.05 * errors[0]
