"""Networks with reverse directions: golden model, Icarus and Verilator agree on every bit and every cycle."""

from pathlib import Path

import numpy as np
import pytest
from support.quick import quick
from support.random_sequences import (
    make_sequence_case,
    random_gru,
    random_lstm,
    random_projection,
    random_sequence_case,
)
from support.sequence_checks import check_cycles, check_device, record

from rtlstm import Accelerator, Bidirectional, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.backends import SimulatedDevice
from rtlstm.sim.simulated_ports import random_input
from rtlstm.spec.family import FAMILIES

pytestmark = pytest.mark.rtl

TINY = (1, 2, 3, 4)
SMALL = (1, 2, 3, 5, 7, 11, 13)
LARGE = (17, 23, 32, 41, 64)
FAST = (301,)


def test_random_input_is_as_long_as_the_longest_sequence() -> None:
    manifest = random_sequence_case(FAST[0], TINY, steps=4).manifest
    assert len(random_input(manifest, None, 0)) == manifest.parameters.max_steps
    assert len(random_input(manifest, 3, 0)) == 3


@pytest.mark.parametrize("seed", FAST)
def test_icarus_equals_golden(seed: int, tmp_path: Path) -> None:
    check_device(random_sequence_case(seed, TINY, steps=4), tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [302, 303, *range(1, 41)])
def test_sweep_of_icarus(seed: int, tmp_path: Path) -> None:
    check_device(random_sequence_case(seed, SMALL), tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(101, 113))
def test_sweep_of_verilator(seed: int, tmp_path: Path) -> None:
    check_device(random_sequence_case(seed, LARGE, steps=20), tmp_path, "verilator")


@pytest.mark.slow
def test_steps_that_wait_for_the_drain_of_the_other_direction(tmp_path: Path) -> None:
    """The last word of a step's first operation waits for eight items; the step has begun by then."""
    rng = np.random.default_rng(4)
    layer = Bidirectional(forward=random_lstm(rng, 5, 8), backward=random_lstm(rng, 5, 8, reverse=True))
    settings = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)
    network = quantise(Network(layers=(layer,)), settings)
    case = make_sequence_case(4, network, Parameters(lanes=32, macs=4, max_steps=4), 4)
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
def test_outputs_of_both_directions_with_gate_units(tmp_path: Path) -> None:
    """The last layer has two directions of odd sizes, beside each other in items of two values."""
    rng = np.random.default_rng(2)
    first = Bidirectional(forward=random_lstm(rng, 3, 3), backward=random_lstm(rng, 3, 4, reverse=True))
    last = Bidirectional(forward=random_lstm(rng, 7, 5), backward=random_lstm(rng, 7, 3, reverse=True))
    settings = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=6, cell_bits=8)
    network = quantise(Network(layers=(first, last)), settings)
    sizes = {"lanes": 16, "macs": 4, "gate_units": 2, "beat_in": 2, "beat_out": 4, "streams": 2}
    parameters = Parameters(max_steps=4, pipeline=FAMILIES.named("ecp5").pipeline, **sizes)
    case = make_sequence_case(3, network, parameters, 4)
    plan = case.manifest.sequence
    assert plan is not None and plan.output_positions == (0, 1, 2, 3, 4, 6, 7, 8)
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("merge", ["concat", "product"])
def test_reversed_outputs_and_products(merge: str, tmp_path: Path) -> None:
    """A direction with reversed output beside one without, then a reversed layer that both read."""
    rng = np.random.default_rng(4)
    both = Bidirectional(
        forward=random_lstm(rng, 2, 3),
        backward=random_lstm(rng, 2, 3, reverse=True).replace(reversed_output=True),
        merge=merge,
    )
    reversed_output = random_lstm(rng, both.outputs, 2, reverse=True).replace(reversed_output=True)
    back, onward = random_lstm(rng, 2, 2, reverse=True), random_lstm(rng, 2, 2)
    settings = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=6, cell_bits=8)
    network = quantise(Network(layers=(both, reversed_output, back, onward)), settings)
    assert [
        [part.reversed_output for part in parts] for parts in network.passes if parts[-1].reversed_output
    ] == [[False, True], [True]]
    parameters = Parameters(lanes=4, macs=2, max_steps=4, streams=2, pipeline=FAMILIES.named("ecp5").pipeline)
    check_device(make_sequence_case(4, network, parameters, 4), tmp_path, "icarus")


@pytest.mark.parametrize("kind", quick(["gru", "projection"], "gru"))
def test_cells_of_other_kinds(kind: str, tmp_path: Path) -> None:
    """Both forms of a GRU, one in each direction; projections in both."""
    rng = np.random.default_rng(1)
    if kind == "gru":
        forward, backward = random_gru(rng, 2, 3, reset_after=True), random_gru(rng, 2, 2, reverse=True)
    else:
        forward, backward = (random_projection(rng, 2, 3, 2, reverse) for reverse in (False, True))
    settings = QuantizationSettings(weight_bits=8, data_bits=6, gate_bits=6, cell_bits=12)
    x, lengths = rng.uniform(-1, 1, (4, 3, 2)), np.array([2, 4, 1])
    network = quantise(Network(layers=(Bidirectional(forward=forward, backward=backward),)), settings, x)
    case = make_sequence_case(1, network, Parameters(lanes=4, macs=4, max_steps=4, streams=2), 4)
    case.write(tmp_path)
    with Accelerator.open(tmp_path, verify=False) as golden:
        expected, (expected_h, expected_c) = golden.run(x, lengths)
    with Accelerator.open(tmp_path, backend="icarus", verify=False) as accelerator:
        device = accelerator.device.transport
        assert isinstance(device, SimulatedDevice)
        recorder = record(accelerator, device)
        y, (h, c) = accelerator.run(x, lengths)
    np.testing.assert_array_equal(y, expected)
    for got, want in zip((*h, *c), (*expected_h, *expected_c), strict=True):
        np.testing.assert_array_equal(got, want)
    check_cycles(case, device, recorder)
