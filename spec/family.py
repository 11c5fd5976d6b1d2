"""Device families: the data of a family that core, simulation and driver use, and the registry of families.

A family is one object, whose class derives from :class:`Family`. Installed packages, rtlstm among them, offer
their families as entry points. A family is imported when it is first used; the import needs only NumPy and
pydantic.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self

from pydantic import AfterValidator, Field, model_validator

from rtlstm.spec.plugins import Registry
from rtlstm.spec.record import Record

GENERIC = "generic"
"""The family of builds for no particular device: portable Verilog, few registers."""


DEFAULT_PIPELINE = "default"
"""Name of the pipeline of builds for no particular device."""


_LARGER = ("adder_terms", "copies")
"""What a shorter pipeline has more of."""


class Pipeline(Record):
    """Register stages that a device family needs between two clock edges."""

    operand: Annotated[int, Field(ge=2, le=4)] = 2
    """Registers from an address to weights and vector at the multipliers: 2, the block RAM of weights
    has its output register; 3, the vector's has one, too; 4, there is one more after the output register of
    the weights, and one before the vector's memory."""
    multiplier: Annotated[int, Field(ge=1, le=3)] = 2
    """Registers of a multiplier: 1 at its output, 2 also at its inputs, 3 also inside."""
    tree_levels: Annotated[int, Field(ge=1, le=4)] = 2
    """Adder levels between two registers of the tree that sums a lane's products."""
    adder_terms: Annotated[int, Field(ge=2, le=8)] = 2
    """Terms that one adder of the tree takes; with more than two, there are rows of LUTs before its carry
    chain. The accumulator is such an adder, too: its other terms are what the tree leaves."""
    copies: Annotated[int, Field(ge=0, le=2)] = 0
    """Who has a copy of the registers that all share: 1, each gate unit of what the drain gives, in the same
    cycle; 2, also each four lanes of vector and address, a cycle later."""
    collect: Annotated[int, Field(ge=0, le=2)] = 0
    """Registers after the multiplexer that selects the block to drain: with 2, each of more than three blocks
    has one as well. Several blocks have at least one."""
    narrow: Annotated[int, Field(ge=2, le=4)] = 2
    """Registers from the selected totals to pre-activations: 2, shifted and added, then saturated; 3, partly
    shifted before; 4, shifted in two cycles and added in one of its own."""
    scale: Annotated[int, Field(ge=0, le=3)] = 0
    """Registers of the multipliers of rows' scales, behind the shift: as those of ``multiplier``, but 2 at
    least. A manifest has them if its numerics have scales; 0 without."""
    table: Annotated[int, Field(ge=1, le=2)] = 1
    """Registers of an activation table: 2, it is a block RAM with its output register, and its own address
    register is the argument's."""
    slope: Annotated[int, Field(ge=1, le=2)] = 1
    """Registers of the multiplier of an interpolated table's slope: 1 at its output, 2 also at its inputs."""
    product: Annotated[int, Field(ge=1, le=2)] = 1
    """Registers of a gate unit's other multipliers: 1 at the output, 2 also at the inputs."""
    window: Annotated[int, Field(ge=0, le=2)] = 0
    """Registers from the memory window to the array's memories; if any, one is in the path back, too."""
    cell: Annotated[int, Field(ge=3, le=4)] = 3
    """Registers from the gates to c: products (one register), sum, (compared with the limits,) rounded."""
    accept: Annotated[int, Field(ge=0, le=1)] = 0
    """Registers from an input transfer to the decision that its word may be read."""
    result: Annotated[int, Field(ge=0, le=2)] = 0
    """Registers after the rounding of dense results and of h: the first is before saturation. h in odd codes
    has none of them."""

    @model_validator(mode="after")
    def _check_copies(self) -> Self:
        """With copies the drain begins a cycle earlier, and must know of a word by then.

        With copies for lanes (2) there is one more register before the sum, which is enough.
        """
        if self.copies == 1 and self.operand + self.multiplier < 4:
            raise ValueError(
                f"copies ({self.copies}) need operand ({self.operand}) and multiplier ({self.multiplier}) "
                "of at least 4 registers together"
            )
        return self


SOUND_ABC9 = "scratchpad -set abc9.xaiger 1"
"""Yosys's command before any synthesis. By default Yosys 0.70 gives logic to ABC9 in a new format, after
which some designs compute something else: wires join undefined constants (YosysHQ/yosys, issue 6237)."""


