"""A build on a board: its clock and line, what is kept of it in the build folder, and which board to buy."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from rtlstm.boards.bitstream import BITSTREAM_RECORD, Bitstream, expected_clock, file_hash, make_bitstream
from rtlstm.boards.board import Board, BoardTiming, find_timing
from rtlstm.boards.catalogue import find_any_board, find_board, find_target, price_class
from rtlstm.boards.top import TOP, board_verilog
from rtlstm.boards.wire import WireTime, link_timing, predict_wire
from rtlstm.boards.zynq import RECORD as VIVADO_RECORD
from rtlstm.boards.zynq import (
    RESERVED,
    SCRIPT,
    FabricClock,
    SimulatedPynq,
    VivadoProject,
    ZynqBoard,
    find_fabric_clock,
    write_project,
)
from rtlstm.fpga.estimate import BoardTop, check_estimate, check_inventory, estimate
from rtlstm.fpga.families.device import megahertz
from rtlstm.fpga.fit import NothingFitsError
from rtlstm.gen.builds.command_options import BoardOptions
from rtlstm.gen.builds.generate import BuildRequest, choose_design
from rtlstm.gen.builds.hardware import Design, check_hardware
from rtlstm.gen.builds.implement import check_family
from rtlstm.gen.builds.report import find_fit
from rtlstm.gen.quantise.accuracy import Accuracy, measure_accuracy
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.sim.simulated_board import BoardSpec, NativeBoard, SimulatedRegisters, build_board
from rtlstm.sim.simulated_ports import copy_sources, own_file, simulation_sources
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.files import read_file, write_file
from rtlstm.spec.image import WeightImage
from rtlstm.spec.inventory import link_limits
from rtlstm.spec.manifest import EMBEDDINGS, INITIAL_STATE, Manifest, check_rtl, read_verilog
from rtlstm.spec.progress import Progress, counted
from rtlstm.spec.record import Record, filled
from rtlstm.tools.cache import load_cached

_FROM_VIVADO = (
    "the bitstream for {board} is Vivado's to make and to load: run boards/{board}/build.tcl of the build in "
    "it, then load NAME.bit over JTAG, or NAME.bin from Linux (docs/boards.md)"
)


@dataclass(frozen=True)
class OnBoard:
    """A build with its place on a board."""

    folder: Path
    manifest: Manifest
    board: Board
    timing: BoardTiming
    """The timing that was asked for; else that of the bitstream, and before there is one, the expected."""
    requested_mhz: float | None
    """The core's clock that was asked for; None for the fastest."""
    core: str
    """The build's Verilog."""

    @classmethod
    def create(cls, folder: Path, board: str, clock_mhz: float | None = None, **line: Any) -> Self:
        """Choose clock and line of a build on a board.

        ``clock_mhz`` is by default the fastest: a bitstream's is found by place and route. ``line`` is as for
        :func:`~rtlstm.boards.board.find_timing`. Raises BuildError if ``folder`` is not a build, or is
        damaged. Raises ConfigurationError if the build is not for the board's device, or the board cannot do
        what is asked.
        """
        manifest, target = Manifest.load(folder), find_board(board)
        link_limits(manifest)
        device = target.chosen.device
        check_family(manifest, device, target.name)
        wanted: float | Fraction
        if clock_mhz is not None:
            wanted, alike = clock_mhz, False
        elif made := _made_bitstream(Path(folder), manifest, target.name):
            # Its clock is rounded to one hertz.
            most = float(target.clock_range[1]) / 1e6
            wanted, alike = min(made.clock_mhz + 1e-6, most), made.requested_mhz is None
        else:
            wanted, alike = expected_clock(manifest, target, ethernet=line.get("ethernet") is not None), True
        timing = find_timing(target, wanted, alike=alike, **line)
        return cls(Path(folder), manifest, target, timing, clock_mhz, read_verilog(folder, manifest))

    @classmethod
    def asked(cls, folder: Path, options: BoardOptions) -> Self:
        """Choose as :meth:`create`, by a user's options."""
        line = {name: getattr(options, name) for name in ("baud", "ethernet", "spi", "raw")}
        return cls.create(folder, options.board, options.clock_mhz, **line)

    @property
    def output_folder(self) -> Path:
        """The board's folder in the build."""
        return self.folder / "boards" / self.board.name

    @property
    def fitted_to(self) -> str:
        """What the build's sizes were chosen for, if it is not this board; empty if nothing else is known."""
        fit = find_fit(self.folder)
        return "" if fit is None or fit.device == self.board.name else fit.device

    def make_bitstream(
        self, seeds: Sequence[int] = (1,), progress: Progress | None = None, *, insist: bool = False
    ) -> Bitstream:
        """Make the bitstream and its record, of the best of these seeds.

        ``insist`` goes on with a design that is fuller than any that is known to have been routed.

        Raises ConfigurationError if the design does not fit, by its estimate or the count of its hard blocks
        (before synthesis) or by its netlist. Raises ToolError if a tool is missing or fails.
        """
        estimated = self._check_size(insist)
        found = make_bitstream(
            self.board,
            self.manifest,
            self.core,
            self.timing,
            self.output_folder,
            requested_mhz=self.requested_mhz,
            seeds=seeds,
            # A design with an estimate has been compared with the limits already.
            insist=insist or estimated,
            progress=progress,
        )
        write_file(self.output_folder / BITSTREAM_RECORD, found.model_dump_json(indent=1) + "\n")
        return found

    def find_misfit(self, *, insist: bool = False) -> str:
        """Find out before synthesis why the design does not fit the board's device; empty if it does.

        ``insist``: a design fits, too, that is fuller than any that is known to have been routed.
        """
        try:
            self._check_size(insist)
        except ConfigurationError as refused:
            return str(refused)
        return ""

    def _check_size(self, insist: bool) -> bool:
        """Compare the design with the board's device; return whether there is an estimate of it."""
        chosen = self.board.chosen
        top = BoardTop(name=self.board.name, ethernet=self.timing.link == "ethernet")
        expected = estimate(self.manifest, chosen, board=top)
        if expected is None:
            check_inventory(self.manifest, chosen.device, board=self.board.name)
        else:
            check_estimate(self.manifest.name, expected, chosen.device, insist)
        return expected is not None

    def compile(self, progress: Progress | None = None) -> tuple[Path, BoardSpec]:
        """Compile the board's top for simulation, for a host at its own rate.

        Raises ToolError if a tool is missing or fails.
        """
        self.output_folder.mkdir(parents=True, exist_ok=True)
        top = self.output_folder / "top.v"
        write_file(top, board_verilog(self.board, self.manifest, self.timing, self.core))
        spec = self._spec()
        return build_board(top, check_rtl(self.folder, self.manifest), spec, progress), spec

    def _spec(self) -> BoardSpec:
        button = self.board.button
        return BoardSpec(
            top=TOP,
            clock_hz=self.board.clock_hz,
            baud=self.timing.bit_hz,
            inverted_leds=[pin.inverted for pin in self.board.leds],
            inverted_button=None if button is None else button.inverted,
            family=self.manifest.parameters.family,
            device_family=self.board.chosen.device.family,
            link=self.timing.link,
        )

    def simulate(self, seed: int = 1, progress: Progress | None = None) -> NativeBoard:
        """Compile the board's top and switch it on; errors as :meth:`compile`."""
        spec = self._spec()
        return load_cached(
            lambda: self.compile(progress)[0], lambda library: NativeBoard(library, spec, seed)
        )


