"""Keras files read without Keras, against Keras' own results."""

import json
import os
import re
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
import h5py
from support.lazy import Lazy
from support.quick import quick
from support.refusals import named_begins, refused

import rtlstm
from rtlstm.gen.frontends import ReadOptions, ReadResult, inspect_model, read_model
from rtlstm.host import softmax
from rtlstm.sim.reference import run_float
from rtlstm.spec.layout import as_steps

# Keras' own arrays, as NumPy 2 sees them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("read_here"),
]

keras, L = Lazy("keras"), Lazy("keras.layers")
INPUTS, STEPS = 4, 7
ALL = {"return_sequences": True}


def save(tmp_path: Path, suffix: str, *layers: Any, inputs: int | None = INPUTS) -> tuple[Any, Path]:
    """Build a model with random weights and biases, and save it."""
    model = keras.Sequential([keras.Input((None, inputs) if inputs else (None,)), *layers])
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


def check(
    model: Any, path: Path, options: ReadOptions | None = None, host: Callable[[Any], Any] = np.asarray
) -> ReadResult:
    """Compare float model and Keras on a sequence's every step; ``host`` computes what stays with it."""
    result = read_model(path, options)
    network, sequences = result.network, model.inputs[0].shape[0] or 3
    x = np.random.default_rng(1).normal(size=(STEPS * network.frames, sequences, INPUTS))
    wanted = model.predict(x.swapaxes(0, 1), verbose=0, batch_size=sequences)
    wanted = np.concatenate(wanted, axis=-1) if isinstance(wanted, list | tuple) else np.asarray(wanted)
    steps, _ = as_steps("x", x, None, 0, network.inputs, network.frames)
    found = host(run_float(network, steps).y)
    np.testing.assert_allclose(found[-1] if wanted.ndim == 2 else found.swapaxes(0, 1), wanted, atol=2e-5)
    return result


def told(result: ReadResult, words: str) -> bool:
    """Whether a note has these words."""
    return any(words in note for note in result.report.notes)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize(
    "first", [lambda: L.LSTM(5, **ALL), lambda: L.Conv1D(5, 2, padding="causal"), lambda: L.Dense(5)]
)
def test_sequences_stand_before_steps(tmp_path, suffix, first):
    _, path = save(tmp_path, suffix, first(), L.Dense(2))
    report = read_model(path).report
    assert report.batch_first
    assert report.layout.startswith("Keras has sequences before steps: data are (sequences, steps")


def test_a_file_of_early_keras_2_has_no_layer_for_the_input(tmp_path):
    _, path = save(tmp_path, ".h5", L.LSTM(5, **ALL), L.Dense(2))
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        first, *layers = config["config"]["layers"]
        assert first["class_name"] == "InputLayer"
        layers[0]["config"]["batch_input_shape"] = [None, None, INPUTS]
        config["config"]["layers"] = layers
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.2.4"
    result = read_model(path)
    assert [layer.outputs for layer in result.network.layers] == [5, 2]
    assert result.report.batch_first


