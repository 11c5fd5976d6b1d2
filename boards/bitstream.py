"""Makes a bitstream of a build and loads it, at a clock that was asked for, or the fastest that it meets."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

from rtlstm.boards.board import Board, BoardTiming, Link, LinkPort
from rtlstm.boards.ethernet import LICENCE_FILE, PHY_HZ, ethernet_licence
from rtlstm.boards.top import PLL, TOP, board_verilog
from rtlstm.fpga.estimate import BoardTop, board_clock, estimate
from rtlstm.fpga.families.base import Pin
from rtlstm.fpga.netlist.harness import CORE
from rtlstm.fpga.place_route import Routed, choose_tools, default_jobs, place_and_route, route_seeds
from rtlstm.fpga.resources import check_chains, check_fit, percent
from rtlstm.fpga.synthesis import NETLIST, Top, synthesise, with_parameters
from rtlstm.fpga.tools import Tool, find_yosys
from rtlstm.hdl.component import Component
from rtlstm.spec.errors import ToolError
from rtlstm.spec.files import copy_file, write_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import Record
from rtlstm.tools.cache import cached, digest
from rtlstm.tools.toolchain import run_tool

BITSTREAM_RECORD = "bitstream.json"
"""The record of a bitstream, stored beside it."""


class Use(Record):
    """Utilisation of one kind of site by a placed and routed top."""

    name: str
    used: int
    available: int

    @property
    def share(self) -> float:
        """Utilisation in percent."""
        return percent(self.used, self.available)


class Bitstream(Record):
    """A bitstream and what it was made from."""

    board: str
    build_hash: str
    file: str
    """Name of the file, which is beside this record."""
    sha256: str
    """SHA-256 of the file's content."""
    clock_mhz: float
    requested_mhz: float | None
    """The clock that was asked for; None for the fastest that place and route reached."""
    fmax_mhz: float
    """Fmax: what timing analysis and block RAM allow."""
    step_latency_us: float
    """Latency of a step in the core."""
    link_mhz: float | None = None
    """What the slowest of the other clocks reaches, with which the link runs, if it misses its frequency."""
    met: bool
    """Whether Fmax is at least the clock that the PLL makes, and the other clocks meet theirs."""
    port: LinkPort
    """What the link is on."""
    seed: int
    seeds_mhz: Mapping[int, float]
    """What each seed reached; the first route of each aimed at a high clock if none was asked for."""
    failed_seeds: Mapping[int, str] = {}
    """Errors of the seeds that did not route."""
    uses: tuple[Use, ...]
    """Resources of the whole top level, with the names that place and route has for them."""
    worst_path: str
    tools: Mapping[str, str]
    synthesis_seconds: float
    route_seconds: float
    stored: bool
    """Whether all of it came from the cache and no tool was run."""


