"""Options of the commands that follow ``generate``, and of the methods of a build of the same names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rtlstm.boards.ethernet import Ethernet
from rtlstm.fpga.request import ClockMhz, Placer, Router
from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Option, Record

DEFAULT_SEEDS = 3

_INSIST = Option(
    "Place and route a design even if it is fuller than any that was routed before.", flag="--try"
)


class SimulateOptions(Record):
    """How a build's Verilog is compared with the golden model."""

    simulator: Annotated[
        Simulator | None, Option("Simulator. Default: verilator, or icarus for an .fst file.")
    ] = None
    steps: Annotated[
        Annotated[int, Field(ge=1, lt=2**31)] | None,
        Option(
            "Number of steps: of random input, or the first ones of an input. Default: 64, or"
            " the longest sequence."
        ),
    ] = None
    seed: Annotated[Annotated[int, Field(ge=0)] | None, Option("Seed of the random input. Default: 0.")] = (
        None
    )
    wave: Annotated[
        Path | None,
        Option(
            "Write waveforms to this .vcd or .fst file, with a save file for GTKWave beside it.",
            metavar="FILE",
        ),
    ] = None
    verify: Annotated[
        bool,
        Option("Read the weights back before the steps. Without it Icarus is much faster."),
    ] = True

    @property
    def chosen_simulator(self) -> Simulator:
        """The simulator that was named, or the one that writes such waveforms."""
        fst = self.wave is not None and self.wave.suffix.lower() == ".fst"
        return self.simulator or ("icarus" if fst else "verilator")


class ImplementOptions(Record):
    """For what, and how, a build is synthesised, placed and routed."""

    device: Annotated[
        str, Option("Device, such as lfe5u-85f-8, up5k, gw2ar-18 or xc7a35t.", metavar="DEVICE")
    ]
    clock_mhz: Annotated[
        ClockMhz | None,
        Option(
            "Target clock in MHz. The command exits with 1 if no seed reaches it.",
            flag="--clock",
            metavar="MHZ",
        ),
    ] = None
    seeds: Annotated[
        Annotated[int, Field(ge=1, le=99)], Option("How many times to place and route, with one seed each.")
    ] = DEFAULT_SEEDS
    cores: Annotated[
        Annotated[int, Field(ge=1, le=99)],
        Option("Number of cores side by side in the device, each with separate inputs and outputs."),
    ] = 1
    package: Annotated[str | None, Option("Package of the device. Default: the most common one.")] = None
    speed_grade: Annotated[str | None, Option("Speed grade of the device. Default: the slowest.")] = None
    router: Annotated[Router | None, Option("Router of nextpnr. Default: the better one for the device.")] = (
        None
    )
    placer: Annotated[Placer | None, Option("Placer of nextpnr. Default: the better one for the device.")] = (
        None
    )
    rip_up: Annotated[
        bool,
        Option("Route slow wires again until three passes gain nothing. It takes several times as long."),
    ] = False
    time_limit: Annotated[
        Annotated[float, Field(gt=0)] | None,
        Option(
            "Time limit for each seed in minutes. Rip-up then keeps its best complete route. Default: none.",
            metavar="MINUTES",
        ),
    ] = None
    multipliers: Annotated[
        bool, Option("Use DSP blocks for multipliers, or LUTs.", flag="--dsp/--no-dsp")
    ] = True
    insist: Annotated[bool, _INSIST] = False
    jobs: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Option("Number of seeds to run at once. Default: all processors but one."),
    ] = None


class BoardOptions(Record):
    """A board, its clock and its serial port."""

    board: Annotated[
        str, Option("Board, such as ulx3s-85f, icebreaker, colorlight-i9 or zybo-z7-20.", metavar="BOARD")
    ]
    clock_mhz: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,  # The board says which it can have.
        Option(
            "Clock of the core in MHz. Default: the fastest that the bitstream meets; of a simulated board "
            "without a bitstream, the expected one; of a Zynq board, 50 (KV260: 100).",
            flag="--clock",
            metavar="MHZ",
        ),
    ] = None
    baud: Annotated[
        Annotated[int, Field(ge=300)] | None,
        Option("Baud rate of the serial port. Default: the fastest usual rate."),
    ] = None
    spi: Annotated[
        bool,
        Option("The board's link is SPI at its header, not its serial port.", flag="--spi/--no-spi"),
    ] = False
    raw: Annotated[
        bool,
        Option(
            "The link on SPI or Ethernet takes single steps without a session, too (docs/link.md).",
            flag="--raw/--no-raw",
        ),
    ] = False
    ip: Annotated[
        str | None,
        Option("IP address: the board's link is its Ethernet, not its serial port.", metavar="ADDRESS"),
    ] = None
    mac: Annotated[
        str | None, Option("MAC address. Default: one made of the IP address.", metavar="ADDRESS")
    ] = None
    peer: Annotated[
        str,
        Option(
            "Host that the board answers over Ethernet: its IP address; first, the one that sends the first"
            " datagram after reset; or any.",
            metavar="HOST",
        ),
    ] = "first"

    @property
    def ethernet(self) -> Ethernet | None:
        """The addresses of a board on Ethernet; None if its link is the serial port.

        Raises ConfigurationError if one is no address, or options for both links are given.
        """
        if self.spi and self.baud is not None:
            raise ConfigurationError("a board on SPI has no serial port; leave out `baud` or `spi`")
        if self.raw and not self.spi and self.ip is None:
            raise ConfigurationError("the raw mode is for SPI or Ethernet; give `spi` or `ip`, or no `raw`")
        if self.ip is None:
            if self.mac is not None or self.peer != "first":
                raise ConfigurationError("`mac` and `peer` are for a board on Ethernet; give its `ip`, too")
            return None
        if self.baud is not None:
            raise ConfigurationError("a board on Ethernet has no serial port; leave out `baud` or `ip`")
        if self.spi:
            raise ConfigurationError("a board has one link; leave out `spi` or `ip`")
        return Ethernet.create(self.ip, self.mac, self.peer, self.raw)


class BitstreamOptions(BoardOptions):
    """For what board, and how, a bitstream is made."""

    seed: Annotated[
        Annotated[int, Field(ge=1)], Option("Seed of place and route. Another one may reach a faster clock.")
    ] = 1
    seeds: Annotated[
        Annotated[int, Field(ge=1, le=99)],
        Option("Place and route with the seeds 1 to N, several at once, and take the best.", metavar="N"),
    ] = 1
    insist: Annotated[bool, _INSIST] = False

    @property
    def all_seeds(self) -> Sequence[int]:
        """The seeds to try. Raises ConfigurationError if one seed and several are asked for."""
        if self.seed != 1 and self.seeds != 1:
            raise ConfigurationError(
                f"`seeds={self.seeds}` tries the seeds 1 to {self.seeds}: leave out `seed={self.seed}`, "
                "or `seeds`"
            )
        return range(1, self.seeds + 1) if self.seed == 1 else (self.seed,)

    def check_vivado(self) -> None:
        """Refuse what a board has no use for whose bitstream Vivado makes.

        Raises ConfigurationError if there is any of it.
        """
        used = {"board", "clock_mhz"}
        if self != type(self)(**{name: getattr(self, name) for name in used}):
            raise ConfigurationError(
                f"the core on {self.board} has no link, and Vivado takes no seed; leave out `baud`, `spi`, "
                "`raw`, `ip`, `mac`, `peer`, `seed`, `seeds` and `insist=True`"
            )
