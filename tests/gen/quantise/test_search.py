"""Formats and roundings are chosen by what they give on calibration data."""

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import rms_error

from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise
from rtlstm.gen.quantise.rounding import Moments, limit_digits, round_cancelling, round_nearest
from rtlstm.gen.quantise.search import hold_back, in_pieces
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.reference import run_float
from rtlstm.spec.adders import count_digits
from rtlstm.spec.fixed import WeightFormat
from rtlstm.spec.network import Dense, Gru, Lstm, Network
from rtlstm.spec.numerics import row_parts

RNG = np.random.default_rng(0)
ON_DEVICES = {
    ("residual_of_the_input", 16),
    ("dense_of_four", 16),
    ("lstm_of_two", 8),
    ("norms_around_an_rnn", 16),
}


def correlated(*lead: int, inputs: int = 12, seed: int = 0) -> np.ndarray:
    """Inputs that follow from three hidden values."""
    mixing = np.random.default_rng(7).normal(size=(3, inputs))
    return np.tanh(np.random.default_rng(seed).normal(size=(*lead, 3)) @ mixing)


def lstm_network(units: int = 16, inputs: int = 12) -> Network:
    rng = np.random.default_rng(5)
    lstm = Lstm(
        w_ih=rng.normal(size=(4 * units, inputs)) / 2,
        w_hh=rng.normal(size=(4 * units, units)) / 4,
        bias=rng.normal(size=4 * units) / 4,
    )
    return Network(layers=(lstm, Dense(weight=rng.normal(size=(3, units)), bias=np.zeros(3))))


