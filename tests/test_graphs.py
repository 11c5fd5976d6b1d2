"""Layers that read any earlier results, and cells that do not read h: cycles and limits of the sequencer."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS, product_graphs, reads
from support.loadable_builds import build_for, make_device, switch
from support.pruned_builds import pruned_case
from support.random_builds import make_case
from support.random_sequences import make_sequence_case
from support.sequence_checks import check_device as check_sequences
from support.step_checks import check_device

from rtlstm import CellBuilder, ConfigurationError, Custom, Dense, Gru, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.manifest import Cycles, Manifest
from rtlstm.spec.numerics import QuantizedNetwork

NARROW = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=6, cell_bits=10)
WIDE_ARRAY = Parameters(lanes=32, macs=4, beat_in=4, gate_units=4, beat_out=4)


def manifest_of(network: QuantizedNetwork, parameters: Parameters) -> Manifest:
    return Manifest.of("graph", network, parameters)


def side_by_side(count: int) -> Network:
    """Dense layers of a few words that read the input, and one that reads them all."""
    rng = np.random.default_rng(0)
    layers = [
        Dense(
            name=f"d{index}",
            weight=rng.normal(size=(4, 3)) * 0.3,
            bias=rng.normal(size=4) * 0.3,
            **reads((index + 1, 3)),
        )
        for index in range(count)
    ]
    backs = rng.permutation(count) + 1
    weight = rng.normal(size=(3, 4 * count)) * 0.3
    last = Dense(weight=weight, bias=np.zeros(3), **reads(*((int(back), 4) for back in backs)))
    return Network(layers=(*layers, last))


@pytest.mark.rtl
def test_rows_with_scales_read_several_results(tmp_path: Path) -> None:
    """Sums of several products have more bits than a product's total."""
    network = quantise(side_by_side(6), NARROW.replace(scale_bits=8))
    numerics = network.numerics
    assert numerics.accumulator.bits + numerics.accumulator.align < numerics.scaled_bits
    check_device(make_case(0, network, WIDE_ARRAY, steps=6), tmp_path, "icarus", verify=False)


@pytest.mark.rtl
@pytest.mark.parametrize("count", [pytest.param(3, marks=pytest.mark.slow), 6])
def test_results_on_the_way_are_no_more_than_are_counted(count: int, tmp_path: Path) -> None:
    """Each operation takes one cycle, and its results take many: a counter of three must hold them."""
    case = make_case(0, quantise(side_by_side(count), NARROW), WIDE_ARRAY.replace(streams=2), steps=6)
    program = case.manifest.program
    assert all(op.words == 1 for op in program.ops)
    assert [op.waits_for_results for op in program.ops][:2] == [False, True]
    check_device(case, tmp_path, "icarus", verify=False)


@pytest.mark.rtl
def test_states_are_there_when_the_next_step_reads_them(tmp_path: Path) -> None:
    """Without a product with h, steps of one word would follow each other faster than the cell computes."""
    layer = CELL_NETWORKS["min_gru"].layers[0].replace(reverse=True)
    network = quantise(Network(layers=(layer,)), NARROW)
    case = make_sequence_case(0, network, WIDE_ARRAY.replace(max_steps=8), 8)
    (op,) = case.manifest.program.ops
    assert (op.words, op.idle_cycles) == (1, 10)
    check_sequences(case, tmp_path, "icarus")


def cycles_of_last(last: Custom | Dense, lanes: int, macs: int) -> Cycles:
    """Cycles of a step of two GRUs, of which the last layer reads both."""
    rng = np.random.default_rng(1)

    def gru(units: int, inputs: int) -> Gru:
        arrays = {"w_ih": (3 * units, inputs), "w_hh": (3 * units, units)}
        biases = {"bias_ih": np.zeros(3 * units), "bias_hh": np.zeros(3 * units)}
        return Gru(**{name: rng.normal(size=size) for name, size in arrays.items()}, **biases)

    network = quantise(Network(layers=(gru(16, 8), gru(16, 16), last)), NARROW)
    return manifest_of(network, Parameters.for_family("ecp5", lanes=lanes, macs=macs)).cycles


@pytest.mark.parametrize(("lanes", "macs"), [(64, 4), (32, 4), (16, 2)])
def test_a_product_of_two_results_takes_no_longer_than_a_dense_layer(lanes: int, macs: int) -> None:
    """16 products have two rows each that count: at most two cycles more than a dense layer of 32 rows."""
    both, cell = reads((1, 16), (2, 16)), CellBuilder()
    product = cell.build("product", cell.gate(0) * cell.gate(1))
    weights, none = np.kron(np.eye(2), np.eye(16)), np.zeros(32)
    glu = cycles_of_last(Custom(cell=product, w_ih=weights, w_hh=None, bias=none, **both), lanes, macs)
    dense = cycles_of_last(Dense(weight=weights, bias=none, **both), lanes, macs)
    print(f"{lanes} x {macs}: {glu.step_latency_cycles} and {dense.step_latency_cycles} cycles")
    assert glu.step_latency_cycles <= dense.step_latency_cycles + 2


def test_a_layer_without_a_product_with_h_has_no_operation_for_it() -> None:
    first = CELL_NETWORKS["min_gru"].layers[0]
    reads_h = first.replace(w_hh=np.full_like(first.w_hh, 0.05), reads_h=True)
    without, with_h = (quantise(Network(layers=(layer,)), NARROW) for layer in (first, reads_h))
    small = Parameters(lanes=8, macs=2)
    programs = [manifest_of(each, small).program for each in (without, with_h)]
    assert [[op.kind for op in program.ops] for program in programs] == [
        ["input"],
        ["recurrent", "input", "input", "recurrent"],
    ]
    assert manifest_of(without, small).cycles.step_interval_cycles < 20
    with pytest.raises(ConfigurationError, match="a layer whose gates do not read h has a w_hh of zeros"):
        first.replace(w_hh=np.ones_like(first.w_hh))


@pytest.mark.slow
@pytest.mark.rtl
def test_a_loadable_core_takes_other_graphs(tmp_path: Path) -> None:
    """Programs of layers side by side, of several products and of none with h, on one core."""
    first, *others = product_graphs()
    device = make_device(first, Parameters(lanes=8, macs=4, streams=2, beat_in=2), operations=24)
    switch(device, [build_for(each, device) for each in others], "icarus", tmp_path)


@pytest.mark.rtl
@pytest.mark.slow
@pytest.mark.parametrize("name", ["grus_of_several", "product_of_two"])
def test_words_of_zeros_are_skipped(name: str, tmp_path: Path) -> None:
    case = pruned_case(0, quantise(CELL_NETWORKS[name], NARROW), Parameters(lanes=8, macs=2, streams=2))
    shapes = case.manifest.layers
    assert any(shapes[layer].kind == "unit_skip" for layer, _ in case.manifest.program.kept)
    check_device(case, tmp_path, "icarus")
