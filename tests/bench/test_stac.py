"""STAC-ML Markets' networks in its terms: latencies are the schedule's, several instances take turns."""

import numpy as np
import pytest
from support.loadable_builds import stacked
from support.random_builds import make_case
from support.small_builds import NARROW
from typer.testing import CliRunner

from rtlstm.bench.shapes import SHAPES
from rtlstm.bench.stac import INSTANCES, count_instances, run_profile
from rtlstm.cli.main import app
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import offer_cycles


def test_an_instance_alone_is_a_step() -> None:
    case = make_case(1, quantise(stacked(5, 6, dense=((2, "tanh"),)), NARROW), Parameters(lanes=8, macs=2), 4)
    manifest, beats = case.manifest, 5
    (alone, *_) = (count_instances(manifest, count, 1, 1.0) for count in INSTANCES)
    assert alone.p50_us == alone.p99_us == alone.max_us == manifest.cycles.step_latency_cycles + beats - 1
    window = count_instances(manifest, 1, 7, 1.0)
    program, parameters = manifest.program, manifest.parameters
    silent = [True] * 6 + [False]
    assert window.max_us == offer_cycles(program, parameters, 7, suppress=silent)[-1]


def test_instances_wait_for_each_other() -> None:
    case = make_case(1, quantise(stacked(5, 6, dense=((2, "tanh"),)), NARROW), Parameters(lanes=8, macs=2), 4)
    for steps in (1, 5):
        largest = [count_instances(case.manifest, count, steps, 200.0).max_us for count in INSTANCES]
        assert largest == sorted(largest)
        # Eight take more than four times as long as one, and less than eight windows one after the other.
        assert 2 < largest[-1] / largest[0] < 16
        both = count_instances(case.manifest, 2, steps, 200.0)
        assert both.p50_us < both.p99_us == both.max_us


def test_error_and_clock(tmp_path) -> None:
    result = run_profile(["stac_a"], tmp_path, (), 200.0, None)
    (shape,) = result.shapes
    assert (shape.clock.source, shape.clock.mhz, shape.steps) == ("assumed", 200.0, SHAPES["stac_a"].steps)
    assert 0 < shape.rms_error < shape.largest_error < 0.1
    assert np.isfinite([row.max_us for row in shape.instances]).all() and len(shape.instances) == 8


def test_other_networks_are_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "--profile", "stac", "vad128"])
    assert done.exit_code == 2
    assert "must be one of stac_a, stac_b, stac_c, not 'vad128'" in " ".join(done.stderr.split())


@pytest.mark.parametrize("flag", ["--estimates", "--link"])
def test_one_measurement_at_a_time(flag: str) -> None:
    done = CliRunner().invoke(app, ["bench", "--profile", "stac", flag])
    assert done.exit_code == 2
    assert "--profile" in done.stderr
