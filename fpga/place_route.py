"""Place and route of a synthesised core, for one seed at a time."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import Field

from rtlstm.fpga.families.base import Cells, Pin, fpga_family
from rtlstm.fpga.families.device import Chosen
from rtlstm.fpga.netlist.harness import CORE
from rtlstm.fpga.resources import design_name, fit_advice
from rtlstm.fpga.synthesis import NETLIST, Synthesis, read_json, run_stored
from rtlstm.fpga.tools import TimeLimitError, Tool, run_logged
from rtlstm.fpga.worst_path import PathFamily, WorstPath, path_families, signal_name, worst_path
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.files import copy_file
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import Record
from rtlstm.tools.cache import digest

_REPORT, _PINS, _DELAYS, _FAMILIES = "report.json", "pins.txt", "delays.sdf", "families.json"

_ROUTING = "routing arcs"
_STAGES = {
    "packing": ("Packing", "Assigned", "Annotating"),
    "placement": ("Running main analytical placer", "Running Static placer"),
    "refinement": ("Running simulated annealing", "HeAP Placer Time"),
    _ROUTING: ("Routing..", "Running router2"),
    "timing analysis": ("Routing complete", "Program finished"),
}
"""Texts in nextpnr's log that mark the beginning of each stage."""

_ARCS = re.compile(r"^Info: Routing (\d+) arcs", re.MULTILINE)
_REMAINING = re.compile(r"^Info: +\d+ \|.*\| +(\d+)\| +[\d.]+ +[\d.]+\|$", re.MULTILINE)
"""Matches a row of router1's table; the group is the arcs that remain."""


class Routed(Record):
    """One seed's result."""

    seed: int
    fmax_mhz: float
    """Fmax of the timing analysis, without the block RAM's own limit."""
    worst_path: WorstPath
    path_families: tuple[PathFamily, ...] = ()
    """The slowest families of paths; none of a bitstream."""
    used: Mapping[str, int]
    """Used sites, with the harness's, by nextpnr's names."""
    available: Mapping[str, int]
    seconds: float
    stored: bool
    """Whether it came from the cache."""
    missed_mhz: float | None = None
    """Fmax of another clock than the core's, if that one misses its frequency; the worst path is its."""
    folder: Path | None = Field(default=None, exclude=True)
    """The folder with the results, in the cache: its files must not be changed."""


class UnroutedError(ToolError):
    """Routing began and failed; with another seed it may not."""


def default_jobs() -> int:
    """Return the number of seeds to run in parallel: all processors but one."""
    return max(1, (os.cpu_count() or 1) - 1)


def route_seeds(
    route: Callable[..., Routed], seeds: Sequence[int], jobs: int
) -> tuple[list[Routed], dict[int, str]]:
    """Route with each seed, ``jobs`` of them at once; ``route`` takes ``seed`` and ``stop``.

    Returns the results of the seeds that route, and the errors of the others: UnroutedError or
    TimeLimitError. If all fail, the first one's is raised. Any other error, which all seeds may share, ends
    the others at once.
    """
    stop = Event()
    found: list[Routed] = []
    failed: dict[int, UnroutedError | TimeLimitError] = {}
    with ThreadPoolExecutor(max_workers=min(jobs, len(seeds))) as pool:
        runs = {seed: pool.submit(route, seed=seed, stop=stop) for seed in seeds}
        try:
            for seed, run in runs.items():
                try:
                    found.append(run.result())
                except (UnroutedError, TimeLimitError) as error:
                    failed[seed] = error
        except BaseException:
            # A design that does not fit, or an interrupt, ends the others.
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if not found:
        raise next(iter(failed.values()))
    return found, {seed: str(error) for seed, error in failed.items()}


def note_failed(failed: Mapping[int, str]) -> list[str]:
    """Return what is said of seeds that did not route, beside others that did."""
    return [f"seed {seed} did not route and is left out: {error}" for seed, error in failed.items()]


def choose_tools(
    chosen: Chosen, spatial: bool, luts: int, router: str | None = None, placer: str | None = None
) -> tuple[str | None, str | None]:
    """Return a design's router and placer: the user's, or what suits a spatial build of so many LUTs.

    None stands for the family's usual one.
    """
    large = fpga_family(chosen.device.family).need_place_route().for_spatial
    if spatial and large is not None and luts > large.luts:
        return router or large.router, placer or large.placer
    return router, placer


