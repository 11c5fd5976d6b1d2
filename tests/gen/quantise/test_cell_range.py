"""The range of the cell state that calibration data give: whole sequences, room for other data, states."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.golden_runs import golden_outputs
from support.loadable_builds import Build

import rtlstm.gen.quantise.ranges
from rtlstm import Accelerator, ConfigurationError, InputError, Manifest, Parameters, SaturationWarning
from rtlstm.gen.quantise.accuracy import measure_accuracy
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.ranges import search_sample
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Bidirectional, Dense, Gru, Lstm, Network
from rtlstm.spec.numerics import QuantizedNetwork

Floats = NDArray[np.float64]


def integrating(seed: int = 0, units: int = 12, inputs: int = 3) -> Network:
    """As of a network that was trained to add up what it reads: half of its units hardly forget."""
    rng, half = np.random.default_rng(seed), units // 2
    w_ih = rng.normal(size=(4, units, inputs)) * 0.6
    w_hh = rng.normal(size=(4, units, units)) * 0.25
    bias = rng.normal(size=(4, units)) * 0.3
    bias[0, :half], bias[1, :half] = np.log(0.3 / 0.7), 6.0 + rng.normal(size=half)
    w_ih[1, :half] *= 0.3
    w_hh[1, :half] *= 0.2
    bias[2, :half] += rng.choice([-0.6, 0.6], half)
    lstm = Lstm(w_ih=w_ih.reshape(-1, inputs), w_hh=w_hh.reshape(-1, units), bias=bias.reshape(-1))
    return Network(layers=(lstm, Dense(weight=rng.normal(size=(2, units)), bias=rng.normal(size=2))))


def drawn(seed: int, units: int = 10, inputs: int = 4) -> Network:
    rng = np.random.default_rng(seed)
    w_ih, w_hh = rng.normal(size=(4 * units, inputs)), rng.normal(size=(4 * units, units)) / np.sqrt(units)
    lstm = Lstm(w_ih=w_ih, w_hh=w_hh, bias=rng.normal(size=4 * units))
    return Network(layers=(lstm, Dense(weight=rng.normal(size=(2, units)), bias=rng.normal(size=2))))


def counting(step: float) -> Network:
    """A unit that adds ``step`` to c for each 1 that it reads, and one whose c needs fine steps."""
    w_ih = np.zeros((4, 2, 1))
    w_ih[2, 0, 0] = np.arctanh(step)
    bias = np.full((4, 2), 12.0)
    bias[2] = 0.0
    bias[1, 1] = 3.0
    w_ih[2, 1, 0] = 0.1
    return Network(layers=(Lstm(w_ih=w_ih.reshape(8, 1), w_hh=np.zeros((8, 2)), bias=bias.reshape(8)),))


def error(network: Network, quantised: QuantizedNetwork, x: Floats) -> float:
    """The largest of the outputs."""
    return float(np.abs(golden_outputs(quantised, x) - run_float(network, x).y).max())


def cell_range(quantised: QuantizedNetwork) -> float:
    form = quantised.numerics.cell
    return float(2.0 ** (form.bits - 1 - form.fraction))


def test_more_sequences_do_not_make_formats_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """c grows over all 60 steps, whose first few say nothing of its range; few sequences tell it, too."""
    network = integrating()
    held_out = np.random.default_rng(9).uniform(-1, 1, (60, 100, 3))
    errors = {}
    for count in (10, 100, 500):
        x = np.random.default_rng(1).uniform(-1, 1, (60, count, 3))
        errors[count] = error(network, quantise(network, calibration=x), held_out)
    monkeypatch.setattr(rtlstm.gen.quantise.ranges, "_WORK", 0)
    assert search_sample(network, Calibration.of(network, x)).sequences == 34
    errors[34] = error(network, quantise(network, calibration=x), held_out)
    assert max(errors.values()) < 1.1 * errors[10] < 0.002, errors


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_other_data_have_room(seed: int) -> None:
    """Few data: c reaches 2.7 to 3.3 in them, and nearly twice that in others."""
    network, rng = drawn(seed), np.random.default_rng(200 + seed)
    x, held_out = rng.normal(size=(40, 4, 4)), rng.normal(size=(40, 200, 4))
    chosen = quantise(network, calibration=x)
    errors = {
        max_abs: error(network, quantise(network, QuantizationSettings(cell_range=max_abs), x), held_out)
        for max_abs in (2.0, 4.0, 8.0, 16.0)
    }
    assert errors[cell_range(chosen)] < 2 * min(errors.values()), (cell_range(chosen), errors)


def test_a_range_that_lessens_the_error_is_taken_though_it_limits() -> None:
    """c reaches 14, but h has long been all but 1: finer steps are worth more."""
    x = np.random.default_rng(1).uniform(-1, 1, (60, 10, 3))
    network = integrating()
    assert run_float(network, x).cell > 12 and cell_range(quantise(network, calibration=x)) == 8


def test_what_the_network_limits_itself_needs_no_room() -> None:
    lstm, dense = integrating().layers
    assert isinstance(lstm, Lstm)
    clipped = Network(layers=(lstm.replace(cell_clip=2.0), dense))
    x = np.random.default_rng(1).uniform(-1, 1, (60, 10, 3))
    assert cell_range(quantise(clipped, calibration=x)) == 2


def test_samples_are_whole_sequences() -> None:
    network = integrating()
    lengths = np.resize([3, 60, 20, 41], 400)
    x = np.random.default_rng(0).uniform(-1, 1, (60, 400, 3))
    x[0, :, 0] = np.arange(400)
    h, c = np.random.default_rng(1).uniform(-1, 1, (2, 1, 400, 12))
    whole = Calibration.of(network, x, lengths, (h, c))
    assert whole.sample(whole.total_steps) is whole
    for steps in (60, 100, 1000, 10_000, whole.total_steps - 1):
        some = whole.sample(steps)
        chosen = some.x[0, :, 0].astype(int)
        # As many as go in: one more of the longest would be too many.
        assert steps - 2 * 60 < some.total_steps <= steps
        assert np.array_equal(some.lengths, lengths[chosen])
        assert np.array_equal(some.x, whole.x[: some.steps, chosen])
        assert some.state is not None
        assert np.array_equal(some.state[0][0], h[0, chosen]) and np.array_equal(
            some.state[1][0], c[0, chosen]
        )
        if some.sequences > 3:
            assert np.ptp(np.diff([-1, *chosen, 400])) <= 400 / some.sequences + 1, "drawn evenly"
    cut = Calibration.of(network, x[:, :1]).sample(7)
    assert np.array_equal(cut.x, x[:7, :1]) and cut.lengths.tolist() == [7]


def test_it_is_said_how_much_was_searched() -> None:
    network = integrating()
    few = Calibration.of(network, np.zeros((60, 10, 3)))
    many = Calibration.of(network, np.zeros((60, 5000, 3)))
    long = Calibration.of(network, np.zeros((400_000, 3)))
    assert search_sample(network, few).share_of(few) == "the calibration data"
    assert search_sample(network, many).share_of(many).startswith("2099 of 5000 sequences of the calib")
    assert search_sample(network, long).share_of(long).startswith("the first 125944 of 400000 steps of")


def open_build(folder: Path, quantised: QuantizedNetwork) -> Accelerator:
    """A build of the driver's part alone, on the golden model."""
    manifest = Manifest.of("small", quantised, Parameters(lanes=4, macs=2, streams=8))
    return Accelerator.open(Build(quantised, manifest).save(folder))


