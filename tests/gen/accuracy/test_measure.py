"""What is measured, against the golden model and the float reference by other ways."""

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.small_builds import network as small_network

import rtlstm
from rtlstm.gen.accuracy.measure import find_uncertainty, measure_errors
from rtlstm.gen.accuracy.records import largest_part
from rtlstm.gen.accuracy.samples import Labels, Samples
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import RELU
from rtlstm.spec.errors import InputError
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network, Rnn

NARROW = QuantizationSettings(weight_bits=6, data_bits=7, gate_bits=8, cell_bits=10)
LENGTHS = np.array([20, 7])


def both_directions(merge: str) -> Network:
    rng = np.random.default_rng(5)

    def lstm(reverse: bool) -> Lstm:
        weights = rng.normal(size=(20, 3)), rng.normal(size=(20, 5)) / 3, rng.normal(size=20)
        return Lstm(w_ih=weights[0], w_hh=weights[1], bias=weights[2], reverse=reverse)

    layer = Bidirectional(forward=lstm(False), backward=lstm(True), merge=merge)
    return Network(layers=(layer, Dense(weight=rng.normal(size=(2, layer.outputs)), bias=np.zeros(2))))


NETWORKS = {
    "lstm": small_network(),
    "concat": both_directions("concat"),
    "product": both_directions("product"),
    **{name: CELL_NETWORKS[name] for name in ("gru", "rnn", "projections", "residuals", "custom_c")},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_errors_of_the_outputs(name: str) -> None:
    network = NETWORKS[name]
    x = np.random.default_rng(1).normal(size=(20, 2, network.inputs))
    quantised = quantise(network, NARROW, x, LENGTHS)
    samples = Samples.of(x, network.inputs, LENGTHS)
    found = measure_errors(quantised, samples, network)
    codes = Golden(quantised).run(quantised.numerics.quantise_input(samples.x), None, LENGTHS)
    exact = run_float(network, samples.x, None, LENGTHS)
    fixed = quantised.shapes[-1].output.to_floats(codes.y)
    alive = np.arange(20)[:, None] < LENGTHS
    error = (fixed - exact.y)[alive]
    assert found.output.rms_error == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert found.output.max_abs_error == pytest.approx(np.abs(error).max(), rel=1e-4)
    assert found.output.rms_signal == pytest.approx(np.sqrt(np.mean(exact.y[alive] ** 2)), rel=1e-4)
    # Past the end of the shorter sequence, the error is that of the longer one.
    assert found.output.steps[10] == pytest.approx(np.sqrt(np.mean((fixed - exact.y)[10, 0] ** 2)), rel=1e-4)
    assert found.total_steps == 27
    state = [each for each in found.saturations if each.quantity == "state"]
    assert sum(each.saturated for each in state) == codes.cell_saturations
    parts = [each.part for each in found.output.parts]
    assert parts == ["weights", "activations", "tables", "state"][: 3 if name == "rnn" else 4]
    assert all(0 < each.alone < 3 * found.output.rms_error for each in found.output.parts)
    assert all(len(each.steps) == 20 for each in (found.output, *found.output.parts))
    assert not found.remarks


def test_the_part_that_is_coarse_is_blamed() -> None:
    """Whatever has few bits costs most."""
    network, widths = small_network(), {"weight_bits": 12, "data_bits": 12, "gate_bits": 14, "cell_bits": 16}
    x = np.random.default_rng(1).normal(size=(50, 4, network.inputs))
    for name, few, part in (
        ("weight_bits", 4, "weights"),
        ("data_bits", 5, "activations"),
        ("cell_bits", 8, "state"),
    ):
        quantised = quantise(network, QuantizationSettings(**widths | {name: few}), x)
        found = measure_errors(quantised, Samples.of(x, network.inputs), network)
        blamed = largest_part(found.output)
        assert blamed is not None and blamed.part == part
        assert f"most of it from {part}" in found.verdict


def test_labels_of_one_class_are_said() -> None:
    network = small_network()
    x = np.random.default_rng(1).normal(size=(50, 4, network.inputs))
    quantised, samples = quantise(network, NARROW, x), Samples.of(x, network.inputs)
    for labels in (np.zeros((50, 4), dtype=int), np.ones(4, dtype=int), np.arange(4) % 2):
        given = Labels.of(labels, samples, 2, 0.0)
        verdict = measure_errors(quantised, samples, network, labels=given).verdict
        assert ("All labels are of one class" in verdict) == (len(np.unique(labels)) == 1)


def test_saturation_is_counted_where_it_is() -> None:
    """A ReLU network's results have no bound; calibration data that are too small give too small a range."""
    network = Network(layers=(Rnn(w_ih=np.eye(3), w_hh=np.zeros((3, 3)), bias=np.zeros(3), activation=RELU),))
    quantised = quantise(network, QuantizationSettings(data_bits=8), np.ones((4, 3)))
    x = np.zeros((10, 1, 3))
    x[:4, 0, 1] = 2.5
    x[:7, 0, 2] = 3.0
    found = measure_errors(quantised, Samples.of(x, 3))
    limit = quantised.numerics.input.limit
    by_name = {(each.name, each.quantity): each for each in found.saturations}
    assert by_name["", "input"].counts == tuple(int((x[:, 0, one] > limit).sum()) for one in range(3))
    assert by_name["", "input"].saturated == 4 + 7 and by_name["", "input"].worst == 2


@pytest.mark.usefixtures("without_verilog")
def test_hardware_of_another_network(tmp_path) -> None:
    """Options do not choose the formats of another network's hardware: no width is tried, which is said."""
    network = small_network()
    x = np.random.default_rng(1).normal(size=(30, 2, network.inputs))
    rtlstm.compile(network, folder=tmp_path / "device", calibration=x, weight_bits=5, lanes=4, macs=2)
    lstm, dense = network.layers
    small = network.replace(layers=(lstm.replace(w_ih=lstm.w_ih / 1000), dense))
    build = rtlstm.compile(small, folder=tmp_path / "other", device=tmp_path / "device", calibration=x)
    found = build.accuracy(x, model=small, calibration=x)
    y, _ = build.run(x)
    error = np.sqrt(np.mean((y - run_float(small, x).y) ** 2))
    assert found.output.rms_error == pytest.approx(error, rel=1e-4) and found.widths == ()
    assert found.remarks[0].startswith(
        "other widths are not tried: the build has the formats of the hardware"
    )
    with pytest.raises(InputError, match="weights of layer 'lstm' differ from the build's by"):
        build.accuracy(x, model=network)


def test_float_values_that_overflow_are_refused() -> None:
    rnn = Rnn(w_ih=np.ones((2, 1)), w_hh=np.eye(2) * 30.0, bias=np.zeros(2), activation=RELU)
    network = Network(layers=(rnn,))
    quantised = quantise(network, QuantizationSettings(), np.ones((3, 1)))
    with pytest.raises(InputError, match="overflow on these inputs"):
        measure_errors(quantised, Samples.of(np.ones((300, 1)), 1), network)


def test_how_far_the_error_may_be_off() -> None:
    """The errors of many sets of data differ as one of them tells; steps of one sequence go together."""
    rng = np.random.default_rng(3)
    found, errors = [], []
    for _ in range(200):
        error = np.cumsum(rng.normal(size=(40, 12, 2)), axis=0)
        samples = Samples.of(np.zeros((40, 12, 1)), 1)
        errors.append(np.sqrt(np.mean(error**2)))
        found.append(find_uncertainty(error, samples))
    assert np.mean(found) == pytest.approx(np.std(errors) / np.mean(errors), rel=0.15)
    alone = Samples.of(np.zeros((40, 1)), 1)
    once = find_uncertainty(rng.normal(size=(40, 1, 2)), alone)
    assert once == pytest.approx(1 / np.sqrt(2 * 80), rel=0.5)
    assert find_uncertainty(error[:, :3], Samples.of(np.zeros((40, 3, 1)), 1)) is None