def in_both(cases: Iterable[str]) -> list[Any]:
    """Cases in both kinds of file: each is quick in one, in turns."""
    found = list(product(cases, (".keras", ".h5")))
    return quick(found, *(found[at + at // 2 % 2] for at in range(0, len(found), 2)))


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
    "backwards_convolution": lambda: [L.LSTM(5, go_backwards=True, **ALL), L.Conv1D(3, 2, padding="causal")],
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
    "smooth": lambda: [
        L.LSTM(5, activation="silu", **ALL),
        L.Dense(4, "gelu"),
        L.Dense(4, "hard_silu"),
        L.Dense(4, "swish"),
        L.Dense(4, "selu"),
        L.Dense(3),
        L.Activation("mish"),
    ],
    "average": lambda: [
        L.Conv1D(6, 3, padding="causal"),
        L.BatchNormalization(),
        L.ZeroPadding1D((2, 0)),
        L.AveragePooling1D(3, strides=1),
        L.GRU(5, **ALL),
    ],
    "convolutions_in_groups": lambda: [
        L.Conv1D(6, 3, padding="causal", groups=2),
        L.ZeroPadding1D((2, 0)),
        L.DepthwiseConv1D(3, depth_multiplier=2, activation="relu"),
        L.ZeroPadding1D((4, 0)),
        L.SeparableConv1D(5, 3, dilation_rate=2, depth_multiplier=2),
        L.GRU(5, **ALL),
    ],
    "padded_convolution": lambda: [L.LSTM(5, **ALL), L.ZeroPadding1D((1, 0)), L.Conv1D(6, 2)],
    "dense": lambda: [L.Dense(6, activation="relu"), L.BatchNormalization(), L.Dense(3)],
    "dilated_convolutions": lambda: [
        L.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu"),
        L.Conv1D(3, 2, padding="causal", dilation_rate=3),
    ],
    "convolution": lambda: [L.Conv1D(6, 3, padding="causal", activation="relu"), L.GRU(5, **ALL)],
    "strides": lambda: [
        L.Conv1D(6, 3, strides=2, padding="causal", activation="relu"),
        L.ZeroPadding1D((1, 0)),
        L.AveragePooling1D(2, strides=1),
        L.AveragePooling1D(2, padding="same"),
        L.GRU(5, **ALL),
    ],
}


@pytest.mark.parametrize(("name", "suffix"), in_both(sorted(SEQUENCES)))
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
    found = check(*save(tmp_path, suffix, L.LSTM(5, **ALL), L.GRU(4), L.Dense(2)))
    assert told(found, "keeps only the last step")


@pytest.mark.parametrize(("merge", "suffix"), in_both(["concat", "sum", "ave", "mul"]))
def test_final_states_of_both_directions(merge: str, suffix: str, tmp_path: Path) -> None:
    """They are the last step's values, and may go on into dense layers."""
    both = L.Bidirectional(L.GRU(5), merge_mode=merge)
    found = check(*save(tmp_path, suffix, L.Bidirectional(L.LSTM(3, **ALL)), both, L.Dense(2)))
    assert told(found, "keeps only the last step")


@pytest.mark.parametrize("last", [False, True])
def test_both_directions_apart(last: bool, tmp_path: Path) -> None:
    both = L.Bidirectional(L.LSTM(5, return_sequences=not last), merge_mode=None)
    assert told(check(*functional(tmp_path, ".keras", both)), "side by side, forward first")


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


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize("wrap", [lambda: L.LSTM(5, **ALL), lambda: L.Bidirectional(L.GRU(5, **ALL))])
def test_data_padded_in_front_are_keras_own(wrap: Any, tmp_path: Path) -> None:
    model, path = save(tmp_path, ".keras", L.Masking(), wrap(), L.Dense(2))
    read = read_model(path)
    assert any("give `pad='front'`, too" in note for note in read.report.notes)
    rng, lengths = np.random.default_rng(1), [6, 4, 2]
    x = keras.utils.pad_sequences([rng.normal(size=(each, INPUTS)) for each in lengths], STEPS, "float32")
    given = {"batch_first": True, "pad": "front"}
    build = rtlstm.compile(
        read, calibration=x, calibration_lengths=lengths, max_steps=STEPS, folder=tmp_path / "build", **given
    )
    wanted = np.asarray(model.predict(x, verbose=0))
    found, _ = build.run(x, lengths, **given)
    last, _ = build.run(x, lengths, outputs="last", **given)
    np.testing.assert_allclose(last, wanted[:, -1], atol=2e-3)
    behind, _ = build.run(x, lengths, batch_first=True)
    for number, length in enumerate(lengths):
        np.testing.assert_allclose(found[number, -length:], wanted[number, -length:], atol=2e-3)
        assert np.abs(behind[number] - wanted[number]).max() > 0.05, "the case must tell front from back"


def test_backwards_states_and_dropout_are_told_of(tmp_path: Path) -> None:
    layer = L.LSTM(5, go_backwards=True, stateful=True, dropout=0.5, **ALL)
    model = keras.Sequential([keras.Input((None, INPUTS), batch_size=1), layer])
    model.save(tmp_path / "model.keras")
    result = check(model, tmp_path / "model.keras")
    assert all(told(result, words) for words in ("backwards in time", "use a stream", "dropout"))
    assert result.network.layers[0].reverse


def test_states_given_are_told_of(tmp_path: Path) -> None:
    _, path = functional(tmp_path, ".keras", lambda x: L.LSTM(5, return_state=True, **ALL)(x)[0])
    assert told(read_model(path), "gives its final states, too")


def test_unrolled_layers_are_the_same(tmp_path: Path) -> None:
    check(*functional(tmp_path, ".keras", L.GRU(5, unroll=True, **ALL), steps=STEPS))


def test_a_backward_layer_of_its_own(tmp_path: Path) -> None:
    own = L.LSTM(5, activation="softsign", use_bias=False, go_backwards=True, **ALL)
    check(*save(tmp_path, ".keras", L.Bidirectional(L.LSTM(5, **ALL), backward_layer=own)))


OUTSIDE = [
    (lambda x: L.UnitNormalization()(x), "(UnitNormalization)"),
    (lambda x: L.Conv1D(6, 3, padding="same")(L.Dense(4, activation="relu")(x)), "it must be causal"),
    (lambda x: L.Conv1D(6, 3, strides=2)(x), "it must be causal"),
    (lambda x: L.Conv1D(INPUTS, 1, data_format="channels_first")(x), "its input is 'conv1d"),
    (lambda x: L.ZeroPadding1D((2, 0))(x), "zeros in front"),
    (lambda x: L.Dense(3, activation="softmax")(x), "(Dense)"),
    # Nothing is left to end at before the recurrent layer.
    (lambda x: L.Dense(3, activation="celu")(x), "activation='celu', but must be one of linear"),
    (lambda x: (lambda dense: dense(dense(x)))(L.Dense(INPUTS)), "is called 2 times"),
    (lambda x: L.BatchNormalization(axis=1)(x), "works along axis 1"),
]


@pytest.mark.parametrize(("front", "named"), OUTSIDE)
def test_what_the_core_cannot_compute_in_front_stays_outside(front: Any, named: str, tmp_path: Path) -> None:
    """There are as many steps as features."""
    _, path = functional(tmp_path, ".keras", lambda x: L.LSTM(5)(front(x)), steps=INPUTS)
    (note,) = (note for note in read_model(path).report.notes if "stay outside of the core" in note)
    assert named in note


def test_begin_names_a_layer_in_front(tmp_path: Path) -> None:
    layers = [L.UnitNormalization(name="unit"), L.Dense(4, activation="relu", name="up"), L.LSTM(5)]
    _, path = save(tmp_path, ".keras", *layers)
    network = read_model(path, ReadOptions(begin="unit")).network
    assert [layer.kind for layer in network.layers] == ["dense", "lstm"] and network.inputs == INPUTS
    assert {"unit", "up"} <= {*named_begins(path)}


@pytest.mark.parametrize(
    ("layers", "named"),
    [
        (lambda: [L.LSTM(5, activation="celu", **ALL)], "activation='celu'"),
        (lambda: [L.LSTM(5, **ALL), L.AveragePooling1D(3, strides=1)], "must be causal"),
        (lambda: [L.LSTM(5, **ALL), L.AveragePooling1D(2)], "stands before a stride of 2"),
        (lambda: [L.LSTM(5, **ALL), L.ZeroPadding1D((2, 0))], "2 steps of zeros in front"),
        (
            lambda: [L.LSTM(5, **ALL), L.ZeroPadding1D((2, 0)), L.Dense(3)],
            "zeros in front, which only a causal convolution may do",
        ),
        (lambda: [L.LSTM(5, **ALL), L.ZeroPadding1D((0, 2)), L.Conv1D(6, 3)], "must put zeros in front"),
        (lambda: [L.LSTM(5, **ALL), L.UnitNormalization()], "UnitNormalization"),
        (lambda: [L.LSTM(5, **ALL), L.Softmax(axis=1)], "only layers along the features are supported"),
        (
            lambda: [L.LSTM(5, **ALL), L.TimeDistributed(L.RepeatVector(2))],
            "wraps RepeatVector, but must wrap",
        ),
        (lambda: [L.Dropout(0.5)], "must have a layer"),
        # Layers in a function's place have arguments, and names that a function may have, too.
        (lambda: [L.LSTM(5), L.Dense(3, activation=L.ELU(alpha=0.1, name="elu"))], "activation='ELU'"),
        (lambda: [L.LSTM(5), L.Activation(L.ReLU(max_value=0.1, name="relu"))], "activation='ReLU'"),
        (lambda: [L.LSTM(5, activation=L.LeakyReLU(0.9, name="tanh"))], "activation='LeakyReLU'"),
        (lambda: [L.LSTM(5, **ALL), L.Dense(3, activation=L.Softmax(axis=1))], "activation='Softmax'"),
        (
            lambda: [L.Bidirectional(L.LSTM(5, go_backwards=True), backward_layer=L.LSTM(5))],
            "a forward layer with go_backwards",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(layers: Any, named: str, tmp_path: Path) -> None:
    _, path = save(tmp_path, ".keras", *layers())
    refused(path, re.escape(named))
    assert inspect_model(path).refusal


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize(
    "tail",
    [
        lambda: [L.Dense(3, activation="softmax")],
        lambda: [L.Dense(3), L.Softmax()],
        lambda: [L.Dense(3), L.Activation("softmax")],
    ],
)
def test_softmax_at_the_end_stays_with_the_host(tail: Any, suffix: str, tmp_path: Path) -> None:
    found = check(*save(tmp_path, suffix, L.LSTM(5), *tail()), host=softmax)
    assert told(found, "rtlstm.host.softmax")


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize(
    ("end", "function"),
    [
        (lambda **its: L.Dense(3, **its), "sigmoid"),
        (lambda **its: L.Dense(3, **its), "log_sigmoid"),
        (lambda **its: L.Dense(3, **its), "softmax"),
        (lambda **its: L.TimeDistributed(L.Dense(3, **its)), "gelu"),
        (lambda **its: L.Conv1D(3, 2, padding="causal", **its), "gelu"),
    ],
)
def test_an_activation_can_stay_outside(end: Any, function: str, suffix: str, tmp_path: Path) -> None:
    """At the end, and of a layer that others read, whose name may stand before ``:linear``."""
    last = end(activation=function)
    last.name = "scores"
    model, path = save(tmp_path, suffix, L.LSTM(5, **ALL), last, L.UnitNormalization())
    linear: list[Any] = []

    def host(y: Any) -> Any:
        linear.append(y)
        return np.asarray(keras.activations.get(function)(keras.ops.convert_to_tensor(y)))

    whole = keras.Model(model.inputs, model.layers[-2].output)
    assert check(whole, path, ReadOptions(output="scores:linear"), host).report.output == "scores:linear"
    assert np.abs(linear[0] - host(linear[0])).max() > 0.1  # it was not applied


@pytest.mark.parametrize(
    ("layers", "output", "named"),
    [
        (lambda: [L.LSTM(5, name="r"), L.Dense(3)], "r:linear", "output='r'"),
        (
            lambda: [L.LSTM(5, **ALL), L.TimeDistributed(L.Dropout(0.5), name="d")],
            "d:linear",
            "layer 'd' (TimeDistributed) has no linear result",
        ),
        (
            lambda: [L.LSTM(5), L.Dense(3)],
            "d:linear",
            "`output` must name a layer of the model, but there is none of the name 'd:linear'",
        ),
        (lambda: [L.LSTM(5), L.Dense(3, name="d")], "d:relu", "but there is none of the name 'd:relu'"),
        (lambda: [L.LSTM(5), L.Dense(3, "celu", name="d")], None, "output='d:linear'"),
        (lambda: [L.LSTM(5), L.Dense(3, "softmax", name="d"), L.Dense(2)], None, "output='d:linear'"),
        (lambda: [L.LSTM(5), L.Dense(3, name="d"), L.Activation("celu")], None, "output='d'"),
    ],
)
def test_ends_before_an_activation_are_refused_and_offered_by_name(
    layers: Any, output: str | None, named: str, tmp_path: Path
) -> None:
    _, path = save(tmp_path, ".keras", *layers())
    refused(path, re.escape(named), ReadOptions(output=output))


def test_an_activation_of_ones_own_is_refused(tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable("rtlstm_tests")
    class Halved:
        """An activation of one's own, whose description has no name."""

        def __call__(self, x: Any) -> Any:
            return x / 2

        def get_config(self) -> dict[str, Any]:
            return {}

    _, path = save(tmp_path, ".keras", L.LSTM(5), L.Dense(3, activation=Halved()))
    refused(path, "activation='Halved'")


def functional(
    tmp_path: Path, suffix: str, build: Any, inputs: int | None = INPUTS, steps: int | None = None
) -> tuple[Any, Path]:
    """Save a functional model with random weights; ``build`` makes its output from its input."""
    start = keras.Input((steps, inputs) if inputs else (steps,))
    model = keras.Model(start, build(start))
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape) * 0.5 for w in model.get_weights()])
    path = tmp_path / f"model{suffix}"
    model.save(path)
    return model, path


def _stacked(x: Any, merge: Any) -> Any:
    y = L.LSTM(INPUTS, **ALL)(x)
    return L.Dense(3)(merge([y, L.Dense(INPUTS, activation="relu")(y)]))


BRANCHES = {
    "add": lambda x: L.Add()([x, L.LSTM(INPUTS, **ALL)(x)]),
    "plus": lambda x: L.LSTM(INPUTS, **ALL)(x) + x,
    "subtract": lambda x: L.Subtract()([L.GRU(INPUTS, **ALL)(x), x]),
    "average": lambda x: _stacked(x, L.Average()),
    "concatenate": lambda x: _stacked(x, L.Concatenate()),
    "last_step": lambda x: L.Dense(2)(L.LSTM(5)(L.Add()([x, L.LSTM(INPUTS, **ALL)(x)]))),
    "add_twice": lambda x: (lambda r: L.Dense(3)(L.Add()([r, L.GRU(INPUTS, **ALL)(r)])))(
        L.Add()([x, L.LSTM(INPUTS, **ALL)(x)])
    ),
    "results_of_three": lambda x: (
        lambda t: (lambda v: L.Dense(2)(L.GRU(6, **ALL)(L.Concatenate()([t, v, x]))))(L.GRU(5, **ALL)(t))
    )(L.Dense(4, activation="tanh")(x)),
    "add_and_concatenate": lambda x: (lambda r: L.Dense(3)(L.Concatenate()([r, L.GRU(5, **ALL)(r)])))(
        L.Add()([x, L.LSTM(INPUTS, **ALL)(x)])
    ),
    "state": lambda x: L.Dense(3)(L.LSTM(5, return_state=True, **ALL)(x)[1]),
    "backward_half": lambda x: L.Dense(3)(L.Bidirectional(L.LSTM(5, **ALL), merge_mode=None)(x)[1]),
    "halves": lambda x: L.Concatenate()(L.Bidirectional(L.LSTM(5, **ALL), merge_mode=None)(x)[::-1]),
    "padded": lambda x: L.LSTM(5, **ALL)(L.Conv1D(3, 3)(keras.ops.pad(x, [[0, 0], [2, 0], [0, 0]]))),
    "merged": lambda x: L.Add()([L.LSTM(5, **ALL)(x), L.GRU(5, **ALL)(x)]),
    "product": lambda x: L.Multiply()([x, L.LSTM(INPUTS, **ALL)(x)]),
    "largest": lambda x: L.Maximum()([x, L.LSTM(INPUTS, **ALL)(x), L.Dense(INPUTS)(x)]),
    "smallest": lambda x: L.Minimum()([x, L.LSTM(INPUTS, **ALL)(x)]),
    "mean over steps": lambda x: L.Dense(2)(L.GlobalAveragePooling1D()(L.LSTM(5, **ALL)(x))),
    "largest over steps": lambda x: L.Dense(2)(L.GlobalMaxPooling1D()(L.LSTM(5, **ALL)(x))),
}

ARRAY = np.arange(1, INPUTS + 1, dtype=np.float32)
OPERATIONS = {
    "a layer's argument by name": lambda v, ops: L.Dense(2)(inputs=v),
    "absolute": lambda v, ops: ops.absolute(v) + abs(v - 0.1),
    "amax": lambda v, ops: ops.amax(v, 1),
    "an array": lambda v, ops: v * ARRAY + ops.convert_to_tensor(ARRAY),
    "average": lambda v, ops: ops.average(v, axis=1),
    "cast": lambda v, ops: ops.cast(v > 0, "float32") + ops.cast(ops.greater_equal(v, 0.1), "float32"),
    "clip": lambda v, ops: ops.clip(v, -0.3, 0.2),
    "concatenate": lambda v, ops: ops.concatenate([v, 2 * v, v[..., 1:3], v[..., 2:][:, :, :1]], axis=-1),
    "copies": lambda v, ops: ops.stop_gradient(ops.copy(v)),
    "divide": lambda v, ops: ops.divide(v / 4, 2),
    "einsum": lambda v, ops: ops.einsum("btf,gf->btg", v, np.outer(ARRAY[:2], ARRAY)),
    "flip": lambda v, ops: L.Dense(3)(ops.flip(v, axis=-1)),
    "glu": lambda v, ops: ops.glu(v, axis=-1),
    "leaky": lambda v, ops: ops.leaky_relu(v, negative_slope=0.3),
    "matmul": lambda v, ops: ops.matmul(v, np.outer(ARRAY, ARRAY[:2])),
    "max": lambda v, ops: ops.max(v, axis=1),
    "maximum": lambda v, ops: ops.maximum(v, 0.1) - ops.maximum(-0.1, v),
    "mean": lambda v, ops: v - ops.mean(v, axis=-1, keepdims=True),
    "minimum": lambda v, ops: ops.minimum(0.1, v),
    "minus": lambda v, ops: 1 - v,
    "negative": lambda v, ops: -ops.negative(v - 3),
    "plus": lambda v, ops: ops.add(1 + v, 0.5),
    "power": lambda v, ops: v**2 + ops.square(v) - ops.power(v, 2),
    "reshape": lambda v, ops: ops.reshape(ops.reshape(v, (-1, STEPS, 2, 2)), (-1, STEPS, 4)),
    "split": lambda v, ops: ops.split(v, 2, axis=-1)[1] * ops.split(v, [1, 3], axis=-1)[1],
    "squeeze": lambda v, ops: ops.squeeze(ops.expand_dims(v, -1), -1),
    "sum": lambda v, ops: ops.sum(v, axis=1),
    "swap": lambda v, ops: ops.transpose(ops.swapaxes(v, 1, 2), (0, 2, 1)),
    "take": lambda v, ops: ops.take(v, [2, 0], axis=-1),
    "times": lambda v, ops: ops.multiply(2, v) * 3,
    "where": lambda v, ops: ops.where(v > 0, v, 0.1 * v) + ops.where(ops.less(v, 0.2), v, 0.2),
}


def _behind(x: Any, operate: Any) -> Any:
    """A layer, and functions of keras.ops behind it."""
    return operate(L.LSTM(INPUTS, **ALL)(x), keras.ops)


@pytest.mark.parametrize(("name", "suffix"), in_both(sorted(OPERATIONS)))
def test_functions_are_read_with_all_their_arguments(name: str, suffix: str, tmp_path: Path) -> None:
    check(*functional(tmp_path, suffix, lambda x: _behind(x, OPERATIONS[name]), steps=STEPS))


@pytest.mark.parametrize(("name", "suffix"), in_both(sorted(BRANCHES)))
def test_branches(name: str, suffix: str, tmp_path: Path) -> None:
    check(*functional(tmp_path, suffix, BRANCHES[name]), ReadOptions(sequence_length=STEPS))


def test_a_mask_of_an_embedding_is_no_branch(tmp_path: Path) -> None:
    model, path = functional(
        tmp_path, ".keras", lambda x: L.LSTM(5, **ALL)(L.Embedding(11, 4, mask_zero=True)(x)), None
    )
    result = read_model(path)
    numbers = np.random.default_rng(1).integers(1, 11, size=(STEPS, 3))
    found = run_float(result.network, result.embeddings[0](numbers)).y
    np.testing.assert_allclose(found.swapaxes(0, 1), model.predict(numbers.T, verbose=0), atol=2e-5)
    assert told(result, "give run() the lengths")


def test_a_mask_that_is_an_input_is_told_of(tmp_path: Path) -> None:
    x, valid = keras.Input((None, INPUTS)), keras.Input((None,), dtype="bool", name="valid")
    path = tmp_path / "model.keras"
    keras.Model([x, valid], L.LSTM(5, name="recurrent", **ALL)(x, mask=valid)).save(path)
    (note,) = read_model(path).report.notes
    assert note.startswith(
        "layer 'recurrent' (LSTM) reads a mask, the input 'valid', which the core does not take"
    )


def test_initial_states_from_inputs_are_the_drivers(tmp_path: Path) -> None:
    start, h, c = keras.Input((None, INPUTS)), keras.Input((5,), name="h"), keras.Input((5,), name="c")
    path = tmp_path / "model.keras"
    keras.Model([start, h, c], L.LSTM(5, **ALL)(start, initial_state=[h, c])).save(path)
    assert told(read_model(path), "initial_h is the model's input 'h'")


def test_an_output_on_the_way_is_noted(tmp_path: Path) -> None:
    def both(x: Any) -> Any:
        y = L.LSTM(5, name="first", **ALL)(x)
        return [y, L.Dense(3)(L.GRU(4)(y))]

    _, path = functional(tmp_path, ".keras", both)
    result = read_model(path)
    assert result.network.outputs == 3 and not result.network.parts
    assert told(result, "'first' is an output of the model too")
    assert read_model(path, ReadOptions(output="first")).network.outputs == 5


def _encoder(x: Any) -> Any:
    y, *states = L.LSTM(5, return_state=True, **ALL)(x)
    return L.LSTM(5)(y, initial_state=states)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (_encoder, "begins in the final state of layer .*, as a decoder does"),
        (
            lambda x: L.Dense(2)(L.LSTM(5, return_state=True, **ALL)(x)[2]),
            "the final state c .* is read by layer",
        ),
        (
            lambda x: L.Dense(2)(L.Bidirectional(L.GRU(5, return_state=True))(x)[1]),
            "the final state c .* is read by",
        ),
        (
            lambda x: L.Concatenate(axis=1)([x, L.LSTM(INPUTS, **ALL)(x)]),
            "only layers along the features are supported",
        ),
        (lambda x: L.Add()([L.LSTM(INPUTS)(x), L.LSTM(INPUTS, **ALL)(x)]), "joins tensors of different axes"),
        (lambda x: L.Add()([x, L.Bidirectional(L.LSTM(2, **ALL))(x)]), "bidirectional or reverse layer"),
        (
            lambda x: L.GRU(5)(x, initial_state=keras.ops.ones((3, 5))),
            "numbers that are stored in the file, as initial_state",
        ),
        (
            lambda x: _behind(x, lambda v, ops: ops.average(v, -1, np.ones(INPUTS, "f"))),
            "is given weights by name",
        ),
        (lambda x: _behind(x, lambda v, ops: ops.flip(v)), "must name its axis"),
        (lambda x: _behind(x, lambda v, ops: ops.max(v, axis=1, initial=0.5)), "has initial"),
        (
            lambda x: _behind(x, lambda v, ops: ops.cast(v, "int32")),
            "only casts between floating-point types",
        ),
        (lambda x: _behind(x, lambda v, ops: keras.src.ops.numpy.Add()(v, x2=v)), "is given x2 by name"),
        (lambda x: _behind(x, lambda v, ops: ops.sign(v)), r"'sign' \(ops.Sign\), which reads"),
        (
            lambda x: L.LSTM(5)(x, mask=np.array([[True] * 4 + [False] * 3] * 3)),
            "numbers that are stored in the file, as mask",
        ),
    ],
)
def test_branches_that_are_not_supported_are_refused(build: Any, named: str, tmp_path: Path) -> None:
    _, path = functional(tmp_path, ".keras", build)
    refused(path, named)


@pytest.mark.parametrize("where", ["in front", "behind", "beside the last step", "looked up"])
def test_two_inputs(where: str, tmp_path: Path) -> None:
    """They are read side by side."""
    one = keras.Input((None, INPUTS), name="one")
    two = keras.Input(
        {"beside the last step": (2,), "looked up": (None,)}.get(where, (None, INPUTS)), name="two"
    )
    y = {
        "in front": lambda: L.LSTM(5, **ALL)(L.Add()([one, two])),
        "behind": lambda: L.Add()([L.LSTM(INPUTS, **ALL)(one), two]),
        "beside the last step": lambda: L.Dense(3)(L.Concatenate()([L.GRU(5)(one), two])),
        "looked up": lambda: L.LSTM(5, **ALL)(L.Concatenate()([one, L.Embedding(9, 2)(two)])),
    }[where]()
    model = keras.Model([one, two], y)
    model.save(tmp_path / "model.keras")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, INPUTS)).astype("f4")
    other = rng.normal(size=(2, 2) if where == "beside the last step" else x.shape).astype("f4")
    if where == "looked up":
        other = rng.integers(0, 9, (2, 6))
    read = read_model(tmp_path / "model.keras")
    assert [part.name for part in read.network.input_parts] == ["one", "two"]
    found = run_float(read.network, read.looked_up({"two": other, "one": x}).swapaxes(0, 1)).y
    wanted = model.predict([x, other], verbose=0)
    np.testing.assert_allclose(found[-1] if wanted.ndim == 2 else found.swapaxes(0, 1), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda layers: layers[::-1], "which it reads; save the model again"),
        (lambda layers: layers[1:], "reads a layer .* that the model does not have"),
    ],
)
def test_files_whose_layers_do_not_fit_are_refused(damage: Any, named: str, tmp_path: Path) -> None:
    _, path = functional(tmp_path, ".h5", BRANCHES["add"])
    with h5py.File(path, "r+") as file:
        model = json.loads(file.attrs["model_config"])
        model["config"]["layers"] = damage(model["config"]["layers"])
        file.attrs["model_config"] = json.dumps(model)
    refused(path, named)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    _, path = save(tmp_path, ".h5", L.LSTM(3, **ALL))
    (tmp_path / "cut.h5").write_bytes(path.read_bytes()[:2000])
    refused(tmp_path / "cut.h5", "damaged Keras file")


