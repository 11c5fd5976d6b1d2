"""Lanes that keep sums of row groups: a layer multiplies what is there of its vector, for all groups."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.estimate_checks import check_synthesis
from support.loadable_builds import NARROW, build_for, make_device, stacked, switch
from support.random_builds import Case, make_case
from support.random_sequences import random_lstm
from support.step_checks import check_device, check_netlist

from rtlstm import Bidirectional, ConfigurationError, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.packing import pack, unpack

pytestmark = pytest.mark.rtl

DIRECT = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=7, cell_bits=10, tables="direct")
STACK = stacked(11, 10, 9, dense=((17, "relu"), (2, "identity")))
CASES: dict[str, Parameters] = {
    "short pipeline": Parameters(lanes=8, macs=3, lane_sums=8, streams=2),
    "two beats a group": Parameters.for_family(
        "ecp5", 4, tables="direct", lanes=8, macs=2, lut_macs=1, lane_sums=5, streams=3
    ),
    "one beat a group": Parameters.for_family(
        "ecp5", 4, tables="direct", lanes=8, macs=2, gate_units=2, beat_in=2, beat_out=2, lane_sums=8
    ),
    "words of one value": Parameters.for_family("xilinx", lanes=8, macs=1, lane_sums=16, streams=2),
}


def case_of(name: str, steps: int = 8) -> Case:
    settings = DIRECT if CASES[name].tables == "direct" else NARROW
    return make_case(3, quantise(STACK, settings), CASES[name], steps)


def test_bits_and_cycles(tmp_path: Path) -> None:
    case = make_case(2, quantise(stacked(5, 4, 2), NARROW), Parameters(lanes=4, macs=2, lane_sums=4), steps=4)
    assert [op.sections for op in case.manifest.program.ops] == [(), (), (1, 2), (), (1, 2), (), ()]
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["icarus", "verilator"])
def test_more_bits_and_cycles(name: str, backend: str, tmp_path: Path) -> None:
    case = case_of(name)
    assert any(op.sections for op in case.manifest.program.ops)
    check_device(case, tmp_path, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELL_NETWORKS)
def test_other_cells(name: str, tmp_path: Path) -> None:
    network = quantise(CELL_NETWORKS[name], NARROW)
    parameters = Parameters.for_family("xilinx", lanes=4, macs=1, lane_sums=8, streams=2)
    check_device(make_case(2, network, parameters, steps=6), tmp_path, "icarus")


@pytest.mark.slow
def test_loadable_program(tmp_path: Path) -> None:
    """Programs of other sections, and of none."""
    parameters = Parameters(lanes=8, macs=2, lane_sums=6, streams=2)
    device = make_device(stacked(3, 5, dense=((9, "sigmoid"), (2, "relu"))), parameters)
    others = [build_for(stacked(*sizes, seed=1), device) for sizes in ((10, 9, 8), (7, 12), (3, 2))]
    assert [any(op.sections for op in other.manifest.program.ops) for other in others] == [True, True, False]
    switch(device, others, "icarus", tmp_path)


@pytest.mark.slow
@pytest.mark.tools
def test_netlist_equals_golden(tmp_path: Path) -> None:
    network = quantise(stacked(5, 9, dense=((3, "tanh"),)), DIRECT)
    check_netlist(make_case(3, network, CASES["two beats a group"], steps=3), tmp_path)


@pytest.mark.slow
@pytest.mark.tools
def test_estimate(tmp_path: Path) -> None:
    settings = QuantizationSettings(weight_bits=4, data_bits=8)
    network = quantise(stacked(16, 20, 20, dense=((1, "identity"),)), settings)
    parameters = Parameters.for_family("ecp5", 4, lanes=16, macs=4, lut_macs=1, lane_sums=16)
    check_synthesis(Manifest.of("made", network, parameters), "lfe5u-25f-8", tmp_path)


def test_weights_of_sections_are_read_as_packed() -> None:
    case = case_of("short pipeline")
    again = unpack(pack(case.network, case.manifest), case.manifest)
    for packed, read in zip(case.network.layers, again.layers, strict=True):
        for name, value in packed.__dict__.items():
            np.testing.assert_array_equal(getattr(read, name), value)


@pytest.mark.parametrize(("beat_in", "most"), [(1, 102), (5, 107), (25, 116)])
def test_a_full_array_waits_less(beat_in: int, most: int) -> None:
    """Two layers of 100 units on 40 x 25 took 132 cycles; with single values, most of the input is early."""
    network = quantise(
        stacked(100, 100, 100, dense=((1, "identity"),)), DIRECT.replace(data_bits=8, gate_bits=9)
    )
    sizes = {"lanes": 40, "macs": 25, "gate_units": 5, "lut_macs": 17, "beat_in": beat_in, "beat_out": 5}
    found = []
    for sums in (None, 16):
        parameters = Parameters.for_family("ecp5", 4, tables="direct", lane_sums=sums, **sizes)
        found.append(Manifest.of("full", network, parameters).cycles)
    latencies = [cycles.step_latency_cycles for cycles in found]
    assert latencies == [132, most]
    assert found[0].step_interval_cycles == found[1].step_interval_cycles


def test_skipped_words_have_no_sections() -> None:
    case = case_of("short pipeline")
    kept = {(1, False): ((0, 1, 2, 3),) * 5}
    with pytest.raises(ConfigurationError, match="leave out `lane_sums` or `skip_zeros`"):
        Manifest.of("made", case.network, CASES["short pipeline"], kept=kept)


def test_whole_sequences_have_no_sections() -> None:
    rng = np.random.default_rng(1)
    both = Bidirectional(forward=random_lstm(rng, 3, 4), backward=random_lstm(rng, 3, 4, reverse=True))
    network = quantise(Network(layers=(both,)), NARROW)
    parameters = Parameters(lanes=4, macs=2, max_steps=3, lane_sums=4)
    with pytest.raises(ConfigurationError, match="`lane_sums` needs a core that takes steps"):
        Manifest.of("whole", network, parameters)
