"""Keras files read without Keras, against Keras' own results."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
h5py = pytest.importorskip("h5py")

from rtlstm.gen.frontends import inspect_model, read_model  # noqa: E402
from rtlstm.sim.reference import run_float  # noqa: E402
from rtlstm.spec.errors import ModelError  # noqa: E402

# Keras' own arrays, as NumPy 2 sees them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

L = keras.layers
INPUTS, STEPS = 4, 7
ALL = {"return_sequences": True}


def save(tmp_path: Path, suffix: str, *layers: Any, inputs: int | None = INPUTS) -> tuple[Any, Path]:
    """Build a model with random weights and biases, and save it."""
    start = keras.Input((None, inputs) if inputs else (None,))
    model = keras.Sequential([start, *layers])
    rng = np.random.default_rng(0)
    model.set_weights(
        [
            rng.uniform(0.2, 0.9, w.shape) if w.ndim == 1 else rng.normal(size=w.shape) * 0.5
            for w in model.get_weights()
        ]
    )
    path = tmp_path / f"model{suffix}"
    model.save(path)
    return model, path


def check(model: Any, path: Path) -> None:
    """Compare float model and Keras on a sequence's every step."""
    network = read_model(path).network
    x = np.random.default_rng(1).normal(size=(STEPS, 3, INPUTS))
    wanted = np.asarray(model.predict(x.swapaxes(0, 1), verbose=0))
    found = run_float(network, x).y
    np.testing.assert_allclose(found[-1] if wanted.ndim == 2 else found.swapaxes(0, 1), wanted, atol=2e-5)


SEQUENCES = {
    "lstm": lambda: [L.LSTM(5, **ALL)],
    "functions": lambda: [L.LSTM(5, activation="softsign", recurrent_activation="hard_sigmoid", **ALL)],
    "no_bias": lambda: [L.LSTM(5, use_bias=False, **ALL), L.Dense(2, use_bias=False)],
    "gru": lambda: [L.GRU(5, **ALL)],
    "gru_reset_before": lambda: [L.GRU(5, reset_after=False, **ALL)],
    "rnns": lambda: [L.SimpleRNN(5, activation="relu", **ALL), L.SimpleRNN(3, **ALL)],
    "concat": lambda: [L.Bidirectional(L.LSTM(5, **ALL)), L.Dense(3, activation="sigmoid")],
    "sum": lambda: [L.Bidirectional(L.GRU(5, **ALL), merge_mode="sum"), L.LSTM(3, **ALL)],
    "product": lambda: [L.Bidirectional(L.LSTM(5, **ALL), merge_mode="mul"), L.Dense(3)],
    "product_relu": lambda: [L.Bidirectional(L.LSTM(5, **ALL), merge_mode="mul"), L.ReLU(), L.GRU(3, **ALL)],
    "backwards": lambda: [L.LSTM(5, go_backwards=True, **ALL), L.GRU(3, **ALL)],
    "backwards_twice": lambda: [
        L.LSTM(5, go_backwards=True, **ALL),
        L.Dense(4),
        L.GRU(3, go_backwards=True, **ALL),
    ],
    "backwards_convolution": lambda: [
        L.LSTM(5, go_backwards=True, **ALL),
        L.Conv1D(3, 2, padding="causal"),
    ],
    "backwards_last": lambda: [L.LSTM(5, go_backwards=True), L.Dense(2)],
    "mean": lambda: [L.Bidirectional(L.SimpleRNN(5, **ALL), merge_mode="ave")],
    "norm": lambda: [L.BatchNormalization(), L.LSTM(5, **ALL), L.BatchNormalization(), L.Dense(2)],
    "wrapped": lambda: [
        L.LSTM(5, **ALL),
        L.TimeDistributed(L.Dense(3)),
        L.Activation("tanh"),
        L.Dropout(0.3),
    ],
    "slopes": lambda: [L.LSTM(5, **ALL), L.Dense(4), L.LeakyReLU(negative_slope=0.25), L.Dense(3), L.ELU()],
    "average": lambda: [
        L.Conv1D(6, 3, padding="causal"),
        L.BatchNormalization(),
        L.ZeroPadding1D((2, 0)),
        L.AveragePooling1D(3, strides=1),
        L.GRU(5, **ALL),
    ],
    "padded_convolution": lambda: [L.LSTM(5, **ALL), L.ZeroPadding1D((1, 0)), L.Conv1D(6, 2)],
    "convolution": lambda: [L.Conv1D(6, 3, padding="causal", activation="relu"), L.GRU(5, **ALL)],
}


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_sequences(name: str, suffix: str, tmp_path: Path) -> None:
    check(*save(tmp_path, suffix, *SEQUENCES[name]()))


