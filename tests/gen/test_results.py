"""Where results go: files, links to them, pipes and devices, of every command that writes any."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from small_builds import INPUTS

from rtlstm.gen.report import BuildReport
from rtlstm.host import Accelerator

RUN = "from rtlstm.gen.cli import main; main()"


@pytest.fixture
def x(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).uniform(-1, 1, (5, INPUTS)).astype("float32"))
    return path


@pytest.fixture
def expected(pristine: Path, x: Path) -> np.ndarray:
    with Accelerator.open(pristine) as accelerator:
        return accelerator.run(np.load(x))[0]


def test_links_stay(cli, pristine: Path, x: Path, expected: np.ndarray, tmp_path: Path):
    """Outputs, states and snapshots go to what a link leads to."""
    (tmp_path / "far").mkdir()
    for name in ("y.npy", "state.npz", "snapshot.npz"):
        (tmp_path / name).symlink_to(tmp_path / "far" / name)
    for _ in range(2):
        done = cli(
            *("run", pristine, "--backend", "golden", "--input", x, "--output", tmp_path / "y.npy"),
            *("--state-output", tmp_path / "state.npz"),
        )
        assert done.code == 0, done.err
        with Accelerator.open(pristine) as accelerator, accelerator.stream() as stream:
            stream.save(tmp_path / "snapshot.npz")
            stream.restore(tmp_path / "snapshot.npz")
    assert np.array_equal(np.load(tmp_path / "far/y.npy"), expected)
    assert sorted(path.name for path in tmp_path.glob("*.np?") if path.is_symlink()) == [
        "snapshot.npz",
        "state.npz",
        "y.npy",
    ]
    assert len(list((tmp_path / "far").iterdir())) == 3


def test_pipe(cli, pristine: Path, x: Path, expected: np.ndarray, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    done = cli("run", pristine, "--backend", "golden", "--input", x, "--output", pipe)
    reader.join()
    assert done.code == 0, done.err
    assert pipe.is_fifo() and np.array_equal(np.load(io.BytesIO(got[0])), expected)


def test_device(cli, pristine: Path, x: Path, tmp_path: Path):
    """A device node is written to, as a terminal is here; it was replaced by a file before."""
    main, terminal = os.openpty()
    try:
        name = Path(os.ttyname(terminal))
        before = name.stat()
        done = cli("run", pristine, "--backend", "golden", "--input", x, "--output", name)
        assert done.code == 0, done.err
        assert name.is_char_device() and name.stat().st_ino == before.st_ino
        assert b"NUMPY" in os.read(main, 1000)
    finally:
        os.close(main)
        os.close(terminal)


def test_standard_output(pristine: Path, x: Path, expected: np.ndarray):
    """``--output /dev/stdout`` for the next program; tables are for people and come behind."""
    command = [sys.executable, "-c", RUN, "run", pristine, "--backend", "golden", "--input", x]
    done = subprocess.run([*command, "--output", "/dev/stdout"], capture_output=True, check=True)
    assert np.array_equal(np.load(io.BytesIO(done.stdout)), expected)


def test_refused_before_the_work(cli, pristine: Path, x: Path, tmp_path: Path):
    """Formats are not what a name says, a file is not named twice, and a folder is no file."""
    run = ("run", pristine, "--backend", "golden", "--input", x)
    cli(*run, "--output", tmp_path / "y.csv").refused("y.csv must be called *.npy", "numpy.load reads it")
    cli(*run, "--state-output", tmp_path / "h.npy").refused("h.npy must be called *.npz")
    same = ("--output", tmp_path / "a", "--state-output", tmp_path / "." / "a")
    cli(*run, *same).refused("must go to two files, but both go to")
    cli(*run, "--output", tmp_path).refused("it is a folder")
    cli(*run, "--output", tmp_path / "none/y.npy").refused("its folder does not exist")
    cli("simulate", pristine, "--output", tmp_path / "y.txt").refused("y.txt must be called *.npy")
    cli("bench", "traffic20", "--save", tmp_path).refused("it is a folder")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_report_through_links(pristine: Path, tmp_path: Path, monkeypatch):
    """What ``implement`` writes into a build follows links, too."""
    from rtlstm.gen import implement

    report = BuildReport.load(pristine)
    (tmp_path / "far.json").write_text("old")
    (tmp_path / "report.json").symlink_to("far.json")
    implement._write(tmp_path, report)
    assert (tmp_path / "report.json").is_symlink()
    assert json.loads((tmp_path / "far.json").read_text())["name"] == report.name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far.json", "report.html", "report.json"]
