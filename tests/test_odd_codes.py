"""h rounded to odd codes: what it gives, golden models, RTL and cycles, training, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.golden_runs import check_trained, equals_second, rms_error
from support.lazy import torch, train
from support.quick import quick
from support.small_builds import normal_lstm, tensors

from rtlstm import ConfigurationError, Dense, Gru, Lstm, Manifest, Network, Parameters
from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.family import Pipeline
from rtlstm.spec.fixed import odd_codes, round_odd
from rtlstm.spec.numerics import Numerics

NARROW = {"weight_bits": 8, "data_bits": 8, "gate_bits": 9, "cell_bits": 12}
HALF_UP, ODD = (QuantizationSettings(**NARROW, hidden_rounding=each) for each in ("half_up", "odd"))


def lstm(inputs: int, units: int, biases: tuple[float, ...] = (0.0,) * 4) -> Lstm:
    """A layer whose gates i, f, g and o have these biases, and random ones on top."""
    layer = normal_lstm(np.random.default_rng(inputs), inputs, units)
    return layer.replace(bias=layer.bias + np.repeat(biases, units))


def inputs(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape)


TWO = Network(layers=(lstm(3, 8), lstm(8, 4)))
CLOSED = Network(layers=(lstm(3, 8, (0.0, 0.0, -3.0, -9.0)),))
"""Its output gates are 0, and its cell states negative."""


@pytest.mark.parametrize("shift", [0, 1, 4])
def test_the_middle_of_two_steps(shift: int) -> None:
    values = np.arange(-(1 << 8), (1 << 8) + 1)
    codes = round_odd(values, shift)
    assert (codes % 2 == 1).all()
    assert (np.abs(codes * 2**shift - values) <= 2**shift).all()
    # Zero alone has no sign to keep.
    np.testing.assert_array_equal(codes[values != 0], -codes[::-1][values != 0])
    assert round_odd(0, shift) == 1
    np.testing.assert_array_equal(codes, odd_codes(np.ldexp(values.astype(float), -shift)))


@pytest.mark.rtl
@pytest.mark.parametrize("family", quick(["generic", "ecp5"], "ecp5"))
def test_a_cycle_less_in_each_layer(family: str, tmp_path: Path) -> None:
    """On every bit and cycle, of pipelines whose results have a register; it is the same without one."""
    x = inputs(20, 2, 3)
    made = Parameters.for_family(family, factor_bits=8, lanes=16, macs=4, gate_units=2, beat_out=2)
    saved = []
    for registers in (0, 1, 2):
        parameters = made.replace(pipeline=made.pipeline.model_copy(update={"result": registers}))
        steps = []
        for settings in (HALF_UP, ODD):
            manifest = Manifest.of("two", quantise(TWO, settings, x), parameters)
            steps.append(manifest.cycles.step_latency_cycles)
        saved.append(steps[0] - steps[1])
        if registers == 0 or (family == "ecp5" and registers == 2):
            continue
        options = {"settings": ODD, "parameters": parameters, "calibration": x, "name": "two"}
        generate_build(TWO, tmp_path / f"{registers}", **options)
        found, y = compare(tmp_path / f"{registers}", x, simulator="icarus", verify=False)
        assert found.passed, found.first_difference
        codes = np.ldexp(y, 7)
        assert (codes % 2 == 1).all() and codes.min() < -1 and codes.max() > 1
    assert saved == [0, 2, 4]


@pytest.mark.rtl
@pytest.mark.parametrize("registers", quick([0, 1], 0))
def test_products_of_nothing_are_positive(registers: int, tmp_path: Path) -> None:
    """An output gate that is 0 gives h its smallest positive code, whatever the sign of tanh."""
    x = inputs(12, 1, 3)
    parameters = Parameters(lanes=8, macs=2, pipeline=Pipeline(result=registers))
    options = {"settings": ODD, "parameters": parameters, "calibration": x, "name": "closed"}
    generate_build(CLOSED, tmp_path / "b", **options)
    found, y = compare(tmp_path / "b", x, simulator="icarus", verify=False)
    assert found.passed, found.first_difference
    assert (run_float(CLOSED, x).y < 0).mean() > 0.9
    assert (np.ldexp(y, 7) == 1).mean() > 0.5


@pytest.mark.slow
@pytest.mark.rtl
def test_a_device_keeps_its_rounding(tmp_path: Path) -> None:
    """What a loadable device takes is rounded as the device does."""
    options = {"settings": ODD, "parameters": Parameters(lanes=8, macs=2), "name": "device"}
    generate_build(TWO, tmp_path / "device", capacities={"outputs": 8}, **options)
    made = generate_build(Network(layers=TWO.layers[:1]), tmp_path / "other", device=tmp_path / "device")
    assert made.numerics.hidden_rounding == "odd"
    found, _ = compare(tmp_path / "other", inputs(6, 3), simulator="icarus", verify=False)
    assert found.passed, found.first_difference
    gru = Gru(**{name: np.ones(size) for name, size in GRU.items()})
    with pytest.raises(
        ConfigurationError, match="the kinds of cells and functions that the device was built"
    ):
        generate_build(Network(layers=(gru,)), tmp_path / "gru", device=tmp_path / "device")


GRU = {"w_ih": (12, 3), "w_hh": (12, 4), "bias_ih": (12,), "bias_hh": (12,)}


def test_the_other_models_agree() -> None:
    """A model in Python integers, and the accuracy's, which rounds all parts."""
    x = inputs(30, 2, 3)
    quantised = quantise(TWO, ODD, x)
    equals_second(quantised, quantised.numerics.quantise_input(x))
    found = measure_errors(quantised, Samples.of(x, 3), TWO)
    assert found.output.rms_error == pytest.approx(rms_error(TWO, quantised, x), rel=1e-4)


