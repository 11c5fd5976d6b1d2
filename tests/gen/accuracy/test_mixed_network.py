"""A network of which parts are in float: with none the golden model's bits, with all the float reference."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.cell_networks import CELL_NETWORKS
from support.drawn_networks import DrawnBuild, drawn_builds

from rtlstm.gen.accuracy.measure import PARTS
from rtlstm.gen.accuracy.mixed import float_layers, layers_of_build, run_mixed
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.host.state import StateFormats
from rtlstm.sim.golden import Golden, GoldenResult
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork

STEPS, LENGTHS = 9, np.array([9, 4, 7])
NARROW = QuantizationSettings(weight_bits=5, data_bits=7, gate_bits=8, cell_bits=10)

common = settings(
    max_examples=40, suppress_health_check=list(HealthCheck), deadline=None, derandomize=True, database=None
)


def inputs(network: Network, seed: int = 0) -> np.ndarray:
    """Inputs some of which saturate; zeros past a sequence's length."""
    x = np.random.default_rng(seed).normal(size=(STEPS, len(LENGTHS), network.inputs)) * 3
    return np.where(np.arange(STEPS)[:, None, None] < LENGTHS[:, None], x, 0.0)


def golden(quantised: QuantizedNetwork, samples: Samples) -> tuple[np.ndarray, GoldenResult]:
    """Real outputs of the golden model, and what it found."""
    codes = quantised.numerics.quantise_input(samples.x)
    found = Golden(quantised).run(codes, samples.integer_state(quantised), LENGTHS)
    # Parts that end a network have one format.
    return quantised.shapes[-1].output.to_floats(found.y), found


def check(network: Network, quantised: QuantizedNetwork, x: np.ndarray) -> None:
    zeros = Samples.of(x, network.inputs, LENGTHS)
    for samples in (zeros, zeros.begin_in(quantised, states(quantised)) if network.pseudo_layers else zeros):
        check_from(network, quantised, samples)


def states(quantised: QuantizedNetwork) -> list[list[np.ndarray]]:
    """States ``(N, units)`` of each layer; some of c may saturate."""
    rng, formats = np.random.default_rng(9), StateFormats(quantised.shapes, quantised.numerics)
    sizes = formats.sizes, formats.lstm_sizes
    return [
        [scale * rng.uniform(-1, 1, (len(LENGTHS), size)) for size in part]
        for scale, part in zip((0.9, 2.0), sizes, strict=True)
    ]


def check_from(network: Network, quantised: QuantizedNetwork, samples: Samples) -> None:
    y, found = golden(quantised, samples)
    model = float_layers(network, quantised)
    for floats in (model, layers_of_build(quantised)):
        run = run_mixed(quantised, floats, (), samples)
        np.testing.assert_array_equal(run.y, y)
        assert sum(int(layer.state_saturations.sum()) for layer in run.layers) == found.cell_saturations
    exact = run_float(network, samples.x, samples.state, LENGTHS)
    run = run_mixed(quantised, model, PARTS, samples)
    np.testing.assert_allclose(run.y, exact.y, rtol=1e-9, atol=1e-9)
    assert not any(layer.row_saturations.any() or layer.result_saturations.any() for layer in run.layers)


@pytest.mark.parametrize("name", CELL_NETWORKS)
def test_kinds_of_cells(name: str) -> None:
    network = CELL_NETWORKS[name]
    check(network, quantise(network, NARROW), inputs(network))


@common
@given(drawn_builds(whole=False))
def test_drawn_networks(drawn: DrawnBuild) -> None:
    check_drawn(drawn)


@pytest.mark.slow
@common
@given(drawn_builds(whole=True))
def test_drawn_networks_of_whole_sequences(drawn: DrawnBuild) -> None:
    check_drawn(drawn)


def check_drawn(drawn: DrawnBuild) -> None:
    x = inputs(drawn.network, drawn.seed)
    check(drawn.network, drawn.integers(x), x)
