"""The SoC of examples/litex_soc: its CPU drives the core in C, and says whether its outputs are golden."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.bus_builds import small_network
from support.paths import EXAMPLES

from rtlstm import Manifest, Parameters, QuantizationSettings
from rtlstm.gen.builds.generate import generate_build

# Some 200,000 cycles of a SoC in Icarus, and a compiler that nothing else needs.
pytestmark = [pytest.mark.rtl, pytest.mark.slow]

SMALL = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=6, cell_bits=8)


GOLDEN = " golden[STEPS][RTLSTM_OUTPUTS] = {{"
SPOILED = f"""
import sys
sys.path.insert(0, sys.argv.pop(1))
import run
write = run.write_steps
run.write_steps = lambda *given: write(*given).replace({GOLDEN!r}, {GOLDEN!r} + "1 ^ ")
run.main()
"""
"""The program with the lowest bit of the first golden output inverted."""


def write_build(build: Path, bus: str) -> Manifest:
    parameters = Parameters(bus=bus, lanes=4, macs=2)
    return generate_build(small_network(), build, name="vad", settings=SMALL, parameters=parameters)


def run_soc(build: Path, *program: str | Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, *program, build, "--folder", build.parent / "soc")
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("bus", ["wishbone", "axilite"])
def test_cpu_finds_golden_outputs(tmp_path: Path, bus: str) -> None:
    manifest = write_build(tmp_path / "vad", bus)
    done = run_soc(tmp_path / "vad", EXAMPLES / "litex_soc" / "run.py")
    said = re.match(
        r"PASS: 0 of 12 outputs differ from the golden model; the last step took (\d+) cycles\n", done.stdout
    )
    assert said and done.returncode == 0, done.stdout + done.stderr
    assert int(said[1]) == manifest.cycles.step_latency_cycles


def test_cpu_finds_a_wrong_output(tmp_path: Path) -> None:
    write_build(tmp_path / "vad", "wishbone")
    done = run_soc(tmp_path / "vad", "-c", SPOILED, EXAMPLES / "litex_soc")
    assert done.stdout.startswith("FAIL: 1 of 12 outputs differ") and done.returncode == 1, (
        done.stdout + done.stderr
    )
