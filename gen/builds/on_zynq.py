"""A build beside a Zynq's processor: what Vivado needs for it, in the build folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rtlstm.boards.simulated_pynq import SimulatedPynq
from rtlstm.boards.vivado import RESERVED, SCRIPT, VivadoProject, write_project
from rtlstm.boards.zynq import FabricClock, ZynqBoard, find_fabric_clock
from rtlstm.gen.builds.implement import check_family
from rtlstm.sim.simulated_registers import SimulatedRegisters
from rtlstm.sim.sources import copy_sources, own_file, simulation_sources
from rtlstm.spec.build_files import check_rtl, read_verilog
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import INITIAL_STATE, Manifest

__all__ = ["OnZynq"]

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

        Parameters
        ----------
        clock_mhz
            By default the board's usual one.

        Raises
        ------
        BuildError
            If ``folder`` is not a build, or is damaged.
        ConfigurationError
            If the build has no AXI4-Lite wrapper or is for another family, or the clock cannot be made.
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
        return f"vivado -mode batch -source {self.output_folder / SCRIPT}"

    def write(self) -> VivadoProject:
        """Write the folder for Vivado, and in it the one for PYNQ.

        Raises
        ------
        ImageError
            If the build's weights cannot be used.
        """
        WeightImage.load(self.folder / "weights.bin", self.manifest)
        paths = [self.folder / name for name in ("manifest.json", "weights.bin", INITIAL_STATE)]
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

        Raises
        ------
        ToolError
            If Icarus Verilog is missing or fails.
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

        Raises
        ------
        ToolError
            If Icarus Verilog is missing or fails, or ``pynq`` has been imported already.
        """
        project = self.write()
        bitstream = self.output_folder / project.overlay / project.bitstream
        return SimulatedPynq(bitstream, self.board.processor, self.clock, self.simulate)
