"""The demo's gates on the real network and real speech; downloads both, so it is a slow test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import EXAMPLES

pytestmark = pytest.mark.rtl

DEMO = EXAMPLES / "silero_vad" / "demo.py"


@pytest.mark.slow
@pytest.mark.parametrize(("simulator", "seconds"), [("verilator", 60), ("icarus", 1)])
def test_demo_passes_its_gates(simulator: str, seconds: int, tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--json", "--simulator", simulator]
    command += ["--seconds", str(seconds), "-o", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    gates = found["gates"]
    assert len(gates) >= 8
    assert all(gate["passed"] for gate in gates)
    convolutions = found["convolutions"]
    assert convolutions["rtl_steps"] == 40
    assert convolutions["words"] == {"compared": 40 + 2 * 128, "different": 0}
    assert convolutions["cycles"]["predicted"] == convolutions["cycles"]["measured"]
    assert convolutions["host_us"] > 0


@pytest.mark.slow
def test_convolutions_pass_alone(tmp_path: Path) -> None:
    script = EXAMPLES / "silero_vad" / "convolutions.py"
    command = [sys.executable, str(script), "--steps", "3", "-o", str(tmp_path / "vad")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"RTL, words compared {3 + 2 * 128}, 0 different" in " ".join(done.stdout.split())
    assert (tmp_path / "vad" / "manifest.json").exists()