# Cells in RNN layers

CELLS = {
    "lstm": lambda: L.LSTMCell(4),
    "gru": lambda: L.GRUCell(4, reset_after=False),
    "rnn": lambda: L.SimpleRNNCell(4, "relu", use_bias=False),
    "stack": lambda: [L.LSTMCell(4), L.GRUCell(3), L.LSTMCell(5, "softsign", dropout=0.5)],
}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("name", "suffix"), in_both(CELLS))
def test_cells_are_layers(name: str, backwards: bool, suffix: str, tmp_path: Path) -> None:
    first = L.RNN(CELLS[name](), go_backwards=backwards, **ALL)
    found = check(*save(tmp_path, suffix, first, L.RNN(L.GRUCell(3)), L.Dense(2)))
    assert told(found, "dropout") == (name == "stack")


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_cells_in_both_directions(suffix: str, tmp_path: Path) -> None:
    check(*save(tmp_path, suffix, L.Bidirectional(L.RNN(L.LSTMCell(4), **ALL))))


def test_cells_that_are_not_known_are_refused(tmp_path: Path) -> None:
    _, path = save(tmp_path, ".keras", L.Bidirectional(L.RNN(CELLS["stack"](), **ALL)))
    assert "wraps an RNN of several cells, but must wrap LSTM" in inspect_model(path).refusal
    _, path = save(tmp_path, ".keras", L.RNN([L.LSTMCell(4), L.StackedRNNCells([L.GRUCell(3)])], **ALL))
    assert "has the cell StackedRNNCells, but must have one of LSTMCell" in inspect_model(path).refusal


