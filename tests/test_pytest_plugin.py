"""The plug-in of pytest, in a user's folder: what runs, what fails and how it says so."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.lazy import torch
from support.paths import ROOT

import rtlstm
from rtlstm.pytest_plugin import _compiled
from rtlstm.sim.cocotb_run import build_design, run_tests
from rtlstm.spec.errors import ToolError
from rtlstm.tools import toolchain

pytestmark = pytest.mark.rtl

USER = """
from pathlib import Path

import cocotb
from rtlstm.cocotb import Core

BUILD = {build!r}

@cocotb.test()
async def equals_golden_model(dut):
    await (await Core.open(dut)).check(steps=1)

@cocotb.test()
async def fails_once(dut):
    assert Path("ran").exists() or Path("ran").touch()

@cocotb.test()
async def says_why(dut):
    assert (await Core.open(dut)).manifest.name == "other"

def test_passing(rtlstm_build, rtlstm_simulation):
    run = rtlstm_simulation(rtlstm_build(BUILD), tests="equals")
    assert [each.name for each in run.outcomes] == ["equals_golden_model"]

def test_failing(rtlstm_simulation):
    rtlstm_simulation(BUILD, tests="equals|says")

def test_once(rtlstm_simulation):
    rtlstm_simulation(BUILD, tests="once")

def test_none(rtlstm_simulation):
    rtlstm_simulation(BUILD, tests="nothing")

def test_source(rtlstm_simulation):
    rtlstm_simulation(BUILD, sources=["nowhere.v"])

def test_language(rtlstm_simulation):
    rtlstm_simulation(BUILD, sources=["top.vhd"])

def test_build(rtlstm_build):
    rtlstm_build("nowhere")

def test_options(rtlstm_build):
    rtlstm_build(BUILD, lanes=4)
"""
SENTENCES = {
    "test_failing": "1 of 2 cocotb tests failed under icarus",
    "test_once": "all passed when they ran again for waveforms",
    "test_none": "must hold cocotb tests, marked with @cocotb.test(), but has none whose name has",
    "test_source": "nowhere.v does not exist",
    "test_language": "sources must be Verilog, *.v or *.sv, not top.vhd",
    "test_build": "nowhere: there is no such file; give an ONNX",
    "test_options": "is a build already: leave out lanes",
}


def run_pytest(folder: Path, *arguments: str, path: Path | None = None) -> str:
    """Run pytest as a user does; return what it prints."""
    names = [str(path)] if path else []
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*names, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_users_tests(pristine: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_user.py").write_text(USER.format(build=str(pristine)))
    (tmp_path / "top.vhd").write_text("")
    options = ("--simulator", "icarus", "-p", "rtlstm.pytest_plugin", "-rfE")
    printed = run_pytest(tmp_path, *options, f"--basetemp={tmp_path / 'runs'}")
    assert "7 failed, 1 passed" in printed, printed
    for sentence in SENTENCES.values():
        assert sentence in printed, printed
    assert "fails_once: " in printed and "AssertionError: assert 'tiny' == 'other'" in printed
    waves = re.search(r"^waveforms: (.*)$", printed, re.MULTILINE)
    assert waves is not None and Path(waves[1]).stat().st_size > 0
    assert "Traceback" in printed and "pytest_plugin.py" not in printed


def tagger(seed: int) -> Any:
    """A module that looks whole numbers up."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Embedding(5, 2), torch.nn.LSTM(2, 1, batch_first=True))


def test_module_is_built_once(
    pristine: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal weights and options are one build, whichever object has them."""
    made = []

    def compile(model: Any, folder: Path, **options: Any) -> None:
        made.append(options)
        shutil.copytree(pristine, folder)

    monkeypatch.setenv("RTLSTM_CACHE", str(tmp_path))
    monkeypatch.setattr(rtlstm, "compile", compile)
    found = [
        _compiled(tagger(seed), {"lanes": lanes, "progress": lambda *_: None}, tmp_path_factory)
        for seed, lanes in ((1, 4), (1, 4), (2, 4), (1, 8), (1, 4))
    ]
    assert [options["lanes"] for options in made] == [4, 4, 8]
    assert len({build.folder for build in found}) == 3
    assert found[0].folder == found[1].folder == found[4].folder


def test_options_without_a_key_are_built_anew(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compile finds a generator as it was given, and says what is wrong with an option."""
    made = []

    def compile(model: Any, folder: Path, calibration: Any = (), **options: Any) -> list[int]:
        made.append(folder)
        return list(calibration)

    monkeypatch.setenv("RTLSTM_CACHE", str(tmp_path))
    with pytest.raises(rtlstm.ConfigurationError, match="colour"):
        _compiled(tagger(1), {"colour": lambda: None}, tmp_path_factory)
    monkeypatch.setattr(rtlstm, "compile", compile)
    for _ in range(2):
        options = {"calibration": (number for number in range(3))}
        assert _compiled(tagger(1), options, tmp_path_factory) == [0, 1, 2]
    assert made[0] != made[1]
    assert not any(tmp_path.iterdir())


def test_build_folder_runs_where_rtlstm_is_installed(pristine: Path, tmp_path: Path) -> None:
    """The entry point alone, as an installation has it, makes pytest load the plug-in."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = tmp_path / "installed" / "rtlstm_of_this_test-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: rtlstm-of-this-test\nVersion: 1\n")
    lines = [f"{name} = {module}" for name, module in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    printed = run_pytest(tmp_path, str(pristine / "ip"), "--simulator", "icarus", path=installed.parent)
    assert "1 passed" in printed, printed


def test_plugin_loads_nothing_heavy() -> None:
    program = """
import sys
import pytest
before = set(sys.modules)
import rtlstm.pytest_plugin
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert new <= {"rtlstm"} | set(sys.stdlib_module_names), new
assert not [name for name in sys.modules if name.startswith("rtlstm.") and name != "rtlstm.pytest_plugin"]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_missing_cocotb_is_one_sentence() -> None:
    program = "import sys; sys.modules['cocotb'] = None; import rtlstm.cocotb"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(
        "rtlstm.cocotb needs the package cocotb; install it with pip install 'rtlstm[sim]'"
    )


def test_missing_simulator_is_one_sentence(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    toolchain.icarus.cache_clear()
    try:
        with pytest.raises(ToolError, match="iverilog was not found on the path; install Icarus Verilog"):
            run_tests(Path(__file__), pristine, build_design(pristine), "icarus", tmp_path)
    finally:
        toolchain.icarus.cache_clear()