def slower_clock(found: Bitstream, board: Board) -> str | None:
    """Return a clock in MHz that would have been met, with a margin; None if the PLL has none so slow."""
    wanted = Fraction(str(round(0.97 * found.fmax_mhz, 1))) * 1_000_000
    try:
        pll = board.find_pll(wanted)
    except ConfigurationError:
        return None
    return megahertz(pll.output_hz)


def load_bitstream(folder: Path, board: str | None = None) -> tuple[Bitstream, Board, Path]:
    """Return the bitstream that was made for a board: its record, the board and the file.

    ``board`` is by default the only board that the build has a bitstream for. Raises BuildError if there is
    none, several to choose from, one of an earlier build, or its file was changed.
    """
    manifest = Manifest.load(folder)
    if board is not None and isinstance(find_any_board(board), ZynqBoard):
        raise BuildError(_FROM_VIVADO.format(board=board))
    made = sorted(path.parent.name for path in (Path(folder) / "boards").glob(f"*/{BITSTREAM_RECORD}"))
    if board is not None:
        name = find_board(board).name
    elif len(made) == 1:
        name = made[0]
    elif not made and (zynq := sorted((Path(folder) / "boards").glob(f"*/{VIVADO_RECORD}"))):
        raise BuildError(_FROM_VIVADO.format(board=zynq[0].parent.name))
    else:
        raise BuildError(
            f"{folder} has bitstreams for {', '.join(made)}; choose with `board`"
            if made
            else f"{folder} has no bitstream; make one with `Build({str(folder)!r}).bitstream(board='BOARD')`"
        )
    found = _made_bitstream(Path(folder), manifest, name)
    if found is None:
        raise BuildError(
            f"{folder} must have a bitstream of this build for {name}; make one with "
            f"`Build({str(folder)!r}).bitstream(board={name!r})`"
        )
    return found, find_board(name), Path(folder) / "boards" / name / found.file


