"""The driver of builds that take whole sequences, on the golden model."""

from pathlib import Path

import numpy as np
import pytest
from support.no_logic import no_logic
from support.random_sequences import random_dense, random_lstm

from rtlstm import Accelerator, Bidirectional, BuildReport, ConfigurationError, InputError, Manifest, Network
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.builds.generate import generate_build
from rtlstm.sim.reference import run_float
from rtlstm.spec.parameters import Parameters

STEPS = 6


@pytest.fixture(scope="module")
def network() -> Network:
    rng = np.random.default_rng(1)
    first = Bidirectional(forward=random_lstm(rng, 3, 5), backward=random_lstm(rng, 3, 5, reverse=True))
    second = Bidirectional(forward=random_lstm(rng, 10, 5), backward=random_lstm(rng, 10, 5, reverse=True))
    return Network(layers=(first, second, random_dense(rng, 10, 4)))


@pytest.fixture(scope="module")
def build(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build") / "both"
    x = np.random.default_rng(2).uniform(-1, 1, (STEPS, 3, 3))
    parameters = Parameters(lanes=8, macs=4, streams=2, max_steps=STEPS)
    with no_logic():
        generate_build(network, folder, name="both", parameters=parameters, calibration=x)
    return folder


def test_batches_are_like_float(network: Network, build: Path) -> None:
    """Unsorted lengths, initial states of every direction; padding may hold anything."""
    rng = np.random.default_rng(3)
    x, lengths = rng.uniform(-1, 1, (STEPS, 5, 3)), np.array([2, 6, 1, 4, 6])
    h, c = rng.uniform(-0.9, 0.9, (2, 4, 5, 5))
    padded = np.where((np.arange(STEPS)[:, None] < lengths)[..., None], x, np.nan)
    with Accelerator.open(build) as accelerator:
        y, (h_n, c_n) = accelerator.run(padded, lengths, (h, c))
        last, _ = accelerator.run(padded, lengths, (h, c), outputs="last")
        none, state = accelerator.run(padded, lengths, (h, c), outputs="none")
    expected = run_float(network, x, (list(h), list(c)), lengths)
    assert y.shape == (STEPS, 5, 4) and h_n.shape == c_n.shape == (4, 5, 5)
    np.testing.assert_allclose(y, expected.y, atol=5e-3)
    np.testing.assert_allclose(h_n, np.stack(expected.h), atol=5e-3)
    np.testing.assert_allclose(c_n, np.stack(expected.c), atol=5e-3)
    assert np.array_equal(last, y[lengths - 1, np.arange(5)])
    assert none.shape == (0, 5, 4) and np.array_equal(state[0], h_n)


def test_cycles_that_lengths_save(build: Path) -> None:
    manifest = Manifest.load(build)
    with Accelerator.open(build) as accelerator:
        assert accelerator.cycles_saved == 0
        accelerator.run(np.zeros((6, 3, 3)), [6, 6, 6])
        assert accelerator.cycles_saved == 0
        accelerator.run(np.zeros((6, 2, 3)), [2, 6])
        long, short = (manifest.schedule.cycles([length])[0].done for length in (6, 2))
        assert accelerator.cycles_saved == long - short > 0


def test_no_single_steps(build: Path) -> None:
    with Accelerator.open(build) as accelerator, pytest.raises(ConfigurationError, match="reverse direction"):
        accelerator.stream()


def test_no_longer_sequences(build: Path) -> None:
    with (
        Accelerator.open(build) as accelerator,
        pytest.raises(InputError, match="at most 6 steps, not 7; generate"),
    ):
        accelerator.run(np.zeros((STEPS + 1, 3)))


def test_report_says_what_the_latency_is_of(build: Path) -> None:
    words = "its step latency is that of the longest one, of 6 steps"
    assert sum(words in text for text in BuildReport.load(build).assumptions) == 1


def test_builds_need_the_longest_sequence(network: Network, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="max_steps"):
        generate_build(network, tmp_path / "none", parameters=Parameters())
    with pytest.raises(ConfigurationError, match="state the longest one, with `max_steps`"):
        generate_build(network, tmp_path / "fit", fit=FitRequest(chosen=find_device("lfe5u-85f-8")))
