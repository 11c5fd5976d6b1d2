"""What a user may choose about the hardware, and the pipeline that follows from it."""

from math import ceil, gcd
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rtlstm.spec.capacity import Capacity
from rtlstm.spec.record import Record
from rtlstm.spec.registers import BusKind

__all__ = [
    "FAMILIES",
    "Family",
    "MemoryStyle",
    "MultiplierKind",
    "Parameters",
    "Pipeline",
    "TableKind",
    "WeightMemory",
    "ceil_log2",
    "clocked_style",
    "family_pipeline",
    "lanes_share_multipliers",
]

Family = Literal["generic", "ecp5", "ice40", "nexus", "gowin", "xilinx", "intel"]


TableKind = Literal["interpolated", "direct"]
"""A line for each segment of the input, or an entry for each input: quicker, larger, coarser."""
MemoryStyle = Literal["auto", "block", "distributed", "huge"]
"""What ``rtlstm_memory`` is asked to be; see ``docs/primitives.md``."""
WeightMemory = Literal["block", "large"]
"""Block RAM, or the family's largest memory: iCE40's single port RAM, Nexus' large RAM, UltraRAM."""
_LARGE_MEMORIES = ("generic", "ice40", "nexus", "xilinx")
"""Families with one, or that are whatever the tools make of them."""
MultiplierKind = Literal["dsp", "lut"]
"""A hard multiplier, or one of look-up tables."""


def clocked_style(depth: int, stages: int) -> MemoryStyle:
    """What a memory is made of whose word comes ``stages`` (1 or 2) cycles after its address.

    With 2 it is a block RAM with its output register, unless it is tiny. With 1 it is none, because
    that is slow to answer without the register, unless it is deep.
    """
    if stages == 1 and depth <= 256:
        return "distributed"
    return "block" if stages == 2 and depth > 16 else "auto"


def lanes_share_multipliers(family: str, weight_bits: int, data_bits: int) -> bool:
    """Whether one hard multiplier holds the products of two lanes, which have the same value of the vector.

    ECP5's has factors of 18 bits, in one of which two weights must stand far enough apart.
    """
    return family == "ecp5" and 2 * weight_bits + data_bits < 18


def ceil_log2(value: int) -> int:
    """Bits needed to count ``value`` things (0 for one)."""
    return (value - 1).bit_length()


class Pipeline(Record):
    """Register stages that a device family needs between two clock edges."""

    operand: Annotated[int, Field(ge=2, le=4)] = 2
    """Registers from an address to weights and vector at the multipliers: 2, the block RAM of weights
    has its output register; 3, the vector's has one, too; 4, there is one more behind that of the weights,
    and before the vector's memory."""
    multiplier: Annotated[int, Field(ge=1, le=3)] = 2
    """Registers of a multiplier: 1 at its output, 2 also at its inputs, 3 also inside."""
    tree_levels: Annotated[int, Field(ge=1, le=4)] = 2
    """Adder levels between two registers of the tree that sums a lane's products."""
    collect: Annotated[int, Field(ge=0, le=2)] = 0
    """Registers behind the multiplexer that picks what drains: 2, each block has one of its own.
    Several blocks have at least one."""
    narrow: Annotated[int, Field(ge=2, le=4)] = 2
    """Registers from the picked totals to pre-activations: (partly shifted,) shifted, (added,) rounded
    and limited."""
    table: Annotated[int, Field(ge=1, le=2)] = 1
    """Registers of an activation table: 2, it is a block RAM with its output register."""
    window: Annotated[int, Field(ge=0, le=2)] = 0
    """Registers from the memory window to the memories far from it; with any, also on the way back."""
    cell: Annotated[int, Field(ge=3, le=4)] = 3
    """Registers from the gates to c: products, sum, (compared with the limits,) rounded."""
    accept: Annotated[int, Field(ge=0, le=1)] = 0
    """Registers from an input transfer to the decision that its word may be read."""
    result: Annotated[int, Field(ge=0, le=2)] = 0
    """Registers behind the rounding of h and of dense results: 2, one of them before the limiting."""


FAMILIES: dict[Family, Pipeline] = {
    "generic": Pipeline(multiplier=2, tree_levels=2),
    "ecp5": Pipeline(
        operand=4,
        multiplier=2,
        tree_levels=1,
        collect=2,
        narrow=4,
        table=2,
        cell=4,
        window=2,
        accept=1,
        result=2,
    ),
    "ice40": Pipeline(multiplier=2, tree_levels=2, collect=1, narrow=3, table=1, result=1),
    "nexus": Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    ),
    "gowin": Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    ),
    "xilinx": Pipeline(
        operand=3, multiplier=3, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    ),
    "intel": Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    ),
}
"""Pipeline depth per device family."""

_LUT_MULTIPLIER: dict[Family, int] = {"ecp5": 3}
"""Registers of multipliers if some of a lane's are made of tables: with 2, the way from the vector's
register through the first adders is the longest of all."""

_DIRECT_NARROW: dict[Family, int] = {"ecp5": 3}
"""Most registers to the pre-activations with direct tables: data of 12 bits at most are shifted at once."""


def family_pipeline(family: Family, lut_macs: int = 0, tables: TableKind = "interpolated") -> Pipeline:
    """Return a family's pipeline for lanes with so many multipliers made of tables, and such tables."""
    pipeline = FAMILIES[family]
    stages = _LUT_MULTIPLIER.get(family, 0) if lut_macs else 0
    most = _DIRECT_NARROW.get(family, pipeline.narrow) if tables == "direct" else pipeline.narrow
    return pipeline.replace(multiplier=max(pipeline.multiplier, stages), narrow=min(pipeline.narrow, most))