LETTERS = np.random.default_rng(5).integers(1, 29, 64)
"""How many letters each sequence has that the encoder counts up and the decoder down."""


def ones(lengths: NDArray[np.int64], steps: int) -> Floats:
    return (np.arange(steps)[:, None] < lengths).astype(float)[..., None]


def answers(y: Floats) -> NDArray[np.int64]:
    """The letters that the decoder gives until its count is 0."""
    return np.asarray((y[..., 0] > 0.5).sum(axis=0))


def encode(folder: Path, settings: QuantizationSettings) -> tuple[Floats, Floats]:
    """Final states of an encoder on the golden model."""
    encoder, x = counting(0.995), ones(LETTERS, 28)
    with open_build(folder, quantise(encoder, settings, x, LETTERS)) as accelerator:
        return accelerator.run(x, LETTERS)[1]


def test_an_encoders_state_goes_on_into_a_decoder(tmp_path: Path) -> None:
    """c reaches 28; the encoder's own outputs tell nothing of what lies beyond 8."""
    decoder, states = counting(-0.995), run_float(counting(0.995), ones(LETTERS, 28), lengths=LETTERS)
    begin = np.stack(states.h), np.stack(states.c)
    x = np.ones((30, 64, 1))
    assert 27 < begin[1].max() < 28
    wanted = answers(run_float(decoder, x, (states.h, states.c)).y)
    # With the step that takes c below a half.
    assert np.array_equal(wanted, LETTERS - 1)
    given = encode(tmp_path / "encoder", QuantizationSettings())
    np.testing.assert_allclose(given[1], begin[1], atol=0.05)
    with open_build(tmp_path / "decoder", quantise(decoder, calibration=x, state=begin)) as accelerator:
        assert np.array_equal(answers(accelerator.run(x, state=given)[0]), wanted)
    with pytest.warns(SaturationWarning, match="values of c_n are at the limits of their format, .-7.9"):
        cut = encode(tmp_path / "cut", QuantizationSettings(final_states=False))
    with open_build(tmp_path / "wrong", quantise(decoder, calibration=x, state=begin)) as accelerator:
        wrong = np.count_nonzero(answers(accelerator.run(x, state=cut)[0]) != wanted)
    assert wrong > 16, "the case must need the range"


