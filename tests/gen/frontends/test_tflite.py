"""TFLite files against what TensorFlow's interpreters made of them (tests/support/make_tflite.py)."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.paths import ROOT
from support.refusals import refused

tflite = pytest.importorskip("tflite")
from support.tflite_files import Operator, Tensor, build, lstm  # noqa: E402

from rtlstm.gen.builds.compiled import compile  # noqa: E402
from rtlstm.gen.frontends import ReadOptions, ReadResult, inspect_model, read_model  # noqa: E402
from rtlstm.gen.frontends.tflite import _OPERATORS  # noqa: E402
from rtlstm.gen.frontends.tflite.file import TfliteOperator  # noqa: E402
from rtlstm.host import softmax  # noqa: E402
from rtlstm.sim.reference import run_float  # noqa: E402
from rtlstm.spec.errors import ModelError, ToolError  # noqa: E402

FILES = ROOT / "tests" / "support" / "tflite"
OUTPUTS = np.load(FILES / "outputs.npz")
INPUT8 = "steps_int8_ends"


def values(name: str, end: str) -> np.ndarray:
    """A file's input ``x`` or output ``y`` as floats."""
    found = OUTPUTS[f"{name}.{end}"]
    if found.dtype.kind == "f":
        return found.astype(np.float64)
    model = tflite.Model.GetRootAs((FILES / f"{name}.tflite").read_bytes(), 0)
    graph = model.Subgraphs(0)
    tensor = graph.Tensors((graph.Inputs if end == "x" else graph.Outputs)(0)).Quantization()
    return (found - float(tensor.ZeroPoint(0))) * float(tensor.Scale(0))


def data(name: str) -> np.ndarray:
    """``(steps, 1, features)``."""
    x = values(name, "x")
    return x if name == "special" else x.swapaxes(0, 1)


def like(name: str, y: np.ndarray) -> np.ndarray:
    """The core's outputs in the file's form."""
    wanted = OUTPUTS[f"{name}.y"]
    if name.startswith("stack"):
        y = softmax(y)
    if name == "around":
        y = np.log(softmax(y))
    if wanted.ndim == 2:
        return y[-1]
    return y if name == "special" else y.swapaxes(0, 1)


BOUNDS = {
    **dict.fromkeys(("stack", "steps_float", "steps_float16", "both", "special", "coupled", "around"), 1e-6),
    "stack_int8": 2e-3,
    INPUT8: 4e-3,
    "wide_dynamic": 6e-3,
    "micro": 3e-4,
}
"""Largest difference from the interpreter, which rounds more if there are integers."""


@pytest.mark.parametrize("name", BOUNDS)
def test_equals_the_interpreter(name: str) -> None:
    result = read_model(FILES / f"{name}.tflite")
    found = like(name, run_float(result.network, data(name)).y)
    wanted = values(name, "y")
    assert found.shape == wanted.shape and np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(found, wanted, rtol=0, atol=BOUNDS[name])


def test_every_file_is_compared() -> None:
    assert {path.stem for path in FILES.glob("*.tflite")} == set(BOUNDS)


@pytest.mark.usefixtures("without_verilog")
def test_integers_on_the_golden_model(tmp_path: Path) -> None:
    """With the file's own widths and order: at most 4 of its steps from its interpreter's outputs."""
    x = values(INPUT8, "x")
    build = compile(
        FILES / f"{INPUT8}.tflite",
        folder=tmp_path,
        calibration=x[0],
        weight_bits=8,
        data_bits=8,
        lanes=4,
        macs=2,
    )
    with build.open("golden") as accelerator:
        y, _ = accelerator.run(x)
    assert build.manifest.batch_first
    np.testing.assert_allclose(y, values(INPUT8, "y"), rtol=0, atol=4 / 256)


