"""Models without a recurrent layer: perceptrons and causal convolutions, read like the others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lazy import F, nets, nn, torch
from support.refusals import refused
from support.torch_forms import in_form

from rtlstm.gen.frontends import inspect_model, read_model
from rtlstm.gen.frontends.reading import ReadOptions
from rtlstm.sim.reference import run_float
from rtlstm.spec.layout import as_steps

pytestmark = pytest.mark.usefixtures("read_here")
FEATURES = 6


def net(body: Any) -> Any:
    """Two linear layers and some convolutions, used as ``body`` says."""
    return nets.Net(
        body,
        wide=nn.Linear(FEATURES, 9),
        back=nn.Linear(9, FEATURES),
        conv=nn.Conv1d(FEATURES, 5, 3),
        dilated=nn.Conv1d(5, 5, 2, dilation=2),
        strided=nn.Conv1d(FEATURES, 5, 3, stride=2),
        across=nn.Conv1d(FEATURES, 5, 1, stride=2),
        slower=nn.Conv1d(5, 5, 3, stride=3, padding=1),
        patches=nn.Conv1d(5, 5, 2, stride=2),
        head=nn.Linear(5, 2),
        lstm=nn.LSTM(5, 5, batch_first=True),
    )


def stack(m: Any, x: Any) -> Any:
    y = torch.relu(m.conv(F.pad(x, (2, 0))))
    y = torch.relu(m.dilated(F.pad(y, (2, 0)))) + y
    return m.head(y.transpose(1, 2)).transpose(1, 2)


def strides(m: Any, x: Any) -> Any:
    """Rates 1, 1/2 and 1/6, with a residual around a stride and delays at two rates."""
    y = torch.relu(m.strided(F.pad(x, (2, 0)))) + m.across(x)
    return m.head(torch.tanh(m.slower(m.dilated(F.pad(y, (2, 0))))).transpose(1, 2)).transpose(1, 2)


def patches(m: Any, x: Any) -> Any:
    y, _ = m.lstm(torch.relu(m.patches(m.conv(F.pad(x, (2, 0))))).transpose(1, 2))
    return m.head(y).transpose(1, 2)


PERCEPTRONS = {
    "alone": lambda: nn.Linear(FEATURES, 4),
    "linear layers": lambda: nn.Sequential(
        nn.Linear(FEATURES, 9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 3), nn.Sigmoid()
    ),
    "batch norm": lambda: nn.Sequential(
        nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 9), nn.BatchNorm1d(9), nn.Tanh()
    ),
    "flattened": lambda: nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 9), nn.ELU(), nn.Linear(9, 2)),
    "residual": lambda: net(lambda m, x: m.back(torch.relu(m.wide(x))) + x),
}
CONVOLUTIONS = {
    "dilated, with a residual": (lambda: net(stack), 1, "rnn dense rnn dense dense"),
    "alone": (lambda: nn.Sequential(nn.Conv1d(FEATURES, 4, 1)), 1, "dense"),
    "strides, with a residual": (lambda: net(strides), 6, "rnn dense dense rnn dense rnn dense dense"),
    "an LSTM behind a stride": (lambda: net(patches), 2, "rnn dense dense lstm dense"),
    "strides without delays": (
        lambda: nn.Sequential(nn.Conv1d(FEATURES, 4, 2, 2), nn.ReLU(), nn.Conv1d(4, 3, 3, 3)),
        6,
        "dense dense",
    ),
}
"""Each with the frames of a step, and the kinds of the core's layers."""


def check(module: Any, x: Any, inputs: Any, folder: Path) -> None:
    """Every source gives the same network; ``inputs`` are ``(steps, sequences, features)``."""
    module = module.eval()
    with torch.no_grad():
        wanted = module(x)
    wanted = (wanted[None] if wanted.ndim == 2 else wanted.permute(2, 0, 1)).numpy()
    for name in ("module", "trace", "exported", "onnx"):
        result = read_model(in_form(name, module, (x,), folder, saved=False))
        assert result.network.inputs == FEATURES * result.network.frames
        inputs, _ = as_steps("x", inputs, None, 0, result.network.inputs, result.network.frames)
        np.testing.assert_allclose(run_float(result.network, inputs).y, wanted, atol=1e-5, err_msg=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PERCEPTRONS)
