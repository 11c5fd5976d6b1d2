"""Rows with scales: both golden models, hardware and netlists agree; integers of models are kept."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import equals_second, random_codes
from support.lazy import train
from support.loadable_builds import build_for, check, make_device
from support.quick import quick
from support.random_builds import Case, make_case, random_network, random_parameters
from support.random_sequences import random_sequence_network
from support.small_builds import NARROW, normal_lstm
from support.small_builds import network as small_network
from support.step_checks import check_device, check_netlist

from rtlstm import Accelerator, ConfigurationError, Dense, Gru, ImageError, Lstm, Manifest, Network
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.rounding import find_steps, scale_rows
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.sim.golden import Golden
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.inventory import multipliers
from rtlstm.spec.numerics import QuantizedNetwork, bound_sums, row_parts
from rtlstm.spec.packing import pack, unpack
from rtlstm.spec.parameters import Parameters

BITS = (8, 16)
SIZES = (1, 2, 3, 5)


def settings_of(bits: int, **fields: object) -> QuantizationSettings:
    return NARROW.replace(weight_bits=6, data_bits=8, gate_bits=8, scale_bits=bits, **fields)


def drawn(seed: int, bits: int) -> QuantizedNetwork:
    """One to three LSTM layers, perhaps dense ones, of drawn widths."""
    rng = np.random.default_rng(seed)
    weight, data = int(rng.integers(2, 15)), int(rng.integers(4, 15))
    settings = QuantizationSettings(
        weight_bits=weight, data_bits=data, gate_bits=max(8, data), cell_range=4.0, scale_bits=bits
    )
    return quantise(random_network(rng, SIZES), settings)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("seed", range(10))
def test_golden_model_equals_the_second_one(seed: int, bits: int) -> None:
    network = drawn(seed, bits)
    assert all(
        (part.scale % (1 << (16 - bits)) == 0).all() and (part.scale >> 15 == 1).all()
        for layer in network.layers
        for part in row_parts(layer)
    )
    equals_second(network, random_codes(network, 12, 2, seed=seed))


@pytest.mark.parametrize("name", sorted(CELL_NETWORKS))
def test_golden_model_of_cells(name: str) -> None:
    network = quantise(CELL_NETWORKS[name], settings_of(12))
    equals_second(network, random_codes(network, 8, 2, seed=0))


@pytest.mark.parametrize("seed", range(3))
def test_golden_model_of_whole_sequences(seed: int) -> None:
    network = quantise(random_sequence_network(np.random.default_rng(seed), SIZES), settings_of(16))
    equals_second(network, random_codes(network, 6, 2, seed=seed))


def test_the_lowest_scale_is_a_shift() -> None:
    """Rows in steps of powers of two give the same results with scales and without."""
    rng = np.random.default_rng(1)
    codes = [rng.integers(-31, 32, shape) for shape in ((12, 4), (12, 3))]
    for each in codes:
        each[:, 0] = 31
    w_ih, w_hh = (each * 2.0**-5 for each in codes)
    network = Network(layers=(Lstm(w_ih=w_ih, w_hh=w_hh, bias=rng.normal(size=12)),))
    plain, scaled = (quantise(network, settings_of(bits)) for bits in (0, 16))
    assert (scaled.layers[0].scale_ih == 1 << 15).all()
    x = random_codes(plain, 20, 3, seed=2)
    np.testing.assert_array_equal(Golden(plain).run(x).y, Golden(scaled).run(x).y)


def test_no_sum_overflows() -> None:
    """Parts reach their bounds within what rounding down loses, and no further."""
    network = quantise(random_network(np.random.default_rng(4), (3, 5)), settings_of(16))
    numerics = network.numerics
    for layer in network.layers:
        for part in row_parts(layer):
            extreme = np.where(part.weights < 0, numerics.input.maximum, numerics.input.lowest)
            sums = (part.weights * extreme).sum(axis=1) << numerics.accumulator.align
            parts = (sums >> part.shift) * part.scale >> 17
            most = part.largest(numerics.input, numerics.accumulator.align)
            # The bound takes -128 for both signs.
            assert (np.abs(parts) <= most).all() and (most <= np.abs(parts) * (128 / 127) + 3).all()
            assert (np.abs(sums >> part.shift) < 1 << (numerics.scaled_bits - 1)).all()
    needed = bound_sums(network.layers, numerics.input, numerics.accumulator.align)
    assert needed.partial.bits == numerics.accumulator.partial_bits


# Hardware


def case(seed: int, bits: int, steps: int = 6) -> Case:
    rng = np.random.default_rng(seed)
    return make_case(seed, drawn(seed, bits), random_parameters(rng), steps)


CASES = [(seed, BITS[seed % 2]) for seed in range(20, 32)]


@pytest.mark.rtl
@pytest.mark.parametrize(("seed", "bits"), quick(CASES, CASES[0]))
def test_icarus_equals_golden(seed: int, bits: int, tmp_path: Path) -> None:
    """Words, states, registers and cycles, with any pipeline."""
    check_device(case(seed, bits), tmp_path, "icarus")


@pytest.mark.rtl
@pytest.mark.parametrize(("seed", "bits"), quick(CASES, CASES[2]))
def test_verilator_equals_golden(seed: int, bits: int, tmp_path: Path) -> None:
    check_device(case(seed, bits, 20), tmp_path, "verilator")


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("name", "family"),
    quick(
        [(name, family) for name in sorted(CELL_NETWORKS) for family in ("generic", "xilinx")],
        ("two_grus", "xilinx"),
    ),
)
def test_cells_in_hardware(name: str, family: str, tmp_path: Path) -> None:
    """Also where a layer goes on with partial sums, and with per-unit constants beside the scales."""
    network = quantise(CELL_NETWORKS[name], settings_of(10))
    parameters = Parameters.for_family(family, lanes=8, macs=2, streams=2)
    check_device(make_case(1, network, parameters, 6), tmp_path, "icarus")


@pytest.mark.rtl
def test_networks_on_a_loadable_core(tmp_path: Path) -> None:
    """Another network takes the device's bits of scales, and its memory of shifts has them."""
    parameters = Parameters(lanes=8, macs=2, streams=2)
    device = make_device(small_network(), parameters, settings_of(10))
    assert device.manifest.numerics.scale_bits == 10
    device.save(tmp_path / "device", core_to_verilog(device.manifest))
    with Accelerator.open(tmp_path / "device", "icarus", verify=False) as accelerator:
        check(accelerator, device, 1)
        build = build_for(random_network(np.random.default_rng(3), SIZES), device)
        assert build.network.numerics.scale_bits == 10
        accelerator.load(build.save(tmp_path / "build"), verify=False)
        check(accelerator, build, 2)


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.tools
@pytest.mark.parametrize("family", ["ice40", "ecp5", "xilinx"])
def test_netlist_equals_golden(family: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    lstm = normal_lstm(rng, 2, 2)
    dense = Dense(weight=rng.normal(size=(2, 2)), bias=rng.normal(size=2))
    settings = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=8, cell_bits=10, scale_bits=8)
    network = quantise(Network(layers=(lstm, dense)), settings)
    case = make_case(1, network, Parameters.for_family(family, lanes=4, macs=2), 4)
    check_netlist(case, tmp_path, verify=True)


