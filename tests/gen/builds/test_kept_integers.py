"""Integers of quantised models whose steps are no powers of two: a build with scales of rows keeps them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
from onnxruntime.quantization import QuantType
from support.golden_runs import golden_outputs
from support.lazy import Lazy
from support.paths import TESTS
from support.quantised_files import I, dynamic, float_model, inputs, rounding_bound, static
from support.quick import quick

import rtlstm
from rtlstm import BuildReport, Manifest, read_model
from rtlstm.boards import catalogue
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.builds.advice import measure_changes
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends.reading import IntegerWeights, ModelReport, ReadResult
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.numerics import QuantizedDense, QuantizedNetwork, QuantizedRecurrent

pytestmark = pytest.mark.usefixtures("without_verilog")

keras, L, quantizers = Lazy("keras"), Lazy("keras.layers"), Lazy("keras.quantizers")
qnn, torch = Lazy("brevitas.nn"), Lazy("torch")
SIZES = {"lanes": 4, "macs": 2}


def check_kept(found: ReadResult, network: QuantizedNetwork) -> None:
    """All integers of the file are the rows'; only their steps are rounded."""
    report = found.report
    layers = dict(zip([shape.name for shape in network.shapes], network.layers, strict=True))
    assert report.integer_weights
    for given in report.integer_weights:
        source = next(layer for layer in found.network.layers if layer.name == given.layer)
        steps = np.array(given.steps)
        codes = np.rint(getattr(source, given.weight) / np.where(steps > 0, steps, 1.0)[:, None])
        ours = getattr(layers[given.layer], given.weight)
        np.testing.assert_array_equal(ours, codes, err_msg=f"{given.weight} of {given.layer}")
    changes = measure_changes(found.network, network, report.integer_weights)
    assert {change.scale_bits for change in changes if change.largest} == {16}
    assert max(change.largest_steps for change in changes) < 127 * 2.0**-16 * 1.01


def quantised(found: ReadResult, x: np.ndarray | None = None) -> QuantizedNetwork:
    return quantise(found.network, QuantizationSettings(weight_bits=8, scale_bits=16), x)


