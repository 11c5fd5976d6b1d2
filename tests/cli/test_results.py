"""Where results go: files, links to them, pipes and devices, of every command that writes any."""

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.small_builds import INPUTS

from rtlstm import Accelerator, BuildReport, InputError, Manifest
from rtlstm.cli.data import load_state, save_state
from rtlstm.host.device import Device
from rtlstm.host.transport import BACKENDS
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.port_server import PortServer

RUN = "from rtlstm.cli.main import main; main()"


@pytest.fixture
def x(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).uniform(-1, 1, (5, INPUTS)).astype("float32"))
    return path


@pytest.fixture
def expected(pristine: Path, x: Path) -> np.ndarray:
    with Accelerator.open(pristine) as accelerator:
        return accelerator.run(np.load(x))[0]


@pytest.mark.rtl
def test_latency_of_core_and_device(cli, pristine: Path, x: Path, tmp_path: Path):
    """Steps that are sent together wait for each other; what the core takes is told beside that."""
    cycles = Manifest.load(pristine).cycles
    run = ("run", pristine, "--backend", "icarus", "--input")
    together = cli(*run, x)
    fields = cli(*run, x, "--json").json
    core, measured = fields["core_latency_cycles"], fields["measured_latency_cycles"]
    assert core == cycles.step_latency_cycles < measured
    assert re.search(rf"latency of a step in the core +{core} cycles", together.out), together.out
    assert re.search(rf"last step, input buffer included +{measured} cycles", together.out), together.out
    # A simulator's speed is not the hardware's.
    assert "steps per second on this computer" in together.out and "of the device" not in together.out
    assert fields["simulated"] is True
    assert (
        f"took {measured} cycles on the device" in together.err
        and f"word: {core} in the core, and" in together.err
    )
    np.save(tmp_path / "one.npy", np.zeros((1, INPUTS)))
    alone = cli(*run, tmp_path / "one.npy")
    assert alone.code == 0 and "took" not in alone.err
    assert re.search(rf"in the core +{cycles.first_step_latency_cycles} ", alone.out)
    np.save(tmp_path / "none.npy", np.zeros((3, 0, INPUTS)))
    assert "took" not in cli("run", pristine, "--input", tmp_path / "none.npy").good().err


def test_speed_of_a_device_is_with_its_connection(cli, pristine: Path, x: Path):
    manifest = Manifest.load(pristine)
    device = DeviceEngine(GoldenDevice(pristine, manifest), manifest)
    with PortServer(SimulatedPort(device), tcp=0, terminal=False) as server:
        done = cli("run", pristine, "--backend", f"tcp:localhost:{server.port}", "--input", x)
    assert done.code == 0, done.err
    assert (
        "steps per second of the device with its connection" in done.out
        and "on this computer" not in done.out
    )


@pytest.mark.parametrize("simulated", [True, False])
def test_a_backend_says_whether_it_is_simulated(cli, pristine: Path, x: Path, simulated: bool):
    BACKENDS.add("own", type("OwnDevice", (GoldenDevice,), {"simulated": simulated}))
    try:
        done = cli("run", pristine, "--backend", "own", "--input", x)
    finally:
        BACKENDS.remove("own")
    assert done.code == 0, done.err
    assert ("steps per second on this computer" in done.out) == simulated
    assert ("steps per second of the device" in done.out) != simulated


@pytest.mark.rtl
def test_weights_need_not_be_read_back(cli, pristine: Path, x: Path, monkeypatch):
    """Reading them back is most of a short simulation under Icarus. What is compared is the same."""
    compared = []
    monkeypatch.setattr(Device, "_compare", lambda *arguments: compared.append(arguments))
    simulate = ("simulate", pristine, "--simulator", "icarus", "--input", x, "--json")
    fields = cli(*simulate, "--no-verify").json
    assert fields["passed"] and fields["weights_read_back"] is False and fields["output_words"] == 10
    before = len(compared)
    assert cli(*simulate).json["weights_read_back"] is True
    # The golden device's are read back in both.
    assert before > 0 and len(compared) == 3 * before


def test_integers_are_noted(cli, pristine: Path, tmp_path: Path):
    np.save(tmp_path / "one.npy", np.eye(INPUTS, dtype="uint8")[:1])
    done = cli("run", pristine, "--backend", "golden", "--input", tmp_path / "one.npy", "--json")
    (note,) = done.json["notes"]
    assert note.startswith(
        "x holds uint8: integers are taken as codes of the input format s8.4 (1 is 0.0625)"
    )


def test_links_stay(cli, pristine: Path, x: Path, expected: np.ndarray, tmp_path: Path):
    """Outputs, states and snapshots go to what a link leads to."""
    (tmp_path / "far").mkdir()
    for name in ("y.npy", "state.npz", "snapshot.npz"):
        (tmp_path / name).symlink_to(tmp_path / "far" / name)
    for _ in range(2):
        cli(
            *("run", pristine, "--backend", "golden", "--input", x, "--output", tmp_path / "y.npy"),
            *("--state-output", tmp_path / "state.npz"),
        ).good()
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
        cli("run", pristine, "--backend", "golden", "--input", x, "--output", name).good()
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
    from rtlstm.gen.builds.report_html import write_report

    report = BuildReport.load(pristine)
    (tmp_path / "far.json").write_text("old")
    (tmp_path / "report.json").symlink_to("far.json")
    write_report(tmp_path, report, Manifest.load(pristine))
    assert (tmp_path / "report.json").is_symlink()
    assert json.loads((tmp_path / "far.json").read_text())["name"] == report.name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far.json", "report.html", "report.json"]


@pytest.mark.parametrize(
    ("h", "c"),
    [
        (np.ones((2, 3, 4)), np.zeros((2, 3, 4))),
        ((np.ones((3, 4)), np.ones((3, 5))), (np.zeros((3, 4)), np.ones((3, 5)))),
        (np.ones((2, 3, 4)), ()),
        ((np.ones((3, 4)), np.ones((3, 5))), np.zeros((1, 3, 4))),
    ],
    ids=["alike", "layers of two sizes", "without c", "c of one layer"],
)
def test_states_come_back_from_files(tmp_path: Path, h: object, c: object) -> None:
    """What a run gives is what the next one takes, also of GRUs, which have no c."""
    path = tmp_path / "state.npz"
    save_state(path, (h, c))
    for found, given in zip(load_state(path), (h, c), strict=True):
        assert isinstance(found, tuple) == isinstance(given, tuple) and len(found) == len(given)
        for one, other in zip(found, given, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "names", [("c",), ("h", "x"), ("h_0", "h_2"), ("h", "h_0"), ("c_0", "h_1")], ids=" ".join
)
def test_other_arrays_are_no_state(tmp_path: Path, names: tuple[str, ...]) -> None:
    np.savez(tmp_path / "state.npz", **dict.fromkeys(names, np.zeros((1, 2))))
    with pytest.raises(InputError, match=rf"of arrays h and c .* its arrays are: {', '.join(names)}"):
        load_state(tmp_path / "state.npz")
