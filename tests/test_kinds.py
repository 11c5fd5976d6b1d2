"""A test that starts a simulator or an FPGA tool without saying so fails."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT, TESTS
from support.quick import quick

SOURCE = """
import subprocess, sys
import pytest

{mark}
def test_it():
    subprocess.run([sys.executable, "-c", "'{program}'"], check=True)
"""


@pytest.mark.parametrize(
    ("mark", "program", "ends"),
    quick(
        [
            ("", "nothing", "1 passed"),
            ("", "verilator", "mark this test with pytest.mark.rtl"),
            ("@pytest.mark.rtl", "verilator", "1 passed"),
            ("@pytest.mark.rtl", "yosys", "mark this test with pytest.mark.tools"),
            ("@pytest.mark.tools", "yosys", "1 passed"),
        ],
        ("@pytest.mark.rtl", "verilator", "1 passed"),
        ("@pytest.mark.rtl", "yosys", "mark this test with pytest.mark.tools"),
    ),
)
def test_what_a_test_starts(tmp_path: Path, mark: str, program: str, ends: str) -> None:
    (tmp_path / "test_one.py").write_text(SOURCE.format(mark=mark, program=program))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "support.kinds"]
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, tmp_path / "test_one.py"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=TESTS, check=False)
    assert ends in done.stdout, done.stdout + done.stderr
