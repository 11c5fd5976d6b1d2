"""Activation functions: one record is read from every source, and no argument of a model is dropped."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx as onnx_package
import pytest
from support.lazy import F, Lazy, nn, torch
from support.onnx_files import H, const, ints, lstm, node, rand, save, squeezed
from support.packages import install
from support.refusals import refused
from support.same_network import same, without_names
from support.torch_forms import in_form

import rtlstm
from rtlstm.spec.activations.functions import (
    ACTIVATIONS,
    ActivationFunction,
    FunctionDefinition,
    TorchNames,
)
from rtlstm.spec.errors import ConfigurationError

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = Lazy("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

PLUG_IN = """
import numpy as np
from rtlstm.spec.activations.functions import FunctionDefinition, TorchNames

HARD_SWISH = FunctionDefinition(
    formula=lambda x, a, b: x * np.clip(x / 6 + 0.5, 0.0, 1.0),
    onnx="HardSwish",
    keras="hard_silu",
    torch=TorchNames("hardswish", "Hardswish"),
    tflite="HARD_SWISH",
)
"""
INPUTS, UNITS, OUTPUTS, STEPS = 3, 4, 2, 5


def body(function: Any) -> Any:
    """LSTM, Linear and a function, with multiples of 1/16, which are exact in every form."""

    class Body(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(INPUTS, UNITS, batch_first=True)
            self.fc, self.function = nn.Linear(UNITS, OUTPUTS), function

        def forward(self, x):
            return self.function(self.fc(self.lstm(x)[0]))

    torch.manual_seed(1)
    module = Body().eval()
    for parameter in module.parameters():
        parameter.data = torch.round(parameter.data * 16) / 16
    return module


def arrays(module: Any) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def data() -> Any:
    return torch.rand(1, STEPS, INPUTS)


def of_keras(module: Any, path: Path) -> Any:
    layers = [
        keras.layers.LSTM(UNITS, return_sequences=True),
        keras.layers.Dense(OUTPUTS, activation="hard_silu"),
    ]
    found = arrays(module)
    model = keras.Sequential([keras.Input((STEPS, INPUTS)), *layers])
    bias = found["lstm.bias_ih_l0"] + found["lstm.bias_hh_l0"]
    weights = [found["lstm.weight_ih_l0"].T, found["lstm.weight_hh_l0"].T, bias]
    model.set_weights([*weights, found["fc.weight"].T, found["fc.bias"]])
    model.save(path / "model.keras")
    return path / "model.keras"


def of_tflite(module: Any, path: Path) -> Any:
    from support.tflite_files import GATES, Operator, Tensor, build
    from support.tflite_files import lstm as tflite_lstm

    found = arrays(module)
    tensors, operator = tflite_lstm(np.random.default_rng(0), INPUTS, UNITS, steps=STEPS, gives="h")
    bias = found["lstm.bias_ih_l0"] + found["lstm.bias_hh_l0"]
    for part, array in (("w", found["lstm.weight_ih_l0"]), ("r", found["lstm.weight_hh_l0"]), ("b", bias)):
        for gate, values in zip(GATES, np.split(array, 4), strict=True):
            tensors[f"h/{part}_{gate}"].array = values
    tensors |= {name: Tensor(found[f"fc.{name}"]) for name in ("weight", "bias")}
    tensors |= {name: Tensor(shape=(1, STEPS, OUTPUTS)) for name in ("sums", "y")}
    dense = Operator("FULLY_CONNECTED", ["h", "weight", "bias"], ["sums"], "FullyConnectedOptions")
    dense.options = {"KeepNumDims": True}
    function = Operator("HARD_SWISH", ["sums"], ["y"], "HardSwishOptions")
    (path / "model.tflite").write_bytes(build(tensors, [operator, dense, function], ["x"], ["y"]))
    return path / "model.tflite"


def source_of(form: str, module: Any, path: Path) -> Any:
    made = {"keras": of_keras, "tflite": of_tflite}.get(form)
    return made(module, path) if made else in_form(form, module, (data(),), path, saved=form != "trace")


@pytest.mark.parametrize("source", ["exported", "script", "trace", "onnx", "dynamo", "keras", "tflite"])
def test_one_record_of_a_package_is_read_from_every_source(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry point, which the process that reads Keras and TorchScript finds, too."""
    (tmp_path / "acme_swish.py").write_text(PLUG_IN)
    install(tmp_path, "acme", "[rtlstm.activations]\nhard_swish = acme_swish:HARD_SWISH\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = body(nn.Hardswish())
    wanted = rtlstm.read_model(module).network
    assert wanted.layers[-1].activation == "hard_swish"
    found = rtlstm.read_model(source_of(source, module, tmp_path)).network
    assert same(without_names(found), without_names(wanted))


# Arguments


@contextmanager
def known(name: str, **record: Any) -> Iterator[None]:
    ACTIVATIONS.add(name, FunctionDefinition(**{"formula": lambda x, a, b: x * (x > 0), **record}))
    try:
        yield
    finally:
        ACTIVATIONS.remove(name)


def with_operator(path: Path, kind: str, **attributes: Any) -> Path:
    nodes, weights = squeezed()
    nodes.append(node(kind, "s", "out", "f", **attributes))
    return save(path / "model.onnx", nodes, weights, opset=24 if kind == "Swish" else 20, ir=10)


def test_an_attribute_of_onnx_is_a_parameter_or_refused(tmp_path: Path) -> None:
    with known("swish", onnx="Swish", defaults=(1.0,)):
        network = rtlstm.read_model(with_operator(tmp_path, "Swish", alpha=2.0)).network
        assert network.layers[-1].alpha == 2.0
    with known("swish", onnx="Swish"):
        text = "Swish node 'f': alpha=2.0 is not supported: activation 'swish' has no alpha"
        refused(with_operator(tmp_path, "Swish", alpha=2.0), text)
    with known("swish", onnx="Swish", fixed={"alpha": 1.0}):
        assert rtlstm.read_model(with_operator(tmp_path, "Swish", alpha=1.0))
        text = "Swish node 'f': alpha must be 1.0, as in activation 'swish', not 2.0"
        refused(with_operator(tmp_path, "Swish", alpha=2.0), text)


def test_a_fused_function_of_onnxruntime_has_its_arguments(tmp_path: Path) -> None:
    nodes, weights = lstm(y="", y_h="h")
    nodes.append(node("Squeeze", "h one", "s"))

    def fused(**given: Any) -> Path:
        gemm = node("FusedGemm", "s m", "out", "f", domain="com.microsoft", **given)
        path = save(
            tmp_path / "model.onnx", [*nodes, gemm], [*weights, ints("one", 0), const("m", rand(H, 2))]
        )
        model = onnx_package.load(path)
        model.opset_import.append(onnx_package.helper.make_opsetid("com.microsoft", 1))
        onnx_package.save(model, path)
        return path

    network = rtlstm.read_model(fused(activation="LeakyRelu", activation_alpha=0.25)).network
    assert network.layers[-1].alpha == 0.25
    refused(fused(activation="Relu", activation_alpha=0.25), "alpha=0.25 is not supported: activation 'relu'")
    refused(fused(activation="Relu", transC=1), "FusedGemm node 'f': attribute 'transC' is not known")


@pytest.mark.parametrize("form", ["module", "exported", "trace", "onnx"])
def test_an_argument_of_pytorch_is_a_parameter_or_refused(form: str, tmp_path: Path) -> None:
    """GELU is exact or an approximation: a record is one of them."""
    names = {"torch": TorchNames("gelu", "GELU"), "onnx": "Gelu"}

    def made(approximate: str) -> Any:
        module = body(nn.GELU(approximate))
        if form == "onnx":
            return with_operator(tmp_path, "Gelu", approximate=approximate)
        return source_of(form, module, tmp_path)

    with known("gelu", **names):
        refused(made("tanh"), "approximate='tanh' is not supported: activation 'gelu' has no approximate")
    with known("gelu", **names, fixed={"approximate": "none"}):
        assert rtlstm.read_model(made("none")).network.layers[-1].activation == "gelu"
        refused(made("tanh"), "approximate must be 'none', as in activation 'gelu', not 'tanh'")


def test_an_argument_of_a_pytorch_function_is_a_parameter_or_refused() -> None:
    def found(function: Callable[[Any], Any]) -> Any:
        return rtlstm.read_model(body(function)).network.layers[-1].function

    assert found(lambda x: F.elu(x, 0.5, True)).alpha == 0.5
    assert found(lambda x: F.leaky_relu(x, inplace=True, negative_slope=0.25)).alpha == 0.25
    assert found(lambda x: F.hardtanh(x, -0.5)) == ActivationFunction.of("hard_tanh", -0.5)
    with known("celu", torch=TorchNames("celu", "CELU")):
        text = "alpha=2.0 is not supported: activation 'celu' has no alpha"
        refused(body(lambda x: torch.celu(x, 2.0)), text)
    refused(body(lambda x: F.elu(x, "wide")), "alpha must be a number, not 'wide'")
    refused(body(lambda x: F.elu(x, x)), "alpha must be a constant number, not the tensor 'fc'")
    assert found(lambda x: F.softplus(x, threshold=30)).name == "softplus"
    refused(body(nn.Softplus(threshold=4)), "'function': threshold must be 16 or more, not 4")
    refused(body(lambda x: F.softplus(x, 1, 4)), "threshold must be 16 or more, not 4")


def test_fewer_names_than_parameters_are_defaults_and_more_an_error(tmp_path: Path) -> None:
    with known("swish", torch=TorchNames("silu", "SiLU"), defaults=(1.5,)):
        for source in (body(nn.SiLU()), source_of("exported", body(nn.SiLU()), tmp_path)):
            assert rtlstm.read_model(source).network.layers[-1].alpha == 1.5
    text = r"no more names of parameters in PyTorch than defaults, not defaults \(\) and names \('alpha',\)"
    with pytest.raises(ConfigurationError, match=text):
        FunctionDefinition(formula=abs, torch=TorchNames("celu", "CELU", ("alpha",)))
    with pytest.raises(ConfigurationError, match="must have defaults of alpha and beta at most"):
        FunctionDefinition(formula=abs, defaults=(1.0, 2.0, 3.0))


def keras_file(path: Path, *layers: Any) -> Path:
    start = keras.Input((STEPS, INPUTS))
    end = keras.layers.LSTM(UNITS, return_sequences=True)(start)
    for layer in layers:
        end = layer(end)
    keras.Model(start, end).save(path / "model.keras")
    return path / "model.keras"


@pytest.mark.usefixtures("read_here")
def test_an_argument_of_keras_is_a_parameter_or_refused(tmp_path: Path) -> None:
    def found(*layers: Any) -> Any:
        return rtlstm.read_model(keras_file(tmp_path, *layers)).network.layers[-1].function

    of = ActivationFunction.of
    assert found(lambda x: keras.ops.elu(x, alpha=2.0)) == of("elu", 2.0)
    assert found(lambda x: keras.ops.leaky_relu(x, 0.25)) == of("leaky_relu", 0.25)
    assert found(keras.ops.relu6) == found(keras.layers.ReLU(6)) == of("hard_tanh", 0.0, 6.0)
    assert found(keras.layers.Dense(2, activation="leaky_relu")) == of("leaky_relu", 0.2)
    assert found(keras.layers.ELU(0.5)) == of("elu", 0.5)
    refused(keras_file(tmp_path, keras.layers.ReLU(0)), "min and max must be two constants in order")
    with known("gelu", keras="gelu", fixed={"approximate": False}):
        assert found(lambda x: keras.ops.gelu(x, approximate=False)).name == "gelu"
        text = "approximate must be False, as in activation 'gelu', not True"
        refused(keras_file(tmp_path, keras.ops.gelu), text)
    network = rtlstm.read_model(keras_file(tmp_path, keras.layers.GRU(2, activation="hard_tanh"))).network
    assert network.layers[-1].candidate == of("hard_tanh")


def test_an_option_of_tflite_is_a_parameter_or_refused(tmp_path: Path) -> None:
    from support.tflite_files import Operator, Tensor, build
    from support.tflite_files import lstm as tflite_lstm

    tensors, recurrent = tflite_lstm(np.random.default_rng(0), gives="h")
    tensors["y"] = Tensor(shape=tensors["h"].shape)

    def made(kind: str, table: str = "", **options: Any) -> Path:
        operators = [recurrent, Operator(kind, ["h"], ["y"], table, options)]
        (tmp_path / "model.tflite").write_bytes(build(tensors, operators, ["x"], ["y"]))
        return tmp_path / "model.tflite"

    slope = rtlstm.read_model(made("LEAKY_RELU", "LeakyReluOptions", Alpha=0.25)).network.layers[-1]
    assert slope.alpha == 0.25
    with known("gelu", tflite="GELU", fixed={"approximate": False}):
        network = rtlstm.read_model(made("GELU", "GeluOptions", Approximate=False)).network
        assert network.layers[-1].activation == "gelu"
        text = "GELU operator 'gelu_1': approximate must be False, as in activation 'gelu', not True"
        refused(made("GELU", "GeluOptions", Approximate=True), text)
