"""Activation functions: one record is read from every source, and no argument of a model is dropped."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx as onnx_package
import pytest
from support.closeness import close
from support.lazy import F, Lazy, nn, torch
from support.onnx_files import H, after_lstm, const, ints, lstm, node, rand, save
from support.packages import install
from support.quick import quick
from support.refusals import refused
from support.same_network import same, without_names
from support.torch_forms import in_form

import rtlstm
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, FunctionDefinition, TorchNames
from rtlstm.spec.errors import ConfigurationError

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = Lazy("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

PLUG_IN = """
import numpy as np
from rtlstm.spec.activations.functions import FunctionDefinition, TorchNames

LOG_SIGMOID = FunctionDefinition(
    formula=lambda x, a, b: -np.logaddexp(0.0, -x),
    keras="log_sigmoid",
    torch=TorchNames("logsigmoid log_sigmoid", "LogSigmoid"),
)
"""
INPUTS, UNITS, OUTPUTS, STEPS = 3, 4, 2, 5
SOURCES = ("exported", "script", "trace", "onnx", "dynamo", "keras", "tflite")


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


def of_keras(module: Any, path: Path, activation: Any) -> Any:
    layers = [
        keras.layers.LSTM(UNITS, return_sequences=True),
        keras.layers.Dense(OUTPUTS, activation=activation),
    ]
    found = arrays(module)
    model = keras.Sequential([keras.Input((STEPS, INPUTS)), *layers])
    bias = found["lstm.bias_ih_l0"] + found["lstm.bias_hh_l0"]
    weights = [found["lstm.weight_ih_l0"].T, found["lstm.weight_hh_l0"].T, bias]
    model.set_weights([*weights, found["fc.weight"].T, found["fc.bias"]])
    model.save(path / "model.keras")
    return path / "model.keras"


def of_tflite(module: Any, path: Path, name: str, **options: Any) -> Any:
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
    table = f"{name.capitalize()}Options" if options else ""
    function = Operator(name, ["sums"], ["y"], table, options)
    (path / "model.tflite").write_bytes(build(tensors, [operator, dense, function], ["x"], ["y"]))
    return path / "model.tflite"


def source_of(form: str, module: Any, path: Path) -> Any:
    return in_form(form, module, (data(),), path, saved=form != "trace")


FUNCTIONS: dict[str, tuple[Callable[[], Any], Any, tuple[str, dict[str, Any]] | None]] = {
    "elu": (lambda: nn.ELU(), "elu", ("ELU", {})),
    "gelu": (lambda: nn.GELU(), "gelu", ("GELU", {"Approximate": False})),
    "gelu_tanh": (lambda: nn.GELU("tanh"), None, ("GELU", {"Approximate": True})),
    "hard_swish": (lambda: nn.Hardswish(), "hard_swish", ("HARD_SWISH", {})),
    "mish": (lambda: nn.Mish(), "mish", None),
    "selu": (lambda: nn.SELU(), "selu", None),
    "silu": (lambda: nn.SiLU(), "swish", None),
    "softplus": (lambda: nn.Softplus(), "softplus", None),
}
"""By our names: modules of PyTorch, Keras' activations, and TFLite's operators with their options."""
MISSING = {"tflite": ("mish", "selu", "silu", "softplus"), "keras": ("gelu_tanh",)}


@pytest.mark.parametrize(
    ("name", "source"),
    quick(
        [
            (name, source)
            for name, source in product(FUNCTIONS, SOURCES)
            if name not in MISSING.get(source, ())
        ],
        *(("gelu", source) for source in ("exported", "onnx", "keras", "tflite")),
        *(("gelu_tanh", source) for source in ("script", "trace", "onnx", "tflite")),
        *(("silu", "onnx"), ("mish", "onnx"), ("hard_swish", "onnx")),
    ),
)
@pytest.mark.usefixtures("read_here")
def test_a_function_is_read_from_every_source(name: str, source: str, tmp_path: Path) -> None:
    """By its name, or as the exporter writes it out; and it computes what PyTorch does."""
    made, in_keras, in_tflite = FUNCTIONS[name]
    module = body(made())
    wanted = rtlstm.read_model(module).network
    assert wanted.layers[-1].activation == name
    if source == "keras":
        file = of_keras(module, tmp_path, in_keras)
    elif source == "tflite" and in_tflite is not None:
        file = of_tflite(module, tmp_path, in_tflite[0], **in_tflite[1])
    else:
        file = source_of(source, module, tmp_path)
    assert same(without_names(rtlstm.read_model(file).network), without_names(wanted))
    x = data()
    close(run_float(wanted, x.numpy().swapaxes(0, 1)).y, module(x).detach().numpy().swapaxes(0, 1))


@pytest.mark.parametrize("source", [each for each in SOURCES if each != "tflite"])
def test_one_record_of_a_package_is_read_from_every_source(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry point, which the process that reads Keras and TorchScript finds, too.

    ONNX has no such operator: the exporters write its logarithm and sigmoid.
    """
    (tmp_path / "acme_functions.py").write_text(PLUG_IN)
    install(tmp_path, "acme", "[rtlstm.activations]\nlog_sigmoid = acme_functions:LOG_SIGMOID\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = body(nn.LogSigmoid())
    wanted = rtlstm.read_model(module).network
    assert wanted.layers[-1].activation == "log_sigmoid"
    made = of_keras(module, tmp_path, "log_sigmoid") if source == "keras" else ""
    found = rtlstm.read_model(made or source_of(source, module, tmp_path)).network
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
    nodes = [node(kind, "s", "out", "f", **attributes)]
    return after_lstm(path / "model.onnx", nodes, opset=24 if kind == "Swish" else 20, ir=10)


def test_an_attribute_of_onnx_is_a_parameter_or_refused(tmp_path: Path) -> None:
    network = rtlstm.read_model(with_operator(tmp_path, "Swish", alpha=2.0)).network
    assert network.layers[-1].function == ActivationFunction.of("silu", 2.0)
    with known("mine", onnx="Celu"):
        text = "Celu node 'f': alpha=2.0 is not supported: activation 'mine' has no alpha"
        refused(with_operator(tmp_path, "Celu", alpha=2.0), text)
    with known("mine", onnx="Celu", fixed={"alpha": (1.0, 0.5)}):
        assert rtlstm.read_model(with_operator(tmp_path, "Celu", alpha=0.5))
        text = "Celu node 'f': alpha must be 1.0 or 0.5, as in activation 'mine', not 2.0"
        refused(with_operator(tmp_path, "Celu", alpha=2.0), text)


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


def test_a_functions_further_arguments_choose_a_variant_or_are_refused(tmp_path: Path) -> None:
    """GELU is exact or an approximation: a definition is one of them, and a source has one name for both."""
    names = rtlstm.read_model(with_operator(tmp_path, "Gelu", approximate="tanh")).network
    assert names.layers[-1].activation == "gelu_tanh"
    assert rtlstm.read_model(with_operator(tmp_path, "Gelu")).network.layers[-1].activation == "gelu"
    text = "Gelu node 'f': approximate must be 'none' or False, as in activation 'gelu', not 'fast'"
    refused(with_operator(tmp_path, "Gelu", approximate="fast"), text)
    with known("mine", onnx="Gelu"):
        text = "ONNX operator 'Gelu' is activation 'gelu_tanh' of rtlstm and also activation 'mine' of this"
        refused(with_operator(tmp_path, "Gelu"), text)
    with known("mine", onnx="Gelu", fixed={"approximate": "fast"}):
        network = rtlstm.read_model(with_operator(tmp_path, "Gelu", approximate="fast")).network
        assert network.layers[-1].activation == "mine"


def test_an_argument_of_a_pytorch_function_is_a_parameter_or_refused() -> None:
    def found(function: Callable[[Any], Any]) -> Any:
        return rtlstm.read_model(body(function)).network.layers[-1].function

    assert found(lambda x: F.elu(x, 0.5, True)).alpha == 0.5
    assert found(lambda x: F.leaky_relu(x, inplace=True, negative_slope=0.25)).alpha == 0.25
    assert found(lambda x: F.hardtanh(x, -0.5)) == ActivationFunction.of("hard_tanh", -0.5)
    assert found(lambda x: F.gelu(x, approximate="tanh")).name == "gelu_tanh"
    assert found(lambda x: F.gelu(x)).name == "gelu"
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
    assert found(lambda x: keras.ops.gelu(x, approximate=False)).name == "gelu"
    assert found(keras.ops.gelu).name == "gelu_tanh"  # Their default differs from that of the activation.
    assert found(keras.layers.Activation("gelu")).name == "gelu"
    assert found(lambda x: x * keras.ops.sigmoid(x)).name == "silu"
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
    with known("magnitude", tflite="ABS"):
        assert rtlstm.read_model(made("ABS")).network.layers[-1].activation == "magnitude"
