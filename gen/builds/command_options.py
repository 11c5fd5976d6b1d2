"""Options of the commands that follow ``generate``, and of the methods of a build of the same names."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rtlstm.fpga.request import Placer, Router
from rtlstm.sim.simulator_names import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.options import Option
from rtlstm.spec.record import Record

__all__ = ["DEFAULT_SEEDS", "BitstreamOptions", "BoardOptions", "ImplementOptions", "SimulateOptions"]

DEFAULT_SEEDS = 3

ClockMhz = Annotated[float, Field(ge=1, le=1000)]

_INSIST = Option(
    "Place and route also a design that is fuller than any that is known to succeed.", flag="--try"
)


class SimulateOptions(Record):
    """How a build's Verilog is compared with the golden model."""

    simulator: Annotated[
        Simulator | None, Option("What runs the Verilog; by default verilator, or icarus for a *.fst.")
    ] = None
    steps: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Option("Steps of random input, by default 64, or the longest sequence; or the first of an input."),
    ] = None
    seed: Annotated[Annotated[int, Field(ge=0)] | None, Option("Of the random input; by default 0.")] = None
    wave: Annotated[
        Path | None,
        Option(
            "Where to write waveforms of the steps: *.vcd, or *.fst, which icarus writes; beside it "
            "GTKWave's save file, *.gtkw.",
            metavar="FILE",
        ),
    ] = None
    verify: Annotated[
        bool,
        Option("Read the weights back before the steps; without it Icarus is much quicker."),
    ] = True

    @property
    def chosen_simulator(self) -> Simulator:
        """The simulator that was named, or the one that writes such waveforms."""
        fst = self.wave is not None and self.wave.suffix.lower() == ".fst"
        return self.simulator or ("icarus" if fst else "verilator")

    def check_input(self) -> None:
        """Refuse what is for random input.

        Raises
        ------
        ConfigurationError
            If there is any of it.
        """
        if self.seed is not None:
            raise ConfigurationError("`seed` is for random input: leave it out if an input is given")


class ImplementOptions(Record):
    """For what, and how, a build is synthesised, placed and routed."""

    device: Annotated[str, Option("Such as lfe5u-85f-8, up5k, gw2ar-18, xc7a35t.", metavar="DEVICE")]
    clock_mhz: Annotated[
        ClockMhz | None,
        Option("The clock to aim at; exits with 1 if it is missed.", flag="--clock", metavar="MHZ"),
    ] = None
    seeds: Annotated[Annotated[int, Field(ge=1, le=99)], Option("Times to place and route.")] = DEFAULT_SEEDS
    cores: Annotated[
        Annotated[int, Field(ge=1, le=99)],
        Option("Cores of the build side by side in the device, each with inputs and outputs of its own."),
    ] = 1
    package: Annotated[str | None, Option("By default the device's most common one.")] = None
    speed_grade: Annotated[str | None, Option("By default the slowest.")] = None
    router: Annotated[Router | None, Option("Of nextpnr; by default the better one for the device.")] = None
    placer: Annotated[Placer | None, Option("Of nextpnr; by default the better one for the device.")] = None
    rip_up: Annotated[
        bool,
        Option(
            "Route wires that are too slow again, at the cost of others, until three passes gain nothing: "
            "takes several times as long."
        ),
    ] = False
    time_limit: Annotated[
        Annotated[float, Field(gt=0)] | None,
        Option(
            "Minutes for each seed. Rip-up then ends with the best complete route; by default no limit.",
            metavar="MINUTES",
        ),
    ] = None
    multipliers: Annotated[
        bool, Option("Use multiplier blocks, or make multipliers of logic.", flag="--dsp/--no-dsp")
    ] = True
    insist: Annotated[bool, _INSIST] = False
    jobs: Annotated[
        Annotated[int, Field(ge=1)] | None, Option("Seeds to run at once; by default all processors but one.")
    ] = None


class BoardOptions(Record):
    """A board, its clock and its serial port."""

    board: Annotated[
        str, Option("Such as ulx3s-85f, icebreaker, colorlight-i9, zybo-z7-20.", metavar="BOARD")
    ]
    clock_mhz: Annotated[
        ClockMhz | None,
        Option("The design's clock; by default the board's usual one.", flag="--clock", metavar="MHZ"),
    ] = None
    baud: Annotated[
        Annotated[int, Field(ge=300)] | None,
        Option("Of the serial port; by default the fastest usual rate."),
    ] = None


class BitstreamOptions(BoardOptions):
    """For what board, and how, a bitstream is made."""

    seed: Annotated[Annotated[int, Field(ge=1)], Option("Of place and route; another may be faster.")] = 1
    insist: Annotated[bool, _INSIST] = False

    def check_vivado(self) -> None:
        """Refuse what a board has no use for whose bitstream Vivado makes.

        Raises
        ------
        ConfigurationError
            If there is any of it.
        """
        if self.baud is not None or self.seed != 1 or self.insist:
            raise ConfigurationError(
                f"the core on {self.board} has no serial port, and Vivado takes no seed; leave out "
                "`baud`, `seed` and `insist=True`"
            )