def _made_bitstream(folder: Path, manifest: Manifest, board: str) -> Bitstream | None:
    """Return the record of a bitstream of this build that is whole."""
    path = folder / "boards" / board / BITSTREAM_RECORD
    try:
        found = Bitstream.model_validate_json(read_file(path))
        file = path.with_name(found.file)
        whole = found.build_hash == manifest.build_hash and found.sha256 == file_hash(file)
    except (OSError, ValueError):
        return None
    return found if whole else None


_BENCH = "axilite_port"
"""Testbench, and the file with it."""


@dataclass(frozen=True)
class OnZynq:
    """A build with its place on a Zynq board."""

    folder: Path
    manifest: Manifest
    board: ZynqBoard
    clock: FabricClock
    requested_mhz: float
    core: str
    """The build's Verilog."""

    @classmethod
    def create(cls, folder: Path, board: ZynqBoard, clock_mhz: float | None = None) -> Self:
        """Choose the clock of a build on a board.

        ``clock_mhz`` is by default the board's usual one. Raises BuildError if ``folder`` is not a build, or
        is damaged. Raises ConfigurationError if the build has no AXI4-Lite wrapper or is for another family,
        or the clock cannot be made.
        """
        manifest = Manifest.load(folder)
        parameters, family = manifest.parameters, board.logic.family
        if parameters.bus != "axilite":
            raise ConfigurationError(
                f"the processor of {board.name} runs the driver and reaches a core through registers, which "
                f"needs a build with `bus='axilite'`, but the bus of {manifest.name} is "
                f"{parameters.bus}; generate it with `bus='axilite', family={family!r}`"
            )
        check_family(manifest, board.logic, board.name)
        if manifest.name in RESERVED:
            raise ConfigurationError(
                f"the build must not be called {manifest.name}, which is a name of the board's own; "
                "generate it with another `name`"
            )
        wanted = clock_mhz or board.usual_mhz
        return cls(
            folder=Path(folder),
            manifest=manifest,
            board=board,
            clock=find_fabric_clock(wanted, board.processor),
            requested_mhz=wanted,
            core=read_verilog(folder, manifest),
        )

    @property
    def output_folder(self) -> Path:
        """The board's folder in the build."""
        return self.folder / "boards" / self.board.name

    @property
    def command(self) -> str:
        """What makes the bitstream, where Vivado is."""
        return shlex.join(["vivado", "-mode", "batch", "-source", str(self.output_folder / SCRIPT)])

    def write(self) -> VivadoProject:
        """Write the folder for Vivado, and in it the one for PYNQ.

        Raises ImageError if the build's weights cannot be used.
        """
        WeightImage.load(self.folder / "weights.bin", self.manifest)
        paths = [self.folder / name for name in ("manifest.json", "weights.bin", INITIAL_STATE, EMBEDDINGS)]
        return write_project(
            self.board,
            self.manifest,
            self.core,
            self.clock,
            self.output_folder,
            requested_mhz=self.requested_mhz,
            driver_files={path.name: path.read_bytes() for path in paths if path.exists()},
        )

    def simulate(self) -> SimulatedRegisters:
        """Simulate the registers of the board's top in Icarus; its program is in the folder ``simulation``.

        Raises ToolError if Icarus Verilog is missing or fails.
        """
        self.write()
        top = self.output_folder / "top.v"
        sources = simulation_sources(check_rtl(self.folder, self.manifest), self.manifest.parameters.family)
        folder = self.output_folder.absolute() / "simulation"
        folder.mkdir(exist_ok=True)
        names = copy_sources([*sources, top, own_file(f"{_BENCH}.v")], folder)
        return SimulatedRegisters(folder / "board.vvp", _BENCH, names)

    def simulate_pynq(self) -> SimulatedPynq:
        """Simulate the board with PYNQ on it, until it is closed: ``import pynq`` then gives a stand-in.

        Raises ToolError if Icarus Verilog is missing or fails, or ``pynq`` has been imported already.
        """
        project = self.write()
        bitstream = self.output_folder / project.overlay / project.bitstream
        return SimulatedPynq(bitstream, self.board.processor, self.clock, self.simulate)


