"""TorchScript files: scripted and traced modules give the same network as the module itself."""

import subprocess
import sys
import zipfile
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from support.lazy import Lazy, nets, nn, torch
from support.refusals import refused
from support.torch_forms import in_form

from rtlstm.gen.frontends import ReadOptions, inspect_model, limits, read_model
from rtlstm.gen.frontends.torch import script as script_reader
from rtlstm.sim.reference import run_float

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore:LSTM with projections"
    ),
    pytest.mark.usefixtures("read_here"),
]

scripted, loops = Lazy("support.scripted_nets"), Lazy("support.scripted_loops")
I, H = 3, 4  # noqa: E741


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [("LSTM", {"proj_size": 2}), ("GRU", {"bias": False}), ("RNN", {"nonlinearity": "relu"})],
)
def test_file_equals_module(tmp_path, how, kind, options):
    torch.manual_seed(1)
    module, x = scripted.Whole(kind, **options).eval(), torch.rand(2, 5, I)
    result = read_model(in_form(how, module, (x,), tmp_path))
    y = run_float(result.network, x.numpy().swapaxes(0, 1)).y.swapaxes(0, 1)
    np.testing.assert_allclose(y, module(x).detach().numpy(), atol=1e-5)
    assert result.report.format == "TorchScript"
    assert [layer.kind for layer in result.network.layers][:3] == ["bidirectional", "bidirectional", "dense"]


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("kind", ["Ends", "BothEnds", "Appended", "Changed", "Filled"])
def test_slices_and_final_states(tmp_path, how, kind):
    torch.manual_seed(1)
    module, x = getattr(scripted, kind)().eval(), torch.rand(2, 5, I)
    network = read_model(in_form(how, module, (x,), tmp_path)).network
    y = run_float(network, x.numpy().swapaxes(0, 1)).y[-1]
    np.testing.assert_allclose(y, module(x).detach().numpy(), atol=1e-5)


def test_lists_that_only_a_run_tells_are_refused():
    refused(
        torch.jit.script(scripted.Unknown()), "aten::append changes a list whose elements only a run tells"
    )


LOOPS = {
    "BatchFirst": ["custom", "dense"],
    "TwoTensors": ["dense", "custom", "dense"],
    "LastOfList": ["custom", "dense"],
    "Numbered": ["custom", "custom", "dense"],
    "TwoLoops": ["lstm", "custom", "dense"],
    "Numbers": ["gru"],
    "BothWays": ["bidirectional"],
    "Deep": ["lstm", "lstm", "dense"],
    "Filling": ["gru"],
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_the_steps_equals_pytorch(name, tmp_path):
    torch.manual_seed(2)
    kind, x = getattr(loops, name), torch.rand(7, 2, I)
    module = kind().eval()
    network = read_model(in_form("script", module, (), tmp_path)).network
    assert [layer.kind for layer in network.layers] == LOOPS[name]
    wanted = module(x.transpose(0, kind.axis)).detach().numpy()
    y = run_float(network, x.numpy()).y
    wanted, y = (wanted, y[-1]) if wanted.ndim < 3 else (wanted.swapaxes(0, kind.axis), y)
    np.testing.assert_allclose(y, wanted, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Stopped", r"a loop must go over all steps of its input, as for t in range\(x.size\(1\)\) does"),
        ("Shorter", "and no value that it computes may end it; write it so, or give the module"),
        ("Features", "a loop must go over all steps"),
        ("Joined", "reads '.*' of one step, but the core gives every step or the last; stack all"),
        ("Table", "reads another constant in step 3 .* give what differs, .* as a feature of x"),
        ("Late", "compares the number of the step with a constant, .* as a feature of x"),
        ("Delayed", "step 1 reads '.*', which is not what step 0 gives; take each step of the input once"),
        ("Beside", "copy '.*' writes over a part of '.*', which is not supported; make a new tensor"),
        ("States", "reads the state '.*' of every step, but the core gives h of every step"),
        ("Cleared", r"no state of the loop; if mul '.*' clears the state .* reset the stream there"),
        ("Kept", r"if a mask ends each sequence, give the driver the lengths, run\(x, lengths\)"),
    ],
)
def test_loops_over_something_else_are_refused_by_name(name, words):
    refused(torch.jit.script(getattr(loops, name)()), words)