def test_cycles_and_multipliers() -> None:
    """Each layer takes the registers of the multipliers more, and each gate unit has four of them."""
    network = small_network()
    plain, scaled = (
        Manifest.of("both", found, Parameters(lanes=8, macs=4, gate_units=2, beat_out=2))
        for found in (quantise(network, settings_of(bits)) for bits in (0, 16))
    )
    assert plain.parameters.pipeline.scale == 0 and scaled.parameters.pipeline.scale == 2
    layers = len(network.layers)
    latencies = [each.cycles.step_latency_cycles for each in (plain, scaled)]
    assert latencies[1] - latencies[0] == 2 * layers
    assert "row scales" not in multipliers(plain)
    added = multipliers(scaled)["row scales"]
    assert (added.count, added.a_bits, added.b_bits) == (8, scaled.numerics.scaled_bits, 17)


# Images


@pytest.mark.parametrize("name", ["peephole", "two_grus", "gru_reset_before"])
def test_images_hold_scales(name: str) -> None:
    network = quantise(CELL_NETWORKS[name], settings_of(9))
    manifest = Manifest.of("image", network, Parameters(lanes=4, macs=2))
    found = unpack(pack(network, manifest), manifest)
    for mine, theirs in zip(network.layers, found.layers, strict=True):
        for part, again in zip(row_parts(mine), row_parts(theirs), strict=True):
            np.testing.assert_array_equal(part.scale, again.scale)
            np.testing.assert_array_equal(part.shift, again.shift)


