"""What the user asks of an exploration: which builds are searched, and how far."""

from typing import Annotated, Literal

from pydantic import Field

from rtlstm.fpga.request import ClockMhz
from rtlstm.sim.simulated_ports import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.record import Option, Record

_SPACE, _RESULT, _WORK = "What is searched", "What is wanted", "How it is worked out"


class SpaceOptions(Record):
    """The values to search, as they are typed."""

    devices: Annotated[
        str,
        Option(
            "Devices and boards, separated by commas. For a board, the serial link and the "
            "clock of its bitstream count.",
            group=_SPACE,
        ),
    ] = "up5k,lfe5u-25f,lfe5u-45f,lfe5u-85f"
    clock_mhz: Annotated[
        ClockMhz | None,
        Option(
            "Clock that you assume of devices of xilinx and ultrascale, in MHz.",
            group=_SPACE,
            flag="--clock",
            metavar="MHZ",
        ),
    ] = None
    weight_bits: Annotated[
        str, Option("Bits per weight to try, such as 8, 4,8,16 or 4:16.", group=_SPACE, metavar="BITS")
    ] = "4:16"
    data_bits: Annotated[
        str,
        Option("Bits of the inputs, hidden states and dense results to try.", group=_SPACE, metavar="BITS"),
    ] = "6:16"
    hidden_bits: Annotated[
        str | None,
        Option(
            "Bits of h to try beside the default, such as 9 or 10:12.",
            group=_SPACE,
            metavar="BITS",
        ),
    ] = None
    gate_bits: Annotated[
        str, Option("Bits of the results of sigmoid and tanh to try.", group=_SPACE, metavar="BITS")
    ] = "8,12,16"
    cell_bits: Annotated[str, Option("Bits of the cell state to try.", group=_SPACE, metavar="BITS")] = (
        "12,16"
    )
    tables: Annotated[str, Option("Kinds of tables to try: interpolated, direct, or both.", group=_SPACE)] = (
        "interpolated,direct"
    )
    hidden_rounding: Annotated[str, Option("Roundings of h to try: half_up, odd, or both.", group=_SPACE)] = (
        "half_up"
    )
    max_steps: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Option(
            "Longest sequence, for a network with a reverse direction. Latency is then that "
            "of such a sequence.",
            group=_SPACE,
        ),
    ] = None
    lanes: Annotated[
        str | None,
        Option(
            "Lanes to try, such as 4,8,16. Default: all that differ in cycles, and the array "
            "that --fit chooses.",
            group=_SPACE,
            metavar="NUMBERS",
        ),
    ] = None
    macs: Annotated[
        str | None,
        Option(
            "Multipliers per lane to try. Default: all that differ in cycles.",
            group=_SPACE,
            metavar="NUMBERS",
        ),
    ] = None
    lane_sums: Annotated[
        str | None,
        Option(
            "Row groups whose sums lanes keep, to try beside none.",
            group=_SPACE,
            metavar="NUMBERS",
        ),
    ] = None
    wave_front: Annotated[
        bool,
        Option(
            "Also try a wave-front, for a shorter interval (see --limit).",
            group=_SPACE,
        ),
    ] = False


class SearchOptions(Record):
    """What is wanted of the builds, and how far the search goes."""

    goal: Annotated[
        Literal["latency", "area", "accuracy", "energy"],
        Option(
            "What the builds are sorted by. energy is an estimate, for up5k only.",
            group=_RESULT,
        ),
    ] = "latency"
    limit: Annotated[
        tuple[str, ...],
        Option(
            "Limit that builds must meet, such as latency<=2us, error<=0.01, luts<=5000, "
            "share<=80%, clock>=50MHz, accuracy>=0.9 or energy<=50nJ. May be repeated.",
            group=_RESULT,
            metavar="LIMIT",
        ),
    ] = ()
    simulate: Annotated[
        Annotated[int, Field(ge=0)],
        Option("Number of the best builds to generate and simulate.", group=_RESULT),
    ] = 0
    route: Annotated[
        Annotated[int, Field(ge=0)],
        Option("Number of the best builds to place and route, too.", group=_RESULT),
    ] = 0
    simulator: Annotated[
        Simulator | None,
        Option("Simulator of --simulate and --route. Default: verilator.", group=_RESULT),
    ] = None
    seeds: Annotated[
        Annotated[int, Field(ge=1, le=99)] | None,
        Option("How many times to place and route each build; the median counts. Default: 1.", group=_RESULT),
    ] = None
    show: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Option(
            "Print the command of the build with this number in the table.",
            group=_RESULT,
            metavar="NUMBER",
        ),
    ] = None
    choices: Annotated[
        Annotated[int, Field(ge=1)],
        Option(
            "Largest number of choices of bits, device and array to try, with those of earlier calls.",
            group=_WORK,
        ),
    ] = 512
    seed: Annotated[
        Annotated[int, Field(ge=0)],
        Option("Seed of the search. The same seed tries the same choices.", group=_WORK),
    ] = 0

    def check(self) -> None:
        """Refuse options that have nothing to act on. Raises ConfigurationError if there are any."""
        if self.seeds is not None and not self.route:
            raise ConfigurationError("`seeds` needs `route`: give both, or leave out `seeds`")
        if self.simulator is not None and not (self.simulate or self.route):
            raise ConfigurationError(
                "`simulator` needs `simulate` or `route`: give one of them, or leave out `simulator`"
            )