@pytest.mark.parametrize("kind", ["GRUCell", "RNNCell"])
def test_a_module_inside_is_named(kind):
    torch.manual_seed(2)
    module = torch.jit.script(scripted.Outer(kind))
    refused(module, "a condition .* is known only in a run.*first.*second.*name the LSTM")
    result = read_model(module, ReadOptions(lstm="second.cell"))
    x, expected, state = torch.rand(4, 2, I), [], torch.zeros(2, H)
    with torch.no_grad():
        for step in x:
            y, state = module.second(step, state)
            expected.append(y.numpy())
    np.testing.assert_allclose(run_float(result.network, x.numpy()).y, expected, atol=1e-6)
    assert any("the forward of 'second' is read" in note for note in result.report.notes)
    refused(module, "'third.cell' is none; it has first.cell, second.cell", ReadOptions(lstm="third.cell"))


def test_refusals_name_the_operator():
    module = nets.Net(lambda m, x: torch.exp(m.lstm(x)[0]), lstm=nn.LSTM(I, H))
    assert "exp" in inspect_model(torch.jit.trace(module, torch.rand(2, 1, I))).refusal


def test_damaged_archive(tmp_path):
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/constants.pkl", b"nothing")
    refused(path, "must be a TorchScript file, but cannot be loaded")


# Code of the file's own


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
    torch.jit.script(scripted.Trap(str(victim))).save(str(path))
    return path, victim


def test_code_of_the_file_does_not_run(attack):
    path, victim = attack
    refused(path, r"must have no __setstate__, but 'net/code/.*\.py' has")
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
    refused(tmp_path / "net.pt", "no objects of C\\+\\+ classes, but 'net/data.pkl'")


@pytest.mark.parametrize("name", ["data.pkl", "constants.pkl", ".py", "version"])
def test_damaged_members_are_named(tmp_path, name):
    torch.jit.script(nn.LSTM(I, H)).save(str(tmp_path / "net.pt"))
    change(tmp_path / "net.pt", name, lambda data: b"\xff" + data[: len(data) // 2])
    refused(tmp_path / "net.pt", "must be a TorchScript file")


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
    refused(path, "must have only literals outside the bodies of functions.*zero_")
    assert victim.read_bytes() == b"A" * 32
    if place == "argument":
        torch.jit.load(path)
        assert victim.read_bytes() == bytes(32)  # the attack is one


def test_code_hidden_from_pythons_parser_is_refused(tmp_path):
    """A carriage return ends a comment for Python, and not for TorchScript."""
    path = tmp_path / "net.pt"
    torch.jit.script(nn.LSTM(I, H)).save(str(path))
    change(path, "rnn.py", lambda data: b'#\r"""\n' + data + b'#\r"""\n')
    refused(path, "code in printable ASCII")


def test_literal_defaults_are_read(tmp_path):
    torch.jit.script(scripted.Defaults().eval()).save(
        str(tmp_path / "net.pt"), _extra_files={"note.txt": b"any"}
    )
    assert [layer.kind for layer in read_model(tmp_path / "net.pt").network.layers] == ["lstm"]


@pytest.mark.parametrize("old", ["data.pkl", "constants.pkl", "rnn.py", "version"])
def test_names_in_upper_case_are_refused(tmp_path, old):
    """PyTorch finds them all the same."""
    path = tmp_path / "net.pt"
    torch.jit.script(nn.LSTM(I, H)).save(str(path))
    rename(path, lambda name: name[: -len(old)] + old.upper() if name.endswith(old) else name)
    refused(path, "only members that torch.jit.save writes, but has .*")


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
    refused(path, "differ by more than upper and lower case")


def test_system_without_limits_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "sys", SimpleNamespace(platform="win32"))
    torch.jit.script(nn.LSTM(I, H)).save(str(tmp_path / "net.pt"))
    refused(tmp_path / "net.pt", "must be read where a process can be kept from opening files")
