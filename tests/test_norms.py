"""Norms over a step's features: within a unit of the correctly rounded result, on every bit and cycle."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import check_trained, golden_outputs
from support.lazy import torch
from support.no_logic import no_logic
from support.quick import quick
from support.random_builds import make_case
from support.random_sequences import make_sequence_case, random_lstm
from support.sequence_checks import check_device as check_sequences
from support.small_builds import NARROW
from support.step_checks import check_device, check_netlist

from rtlstm import Bidirectional, Build, ConfigurationError, Dense, Lstm, Manifest, Network, Norm, Parameters
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.cells.evaluate import normalised
from rtlstm.spec.cells.formats import CellFormats, Functions, resolve
from rtlstm.spec.cells.kinds import norm_cell
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.norms import Normalisation, NormForm, design_root


def errors(
    x: IntArray, source: Format, output: Format, centre: bool, epsilon: float, direct: bool = False
) -> tuple[float, float]:
    """The largest distances from the correctly rounded results, and from the exact ones, in units of the last
    place; of values ``(vectors, n)``."""
    root, n = design_root(direct), x.shape[1]
    norm = Normalisation.of(n, source, centre, epsilon, output.fraction, 0, root)
    form, products = norm.product(root.output), norm.normalise(x, root)
    assert np.abs(products).max() < 2 ** (form.bits - 1)
    found = np.clip(output.round_codes(products, form.fraction), -output.maximum, output.maximum)
    # Sums in Python's integers; only the root is of a float.
    whole = x.astype(object)
    total = whole.sum(axis=1, keepdims=True) if centre else 0
    spread = (n * (whole**2).sum(axis=1, keepdims=True) - total**2).astype(float)
    spread += epsilon * n * n * 4.0**source.fraction
    exact = np.where(spread > 0, (n * whole - total).astype(float) / np.sqrt(spread + (spread == 0)), 0.0)
    limit = output.maximum + 0.5
    exact = np.clip(exact * 2.0**output.fraction, -limit, limit)
    unrounded = np.clip(products * 2.0 ** (output.fraction - form.fraction), -limit, limit)
    wanted = np.clip(np.floor(exact + 0.5), -output.maximum, output.maximum)
    return float(np.abs(found - wanted).max()), float(np.abs(unrounded - exact).max())


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("bits", "n"), quick([(4, 2), (4, 3), (4, 4), (5, 3), (6, 2), (8, 2)], (4, 3)))
def test_every_vector_is_within_a_unit(bits: int, n: int, centre: bool, direct: bool) -> None:
    codes = range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    x = np.array([*product(codes, repeat=n)], dtype=np.int64)
    for epsilon, given in product((0.0, 1e-5, 0.1), (bits, 12 if direct else 16)):
        output = Format.covering(given, math.sqrt(n))
        rounded, exact = errors(x, Format(bits=bits, fraction=bits - 1), output, centre, epsilon, direct)
        assert rounded <= 1 and exact < 1


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(
    ("n", "bits"), quick([(5, 16), (7, 18), (64, 8), (96, 16), (300, 16), (1024, 16), (4096, 14)], (96, 16))
)
def test_large_vectors_are_within_a_unit(n: int, bits: int, centre: bool) -> None:
    """Random ones of all sizes, with and without a mean, and extreme ones."""
    rng, most = np.random.default_rng(n), 2 ** (bits - 1) - 1
    ramp = np.arange(n)
    extreme = [np.full(n, most), np.full(n, -most - 1), np.where(ramp % 2, most, -most - 1), ramp * 0]
    extreme += [np.where(ramp, 0, 1), np.where(ramp, most - 1, most), np.where(ramp, -most - 1, most)]
    scales = np.repeat(np.geomspace(0.7, most, 9), 20)[:, None]
    random = rng.normal(size=(len(scales), n)) * scales
    x = np.concatenate([extreme, random, most - np.abs(random)])
    x = np.clip(np.rint(x), -most - 1, most).astype(np.int64)
    for epsilon, reach in product((0.0, 1e-12, 1e-5, 1e-2), (math.sqrt(n), 4.0)):
        output, source = Format.covering(min(bits, 16), reach), Format(bits=bits, fraction=bits - 3)
        if epsilon == 1e-12 and n >= 300:
            with pytest.raises(ConfigurationError, match="sums of squares of more than 62 bits"):
                errors(x, source, output, centre, epsilon)
            continue
        rounded, exact = errors(x, source, output, centre, epsilon)
        assert rounded <= 1 and exact < 1


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("bits", "n"), quick([(4, 3), (5, 3), (8, 2), (16, 64)], (4, 3)))
def test_gain_and_bias_keep_it_within_a_unit(bits: int, n: int, centre: bool) -> None:
    """Every vector, or large random ones, of the cell that golden model and hardware compute."""
    rng = np.random.default_rng(n)
    codes = range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    x = rng.integers(codes[0], codes[-1] + 1, (500, n)) if n > 3 else np.array([*product(codes, repeat=n)])
    gain, bias = rng.uniform(-2.0, 2.0, n), rng.normal(size=n)
    layer = Norm(values=n, gain=gain, bias=bias, centre=centre, epsilon=0.01)
    source, weight = (
        Format(bits=bits, fraction=bits - 1),
        Format(bits=max(bits, 6), fraction=max(bits, 6) - 3),
    )
    output, functions = Format.covering(16, 2.0 * math.sqrt(n) + 3.0), Functions()
    formats = CellFormats(source, source, output, parameter=weight, normalised=(n, source))
    graph, _ = resolve(norm_cell(layer), formats, functions)
    norm, root = functions.norms[0], functions.tables[0]
    gain, bias = weight.to_integers(gain), weight.to_integers(bias)
    form = NormForm.of(graph, functions.norms)
    products = norm.normalise(x, root, gain) + (bias << form.product.fraction - weight.fraction)
    assert np.abs(products).max() < 2 ** (form.product.bits + 1)
    found = output.round_codes(products, form.product.fraction)
    real = source.to_floats(x)
    exact = normalised(real, centre, norm.real_epsilon(source)) * weight.to_floats(gain) + weight.to_floats(
        bias
    )
    exact = exact * 2.0**output.fraction
    assert np.abs(found - np.floor(exact + 0.5)).max() <= 1
    assert np.abs(products * 2.0 ** (output.fraction - form.product.fraction) - exact).max() < 1


def test_epsilon_counts_where_the_variance_is_small() -> None:
    """A value of 1/128 with an epsilon of its square is divided by the root of two; equal values are 0."""
    source, output, root = Format(bits=8, fraction=7), Format(bits=16, fraction=14), design_root(False)
    for centre, wanted in ((False, 1 / math.sqrt(2)), (True, 0.0)):
        norm = Normalisation.of(4, source, centre, 2.0**-14, output.fraction, 0, root)
        products = norm.normalise(np.ones((1, 4), dtype=np.int64), root)
        y = output.to_floats(output.round_codes(products, norm.product(root.output).fraction))
        np.testing.assert_allclose(y, wanted, atol=output.step)


def _lstm(inputs: int, units: int) -> Lstm:
    return random_lstm(np.random.default_rng(units), inputs, units)


# In hardware


@pytest.mark.rtl
@pytest.mark.parametrize(
    ("name", "family", "more"),
    quick(
        [
            ("norm", "generic", {"lanes": 16, "macs": 2, "gate_units": 4, "beat_out": 4}),
            ("norm_of_a_projection", "ecp5", {"lanes": 8, "macs": 2, "gate_units": 2, "beat_out": 2}),
            ("norm_of_a_norm", "ultrascale", {"lanes": 8, "macs": 4}),
            ("norms_around_an_rnn", "ice40", {"lanes": 4, "macs": 1, "table_memory": "rom"}),
            ("norms_in_a_graph", "ecp5", {"lanes": 16, "macs": 4, "gate_units": 4, "beat_out": 4}),
            ("norm_of_a_norm", "generic", {"lanes": 16, "macs": 1, "gate_units": 4, "beat_out": 4}),
            ("layer_norm_lstm", "ecp5", {"lanes": 16, "macs": 4, "gate_units": 4, "beat_out": 4}),
            ("lstms_with_norms_of_sums", "generic", {"lanes": 8, "macs": 2, "gate_units": 2, "beat_out": 2}),
            ("lstms_with_some_norms", "ultrascale", {"lanes": 4, "macs": 1}),
            ("lstms_with_c_behind_its_norm", "ultrascale", {"lanes": 8, "macs": 2}),
        ],
        ("norm", "generic", {"lanes": 16, "macs": 2, "gate_units": 4, "beat_out": 4}),
        ("lstms_with_norms_of_sums", "generic", {"lanes": 8, "macs": 2, "gate_units": 2, "beat_out": 2}),
    ),
)
def test_rtl_equals_golden(name: str, family: str, more: dict[str, object], tmp_path: Path) -> None:
    """Also where the results of a cycle fill several words, and on the pipelines of families."""
    settings = QuantizationSettings(weight_bits=7, data_bits=8, gate_bits=8, cell_bits=12)
    parameters = Parameters.for_family(family, streams=2, **more)
    case = make_case(2, quantise(CELL_NETWORKS[name], settings), parameters, steps=6)
    check_device(case, tmp_path, "icarus")


@pytest.mark.rtl
@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm", "norms_in_a_graph", "layer_norm_lstm"])
def test_netlist_equals_golden(name: str, tmp_path: Path) -> None:
    """Of a LayerNorm beside the fused gate unit, of both norms beside pipelines of cells, and in a cell."""
    settings = QuantizationSettings(weight_bits=7, data_bits=8, gate_bits=8, cell_bits=12)
    parameters = Parameters.for_family("ecp5", lanes=8, macs=2, gate_units=2, beat_out=2, streams=2)
    check_netlist(make_case(3, quantise(CELL_NETWORKS[name], settings), parameters, steps=4), tmp_path)


@pytest.mark.rtl
@pytest.mark.slow
def test_verilator_equals_golden(tmp_path: Path) -> None:
    case = make_case(3, quantise(CELL_NETWORKS["norm"], NARROW), Parameters(lanes=8, macs=2), steps=40)
    check_device(case, tmp_path, "verilator")


@pytest.mark.rtl
@pytest.mark.slow
def test_whole_sequences_on_rtl(tmp_path: Path) -> None:
    """Behind two directions, whose results a copy puts together, and inside a pass."""
    forward, backward = _lstm(4, 3), _lstm(4, 3).replace(reverse=True)
    both = Bidirectional(forward=forward, backward=backward)
    head = Dense(weight=np.eye(2, 5), bias=np.zeros(2))
    layers = (Norm(values=4), both, Norm(values=6, centre=False), _lstm(6, 5), Norm(values=5), head)
    network = quantise(Network(layers=layers), NARROW)
    assert [shape.kind for shape in network.shapes].count("dense") == 3
    parameters = Parameters(lanes=8, macs=2, max_steps=6)
    check_sequences(make_sequence_case(1, network, parameters, steps=6), tmp_path, "icarus")


def test_a_norm_reads_its_vector_once_to_wait_for_it() -> None:
    network = quantise(Network(layers=(_lstm(4, 16), Norm(values=16))), NARROW)
    op = Manifest.of("words", network, Parameters(lanes=8, macs=4)).program.body_op(1)
    assert [*map(list, op.group_words)] == [[0, 1, 2, 3]] and op.drain_beats == 16


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(
    ("values", "macs", "units"), [(64, 8, 4), (64, 8, 8), (96, 4, 4), (100, 8, 2), (20, 4, 1)]
)
def test_overhead_is_twelve_cycles_at_most(values: int, macs: int, units: int, centre: bool) -> None:
    """On ECP5, beyond a cycle for each beat of the vector; where ``units`` is ``macs``, that is a word."""
    parameters = Parameters.for_family("ecp5", lanes=32, macs=macs, gate_units=units, beat_out=units)
    norm = Norm(values=values, centre=centre, gain=np.ones(values), bias=np.zeros(values))
    first, second, head = (
        _lstm(16, values),
        _lstm(values, values),
        Dense(weight=np.eye(2, values), bias=np.zeros(2)),
    )
    cycles = []
    for layers in ((first, second, head), (first, norm, second, head), (first, norm, second, norm, head)):
        network = quantise(Network(layers=layers), QuantizationSettings(quick=True))
        assert network.numerics.fused_lstm is not None
        manifest = Manifest.of("cycles", network, parameters)
        cycles.append(
            manifest.cycles.step_latency_cycles - parameters.drain_beats(values) * (len(layers) - 3)
        )
    assert np.diff(cycles).max() <= 12


def test_builds_without_a_norm_know_of_none() -> None:
    network = quantise(Network(layers=(_lstm(4, 5),)), NARROW)
    manifest = Manifest.of("none", network, Parameters(lanes=4, macs=2))
    assert "norms" not in manifest.numerics.model_dump() and "norms" not in manifest.to_json()


# What is refused


def test_results_of_more_bits_are_refused() -> None:
    network = Network(layers=(_lstm(3, 4), Norm(values=4)))
    with pytest.raises(ConfigurationError, match="at most 16 bits, not 18; choose fewer `data_bits`"):
        quantise(network, QuantizationSettings(data_bits=18))
    quantise(network, QuantizationSettings(data_bits=16))


def test_sums_that_are_too_wide_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than 62 bits; choose fewer data bits"):
        Normalisation.of(60000, Format(bits=18, fraction=17), True, 1e-5, 12, 0, design_root(False))
    Normalisation.of(60000, Format(bits=14, fraction=13), True, 1e-5, 8, 0, design_root(False))


def test_a_larger_epsilon_needs_fewer_bits() -> None:
    """The one that the message names is enough; fewer data bits are, too."""
    source, root = Format(bits=16, fraction=15), design_root(False)
    with pytest.raises(ConfigurationError, match="more than 62 bits.*an epsilon of 4e-07 or more, or"):
        Normalisation.of(300, source, True, 1e-12, 12, 0, root)
    Normalisation.of(300, source, True, 4e-7, 12, 0, root)
    Normalisation.of(300, Format(bits=12, fraction=11), True, 1e-12, 12, 0, root)


# Training


def test_a_trained_norm_has_the_bits_of_its_build() -> None:
    """Its gain and bias are trained, and the rows that only pass values on are not."""

    from rtlstm.train import prepare

    torch.manual_seed(0)
    norm = Norm(values=5, gain=np.linspace(0.5, 1.5, 5), bias=np.linspace(-0.2, 0.3, 5))
    head = Dense(weight=np.eye(3, 5), bias=np.zeros(3))
    source = Network(layers=(Norm(values=3), _lstm(3, 5), norm, head))
    x = np.random.default_rng(0).normal(size=(6, 4, 3))
    model = prepare(source, calibration=x, weight_bits=6, data_bits=12)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.from_numpy(x))[0].square().mean().backward()
        optimiser.step()
    assert model.weights.layers[2]["gain"].grad.abs().max() > 0
    identities = [rows for rows in model.rows if rows.plan.layer.kind == "norm" or rows.plan.layer.copies]
    assert len(identities) == 3 and not any(rows.log_limits[0].requires_grad for rows in identities)
    check_trained(model, x)


def test_a_network_that_begins_with_a_norm_is_near_the_float_model() -> None:
    """All features have one unit there, so none has a factor."""
    network = Network(layers=(Norm(values=3), _lstm(3, 4), Norm(values=4, centre=False)))
    x = np.random.default_rng(4).normal(size=(30, 2, 3)) * [1.0, 0.01, 3.0]
    quantised = quantise(network, QuantizationSettings(quick=True), x)
    assert quantised.numerics.input_factors == ()
    np.testing.assert_allclose(golden_outputs(quantised, x), run_float(network, x).y, atol=5e-3)


def test_a_norm_alone_is_a_build(tmp_path: Path) -> None:
    """It has no weights to count."""
    folder, x = tmp_path / "build", np.random.default_rng(0).normal(size=(9, 1, 4))
    with no_logic():
        generate_build(Network(layers=(Norm(values=4),)), folder, calibration=x)
    norm = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    assert np.abs(Build(folder).run(x)[0] - norm).max() < 0.01