def test_notes_say_what_changes() -> None:
    notes = "\n".join(read_model(FILES / f"{INPUT8}.tflite").report.notes)
    for words in (
        "the file rounds 4 tensors to 8 bits, in steps of",
        "nearest are `data_bits=8` and `input_range=",
        "as integers of 8 bits; here are their values, (integer +128) * 0.00390625",
        "the file keeps c of 'lstm_0' in 16 bits, ",
        "until reset_all_variables: use a stream",
        "w_hh of 'lstm_0' has integers of 8 bits in the model, in steps of ",
        "(not powers of two): `weight_bits=8` changes them by at most",
    ):
        assert words in notes
    dynamic = "\n".join(read_model(FILES / "wide_dynamic.tflite").report.notes)
    assert "the file rounds what 'lstm_0' read to 8 bits before products" in dynamic
    assert "softmax" in "\n".join(read_model(FILES / "stack_int8.tflite").report.notes)
    micro = read_model(FILES / "micro.tflite").report
    assert {one.bits for one in micro.integer_weights} == {8}
    assert "the file rounds 2 tensors to 16 bits" in "\n".join(micro.notes)


def test_ends_at_a_tensor_or_an_operator() -> None:
    whole = FILES / "stack.tflite"
    for end in ("dense_3", "lstm_1"):
        assert read_model(whole, ReadOptions(output=end)).network.layers[-1].name == end
    refused(whole, "there is none of the name 'nothing'", ReadOptions(output="nothing"))


# One LSTM


def one(
    tmp_path: Path, change: Callable[[dict[str, Tensor], Operator], Any] | None = None, **given: Any
) -> Path:
    """A file of one LSTM, changed."""
    tensors, operator = lstm(np.random.default_rng(0), **given)
    if change is not None:
        change(tensors, operator)
    (tmp_path / "one.tflite").write_bytes(build(tensors, [operator], ["x"], ["y"]))
    return tmp_path / "one.tflite"


def behind(path: Path, *more: Operator, **tensors: Tensor) -> Path:
    """A file of an LSTM and operators behind it, the last of which gives ``z``."""
    found, operator = lstm(np.random.default_rng(0))
    path.write_bytes(build(found | {"z": Tensor(shape=(1, 6, 4))} | tensors, [operator, *more], ["x"], ["z"]))
    return path


def after(kind: str, table: str = "", **options: Any) -> Callable[[Path], Path]:
    """A file of an LSTM with an operator behind it that reads a tensor ``k``, too."""

    def write(tmp_path: Path) -> Path:
        k = Tensor(options.pop("k", np.zeros(1, np.int32)))
        more = Operator(kind, ["y", "k", *options.pop("more", [])], ["z"], table, options)
        return behind(tmp_path / "two.tflite", more, k=k)

    return write


def given(name: str) -> Callable[[dict[str, Tensor], Operator], None]:
    """An input by its number, which becomes a vector."""

    def change(tensors: dict[str, Tensor], operator: Operator) -> None:
        tensors["extra"] = Tensor(np.ones(4, np.float32))
        inputs = list(operator.inputs)
        inputs[int(name)] = "extra"
        operator.inputs = inputs

    return change


def sized(name: str, *shape: int) -> Callable[[dict[str, Tensor], Operator], None]:
    def change(tensors: dict[str, Tensor], operator: Operator) -> None:
        tensors[f"y/{name}"] = Tensor(np.ones(shape, np.float32))

    return change


def begun(tensors: dict[str, Tensor], operator: Operator) -> None:
    for name in "hc":
        tensors[f"y/{name}"] = Tensor(np.ones((1, 4), np.float32))


def scaled(tensors: dict[str, Tensor], operator: Operator) -> None:
    tensors["y/w_cell"] = Tensor(np.ones((4, 3), np.int8), scale=[1.0, 2.0])


