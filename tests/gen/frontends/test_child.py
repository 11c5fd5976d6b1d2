"""Foreign files are read in a child process: its limits, and one named error for whatever ends it."""

import copy
import importlib
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from support.keras_files import CELL, CONFIG, save
from support.lazy import torch
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, child, inspect_model, limits, read_model
from rtlstm.spec.activations.functions import ACTIVATIONS, FunctionDefinition
from rtlstm.spec.errors import ToolError

h5py = pytest.importorskip("h5py")


@pytest.fixture
def path(tmp_path):
    return save(tmp_path / "model.keras")


def test_keras_file_is_read_in_a_child(path, monkeypatch, read_here):
    here = read_model(path)
    monkeypatch.undo()
    there = read_model(path)
    assert there.report == here.report
    assert there.network.model_dump_json() == here.network.model_dump_json()
    assert there.report.source == "model.keras" and there.report.format == "Keras 3"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", ["TorchScript", "torch state dict"])
def test_pytorchs_files_are_read_in_a_child(tmp_path, kind):
    module, path = torch.nn.LSTM(3, 2), tmp_path / "net.pt"
    if kind == "TorchScript":
        torch.jit.trace(torch.nn.Sequential(module), torch.rand(2, 1, 3)).save(str(path))
    else:
        torch.save(module.state_dict(), path)
    result = read_model(path)
    wanted = read_model(module).network.layers[0]
    found = result.network.layers[0]
    assert result.report.format == kind
    assert np.array_equal(found.w_ih, wanted.w_ih) and np.array_equal(found.bias, wanted.bias)


def test_refusal_comes_from_the_child_with_its_report(tmp_path):
    def write(group, name):
        group[name] = h5py.ExternalLink("other.h5", "/data")

    path = save(tmp_path / "model.keras", a0=write)
    report = inspect_model(path)
    assert f"{path}: '{CELL}/0' is a link to another file, 'other.h5'" in report.refusal
    assert report.format == "Keras 3"


def with_activation(name):
    config = copy.deepcopy(CONFIG)
    config["config"]["layers"][1]["config"]["activation"] = name
    return config


def test_refusal_names_a_function_that_only_this_process_has(tmp_path):
    ACTIVATIONS.add("cube", FunctionDefinition(formula=lambda x, a, b: x**3, odd=True, keras="cubic"))
    try:
        path = save(tmp_path / "model.keras", config=with_activation("cubic"))
        hint = "activation cube was added in this process only, .* of the group 'rtlstm.activations'"
        refused(path, f"has activation='cubic', but must be one of .*; {hint}$")
        other = save(tmp_path / "other.keras", config=with_activation("square"))
        assert "this process only" not in refused(other, "activation='square'")
    finally:
        ACTIVATIONS.remove("cube")


def start(monkeypatch, *lines: str) -> None:
    """Let the child do something else than read."""
    monkeypatch.setattr(child, "_START", "; ".join(lines) + " # {}")


def test_crash_is_named(path, monkeypatch):
    start(monkeypatch, "import os", "os.abort()")
    refused(path, r"makes the library that reads it crash \(SIGABRT\)")


def test_loop_ends(path, monkeypatch):
    """The limit is of processor time, which ends C code, too."""
    load = f"import sys; sys.path[:] = {sys.path!r}; from rtlstm.gen.frontends import limits"
    start(monkeypatch, load, "limits.SECONDS = 1", "limits.keep_limits()", "sum(iter(int, 1))")
    refused(path, "s of processor time to read")


def test_silent_child_ends(path, monkeypatch):
    start(monkeypatch, "import time", "time.sleep(60)")
    monkeypatch.setattr(child, "_WAIT", 0.2)
    refused(path, r"takes more than 0.2 s to read")


def test_exception_that_ends_the_child_is_named(path, monkeypatch):
    load = f"import sys; sys.path[:] = {sys.path!r}; from rtlstm.gen.frontends import child"
    start(
        monkeypatch,
        load,
        "child.FOREIGN['keras'] = ('no_module', 'read', ())",
        "sys.argv.pop()",
        "child.main()",
    )
    with pytest.raises(ToolError, match="ended with: ModuleNotFoundError: No module named 'no_module'"):
        read_model(path)


@pytest.mark.parametrize("kind", child.FOREIGN)
def test_every_reader_is_there(kind):
    module, name, packages = child.FOREIGN[kind]
    for package in packages:
        pytest.importorskip(package)
    assert callable(getattr(importlib.import_module(module), name))


def test_nonsense_is_named(path, monkeypatch):
    start(monkeypatch, "print('{{}}')")
    refused(path, "return an invalid answer")


def test_child_that_cannot_start_is_no_model_error(path, monkeypatch):
    start(monkeypatch, "raise SystemExit('no room')")
    with pytest.raises(ToolError, match="a Python process of its own, which ended with: no room"):
        read_model(path)
    monkeypatch.setattr(sys, "executable", "/no/python")
    with pytest.raises(ToolError, match="'/no/python' cannot be started"):
        read_model(path)


