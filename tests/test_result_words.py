"""More gate units than a word has values: a beat's results fill several words. Bits, cycles, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.loadable_builds import NARROW, build_for, check, make_device, stacked
from support.random_builds import Case, make_case
from support.random_sequences import random_lstm
from support.step_checks import check_device, check_netlist

from rtlstm import Accelerator, Bidirectional, ConfigurationError, Dense, Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.program.schedule import offer_cycles

pytestmark = pytest.mark.rtl

DIRECT = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=7, cell_bits=10, tables="direct")
# The last beat of 7 and 10 units fills fewer words than others; the 9 results take several beats.
STACK = stacked(5, 7, 10, dense=((9, "relu"), (3, "tanh"), (2, "identity")))


def loop(name: str = "loop", factor_bits: int = 6, **sizes: int) -> Parameters:
    """An array with one of ECP5's pipelines for small networks."""
    return Parameters.for_family("ecp5", factor_bits, name, tables="direct", streams=2, **sizes)


CASES: dict[str, Parameters] = {
    # All units of a row group end together: nothing is collected.
    "one block": loop("wide_loop", lanes=16, macs=2, gate_units=4, beat_in=2, beat_out=4, lut_macs=1),
    # Products take one cycle, in blocks that two lanes share and in LUTs.
    "narrow weights": loop("wide_loop", 4, lanes=16, macs=2, gate_units=4, beat_out=4, lut_macs=1),
    # Adders of four terms, in one level and in two; adders of six and of seven terms.
    "wide words": loop("wide_loop", 4, lanes=16, macs=8, gate_units=4, beat_out=4, lut_macs=3),
    "wider words": loop("wide_loop", lanes=16, macs=16, gate_units=4, beat_out=4, lut_macs=2),
    "six terms": loop(lanes=24, macs=6, gate_units=6, beat_out=6),
    "two blocks": loop(lanes=32, macs=2, gate_units=4, beat_out=4),
    "words of one value": loop(lanes=12, macs=1, gate_units=3, beat_out=6),
    "a word of all units": loop("wide_loop", lanes=24, macs=6, gate_units=6, beat_in=3, beat_out=6),
}


