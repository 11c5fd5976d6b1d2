"""What a user may choose about the hardware, and the pipeline that follows from it."""

from math import ceil, gcd
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rtlstm.spec.buses import NO_BUS, BusName
from rtlstm.spec.capacity import Capacity
from rtlstm.spec.family import GENERIC, FamilyName, Pipeline, families, find_family
from rtlstm.spec.record import Record

__all__ = [
    "MemoryStyle",
    "MultiplierKind",
    "Parameters",
    "TableKind",
    "WeightMemory",
    "ceil_log2",
    "clocked_style",
]

TableKind = Literal["interpolated", "direct"]
"""A line for each segment of the input, or an entry for each input: quicker, larger, coarser."""
MemoryStyle = Literal["auto", "block", "distributed", "huge"]
"""What ``rtlstm_memory`` is asked to be; see ``docs/primitives.md``."""
WeightMemory = Literal["block", "large"]
"""Block RAM, or the family's largest memory: iCE40's single port RAM, Nexus' large RAM, UltraRAM."""
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


def ceil_log2(value: int) -> int:
    """Bits needed to count ``value`` things (0 for one)."""
    return (value - 1).bit_length()


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
    bus: BusName = NO_BUS
    """The wrapper beside the core, for a system's bus."""
    capacity: Capacity | None = None
    """What a loadable program may take; None: the program is a constant of the build."""
    family: FamilyName = GENERIC
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
        if self.weight_memory == "large" and not find_family(self.family).large_memory:
            having = [name for name, family in families().items() if family.large_memory]
            raise ValueError(
                f"weight_memory must be block on {self.family}, which has no larger memory than block RAM, "
                f"not large; those of {', '.join(having)} may"
            )
        if self.beat_out % self.gate_units:
            raise ValueError(
                f"beat_out ({self.beat_out}) must be a multiple of gate_units ({self.gate_units}), "
                f"which give that many results a cycle; try {self.gate_units}"
            )
        return self

    @classmethod
    def for_family(cls, family: str, **fields: Any) -> Self:
        """Return parameters with the family's pipeline depth."""
        direct = fields.get("tables") == "direct"
        pipeline = find_family(family).pipeline_for(fields.get("lut_macs", 0), direct)
        return cls(family=family, pipeline=pipeline, **fields)

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

    def drain_beats(self, values: int) -> int:
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
    def partial_to_add(self) -> int:
        """Least issue cycles from the end of a group that parks to the end of the one that adds."""
        return self.HELD + self.collect + self.pipeline.narrow + 1
