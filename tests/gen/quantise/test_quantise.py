"""Quantisation: scales, ranges, bounds, and what is refused."""

import numpy as np
import pytest
from support.golden_runs import golden_outputs

from rtlstm import CellBuilder, ConfigurationError, Custom, Dense, Gru, InputError, Lstm, Network, Rnn
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import IDENTITY, RELU, SIGMOID, ActivationFunction
from rtlstm.spec.cells.evaluate import rounded_gates
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import QuantizedDense, QuantizedRecurrent, bound_sums


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
    lstm, dense = quantise(network(), QuantizationSettings(weight_bits=bits)).layers
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


def _halves(gate: str, clip: float | None = None) -> list[int]:
    """What is added to the zero biases of a GRU that resets before the product: rows r, z, n, unused."""
    gru = Gru(
        w_ih=np.ones((6, 1)),
        w_hh=np.ones((6, 2)),
        bias_ih=np.zeros(6),
        bias_hh=np.zeros(6),
        gate=ActivationFunction.of(gate),
        clip=clip,
        reset_after=False,
    )
    reset, candidate = quantise(Network(layers=(gru,))).layers
    assert not candidate.bias.any()
    return reset.bias[::2].tolist()


def test_half_units_of_what_is_not_rounded_down() -> None:
    """The second layer reads z and n, whose sums the first one begins; no table reads a hard sigmoid's."""
    assert _halves("sigmoid") == _halves("sigmoid", 3.0) == [0, 0, 0, 0]
    assert _halves("hard_sigmoid") == [8, 8, 0, 0]
    rows = {"w_ih": np.ones((1, 1)), "w_hh": np.ones((1, 1)), "bias": np.zeros(1)}
    heads = {"identity": 8, "relu": 8, "sigmoid": 0, "tanh": 0}
    for name, half in heads.items():
        dense = Dense(weight=np.ones((1, 1)), bias=np.zeros(1), activation=name)
        rnn = Rnn(**rows, activation=ActivationFunction.of(name))
        quantised = quantise(Network(layers=(rnn, dense)))
        assert [layer.bias.tolist() for layer in quantised.layers] == [[half], [half]]


def test_a_gate_that_is_also_multiplied_is_rounded_half_up() -> None:
    """Its table is not a middle one, and reads it symmetrically saturated."""
    cell = CellBuilder()
    gate = cell.gate(0)
    built = cell.build("swish", gate * cell.apply(SIGMOID, gate))
    assert rounded_gates(built) == {0}
    layer = Custom(cell=built, w_ih=np.ones((1, 1)), w_hh=np.zeros((1, 1)), bias=np.zeros(1))
    quantised = quantise(Network(layers=(layer,)))
    (graph,), (table,) = quantised.numerics.cells, quantised.numerics.tables
    assert [node.kind for node in graph.nodes][:3] == ["gate", "narrow", "table"]
    assert quantised.layers[0].bias.tolist() == [8, 0, 0, 0] and not table.middle


def test_zero_rows_and_one_unit() -> None:
    zero = Network(layers=(Lstm(w_ih=np.zeros((4, 1)), w_hh=np.zeros((4, 1)), bias=np.zeros(4)),))
    assert not quantise(zero).layers[0].w_ih.any()


def test_calibration_sets_the_input_range() -> None:
    x = np.random.default_rng(0).uniform(-0.9, 0.9, size=(40, 5))
    assert quantise(network(), calibration=x).numerics.input.fraction == 15
    assert quantise(network()).numerics.input.fraction == 12
    chosen = QuantizationSettings(input_range=100.0)
    assert quantise(network(), chosen, x).numerics.input.fraction == 8


def test_cell_range_may_be_chosen() -> None:
    settings = QuantizationSettings(cell_range=np.array([4.0]))
    assert quantise(network(), settings).numerics.cell.fraction == 13
    for given, words in (
        (-1, "`cell_range` must be greater than or equal to 0.000000001, not -1"),
        ("1,x", "`cell_range` must be a valid number, unable to parse string as a number, not 'x'"),
    ):
        with pytest.raises(ConfigurationError, match=f"^{words}$"):
            QuantizationSettings(cell_range=given)
    with pytest.raises(ConfigurationError, match="fraction bits, .* -32 to 64; choose a `cell_range` near"):
        quantise(network(), QuantizationSettings(cell_range=2.0**-29, cell_bits=24))


