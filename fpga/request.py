"""The user's choices about the hardware."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FamilyName
from rtlstm.spec.parameters import (
    CoreOptions,
    HardwareOption,
    Parameters,
    Size,
    TableMemory,
    TokenTable,
    WeightMemory,
)
from rtlstm.spec.program.spatial import LoopRegisters

ClockMhz = Annotated[float, Field(ge=1, le=1000)]
Router = Literal["router1", "router2"]
_OF_ARRAYS = (
    *("lanes", "macs", "gate_units", "multipliers", "lut_lanes", "weight_memory"),
    *("skip_zeros", "max_steps", "lane_sums", "wave_front", "token_table"),
)
"""Options that a spatial build does not have."""
ArrayKind = Literal["shared", "spatial"]
"""An array that computes all layers in turn, or logic for each layer."""
Placer = Literal["heap", "static"]
"""nextpnr's placer."""


def _multipliers(given: object) -> object:
    """Take a number also as text, as the command line gives it."""
    if isinstance(given, str) and given.isdecimal():
        return int(given)
    if given is None or given in ("dsp", "lut", "auto") or (type(given) is int and given >= 0):
        return given
    raise ValueError(
        "`multipliers` must be dsp, lut, auto or a number of multipliers per lane made "
        f"of LUTs, not {given!r}"
    )


