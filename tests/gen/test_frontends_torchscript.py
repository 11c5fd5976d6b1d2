"""TorchScript files: scripted and traced modules give the same network as the module itself."""

import zipfile

import numpy as np
import pytest

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ModelError

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore:LSTM with projections"
)

I, H = 3, 4  # noqa: E741


class Whole(nn.Module):
    """Every kind of module that has options of its own."""

    def __init__(self, kind, **options):
        super().__init__()
        both = 2 * (options.get("proj_size") or H)
        self.norm = nn.BatchNorm1d(I, eps=0.1)
        self.rnn = getattr(nn, kind)(I, H, num_layers=2, batch_first=True, bidirectional=True, **options)
        self.conv = nn.Conv1d(both, both, 1)
        self.leaky, self.drop, self.linear = nn.LeakyReLU(0.3), nn.Dropout(), nn.Linear(both, 2)
        nn.init.uniform_(self.norm.running_mean)

    def forward(self, x):
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        y, _ = self.rnn(x)
        y = self.leaky(self.conv(y.permute(0, 2, 1))).permute(0, 2, 1)
        return torch.sigmoid(self.linear(self.drop(y))) * 2 - 1


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [("LSTM", {"proj_size": 2}), ("GRU", {"bias": False}), ("RNN", {"nonlinearity": "relu"})],
)
def test_file_equals_module(tmp_path, how, kind, options):
    torch.manual_seed(1)
    module, x = Whole(kind, **options).eval(), torch.rand(2, 5, I)
    scripted = torch.jit.script(module) if how == "script" else torch.jit.trace(module, x)
    scripted.save(str(tmp_path / "net.pt"))
    result = read_model(tmp_path / "net.pt")
    y = run_float(result.network, x.numpy().swapaxes(0, 1)).y.swapaxes(0, 1)
    with torch.no_grad():
        np.testing.assert_allclose(y, module(x).numpy(), atol=1e-5)
    assert result.report.format == "TorchScript"
    assert [layer.kind for layer in result.network.layers][:3] == ["bidirectional", "bidirectional", "dense"]


class Ends(nn.Module):
    """The last step alone, and final states beside a slice of the features."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LSTM(I, H, batch_first=True), nn.GRU(I, H, 2, bidirectional=True)
        self.linear = nn.Linear(H, 2)

    def forward(self, x):
        return self.linear(self.first(x)[0][:, -1, :])


class BothEnds(Ends):
    def forward(self, x):
        y, h = self.second(x.transpose(0, 1))
        return self.linear(torch.cat([h[-2:][0][:, 1:3], y[0, :, 4:][:, ::2]], 1))


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("kind", [Ends, BothEnds])
def test_slices_and_final_states(tmp_path, how, kind):
    torch.manual_seed(1)
    module, x = kind().eval(), torch.rand(2, 5, I)
    scripted = torch.jit.script(module) if how == "script" else torch.jit.trace(module, x)
    scripted.save(str(tmp_path / "net.pt"))
    y = run_float(read_model(tmp_path / "net.pt").network, x.numpy().swapaxes(0, 1)).y[-1]
    with torch.no_grad():
        np.testing.assert_allclose(y, module(x).numpy(), atol=1e-5)


class Inner(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell, self.head = getattr(nn, kind)(I, H), nn.Linear(H, 1)

    def forward(self, x: torch.Tensor, state: torch.Tensor):
        h = self.cell(x, state) if len(state) else self.cell(x)
        return torch.relu(self.head(h)), h


class Outer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first, self.second = Inner(kind), Inner(kind)

    def forward(self, x: torch.Tensor, state: torch.Tensor, rate: int):
        if rate == 16000:
            y, state = self.first(x.exp(), state)
        else:
            y, state = self.second(x, state)
        return y, state


@pytest.mark.parametrize("kind", ["GRUCell", "RNNCell"])
def test_a_module_inside_is_named(kind):
    torch.manual_seed(2)
    module = torch.jit.script(Outer(kind))
    with pytest.raises(
        ModelError, match="a condition .* is known only in a run.*first.*second.*name the LSTM"
    ):
        read_model(module)
    result = read_model(module, ReadOptions(lstm="second.cell"))
    x, expected, state = torch.rand(4, 2, I), [], torch.zeros(2, H)
    with torch.no_grad():
        for step in x:
            y, state = module.second(step, state)
            expected.append(y.numpy())
    np.testing.assert_allclose(run_float(result.network, x.numpy()).y, expected, atol=1e-6)
    assert any("the forward of 'second' is read" in note for note in result.report.notes)
    with pytest.raises(ModelError, match="'third.cell' is none; it has first.cell, second.cell"):
        read_model(module, ReadOptions(lstm="third.cell"))


def test_refusals_name_the_operator():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(I, H)

        def forward(self, x):
            return torch.softmax(self.lstm(x)[0], -1)

    assert "softmax" in inspect_model(torch.jit.script(Net())).refusal


def test_damaged_archive(tmp_path):
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/constants.pkl", b"nothing")
    with pytest.raises(ModelError, match="must be a TorchScript file, but cannot be loaded"):
        read_model(path)
