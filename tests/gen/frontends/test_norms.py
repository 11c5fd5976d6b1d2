"""Norms over the features in every source are one layer, and equal the framework's results."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper
from support.lazy import F, nets, nn, scripted, torch
from support.onnx_files import H, I, const, node, rand, run, save, squeezed
from support.refusals import refused
from support.torch_forms import in_form

from rtlstm.gen.frontends import read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Network, Norm

N, T = 2, 6


def check(network: Network, x: np.ndarray, wanted: np.ndarray, norms: int) -> None:
    """``x`` and ``wanted`` are ``(N, T, values)``."""
    assert sum(isinstance(layer, Norm) for layer in network.layers) == norms
    np.testing.assert_allclose(run_float(network, x.swapaxes(0, 1)).y.swapaxes(0, 1), wanted, atol=1e-5)


# PyTorch


def over_steps(v: Any) -> Any:
    v = v - v.mean(1, keepdim=True)
    return v / torch.sqrt((v * v).mean(1, keepdim=True) + 1e-3)


def written(v: Any, centre: bool, form: int) -> Any:
    v = v - v.mean(-1, keepdim=True) if centre else v
    spread = (v * v if form else v.pow(2)).mean(-1, keepdim=True) + 1e-3
    return [lambda: v / spread.sqrt(), lambda: v * torch.rsqrt(spread), lambda: v * spread**-0.5][form]()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("read_here")
@pytest.mark.parametrize("form", ["module", "exported", "script", "trace"])
@pytest.mark.parametrize(("name", "count"), [("LayerNorms", 3), ("RmsNorms", 2)])
def test_modules(name: str, count: int, form: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, x = getattr(scripted, name)().eval(), torch.randn(N, T, 3)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -1.0, 1.0)
    source = in_form(form, module, (x,), tmp_path)
    check(read_model(source).network, x.numpy(), module(x).detach().numpy(), count)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("form", [0, 1, 2])
def test_norms_that_are_written_out(form: int, centre: bool) -> None:
    """With a gain behind it, which is the norm's."""
    torch.manual_seed(form)
    module = nets.Net(
        lambda m, x: torch.tanh(m.fc(torch.relu(written(m.lstm(x)[0], centre, form) * m.gain))),
        lstm=nn.LSTM(I, H, batch_first=True), fc=nn.Linear(H, 4), gain=nn.Parameter(torch.rand(H)),
    ).eval()  # fmt: skip
    x, result = torch.randn(N, T, I), read_model(module)
    check(result.network, x.numpy(), module(x).detach().numpy(), 1)
    (norm,) = (layer for layer in result.network.layers if isinstance(layer, Norm))
    assert norm.gain is not None and norm.epsilon == pytest.approx(1e-3)
    assert any(f"{'a layer' if centre else 'an RMS'} norm of" in note for note in result.report.notes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("read_here")
@pytest.mark.parametrize("form", ["module", "exported", "trace", "onnx"])
@pytest.mark.parametrize(
    ("over", "norm", "transposed"),
    [
        (r"the steps and the features: axes \[1, 2\] of", lambda m, v: F.layer_norm(v, (T, H)), False),
        (r"the steps: axes \[2\] of \(N, F, T\)", lambda m, v: F.layer_norm(v, (T,)), True),
        (r"the steps: axes \[1\] of \(N, T, F\)", lambda m, v: over_steps(v), False),
    ],
)
def test_norms_over_other_axes_are_refused(
    over: str, norm: Any, transposed: bool, form: str, tmp_path: Path
) -> None:
    def call(m: Any, x: Any) -> Any:
        h = m.lstm(x)[0]
        return norm(m, h.transpose(1, 2) if transposed else h)

    module, x = nets.Net(call, lstm=nn.LSTM(I, H, batch_first=True)).eval(), torch.randn(N, T, I)
    words = f"normalises over {over}.*must normalise over the features of a step"
    refused(in_form(form, module, (x,), tmp_path), words)


# ONNX


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("LayerNormalization", "s g b", {"axis": -1, "epsilon": 0.01}),
        ("LayerNormalization", "s g", {"axis": 2}),
        ("RMSNormalization", "s g", {"epsilon": 0.001}),
    ],
)
def test_onnx(kind: str, inputs: str, attributes: dict[str, Any], tmp_path: Path) -> None:
    nodes, weights = squeezed()
    weights += [const("g", rand(H)), const("b", rand(H))]
    norm = node(kind, inputs, "out", **attributes)
    path = save(tmp_path / "a.onnx", [*nodes, norm], weights, opset=23 if kind[0] == "R" else 17, ir=10)
    x = rand(T, N, I)
    before = run(save(tmp_path / "b.onnx", nodes, weights, outputs=("s",)), x, "s").astype(np.float64)
    before -= before.mean(-1, keepdims=True) if kind[0] == "L" else 0.0
    spread = (before**2).mean(-1, keepdims=True) + attributes.get("epsilon", 1e-5)
    gain, bias = (numpy_helper.to_array(each).astype(np.float64) for each in weights[-2:])
    wanted = before / np.sqrt(spread) * gain + (bias if inputs.endswith("b") else 0.0)
    check(read_model(path).network, x.swapaxes(0, 1), wanted.swapaxes(0, 1), 1)


def test_onnxruntimes_operator(tmp_path: Path) -> None:
    nodes, weights = squeezed()
    norm = node("SimplifiedLayerNormalization", "s g", "out", axis=-1, epsilon=0.01, stash_type=1)
    path = save(tmp_path / "a.onnx", [*nodes, norm], [*weights, const("g", rand(H))])
    layer = read_model(path).network.layers[-1]
    assert isinstance(layer, Norm) and not layer.centre and layer.epsilon == pytest.approx(0.01)


# Keras


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("read_here")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LayerNormalization", {}),
        ("LayerNormalization", {"center": False, "epsilon": 0.1}),
        ("LayerNormalization", {"scale": False, "axis": [-1]}),
        ("RMSNormalization", {}),
    ],
)
def test_keras(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    make, rng = getattr(keras.layers, kind), np.random.default_rng(0)
    layers = [make(**options), keras.layers.LSTM(H, return_sequences=True), make(**options)]
    model = keras.Sequential([keras.Input((T, I)), *layers])
    model.set_weights([rng.uniform(-1, 1, each.shape) for each in model.get_weights()])
    x = rng.normal(size=(N, T, I)).astype(np.float32)
    wanted = keras.ops.convert_to_numpy(model(x))
    for suffix in (".keras", ".h5"):
        model.save(tmp_path / f"model{suffix}")
        check(read_model(tmp_path / f"model{suffix}").network, x, wanted, 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("read_here")
def test_keras_rms_scaling_is_refused(tmp_path: Path) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    norm = keras.layers.LayerNormalization(rms_scaling=True)
    model = keras.Sequential([keras.Input((T, I)), keras.layers.LSTM(H, return_sequences=True), norm])
    model.save(tmp_path / "model.keras")
    refused(tmp_path / "model.keras", "rms_scaling must be False, not True; use RMSNormalization")