def test_saturated_states_are_told_with_the_range_they_need(tmp_path: Path) -> None:
    """What a decoder is given, and what an encoder gives."""
    decoder, x = counting(-0.995), np.ones((3, 2, 1))
    state = np.zeros((1, 2, 2)), np.array([[[3.0, 0.0], [27.9, -0.1]]])
    with open_build(tmp_path / "decoder", quantise(decoder, calibration=x)) as accelerator:
        assert cell_range(quantise(decoder, calibration=x)) < 27
        with pytest.warns(
            SaturationWarning, match=r"1 of 4 values of c_0 were outside.*`cell_range=32`,"
        ) as told:
            accelerator.run(x, state=state)
        assert told[0].filename == __file__
    settings = QuantizationSettings(cell_range=8.0)
    with pytest.warns(SaturationWarning, match=r"128 values of c_n are at.*`cell_range=16` or more") as told:
        encode(tmp_path / "encoder", settings)
    with (
        open_build(tmp_path / "stream", quantise(counting(0.995), settings)) as accelerator,
        accelerator.stream() as stream,
    ):
        stream.steps(np.ones((12, 1)))
        with pytest.warns(SaturationWarning, match="1 of 2 values of c are at the limits") as told:
            assert stream.state[1][0, 0] < 8
        assert told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert stream.state_integers[1][0, 0] == 2**15 - 1


def test_states_of_a_network_that_ends_in_a_dense_layer() -> None:
    """Its outputs decide alone, unless final states are asked for; the report's figures tell of the rest."""
    (lstm,) = counting(0.995).layers
    network = Network(layers=(lstm, Dense(weight=np.array([[0.02, 0.3]]), bias=np.zeros(1))))
    x = ones(LETTERS, 28)
    narrow, held = (
        quantise(network, QuantizationSettings(final_states=asked, quick=True), x, LETTERS)
        for asked in (None, True)
    )
    assert cell_range(narrow) <= 16 < 28 * 1.25 < cell_range(held) == 64
    found = measure_accuracy(network, narrow, Calibration.of(network, x, LETTERS))
    assert 27 < found.max_abs_final_cell <= found.max_abs_cell < 28


@pytest.mark.parametrize("both", [False, True])
def test_initial_states_are_run(both: bool) -> None:
    """A range for data that begin far out: from zero states, nothing of it is seen."""
    rng = np.random.default_rng(3)
    forward, dense = integrating().layers
    assert isinstance(forward, Lstm) and isinstance(dense, Dense)
    layer = forward if not both else Bidirectional(forward=forward, backward=forward.replace(reverse=True))
    network = Network(layers=(layer, dense.replace(weight=np.tile(dense.weight, 2 if both else 1))))
    x = rng.uniform(-1, 1, (5, 20, 3))
    h, c = rng.uniform(-0.9, 0.9, (2, 1 + both, 20, 12))
    state = h, c * 40
    # With these bits, a range that is wider than it must be is coarser.
    settings = QuantizationSettings(cell_bits=16)
    without, found = (quantise(network, settings, x, state=begin) for begin in (None, state))
    assert cell_range(without) < 36 < cell_range(found) == 64
    errors = [
        measure_accuracy(network, quantised, Calibration.of(network, x, state=state)).max_abs_error
        for quantised in (without, found)
    ]
    assert errors[1] < 0.02 < errors[0]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (np.zeros((2, 1, 4, 12)), r"pair \(h_0, c_0\)"),
        (
            (np.zeros((1, 4, 12)), np.zeros((1, 3, 12))),
            r"c_0 of calibration data must be an array \(1, 4, 12\)",
        ),
        (
            (np.zeros((1, 4, 12), int), np.zeros((1, 4, 12))),
            "h_0 of calibration data must hold finite floats",
        ),
        (
            (np.zeros((1, 4, 12)), np.full((1, 4, 12), np.inf)),
            "c_0 of calibration data must hold finite floats",
        ),
    ],
)
def test_wrong_initial_states_are_refused(state: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        quantise(integrating(), calibration=np.zeros((6, 4, 3)), state=state)


def test_initial_states_need_data() -> None:
    with pytest.raises(InputError, match="initial states of calibration data need the data"):
        quantise(integrating(), state=(np.zeros((1, 1, 12)), np.zeros((1, 1, 12))))
    with pytest.raises(ConfigurationError, match="final_states.*there are none"):
        quantise(integrating(), QuantizationSettings(final_states=True))
    with pytest.raises(ConfigurationError, match="cell_range.*not both"):
        QuantizationSettings(final_states=True, cell_range=8.0)


def test_initial_states_of_one_sequence_and_of_layers_without_c() -> None:
    rng = np.random.default_rng(4)
    shapes = {"w_ih": (12, 3), "w_hh": (12, 4), "bias_ih": 12, "bias_hh": 12}
    gru = Network(layers=(Gru(**{name: rng.normal(size=shape) for name, shape in shapes.items()}),))
    x, h = rng.uniform(-1, 1, (6, 3)), rng.uniform(-1, 1, (1, 4))
    quantised = quantise(gru, calibration=x, state=(h, ()))
    found = measure_accuracy(gru, quantised, Calibration.of(gru, x, state=(h, ())))
    assert found.max_abs_error < 0.001 and found.max_abs_final_cell == 0