class BoardBuild(Record):
    """What ``rtlstm generate --fit BOARD --fit-anyway`` would choose."""

    weight_bits: int
    changed: dict[str, Any]
    """Options of the numbers that are not as asked, because the network would not fit."""
    lanes: int
    macs: int
    clock_mhz: float
    """The core's clock that is expected of the bitstream, with the link that leaves the slowest."""
    step_cycles: int
    cell_share: float
    """Share of the device's logic cells in percent, with the serial link."""
    rms_error: float
    spread: float
    decisions: int
    decisions_changed: int
    """Those of :class:`~rtlstm.gen.quantise.accuracy.Accuracy`, on the calibration data."""
    links: tuple[WireTime, ...]


class BoardOffer(Record):
    """A board, and whether a network fits it."""

    board: str
    title: str
    device: str
    price: str
    build: BoardBuild | None
    refusal: str = ""
    """Why nothing fits; empty if something does."""
    cheapest: bool = False
    """Whether no board that fits is cheaper, and none of its class is faster at the host. Boards that need
    fewer bits than were asked for count only if all do."""

    @property
    def _cost(self) -> tuple[bool, int, float]:
        assert self.build is not None
        fastest = min(link.host_us for link in self.build.links)
        return bool(self.build.changed), price_class(self.board)[0], fastest


def compare_boards(
    request: BuildRequest,
    boards: Sequence[Board],
    progress: Progress | None = None,
    what: str = "compare boards",
) -> tuple[BoardOffer, ...]:
    """Compare boards for a network; ``request`` is that of a build, without its hardware, ``what`` the phase.

    Raises NothingFitsError if the network fits none; the message says which comes closest. Raises
    ConfigurationError if no board's link can carry the network's steps, as of whole sequences, and InputError
    if the calibration data do not fit.
    """
    if lower(unfold(request.network))[1]:
        raise ConfigurationError(
            "a board's link takes steps one by one, but this network has a reverse direction: connect the "
            "ports of its core yourself, and choose a device for it with `fit` and `max_steps`"
        )
    read, measured = request.read, dict[str, Accuracy]()
    designs, offers = dict[Any, Design | NothingFitsError](), list[BoardOffer]()
    for board in counted(progress, what, boards):
        # Boards whose devices and clocks are alike take the same design.
        target = find_target(board.name)
        key = target.chosen.label, target.board and target.board.replace(name="")
        if key not in designs:
            asked = {"tables": request.settings.tables, "fit_anyway": True}
            try:
                fitted = replace(request, **check_hardware(board.name, asked))
                designs[key] = choose_design(fitted)
            except NothingFitsError as refused:
                designs[key] = refused
        found, build, refusal = designs[key], None, ""
        if isinstance(found, NothingFitsError):
            refusal = found.said_of(board.name)
        else:
            numbers = found.settings.model_dump_json()
            if numbers not in measured:
                given = read.network, found.quantised, request.data, read.initial_state, read.report.decides
                measured[numbers] = measure_accuracy(*given)
            build = _describe(board, found, measured[numbers], request)
        names = {"board": board.name, "title": board.title, "device": board.chosen.label}
        price = price_class(board.name)[1]
        offers.append(BoardOffer(**names, price=price, build=build, refusal=refusal))
    if not any(offer.build for offer in offers):
        refusals = [each for each in designs.values() if isinstance(each, NothingFitsError)]
        if not refusals:
            raise ConfigurationError("there must be boards to compare, but none can be made")
        closest = min(refusals, key=lambda each: each.share or float("inf"))
        raise NothingFitsError(
            f"the network fits none of {len(offers)} boards; what comes closest: {closest} with "
            "`family`, `lanes` and `macs`, or make the network smaller",
            closest.share,
        )
    return mark_cheapest(offers)


def mark_cheapest(offers: Sequence[BoardOffer]) -> tuple[BoardOffer, ...]:
    """Return offers, at least one of which fits, with the cheapest one marked."""
    best = min((offer for offer in offers if offer.build), key=lambda offer: offer._cost)
    return tuple(offer.replace(cheapest=offer is best) for offer in offers)


def _describe(board: Board, found: Design, accuracy: Accuracy, request: BuildRequest) -> BoardBuild:
    manifest, asked = found.manifest, request.settings.model_dump()
    # A model's integers have scales that nobody asked for.
    chosen = found.settings.model_dump(exclude={"scale_bits"})
    assert found.fit is not None
    clocks = {
        link: float(expected_clock(manifest, board, ethernet=link == "ethernet")) for link in board.links
    }
    return filled(
        BoardBuild,
        *(manifest.numerics, manifest.parameters, accuracy, found.fit.estimate),
        changed={name: value for name, value in chosen.items() if value != asked[name]},
        clock_mhz=round(min(clocks.values()), 2),
        step_cycles=manifest.cycles.step_latency_cycles,
        links=tuple(
            predict_wire(manifest, link_timing(board, link, clock)) for link, clock in clocks.items()
        ),
    )
