"""Builds that skip words of zeros: every bit is golden's, and every cycle is predicted."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.loadable_builds import stacked
from support.pruned_builds import everything, prune, pruned_case, skipping, with_kept
from support.quick import quick
from support.random_builds import make_case
from support.random_sequences import make_sequence_case, random_lstm
from support.sequence_checks import check_device as check_sequences
from support.small_builds import NARROW
from support.step_checks import check_device

from rtlstm import Accelerator, Bidirectional, ConfigurationError, Dense, ImageError, Lstm, Network, compile
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.family import Pipeline
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.rtl

BUILDS = {
    "streams, beats": (1, (7, 6), (5,), Parameters(lanes=8, macs=2, streams=2, beat_in=2)),
    "two layers": (2, (5, 6, 4), (3,), Parameters(lanes=4, macs=2, streams=3)),
    "gate units": (
        3,
        (9, 8),
        (9, 2),
        Parameters(lanes=16, macs=2, gate_units=2, beat_in=2, beat_out=2, streams=2),
    ),
    "registered": (
        4,
        (9, 7),
        (4,),
        Parameters(lanes=4, macs=3, beat_in=3, pipeline=Pipeline(accept=1, operand=4)),
    ),
}


@pytest.mark.parametrize("name", quick(BUILDS, "gate units"))
def test_pruned_network(name: str, tmp_path: Path) -> None:
    """LSTM layers and a head, of several row groups; with stalls, suppressed outputs and states written."""
    seed, sizes, head, parameters = BUILDS[name]
    network = stacked(*sizes, dense=tuple((outputs, "relu") for outputs in head))
    case = pruned_case(seed, quantise(network, NARROW), parameters)
    products = {key for key, groups in case.manifest.program.kept.items() if len(groups) > 1}
    assert {(0, True), (0, False)} <= products
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
def test_zeros_in_the_input_alone(tmp_path: Path) -> None:
    """The first group waits for the last word of its input even if no weight of it counts."""
    network = quantise(stacked(9, 3, dense=((2, "identity"),)), NARROW)
    layer = network.layers[0]
    layer.w_ih[:, 2:] = 0
    case = make_case(6, network, Parameters(lanes=4, macs=2, streams=2), 8)
    case = dataclasses.replace(case, manifest=skipping(network, case.manifest))
    assert case.manifest.program.body_op(0).group_words == ((0, 4), (0,), (0,))
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
def test_a_table_of_all_words(tmp_path: Path) -> None:
    """The same cycles as without the table."""
    network = quantise(stacked(5, 6, dense=((3, "tanh"),)), NARROW)
    case = make_case(7, network, Parameters(lanes=8, macs=2, streams=2), 8)
    full = with_kept(case.manifest, everything(case.manifest))
    assert full.program.kept and full.cycles == case.manifest.cycles
    check_device(dataclasses.replace(case, manifest=full), tmp_path, "icarus")


@pytest.mark.slow
def test_whole_sequences(tmp_path: Path) -> None:
    """Both directions of a layer, a layer behind them and a head."""
    rng = np.random.default_rng(8)
    both = Bidirectional(forward=random_lstm(rng, 5, 4), backward=random_lstm(rng, 5, 4, reverse=True))
    head = Dense(weight=rng.normal(size=(3, 6)), bias=rng.normal(size=3))
    network = quantise(Network(layers=(both, random_lstm(rng, 8, 6), head)), NARROW)
    parameters = Parameters(lanes=4, macs=2, streams=2, max_steps=4)
    case = make_sequence_case(8, prune(rng, network, parameters), parameters, 4)
    manifest = skipping(case.network, case.manifest)
    assert {index for index, _ in manifest.program.kept} >= {0, 1, 2}
    assert manifest.cycles.step_interval_cycles < case.manifest.cycles.step_interval_cycles
    check_sequences(dataclasses.replace(case, manifest=manifest), tmp_path, "icarus")


def pruned_model(scale: float = 1.0, rest: float = 0.0) -> Network:
    """A model half of whose inputs, and most of whose h, count for some units alone; others have ``rest``."""
    rng = np.random.default_rng(9)
    w_ih, w_hh = rng.normal(size=(4, 6, 4)), rng.normal(size=(4, 6, 6))
    w_ih[:, 2:, 2:] = w_hh[:, :4, 2:] = rest
    lstm = Lstm(
        name="l", w_ih=scale * w_ih.reshape(24, 4), w_hh=scale * w_hh.reshape(24, 6), bias=np.zeros(24)
    )
    return Network(layers=(lstm,))


SIZES = {"lanes": 8, "macs": 2, "weight_bits": 8, "data_bits": 8}


@pytest.mark.slow
def test_the_option(tmp_path: Path) -> None:
    """A build from end to end: what it says, what it takes later, and what it refuses."""
    plain = compile(pruned_model(), folder=tmp_path / "plain", **SIZES)
    assert not plain.manifest.program.kept
    build = compile(pruned_model(), folder=tmp_path / "b", skip_zeros=True, **SIZES)
    assert set(build.report().notes) - set(plain.report().notes) == {
        "5 of 15 words of the weights are skipped, each zero in a group of 8 rows x 2 columns: weights that "
        "are loaded later must be zero there, too"
    }
    assert build.manifest.program.weight_rows == 10
    x = np.random.default_rng(1).normal(size=(6, 4))
    np.testing.assert_array_equal(build.run(x)[0], plain.run(x)[0])
    compared = build.simulate(x, simulator="icarus", verify=False)
    assert compared.passed and compared.cycles_predicted == compared.cycles_measured
    again = compile(pruned_model(0.98), folder=tmp_path / "again", device=build)
    assert again.manifest.build_hash == build.manifest.build_hash
    with Accelerator.open(build.folder) as accelerator:
        accelerator.load_weights(again.folder / "weights.bin")
        np.testing.assert_array_equal(accelerator.run(x)[0], again.run(x)[0])
    with pytest.raises(ImageError, match="48 of layer 'l' for h are not, the first of them of row group 0"):
        compile(pruned_model(0.9, rest=0.05), folder=tmp_path / "full", device=build)


@pytest.mark.slow
def test_where_nothing_is_zero(tmp_path: Path) -> None:
    full = Network(layers=(Lstm(w_ih=np.ones((8, 2)), w_hh=np.ones((8, 2)), bias=np.zeros(8)),))
    build = compile(full, folder=tmp_path / "b", skip_zeros=True, lanes=4, macs=1)
    assert build.report().notes[-1].startswith("no word of the weights is skipped: each has a weight in a gr")
    assert compile(full, folder=tmp_path / "b", lanes=4, macs=1).manifest == build.manifest


def test_what_it_does_not_go_with(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot skip words.*leave out `skip_zeros` or `capacities`"):
        compile(pruned_model(), folder=tmp_path / "b", skip_zeros=True, capacities={}, **SIZES)
    with pytest.raises(
        ConfigurationError, match="`fit` does not count on skipped words when it chooses an array"
    ):
        compile(pruned_model(), folder=tmp_path / "b", skip_zeros=True, fit="lfe5u-25f")
    assert not (tmp_path / "b").exists()