REFUSED = {
    r"forget_layer_norm_coefficients \('extra'\) is not supported": lambda p: one(p, given("21")),
    r"projection_bias \('y/projection_bias'\) is not": lambda p: one(p, outputs=2, projection_bias=True),
    r"proj_clip=0.5 is not supported": lambda p: one(p, ProjClip=0.5),
    r"diagonal_recurrent_tensors is not": lambda p: one(p, DiagonalRecurrentTensors=True),
    r"cell_clip=-1 must be 0 or more": lambda p: one(p, CellClip=-1.0),
    r"fused_activation_function=RELU6 must be TANH, RELU, NONE": lambda p: one(p, FusedActivationFunction=3),
    r"output_state must be a variable.*cell_state must be a variable tensor or zeros": lambda p: one(
        p, begun
    ),
    r"input_to_cell_weights must have shape \(4, 3\), not \(4, 2\)": lambda p: one(p, sized("w_cell", 4, 2)),
    r"output_gate_bias must have shape \(4,\), not \(5,\)": lambda p: one(p, sized("b_output", 5)),
    r"weights must have 2 axes": lambda p: one(p, sized("r_cell", 4)),
    r"one scale and zero point, or \(4, 3\) of them": lambda p: one(p, scaled),
    r"ABS operator 'abs_1', which reads 'y', is not supported.*end at `output='y'`": after("ABS"),
    r"REVERSE_V2 operator 'reverse_v2_1' must reverse one axis": after("REVERSE_V2", k=np.array([0, 1])),
    r"must have a begin, an end and a stride": after(
        "STRIDED_SLICE", more=["k", "k"], k=np.zeros(4, np.int32)
    ),
    r"ARG_MAX operator 'arg_max_1' works along axis 1, but": after("ARG_MAX", k=np.array(1, np.int32)),
    r"weights_format must be DEFAULT": after("FULLY_CONNECTED", "FullyConnectedOptions", WeightsFormat=1),
    r"weights must have 2 axes, not 1": after("FULLY_CONNECTED", k=np.ones(4, np.float32)),
    r"fused_activation_function=SIGN_BIT is not supported": after(
        "ADD", "AddOptions", k=np.ones(4, np.float32), FusedActivationFunction=5
    ),
    r"CAST operator 'cast_1' makes INT32 of FLOAT32": lambda p: behind(
        p / "cast.tflite", Operator("CAST", ["y"], ["z"]), z=Tensor(shape=(1, 6, 4), kind="int32")
    ),
    r"has a WHILE operator.*TF_USE_LEGACY_KERAS=1": lambda p: while_alone(p),
}


def sliced(tmp_path: Path, begin: int, end: int, **options: Any) -> Path:
    """An LSTM and a slice of its four features."""
    parts = {"begin": [0, 0, begin], "end": [0, 0, end], "strides": [1, 1, 1]}
    tensors = {name: Tensor(np.array(value, np.int32)) for name, value in parts.items()}
    options = {"BeginMask": 3, "EndMask": 3, **options}
    more = Operator("STRIDED_SLICE", ["y", *parts], ["z"], "StridedSliceOptions", options)
    return behind(tmp_path / f"slice_{end}.tflite", more, z=Tensor(shape=(1, 6, 2)), **tensors)


def test_a_slice_whose_ends_count_from_its_begin(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(6, 1, 3))
    for begin, end in ((1, 3), (-2, 4)):
        whole, offset = (
            run_float(read_model(path).network, x).y
            for path in (sliced(tmp_path, begin, end), sliced(tmp_path, begin, 2, Offset=True))
        )
        assert whole.shape == (6, 1, 2)
        np.testing.assert_array_equal(whole, offset)


def while_alone(tmp_path: Path) -> Path:
    tensors = {"x": Tensor(shape=(1, 6, 3)), "y": Tensor(shape=(1, 6, 3))}
    (tmp_path / "w.tflite").write_bytes(build(tensors, [Operator("WHILE", ["x"], ["y"])], ["x"], ["y"]))
    return tmp_path / "w.tflite"


@pytest.mark.parametrize("words", REFUSED)
def test_refused_by_name(words: str, tmp_path: Path) -> None:
    path = REFUSED[words](tmp_path)
    refused(path, words)
    assert inspect_model(path).refusal


@pytest.mark.parametrize("kind", ["RELU", *sorted(_OPERATORS)])
def test_an_operator_whose_ends_are_left_out_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    """What a number of -1 stands for: of the first input and output in any operator, of others in some."""
    for at, (inputs, outputs) in enumerate(((["", "k"], ["z"]), (["y", "k"], [""]), (["y", ""], ["z"]))):
        tensors, operator = lstm(np.random.default_rng(0))
        tensors |= {"k": Tensor(np.zeros(1, np.int32)), "z": Tensor(shape=(1, 6, 4))}
        more = Operator(kind, inputs, outputs)
        (tmp_path / f"{at}.tflite").write_bytes(build(tensors, [operator, more], ["x"], ["y"]))
        if at < 2:
            refused(tmp_path / f"{at}.tflite", f"{kind} operator '.*_1' must have inputs and outputs")
        else:
            inspect_model(tmp_path / f"{at}.tflite")


