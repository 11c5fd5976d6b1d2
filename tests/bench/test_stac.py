"""STAC-ML Markets' networks in its terms: latencies are the schedule's, several instances take turns."""

import numpy as np
import pytest
from support.loadable_builds import stacked
from support.random_builds import make_case
from support.small_builds import NARROW
from typer.testing import CliRunner

from rtlstm.bench.hardware import INSTANCES, count_instances, run_profile
from rtlstm.bench.shapes import SHAPES
from rtlstm.cli.main import app
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

BEATS = 5
"""Of a step's input."""


def small(*dense: tuple[int, str]) -> Manifest:
    network = quantise(stacked(BEATS, 6, dense=dense), NARROW)
    return make_case(1, network, Parameters(lanes=8, macs=2), 4).manifest


def test_an_instance_alone_is_a_step_or_a_window() -> None:
    windows = []
    for manifest in (small(), small((2, "tanh"))):
        cycles = manifest.cycles
        alone = count_instances(manifest, 1, 1, 1.0)
        assert alone.p50_us == alone.p99_us == alone.max_us == cycles.step_latency_cycles + BEATS - 1
        windows.append((count_instances(manifest, 1, 7, 1.0).max_us, cycles))
    (window, cycles), (with_head, of_head) = windows
    assert window == cycles.first_step_latency_cycles + BEATS - 1 + 6 * cycles.step_interval_cycles
    # Only the last step's output is wanted, so the head is computed once.
    assert with_head - window == of_head.step_latency_cycles - cycles.step_latency_cycles


def test_instances_wait_for_each_other() -> None:
    manifest, counts = small((2, "tanh")), np.array(INSTANCES)
    largest = {
        steps: np.array([count_instances(manifest, count, steps, 1.0).max_us for count in INSTANCES])
        for steps in (1, 5)
    }
    np.testing.assert_array_equal(
        largest[1], largest[1][0] + (counts - 1) * manifest.cycles.step_interval_cycles
    )
    # Only a stream's own next step is begun early: windows in turns take longer than one after the other.
    together = largest[5] / largest[5][0]
    assert (together[1:] > counts[1:]).all() and (together[1:] < 1.25 * counts[1:]).all()
    for steps in (1, 5):
        both = count_instances(manifest, 2, steps, 200.0)
        assert both.p50_us < both.p99_us == both.max_us


def test_error_and_clock(tmp_path) -> None:
    (shape,) = run_profile(["stac_a"], tmp_path, (), 200.0, None).shapes
    assert (shape.clock.source, shape.clock.mhz, shape.steps) == ("assumed", 200.0, SHAPES["stac_a"].steps)
    assert 0 < shape.rms_error < shape.largest_error < 0.1
    assert np.isfinite([row.max_us for row in shape.instances]).all() and len(shape.instances) == 8


def test_other_networks_are_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "--profile", "stac", "vad128"])
    assert done.exit_code == 2
    assert "must be one of stac_a, stac_b, stac_c, not 'vad128'" in " ".join(done.stderr.split())


@pytest.mark.parametrize("flag", ["--estimates", "--link", "--quick", "--no-rtl"])
def test_one_measurement_at_a_time(flag: str) -> None:
    done = CliRunner().invoke(app, ["bench", "--profile", "stac", flag])
    assert done.exit_code == 2 and "--profile" in done.stderr and flag in done.stderr