def test_hard_sigmoids_of_versions(tmp_path: Path) -> None:
    """Keras 2's is steeper, and its files say who wrote them."""
    _, path = save(tmp_path, ".h5", L.LSTM(5, recurrent_activation="hard_sigmoid", **ALL))
    for version, slope in (("3.5.0", 1 / 6), ("2.15.0", 0.2)):
        with h5py.File(path, "r+") as file:
            file.attrs["keras_version"] = version
        layer = read_model(path).network.layers[0]
        assert (layer.gate.name, layer.gate.alpha) == ("hard_sigmoid", slope)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_the_last_step_alone(suffix: str, tmp_path: Path) -> None:
    model, path = save(tmp_path, suffix, L.LSTM(5, **ALL), L.GRU(4), L.Dense(2))
    check(model, path)
    assert any("last step alone" in note for note in read_model(path).report.notes)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("merge", ["concat", "sum", "ave", "mul"])
def test_final_states_of_both_directions(merge: str, suffix: str, tmp_path: Path) -> None:
    """They are the last step's values, and may go on into dense layers."""
    both = L.Bidirectional(L.GRU(5), merge_mode=merge)
    model, path = save(tmp_path, suffix, L.Bidirectional(L.LSTM(3, **ALL)), both, L.Dense(2))
    check(model, path)
    assert any("outputs='last'" in note for note in read_model(path).report.notes)


@pytest.mark.parametrize("last", [False, True])
def test_both_directions_apart(last: bool, tmp_path: Path) -> None:
    start = keras.Input((None, INPUTS))
    model = keras.Model(start, L.Bidirectional(L.LSTM(5, return_sequences=not last), merge_mode=None)(start))
    model.save(tmp_path / "model.keras")
    result = read_model(tmp_path / "model.keras")
    x = np.random.default_rng(1).normal(size=(STEPS, 3, INPUTS))
    wanted = np.concatenate(model.predict(x.swapaxes(0, 1), verbose=0), axis=-1)
    found = run_float(result.network, x).y
    np.testing.assert_allclose(found[-1] if last else found.swapaxes(0, 1), wanted, atol=2e-5)
    assert any("side by side, forward first" in note for note in result.report.notes)


def test_masks_are_lengths(tmp_path: Path) -> None:
    model, path = save(tmp_path, ".keras", L.Masking(), L.Bidirectional(L.LSTM(5, **ALL)))
    x = np.random.default_rng(1).normal(size=(STEPS, 3, INPUTS))
    lengths = np.array([7, 4, 2])
    for number, length in enumerate(lengths):
        x[length:, number] = 0
    wanted = np.asarray(model.predict(x.swapaxes(0, 1), verbose=0)).swapaxes(0, 1)
    found = run_float(read_model(path).network, x, lengths=lengths).y
    for number, length in enumerate(lengths):
        np.testing.assert_allclose(found[:length, number], wanted[:length, number], atol=2e-5)


def test_an_embedding_stays_with_the_host(tmp_path: Path) -> None:
    model, path = save(tmp_path, ".keras", L.Embedding(11, 4), L.LSTM(5, **ALL), inputs=None)
    result = read_model(path)
    numbers = np.random.default_rng(1).integers(0, 11, size=(STEPS, 3))
    found = run_float(result.network, result.embeddings[0](numbers)).y
    np.testing.assert_allclose(found.swapaxes(0, 1), model.predict(numbers.T, verbose=0), atol=2e-5)


