"""A whole cluster, as its users start it, what runs on it, and routing: all take long."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.lazy import Lazy
from support.paths import ROOT
from support.small_builds import INPUTS, tensors

pytestmark = pytest.mark.slow

SPACE = ("--dense", "fc:sigmoid", "--calibrate", "x.npy", "--devices", "up5k", "--tables", "direct")
SPACE += ("--gate-bits", "8", "--cell-bits", "12", "--lanes", "4,8,16", "--macs", "1,2,4")


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    safetensors.numpy.save_file(tensors(), tmp_path / "tiny.safetensors")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 3, INPUTS)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of Dask, with all that it starts, until the block ends."""
    command = [str(Path(sys.executable).with_name("dask")), *arguments]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, start_new_session=True)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_host_of_two_is_lost(cli, files):
    """Eight workers on two hosts, one of which goes down in the midst: the result is that of one process."""
    given = ("explore", "tiny.safetensors", *SPACE, "--choices", 64, "--json")
    whole = cli(*given, "--workers", 1, "-o", "one").json
    port = 20000 + os.getpid() % 10000
    address = f"tcp://127.0.0.1:{port}"
    workers = ("worker", address, "--nworkers", "4", "--nthreads", "1", "--no-dashboard", "--host")
    with (
        started("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"),
        started(*workers, "127.0.0.1"),
        started(*workers, "127.0.0.2") as lost,
    ):
        # A machine that is busy takes longer to start them than the command waits.
        with Lazy("distributed").Client(address, timeout=120) as client:
            client.wait_for_workers(8, timeout=120)
        ended = threading.Event()
        arguments = (files / "two" / "study.journal", lost, ended)
        timer = threading.Thread(target=_end_when_begun, args=arguments)
        timer.start()
        done = cli(*given, "-o", "two", "--scheduler", address)
        ended.set()
        timer.join()
    assert done.code == 0, done.err
    assert lost.returncode == -signal.SIGKILL
    assert done.json["workers"] == f"the workers of {address}"
    for name in ("tried", "too_large", "impossible", "front"):
        assert done.json[name] == whole[name], name


def _end_when_begun(journal: Path, process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    """End a process when the journal has 100 lines, unless the command has ended before."""
    while not ended.wait(0.01):
        if journal.exists() and len(journal.read_bytes().splitlines()) >= 100:
            return end(process)


@pytest.mark.tools
@pytest.mark.rtl
def test_the_best_are_routed(cli, files):
    few = ("--weight-bits", "4", "--data-bits", "8", "--goal", "area", "--route", 1, "--simulator", "icarus")
    given = ("explore", "tiny.safetensors", *SPACE, *few, "--workers", 1, "--json")
    done = cli(*given).good()
    best = done.json["front"][0]
    proof = best["proven"]
    assert proof["passed"] and proof["multipliers"] == best["multipliers"]
    assert proof["block_rams"] == best["block_rams"] and proof["luts"] == pytest.approx(best["luts"], rel=0.3)
    assert proof["step_latency_us"] == pytest.approx(
        best["step_latency_cycles"] / proof["fmax_mhz"], rel=0.01
    )
    assert done.json["front"][1]["proven"] is None
    assert cli(*given).json["front"] == done.json["front"]


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """Start a scheduler and workers in a folder without rtlstm's tests; give the address."""
    port = 30000 + os.getpid() % 10000
    address = f"tcp://127.0.0.1:{port}"
    with (
        started("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"),
        started("worker", address, "--nworkers", str(workers), "--nthreads", "1", "--no-dashboard"),
    ):
        with Lazy("distributed").Client(address, timeout=120) as client:
            client.wait_for_workers(workers, timeout=120)
        yield address


def on_cluster(address: str, *arguments: str, folder: Path = ROOT) -> str:
    """Run a program of this environment; return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, *arguments, "--scheduler", address]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.tools
@pytest.mark.rtl
def test_tests_mutants_and_benchmarks_run_on_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cluster(2) as address:
        journal = ("--journal", str(tmp_path / "journal"))
        few = ("tests/spec/test_family.py", "tests/spec/test_fixed.py")
        said = on_cluster(address, "tests/support/sweep.py", *journal, "-m", "unit", *few)
        assert f"jobs passed with the workers of {address}" in said and "failed" not in said
        said = on_cluster(address, "tests/support/mutation.py", *journal, "--mutants", "1", "odd")
        assert f"1 of 1 mutants were seen with the workers of {address}" in said or "survived: odd 1" in said
        bench = ("-m", "rtlstm", "bench", "dropbear", "traffic20", "--quick", "--json")
        measured = json.loads(on_cluster(address, *bench, folder=tmp_path))
        assert [each["name"] for each in measured["shapes"]] == ["dropbear", "traffic20"]
        soak = ("-m", "rtlstm", "bench", "--link", "--quick", "--json")
        assert json.loads(on_cluster(address, *soak, folder=tmp_path))["passed"]