def fractions_of(form: WeightFormat, *matrices: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(form.finest_of_rows(part) for part in matrices)


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_changes_of_a_row_cancel(bits: int) -> None:
    """On other inputs of the same kind, sums change less than if each weight goes to the nearest."""
    x, other = correlated(2000, seed=1), correlated(2000, seed=2)
    weights, form = RNG.normal(size=(20, 12)), WeightFormat(bits)
    fractions = fractions_of(form, weights)
    errors = []
    for found in (
        round_nearest(form, (weights,), fractions),
        round_cancelling(form, (weights,), fractions, (40,), Moments.of(x)),
    ):
        assert np.abs(found.matrices[0]).max() <= form.maximum
        values = np.ldexp(found.matrices[0], -found.fractions[0][:, None])
        change = other @ (values - weights).T + found.bias_change
        errors.append(np.sqrt(np.mean(change**2)))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_rows_lose_digits_for_one_adder_less(bits: int) -> None:
    x, other = correlated(2000, seed=1), correlated(2000, seed=2)
    weights, form = RNG.normal(size=(20, 12)), WeightFormat(bits)
    weights[:, 3] = 0.0
    moments = Moments.of(x)
    found = round_cancelling(form, (weights,), fractions_of(form, weights), (40,), moments)
    terms, errors = [], []
    for rows in (found, limit_digits(found, weights, moments)):
        codes = rows.matrices[0]
        assert not codes[:, 3].any() and np.abs(codes).max() <= form.maximum
        change = other @ (np.ldexp(codes, -rows.fractions[0][:, None]) - weights).T + rows.bias_change
        terms.append(1 + count_digits(codes).sum(axis=1))
        errors.append(np.sqrt(np.mean(change**2, axis=0)))
    before, after = terms
    most = 1 << int(before.max() - 1).bit_length() - 1
    assert before.max() > most >= after.max()
    kept = before <= most
    np.testing.assert_array_equal(errors[0][kept], errors[1][kept])
    assert errors[1].mean() < 2.5 * errors[0].mean()


def test_digits_that_cannot_be_fewer_stay() -> None:
    """72, whose neighbours have as many digits or more; and rows of one term."""
    form, fractions = WeightFormat(8), (np.zeros(2, dtype=np.int64),)
    for weights in (np.array([[72.0] * 4, [1.0] * 4]), np.zeros((2, 4))):
        rows = round_nearest(form, (weights,), fractions)
        np.testing.assert_array_equal(limit_digits(rows, weights, None).matrices[0], weights)


def test_what_rounding_cannot_better_stays() -> None:
    """Weights that are exact, and weights of 0; a vector that a row does not read takes nothing over."""
    form, x = WeightFormat(6), correlated(500, inputs=12)
    exact = RNG.integers(-31, 32, size=(8, 12)) / 32.0
    exact[:, 3] = 0.0
    exact[:, 0] = 31 / 32
    found = round_cancelling(form, (exact,), fractions_of(form, exact), (40,), Moments.of(x))
    np.testing.assert_array_equal(np.ldexp(found.matrices[0], -found.fractions[0][:, None]), exact)
    assert not found.bias_change.any()
    some, none = RNG.normal(size=(8, 7)), np.zeros((8, 5))
    found = round_cancelling(form, (some, none), fractions_of(form, some, none), (40, 40), Moments.of(x))
    assert not found.matrices[1].any() and found.matrices[0].any()


def test_no_scale_is_finer_than_the_hardware_takes() -> None:
    form, weights = WeightFormat(4), RNG.normal(size=(8, 12))
    fractions = fractions_of(form, weights)
    finest = int(fractions[0].max())
    found = round_cancelling(form, (weights,), fractions, (finest,), Moments.of(correlated(300)))
    assert found.fractions[0].max() <= finest


@pytest.mark.parametrize("bits", [(4, 16), (8, 16)])
def test_searched_formats_are_better_on_other_data(bits: tuple[int, int]) -> None:
    source, x, other = lstm_network(), correlated(40, 20, seed=3), correlated(40, 20, seed=4)
    settings = QuantizationSettings(weight_bits=bits[0], data_bits=bits[1])
    plain, searched = (quantise(source, settings.replace(quick=quick), x) for quick in (True, False))
    assert rms_error(source, searched, other) < 0.8 * rms_error(source, plain, other)


def test_what_was_tried_is_told() -> None:
    source, x = lstm_network(), correlated(40, 8)
    data = Calibration.of(source, x)
    found = choose_formats(source, QuantizationSettings(weight_bits=4), data)
    first, *others = found.trials
    assert (first.choice, first.value, first.taken) == ("all", "by formulas", True)
    taken = [trial for trial in others if trial.taken]
    assert "cancelling" in [trial.value for trial in taken] and found.moments
    assert taken[-1].error < first.error
    assert choose_formats(source, QuantizationSettings(weight_bits=4), data).trials == found.trials
    quick = choose_formats(source, QuantizationSettings(weight_bits=4, quick=True), data)
    assert quick.trials == () and quick.moments == ()


def test_stated_formats_are_kept() -> None:
    source, x = lstm_network(), correlated(40, 8)
    stated = QuantizationSettings(
        weight_bits=8, data_bits=8, output_bits=8, gate_bits=9, cell_bits=14, input_range=3.0, cell_range=4.0
    )
    plain, found = (quantise(source, stated.replace(quick=quick), x).numerics for quick in (True, False))
    same = ("input", "input_factors", "gate", "cell", "cell_shifts", "output_bits")
    assert [getattr(plain, name) for name in same] == [getattr(found, name) for name in same]


def test_c_of_each_layer_has_a_range_of_its_own() -> None:
    """One c counts far, the other stays small: one format for both would be coarse."""
    counts = Lstm(w_ih=np.full((4, 1), 3.0), w_hh=np.zeros((4, 1)), bias=np.array([6.0, 6.0, 0.0, 6.0]))
    small = Lstm(w_ih=np.full((8, 1), 0.3), w_hh=np.full((8, 2), 0.1), bias=np.full(8, -1.0))
    source = Network(layers=(counts, small, Dense(weight=np.ones((1, 2)), bias=np.zeros(1))))
    x = np.random.default_rng(2).uniform(0, 1, (80, 16, 1))
    settings = QuantizationSettings(cell_bits=12)
    first, second = (shape.state for shape in quantise(source, settings, x).shapes[:2])
    assert first is not None and second is not None and first.fraction < second.fraction


def test_what_a_large_error_hid_is_tried_again() -> None:
    """h up to 1 is coarse for the second LSTM: only with a range of its own does a ninth bit gain."""
    counts = Lstm(w_ih=np.full((4, 1), 3.0), w_hh=np.zeros((4, 1)), bias=np.array([6.0, 6.0, 0.0, 6.0]))
    small = Lstm(w_ih=np.full((8, 1), 0.3), w_hh=np.full((8, 2), 0.1), bias=np.full(8, -1.0))
    source = Network(layers=(counts, small, Dense(weight=np.ones((1, 2)), bias=np.zeros(1))))
    data = Calibration.of(source, np.random.default_rng(2).uniform(0, 1, (80, 16, 1)))
    found = choose_formats(source, QuantizationSettings(data_bits=8), data)
    first, again = (trial for trial in found.trials if trial.choice == "bits of h")
    assert not first.taken and again.taken and again.error < 0.5 * first.error
    assert found.candidate.more_hidden_bits == 1


def test_held_back_data_set_no_range() -> None:
    source = lstm_network(inputs=5)
    fit, held = hold_back(source, Calibration.of(source, RNG.normal(size=(300, 8, 5))))
    assert (fit.sequences, held.sequences) == (6, 2)
    few = Calibration.of(source, RNG.normal(size=(30, 8, 5)))
    assert [part.sequences for part in hold_back(source, few)] == [4, 4]
    one = Calibration.of(source, RNG.normal(size=(400, 5)))
    fit, held = hold_back(source, one)
    np.testing.assert_array_equal(np.concatenate([fit.x, held.x]), one.x)
    whole = run_float(source, one.x)
    np.testing.assert_allclose(run_float(source, held.x, held.state).y, whole.y[fit.steps :], atol=1e-12)
    least = Calibration.of(source, RNG.normal(size=(3, 5)))
    assert hold_back(source, least) == (least, least)
    # Steps that no sequence has are not there to be held back.
    padded = Calibration.of(source, RNG.normal(size=(400, 5)), lengths=[30])
    assert [part.total_steps for part in hold_back(source, padded)] == [30, 30]


def test_pieces_go_on_where_the_piece_before_ended() -> None:
    source = lstm_network(inputs=5)
    one = Calibration.of(source, RNG.normal(size=(100, 5)))
    pieces = in_pieces(source, one, 32)
    assert pieces.x.shape == (32, 3, 5)
    found = run_float(source, pieces.x, pieces.state).y.swapaxes(0, 1).reshape(96, -1)
    np.testing.assert_allclose(found, run_float(source, one.x).y[:96, 0], atol=1e-12)
    assert in_pieces(source, one, 64) is one


@pytest.mark.parametrize("name", ["gru", "rnn", "projections", "residuals", "custom_c"])
def test_other_kinds_are_searched(name: str) -> None:
    source = CELL_NETWORKS[name]
    x = np.random.default_rng(1).normal(size=(40, 8, source.inputs))
    settings = QuantizationSettings(weight_bits=4)
    plain, found = (quantise(source, settings.replace(quick=quick), x) for quick in (True, False))
    assert rms_error(source, found, x) < rms_error(source, plain, x)


def test_rows_of_a_gru_that_read_one_vector_alone_do_so_still() -> None:
    rng = np.random.default_rng(3)
    gru = Gru(
        w_ih=rng.normal(size=(9, 4)),
        w_hh=rng.normal(size=(9, 3)),
        bias_ih=np.zeros(9),
        bias_hh=np.zeros(9),
        reset_after=True,
    )
    x = np.random.default_rng(1).normal(size=(50, 8, 4))
    plain, found = (
        quantise(Network(layers=(gru,)), QuantizationSettings(weight_bits=4, quick=quick), x).layers[0]
        for quick in (True, False)
    )
    for mine, theirs in zip(row_parts(plain), row_parts(found), strict=True):
        np.testing.assert_array_equal(mine.weights.any(axis=1), theirs.weights.any(axis=1))


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        pytest.param(name, bits, marks=() if (name, bits) in ON_DEVICES else pytest.mark.slow)
        for name in CELL_NETWORKS
        for bits in (8, 16)
    ],
)
def test_a_loadable_device_takes_the_network_that_it_was_made_from(name: str, bits: int) -> None:
    """The search chose the device's formats; the next build of the network takes them."""
    network, rng = CELL_NETWORKS[name], np.random.default_rng(1)
    x = rng.normal(size=(12, 8, network.inputs)) * rng.uniform(0.2, 3.0)
    settings = QuantizationSettings(weight_bits=8, data_bits=bits)
    device = quantise(network, settings, x, hardware=TargetHardware(headroom=4))
    found = quantise(network, settings, x, hardware=TargetHardware(headroom=4, device=device.numerics))
    assert rms_error(network, found, x) <= 1.5 * rms_error(network, device, x)