LIMITED = """
import os, sys
sys.path[:] = {path!r}
from io import BytesIO
from pathlib import Path
from rtlstm.gen.frontends import limits
limits.keep_limits()
try:
    bytearray(limits.MEMORY + 2**30)
except MemoryError:
    print("memory")
old = open({old!r}, "r+b")
with limits.no_files():
    for mode in ("rb", "r+b", "wb"):
        try:
            open({old!r}, mode)
        except OSError:
            print("no", mode)
try:
    with open({new!r}, "wb", buffering=0) as file:
        file.write(b"x")
except OSError:
    print("not written")
print(old.read())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep fewer of these limits")
def test_limits(tmp_path: Path):
    """No memory beyond the limit, no file opened while a library reads, none ever written."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"as it was")
    code = LIMITED.format(path=sys.path, old=str(old), new=str(new))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:5] == ["memory", "no rb", "no r+b", "no wb", "not written"], done
    assert "as it was" in done.stdout
    assert not new.exists() or new.stat().st_size == 0


def test_this_process_has_no_limits(path, read_here):
    read_model(path)
    assert not limits._limited


ATTEMPTS = {
    "socket": "import socket; socket.socket()",
    "write": "open(sys.argv[1] + '/made', 'w')",
    "remove": "os.unlink(sys.argv[1] + '/there')",
    "read": "open(sys.argv[1] + '/there')",
    "fork": "os.fork()",
    "start": "import subprocess; subprocess.run([sys.executable, '-c', ''])",
    "execute": "os.execv(sys.executable, ['python', '-c', 'print(1)'])",
    "kill": "os.kill(os.getppid(), 0)",
    "tgkill": "call(tgkill, os.getppid(), os.getppid(), 0)",
    "tkill": "call(tkill, os.getppid(), 0)",
    "limits": "call(prlimit, os.getppid(), 7, 0, 0)",
    "chmod": "os.chmod(sys.argv[1] + '/there', 0o600)",
    "chown": "os.chown(sys.argv[1] + '/there', os.getuid(), os.getgid())",
    "times": "os.utime(sys.argv[1] + '/there')",
    "attributes": "os.setxattr(sys.argv[1] + '/there', 'user.a', b'1')",
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have neither Landlock nor seccomp")
def test_isolated_process_reaches_nothing(tmp_path):
    """Each of these works before; threads, open files and packages that are imported late do afterwards."""
    (tmp_path / "there").write_text("text")
    lines = [
        "import ctypes, os, sys, threading, importlib",
        f"sys.path[:] = {sys.path!r}",
        "import socket, subprocess, numpy",
        "from rtlstm.gen.frontends.limits import _MACHINES, isolate",
        "libc, machine = ctypes.CDLL(None, use_errno=True), _MACHINES[os.uname().machine]",
        "tkill = 200 if machine[1] == 317 else 130",
        "tgkill, prlimit = machine[3]",
        "def call(*given):",
        "    if libc.syscall(*given) < 0: raise OSError(ctypes.get_errno(), 'refused')",
        "file = open(sys.argv[1] + '/there')",
        "isolate()",
        "assert file.read() == 'text'",
        "thread = threading.Thread(target=lambda: importlib.import_module('rtlstm.gen.frontends.onnx'))",
        "call(tgkill, os.getpid(), os.getpid(), 0); call(prlimit, 0, 7, 0, 0)",
        "thread.start(); thread.join(); assert 'rtlstm.gen.frontends.onnx' in sys.modules",
        "def attempt(name, program):",
        "    try:",
        "        exec(program)",
        "    except PermissionError:",
        "        print(name, flush=True)",
        *(f"attempt({name!r}, {program!r})" for name, program in ATTEMPTS.items()),
    ]
    command = [sys.executable, "-c", "\n".join(lines), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == list(ATTEMPTS), done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


CALLS = [
    "socket",
    "execve",
    "kill",
    "ptrace",
    "add_key",
    "keyctl",
    "unshare",
    "perf_event_open",
    "process_vm_readv",
    "process_vm_writev",
    "bpf",
    "execveat",
    "userfaultfd",
    "rt_sigqueueinfo",
    "tkill",
    "rt_tgsigqueueinfo",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
]
OLD_CALLS = {"fork", "vfork", "chmod", "chown", "lchown", "utime", "utimes", "futimesat"}
"""Newer processors have others in their place."""
HEADERS = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_of_system_calls_are_those_of_the_kernels_headers(machine):
    """AArch64 has the numbers that are common to all newer processors."""
    header = Path("/usr/include") / HEADERS[machine]
    if not header.exists():
        pytest.skip(f"this system has no {header}")
    text = re.sub(r"\b__NR3264_", "__NR_", header.read_text())
    numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)$", text, re.M)}
    _, seccomp, clone, alone, refused = limits._MACHINES[machine]
    assert (seccomp, clone) == (numbers["seccomp"], numbers["clone"])
    assert alone == (numbers["tgkill"], numbers["prlimit64"])
    there = OLD_CALLS & numbers.keys()
    assert there == (OLD_CALLS if machine == "x86_64" else set())
    assert refused == {numbers[name] for name in {*CALLS, *there}}


def test_the_child_is_isolated_before_it_reads(monkeypatch):
    order = []
    monkeypatch.setattr(child, "load", lambda kind: order.append("load"))
    for name in ("keep_limits", "isolate"):
        monkeypatch.setattr(child, name, lambda name=name: order.append(name))
    monkeypatch.setattr(child, "read_foreign", lambda *given: order.append("read"))
    child._answer(BytesIO(), child._Request(kind="torch", options=ReadOptions(), name="a", source="a"))
    assert order == ["load", "keep_limits", "isolate", "read"]
