"""The bus wrappers under other people's bus models: random sequences, and every kind of mistake."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from support.bus_builds import play_testbench, write_build, write_loadable
from support.quick import quick

from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.buses import BusName

pytestmark = pytest.mark.rtl


@dataclass(frozen=True)
class BusTestbench:
    """A bus, and what its testbench plays."""

    bus: BusName
    tests: int
    few: int
    """Random sequences: interleaved streams, reloads between steps, resets in mid-step, pauses everywhere."""
    many: int

    @property
    def long_words(self) -> dict[str, int]:
        """Words of several values for the register buses; AXI's testbench sends packets of beats of two."""
        return {} if self.bus == "axi" else {"gate_units": 2, "beat_in": 4, "beat_out": 4}


TESTBENCHES = [
    BusTestbench("axi", tests=8, few=1, many=200),
    BusTestbench("axilite", tests=5, few=1, many=60),
    BusTestbench("wishbone", tests=7, few=1, many=60),
]
by_bus = pytest.mark.parametrize("testbench", TESTBENCHES, ids=lambda testbench: testbench.bus)


def play(testbench: BusTestbench, folder: Path, simulator: Simulator, sequences: int) -> None:
    """Play a testbench with so many sequences; every test of it must pass."""
    found = play_testbench(
        folder, f"{testbench.bus}_testbench", f"dut_{testbench.bus}", simulator, f"0:{sequences}"
    )
    assert len(found) == testbench.tests, found
    assert not any(found.values()), found


@pytest.mark.parametrize("testbench", quick(TESTBENCHES, TESTBENCHES[0]), ids=lambda testbench: testbench.bus)
def test_bus(testbench: BusTestbench, tmp_path: Path) -> None:
    write_build(tmp_path, testbench.bus)
    play(testbench, tmp_path, "icarus", testbench.few)


@pytest.mark.slow
@by_bus
def test_loadable_core_on_a_bus(testbench: BusTestbench, tmp_path: Path) -> None:
    """The same, and networks of other sizes in the midst of sequences."""
    write_loadable(tmp_path, testbench.bus)
    play(testbench, tmp_path, "icarus", 3 - (testbench.bus == "axi"))


@pytest.mark.slow
@by_bus
def test_loadable_core_on_a_bus_at_length(testbench: BusTestbench, tmp_path: Path) -> None:
    write_loadable(tmp_path, testbench.bus, **testbench.long_words)
    play(testbench, tmp_path, "verilator", testbench.many)


@pytest.mark.slow
@by_bus
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_bus_at_length(simulator: Simulator, testbench: BusTestbench, tmp_path: Path) -> None:
    write_build(tmp_path, testbench.bus, **testbench.long_words)
    play(testbench, tmp_path, simulator, testbench.many)
