"""Routes a placed design again and again where its wires are too slow, and keeps the best complete route.

nextpnr's ``--tmg-ripup`` routes slow wires again until the target is met or 50 passes are done, and writes
what the last pass left, which may be worse than what an earlier one had. So the design is first placed and
routed without it, and the placement is kept. Then rip-up aims at the target, and is stopped when three passes
in a row were no better. If one of its passes was better than all that is complete, rip-up begins once more
and aims at that pass's clock, where it ends.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from rtlstm.fpga.stored_run import read_json
from rtlstm.spec.errors import ToolError

__all__ = ["RULE", "route_with_rip_up"]

RULE = "placed once; 3 passes without gain end it; the best complete route, 2"
"""The rule, as a text for the hash of a run: increase the number when it changes."""

_PASSES_WITHOUT_GAIN = 3
_EASIER = 0.999
"""Share of a pass's clock that is aimed at to reach it again."""
_PASS = re.compile(r"arcs ripped up due to negative slack WNS=(-?[\d.]+)ns")

Watch = Callable[[str], None]
Run = Callable[[list[str], str, float, Watch], float]
"""Runs nextpnr with these options, a name for its log, a target in MHz and a reader of its log; returns the
seconds."""


class _StalledError(Exception):
    """Rip-up gains nothing any more."""


class _Passes:
    """Reads the clock of each complete pass from nextpnr's log."""

    def __init__(self, target_mhz: float) -> None:
        self._period = 1000 / target_mhz
        self._rest = ""
        self._since = 0
        self.best_mhz = 0.0

    def watch(self, part: str) -> None:
        """Take a new part of the log; _StalledError if three passes in a row were no better."""
        text, end, self._rest = (self._rest + part).rpartition("\n")
        for slack in _PASS.findall(text + end):
            mhz = 1000 / (self._period - float(slack))
            self._since = 0 if mhz > self.best_mhz else self._since + 1
            self.best_mhz = max(self.best_mhz, mhz)
            if self._since >= _PASSES_WITHOUT_GAIN:
                raise _StalledError


def route_with_rip_up(
    run: Run, work: Path, target_mhz: float, report: str, results: list[str]
) -> tuple[float, str]:
    """Place once, route several times, and leave the results of the best complete route in ``work``.

    Parameters
    ----------
    run
        Runs nextpnr in ``work``. A ToolError, such as the end of the time, ends the search; it is raised if
        no route is complete.
    report
        The name of nextpnr's report, one of ``results``, the files that a route writes.

    Returns
    -------
    float
        The seconds of all runs.
    str
        The name of the log of the best route.
    """
    placed = work / "placed.json"
    placement = ["--json", placed.name, "--no-pack", "--no-place"]
    best, last = -1.0, ""  # A design without a clock reaches 0.

    def keep(log: str) -> None:
        nonlocal best, last
        clocks = read_json(work / report).get("fmax", {}).values()
        reached = min((clock["achieved"] for clock in clocks), default=0.0)
        for file in results:
            (work / file).replace(work / f"best-{file}") if reached > best else (work / file).unlink()
        best, last = max((best, last), (reached, log))

    seconds = run(["--write", placed.name], "route", target_mhz, lambda text: None)
    keep("route")
    _forget_routes(placed)
    goal = target_mhz
    for log in ("rip-up", "rip-up-again"):
        passes = _Passes(goal)
        try:
            seconds += run([*placement, "--tmg-ripup"], log, goal, passes.watch)
            keep(log)
        except _StalledError:
            pass
        except ToolError:  # Also at the end of the time. What is complete stands.
            break
        if passes.best_mhz * _EASIER <= best:
            break
        goal = passes.best_mhz * _EASIER
    for file in results:
        (work / f"best-{file}").replace(work / file)
    placed.unlink()
    return seconds, last


def _forget_routes(design: Path) -> None:
    """Leave only the placement of a design that nextpnr wrote."""
    found = read_json(design)
    for module in found["modules"].values():
        for net in module.get("netnames", {}).values():
            net["attributes"].pop("ROUTING", None)
    design.write_text(json.dumps(found))
