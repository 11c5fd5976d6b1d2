"""A command that Ctrl-C or a signal ends leaves nothing half done and says so in one line."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.quick import quick

from rtlstm.cli.results import Ended, ends_cleanly
from rtlstm.gen.builds import folder as folder_module
from rtlstm.gen.builds.folder import new_folder, write_files

CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
SAID = {
    signal.SIGTERM: "error: ended by SIGTERM\n",
    signal.SIGHUP: "error: ended by SIGHUP\n",
    signal.SIGINT: "error: interrupted\n",
}
# Yosys runs many times over, so that a signal meets it on quick machines, too.
GENERATE = """
import rtlstm.hdl.emit.verilog as verilog
once = verilog.run_yosys
verilog.run_yosys = lambda script: [once(script) for _ in range(20)][-1]
verilog.kept_verilog = lambda what, manifest, write: write()
from rtlstm.cli.main import main
main()
"""


@pytest.fixture(autouse=True)
def _heed_signals() -> Iterator[None]:
    """As on a terminal: under nohup or in a shell's background, children inherit that some are ignored."""
    before = {number: signal.getsignal(number) for number in CODES}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupted_at(line: int, number: int, work) -> bool:
    """Do ``work``, with a signal when so many lines of gen/builds/folder.py have run; were there as many?"""
    count, sent = 0, False
    own = folder_module.__file__

    def trace(frame, event, _):
        nonlocal count, sent
        if frame.f_code.co_filename != own:
            return None
        if event == "line" and not sent:
            count += 1
            if count == line:
                sent = True
                os.kill(os.getpid(), number)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with ends_cleanly():
            work()
    except KeyboardInterrupt:
        assert sent
    finally:
        sys.settrace(before)
    return sent


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("there", [False, True])
def test_a_signal_at_every_line(tmp_path: Path, there: bool, number: int):
    """The folder is the old one or the new one, whole, and nothing stands beside it."""
    old, new = {"a": b"old", "sub/b": b"old"}, {"a": b"new", "sub/c": b"new"}
    target = tmp_path / "made" / "build"

    def work():
        with new_folder(target) as fresh:
            write_files(fresh, new)

    found = []
    for line in range(1, 200):
        if there:
            write_files(target, old)
        if not interrupted_at(line, number, work):
            break
        names = [path.name for path in tmp_path.rglob("*") if path.parent in (tmp_path, target.parent)]
        state = contents(target) if target.exists() else {}
        assert state in ([old, new] if there else [{}, new]), line
        assert names == (["made", "build"] if state else []), line
        found.append(state == new)
        if target.exists():
            for path in sorted(target.parent.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            target.parent.rmdir()
    assert len(found) > 15 and not found[0]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_what_killed_processes_left_is_removed(tmp_path: Path):
    """But not what another process writes; a former build without a new one has its name again."""
    target, left = tmp_path / "net.1", tmp_path / f".net.1.{os.getpid()}.new"
    write_files(left, {"a": b"half"})
    write_files(tmp_path / ".net.1.8.old", {"a": b"old"})
    with pytest.raises(ZeroDivisionError), new_folder(target):
        raise ZeroDivisionError
    assert contents(target) == {"a": b"old"}
    write_files(left, {"a": b"half"})
    write_files(tmp_path / ".net.1.8.old", {"a": b"older"})
    write_files(tmp_path / ".net.7.new", {"a": b"of another build"})
    with new_folder(target) as fresh:
        with new_folder(tmp_path / "net") as other:  # It is not what another one writes.
            assert fresh == left and not any(fresh.iterdir()) and other.is_dir()
        write_files(fresh, {"a": b"new"})
        folder_module._clear(target)
        assert contents(fresh) == {"a": b"new"} and contents(target) == {"a": b"old"}
    assert {path.name for path in tmp_path.iterdir()} == {"net.1", "net"}
    assert contents(target) == {"a": b"new"}


def test_signals_that_are_ignored_stay_so(monkeypatch):
    """As nohup has it. What other handlers there are stay, too, and all are as before in the end."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(Ended, match="ended by SIGTERM") as raised, ends_cleanly():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        assert raised.value.code == 143
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    inside = []
    thread = threading.Thread(target=lambda: inside.append(ends_cleanly().__enter__()))
    thread.start()
    thread.join()
    assert inside == [None]


FINALISER = """
import os, time
from rtlstm.cli.results import Ended, ends_cleanly

class Slow:
    def __del__(self):
        os.kill(os.getpid(), {number})
        time.sleep(0.01)

try:
    with ends_cleanly():
        thing = Slow()
        del thing
        time.sleep(10)
except KeyboardInterrupt as error:
    print(getattr(error, "code", 130))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_within_a_finaliser_is_not_lost(number: int) -> None:
    """Python drops what it raises there."""
    command = [sys.executable, "-c", FINALISER.format(number=int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{128 + number}\n", "")


@pytest.mark.parametrize(
    "moment, number",
    quick(
        [(0.0, signal.SIGTERM), (0.5, signal.SIGHUP), (1.0, signal.SIGTERM), (0.7, signal.SIGINT)],
        (0.0, signal.SIGTERM),
        (0.7, signal.SIGINT),
    ),
)
def test_generate(model: Path, tmp_path: Path, moment: float, number: int):
    """Before Yosys runs and meanwhile: the old build stays, and Amaranth says nothing of components."""
    build = tmp_path / "build"
    write_files(build, {"manifest.json": '{"build_hash": ""}', "weights.bin": b"old"})
    before = contents(build)
    command = [sys.executable, "-c", GENERATE, "generate", model, "-o", build, "--dense", "fc:sigmoid"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    work = tmp_path / f".build.{process.pid}.new"
    while not work.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(moment)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (CODES[number], "", SAID[number])
    assert contents(build) == before
    assert [path.name for path in tmp_path.iterdir()] == ["build"]


def test_terminal_that_closes(model: Path, tmp_path: Path):
    """Its programs get SIGHUP, and nothing that they say arrives anywhere."""
    build = tmp_path / "build"
    write_files(build, {"manifest.json": '{"build_hash": ""}'})
    main, terminal = os.openpty()
    script = "import fcntl, os, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)" + GENERATE
    command = [sys.executable, "-c", script, "generate", model, "-o", build, "--dense", "fc:sigmoid"]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    while not (tmp_path / f".build.{process.pid}.new").exists():
        assert process.poll() is None, os.read(main, 10_000)
        time.sleep(0.01)
    time.sleep(0.3)
    os.close(main)
    assert process.wait(timeout=60) == CODES[signal.SIGHUP]
    assert [path.name for path in tmp_path.iterdir()] == ["build"]
    assert list(contents(build)) == ["manifest.json"]


IMPORTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["rtlstm", "--version"]
from rtlstm.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "module", ["rtlstm.spec.errors", "typer", "rtlstm.cli.results", "importlib.metadata"]
)
def test_ctrl_c_while_the_command_line_is_imported(module: str):
    code = IMPORTED.format(module=module)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "error: interrupted\n")
