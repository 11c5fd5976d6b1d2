"""The AXI wrapper under other people's bus models: random sequences, and every kind of mistake."""

from pathlib import Path

import pytest
from bus_builds import play_bench, write_build

from rtlstm.sim.bench import Simulator

TESTS = 7


def test_axi(tmp_path: Path) -> None:
    write_build(tmp_path, "axi")
    found = play_bench(tmp_path, "axi_bench", "dut_axi", "icarus", "0:3")
    assert len(found) == TESTS, found
    assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_axi_at_length(simulator: Simulator, tmp_path: Path) -> None:
    """200 sequences: interleaved streams, reloads between steps, resets in mid-step, pauses everywhere."""
    write_build(tmp_path, "axi")
    found = play_bench(tmp_path, "axi_bench", "dut_axi", simulator, "0:200")
    assert len(found) == TESTS, found
    assert not any(found.values()), found
