"""The bus wrappers under other people's bus models: random sequences, and every kind of mistake."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from support.bus_builds import play_bench, write_build, write_loadable

from rtlstm.sim.cocotb_run import Simulator
from rtlstm.spec.buses import BusName

pytestmark = pytest.mark.rtl


@dataclass(frozen=True)
class Bench:
    """A bus, and what its bench plays."""

    bus: BusName
    tests: int
    few: int
    """Random sequences: interleaved streams, reloads between steps, resets in mid-step, pauses everywhere."""
    many: int

    @property
    def long_words(self) -> dict[str, int]:
        """Words of several values for the register buses; AXI's bench sends packets of beats of two."""
        return {} if self.bus == "axi" else {"gate_units": 2, "beat_in": 4, "beat_out": 4}


BENCHES = [
    Bench("axi", tests=8, few=3, many=200),
    Bench("axilite", tests=5, few=2, many=60),
    Bench("wishbone", tests=7, few=3, many=60),
]
by_bus = pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.bus)


def play(bench: Bench, folder: Path, simulator: Simulator, sequences: int) -> None:
    """Play a bench with so many sequences; every test of it must pass."""
    found = play_bench(
        folder, f"support.testbenches.{bench.bus}_bench", f"dut_{bench.bus}", simulator, f"0:{sequences}"
    )
    assert len(found) == bench.tests, found
    assert not any(found.values()), found


@by_bus
def test_bus(bench: Bench, tmp_path: Path) -> None:
    write_build(tmp_path, bench.bus)
    play(bench, tmp_path, "icarus", bench.few)


@by_bus
def test_loadable_core_on_a_bus(bench: Bench, tmp_path: Path) -> None:
    """The same, and networks of other sizes in the midst of sequences."""
    write_loadable(tmp_path, bench.bus)
    play(bench, tmp_path, "icarus", bench.few)


@pytest.mark.slow
@by_bus
def test_loadable_core_on_a_bus_at_length(bench: Bench, tmp_path: Path) -> None:
    write_loadable(tmp_path, bench.bus, **bench.long_words)
    play(bench, tmp_path, "verilator", bench.many)


@pytest.mark.slow
@by_bus
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_bus_at_length(simulator: Simulator, bench: Bench, tmp_path: Path) -> None:
    write_build(tmp_path, bench.bus, **bench.long_words)
    play(bench, tmp_path, simulator, bench.many)
