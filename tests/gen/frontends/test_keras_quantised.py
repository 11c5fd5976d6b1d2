"""Keras models whose weights ``model.quantize`` has rounded, or with LoRA beside: against Keras' results."""

import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.refusals import refused

os.environ.setdefault("KERAS_BACKEND", "torch")
import h5py
from support.lazy import Lazy
from support.quick import quick

from rtlstm.gen.frontends import ReadResult, inspect_model, read_model
from rtlstm.sim.reference import run_float

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # Of each layer that cannot be rounded.
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning"),
    pytest.mark.usefixtures("read_here"),
]

keras, L, quantizers = Lazy("keras"), Lazy("keras.layers"), Lazy("keras.quantizers")
awq, gptq = Lazy("keras.src.quantizers.awq"), Lazy("keras.src.quantizers.gptq")
awq_config = Lazy("keras.src.quantizers.awq_config")
ROWS, WIDTH, STEPS = 11, 5, 7


def build(*layers: Any) -> Any:
    """A model that reads row numbers, or what the first layer takes, with random weights."""
    shape = (None,) if isinstance(layers[0], L.Embedding) else (None, WIDTH)
    model = keras.Sequential([keras.Input(shape), *layers])
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=weight.shape) * 0.5 for weight in model.get_weights()])
    return model


def tagger(bias: bool = True) -> Any:
    """Layers of each class that Keras rounds and that is read, and one that it leaves as it is."""
    dense = L.Dense(6, "relu", use_bias=bias, name="first")
    return build(L.Embedding(ROWS, WIDTH), dense, L.LSTM(4, return_sequences=True), L.Dense(3))


def saved(model: Any, path: Path) -> ReadResult:
    model.save(path)
    return read_model(path)


def difference(model: Any, found: ReadResult) -> float:
    """The largest difference of float outputs and Keras' own."""
    rng = np.random.default_rng(1)
    if found.embeddings:
        numbers = rng.integers(0, ROWS, (3, STEPS))
        given, x = numbers, found.embeddings[0](numbers)
    else:
        # Of so few bits that float8 holds them exactly.
        given = x = rng.integers(-15, 16, (3, STEPS, WIDTH)) / 8
    wanted = np.asarray(model.predict(given, verbose=0))
    return float(np.abs(run_float(found.network, x.swapaxes(0, 1)).y.swapaxes(0, 1) - wanted).max())


BLOCKS = {"int4 by rows": {"block_size": -1}, "int4 in blocks": {"block_size": 2}, "int4 in large blocks": {}}


def config(name: str) -> Any:
    """How Keras rounds; in int8, inputs are not rounded while the model runs."""
    if name == "int8":
        return quantizers.Int8QuantizationConfig(weight_quantizer=None, activation_quantizer=None)
    return quantizers.Int4QuantizationConfig(**BLOCKS[name])


@pytest.mark.parametrize(
    ("name", "bias", "suffix"),
    quick(
        product(["int8", *BLOCKS], [True, False], [".keras", ".h5"]),
        ("int8", False, ".keras"),
        *((name, True, suffix) for name, suffix in zip(BLOCKS, (".h5", ".keras", ".h5"), strict=True)),
    ),
)
def test_rounded_weights_are_keras_own(name: str, bias: bool, suffix: str, tmp_path: Path) -> None:
    model = tagger(bias)
    before = model.predict(np.arange(ROWS)[None], verbose=0)
    model.quantize(config=config(name))
    assert np.abs(model.predict(np.arange(ROWS)[None], verbose=0) - before).max() > 1e-3
    found = saved(model, tmp_path / f"model{suffix}")
    assert difference(model, found) < 2e-5
    assert not any("rounds what it reads" in note for note in found.report.notes)
    if name == "int4 in blocks":
        assert not found.report.integer_weights
    else:
        kinds = {(each.weight, each.bits, each.zero_points) for each in found.report.integer_weights}
        assert kinds == {("weight", int(name[3]), "large" in name)}


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_inputs_that_keras_rounds_are_told_of(suffix: str, tmp_path: Path) -> None:
    model = tagger()
    model.quantize("int8")
    found = saved(model, tmp_path / f"model{suffix}")
    assert 1e-4 < difference(model, found) < 0.1
    notes = [note for note in found.report.notes if "rounds what it reads to 8 bits" in note]
    assert len(notes) == 2, "of the two Dense layers; a table reads no values"