def nextpnr_options(
    chosen: Chosen,
    target_mhz: float,
    router: str | None = None,
    placer: str | None = None,
    *,
    on_board: bool = False,
) -> list[str]:
    """Return nextpnr's options for a device and a target clock, without files and seed.

    ``on_board`` says that every pin has a site, and that a bitstream will be made.
    """
    family = fpga_family(chosen.device.family)
    tools = family.need_place_route()
    options = [*chosen.options, *([] if on_board else tools.free_options)]
    router, placer = router or tools.router, placer or tools.placer
    if chosen.pins or on_board:
        options += [option.format(_PINS) for option in tools.constraint_options]
    if on_board:
        options += family.need_bitstream().result_options
    if placer is not None:
        options += ["--placer", placer, *tools.placer_options.get(placer, ())]
    if router is not None:
        options += ["--router", router]
    return [*options, "--freq", f"{target_mhz:g}", "--timing-allow-fail"]


def _pin_file(chosen: Chosen) -> str:
    """Return the constraint file of a design in the harness; empty where nextpnr chooses the pins."""
    pin_lines = fpga_family(chosen.device.family).need_place_route().pin_lines
    pairs = zip(("clk", "pin_in", "pin_out"), chosen.pins, strict=bool(chosen.pins))
    return "".join(f"{line}\n" for port, site in pairs for line in pin_lines(Pin(port=port, site=site)))


def seed_name(seed: int, seeds: int) -> str:
    """Return a seed's number as text, with the number of seeds if there are several."""
    return f"{seed} of {seeds}" if seeds > 1 else str(seed)


_RULE = "placed once; 3 passes without gain end it; the best complete route, 2"
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

    nextpnr's ``--tmg-ripup`` routes slow wires again until the target is met or 50 passes are done, and
    writes what the last pass left, which may be worse than what an earlier one had. So the design is first
    placed and routed without it, and the placement is kept. Then rip-up aims at the target, and is stopped
    when three passes in a row were no better. If one of its passes was better than all that is complete,
    rip-up begins once more and aims at that pass's clock, where it ends.

    ``run`` runs nextpnr in ``work``. A ToolError of it, such as the end of the time, ends the search; it is
    raised if no route is complete. ``report`` is the name of nextpnr's report, one of ``results``, the files
    that a route writes. Returns the seconds of all runs, and the name of the log of the best route.
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