class Parameters(Record):
    """Size and shape of the array and its ports."""

    lanes: Annotated[int, Field(ge=4, le=1024)] = 4
    """Dot-product engines; a multiple of 4, so that a unit's four gates finish together."""
    macs: Annotated[int, Field(ge=1, le=1024)] = 32
    """Multipliers per lane."""
    gate_units: Annotated[int, Field(ge=1, le=256)] = 1
    """Units that drain and pass the gates in one cycle; must divide ``lanes / 4`` and ``macs``."""
    beat_in: Annotated[int, Field(ge=1, le=1024)] = 1
    """Input words per transfer; must divide ``macs``."""
    beat_out: Annotated[int, Field(ge=1, le=1024)] = 1
    """Output words per transfer; a multiple of ``gate_units``."""
    streams: Annotated[int, Field(ge=1, le=1024)] = 1
    """Independent sequences whose state is kept on the device."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Longest sequence the driver accepts; None for no limit."""
    lut_macs: Annotated[int, Field(ge=0, le=1024)] = 0
    """Multipliers per lane made of look-up tables; the others are the family's hard ones."""
    tables: TableKind = "interpolated"
    """How sigmoid and tanh are computed."""
    slope_multipliers: MultiplierKind = "dsp"
    """What multiplies the slopes of sigmoid and tanh, five to a gate unit."""
    weight_memory: WeightMemory = "block"
    """What holds the weights."""
    bus: BusKind = "none"
    """The wrapper beside the core, for a system's bus."""
    capacity: Capacity | None = None
    """What a loadable program may take; None: the program is a constant of the build."""
    family: Family = "generic"
    pipeline: Pipeline = Pipeline()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lanes % 4:
            raise ValueError(
                f"lanes must be a multiple of 4 (one lane per gate of a unit), not {self.lanes}; "
                f"try {self.lanes // 4 * 4 + 4}"
            )
        if self.lut_macs > self.macs:
            raise ValueError(
                f"lut_macs must be at most macs ({self.macs}), of which it is a part, not {self.lut_macs}"
            )
        if self.macs % self.beat_in:
            raise ValueError(
                f"beat_in ({self.beat_in}) must divide macs ({self.macs}), so that a transfer "
                "never straddles two words of the array; try 1"
            )
        if self.units % self.gate_units or self.macs % self.gate_units:
            raise ValueError(
                f"gate_units ({self.gate_units}) must divide lanes / 4 ({self.units}) and macs "
                f"({self.macs}), so that what drains together is stored together; try "
                f"{gcd(self.units, self.macs, self.gate_units)}"
            )
        if self.weight_memory == "large" and self.family not in _LARGE_MEMORIES:
            raise ValueError(
                f"weight_memory must be block on {self.family}, which has no larger memory than block RAM, "
                f"not large; those of {', '.join(_LARGE_MEMORIES)} may"
            )
        if self.beat_out % self.gate_units:
            raise ValueError(
                f"beat_out ({self.beat_out}) must be a multiple of gate_units ({self.gate_units}), "
                f"which give that many results a cycle; try {self.gate_units}"
            )
        return self

    @classmethod
    def for_family(cls, family: Family, **fields: Any) -> Self:
        """Return parameters with the family's pipeline depth."""
        chosen = {name: fields[name] for name in ("lut_macs", "tables") if name in fields}
        return cls(family=family, pipeline=family_pipeline(family, **chosen), **fields)

    @property
    def multiplies_per_cycle(self) -> int:
        """Multiply-accumulates per cycle, lanes x macs."""
        return self.lanes * self.macs

    @property
    def units(self) -> int:
        """Hidden units that one row group finishes."""
        return self.lanes // 4

    @property
    def blocks(self) -> int:
        """Groups of ``4 * gate_units`` lanes: what drains together, one block a cycle."""
        return self.units // self.gate_units

    def words(self, values: int) -> int:
        """Words of ``macs`` values that hold ``values`` values."""
        return ceil(values / self.macs)

    def items(self, values: int) -> int:
        """Drain cycles, and rows of the memories beside the drain, that ``values`` results take."""
        return ceil(values / self.gate_units)

    # Stages count cycles from the issue cycle, in which the address registers hold a word's
    # address, to the cycle in which the named register holds that word's result. Blocks work one
    # cycle after each other and drain in the same order: stages are those of the first.

    HELD: ClassVar[int] = 1
    """A group's totals."""

    @property
    def tree(self) -> int:
        """Register stages of a lane's adder tree."""
        return ceil(ceil_log2(self.macs) / self.pipeline.tree_levels)

    @property
    def collect(self) -> int:
        """Register stages behind the multiplexer that picks what drains."""
        return max(self.pipeline.collect, 1 if self.blocks > 1 else 0)

    @property
    def summed(self) -> int:
        """Stage of the sum of one word's products."""
        return self.pipeline.operand + self.pipeline.multiplier + self.tree

    @property
    def activation(self) -> int:
        """Register stages of sigmoid and tanh: the table's own; then, interpolated, product and sum."""
        return self.pipeline.table + (2 if self.tables == "interpolated" else 0)

    @property
    def preactivation(self) -> int:
        """Stage of the first drained item's rounded pre-activations."""
        return self.summed + self.HELD + self.collect + self.pipeline.narrow

    @property
    def dense_result(self) -> int:
        """Stage at which a dense layer's first results are written."""
        return self.preactivation + self.activation + 1 + self.pipeline.result

    @property
    def hidden_result(self) -> int:
        """Stage at which the first drained units' new h are written."""
        gates = self.preactivation + self.activation
        return gates + self.pipeline.cell + self.activation + 1 + self.pipeline.result

    @property
    def park_to_add(self) -> int:
        """Least issue cycles from the end of a group that parks to the end of the one that adds."""
        return self.HELD + self.collect + self.pipeline.narrow + 1
