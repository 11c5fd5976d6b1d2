"""Networks drawn over the whole space of attributes: golden model and RTL agree on every bit and cycle."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, reject, seed, settings
from hypothesis import strategies as st
from support.drawn_networks import DrawnBuild, drawn_builds, drawn_networks, mixed_builds, resident_builds
from support.loadable_builds import Build, build_for, make_device
from support.random_builds import make_case
from support.random_sequences import make_sequence_case
from support.resident_checks import check_steps
from support.sequence_checks import check_device as check_sequences
from support.step_checks import check_device, check_netlist

from rtlstm import ConfigurationError, Custom, Dense, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.numerics import QuantizedNetwork

pytestmark = pytest.mark.rtl

STEPS = 4
MAX_ABS = 16.0
"""Largest values of networks that are compared with the float model."""
TOLERANCE = 0.01
"""Largest error with 16-bit data, of outputs or of 1."""

# The same examples everywhere; none is made smaller, which would take a simulation for each attempt.
common = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)


def quantised(drawn: DrawnBuild) -> QuantizedNetwork:
    """The drawn network in integers; formats that cannot be built together are drawn again."""
    x = np.random.default_rng(drawn.seed).normal(size=(8, 2, drawn.network.inputs))
    try:
        return quantise(drawn.network, drawn.settings, x if drawn.calibrated else None)
    except ConfigurationError:
        reject()


def check(drawn: DrawnBuild, backend: str) -> None:
    """Build, and compare outputs, states and cycles: with and without stalls and outputs, from states."""
    network = quantised(drawn)
    seed = drawn.seed % 1000
    with TemporaryDirectory() as folder:
        if drawn.network.whole_sequences:
            parameters = drawn.parameters.replace(max_steps=STEPS)
            check_sequences(make_sequence_case(seed, network, parameters, STEPS), Path(folder), backend)
        else:
            case = make_case(seed, network, drawn.parameters, STEPS)
            check_device(case, Path(folder), backend, verify=False)


def check_near_float(network: Network, seed: int) -> None:
    """The golden model with wide formats is near the float model, with lengths."""
    rng = np.random.default_rng(seed)
    x, lengths = rng.uniform(-1, 1, (STEPS, 3, network.inputs)), np.array([STEPS, 1, 3])
    wide = QuantizationSettings(weight_bits=18, data_bits=16, gate_bits=18, cell_bits=20)
    try:
        result = quantise(network, wide, x, lengths)
    except ConfigurationError:
        reject()
    reference = run_float(network, x, lengths=lengths)
    # Functions without bounds make large values, and what rounds those is multiplied by large ones again.
    assume(max(reference.preactivation, reference.cell, *reference.layers) <= MAX_ABS)
    expected = reference.y
    found = Golden(result).run(result.numerics.quantise_input(x), lengths=lengths).y
    error = np.abs(result.shapes[-1].output.to_floats(found) - expected).max()
    assert error <= TOLERANCE * max(1.0, float(np.abs(expected).max()))


def continuous(network: Network) -> bool:
    """Whether no function jumps: where one does, rounding may decide on which side."""
    recurrent = (
        getattr(layer, name, None)
        for layer in network.pseudo_layers
        for name in ("gate", "candidate", "output_activation", "activation")
    )
    dense = (layer.function for layer in network.layers if isinstance(layer, Dense))
    cells = (
        step.function
        for layer in network.pseudo_layers
        if isinstance(layer, Custom)
        for step in layer.cell.steps
    )
    return not any(
        function is not None
        and (function.name == "heaviside" or (function.name == "thresholded_relu" and function.alpha))
        for function in (*recurrent, *dense, *cells)
    )


@pytest.mark.slow
@settings(common, max_examples=300)
@given(drawn_networks().filter(continuous), st.integers(0, 2**32 - 1))
def test_many_drawn_networks_are_near_the_float_model(network: Network, seed: int) -> None:
    check_near_float(network, seed)


@pytest.mark.slow
@settings(common, max_examples=100)
@given(drawn_builds(whole=False))
def test_many_drawn_networks(drawn: DrawnBuild) -> None:
    check(drawn, "icarus")


@pytest.mark.slow
@settings(common, max_examples=100)
@given(drawn_builds(whole=True))
def test_many_drawn_networks_of_whole_sequences(drawn: DrawnBuild) -> None:
    check(drawn, "icarus")


@settings(common, max_examples=1)
@given(mixed_builds(bits=4, sizes=2))
def test_the_simplest_mixed_network(drawn: DrawnBuild) -> None:
    """A norm, an own cell, an LSTM and a layer that reads several results."""
    check(drawn, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
@pytest.mark.parametrize("part", range(12))
def test_many_mixed_networks(part: int, backend: str) -> None:
    """Sixty networks in parts of some minutes each."""

    @seed(part)
    @settings(common, derandomize=False, max_examples=5)
    @given(mixed_builds())
    def compiled(drawn: DrawnBuild) -> None:
        check(drawn, backend)

    compiled()


def residents(drawn: DrawnBuild) -> list[Build]:
    """A loadable device of the drawn network, and two more for it: some first layers, and other weights."""
    rng, network = np.random.default_rng(drawn.seed), drawn.network
    mixed = [
        layer.replace(
            **{
                name: rng.permuted(value)
                for name in ("w_ih", "w_hh", "weight")
                if (value := getattr(layer, name, None)) is not None
            }
        )
        for layer in network.layers
    ]
    ends = [end for end in range(1, len(mixed)) if mixed[end - 1].outputs > 1]
    assume(network.outputs > 1 and ends)
    room = {"operations": 80, "weight_rows": 3000, "shift_rows": 600, "bias_rows": 600, "partial_rows": 400}
    room |= {"vector_words": 400, "cell_rows": 400, "networks": 3}
    try:
        device = make_device(network, drawn.parameters, drawn.settings, **room)
        first = Network(layers=network.layers[: int(rng.choice(ends))])
        return [device, build_for(first, device), build_for(Network(layers=tuple(mixed)), device)]
    except ConfigurationError:
        reject()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
def test_drawn_residents(backend: Literal["icarus", "verilator"]) -> None:
    """Streams of three networks in turn: own cells, recurrent layers, several reads, decisions."""

    @settings(common, max_examples=4)
    @given(resident_builds())
    def compiled(drawn: DrawnBuild) -> None:
        with TemporaryDirectory() as folder:
            rng = np.random.default_rng(drawn.seed)
            check_steps(residents(drawn), rng, drawn.seed % 1000, backend, Path(folder))

    compiled()


@pytest.mark.slow
@pytest.mark.tools
@settings(common, max_examples=2)
@given(mixed_builds(bits=6, sizes=3).filter(lambda drawn: not drawn.network.whole_sequences))
def test_netlists_of_mixed_networks(drawn: DrawnBuild) -> None:
    given = drawn.parameters
    names = ("lanes", "macs", "gate_units", "beat_in", "beat_out", "streams")
    names += ("tables", "table_memory", "decide")
    sizes = {name: getattr(given, name) for name in names}
    case = make_case(1, quantised(drawn), Parameters.for_family("ecp5", **sizes), STEPS)
    with TemporaryDirectory() as folder:
        check_netlist(case, Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_larger_drawn_networks(whole: bool) -> None:
    @settings(common, max_examples=10)
    @given(drawn_builds(whole=whole, bits=14, sizes=24))
    def compiled(drawn: DrawnBuild) -> None:
        check(drawn, "verilator")

    compiled()