def test_bounds_hold_for_random_inputs() -> None:
    quantised = quantise(network(3.0), QuantizationSettings(weight_bits=8, data_bits=8))
    lstm, numerics = quantised.layers[0], quantised.numerics
    bounds = bound_sums(quantised.layers, numerics.input, numerics.accumulator.align)
    assert isinstance(lstm, QuantizedRecurrent)
    x = np.random.default_rng(1).integers(-128, 127, size=(5, 200))
    bound = bounds.lanes[0].magnitude
    assert np.abs(lstm.w_ih @ x).max() <= bound < 1 << (numerics.accumulator.bits - 1)


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (np.zeros((4, 6)), r"must be \(T, 5\) or \(T, N, 5\)"),
        (np.zeros((0, 5)), "not empty"),
        (np.full((4, 5), np.nan), r"must be finite, but calibration data\[0, 0\] is nan and 19 more"),
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


def test_calibration_at_a_power_of_two_does_not_saturate() -> None:
    x = np.full((10, 5), 8.0)
    assert quantise(network(), calibration=x).numerics.input.saturated(x) == 0


@pytest.mark.parametrize("reverse", [False, True])
def test_calibration_stops_at_each_length(reverse: bool) -> None:
    """A word between zeros that are never read: as if each sequence stood alone."""
    source = network()
    lstm = source.layers[0].replace(reverse=reverse, bias=source.layers[0].bias + 2.0)
    model = Network(layers=(lstm, source.layers[1]))
    x = np.random.default_rng(3).uniform(-1, 1, (9, 2, 5))
    padded, lengths = x.copy(), [9, 2]
    padded[2:, 1] = 100.0
    found = quantise(model, QuantizationSettings(quick=True), padded, lengths)
    assert found.numerics.input.fraction == 15
    runs = [run_float(model, x[:length, index : index + 1]) for index, length in enumerate(lengths)]
    max_abs = 1.25 * max(run.layers[1] for run in runs)
    assert found.shapes[-1].output == Format.covering(16, max_abs)
    longer = 1.25 * run_float(model, x).layers[1]
    assert longer > max_abs, "the case must tell lengths from none"


@pytest.mark.parametrize("lengths", [[2], [0, 3], [5, 1], [1.0, 2.0]])
def test_wrong_calibration_lengths_are_refused(lengths: list[int]) -> None:
    with pytest.raises(InputError, match="must be 2 integers, one per sequence, within 1 to 4"):
        quantise(network(), calibration=np.zeros((4, 2, 5)), lengths=lengths)


@pytest.mark.parametrize("calibrated", [True, False])
def test_values_that_grow_without_bound_are_refused(calibrated: bool) -> None:
    grows = Rnn(w_ih=np.ones((2, 3)), w_hh=np.full((2, 2), 1e9), bias=np.ones(2), activation=RELU)
    x = np.ones((100, 1, 3)) if calibrated else None
    with pytest.raises(ConfigurationError, match="activations have no bounds"):
        quantise(Network(layers=(grows,)), calibration=x)


def test_cells_that_take_no_finer_formats_are_calibrated_in_their_own() -> None:
    """The search for a cell range uses finer formats, too wide for some LSTMs without output activation."""
    rng = np.random.default_rng(4)
    w_ih, w_hh, bias = (rng.normal(size=shape) for shape in ((12, 2), (12, 3), 12))
    layer = Lstm(w_ih=w_ih, w_hh=w_hh * 0.3, bias=bias, output_activation=IDENTITY)
    network, x = Network(layers=(layer,)), rng.uniform(-1, 1, (20, 1, 2))
    found = quantise(network, QuantizationSettings(data_bits=12, gate_bits=12), calibration=x)
    np.testing.assert_allclose(golden_outputs(found, x), run_float(network, x).y, atol=0.02)