def test_scales_of_more_bits_are_refused() -> None:
    network = quantise(small_network(), settings_of(16))
    manifest = Manifest.of("image", network, Parameters(lanes=4, macs=2))
    narrow = network.numerics.replace(scale_bits=8)
    other = QuantizedNetwork(network.shapes, narrow, network.layers)
    with pytest.raises(ImageError, match="must have scales of 8 bits"):
        pack(other, Manifest.create("image", network.shapes, manifest.parameters, narrow))


# Steps of rows


def integers(rng: np.random.Generator, rows: int, columns: int) -> IntArray:
    codes = rng.integers(-127, 128, (rows, columns))
    codes[:, 0] = 127
    return codes


def test_steps_of_rows_are_found() -> None:
    rng = np.random.default_rng(0)
    codes, steps = integers(rng, 30, 12), rng.uniform(0.001, 0.02, 30).astype(np.float32)
    weights = (codes.astype(np.float32) * steps[:, None]).astype(np.float64)
    weights[3] = 0.0
    found = find_steps(weights, 127)
    assert found[3] == 0.0
    np.testing.assert_allclose(np.delete(found, 3), np.delete(steps, 3), rtol=1e-6)
    rows = scale_rows(weights, 127, 16, 10, 40)
    np.testing.assert_array_equal(rows.weights, codes * (np.arange(30) != 3)[:, None])
    made = np.ldexp(rows.scale.astype(float), -16 - rows.fraction)
    np.testing.assert_allclose(np.delete(made, 3), np.delete(steps, 3), rtol=2.0**-16 * 1.01)
    assert not find_steps(weights, 100)[0], "more bits than there are"
    assert not find_steps(rng.normal(size=(9, 12)), 127).any()


def test_a_step_that_all_rows_share() -> None:
    """A row of even integers has a tensor's step, too, not twice that."""
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, (20, 10))
    codes[4] = 2 * rng.integers(-60, 60, 10)
    np.testing.assert_allclose(find_steps(codes * 0.0113, 127), 0.0113, rtol=1e-6)


@pytest.mark.parametrize("bits", BITS)
def test_the_largest_weight_of_other_rows_is_the_largest_code(bits: int) -> None:
    weights = np.random.default_rng(0).normal(size=(30, 12))
    rows = scale_rows(weights, 127, bits, 10, 40)
    most = np.abs(rows.weights).max(axis=1)
    assert (most >= (127 if bits == 16 else 126)).all() and not rows.kept.any()
    steps = np.ldexp(rows.scale.astype(float), -16 - rows.fraction)
    assert (np.abs(rows.weights * steps[:, None] - weights) <= steps[:, None] / 2).all()


def test_weights_are_nearer_with_scales() -> None:
    """On average, steps of powers of two are a third larger than those of scales."""
    network = Network(layers=(small_network().layers[0],))
    steps = []
    for bits in (0, 16):
        found = quantise(network, settings_of(bits))
        source = found.numerics.input.fraction
        part = row_parts(found.layers[0])[0]
        steps.append(part.steps(found.numerics.accumulator.align, 10, source).mean())
    assert steps[1] < 0.9 * steps[0]


# Settings


def test_bits_of_scales_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="`scale_bits` must be 0, or 8 to 16, not 5"):
        QuantizationSettings(scale_bits=5)
    with pytest.raises(ConfigurationError, match="sums of at most 34 bits"):
        quantise(
            small_network(),
            QuantizationSettings(weight_bits=18, data_bits=18, scale_bits=16, headroom_bits=16),
        )


def test_training_takes_no_scales() -> None:
    with pytest.raises(ConfigurationError, match="leave out `scale_bits`"):
        train.prepare(small_network(), scale_bits=16)


def test_gru_of_integers_with_two_layers() -> None:
    """A GRU that resets before the product: rows of both layers keep their integers."""
    rng = np.random.default_rng(2)
    w_ih, w_hh = (integers(rng, 12, columns) * 0.0123 for columns in (3, 4))
    gru = Gru(w_ih=w_ih, w_hh=w_hh, bias_ih=np.zeros(12), bias_hh=np.zeros(12), reset_after=False)
    found = quantise(Network(layers=(gru,)), QuantizationSettings(weight_bits=8, scale_bits=16))
    parts = [part for layer in found.layers for part in row_parts(layer)]
    rows = np.concatenate([part.weights[part.weights.any(axis=1), 0] for part in parts])
    assert len(rows) == 24 and (rows == 127).all()