def test_integers_of_a_file_are_reported_from_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    model = tagger()
    model.quantize(config=config("int8"))
    found = saved(model, tmp_path / "model.keras")
    assert [each.bits for each in found.report.integer_weights] == [8, 8]
    assert any("8 bits in the model" in note for note in found.report.notes)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_float8(suffix: str, tmp_path: Path) -> None:
    model = build(L.Dense(6), L.LSTM(4, return_sequences=True))
    model.quantize("float8")
    dense = model.layers[0]
    dense.kernel_scale.assign(0.003)
    found = saved(model, tmp_path / f"model{suffix}")
    assert difference(model, found) < 2e-6
    # Some weights are too large for the scale, and are cut, others are below the least normal number.
    kernel = np.asarray(keras.ops.convert_to_numpy(dense._kernel))
    assert np.abs(found.network.layers[0].weight.T - kernel).max() > 1e-3
    assert any("rounds what it reads to float8" in note for note in found.report.notes)


def test_float8_of_small_and_of_large_weights(tmp_path: Path) -> None:
    for scale in (1e-4, 30.0):
        model = build(L.Dense(6), L.LSTM(4, return_sequences=True))
        model.quantize("float8")
        model.layers[0].kernel_scale.assign(scale)
        assert difference(model, saved(model, tmp_path / "model.keras")) < 2e-6


@pytest.mark.parametrize(
    ("alpha", "mode", "suffix"),
    quick(
        product([None, 3.0], [None, "int8", "int4"], [".keras", ".h5"]),
        (3.0, None, ".keras"),
        (3.0, "int8", ".h5"),
        (None, "int4", ".keras"),
    ),
)
def test_lora(mode: str | None, alpha: float | None, suffix: str, tmp_path: Path) -> None:
    model = build(L.Embedding(ROWS, WIDTH), L.LSTM(4, return_sequences=True), L.Dense(3))
    if mode:
        model.quantize(config=config("int8" if mode == "int8" else "int4 by rows"))
    rng = np.random.default_rng(2)
    for layer in (model.layers[0], model.layers[2]):
        layer.enable_lora(2, lora_alpha=alpha)
        name = "kernel" if isinstance(layer, L.Dense) else "embeddings"
        for part in "ab":
            factor = getattr(layer, f"lora_{name}_{part}")
            factor.assign(rng.normal(size=factor.shape))
    found = saved(model, tmp_path / f"model{suffix}")
    # A .keras file has the sum, which Keras has rounded again.
    rounded = {None: 2e-5, "int8": 0.05, "int4": 1.0}[mode if suffix == ".keras" else None]
    assert difference(model, found) < rounded
    if mode and suffix == ".keras":
        assert difference(keras.saving.load_model(tmp_path / "model.keras"), found) < 2e-5


@pytest.mark.parametrize("group", [-1, 3])
@pytest.mark.parametrize(("mode", "bits"), [("gptq", 4), ("gptq", 8), ("gptq", 3), ("awq", 4)])
def test_weights_rounded_by_typical_inputs(mode: str, bits: int, group: int, tmp_path: Path) -> None:
    model = build(L.Dense(7), L.LSTM(4, return_sequences=True))
    dense = model.layers[0]
    rows = keras.ops.convert_to_tensor(np.random.default_rng(3).normal(size=(32, WIDTH)).astype("float32"))
    if mode == "awq":
        config = awq_config.AWQConfig(dataset=None, tokenizer=None, group_size=group)
        dense.quantize(mode, config=config)
        worker = awq.AWQ(dense, config)
        worker.update_activation_magnitudes(rows)
        worker.quantize_layer()
    else:
        config = quantizers.GPTQConfig(dataset=None, tokenizer=None, weight_bits=bits, group_size=group)
        dense.quantize(mode, config=config)
        worker = gptq.GPTQ(dense, config)
        worker.update_hessian_with_batch(rows)
        worker.quantize_and_correct_layer()
    model.save(tmp_path / "model.keras")
    # Keras 3.15 leaves the zero points out of its file, which it then cannot read itself.
    refusal = inspect_model(tmp_path / "model.keras").refusal
    assert f"in the mode {mode}, but the file has not all of kernel, kernel_scale, kernel_zero" in refusal
    assert "save the model as HDF5" in refusal
    assert difference(model, saved(model, tmp_path / "model.h5")) < 2e-5
    dense._get_kernel_with_merged_lora = lambda: (None, None, dense.kernel_zero)
    found = saved(model, tmp_path / "model.keras")
    assert difference(keras.saving.load_model(tmp_path / "model.keras"), found) < 2e-5
    assert {each.bits for each in found.report.integer_weights} == (
        {bits} if (mode, group) == ("gptq", -1) else set()
    )


