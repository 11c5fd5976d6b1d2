"""Layers whose h has formats of their own in the fused LSTM gate unit: all models give the same bits."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import check_trained, equals_second, random_codes, rms_error
from support.lazy import torch, train
from support.loadable_builds import stacked
from support.quick import quick
from support.random_builds import make_case
from support.random_sequences import make_sequence_case
from support.sequence_checks import check_device as check_sequences
from support.step_checks import check_device

from rtlstm import Bidirectional, ConfigurationError, Dense, Lstm, Manifest, Network, Parameters, compile
from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.report import format_reports
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.hdl.emit.header import build_options
from rtlstm.sim.reference import run_float
from rtlstm.spec.cells.unit import FusedUnit

SETTINGS = QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=10, cell_bits=14)
PARAMETERS = Parameters(lanes=8, macs=2, gate_units=2, beat_out=2, streams=2)


def both_then_dense() -> Network:
    first, second = (
        layer.replace(reverse=bool(at)) for at, layer in enumerate(stacked(3, 4, 4).layers[:1] * 2)
    )
    return Network(
        layers=(
            Bidirectional(forward=first, backward=second),
            Dense(weight=np.random.default_rng(5).normal(size=(2, 8)), bias=np.zeros(2)),
        )
    )


def small_last() -> Network:
    """Two LSTMs: the h of the second is small, as its output gates hardly open."""
    first, second, dense = stacked(4, 6, 6, dense=((3, "identity"),)).layers
    assert isinstance(second, Lstm)
    bias = second.bias.copy()
    bias[-6:] = -3.0
    return Network(layers=(first, second.replace(bias=bias), dense))


NETWORKS = {
    "one": (stacked(3, 5, dense=((2, "identity"),)), "0.25", -2, (0,)),
    "two": (stacked(3, 5, 4, dense=((2, "sigmoid"),)), "1,0.25", 0, (0, 2)),
    "three": (stacked(3, 4, 4, 4), "0.5,0.0625,0.25", -1, (0, 1, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_each_layer_has_the_format_of_its_range(name: str) -> None:
    network, stated, whole, shifts = NETWORKS[name]
    found = quantise(network, SETTINGS.replace(hidden_range=stated))
    ranges = [float(each) for each in stated.split(",")]
    lstms = [shape.output for shape in found.shapes if shape.kind == "lstm"]
    assert [form.limit + form.step for form in lstms] == ranges
    assert (found.numerics.hidden_whole_bits, found.numerics.hidden_shifts) == (whole, shifts)
    manifest = Manifest.of(name, found, PARAMETERS)
    assert f"--hidden-range {stated}" in build_options(manifest)
    assert sum(each.use.startswith("hidden state h") for each in format_reports(manifest)) == len({*ranges})
    again = quantise(network, SETTINGS.replace(hidden_range=ranges if len(ranges) > 1 else ranges[0]))
    assert again.numerics == found.numerics
    options = build_options(Manifest.of(name, quantise(network, SETTINGS), PARAMETERS))
    assert "--hidden-range" not in " ".join(options)


def test_one_layer_is_at_most_eight_times_as_fine_as_another() -> None:
    found = quantise(stacked(3, 4, 4), SETTINGS.replace(hidden_range="1,0.01"))
    assert found.numerics.hidden_shifts == (0, 3)
    wide = quantise(stacked(3, 4, 4), SETTINGS.replace(hidden_range="1,0.01", gate_bits=16))
    assert wide.numerics.hidden_shifts == (0, 2), "a multiplier of 18 bits takes the shifted output gate"


@pytest.mark.parametrize("name", NETWORKS)
def test_no_cycle_more(name: str) -> None:
    network, stated, *_ = NETWORKS[name]
    narrow, plain = (
        Manifest.of(name, found, PARAMETERS)
        for found in (quantise(network, SETTINGS.replace(hidden_range=stated)), quantise(network, SETTINGS))
    )
    assert narrow.cycles == plain.cycles


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NETWORKS)
def test_golden_models_agree_where_h_saturates(name: str, seed: int) -> None:
    network, stated, *_ = NETWORKS[name]
    found = quantise(network, SETTINGS.replace(hidden_range=stated))
    golden = equals_second(found, random_codes(found, 12, 3, seed=seed))
    limits = [shape.output.maximum for shape in found.shapes if shape.kind == "lstm"]
    reached = [int(np.abs(part).max()) for part in golden.h]
    assert any(most == limit for most, limit in zip(reached, limits, strict=True))


@pytest.mark.rtl
@pytest.mark.parametrize("name", quick(NETWORKS, "two"))
def test_icarus_equals_golden(name: str, tmp_path: Path) -> None:
    network, stated, *_ = NETWORKS[name]
    found = quantise(network, SETTINGS.replace(hidden_range=stated, cell_range=4.0))
    unit = found.numerics.unit
    assert isinstance(unit, FusedUnit) and unit.products[-1].a_bits == 10 + unit.hidden_shifts[-1]
    check_device(make_case(3, found, PARAMETERS, steps=10), tmp_path, "icarus")


@pytest.mark.rtl
@pytest.mark.slow
def test_both_shifts_in_one_beat(tmp_path: Path) -> None:
    """c and h of three layers, with two shifts each that no layer shares."""
    stated = SETTINGS.replace(hidden_range="1,0.125,0.5", cell_range="8,8,1")
    found = quantise(stacked(3, 4, 4, 4), stated)
    assert found.numerics.unit.number_bits == 3
    check_device(make_case(4, found, PARAMETERS, steps=12), tmp_path, "verilator")


@pytest.mark.rtl
@pytest.mark.slow
def test_two_directions_share_the_wider_range(tmp_path: Path) -> None:
    found = quantise(both_then_dense(), SETTINGS.replace(hidden_range="0.25,0.5"))
    assert [shape.output.limit + shape.output.step for shape in found.shapes[:2]] == [0.5, 0.5]
    check_sequences(make_sequence_case(5, found, PARAMETERS.replace(max_steps=6), 6), tmp_path, "icarus")


def test_calibration_finds_the_small_h_and_the_error_falls() -> None:
    network, rng = small_last(), np.random.default_rng(2)
    x, other = rng.uniform(-1, 1, (2, 40, 20, network.inputs))
    errors = []
    for settings in (SETTINGS, SETTINGS.replace(hidden_range=1.0)):
        found = quantise(network, settings, x)
        errors.append(rms_error(network, found, other))
        if settings.hidden_range is None:
            assert np.abs(run_float(network, x).h[1]).max() < found.shapes[1].output.limit < 0.5
    assert errors[0] < 0.5 * errors[1], errors


@pytest.mark.usefixtures("without_verilog")
def test_the_report_says_what_was_tried_and_how_to_undo_it(tmp_path: Path) -> None:
    network = small_last()
    x = np.random.default_rng(2).uniform(-1, 1, (40, 20, network.inputs))
    numbers = {"weight_bits": 8, "data_bits": 8, "lanes": 8, "macs": 2}
    found = compile(network, calibration=x, folder=tmp_path / "found", **numbers).report()
    assert any("ranges of h layer by layer" in text for text in found.notes)
    (text,) = (text for text in found.assumptions if "h of lstm1 saturates at +-0." in text)
    assert text.endswith("state its range (`hidden_range=1`)")
    plain = compile(network, calibration=x, folder=tmp_path / "plain", hidden_range=1, **numbers).report()
    assert not any("h of lstm1 saturates" in text for text in plain.assumptions)
    assert found.accuracy.rms_error < 0.5 * plain.accuracy.rms_error


def test_accuracy_names_no_error_that_the_golden_model_has_not() -> None:
    network, stated, *_ = NETWORKS["two"]
    found = quantise(network, SETTINGS.replace(hidden_range=stated))
    x = np.random.default_rng(3).uniform(-1, 1, (20, 4, network.inputs))
    measured = measure_errors(found, Samples.of(x, network.inputs), network)
    assert measured.output.rms_error == pytest.approx(rms_error(network, found, x), rel=1e-3)
    counts = {(each.name, each.quantity): each.saturated for each in measured.saturations}
    assert counts["lstm1", "results"] > 0, "h of the second layer reaches beyond 1/4"


def test_training_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    module = torch.nn.LSTM(3, 6, num_layers=2)
    x = np.random.default_rng(7).uniform(-1, 1, (6, 4, 3))
    q = train.prepare(module, calibration=x, data_bits=8, hidden_range="1,0.25")
    assert check_trained(q, x).numerics.hidden_shifts == (0, 2)
    found = train.prepare(module, calibration=x, data_bits=8)
    kept, other = found.state_dict(), train.prepare(module, calibration=x, data_bits=8)
    other.load_state_dict(kept)
    assert other.quantised().numerics == found.quantised().numerics


@pytest.mark.parametrize(
    ("network", "settings", "hardware"),
    [
        (CELL_NETWORKS["projection_last"], SETTINGS, None),
        (stacked(3, 4), SETTINGS.replace(hidden_rounding="odd"), None),
        (stacked(3, 4), SETTINGS, TargetHardware(headroom=2)),
    ],
)
def test_a_range_that_the_hardware_cannot_have_is_refused(
    network: Network, settings: QuantizationSettings, hardware: TargetHardware | None
) -> None:
    with pytest.raises(
        ConfigurationError, match="`hidden_range` below 1 needs LSTM layers without.*leave it out"
    ):
        quantise(network, settings.replace(hidden_range=0.5), hardware=hardware)
    lstms = sum(isinstance(layer, Lstm) for layer in network.layers)
    quantise(network, settings.replace(hidden_range=[1.0] * lstms), hardware=hardware)


def test_a_range_below_the_states_in_which_sequences_begin_is_refused() -> None:
    network = stacked(3, 4)
    x, c = np.random.default_rng(1).uniform(-1, 1, (20, 2, 3)), np.zeros((2, 4))
    for begin, stated in ((0.4, 0.25), (3.0, 1.0)):
        state = ((np.full((2, 4), begin),), (c,))
        with pytest.raises(ConfigurationError, match=rf"must hold.* up to {begin:g}, but.*leave it out"):
            quantise(network, SETTINGS.replace(hidden_range=stated), x, state=state)
        held = quantise(network, SETTINGS, x, state=state).shapes[0].output
        assert held.limit + held.step > begin


def test_formats_finer_than_the_product_are_not_taken() -> None:
    narrow = SETTINGS.replace(data_bits=6, gate_bits=6, hidden_range=0.015)
    found = quantise(stacked(3, 4), narrow).shapes[0].output
    assert found.fraction == 10, "twice the gates' fraction bits"


def test_values_of_h_beyond_a_stated_range_are_told(tmp_path: Path) -> None:
    network = stacked(3, 5, 4)
    x = np.random.default_rng(2).uniform(-1, 1, (40, 4, 3))
    numbers = {"weight_bits": 8, "data_bits": 8, "lanes": 8, "macs": 2, "calibration": x}
    cut = compile(network, folder=tmp_path / "cut", hidden_range=[1, 0.25], **numbers).report()
    assert list(cut.accuracy.hidden_beyond) == ["lstm1"]
    (text,) = (text for text in cut.assumptions if "h of lstm1 reaches" in text)
    assert text.endswith("saturates at +-0.248: leave `hidden_range` out, or state a wider one")
    free = compile(network, folder=tmp_path / "free", **numbers).report()
    assert not free.accuracy.hidden_beyond and not any(
        "reaches" in each for each in free.assumptions if "h of" in each
    )