def make_bitstream(
    board: Board,
    manifest: Manifest,
    core: str,
    timing: BoardTiming,
    folder: Path,
    *,
    requested_mhz: float | None = None,
    seeds: Sequence[int] = (1,),
    insist: bool = False,
    logic: Component | None = None,
    progress: Progress | None = None,
) -> Bitstream:
    """Make a bitstream and leave it in ``folder``, with Verilog, constraints and logs.

    ``core`` is the build's Verilog. ``requested_mhz`` is the core's clock that was asked for; ``timing`` has
    the one that the PLL makes. If None, the design is placed and routed for a high one. The PLL then gets the
    setting just below what the best of the ``seeds`` has reached, and the same is placed and routed again.
    With ``insist`` place and route is run even if the design has more carry chains than any that is known to
    route. ``logic`` is that of :func:`~rtlstm.boards.top.board_verilog`. Raises ConfigurationError if the
    design does not fit the device. Raises ToolError if a tool is missing or fails; place and route, with all
    seeds.
    """
    first = at_clock(board, timing, board.chosen.target_mhz) if requested_mhz is None else timing
    last = board.family.need_bitstream()
    yosys, nextpnr, packer = tools = find_yosys(), board.family.find_nextpnr(), last.find_packer()
    verilog = board_verilog(board, manifest, first, core, logic)
    aim = first.clock_hz if requested_mhz is None else None
    pins = constraints(board, first.link, aim, first.logic_pins)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "top.v", verilog)
    write_file(folder / last.constraint_file, pins)
    if first.link == "ethernet":
        write_file(folder / LICENCE_FILE, ethernet_licence())
    chosen, top = board.chosen, Top(TOP, verilog)
    synthesis = synthesise(core, manifest.name, chosen.device, yosys, folder, top=top, progress=progress)
    whole = f"{manifest.name} with its link"
    taken, spatial = synthesis.core + synthesis.harness, manifest.spatial is not None
    check_fit(whole, taken, chosen.device, board.name, spatial=spatial)
    netlist = synthesis.folder / NETLIST
    check_chains(whole, netlist, chosen.device, insist=insist, board=board.name, spatial=spatial)
    router, placer = choose_tools(chosen, spatial, taken.luts)
    route = partial(
        place_and_route,
        name=manifest.name,
        chosen=chosen,
        tool=nextpnr,
        folder=folder,
        seeds=len(seeds),
        target_mhz=first.clock_mhz,
        other_mhz=(PHY_HZ if first.link == "ethernet" else first.link_hz) / 1e6,
        pins=pins,
        router=router,
        placer=placer,
        spatial=spatial,
        progress=progress,
    )
    blocks = synthesis.core.block_rams
    found, failed = route_seeds(partial(route, synthesis), seeds, default_jobs())
    best = max(found, key=lambda each: (each.missed_mhz is None, each.fmax_mhz))
    if requested_mhz is None:

        def again(timing: BoardTiming) -> Routed:
            changed = with_parameters(synthesis, PLL, timing.pll.parameters)
            clock = f"at {timing.clock_mhz:g} MHz"
            tell = progress and (lambda what, *count: progress(f"{what}, {clock}", *count))
            return route(changed, seed=best.seed, progress=tell)

        timing, best = find_fastest(board, first, best, blocks, again)
        write_file(folder / "top.v", board_verilog(board, manifest, timing, core, logic))
    fmax = chosen.usable_mhz(best.fmax_mhz, blocks)
    file, (_, routed_file) = last.bitstream_file, last.result_options
    assert best.folder is not None
    copy_file(best.folder / routed_file, folder / routed_file)
    arguments = last.pack_arguments(chosen, routed_file, file)
    _pack(packer, arguments, folder / routed_file, folder / file)
    return Bitstream(
        board=board.name,
        build_hash=manifest.build_hash,
        file=file,
        sha256=file_hash(folder / file),
        clock_mhz=timing.clock_mhz,
        requested_mhz=requested_mhz,
        fmax_mhz=fmax,
        step_latency_us=round(manifest.cycles.step_latency_cycles / timing.clock_mhz, 4),
        link_mhz=best.missed_mhz,
        met=fmax >= timing.clock_mhz and best.missed_mhz is None,
        port=timing.port,
        seed=best.seed,
        seeds_mhz={each.seed: each.fmax_mhz for each in found},
        failed_seeds=failed,
        uses=_uses(best),
        worst_path=best.worst_path.text,
        tools={tool.name: tool.version for tool in tools},
        synthesis_seconds=synthesis.seconds,
        route_seconds=best.seconds,
        stored=synthesis.stored and best.stored,
    )


