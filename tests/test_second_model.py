"""The golden model against a second one, written from docs/numerics.md in Python integers."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from support.cell_networks import CELL_NETWORKS
from support.drawn_networks import DrawnBuild, drawn_builds, mixed_builds
from support.golden_runs import equals_second, random_codes
from support.quick import quick
from support.random_builds import make_case, random_case
from support.random_sequences import random_sequence_case

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.network import Lstm, Network
from rtlstm.spec.parameters import Parameters

SIZES = (1, 2, 3, 5, 7, 13)
common = hypothesis_settings(
    max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("seed", quick(range(1000, 1040), *range(1000, 1020)))
def test_lstm_and_dense_layers(seed: int) -> None:
    case = random_case(seed, sizes=SIZES, steps=12)
    for stream in range(case.manifest.parameters.streams):
        state = tuple([part[stream : stream + 1] for part in parts] for parts in case.state)
        equals_second(case.network, case.x[case.streams == stream][:, None], state)


@pytest.mark.parametrize("bits", quick([5, 8, 14], 5))
@pytest.mark.parametrize("name", sorted(CELL_NETWORKS))
def test_cells(name: str, bits: int) -> None:
    """GRUs, RNNs, LSTMs with every option, own cells, skips; with saturating states."""
    formats = {"weight_bits": bits, "data_bits": bits, "gate_bits": max(6, bits), "cell_bits": bits + 4}
    settings = QuantizationSettings(**formats, cell_range=1.0)
    network = quantise(CELL_NETWORKS[name], settings)
    case = make_case(0, network, Parameters(lanes=4, macs=1), 1)
    x = random_codes(network, 12, 2, seed=bits)
    equals_second(network, x, tuple([part[:1].repeat(2, axis=0) for part in parts] for parts in case.state))


@pytest.mark.parametrize("seed", range(12))
def test_whole_sequences(seed: int) -> None:
    case = random_sequence_case(seed, SIZES[:5])
    equals_second(case.network, case.x, case.state, case.lengths)


@common
@given(drawn_builds(whole=False))
def test_drawn_networks(drawn: DrawnBuild) -> None:
    check_drawn(drawn)


@common
@given(drawn_builds(whole=True))
def test_drawn_networks_of_whole_sequences(drawn: DrawnBuild) -> None:
    check_drawn(drawn)


@common
@given(mixed_builds())
def test_mixed_networks(drawn: DrawnBuild) -> None:
    """With norms, also inside LSTMs, and products."""
    check_drawn(drawn)


def check_drawn(drawn: DrawnBuild) -> None:
    network = drawn.integers(np.random.default_rng(drawn.seed).normal(size=(8, 2, drawn.network.inputs)))
    equals_second(network, random_codes(network, 5, 2, seed=drawn.seed), lengths=np.array([5, 3]))


@pytest.mark.parametrize("data_bits", range(11, 17))
def test_sums_on_both_sides_of_single_precision(data_bits: int) -> None:
    """The widest sums cross 2**24, where the golden model's numbers become double ones."""
    units, inputs = 3, 16
    rng = np.random.default_rng(data_bits)
    lstm = Lstm(
        w_ih=rng.choice([-0.999, 0.998], (4 * units, inputs)),
        w_hh=rng.choice([-0.997, 0.996], (4 * units, units)),
        bias=rng.normal(size=4 * units),
    )
    formats = QuantizationSettings(weight_bits=9, data_bits=data_bits, input_range=1.0)
    network = quantise(Network(layers=(lstm,)), formats)
    lowest, highest = network.numerics.input.lowest, network.numerics.input.maximum
    x = np.where(network.layers[0].w_ih[rng.integers(0, 4 * units, 20)] < 0, lowest, highest)
    x[::2] = rng.integers(lowest, highest, x[::2].shape, endpoint=True)
    equals_second(network, x[:, None])
