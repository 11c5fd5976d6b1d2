"""TorchScript files: scripted and traced modules give the same network as the module itself."""

import subprocess
import sys
import zipfile
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Tuple  # noqa: UP035 - TorchScript's compiler wants it

import numpy as np
import pytest

from rtlstm.gen.frontends import ReadOptions, inspect_model, limits, read_model
from rtlstm.gen.frontends.torch import script as script_reader
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ModelError

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore:LSTM with projections"
    ),
    pytest.mark.usefixtures("read_here"),
]

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
            return torch.exp(self.lstm(x)[0])

    assert "exp" in inspect_model(torch.jit.script(Net())).refusal


def test_damaged_archive(tmp_path):
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/constants.pkl", b"nothing")
    with pytest.raises(ModelError, match="must be a TorchScript file, but cannot be loaded"):
        read_model(path)


# Code of the file's own


class Writes(nn.Module):
    """Its state is restored by code, which overwrites a file."""

    def __init__(self, path):
        super().__init__()
        self.path, self.kept = path, torch.zeros(1, dtype=torch.uint8)

    def forward(self, x):
        return x

    @torch.jit.export
    def __getstate__(self):
        return (self.path, self.training)

    @torch.jit.export
    def __setstate__(self, state: Tuple[str, bool]):  # noqa: UP006
        self.path, self.training = state[0], state[1]
        self.kept = torch.from_file(state[0], True, 4, dtype=torch.uint8).fill_(88)


class Trap(nn.Module):
    """An LSTM beside it."""

    def __init__(self, path):
        super().__init__()
        self.rnn, self.writes = nn.LSTM(I, H), Writes(path)

    def forward(self, x):
        return self.writes(self.rnn(x)[0])


LOAD = """
import sys
sys.path[:] = {path!r}
import torch
from rtlstm.gen.frontends import limits
limits.keep_limits()
with open({file!r}, "rb") as file, limits.no_files():
    try:
        torch.jit.load(file)
        print("loaded")
    except Exception as error:
        print("Too many open files" in str(error) or error)
"""


@pytest.fixture
def attack(tmp_path):
    """A TorchScript file, and the file that it overwrites when it is loaded."""
    victim, path = tmp_path / "victim", tmp_path / "net.pt"
    victim.write_bytes(b"as it was")
    torch.jit.script(Trap(str(victim))).save(str(path))
    return path, victim