def file_hash(path: Path) -> str:
    """Return a file's SHA-256; OSError if it cannot be read."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _uses(routed: Routed) -> tuple[Use, ...]:
    uses = [Use(name=name, used=used, available=routed.available[name]) for name, used in routed.used.items()]
    return tuple(sorted(uses, key=lambda use: -use.share))


def _pack(tool: Tool, arguments: Sequence[str], routed: Path, target: Path) -> None:
    """Pack what place and route wrote; from the cache if the same content was packed before."""
    key = digest(tool.version, *arguments, routed.read_bytes())

    def build(work: Path) -> None:
        shutil.copyfile(routed, work / routed.name)
        run_tool([*tool.command, *arguments], f"packing the bitstream with {tool.name}", work)
        (work / routed.name).unlink()

    copy_file(cached("bitstream", key, build) / target.name, target)


def constraints(
    board: Board, link: Link = "serial", aim_hz: Fraction | None = None, more: Iterable[Pin] = ()
) -> str:
    """Return the text of a board's constraint file: sites, buffers, and frequencies of the clock pins.

    ``aim_hz`` is what place and route aims at for the core's clock, whatever the PLL makes. ``more`` are pins
    of a user's own logic.
    """
    tools = board.family.need_place_route()
    lines = [line for pin in (*board.pins(link), *more) for line in tools.pin_lines(pin)]
    if tools.pll_lines is None:
        lines += tools.clock_lines(board.clock.port, board.clock_hz)
    else:
        lines += tools.pll_lines(PLL, board.clock_hz)
    if link == "ethernet":
        (clock,) = board.find_phy().ports("rx_clk")
        lines += tools.clock_lines(clock.port, PHY_HZ)
    elif link in ("spi", "raw_spi"):
        lines += tools.clock_lines(board.find_spi()[0].port, board.clock_hz)
    if aim_hz is not None:
        lines += tools.net_lines(f"{CORE}.clk", int(aim_hz))
    return "\n".join(lines) + "\n"


def load_board(board: Board, bitstream: Path, flash: bool = False) -> None:
    """Configure a board that is plugged in.

    With ``flash`` the flash memory is written, so that the bitstream stays when the power goes. Raises
    ToolError if openFPGALoader is missing or fails; it fails without a board.
    """
    loader = shutil.which("openFPGALoader")
    if loader is None:
        raise ToolError(
            "configuring a board needs openFPGALoader on the path; install it (Debian, Ubuntu: apt install "
            "openfpgaloader; macOS: brew install openfpgaloader), or load the file with another tool: "
            f"{bitstream}"
        )
    options = [*board.loader, *(["--write-flash"] if flash else [])]
    run_tool([loader, *options, bitstream], f"configuring {board.name}")


_ROUTES = 3
"""Most routes after the first, each with a slower clock."""


def within_range(board: Board, clock_mhz: float) -> Fraction:
    """Return the clock in MHz, or the nearest that the PLL of a routed design can be set to."""
    lowest, highest = (clock / 1_000_000 for clock in board.clock_range)
    return min(max(Fraction(str(clock_mhz)), lowest), highest)


def at_clock(board: Board, timing: BoardTiming, clock_mhz: float) -> BoardTiming:
    """Return the same timing with the core's clock that is nearest below, or the PLL's slowest."""
    return timing.replace(pll=board.find_pll(within_range(board, clock_mhz) * 1_000_000, alike=True))


def expected_clock(manifest: Manifest, board: Board, *, ethernet: bool) -> Fraction:
    """Return the clock in MHz that is expected of a bitstream, by the core's estimate if there is one.

    ``ethernet``: its link is on Ethernet, so LiteEth fills the device, too.
    """
    found = estimate(manifest, board.chosen, board=BoardTop(name=board.name, ethernet=ethernet))
    fmax = (found and found.fmax_mhz) or board.chosen.target_mhz
    return within_range(board, board_clock(fmax, fmax))


def find_fastest(
    board: Board,
    first: BoardTiming,
    routed: Routed,
    block_rams: float,
    again: Callable[[BoardTiming], Routed],
) -> tuple[BoardTiming, Routed]:
    """Find the fastest clock of the PLL that a design meets, and the route that shows it.

    ``first`` and ``routed`` are the first route and its timing: the PLL's clock just below what it has
    reached is the first that is tried. ``block_rams`` are those of the core, which may limit its clock.
    ``again`` routes the same with this timing. If it misses the clock, the next slower one follows; the last
    one is the result even if it is missed.
    """
    limit = board.chosen.usable_mhz(routed.fmax_mhz, block_rams)
    for _ in range(_ROUTES):
        timing = at_clock(board, first, limit)
        found = again(timing)
        fmax = board.chosen.usable_mhz(found.fmax_mhz, block_rams)
        if fmax >= timing.clock_mhz:
            break
        limit = min(fmax, float((timing.clock_hz - 1) / 1_000_000))
    return timing, found