def test_samples(name: str, tmp_path: Path) -> None:
    """A sample is a step: nothing passes from one to the next."""
    torch.manual_seed(0)
    x = torch.randn(7, FEATURES)
    check(PERCEPTRONS[name](), x, x[None].double().numpy(), tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_causal_convolutions(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, frames, kinds = CONVOLUTIONS[name]
    module = make()
    x = torch.randn(2, FEATURES, 11 if frames == 1 else 12)
    check(module, x, x.permute(2, 0, 1).double().numpy(), tmp_path)
    network = read_model(module).network
    assert (network.frames, " ".join(layer.kind for layer in network.layers)) == (frames, kinds)


def heads(m: Any, x: Any) -> dict[str, Any]:
    """One head behind one layer, one behind two with a residual, the hidden sequence, and a linear head."""
    y, _ = m.lstm(torch.relu(m.conv(F.pad(x, (2, 0)))).transpose(1, 2))
    deep = torch.relu(m.inner(y)) + y
    return {"turn": torch.tanh(m.head(y)), "hidden": y, "push": torch.sigmoid(m.gate(deep)), "raw": m.raw(y)}


@pytest.mark.filterwarnings("ignore")
def test_several_outputs(tmp_path: Path) -> None:
    """Every source gives their values side by side; names are those of the source."""
    torch.manual_seed(0)
    module, x = net(heads).eval(), torch.randn(2, FEATURES, 11)
    module.inner, module.gate, module.raw = nn.Linear(5, 5), nn.Linear(5, 3), nn.Linear(5, 4)
    wanted = torch.cat(list(module(x).values()), dim=-1).permute(1, 0, 2).detach().numpy()
    names = ["turn", "hidden", "push", "raw"]
    torch.onnx.export(module, (x,), tmp_path / "model.onnx", dynamo=False, output_names=names)
    exported = torch.export.export(module, (x,))
    for source in (module, exported, tmp_path / "model.onnx"):
        network = read_model(source).network
        np.testing.assert_allclose(
            run_float(network, x.permute(2, 0, 1).double().numpy()).y, wanted, atol=1e-5
        )
        assert [part.width for part in network.parts] == [2, 5, 3, 4]
        if source is not exported:
            assert [part.name for part in network.parts] == names


@pytest.mark.filterwarnings("ignore")
def test_a_head_that_reads_only_the_last_step(tmp_path: Path) -> None:
    """Beside a head for each step, both behind activations."""

    def call(m: Any, x: Any) -> Any:
        y, (h, _) = m.lstm(x)
        return torch.tanh(m.each(y)), torch.sigmoid(m.final(h[-1]))

    torch.manual_seed(0)
    parts = {"lstm": nn.LSTM(FEATURES, 5), "each": nn.Linear(5, 2), "final": nn.Linear(5, 3)}
    module, x = nets.Net(call, **parts).eval(), torch.randn(6, 2, FEATURES)
    each, final = (y.detach().numpy() for y in module(x))
    torch.onnx.export(module, (x,), tmp_path / "model.onnx", dynamo=False, output_names=["all", "end"])
    for source, names in (
        (module, ["each", "final"]),
        (torch.export.export(module, (x,)), ["each", "final"]),
        (tmp_path / "model.onnx", ["all", "end"]),
    ):
        found = read_model(source)
        assert [part.name for part in found.network.parts] == names
        assert any(f"only the last step of the output '{names[1]}'" in note for note in found.report.notes)
        y = run_float(found.network, x.double().numpy()).y
        np.testing.assert_allclose(y[..., :2], each, atol=1e-6)
        np.testing.assert_allclose(y[-1, :, 2:], final, atol=1e-6)


def test_a_stride_is_told() -> None:
    report = inspect_model(CONVOLUTIONS["strides without delays"][0]())
    assert any("takes 6 frames of 6 values at once" in note for note in report.notes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 9), nn.CELU()), "CELU '1', which reads '_0'"),
        (
            lambda: net(lambda m, x: x.tanh() if x is not None else m.wide(x)),
            "but there is none in it; it has tanh",
        ),
        (lambda: nn.Sequential(nn.Conv1d(6, 5, 3)), "it must be causal"),
        (lambda: nn.Sequential(nn.Conv1d(6, 5, 5, stride=2)), "put 3 to 4 zeros in front"),
        (
            lambda: nn.Sequential(nn.Conv1d(6, 5, 3, stride=2, padding=2)),
            "has steps that a convolution padded",
        ),
        (
            lambda: net(
                lambda m, x: m.patches(m.lstm(m.conv(F.pad(x, (2, 0))).transpose(1, 2))[0].transpose(1, 2))
            ),
            "layer 'lstm' is recurrent and stands before a stride of 2",
        ),
        (
            lambda: net(lambda m, x: m.strided(F.pad(x, (2, 0))) + m.strided(F.pad(x, (1, 0)))),
            "two results of different steps at once",
        ),
    ],
)
def test_refused_by_name(make: Any, words: str) -> None:
    assert words in inspect_model(make().eval()).refusal


@pytest.mark.filterwarnings("ignore")
def test_no_recurrent_module_to_begin_with(tmp_path: Path) -> None:
    module, x = nn.Sequential(nn.Linear(6, 9), nn.ReLU()), torch.randn(1, 6)
    refused(module, "`lstm` must name a recurrent module, but the model has none", ReadOptions(lstm="0"))
    torch.onnx.export(module, (x,), tmp_path / "model.onnx", dynamo=False)
    refused(
        tmp_path / "model.onnx",
        "`lstm` must name a recurrent node, but the model has none",
        ReadOptions(lstm="0"),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("width", [3, 4])
def test_two_inputs(width: int, tmp_path: Path) -> None:
    """Nothing says that the second one is a state, whether it is as wide as the result or not."""
    two = nets.LengthsNet(lambda m, x, z: m.a(x) + m.b(z), a=nn.Linear(6, 3), b=nn.Linear(width, 3))
    x, z = torch.randn(1, 6), torch.randn(1, width)
    torch.onnx.export(two, (x, z), tmp_path / "two.onnx", dynamo=False)
    for source in (tmp_path / "two.onnx", two):
        network = read_model(source).network
        assert [part.width for part in network.input_parts] == [6, width]
        y = run_float(network, torch.cat([x, z], dim=1)[None].numpy()).y[0]
        np.testing.assert_allclose(y, two(x, z).detach().numpy(), atol=1e-6)