# Final states among the outputs


@pytest.mark.parametrize(("kind", "suffix"), in_both(["LSTM", "GRU", "RNN", "Bidirectional"]))
def test_final_states_are_the_drivers(kind: str, suffix: str, tmp_path: Path) -> None:
    """The decoder of an encoder and decoder: scores, and the states that it is called with again."""
    layer = {
        "LSTM": lambda: L.LSTM(6, return_state=True, **ALL),
        "GRU": lambda: L.GRU(6, return_state=True, **ALL),
        "RNN": lambda: L.RNN([L.GRUCell(5), L.LSTMCell(6)], return_state=True, **ALL),
        "Bidirectional": lambda: L.Bidirectional(L.LSTM(3, return_state=True, **ALL)),
    }[kind]()

    def decoder(x: Any) -> Any:
        y, *states = layer(x)
        return [L.Dense(5, "softmax", name="scores")(y), *states]

    model, path = functional(tmp_path, suffix, decoder)
    found = read_model(path)
    assert found.network.outputs == 5 and not found.network.parts
    assert told(found, "rtlstm.host.softmax(y)") and told(found, "gives its final states, too: the driver")
    x = np.random.default_rng(1).normal(size=(STEPS, 3, INPUTS))
    wanted, *states = model.predict(x.swapaxes(0, 1), verbose=0)
    result = run_float(found.network, x)
    np.testing.assert_allclose(softmax(result.y).swapaxes(0, 1), wanted, atol=2e-5)
    if kind == "LSTM":
        np.testing.assert_allclose(result.h[0], states[0], atol=2e-5)
        np.testing.assert_allclose(result.c[0], states[1], atol=2e-5)