def test_a_bit_more_makes_up_for_it() -> None:
    x = np.random.default_rng(1).normal(size=(200, 8, 3))
    wide = {"weight_bits": 16, "gate_bits": 12, "cell_bits": 16}
    half_up, odd, wider = (
        rms_error(TWO, quantise(TWO, each.replace(**wide, data_bits=bits), x), x)
        for each, bits in ((HALF_UP, 8), (ODD, 8), (ODD, 9))
    )
    assert 1.2 * half_up < odd < 2.5 * half_up
    assert wider < 1.1 * half_up


def test_manifests_say_the_rounding() -> None:
    texts = [quantise(TWO, settings).numerics.model_dump_json() for settings in (HALF_UP, ODD)]
    for text, rounding in zip(texts, ("half_up", "odd"), strict=True):
        assert Numerics(**json.loads(text)).hidden_rounding == rounding


def test_numerics_say_what_their_graphs_do() -> None:
    numerics = quantise(TWO, ODD).numerics
    with pytest.raises(ConfigurationError, match="must be rounded as hidden_rounding says"):
        numerics.replace(hidden_rounding="half_up")


def test_dense_networks_have_no_h() -> None:
    with pytest.raises(ConfigurationError, match="needs LSTM layers"):
        quantise(Network(layers=(Dense(weight=np.eye(3), bias=np.zeros(3)),)), ODD)


@pytest.mark.slow
def test_networks_without_plain_lstm_layers_are_refused(cli, tmp_path: Path) -> None:
    safetensors.numpy.save_file(tensors(), tmp_path / "tiny.safetensors")
    asked = ("generate", tmp_path / "tiny.safetensors", "-o", tmp_path / "b", "--hidden-rounding")
    # A layer of another function behind the LSTM.
    cli(*asked, "odd", "--dense", "fc:leaky_relu").refused(
        "--hidden-rounding odd needs LSTM layers without peepholes, projections or skips", "leave it out"
    )
    assert cli(*asked, "odd", "--dense", "fc:sigmoid").code == 0
    assert Manifest.load(tmp_path / "b").numerics.hidden_rounding == "odd"
    formats = [each["use"] for each in cli("inspect", tmp_path / "b", "--json").json["formats"]]
    assert "hidden state h, odd codes" in formats
    cli(*asked, "even").refused("--hidden-rounding", "half_up", "odd")


@pytest.mark.parametrize("ranges", [False, True])
def test_trained_networks_give_odd_codes(ranges: bool) -> None:
    """By the layer's own function, and by its cell's graph if ranges are trained, too."""
    torch.manual_seed(0)
    q = train.prepare(torch.nn.LSTM(3, 6), data_bits=8, hidden_rounding="odd", train_ranges=ranges)
    x = inputs(9, 4, 3)
    assert check_trained(q, x).numerics.hidden_rounding == "odd"
    # A checkpoint from before there was this option is of a module that rounds half up.
    kept = q.state_dict()
    del kept["_extra_state"]["settings"]["hidden_rounding"]
    with pytest.raises(ConfigurationError, match="prepared with the same options"):
        q.load_state_dict(kept)
    half_up = train.prepare(torch.nn.LSTM(3, 6), data_bits=8, train_ranges=ranges)
    kept = half_up.state_dict()
    del kept["_extra_state"]["settings"]["hidden_rounding"]
    half_up.load_state_dict(kept)
    q(torch.from_numpy(x))[0].square().sum().backward()
    assert all(bool((parameter.grad != 0).any()) for parameter in q.parameters() if parameter.requires_grad)
