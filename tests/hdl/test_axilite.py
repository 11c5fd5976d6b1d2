"""The AXI4-Lite wrapper, whose steps go through data FIFOs, under somebody else's bus master."""

from pathlib import Path

import pytest
from bus_builds import play_bench, write_build

from rtlstm.sim.bench import Simulator

TESTS = 4


def test_axilite(tmp_path: Path) -> None:
    write_build(tmp_path, "axilite")
    found = play_bench(tmp_path, "axilite_bench", "dut_axilite", "icarus", "0:2")
    assert len(found) == TESTS, found
    assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_axilite_at_length(simulator: Simulator, tmp_path: Path) -> None:
    write_build(tmp_path, "axilite", gate_units=2, beat_in=4, beat_out=4)
    found = play_bench(tmp_path, "axilite_bench", "dut_axilite", simulator, "0:60")
    assert len(found) == TESTS, found
    assert not any(found.values()), found
