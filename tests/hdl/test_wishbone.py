"""The Wishbone wrapper under somebody else's bus master."""

from pathlib import Path

import pytest
from bus_builds import play_bench, write_build

from rtlstm.sim.bench import Simulator

TESTS = 6


def test_wishbone(tmp_path: Path) -> None:
    write_build(tmp_path, "wishbone")
    found = play_bench(tmp_path, "wishbone_bench", "dut_wishbone", "icarus", "0:3")
    assert len(found) == TESTS, found
    assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_wishbone_at_length(simulator: Simulator, tmp_path: Path) -> None:
    write_build(tmp_path, "wishbone", gate_units=2, beat_in=4, beat_out=4)
    found = play_bench(tmp_path, "wishbone_bench", "dut_wishbone", simulator, "0:60")
    assert len(found) == TESTS, found
    assert not any(found.values()), found