def place_and_route(
    synthesis: Synthesis,
    name: str,
    chosen: Chosen,
    tool: Tool,
    folder: Path,
    *,
    seed: int,
    seeds: int = 1,
    target_mhz: float,
    other_mhz: float | None = None,
    router: str | None = None,
    placer: str | None = None,
    rip_up: bool = False,
    minutes: float | None = None,
    pins: str | None = None,
    spatial: bool = False,
    progress: Progress | None = None,
    stop: Event | None = None,
) -> Routed:
    """Place and route with one seed, or take the stored result of the same run.

    Log and nextpnr's report are in ``folder``, named after the seed; messages have the number of ``seeds``
    that are tried. ``other_mhz`` is the highest frequency that a design's other clocks need, if it has any:
    each needs no more than what its constraint says. With ``rip_up`` wires that are too slow are routed again
    (:func:`route_with_rip_up`). When ``minutes`` are over, rip-up ends and the best complete route is the
    result. ``pins`` is a board's constraint file: all pins must be in it, and the results have the file that
    the bitstream is packed from. ``spatial`` says whether the build is spatial, for the advice where it does
    not fit.

    Raises ConfigurationError if the design does not fit. Raises TimeLimitError if no route is complete within
    ``minutes``. Raises UnroutedError if nextpnr fails in routing. Raises ToolError if it fails otherwise.
    """
    on_board = pins is not None
    options = nextpnr_options(chosen, target_mhz, router, placer, on_board=on_board)
    phase = f"place and route, seed {seed_name(seed, seeds)}"
    pin_file = _pin_file(chosen) if pins is None else pins
    cells = fpga_family(chosen.device.family).cells
    delays = [] if on_board else ["--sdf", _DELAYS]
    # A route that the time has ended depends on the machine: it stands for this time alone.
    rule = [_RULE, str(minutes)] if rip_up else []
    key = digest(synthesis.key, tool.version, pin_file, str(seed), *options, *delays, *rule)
    log = folder / f"seed{seed}.log"

    def run(work: Path) -> float:
        _take(synthesis.folder / NETLIST, work / NETLIST)
        (work / _PINS).write_text(pin_file)
        nextpnr = _Nextpnr(
            tool,
            f"place and route of {name} on {chosen.label}",
            phase=phase,
            work=work,
            first_log=log,
            options=lambda mhz: nextpnr_options(chosen, mhz, router, placer, on_board=on_board),
            results=["--seed", str(seed), *delays, "--report", _REPORT],
            progress=progress,
            stop=stop,
            deadline=None if minutes is None else time.monotonic() + 60 * minutes,
        )
        try:
            if rip_up:
                files = [_REPORT, *delays[1:]]
                seconds, last = route_with_rip_up(nextpnr, work, target_mhz, _REPORT, files)
                for target in {work, log.parent}:
                    copy_file(log.with_stem(f"{log.stem}-{last}"), target / log.name)
            else:
                seconds = nextpnr([], "", target_mhz, lambda text: None)
        except TimeLimitError:
            raise
        except ToolError as error:
            refused = _refusal(name, synthesis.cores, chosen, nextpnr.log, spatial)
            raise refused or _unrouted(error, nextpnr.log) from None
        (work / NETLIST).unlink()
        if delays:
            with (work / _DELAYS).open() as lines:
                families = path_families(lines, lambda cell: signal_name(cell, cells))
            (work / _FAMILIES).write_text(json.dumps([family.model_dump() for family in families]))
            (work / _DELAYS).unlink()
        return seconds

    packed = [fpga_family(chosen.device.family).need_bitstream().result_options[1]] if on_board else []
    listed = [_FAMILIES] if delays else []
    done = run_stored("route", key, run, [_REPORT, *listed, *packed], log, progress)
    copy_file(done.folder / _REPORT, folder / f"seed{seed}.json")
    fields = read_json(done.folder / _REPORT)
    try:
        kinds = _cell_kinds(synthesis.folder / NETLIST)
        found = read_report(
            fields, kinds, cells, other_mhz, seed=seed, seconds=done.seconds, stored=done.stored
        )
        families = (
            PathFamily.model_validate(each) for file in listed for each in read_json(done.folder / file)
        )
        return found.replace(path_families=tuple(families), folder=done.folder)
    except (ValueError, LookupError) as error:
        raise ToolError(
            f"nextpnr's report {folder / f'seed{seed}.json'} cannot be read "
            f"({type(error).__name__}: {error}); remove {done.folder} and try again"
        ) from None


@dataclass
class _Nextpnr:
    """Runs nextpnr on one netlist, once or several times: a :data:`Run`.

    ``what`` and ``phase`` say what is done, for errors and for ``progress``. Logs of several runs are named
    after ``first_log`` and the run. ``options`` returns the options for a target in MHz. ``results`` are
    options that name the results.
    """

    tool: Tool
    what: str
    phase: str
    work: Path
    first_log: Path
    options: Callable[[float], list[str]]
    results: list[str]
    progress: Progress | None
    stop: Event | None
    deadline: float | None

    def __call__(self, more: list[str], step: str, mhz: float, watch: Watch) -> float:
        self.log = self.first_log.with_stem(f"{self.first_log.stem}-{step}") if step else self.first_log
        phase = f"{self.phase}, {step}" if step else self.phase
        stages = _Stages(phase, self.progress) if self.progress else None

        def both(text: str) -> None:
            if stages:
                stages.watch(text)
            watch(text)

        source = [] if "--json" in more else ["--json", NETLIST]
        seconds = run_logged(
            self.tool,
            [*self.options(mhz), *source, *more, *self.results],
            folder=self.work,
            log=self.log,
            what=self.what,
            watch=both,
            progress=self.progress,
            stop=self.stop,
            deadline=self.deadline,
        )
        if stages:
            stages.end()
        return seconds


def _refusal(name: str, cores: int, chosen: Chosen, log: Path, spatial: bool) -> ConfigurationError | None:
    """Return an error if the log says that the design was too large, else None."""
    full = overfull(log.read_text(errors="replace")) if log.exists() else []
    if not full:
        return None
    return ConfigurationError(
        f"{design_name(name, cores)} does not fit {chosen.device.name}: it takes {', '.join(full)}; "
        f"{fit_advice(chosen.device, cores=cores, spatial=spatial)}; see {log}"
    )


