"""Quantisation: scales, ranges, bounds, and what is refused."""

import numpy as np
import pytest

from rtlstm.gen.quantise import QuantizationSettings, quantise
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.network import Dense, Lstm, Network
from rtlstm.spec.numerics import QuantizedDense, QuantizedRecurrent


def network(scale: float = 1.0, inputs: int = 5, units: int = 6) -> Network:
    rng = np.random.default_rng(2)
    return Network(
        layers=(
            Lstm(
                w_ih=scale * rng.normal(size=(4 * units, inputs)),
                w_hh=scale * rng.normal(size=(4 * units, units)),
                bias=rng.normal(size=4 * units),
            ),
            Dense(weight=rng.normal(size=(2, units)), bias=rng.normal(size=2)),
        )
    )


@pytest.mark.parametrize("bits", [2, 5, 8, 18])
def test_every_row_uses_its_bits(bits: int) -> None:
    quantised = quantise(network(), QuantizationSettings(weight_bits=bits))
    lstm, dense = quantised.layers
    assert isinstance(lstm, QuantizedRecurrent)
    assert isinstance(dense, QuantizedDense)
    most = (1 << (bits - 1)) - 1
    for weights in (lstm.w_ih, lstm.w_hh, dense.weight):
        rows = np.abs(weights).max(axis=1)
        assert rows.max() <= most
        # The finest power of two at which a row fits leaves its largest weight above a third.
        assert rows.min() >= max(1, most // 3)


def test_reconstructed_weights_are_within_half_a_step() -> None:
    source = network()
    quantised = quantise(source, QuantizationSettings(weight_bits=8))
    numerics, lstm = quantised.numerics, quantised.layers[0]
    assert isinstance(lstm, QuantizedRecurrent)
    target = numerics.preactivation.fraction + 4
    for ints, shift, fraction, weights in (
        (lstm.w_ih, lstm.shift_ih, numerics.input.fraction, source.layers[0].w_ih),
        (lstm.w_hh, lstm.shift_hh, numerics.hidden.fraction, source.layers[0].w_hh),
    ):
        scale = shift - numerics.accumulator.align + target - fraction
        error = np.abs(np.ldexp(ints.astype(float), -scale[:, None]) - weights)
        assert (error <= np.ldexp(0.5, -scale)[:, None] * (1 + 1e-12)).all()


def test_zero_rows_and_one_unit() -> None:
    zero = Network(layers=(Lstm(w_ih=np.zeros((4, 1)), w_hh=np.zeros((4, 1)), bias=np.zeros(4)),))
    quantised = quantise(zero)
    assert not quantised.layers[0].w_ih.any()


def test_calibration_sets_the_input_range() -> None:
    x = np.random.default_rng(0).uniform(-0.9, 0.9, size=(40, 5))
    assert quantise(network(), calibration=x).numerics.input.fraction == 15
    assert quantise(network()).numerics.input.fraction == 12
    chosen = QuantizationSettings(input_range=100.0)
    assert quantise(network(), chosen, x).numerics.input.fraction == 8


def test_cell_range_may_be_chosen() -> None:
    settings = QuantizationSettings(cell_range=4.0)
    assert quantise(network(), settings).numerics.cell.fraction == 13


def test_bounds_hold_for_random_inputs() -> None:
    quantised = quantise(network(3.0), QuantizationSettings(weight_bits=8, data_bits=8))
    lstm, bound = quantised.layers[0], quantised.numerics.accumulator
    assert isinstance(lstm, QuantizedRecurrent)
    x = np.random.default_rng(1).integers(-128, 127, size=(5, 200))
    assert np.abs(lstm.w_ih @ x).max() <= bound.bound < 1 << (bound.bits - 1)


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (np.zeros((4, 6)), r"must be \(T, 5\) or \(T, N, 5\)"),
        (np.zeros((0, 5)), "not empty"),
        (np.full((4, 5), np.nan), "must be finite"),
        (np.zeros((4, 5), dtype=complex), "real numbers"),
        (np.array([["a"] * 5]), "real numbers"),
    ],
)
def test_bad_calibration_is_refused(calibration: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        quantise(network(), calibration=calibration)


def test_unbuildable_formats_are_refused() -> None:
    settings = QuantizationSettings(data_bits=16, gate_bits=8)
    with pytest.raises(ConfigurationError, match="gates have 16 to 18 bits"):
        quantise(network(), settings)


@pytest.mark.parametrize(
    ("scale", "bias", "message"),
    [
        (1e12, 0.0, "layer 'lstm' has weights and biases up to"),
        (1e300, 0.0, "layer 'lstm' has weights and biases up to"),
        (1.0, -1e14, "layer 'lstm' has weights and biases up to 1e\\+14"),
    ],
)
def test_sums_too_large_to_build_are_refused(scale: float, bias: float, message: str) -> None:
    source = network(scale).layers[0]
    lstm = source.replace(bias=source.bias + bias)
    with pytest.raises(ConfigurationError, match=message):
        quantise(Network(layers=(lstm,)))


def test_calibration_at_a_power_of_two_is_not_limited() -> None:
    x = np.full((10, 5), 8.0)
    quantised = quantise(network(), calibration=x)
    assert quantised.numerics.input.saturated(x) == 0