def changed(path: Path, array: str, make: Any) -> Path:
    """A copy of an HDF5 model with another array in place of one."""
    target = path.with_name("changed.h5")
    target.write_bytes(path.read_bytes())
    with h5py.File(target, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        (name,) = [each for each in names if each.endswith(array)]
        values = file[name][()]
        del file[name]
        made = make(values)
        if made is not None:
            file[name] = made
    return target


@pytest.fixture
def rounded(tmp_path: Path) -> Path:
    model = tagger()
    model.quantize("int8")
    model.save(tmp_path / "model.h5")
    return tmp_path / "model.h5"


@pytest.mark.parametrize(
    ("array", "make", "named"),
    [
        (
            "lstm_cell/kernel",
            lambda found: (found * 50).astype("int8"),
            "nothing says what scale these integers",
        ),
        ("first/bias", lambda found: (found * 50).astype("int8"), "nothing says what scale these integers"),
        (
            "first/kernel_scale",
            lambda found: None,
            "in the mode int8, but the file has not all of kernel, kernel_scale",
        ),
        ("first/kernel_scale", lambda found: found[:1], "its scale must have shape (6,)"),
        ("first/kernel", lambda found: None, "no weights in the file"),
    ],
)
def test_integers_that_no_rule_explains_are_refused(rounded: Path, array: str, make: Any, named: str) -> None:
    refused(changed(rounded, array, make), re.escape(named))


def test_an_array_beside_the_weights_is_refused(tmp_path: Path) -> None:
    build(L.LSTM(4, return_sequences=True), L.Dense(3, name="head")).save(tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        (group,) = (name for name in _groups(file) if name.endswith("/head"))
        file[f"{group}/kernel_zero"] = np.ones(3, "float32")
    refused(tmp_path / "model.h5", "kernel_zero' beside a layer's kernel, bias")


def _groups(file: Any) -> list[str]:
    found: list[str] = []
    file.visititems(
        lambda name, item: found.append(name) if "kernel" in getattr(item, "keys", dict)() else None
    )
    return found


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_rounded_layers_that_keras_computes_without_scales_are_refused(mode: str, tmp_path: Path) -> None:
    model = build(L.LSTM(4, return_sequences=True), L.TimeDistributed(L.Dense(3, name="inside"), name="each"))
    model.quantize(mode)
    model.save(tmp_path / "model.keras")
    refused(
        tmp_path / "model.keras", "'each' .TimeDistributed. wraps a layer that model.quantize has rounded"
    )
    # Each way out that the message names.
    model = build(L.LSTM(4, return_sequences=True), L.TimeDistributed(L.Dense(3, name="inside"), name="each"))
    model.quantize(mode, filters=lambda layer: layer.name != "inside")
    assert difference(model, saved(model, tmp_path / "model.keras")) < 2e-5


def test_a_mode_of_an_earlier_keras_is_refused(tmp_path: Path) -> None:
    model = build(L.LSTM(4, return_sequences=True), L.Dense(3))
    model.quantize(config=config("int4 by rows"))
    model.save(tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        text = file.attrs["model_config"]
        assert "int4/-1" in text
        file.attrs["model_config"] = text.replace("int4/-1", "int4")
    report = inspect_model(tmp_path / "model.h5")
    assert "the mode 'int4' of an earlier Keras" in report.refusal
    assert "as it was before model.quantize" in report.refusal


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_rounded_layer_that_is_not_read_is_refused_by_name(mode: str, tmp_path: Path) -> None:
    model = build(L.LSTM(4, return_sequences=True), L.EinsumDense("abc,cd->abd", (None, 3)))
    model.quantize(mode)
    model.save(tmp_path / "model.keras")
    assert "(EinsumDense), which reads" in inspect_model(tmp_path / "model.keras").refusal