def _unrouted(error: ToolError, log: Path) -> ToolError:
    """Return the error as UnroutedError if the log says that routing had begun, else itself."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return UnroutedError(str(error)) if any(mark in text for mark in _STAGES[_ROUTING]) else error


def _take(source: Path, target: Path) -> None:
    """Link or copy a file: the packaged tools do not follow symbolic links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class _Stages:
    """Reads from nextpnr's log at which stage it is, and with router1 how many arcs are routed."""

    def __init__(self, what: str, progress: Progress) -> None:
        self._what, self._progress = what, progress
        self._stages = list(_STAGES)
        self._stage, self._done, self._total = "", 0, 1
        self._rest = ""
        """The beginning of a line whose end is not there yet."""

    def watch(self, part: str) -> None:
        """Tell what a new part of the log shows."""
        text, end, self._rest = (self._rest + part).rpartition("\n")
        text += end
        for stage in tuple(self._stages):
            if any(mark in text for mark in _STAGES[stage]):
                self._begin(stage)
        if self._stage == _ROUTING:
            if found := _ARCS.search(text):
                self._total = max(1, int(found[1]))
            if self._total > 1 and (remaining := _REMAINING.findall(text)):
                # Arcs that were ripped up are queued again, with others that they block.
                self._done = max(0, self._total - int(remaining[-1]))
        self._tell()

    def end(self) -> None:
        self._done = self._total
        self._tell()

    def _begin(self, stage: str) -> None:
        self.end()
        self._stages = self._stages[self._stages.index(stage) + 1 :]
        self._stage, self._done, self._total = stage, 0, 1

    def _tell(self) -> None:
        if self._stage:
            self._progress(f"{self._what}: {self._stage}", self._done, self._total)


def overfull(log: str) -> list[str]:
    """Return the resources that a log calls overfull, such as ``12 ICESTORM_DSP (it has 8)``."""
    rows = re.findall(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", log, re.MULTILINE)
    return [f"{used} {name} (it has {there})" for name, used, there in rows if int(used) > int(there)]


def _cell_kinds(netlist: Path) -> dict[str, str]:
    modules = read_json(netlist)["modules"]
    return {
        name: cell["type"]
        for module in modules.values()
        if module.get("attributes", {}).get("top")
        for name, cell in module["cells"].items()
    }


def read_report(
    fields: Mapping[str, Any],
    kinds: Mapping[str, str],
    cells: Cells,
    other_mhz: float | None = None,
    *,
    seed: int,
    seconds: float,
    stored: bool,
) -> Routed:
    """Read the report of nextpnr; ``kinds`` are the types of the design's cells, ``cells`` the family's.

    The clock is the core's. If another one does not reach its constraint or ``other_mhz``, the worst path is
    that one's.

    Raises LookupError if the report has no clock, or no path of a clock.
    """
    clocks = fields["fmax"]
    clock = min(clocks, key=lambda name: clocks[name]["achieved"])
    missed, slow = None, clock
    if other_mhz is not None:
        # For Nexus, nextpnr names the net behind the clock's buffer.
        core = (name for name in clocks if name.removesuffix("$glb_clk").endswith(f"{CORE}.clk"))
        clock = next(core, clock)
        slow = clock
        for name, each in clocks.items():
            misses = name != clock and each["achieved"] < min(each["constraint"], other_mhz)
            if misses and (missed is None or each["achieved"] < missed):
                slow, missed = name, round(each["achieved"], 2)
    paths = [
        item["path"]
        for item in fields["critical_paths"]
        if str(item["from"]).endswith(f" {slow}") and str(item["to"]).endswith(f" {slow}")
    ]
    use = fields["utilization"]
    return Routed(
        seed=seed,
        fmax_mhz=round(clocks[clock]["achieved"], 2),
        missed_mhz=missed,
        worst_path=worst_path(paths[0], kinds, cells),
        used={name: item["used"] for name, item in use.items() if item["used"]},
        available={name: item["available"] for name, item in use.items() if item["used"]},
        seconds=seconds,
        stored=stored,
    )