def run(path: Path, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    # Without VNNI, products of 8 bits would saturate in pairs at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], {"x": x})[0])


@pytest.mark.parametrize("per_channel", [True, False])
def test_static_file(per_channel: bool, tmp_path: Path) -> None:
    """Integers are kept, and outputs are onnxruntime's within what it rounds beside weights."""
    rng = np.random.default_rng(0)
    x, path = inputs(rng), tmp_path / "float.onnx"
    float_model(path, rng, uneven=True)
    kinds = ["LSTM", "MatMul", "Add", "Relu", "Sigmoid"]
    found = static(path, x, True, per_channel=per_channel, op_types_to_quantize=kinds)
    read = read_model(found)
    assert all(each.exact_bits is None for each in read.report.integer_weights)
    network = quantised(read, x)
    check_kept(read, network)
    assert not network.numerics.input_factors
    y = golden_outputs(network, x)
    assert np.abs(y - run(found, x).reshape(y.shape)).max() <= rounding_bound(found) + 1e-3


@pytest.mark.parametrize("per_channel", [True, False])
def test_dynamic_file(per_channel: bool, tmp_path: Path) -> None:
    """Steps of powers of two are several times as far from onnxruntime without its rounding of x and h."""
    rng = np.random.default_rng(1)
    path, x = tmp_path / "float.onnx", np.random.default_rng(2).normal(size=(40, 1, I)).astype(np.float32)
    float_model(path, rng, uneven=True)
    found = dynamic(path, per_channel=per_channel, weight_type=QuantType.QInt8)
    read = read_model(found)
    network = quantised(read, x)
    check_kept(read, network)
    theirs, mine = run(found, x), golden_outputs(network, x)
    assert np.abs(mine - theirs.reshape(mine.shape)).max() < 0.03  # what it rounds to 8 bits: x, h and more
    exact = run_float(read.network, x).y
    assert np.abs(mine - exact).max() < 1e-3
    rounded = golden_outputs(quantise(read.network, QuantizationSettings(weight_bits=8), x), x)
    assert np.abs(rounded - exact).max() > 5 * np.abs(mine - exact).max()


KEPT = "in steps that are rounded to {} bits: those of"
AGAIN = "weights differ from the model's integers"
DOORS = [
    ((), 16, KEPT),
    (("--scale-bits", 9), 9, KEPT),
    (("--scale-bits", 0), 0, AGAIN),
    # Wider weights hardly change.
    (("--weight-bits", 12), 0, AGAIN),
    (("--loadable",), 0, AGAIN),
]


@pytest.mark.parametrize(("options", "bits", "note"), quick(DOORS, DOORS[0]))
def test_doors(options: tuple[str | int, ...], bits: int, note: str, tmp_path: Path, cli: Any) -> None:
    """What is chosen for a file whose steps are no powers of two, and what can be asked for."""
    float_model(tmp_path / "float.onnx", np.random.default_rng(0), uneven=True)
    found = dynamic(tmp_path / "float.onnx", per_channel=True)
    sizes = ("--lanes", 4, "--macs", 2, "--weight-bits", 8)
    done = cli("generate", found, "-o", tmp_path / "build", *sizes, *options).good()
    assert Manifest.load(tmp_path / "build").numerics.scale_bits == bits
    assert note.format(bits) in done.err
    chosen = "each row of weights has a scale of 16 bits (--scale-bits 16)"
    assert (chosen in done.err) == (not options)


def test_boards_that_keep_integers_have_what_was_asked_for(
    tmp_path: Path, cli: Any, monkeypatch: Any
) -> None:
    """Scales that nobody asked for are no fewer bits."""
    monkeypatch.setattr(catalogue, "usable_boards", lambda: [catalogue.find_board("ulx3s-85f")])
    rng = np.random.default_rng(0)
    float_model(tmp_path / "float.onnx", rng, uneven=True)
    np.save(tmp_path / "x.npy", inputs(rng))
    found = dynamic(tmp_path / "float.onnx", per_channel=True)
    asked = ("boards", found, "--calibrate", tmp_path / "x.npy", "--weight-bits", 8)
    done = cli(*asked, "--json")
    assert done.json["boards"][0]["build"]["changed"] == {} and "--fit-anyway" not in done.err


@pytest.mark.slow
def test_a_device_without_multipliers_rounds_again(tmp_path: Path) -> None:
    """The device has room for the network, and none for the multipliers of scales."""
    rng = np.random.default_rng(0)
    w_ih, w_hh = (rng.integers(-127, 128, (80, columns)) * 0.0123 for columns in (6, 20))
    network = rtlstm.Network(layers=(rtlstm.Lstm(name="rec", w_ih=w_ih, w_hh=w_hh, bias=np.zeros(80)),))
    given = {"layer": "rec", "bits": 8, "largest": 127, "zero_points": False, "steps": (0.0123,)}
    weights = tuple(IntegerWeights(weight=name, **given) for name in ("w_ih", "w_hh"))
    report = ModelReport(source="file.onnx", format="ONNX", integer_weights=weights)
    manifest = generate_build(
        ReadResult(network=network, report=report),
        tmp_path / "build",
        settings=QuantizationSettings(weight_bits=8, data_bits=8),
        fit=FitRequest(chosen=find_device("up5k")),
    )
    assert manifest.numerics.scale_bits == 0
    notes = "\n".join(BuildReport.load(tmp_path / "build").notes)
    assert (
        "the model's integers are rounded again, in steps of powers of two, because rows can have no" in notes
    )
    assert "(`scale_bits=16`): file does not fit up5k" in notes


@pytest.mark.slow
def test_weights_for_a_device_with_scales(tmp_path: Path) -> None:
    """Retrained integers of other steps are loaded into the same hardware, and kept."""
    first, second = (tmp_path / name / "float.onnx" for name in ("first", "second"))
    for seed, path in enumerate((first, second)):
        path.parent.mkdir()
        float_model(path, np.random.default_rng(seed), uneven=True)
    found, other = (dynamic(path, per_channel=True) for path in (first, second))
    device = rtlstm.compile(found, folder=tmp_path / "device", weight_bits=8, headroom_bits=3, **SIZES)
    build = rtlstm.compile(other, folder=tmp_path / "build", device=tmp_path / "device")
    assert build.manifest.numerics.scale_bits == device.manifest.numerics.scale_bits == 16
    assert {change.scale_bits for change in build.report().weight_changes} == {16}


@pytest.mark.parametrize("name", ["wide_dynamic", "stack_int8"])
def test_tflite_file(name: str) -> None:
    found = read_model(TESTS / "support" / "tflite" / f"{name}.tflite")
    check_kept(found, quantised(found))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`:UserWarning")
@pytest.mark.usefixtures("read_here")
def test_keras_file(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    layers = [L.Dense(6, "relu", name="first"), L.LSTM(4, return_sequences=True), L.Dense(3)]
    model = keras.Sequential([L.Input((5, 4)), *layers])
    config = quantizers.Int8QuantizationConfig(weight_quantizer=None, activation_quantizer=None)
    model.quantize(config=config)
    model.save(tmp_path / "model.keras")
    found = read_model(tmp_path / "model.keras")
    check_kept(found, quantised(found))


def test_brevitas_module() -> None:
    torch.manual_seed(0)
    found = read_model(qnn.QuantLSTM(3, 4, weight_bit_width=8).eval())
    check_kept(found, quantised(found))


def test_rows_that_are_no_integers_take_all_codes() -> None:
    """Of a file that brings integers of one layer alone, too."""
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, (2, 5))
    codes[:, 0] = 127
    dense = rtlstm.Dense(name="head", weight=codes * 0.0123, bias=np.zeros(2))
    lstm = rtlstm.Lstm(w_ih=rng.normal(size=(20, 3)), w_hh=rng.normal(size=(20, 5)), bias=np.zeros(20))
    network = quantise(
        rtlstm.Network(layers=(lstm, dense)), QuantizationSettings(weight_bits=8, scale_bits=16)
    )
    first, second = network.layers
    assert isinstance(first, QuantizedRecurrent) and isinstance(second, QuantizedDense)
    assert (np.abs(first.w_ih).max(axis=1) == 127).all() and (np.abs(first.w_hh).max(axis=1) == 127).all()
    np.testing.assert_array_equal(second.weight, codes)
