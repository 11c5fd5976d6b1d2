"""Routing a placed design again: which route is kept, and when it ends."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rtlstm.fpga.place_route import route_with_rip_up
from rtlstm.fpga.tools import TimeLimitError
from rtlstm.spec.errors import ToolError

TARGET_MHZ = 200.0


class Router:
    """Stands for nextpnr: passes of rip-up have these clocks, in MHz, and the last one is written."""

    def __init__(self, work: Path, first: float, *runs: list[float] | Exception) -> None:
        self.work, self.first, self.runs = work, first, list(runs)
        self.asked: list[tuple[str, float]] = []

    def __call__(self, options: list[str], log: str, mhz: float, watch: Callable[[str], None]) -> float:
        self.asked.append((log, mhz))
        reached = self.first
        if "--write" in options:
            bound = {"netnames": {"a": {"attributes": {"ROUTING": "wires", "src": "x"}}}}
            (self.work / "placed.json").write_text(json.dumps({"modules": {"top": bound}}))
        else:
            assert "ROUTING" not in (self.work / "placed.json").read_text()
            assert {"--no-place", "--tmg-ripup"} <= set(options)
            run = self.runs.pop(0)
            if isinstance(run, Exception):
                raise run
            for reached in run:
                slack = 1000 / mhz - 1000 / reached
                # A line may come in two parts.
                watch(f"Info:     12 arcs ripped up due to negative slack WNS={slack:.2f}ns TNS=-9")
                watch(".00ns.\n")
        (self.work / "report.json").write_text(json.dumps({"fmax": {"clk": {"achieved": reached}}}))
        (self.work / "delays.sdf").write_text(str(reached))
        return 1.0

    def kept(self) -> tuple[float, str]:
        """Return the kept clock and the log of its route."""
        seconds, log = route_with_rip_up(
            self, self.work, TARGET_MHZ, "report.json", ["report.json", "delays.sdf"]
        )
        assert seconds <= len(self.asked)
        assert sorted(path.name for path in self.work.iterdir()) == ["delays.sdf", "report.json"]
        return float((self.work / "delays.sdf").read_text()), log


def test_a_met_target_ends_it(tmp_path):
    router = Router(tmp_path, 150.0, [150, 180, 201])
    assert router.kept() == (201, "rip-up")
    assert router.asked == [("route", TARGET_MHZ), ("rip-up", TARGET_MHZ)]


def test_three_passes_without_gain_end_it_and_the_best_one_is_routed_again(tmp_path):
    router = Router(tmp_path, 150.0, [150, 170, 165, 169, 168, 171], [150, 170])
    assert router.kept() == (170, "rip-up-again")
    (*_, (_, goal)) = router.asked
    assert goal == pytest.approx(170 * 0.999, rel=1e-3)


def test_nothing_is_gained(tmp_path):
    router = Router(tmp_path, 150.0, [150, 140, 149, 148])
    assert router.kept() == (150, "route") and len(router.asked) == 2


def test_a_worse_end_than_a_pass_before(tmp_path):
    assert Router(tmp_path, 150.0, [150, 180, 160], [150, 181]).kept() == (181, "rip-up-again")
    assert Router(tmp_path, 150.0, [150, 180, 160], [150, 140, 140, 140, 140]).kept() == (160, "rip-up")


def test_a_failure_leaves_what_is_complete(tmp_path):
    assert Router(tmp_path, 150.0, [150, 180, 160], ToolError("nextpnr failed")).kept() == (160, "rip-up")


def test_the_time_is_over(tmp_path):
    assert Router(tmp_path, 150.0, TimeLimitError("over")).kept() == (150, "route")
    assert Router(tmp_path, 150.0, [150, 180, 160], TimeLimitError("over")).kept() == (160, "rip-up")