class HardwareRequest(CoreOptions):
    """The user's choices about the hardware; None for what rtlstm chooses."""

    family: Annotated[
        FamilyName | None,
        HardwareOption(
            "Device family: generic (the default), ecp5, ice40, nexus, gowin, xilinx, "
            "ultrascale, intel, or one of an installed package. Leave it out if a device is "
            "fitted."
        ),
    ] = None
    array: Annotated[
        ArrayKind,
        HardwareOption(
            "One array for all layers in turn (shared), or logic for each layer, with constant weights "
            "(spatial)."
        ),
    ] = "shared"
    loop_registers: Annotated[
        LoopRegisters | None,
        HardwareOption(
            "Registers from h to the next h of a spatial build, 1 to 9: the cycles of a step. Default: 1, "
            "more with several streams."
        ),
    ] = None
    lanes: Annotated[
        Annotated[int, Field(ge=4, le=1024)] | None,
        HardwareOption(
            "Rows of weights that the array computes at a time, a multiple of 4. Default: "
            "those of the smallest array that is as fast as 4 x 32."
        ),
    ] = None
    macs: Annotated[Size | None, HardwareOption("Multipliers per lane. Default: as for the lanes.")] = None
    gate_units: Annotated[
        Annotated[int, Field(ge=1, le=256)] | None,
        HardwareOption(
            "Hidden units finished per cycle. It must divide lanes / 4, and divide macs or be"
            " a multiple of it. Default: 1."
        ),
    ] = None
    multipliers: Annotated[
        Literal["dsp", "lut", "auto"] | int | None,
        BeforeValidator(_multipliers),
        HardwareOption(
            "What multiplies: DSP blocks (dsp, the default), LUTs (lut), LUTs for N "
            "multipliers of each lane, or LUTs where DSP blocks run out (auto, the default if"
            " a device is fitted).",
            metavar="dsp|lut|auto|N",
        ),
    ] = None
    lut_lanes: Annotated[
        Annotated[int, Field(ge=0, le=1023)] | None,
        HardwareOption(
            "Number of lanes with one more multiplier of LUTs. Default: none, or what leaves "
            "the fewest DSP blocks of a fitted device unused."
        ),
    ] = None
    weight_memory: Annotated[
        WeightMemory | None,
        HardwareOption(
            "Memory of the weights: block RAM (block, the default), or the family's largest "
            "memory (large). A fitted device gets large if block RAM is too small."
        ),
    ] = None
    table_memory: Annotated[
        TableMemory | None,
        HardwareOption(
            "Memory of the tables of sigmoid and tanh: block RAM, loaded with the weights "
            "unless in space (ram, the default), or LUTs (rom). A fitted device "
            "gets rom if block RAM is too small."
        ),
    ] = None
    token_table: Annotated[
        TokenTable,
        HardwareOption("What looks up tokens: the driver (host), or the core, in a memory (core)."),
    ] = "host"
    beat_out: Annotated[
        Size | None,
        HardwareOption(
            "Output values per transfer, a multiple of the gate units. Default: as many as gate units."
        ),
    ] = None

    clock_mhz: Annotated[
        ClockMhz | None,
        HardwareOption(
            "Clock that you assume of a fitted device of xilinx or ultrascale, in MHz.",
            flag="--clock",
            metavar="MHZ",
        ),
    ] = None

    skip_zeros: Annotated[
        bool,
        HardwareOption(
            "Skip weight words that are all zero. Weights loaded later must be zero in the same places."
        ),
    ] = False

    fit_anyway: Annotated[
        bool,
        HardwareOption(
            "If nothing fits the device, use fewer bits, direct tables or another array, and say which."
        ),
    ] = False

    @property
    def core_options(self) -> dict[str, Any]:
        """Fields that :class:`rtlstm.spec.parameters.Parameters` takes unchanged."""
        return {name: getattr(self, name) for name in CoreOptions.model_fields}

    @property
    def all_lut(self) -> bool:
        """Whether all multipliers of the lanes are made of LUTs."""
        return self.multipliers == "lut"

    @property
    def lut_macs(self) -> int | None:
        """How many of each lane's multipliers are made of LUTs; None if that is not stated as a number."""
        if isinstance(self.multipliers, int):
            return self.multipliers
        return 0 if self.multipliers == "dsp" else None

    @property
    def least_lanes(self) -> int:
        """The fewest lanes of which so many can have one more multiplier of LUTs."""
        return (self.lut_lanes or 0) + 1

    @property
    def least_macs(self) -> int:
        """The fewest multipliers per lane of which so many can be made of LUTs."""
        return max(1, (self.lut_macs or 0) + bool(self.lut_lanes))

    def sized(self, family: str, lanes: int, macs: int, **more: Any) -> Parameters:
        """Return the parameters of an array of this size, with the defaults of what was not chosen.

        ``more`` as for :meth:`rtlstm.spec.parameters.Parameters.for_family`.
        """
        units = self.gate_units or 1
        return Parameters.for_family(
            family,
            lanes=lanes,
            macs=macs,
            gate_units=units,
            lut_macs=macs if self.all_lut else self.lut_macs or 0,
            lut_lanes=self.lut_lanes or 0,
            weight_memory=self.weight_memory or "block",
            table_memory=self.table_memory or "ram",
            beat_out=self.beat_out or units,
            **self.core_options,
            **more,
        )

    def check_spatial(self) -> None:
        """Raise a ConfigurationError if options for arrays are given, beside a spatial build."""
        given = ", ".join(f"`{name}`" for name in _OF_ARRAYS if name in self.model_fields_set)
        if given:
            raise ConfigurationError(
                f"only an array in time takes {given}, not `array='spatial'`: leave the one or the other out"
            )
        if self.decide is not None:
            raise ConfigurationError(
                f"`array='spatial'` gives the outputs of a step; leave it or `decide={self.decide!r}` out"
            )
        if self.tables != "direct":
            raise ConfigurationError(
                "`array='spatial'` has tables with one entry for each argument, not "
                f"`tables={self.tables!r}`: leave it out; train a network for it with `tables='direct'`"
            )

    def check_loop(self) -> None:
        """Raise a ConfigurationError if registers of a loop are given to an array."""
        if self.loop_registers is not None:
            raise ConfigurationError(
                f"`loop_registers={self.loop_registers}` is for spatial builds: give `array='spatial'`, too, "
                "or leave it out"
            )