def test_activations_of_the_gates(tmp_path: Path) -> None:
    for number, name in ((0, "identity"), (1, "relu"), (4, "tanh")):
        (layer,) = read_model(one(tmp_path, FusedActivationFunction=number)).network.layers
        assert layer.gate.name == "sigmoid"
        x = np.linspace(-2, 2, 5)
        wanted = {"identity": x, "relu": np.maximum(x, 0), "tanh": np.tanh(x)}[name]
        np.testing.assert_allclose(layer.candidate(x), wanted)
        np.testing.assert_allclose(layer.output_activation(x), wanted)


def test_half_bytes(tmp_path: Path) -> None:
    """INT4: two integers in a byte, the first in its lower half."""
    tensors, operator = lstm(np.random.default_rng(0))
    codes = np.arange(-8, 4).astype(np.int8)
    path = tmp_path / "four.tflite"
    tensors["y/w_cell"] = Tensor(codes.reshape(4, 3), scale=[0.5])
    data = build(tensors, [operator], ["x"], ["y"])
    packed = ((codes[1::2] & 15) << 4 | codes[::2] & 15).astype(np.uint8)
    tensors["y/w_cell"] = Tensor(packed, shape=(4, 3), kind="int4", scale=[0.5])
    path.write_bytes(build(tensors, [operator], ["x"], ["y"]))
    (tmp_path / "eight.tflite").write_bytes(data)
    four, eight = (read_model(tmp_path / f"{name}.tflite") for name in ("four", "eight"))
    np.testing.assert_array_equal(four.network.layers[0].w_ih, eight.network.layers[0].w_ih)


@pytest.mark.parametrize("name", ["w_cell", "b_cell", "matrix", "addend"])
def test_integers_without_a_scale_are_no_weights(name: str, tmp_path: Path) -> None:
    names = ["y", "matrix", "addend"]
    dense = Operator("FULLY_CONNECTED", names, ["z"], "FullyConnectedOptions", {"KeepNumDims": True})
    tensors = {"matrix": Tensor(np.ones((2, 4), np.float32)), "addend": Tensor(np.ones(2, np.float32))}
    tensors |= {"z": Tensor(shape=(1, 6, 2))}
    path = behind(tmp_path / "dense.tflite", dense, **tensors)
    assert read_model(path).network.outputs == 2
    there = lstm(np.random.default_rng(0))[0] | tensors
    changed = name if name in tensors else f"y/{name}"
    tensors[changed] = Tensor(np.ones_like(there[changed].array, np.int8))
    behind(path, dense, **tensors)
    refused(path, "must be floats, or integers with a scale, but has INT8 without one")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite", None)
    with pytest.raises(ToolError, match=r"needs the package 'tflite'.*pip install 'rtlstm\[tflite\]'"):
        read_model(FILES / "stack.tflite")


def test_options_of_others_are_refused() -> None:
    for given, words in (
        ({"dense": ("a",)}, "`dense` is for files of tensors"),
        ({"lstm": "no"}, "there is no 'no'"),
    ):
        refused(FILES / "stack.tflite", words, ReadOptions(**given))


def test_a_file_of_other_content_is_told(tmp_path: Path) -> None:
    (tmp_path / "other.tflite").write_bytes(bytes(range(200, 250)))
    refused(tmp_path / "other.tflite", r"name says \.tflite, but it is no such model")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = (FILES / "coupled.tflite").read_bytes()
    path = tmp_path / "bad.tflite"
    for bad in (whole[:200], whole[:8], whole[:4] + b"TFL3" + bytes(64)):
        path.write_bytes(bad)
        refused(path, "damaged|no graph")
    assert isinstance(read_model(FILES / "coupled.tflite"), ReadResult)


@pytest.mark.parametrize("damage", [struct.error("requires a buffer of 9 bytes"), TypeError("bad number")])
def test_damaged_options_are_refused(damage: Exception) -> None:
    """They are read late: flatbuffers says then that the file ends before them, or that they lie in front."""

    class Options:
        def Axis(self, *at: int) -> int:
            raise damage

    operator = TfliteOperator("CONCATENATION", 0, (), (), Options())
    for arguments in ((), (1,)):
        with pytest.raises(ModelError, match=f"is a damaged TFLite file .*{damage}.*convert the model again"):
            operator.option("Axis", *arguments)
    assert operator.option("Alpha") == 0
