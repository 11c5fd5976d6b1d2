"""What the user asks of an exploration: which builds are searched, and how far."""

from typing import Annotated, Literal

from pydantic import Field

from rtlstm.sim.simulator_names import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.options import Option
from rtlstm.spec.record import Record

__all__ = ["SearchOptions", "SpaceOptions"]

_SPACE, _RESULT, _WORK = "What is searched", "What is wanted", "How it is worked out"


class SpaceOptions(Record):
    """The values to search, as they are typed."""

    devices: Annotated[
        str,
        Option(
            "Devices and boards with commas between them, as rtlstm devices and rtlstm boards list them; a "
            "board's serial link is counted in, and its clock is that of its bitstream.",
            group=_SPACE,
        ),
    ] = "up5k,lfe5u-25f,lfe5u-45f,lfe5u-85f"
    weight_bits: Annotated[
        str, Option("Such as 8, 4,8,16 or 4:16, both included.", group=_SPACE, metavar="BITS")
    ] = "4:16"
    data_bits: Annotated[str, Option("Of inputs, h and dense results.", group=_SPACE, metavar="BITS")] = (
        "6:16"
    )
    gate_bits: Annotated[str, Option("Of sigmoid and tanh.", group=_SPACE, metavar="BITS")] = "8,12,16"
    cell_bits: Annotated[str, Option("Of the cell state.", group=_SPACE, metavar="BITS")] = "12,16"
    tables: Annotated[str, Option("Kinds of tables: interpolated, direct, or both.", group=_SPACE)] = (
        "interpolated,direct"
    )
    hidden_rounding: Annotated[
        str, Option("How h of LSTM layers is rounded: half_up, odd, or both.", group=_SPACE)
    ] = "half_up"
    max_steps: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Option(
            "Longest sequence, which a network with a reverse direction needs: its latency is that of such a "
            "sequence.",
            group=_SPACE,
        ),
    ] = None
    lanes: Annotated[
        str | None,
        Option(
            "Such as 4,8,16; by default all that differ in cycles, and without --macs what --fit takes.",
            group=_SPACE,
            metavar="NUMBERS",
        ),
    ] = None
    macs: Annotated[
        str | None,
        Option(
            "Multipliers per lane; by default all that differ in cycles.", group=_SPACE, metavar="NUMBERS"
        ),
    ] = None


class SearchOptions(Record):
    """What is wanted of the builds, and how far the search goes."""

    goal: Annotated[
        Literal["latency", "area", "accuracy", "energy"],
        Option(
            "What the front is sorted by, the best first. energy is a model of published currents, for up5k "
            "only.",
            group=_RESULT,
        ),
    ] = "latency"
    limit: Annotated[
        tuple[str, ...],
        Option(
            "Such as latency<=2us, error<=0.01, luts<=5000, share<=80%, clock>=50MHz or accuracy>=0.9 or "
            "energy<=50nJ. May be repeated.",
            group=_RESULT,
            metavar="LIMIT",
        ),
    ] = ()
    simulate: Annotated[
        Annotated[int, Field(ge=0)],
        Option("How many of the front's points are generated and simulated, the best first.", group=_RESULT),
    ] = 0
    route: Annotated[
        Annotated[int, Field(ge=0)],
        Option("How many of the front's points are also placed and routed, the best first.", group=_RESULT),
    ] = 0
    simulator: Annotated[
        Simulator | None,
        Option("What runs the Verilog of --simulate and --route; verilator by default.", group=_RESULT),
    ] = None
    seeds: Annotated[
        Annotated[int, Field(ge=1, le=99)] | None,
        Option(
            "Times to place and route each of --route; the median counts. Once by default.", group=_RESULT
        ),
    ] = None
    show: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Option(
            "Print the command of one build alone; its number is in the table's first column.",
            group=_RESULT,
            metavar="NUMBER",
        ),
    ] = None
    choices: Annotated[
        Annotated[int, Field(ge=1)],
        Option(
            "How many choices of bits, device and array to try, those of earlier calls included.", group=_WORK
        ),
    ] = 512
    seed: Annotated[
        Annotated[int, Field(ge=0)], Option("Of the search: the same one tries the same.", group=_WORK)
    ] = 0

    def check(self) -> None:
        """Refuse options that have nothing to act on.

        Raises
        ------
        ConfigurationError
            If there are any.
        """
        if self.seeds is not None and not self.route:
            raise ConfigurationError("`seeds` needs `route`: give both, or leave out `seeds`")
        if self.simulator is not None and not (self.simulate or self.route):
            raise ConfigurationError(
                "`simulator` needs `simulate` or `route`: give one of them, or leave out `simulator`"
            )
