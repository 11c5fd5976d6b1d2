"""Other widths: what is promised for one is what a build that is generated with it has."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from support.cell_networks import CELL_NETWORKS
from support.drawn_networks import DrawnBuild, drawn_builds
from support.quick import quick
from support.small_builds import network as small_network

import rtlstm
from rtlstm.gen.accuracy.measure import measure_errors
from rtlstm.gen.accuracy.records import Advice, Cost, ErrorReport, WidthErrors, named_part
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.builds.generate import BuildRequest
from rtlstm.gen.builds.hardware import ArrayRequest, Asked
from rtlstm.gen.builds.widths import Made, Widths, conclude_widths
from rtlstm.gen.frontends import read_if_needed
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network

pytestmark = pytest.mark.usefixtures("without_verilog")

common = settings(
    max_examples=3, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def wide_state() -> Network:
    """An LSTM whose forget gates are almost 1, so that c grows large and its range is worth bits."""
    rng = np.random.default_rng(7)
    bias = np.concatenate([np.full(12, value) for value in (1.0, 4.0, 0.0, 0.0)])
    lstm = Lstm(w_ih=rng.normal(size=(48, 3)) / 2, w_hh=rng.normal(size=(48, 12)) / 8, bias=bias)
    return Network(layers=(lstm, Dense(weight=rng.normal(size=(2, 12)) / 4, bias=np.zeros(2))))


WIDE = {"weight_bits": 14, "data_bits": 14, "gate_bits": 16}
BUILDS = {
    "narrow state": (wide_state(), WIDE | {"cell_bits": 8}),
    "final states": (wide_state(), {"cell_bits": 10, "weight_bits": 10, "final_states": True}),
    "stated gates": (small_network(), {"weight_bits": 10, "data_bits": 8, "gate_bits": 8}),
    "gru": (CELL_NETWORKS["gru"], {"weight_bits": 6, "data_bits": 8}),
    "formulas": (small_network(), {"weight_bits": 6, "data_bits": 9, "quick": True}),
    "not calibrated": (small_network(), {"weight_bits": 5, "data_bits": 7}),
    "loadable": (small_network(), {"weight_bits": 6, "data_bits": 9, "capacities": {"headroom": 1}}),
    "device": (small_network(), {"weight_bits": 4, "fit": "lfe5u-25f-6"}),
    "bits of h": (small_network(), {"weight_bits": 14, "data_bits": 8}),
    "stated bits of h": (small_network(), {"data_bits": 8, "hidden_bits": 9, "gate_bits": 9}),
}


def inputs(network: Network, seed: int) -> np.ndarray:
    """Features of different sizes have shifts, which depend on the widths."""
    return np.random.default_rng(seed).normal(size=(40, 4, network.inputs)) * 10.0 ** -np.arange(
        network.inputs
    )


@pytest.mark.parametrize("name", quick(BUILDS, "stated gates", "narrow state"))
def test_what_is_advised_is_what_is_got(name: str, tmp_path) -> None:
    """Follow the advice, on data that did not calibrate the build."""
    network, options = BUILDS[name]
    x, other = inputs(network, 3), inputs(network, 4)
    array = {} if "fit" in options else {"lanes": 4, "macs": 2}
    calibration = {} if name == "not calibrated" else {"calibration": x}
    build = rtlstm.compile(network, folder=tmp_path / "build", **calibration, **options, **array)
    found = build.accuracy(other, model=network, **calibration)
    advice = found.advice
    assert advice is not None and advice.rms_error <= 0.95 * found.output.rms_error
    got = rtlstm.compile(network, folder=tmp_path / "got", **calibration, **advice.options)
    error = got.run(other)[0] - run_float(network, other).y
    assert float(f"{np.sqrt(np.mean(error**2)):.5g}") == advice.rms_error
    assert float(f"{np.abs(error).max():.5g}") == advice.max_abs_error
    assert got.report().cycles.step_latency_cycles == advice.cost.step_latency_cycles
    assert got.report().memory_bits == advice.cost.memory_bits
    if name == "device":
        fit = got.report().fit
        assert fit is not None
        assert (fit.estimate.luts, fit.estimate.block_rams) == (advice.cost.luts, advice.cost.block_rams)
    if name == "narrow state":
        part = named_part(found.output)
        assert part is not None and part.part == "state"
        assert set(advice.changes) & {"cell_bits", "cell_range"}


def made(network: Network, numbers: QuantizationSettings, data: Calibration | None) -> Made:
    """A build without its files."""
    asked = {"lanes": 4, "macs": 2}
    whole = any(
        isinstance(layer, Bidirectional) or getattr(layer, "reverse", False) for layer in network.layers
    )
    array = ArrayRequest(**asked, tables=numbers.tables, max_steps=16 if whole else None)
    request = BuildRequest(read=read_if_needed(network), settings=numbers, array=array, data=data)
    quantised = quantise(network, numbers, data)
    manifest, _ = request.manifest("made", quantised, request.sizes("made", quantised))
    return Made(request, Asked(settings=numbers, hardware=asked), quantised, manifest, None)


def tried(build: Made, x: np.ndarray) -> ErrorReport:
    """What other widths give."""
    network = build.request.network
    samples, exact = Samples.of(x, network.inputs), run_float(network, x)
    errors = measure_errors(build.network, samples, network)
    widths, advice = Widths(build, samples, exact, errors).run()
    return errors.replace(widths=widths, advice=advice)


@common
@given(drawn_builds(whole=False))
def test_every_width_is_built_as_generate_does(drawn: DrawnBuild) -> None:
    check(drawn)


@common
@given(drawn_builds(whole=True))
def test_every_width_of_whole_sequences_is_built_as_generate_does(drawn: DrawnBuild) -> None:
    check(drawn)


def check(drawn: DrawnBuild) -> None:
    network, numbers, rng = drawn.network, drawn.settings, np.random.default_rng(drawn.seed)
    x, other = (rng.normal(size=(10, 3, network.inputs)) for _ in range(2))
    data = Calibration.of(network, x) if drawn.calibrated else None
    try:
        build = made(network, numbers, data)
    except ConfigurationError:
        reject()
    found = tried(build, other)
    for width in found.widths:
        if width.measured and width.rms_error is not None:
            got = quantise(network, numbers.replace(**width.changes), data)
            error = measure_errors(got, Samples.of(other, network.inputs), network).output
            assert (width.rms_error, width.max_abs_error) == (error.rms_error, error.max_abs_error)


@pytest.mark.parametrize(
    "stated, size, option", [({"cell_range": 1.0}, 1.0, "cell_range"), ({}, 0.1, "input_range")]
)
def test_a_range_that_is_too_narrow_is_named(stated: dict[str, float], size: float, option: str) -> None:
    """Bits do not help where data in use are larger than those of the calibration, or a range is stated."""
    network, numbers = wide_state(), QuantizationSettings(**WIDE, **stated)
    data = Calibration.of(network, size * inputs(network, 3))
    found = tried(made(network, numbers, data), inputs(network, 4))
    part = named_part(found.output)
    assert part is not None and part.part == {"cell_range": "state", "input_range": "activations"}[option]
    assert found.advice is not None and set(found.advice.changes) == {option}
    assert found.advice.rms_error < 0.7 * found.output.rms_error


@pytest.mark.parametrize(
    ("few", "part"),
    [
        ({"weight_bits": 4}, "weights"),
        ({"data_bits": 7}, "activations"),
        ({"cell_bits": 8, "data_bits": 13, "weight_bits": 13}, "state"),
        ({"gate_bits": 6, "data_bits": 6, "weight_bits": 12}, None),
    ],
)
def test_the_part_that_is_coarse_gets_the_bits_that_it_needs(few: dict[str, int], part: str | None) -> None:
    network, widths = small_network(), {"weight_bits": 12, "data_bits": 12, "gate_bits": 14, "cell_bits": 16}
    x = np.random.default_rng(1).normal(size=(50, 6, network.inputs))
    found = tried(made(network, QuantizationSettings(**widths | few), Calibration.of(network, x)), x)
    blamed = named_part(found.output)
    assert found.advice is not None
    costs = [each.cost.growth(found.advice.cost_now) for each in found.widths if each.cost is not None]
    assert costs == sorted(costs)
    if part is None:
        return
    assert blamed is not None and blamed.part == part
    assert set(few) & set(found.advice.changes)
    # It has the bits with which its error is no larger than that of the others.
    assert found.advice.rms_error <= 2**0.5 * blamed.without
    assert f" {found.advice.text}." in conclude_widths(found)


def test_h_alone_gets_bits_where_inputs_are_exact() -> None:
    """Bits of inputs would give the same, take as much, and change the ports."""
    network, numbers = small_network(), QuantizationSettings(weight_bits=14, data_bits=8)
    x = np.random.default_rng(1).integers(-3, 4, (50, 6, network.inputs)) / 4
    found = tried(made(network, numbers, Calibration.of(network, x)), x)
    part = named_part(found.output)
    assert part is not None and part.part == "activations" and found.advice is not None
    assert set(found.advice.changes) == {"hidden_bits"}
    got = quantise(network, numbers.replace(**found.advice.changes), x)
    error = measure_errors(got, Samples.of(x, network.inputs), network).output.rms_error
    assert error == found.advice.rms_error < 0.6 * found.output.rms_error


def test_widths_that_cannot_be_built_say_so() -> None:
    network = small_network()
    x = np.random.default_rng(1).normal(size=(9, 2, network.inputs))
    numbers = QuantizationSettings(weight_bits=18, data_bits=12, gate_bits=12, tables="direct", quick=True)
    found = tried(made(network, numbers, Calibration.of(network, x)), x)
    refused = {next(iter(each.changes.items())): each.refusal for each in found.widths if each.refusal}
    assert {("weight_bits", 19), ("data_bits", 13), ("gate_bits", 11)} <= set(refused)
    assert all(bits > (getattr(numbers, name) or 12) for name, bits in refused if name != "gate_bits")
    assert "at most 12 with direct tables" in refused["data_bits", 13]


@pytest.mark.parametrize(
    "bits, share, said", [(-1, 0.9, True), (-1, 1.0, True), (-1, 1.01, False), (1, 0.9, False)]
)
def test_a_bit_less_that_is_no_worse_is_named(bits: int, share: float, said: bool) -> None:
    network = small_network()
    x = np.random.default_rng(1).normal(size=(50, 4, network.inputs))
    numbers = QuantizationSettings(weight_bits=6, data_bits=7, gate_bits=8, cell_bits=10)
    errors = measure_errors(quantise(network, numbers, x), Samples.of(x, 3), network)
    rms = share * errors.output.rms_error
    width = WidthErrors(
        changes={"gate_bits": 8 + bits},
        bits=bits,
        rms_error=rms,
        max_abs_error=share * errors.output.max_abs_error,
    )
    words = f" One bit less is no worse: `gate_bits=7`, {errors.output.rms_error:.3g} -> {rms:.3g}."
    assert (words in conclude_widths(errors.replace(widths=(width,)))) is said


def test_what_a_change_costs_is_told() -> None:
    now, then = (
        Cost(device="ice", luts=luts, block_rams=3, memory_bits=9, step_latency_cycles=70)
        for luts in (1000, 1200)
    )
    assert then.growth(now) == pytest.approx(0.2)
    advice = Advice(
        changes={"weight_bits": 7}, options={}, rms_error=0.25, max_abs_error=1, cost=then, cost_now=now
    )
    text = "`weight_bits=7` gives 0.25 rms and takes 1,000 -> 1,200 LUTs, 3 block RAMs, 70 cycles on ice"
    assert advice.text == text
    other = Cost(memory_bits=1200, step_latency_cycles=70)
    assert other.change_text(other) == "1,200 bits of memory, 70 cycles"


def test_what_is_said_of_the_data(tmp_path) -> None:
    network = small_network()
    x, other = inputs(network, 3), inputs(network, 4)
    build = rtlstm.compile(network, folder=tmp_path / "b", calibration=x, lanes=4, macs=2, weight_bits=6)
    without = build.accuracy(other, model=network)
    assert without.widths == () and "give the same again, `calibration`" in without.remarks[0]
    assert build.accuracy(other, model=network, calibration=x).remarks == ()
    (told,) = build.accuracy(x, model=network, calibration=x).remarks
    assert told.startswith("these inputs calibrated the build")
    (told,) = build.accuracy(other, model=network, calibration=2 * x).remarks
    assert told.startswith("the build was generated with other calibration data")