def test_backwards_states_and_dropout_are_told_of(tmp_path: Path) -> None:
    layer = L.LSTM(5, go_backwards=True, stateful=True, dropout=0.5, **ALL)
    start = keras.Input((None, INPUTS), batch_size=1)
    model = keras.Sequential([start, layer])
    model.save(tmp_path / "model.keras")
    result = read_model(tmp_path / "model.keras")
    notes = " ".join(result.report.notes)
    assert "backwards in time" in notes and "use a stream" in notes and "dropout" in notes
    assert result.network.layers[0].reverse
    x = np.random.default_rng(1).normal(size=(STEPS, 1, INPUTS))
    wanted = np.asarray(model.predict(x.swapaxes(0, 1), verbose=0, batch_size=1)).swapaxes(0, 1)
    np.testing.assert_allclose(run_float(result.network, x).y, wanted, atol=2e-5)


def test_states_given_are_told_of(tmp_path: Path) -> None:
    start = keras.Input((None, INPUTS))
    y, *_ = L.LSTM(5, return_state=True, **ALL)(start)
    keras.Model(start, y).save(tmp_path / "model.keras")
    result = read_model(tmp_path / "model.keras")
    assert any("gives its final states, too" in note for note in result.report.notes)


def test_unrolled_layers_are_the_same(tmp_path: Path) -> None:
    start = keras.Input((STEPS, INPUTS))
    model = keras.Sequential([start, L.GRU(5, unroll=True, **ALL)])
    model.save(tmp_path / "model.keras")
    check(model, tmp_path / "model.keras")


def test_a_backward_layer_of_its_own(tmp_path: Path) -> None:
    own = L.LSTM(5, activation="softsign", use_bias=False, go_backwards=True, **ALL)
    check(*save(tmp_path, ".keras", L.Bidirectional(L.LSTM(5, **ALL), backward_layer=own)))


@pytest.mark.parametrize(
    ("layers", "named"),
    [
        (lambda: [L.LSTM(5, **ALL), L.LayerNormalization()], "LayerNormalization"),
        (lambda: [L.LSTM(5, activation="swish", **ALL)], "activation='silu'"),
        (lambda: [L.Conv1D(6, 3, padding="same"), L.LSTM(5, **ALL)], "must be causal"),
        (lambda: [L.LSTM(5, **ALL), L.AveragePooling1D(3, strides=1)], "must be causal"),
        (lambda: [L.LSTM(5, **ALL), L.AveragePooling1D(2)], "strides, dilation and groups of 1"),
        (lambda: [L.Conv1D(6, 3, padding="causal", dilation_rate=2), L.LSTM(5)], "dilation and groups of 1"),
        (lambda: [L.ZeroPadding1D((2, 0)), L.LSTM(5, **ALL)], "only Conv1D and AveragePooling1D"),
        (lambda: [L.LSTM(5, **ALL), L.ZeroPadding1D((2, 0))], "only Conv1D and AveragePooling1D"),
        (lambda: [L.LSTM(5, **ALL), L.ZeroPadding1D((0, 2)), L.Conv1D(6, 3)], "appends 2 zeros"),
        (lambda: [L.ZeroPadding1D((1, 0)), L.Conv1D(6, 3), L.LSTM(5)], "2 zeros in front"),
        (lambda: [L.LSTM(5, **ALL), L.UnitNormalization()], "UnitNormalization"),
        (lambda: [L.Dense(3)], "must have a recurrent layer"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(layers: Any, named: str, tmp_path: Path) -> None:
    _, path = save(tmp_path, ".keras", *layers())
    with pytest.raises(ModelError) as error:
        read_model(path)
    assert named in str(error.value)
    assert inspect_model(path).refusal


def test_branching_models_are_refused(tmp_path: Path) -> None:
    start = keras.Input((None, INPUTS))
    mid = L.LSTM(INPUTS, **ALL)(start)
    keras.Model(start, L.Add()([start, mid])).save(tmp_path / "model.keras")
    with pytest.raises(ModelError, match="one chain"):
        read_model(tmp_path / "model.keras")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    _, path = save(tmp_path, ".h5", L.LSTM(3, **ALL))
    (tmp_path / "cut.h5").write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ModelError, match="damaged Keras file"):
        read_model(tmp_path / "cut.h5")