def case_of(name: str, steps: int = 8) -> Case:
    settings = DIRECT.replace(weight_bits=4) if name in ("narrow weights", "wide words") else DIRECT
    return make_case(3, quantise(STACK, settings), CASES[name], steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, "icarus" if name in ("one block", "narrow weights") else "verilator") for name in CASES],
)
def test_bits_and_cycles(name: str, backend: str, tmp_path: Path) -> None:
    check_device(case_of(name), tmp_path, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two_reset_before", "custom_c", "dense_first_and_mixed"])
def test_other_cells(name: str, tmp_path: Path) -> None:
    network = quantise(CELL_NETWORKS[name], NARROW)
    parameters = Parameters.for_family("xilinx", lanes=16, macs=2, gate_units=4, beat_out=4, streams=2)
    check_device(make_case(2, network, parameters, steps=6), tmp_path, "icarus")


def test_a_network_that_stores_no_results(tmp_path: Path) -> None:
    """One dense layer: no beat waits for words, and no operation has the flag that says so."""
    rng = np.random.default_rng(1)
    layer = Dense(weight=rng.normal(size=(9, 5)), bias=rng.normal(size=9), activation="identity")
    network = quantise(Network(layers=(layer,)), NARROW)
    parameters = Parameters(lanes=16, macs=2, gate_units=4, beat_out=4)
    check_device(make_case(1, network, parameters, steps=4), tmp_path, "icarus")


@pytest.mark.slow
def test_loadable_program(tmp_path: Path) -> None:
    parameters = Parameters(lanes=16, macs=2, gate_units=4, beat_out=4, streams=2)
    device = make_device(stacked(3, 5, dense=((9, "sigmoid"), (2, "relu"))), parameters)
    other = build_for(stacked(7, 6, 3, dense=((5, "tanh"),), seed=1), device)
    verilog = core_to_verilog(device.manifest)
    folders = [build.save(tmp_path / str(index), verilog) for index, build in enumerate((device, other))]
    with Accelerator.open(folders[0], "icarus", verify=False) as accelerator:
        check(accelerator, device, 0)
        accelerator.load(folders[1], verify=False)
        check(accelerator, other, 1)


def test_products_of_one_cycle() -> None:
    """Products of blocks, and of LUTs up to 8 bits. Those of wider factors in LUTs keep three registers."""
    case = case_of("narrow weights")
    assert case.manifest.paired_lanes and case.manifest.parameters.pipeline.multiplier == 1
    wider = [loop("wide_loop", bits, lanes=16, lut_macs=1).pipeline.multiplier for bits in (8, 9)]
    assert wider == [1, 3]


def test_terms_of_adders() -> None:
    """The accumulator's own term is one more than what the tree leaves."""
    assert CASES["wide words"].adders == [[4, 4]]
    assert CASES["wider words"].adders == [[4, 4, 4, 4], [2, 2]] and CASES["six terms"].adders == []


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("name", ["one block", "narrow weights"])
def test_netlist_equals_golden(name: str, tmp_path: Path) -> None:
    """Of a smaller network: synthesis takes most of the time."""
    settings = DIRECT.replace(weight_bits=4) if name == "narrow weights" else DIRECT
    network = quantise(stacked(5, 7, dense=((3, "tanh"),)), settings)
    check_netlist(make_case(3, network, CASES[name], steps=3), tmp_path)


def test_words_of_a_beat_are_stored_one_per_cycle_and_cost_none() -> None:
    """The array reads one word per cycle, so the loop of one group is as long as with a word per beat."""
    network = quantise(stacked(2, 8), DIRECT)
    intervals = []
    for gate_units in (2, 8):
        parameters = loop(lanes=32, macs=2, gate_units=gate_units, beat_out=gate_units)
        made = Manifest.of("made", network, parameters)
        offered = offer_cycles(made.program, parameters, 8)
        intervals.append(offered[-1] - offered[-2])
        assert made.program.body_op(0).beat_cycles == gate_units // 2
    # With four blocks, there is one register more between totals and units.
    assert intervals[0] - intervals[1] == 1


def test_gate_units_that_fill_no_whole_words_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"`gate_units` \(6\) must .* or be a multiple.* try 2"):
        Parameters(lanes=24, macs=4, gate_units=6, beat_out=6)


def test_results_of_whole_sequences_fill_a_word_at_most() -> None:
    rng = np.random.default_rng(1)
    both = Bidirectional(forward=random_lstm(rng, 3, 4), backward=random_lstm(rng, 3, 4, reverse=True))
    network = quantise(Network(layers=(both,)), NARROW)
    parameters = Parameters(lanes=16, macs=2, gate_units=4, beat_out=4, max_steps=3)
    with pytest.raises(ConfigurationError, match=r"`gate_units` \(4\) must divide `macs` \(2\) for a net"):
        Manifest.of("whole", network, parameters)


def test_a_state_of_many_words(tmp_path: Path) -> None:
    """A state is read and written as with any array. Icarus would take ten seconds to load the weights."""
    case = case_of("words of one value", steps=4)
    case.write(tmp_path)
    x = case.network.numerics.input.to_floats(case.x[:4, None])
    with (
        Accelerator.open(tmp_path, backend="verilator", verify=False) as core,
        Accelerator.open(tmp_path, backend="golden") as golden,
    ):
        (y, state), (expected, expected_state) = core.run(x), golden.run(x)
        np.testing.assert_array_equal(y, expected)
        for found, wanted in zip(state, expected_state, strict=True):
            assert [part.tolist() for part in found] == [part.tolist() for part in wanted]
