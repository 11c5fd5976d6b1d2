"""The example of docs/integrate.md: a core inside a design, in both simulators."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import EXAMPLES

pytestmark = pytest.mark.rtl


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_alarm(simulator: str, tmp_path: Path) -> None:
    plugins = ("-p", "rtlstm.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist")
    options = ("--simulator", simulator, f"--basetemp={tmp_path / 'runs'}", str(EXAMPLES / "cocotb_alarm"))
    done = subprocess.run(
        [Path(sys.executable).with_name("pytest"), *plugins, *options], capture_output=True, text=True
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
