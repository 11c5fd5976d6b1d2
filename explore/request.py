"""What the user asks of an exploration: which builds are searched, and how far."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from rtlstm.fpga.request import ClockMhz
from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Option, Record

_SpaceOption = partial(Option, group="What is searched")
_ResultOption = partial(Option, group="What is wanted")
_WorkOption = partial(Option, group="How it is worked out")


class SpaceOptions(Record):
    """The values to search, as they are typed."""

    devices: Annotated[
        str,
        _SpaceOption(
            "Devices and boards, separated by commas. For a board, the serial link and the "
            "clock of its bitstream count."
        ),
    ] = "up5k,lfe5u-25f,lfe5u-45f,lfe5u-85f"
    clock_mhz: Annotated[
        ClockMhz | None,
        _SpaceOption(
            "Clock that you assume of devices of xilinx and ultrascale, in MHz.",
            flag="--clock",
            metavar="MHZ",
        ),
    ] = None
    weight_bits: Annotated[
        str, _SpaceOption("Bits per weight to try, such as 8, 4,8,16 or 4:16.", metavar="BITS")
    ] = "4:16"
    data_bits: Annotated[
        str, _SpaceOption("Bits of the inputs, hidden states and dense results to try.", metavar="BITS")
    ] = "6:16"
    hidden_bits: Annotated[
        str | None, _SpaceOption("Bits of h to try beside the default, such as 9 or 10:12.", metavar="BITS")
    ] = None
    gate_bits: Annotated[
        str, _SpaceOption("Bits of the results of sigmoid and tanh to try.", metavar="BITS")
    ] = "8,12,16"
    cell_bits: Annotated[str, _SpaceOption("Bits of the cell state to try.", metavar="BITS")] = "12,16"
    tables: Annotated[str, _SpaceOption("Kinds of tables to try: interpolated, direct, or both.")] = (
        "interpolated,direct"
    )
    hidden_rounding: Annotated[str, _SpaceOption("Roundings of h to try: half_up, odd, or both.")] = "half_up"
    max_steps: Annotated[
        Annotated[int, Field(ge=1)] | None,
        _SpaceOption(
            "Longest sequence, for a network with a reverse direction. Latency is then that "
            "of such a sequence."
        ),
    ] = None
    lanes: Annotated[
        str | None,
        _SpaceOption(
            "Lanes to try, such as 4,8,16. Default: all that differ in cycles, and the array "
            "that --fit chooses.",
            metavar="NUMBERS",
        ),
    ] = None
    macs: Annotated[
        str | None,
        _SpaceOption("Multipliers per lane to try. Default: all that differ in cycles.", metavar="NUMBERS"),
    ] = None
    lane_sums: Annotated[
        str | None, _SpaceOption("Row groups whose sums lanes keep, to try beside none.", metavar="NUMBERS")
    ] = None
    wave_front: Annotated[
        bool, _SpaceOption("Also try a wave-front, for a shorter interval (see --limit).")
    ] = False


class SearchOptions(Record):
    """What is wanted of the builds, and how far the search goes."""

    goal: Annotated[
        Literal["latency", "area", "accuracy", "energy"],
        _ResultOption("What the builds are sorted by. energy is an estimate, for up5k only."),
    ] = "latency"
    limit: Annotated[
        tuple[str, ...],
        _ResultOption(
            "Limit that builds must meet, such as latency<=2us, error<=0.01, luts<=5000, "
            "share<=80%, clock>=50MHz, accuracy>=0.9 or energy<=50nJ. May be repeated.",
            metavar="LIMIT",
        ),
    ] = ()
    simulate: Annotated[
        Annotated[int, Field(ge=0)], _ResultOption("Number of the best builds to generate and simulate.")
    ] = 0
    route: Annotated[
        Annotated[int, Field(ge=0)], _ResultOption("Number of the best builds to place and route, too.")
    ] = 0
    simulator: Annotated[
        Simulator | None, _ResultOption("Simulator of --simulate and --route. Default: verilator.")
    ] = None
    seeds: Annotated[
        Annotated[int, Field(ge=1, le=99)] | None,
        _ResultOption("How many times to place and route each build; the median counts. Default: 1."),
    ] = None
    show: Annotated[
        Annotated[int, Field(ge=1)] | None,
        _ResultOption("Print the command of the build with this number in the table.", metavar="NUMBER"),
    ] = None
    choices: Annotated[
        Annotated[int, Field(ge=1)],
        _WorkOption(
            "Largest number of choices of bits, device and array to try, with those of earlier calls."
        ),
    ] = 512
    seed: Annotated[
        Annotated[int, Field(ge=0)], _WorkOption("Seed of the search. The same seed tries the same choices.")
    ] = 0

    def check(self) -> None:
        """Refuse options that have nothing to act on. Raises ConfigurationError if there are any."""
        if self.seeds is not None and not self.route:
            raise ConfigurationError("`seeds` needs `route`: give both, or leave out `seeds`")
        if self.simulator is not None and not (self.simulate or self.route):
            raise ConfigurationError(
                "`simulator` needs `simulate` or `route`: give one of them, or leave out `simulator`"
            )