def test_a_model_of_final_states_alone(tmp_path: Path) -> None:
    model, path = functional(tmp_path, ".keras", lambda x: list(L.LSTM(5, return_state=True)(x))[1:])
    network = read_model(path).network
    assert network.outputs == 5
    x = np.random.default_rng(1).normal(size=(STEPS, 3, INPUTS))
    np.testing.assert_allclose(
        run_float(network, x).h[0], model.predict(x.swapaxes(0, 1), verbose=0)[0], atol=2e-5
    )


def test_softmax_is_over_its_own_output(tmp_path: Path) -> None:
    def two(x: Any) -> Any:
        y = L.LSTM(5, **ALL)(x)
        return [L.Dense(3, "softmax", name="words")(y), L.Dense(2, name="pitch")(y)]

    def host(y: Any) -> Any:
        return np.concatenate([softmax(y[..., :3]), y[..., 3:]], axis=-1)

    found = check(*functional(tmp_path, ".keras", two), host=host)
    assert told(found, "rtlstm.host.softmax(parts(y)['words'])")


def test_a_softmax_that_is_read_on_is_not_at_the_end(tmp_path: Path) -> None:
    def both(x: Any) -> Any:
        scores = L.Dense(3, "softmax", name="scores")(L.LSTM(5, **ALL)(x))
        return [scores, L.LSTM(4, name="further", **ALL)(scores)]

    _, path = functional(tmp_path, ".keras", both)
    refusal = inspect_model(path).refusal
    assert "'scores' (Dense), which reads 'scores:linear', is not supported; the host computes it" in refusal