def test_code_of_the_file_does_not_run(attack):
    path, victim = attack
    with pytest.raises(ModelError, match=r"must have no __setstate__, but 'net/code/.*\.py' has"):
        read_model(path)
    assert victim.read_bytes() == b"as it was"
    torch.jit.load(path)
    assert victim.read_bytes() == b"XXXXt was"  # the attack is one


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep fewer of these limits")
def test_code_that_runs_all_the_same_opens_no_file(attack):
    """The second wall: what the check of the code would miss finds that no file can be opened."""
    path, victim = attack
    code = LOAD.format(path=sys.path, file=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done
    assert victim.read_bytes() == b"as it was"


def change(path, name, function):
    """Write an archive anew with one member changed, by the end of its name."""
    with zipfile.ZipFile(path) as archive:
        members = {item: archive.read(item) for item in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for item, data in members.items():
            archive.writestr(item, function(data) if item.endswith(name) else data)


@pytest.mark.parametrize(
    "split", [b"__torch__.torch.classes.quantized\n", b"__torch__\ntorch.classes.quantized."]
)
def test_objects_of_native_classes_are_refused(tmp_path, split):
    """Whichever of module and name has the dots."""
    torch.jit.script(nn.LSTM(I, H)).save(str(tmp_path / "net.pt"))
    rest = b"LinearPackedParamsBase\n"
    change(tmp_path / "net.pt", "data.pkl", lambda data: data[:2] + b"c" + split + rest + data[2:])
    with pytest.raises(ModelError, match="no objects of C\\+\\+ classes, but 'net/data.pkl'"):
        read_model(tmp_path / "net.pt")


@pytest.mark.parametrize("name", ["data.pkl", "constants.pkl", ".py", "version"])
def test_damaged_members_are_named(tmp_path, name):
    torch.jit.script(nn.LSTM(I, H)).save(str(tmp_path / "net.pt"))
    change(tmp_path / "net.pt", name, lambda data: b"\xff" + data[: len(data) // 2])
    with pytest.raises(ModelError, match="must be a TorchScript file"):
        read_model(tmp_path / "net.pt")


FILL = 'torch.zero_(torch.from_file("{victim}", True, 8, dtype=6))'
PLACES = {
    "argument": (b"input: Tensor,", "input: Tensor,\n    q: Tensor={fill},"),
    "keyword": (b"input: Tensor,", "input: Tensor,\n    *,\n    q: Tensor={fill},"),
    "function": (b"class LSTM", "def free(x: Tensor, q: Tensor={fill}) -> Tensor:\n  return x\nclass LSTM"),
    "tuple": (b"class LSTM", "class T(NamedTuple):\n  q : Tensor = {fill}\nclass LSTM"),
    "field": (b"  training : bool\n", "  training : bool\n  q : Final[Tensor] = {fill}\n"),
    "in a list": (b"class LSTM", "def free(q: List[Tensor]=[{fill}]) -> int:\n  return 1\nclass LSTM"),
    "statement": (b"class LSTM", "{fill}\nclass LSTM"),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_loading_evaluates_is_refused(tmp_path, monkeypatch, place):
    """By the check of the source alone: nothing here keeps files shut."""
    monkeypatch.setattr(script_reader, "no_files", nullcontext)
    path, victim = tmp_path / "net.pt", tmp_path / "victim"
    victim.write_bytes(b"A" * 32)
    torch.jit.script(nn.LSTM(I, H)).save(str(path))
    old, new = PLACES[place]
    code = new.replace("{fill}", FILL.replace("{victim}", str(victim))).encode()
    change(path, ".py", lambda data: data.replace(old, code, 1))
    with pytest.raises(ModelError, match="must have only literals outside the bodies of functions.*zero_"):
        read_model(path)
    assert victim.read_bytes() == b"A" * 32
    if place == "argument":
        torch.jit.load(path)
        assert victim.read_bytes() == bytes(32)  # the attack is one


def test_code_hidden_from_pythons_parser_is_refused(tmp_path):
    """A carriage return ends a comment for Python, and not for TorchScript."""
    path = tmp_path / "net.pt"
    torch.jit.script(nn.LSTM(I, H)).save(str(path))
    change(path, "rnn.py", lambda data: b'#\r"""\n' + data + b'#\r"""\n')
    with pytest.raises(ModelError, match="code in printable ASCII"):
        read_model(path)


class Defaults(nn.Module):
    """Every kind of default that torch.jit.save writes."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.Sequential(nn.LSTM(I, H))

    def forward(
        self,
        x,
        a: float = -float("inf"),
        b: int = -2,
        c: str = "a\tb\u00e9",
        d: Tuple[int, float] = (1, 2.0),  # noqa: UP006
        e: bool = True,
        f: torch.device = torch.device("cpu"),  # noqa: B008
    ):
        return self.rnn(x)[0]


def test_literal_defaults_are_read(tmp_path):
    torch.jit.script(Defaults().eval()).save(str(tmp_path / "net.pt"), _extra_files={"note.txt": b"any"})
    assert [layer.kind for layer in read_model(tmp_path / "net.pt").network.layers] == ["lstm"]


@pytest.mark.parametrize("old", ["data.pkl", "constants.pkl", "rnn.py", "version"])
def test_names_in_upper_case_are_refused(tmp_path, old):
    """PyTorch finds them all the same."""
    path = tmp_path / "net.pt"
    torch.jit.script(nn.LSTM(I, H)).save(str(path))
    rename(path, lambda name: name[: -len(old)] + old.upper() if name.endswith(old) else name)
    with pytest.raises(ModelError, match="only members that torch.jit.save writes, but has .*"):
        read_model(path)


def rename(path, function):
    with zipfile.ZipFile(path) as archive:
        members = {function(item): archive.read(item) for item in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for item, data in members.items():
            archive.writestr(item, data)


def test_members_that_differ_by_case_are_refused(tmp_path):
    path = tmp_path / "net.pt"
    torch.jit.script(nn.LSTM(I, H)).save(str(path))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("net/code/__TORCH__/torch/nn/modules/rnn.py", b"")
    with pytest.raises(ModelError, match="differ by more than upper and lower case"):
        read_model(path)


def test_system_without_limits_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "sys", SimpleNamespace(platform="win32"))
    torch.jit.script(nn.LSTM(I, H)).save(str(tmp_path / "net.pt"))
    with pytest.raises(ModelError, match="must be read where a process can be kept from opening files"):
        read_model(tmp_path / "net.pt")
