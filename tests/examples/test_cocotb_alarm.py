"""The example of docs/integrate.md: a core inside a design, in both simulators."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.example_file import load_example
from support.paths import EXAMPLES

import rtlstm
from rtlstm.sim.cocotb_run import build_design
from rtlstm.tools.toolchain import icarus

pytestmark = pytest.mark.rtl


def test_the_core_fits_into_the_design(tmp_path: Path) -> None:
    """Icarus connects every port of the core, without simulating, which takes most of the time."""
    example = load_example("cocotb_alarm/test_alarm")
    build = rtlstm.compile(
        example.network(),
        folder=tmp_path / "b",
        name="spotter",
        bus="axi",
        lanes=4,
        macs=2,
        **example.FORMATS,
    )
    source = EXAMPLES / "cocotb_alarm" / "alarm.v"
    design = build_design(build.folder, top="alarm_filter", sources=[source])
    command = [icarus().iverilog, "-g2012", "-Wall", "-t", "null", "-s", design.top, *design.sources]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if source.name in line] == []


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_alarm(simulator: str, tmp_path: Path) -> None:
    plugins = ("-p", "rtlstm.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist")
    options = ("--simulator", simulator, f"--basetemp={tmp_path / 'runs'}", str(EXAMPLES / "cocotb_alarm"))
    done = subprocess.run(
        [Path(sys.executable).with_name("pytest"), *plugins, *options], capture_output=True, text=True
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
