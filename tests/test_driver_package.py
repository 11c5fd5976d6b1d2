"""The distribution of the driver alone: built, installed beside NumPy and pydantic, and used on a board."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from support.paths import ROOT
from support.small_builds import INPUTS, NARROW, TINY, network

from rtlstm.gen.builds.generate import generate_build
from rtlstm.host import Accelerator
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.port_server import PortServer
from rtlstm.spec.manifest import Manifest

pytestmark = pytest.mark.rtl

ALLOWED = ("numpy", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection")
LINK = ("cobs", "fastcrc")

DRIVE = """
import sys
import numpy as np
import rtlstm

folder, port = sys.argv[1:]
with rtlstm.Accelerator.open(folder, f"tcp:localhost:{port}") as acc:
    y, (h, c) = acc.run(np.load("x.npy"))
    with acc.stream() as stream:
        assert np.array_equal(stream.steps(np.load("x.npy")[:, 0]), y[:, 0])
np.savez("found.npz", y=y, h=h, c=c)
heavy = {"amaranth", "jinja2", "onnx", "rich", "torch", "typer"}
others = {name.partition(".")[0] for name in sys.modules} & heavy
assert not others, others
print(rtlstm.__version__, *sorted(rtlstm.host.backend_names()))
"""

MISSING = """
import inspect
import sys
import rtlstm
from rtlstm import *
assert Accelerator is rtlstm.Accelerator
there = dict(inspect.getmembers(rtlstm))
absent = []
for name in rtlstm._HOME:
    try:
        getattr(rtlstm, name)
        assert name in rtlstm.__all__ and name in there, name
    except rtlstm.ToolError as error:
        assert str(error).startswith(f"rtlstm.{name} is not part of rtlstm-driver"), error
        assert "pip install rtlstm" in str(error)
        assert not hasattr(rtlstm, name) and name not in rtlstm.__all__
        absent.append(name)
        try:
            exec(f"from rtlstm import {name}")
        except ImportError as at_import:
            assert isinstance(at_import, rtlstm.ToolError) and str(at_import) == str(error), at_import
        else:
            raise AssertionError(name)
try:
    from rtlstm import nothing
except ImportError as error:
    assert not isinstance(error, rtlstm.ToolError) and "cannot import name 'nothing'" in str(error), error
print(*absent)
try:
    rtlstm.Accelerator.open(sys.argv[1])
except rtlstm.ConfigurationError as error:
    print(error)
from rtlstm.host.link.byte_ports import SerialPort
try:
    SerialPort("/dev/none", 115200)
except rtlstm.ToolError as error:
    print(error)
sys.modules["cobs"] = None
sys.modules.pop("rtlstm.host.link.framing", None)
try:
    import rtlstm.host.link.framing
except rtlstm.ToolError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    script = ROOT / "packaging" / "build_driver_wheel.py"
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.split()[-1])


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The interpreter of an environment that has the wheel, NumPy, pydantic and the link's packages alone."""
    place = wheel.parent / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    for name in (*ALLOWED, *LINK):
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None
        origin = Path(found.origin)
        path = origin.parent if origin.name == "__init__.py" else origin
        (site / path.name).symlink_to(path)
        if (path.parent / f"{name}.libs").is_dir():
            (site / f"{name}.libs").symlink_to(path.parent / f"{name}.libs")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", site, wheel], check=True)
    return place / "bin" / "python"


def run(python: Path, *arguments: object, folder: Path, code: int = 0) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    needs = [line.partition(": ")[2] for line in about.splitlines() if line.startswith("Requires-Dist")]
    assert sorted(line.partition(">")[0] for line in needs if "extra" not in line) == ["numpy", "pydantic"]
    extra = {line.partition(">")[0] for line in needs if "extra" in line}
    assert extra == {"cobs", "fastcrc", "python-periphery", "serialx"}
    assert f"Version: {version('rtlstm')}" in about
    parts = {name.split("/")[1] for name in names if name.count("/") > 1 and ".dist-info" not in name}
    assert parts == {"spec", "tools", "host", "fpga", "hdl"}


@pytest.mark.slow
def test_driver_alone_drives_a_board(python: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    generate_build(network(), build, settings=NARROW, parameters=TINY)
    manifest = Manifest.load(build)
    x = np.random.default_rng(3).normal(size=(9, 2, INPUTS)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    with Accelerator.open(build) as golden:
        y, (h, c) = golden.run(x)
    device = DeviceEngine(GoldenDevice(build, manifest), manifest)
    with PortServer(SimulatedPort(device), tcp=0, terminal=False) as server:
        said = run(python, "-c", DRIVE, build, server.port, folder=tmp_path)
    assert said.split() == [version("rtlstm"), "mmio", "pynq", "serial", "spi", "tcp", "udp"]
    with np.load(tmp_path / "found.npz") as found:
        for name, wanted in {"y": y, "h": h, "c": c}.items():
            np.testing.assert_array_equal(found[name], wanted)


@pytest.mark.slow
def test_what_is_missing_says_what_to_install(python: Path, tmp_path: Path) -> None:
    generate_build(network(), tmp_path / "build", settings=NARROW, parameters=TINY)
    absent, backend, *packages = run(python, "-c", MISSING, "build", folder=tmp_path).splitlines()
    assert backend.startswith("backend 'golden' is in rtlstm, not in rtlstm-driver")
    assert "give the board's, serial:PORT, tcp:HOST:PORT, udp:HOST, spi:DEVICE, mmio:PATH or pynq" in backend
    assert len(packages) == 2
    assert all(said.endswith("pip install 'rtlstm-driver[link]'") for said in packages)
    assert set(absent.split()) == {
        *("Bitstream", "Build", "BuildReport", "Comparison", "ErrorReport", "Implementation", "split"),
        *("QuantizationSettings", "ReadOptions", "ReadResult", "compile", "inspect_model", "read_model"),
    }
    said = run(python, "-m", "rtlstm", "--version", folder=tmp_path, code=1)
    assert said.startswith("error: the command line is not part of rtlstm-driver") and "Traceback" not in said
