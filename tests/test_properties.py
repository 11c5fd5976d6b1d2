"""Networks drawn over the whole space of attributes: golden model and RTL agree on every bit and cycle."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from drawn_networks import DrawnBuild, drawn_builds
from hypothesis import HealthCheck, Phase, given, reject, settings
from random_builds import make_case
from random_sequences import make_sequence_case
from test_bit_exact import check_device
from test_sequences import check_device as check_sequences

from rtlstm.gen.quantise import quantise
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.numerics import QuantizedNetwork

STEPS = 4

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
    """Build, and compare outputs, states and cycles: with stalls and without, quiet and not, from states."""
    network = quantised(drawn)
    seed = drawn.seed % 1000
    with TemporaryDirectory() as folder:
        if drawn.network.whole_sequences:
            parameters = drawn.parameters.replace(max_steps=STEPS)
            check_sequences(make_sequence_case(seed, network, parameters, STEPS), Path(folder), backend)
        else:
            case = make_case(seed, network, drawn.parameters, STEPS)
            check_device(case, Path(folder), backend, verify=False)


@settings(common, max_examples=3)
@given(drawn_builds(whole=False, bits=6))
def test_drawn_networks(drawn: DrawnBuild) -> None:
    check(drawn, "icarus")


@settings(common, max_examples=3)
@given(drawn_builds(whole=True, bits=6))
def test_drawn_networks_of_whole_sequences(drawn: DrawnBuild) -> None:
    check(drawn, "icarus")


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


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_larger_drawn_networks(whole: bool) -> None:
    @settings(common, max_examples=10)
    @given(drawn_builds(whole=whole, bits=14, sizes=24))
    def compiled(drawn: DrawnBuild) -> None:
        check(drawn, "verilator")

    compiled()
