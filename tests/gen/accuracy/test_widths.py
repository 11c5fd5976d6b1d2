"""Other widths: what is promised for one is what a build that is generated with it has."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from support.cell_networks import CELL_NETWORKS
from support.drawn_networks import DrawnBuild, drawn_builds
from support.small_builds import network as small_network

from rtlstm.gen.accuracy.measure import fixed_outputs, measure_widths
from rtlstm.gen.accuracy.samples import Samples
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import (
    FormatRequest,
    QuantizationSettings,
    choose_formats,
    quantise,
    quantise_with,
    remember,
)
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Dense, Lstm, Network
from rtlstm.spec.numerics import QuantizedNetwork

common = settings(
    max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@common
@given(drawn_builds(whole=False))
def test_a_build_is_quantised_again_without_its_data(drawn: DrawnBuild) -> None:
    check(drawn)


@common
@given(drawn_builds(whole=True))
def test_whole_sequences_are_quantised_again_without_their_data(drawn: DrawnBuild) -> None:
    check(drawn)


def check(drawn: DrawnBuild) -> None:
    """Settings with a bit more and a stated range of c give what they give with the data at hand."""
    network, rng = drawn.network, np.random.default_rng(drawn.seed)
    # Features of different sizes have shifts, which depend on the widths.
    x = rng.normal(size=(8, 2, network.inputs)) * 10.0 ** rng.integers(-3, 1, network.inputs)
    data = Calibration.of(network, x) if drawn.calibrated else None
    settings = drawn.settings.replace(quick=True)
    try:
        choices = choose_formats(network, settings, data)
        before = quantise_with(network, settings, choices)
    except ConfigurationError:
        reject()
    calibrated = None if data is None else remember(data, choices)
    request = FormatRequest(settings=settings, calibrated=calibrated)
    cell = before.numerics.cell
    kept = {"cell_range": 2.0 ** (cell.bits - 1 - cell.fraction), "final_states": None}
    kept = kept if request.searches(network) else {}
    for change in ({"weight_bits": settings.weight_bits + 1}, {"cell_bits": cell.bits + 1}):
        try:
            wider = settings.replace(**change, **kept)
            wanted = quantise(network, wider, data)
        except ConfigurationError:
            continue
        same(FormatRequest(settings=wider, calibrated=calibrated).quantise(network), wanted)


def same(one: QuantizedNetwork, other: QuantizedNetwork) -> None:
    assert one.numerics == other.numerics
    assert one.shapes == other.shapes
    for a, b in zip(one.layers, other.layers, strict=True):
        for name in vars(a):
            assert np.array_equal(np.asarray(getattr(a, name)), np.asarray(getattr(b, name)))


def wide_state() -> Network:
    """An LSTM whose forget gates are almost 1, so that c grows large and its range is worth bits."""
    rng = np.random.default_rng(7)
    bias = np.concatenate([np.full(12, value) for value in (1.0, 4.0, 0.0, 0.0)])
    lstm = Lstm(w_ih=rng.normal(size=(48, 3)) / 2, w_hh=rng.normal(size=(48, 12)) / 8, bias=bias)
    return Network(layers=(lstm, Dense(weight=rng.normal(size=(2, 12)) / 4, bias=np.zeros(2))))


BUILDS = {
    "narrow state": (wide_state(), {"cell_bits": 10, "weight_bits": 14, "data_bits": 14, "gate_bits": 16}),
    "final states": (wide_state(), {"cell_bits": 10, "weight_bits": 10, "final_states": True}),
    "stated gates": (small_network(), {"weight_bits": 10, "data_bits": 8, "gate_bits": 8}),
    "gru": (CELL_NETWORKS["gru"], {"weight_bits": 6, "data_bits": 8}),
    "not calibrated": (small_network(), {"weight_bits": 5, "data_bits": 7}),
    "loadable": (small_network(), {"weight_bits": 6, "data_bits": 9}),
}


@pytest.mark.parametrize("name", BUILDS)
def test_what_is_promised_is_what_is_got(name: str) -> None:
    """Follow the advice: each width that is named, on data that did not calibrate the build."""
    network, given = BUILDS[name]
    rng = np.random.default_rng(3)
    sizes = 10.0 ** -np.arange(network.inputs)
    x, other = (rng.normal(size=(60, 3, network.inputs)) * sizes for _ in range(2))
    data = None if name == "not calibrated" else Calibration.of(network, x)
    hardware = TargetHardware(headroom=1) if name == "loadable" else None
    asked = QuantizationSettings(**given, quick=True)
    choices = choose_formats(network, asked, data, hardware)
    request = FormatRequest(
        settings=asked,
        calibrated=None if data is None else remember(data, choices),
        headroom=None if hardware is None else hardware.headroom,
    )
    samples, exact = Samples.of(other, network.inputs), run_float(network, other).y
    before = quantise_with(network, asked, choices, hardware)
    promised = list(measure_widths(network, before, request, samples, exact, lambda: None))
    built = [each for each in promised if each.rms_error is not None]
    assert len(built) > 4
    for width in built:
        changes = {width.option: width.bits, **width.also, **dict.fromkeys(width.less)}
        got = quantise(network, asked.replace(**changes), data, hardware=hardware)
        error = fixed_outputs(got, samples) - exact
        assert width.rms_error == float(f"{np.sqrt(np.mean(error**2)):.5g}")
        assert width.max_abs_error == float(f"{np.abs(error).max():.5g}")
    now = np.sqrt(np.mean((fixed_outputs(before, samples) - exact) ** 2))
    wider = next(each for each in built if (each.option, each.change) == ("cell_bits", 1))
    if name == "narrow state":  # A search anew would spend the bit on the range.
        assert wider.rms_error < 0.8 * now
        assert wider.also