class NetlistScript(Record):
    """How Yosys makes a netlist of a family for simulation."""

    synthesis: str
    """The command that maps Verilog to the family's cells; ``{top}`` is the top module. It must leave the
    instances of hard cells as they are."""
    cells: str
    """Commands that read the simulation models of LUTs, flip-flops and small memories, and make
    black boxes of the hard cells."""


@dataclass(frozen=True)
class OpenSynthesis:
    """A flow of Edalize that synthesises a core with open tools, and its options: what FuseSoC runs."""

    flow: str
    options: Mapping[str, str]


class Family(ABC):
    """A device family: its pipeline, and the Verilog of its memories and multipliers."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for ``--family`` and in the manifest."""

    @property
    @abstractmethod
    def pipeline(self) -> Pipeline:
        """Pipeline of an array with hard multipliers and interpolated tables."""

    shorter: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    """Other pipelines, by name: the most registers of some stages, and the least terms of an adder. They save
    cycles, at a lower clock."""
    primitives: tuple[Path, ...] = ()
    """Verilog files of the family's primitives, specified in ``docs/primitives.md``; none if synthesis infers
    hard blocks from the portable ones."""
    cell_models: tuple[Path, ...] = ()
    """Verilog files with simulation models of the hard cells that are instances in ``primitives``."""
    pll_models: tuple[Path, ...] = ()
    """Verilog files with a model of the PLL's cell, around ``rtlstm_pll_model`` of ``sim/pll.v``."""
    netlist: NetlistScript | None = None
    """None if netlists cannot be simulated."""
    open_synthesis: OpenSynthesis | None = None
    """None if Edalize has no open flow for the family. Place and route need pins, which a core has not."""
    large_memory: bool = False
    """Whether devices have memories larger than block RAM, or tools may make one of the portable memory."""
    memory_pairs: bool = False
    """Whether ``primitives`` have ``rtlstm_memory_pair``, a block RAM with two read ports.

    Two memories in its place are no help: Yosys fails on a deep one for AMD Xilinx that is written at the
    address that is read.
    """

    product_sums: bool = False
    """Whether ``primitives`` have ``rtlstm_product_sum`` and ``rtlstm_product_sum_pair``: DSP blocks in a
    chain, which add two products."""

    register_copies: bool = False
    """Whether ``primitives`` have ``rtlstm_copy``, registers that synthesis does not merge."""

    def pipeline_for(
        self, lut_bits: int = 0, direct_tables: bool = False, logic_slopes: bool = False
    ) -> Pipeline:
        """Return the pipeline of an array.

        ``lut_bits`` is the width of the narrower factor of a lane's multipliers that are made of LUTs; 0 if
        there are none. ``direct_tables`` says whether sigmoid and tanh come from tables with an entry for
        each input. ``logic_slopes`` says whether the multipliers of interpolated tables' slopes are made of
        LUTs.
        """
        return self.pipeline

    def pipelines(
        self, lut_bits: int = 0, direct_tables: bool = False, logic_slopes: bool = False
    ) -> Mapping[str, Pipeline]:
        """Return all pipelines of an array by name, first that of :meth:`pipeline_for`."""
        usual = self.pipeline_for(lut_bits, direct_tables, logic_slopes)
        found = {DEFAULT_PIPELINE: usual}
        for name, changes in self.shorter.items():
            chosen = {
                stage: (max if stage in _LARGER else min)(value, getattr(usual, stage))
                for stage, value in changes.items()
            }
            found[name] = usual.replace(**chosen)
        return found

    def shares_multipliers(self, weight_bits: int, data_bits: int) -> bool:
        """Whether one hard multiplier computes products of two lanes, which read the same vector value."""
        return False


FAMILIES: Final[Registry[Family]] = Registry(
    "family",
    "rtlstm.families",
    lazy={
        "ecp5": "rtlstm.fpga.families.ecp5:ECP5",
        GENERIC: "rtlstm.fpga.families.generic:PORTABLE",
        "gowin": "rtlstm.fpga.families.gowin:GOWIN",
        "ice40": "rtlstm.fpga.families.ice40:ICE40",
        "intel": "rtlstm.fpga.families.intel:INTEL",
        "nexus": "rtlstm.fpga.families.nexus:NEXUS",
        "ultrascale": "rtlstm.fpga.families.xilinx:ULTRASCALE",
        "xilinx": "rtlstm.fpga.families.xilinx:XILINX",
    },
    kind=Family,
    name=lambda family: family.name,
)
"""Every family by its name. A family's module is imported at its first use."""

FamilyName = Annotated[str, AfterValidator(FAMILIES.known)]
"""Name of a family, as a field of a record."""
