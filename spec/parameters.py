"""What a user may choose about the hardware, and the pipeline that follows from it."""

from math import ceil
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rtlstm.spec.record import Record

__all__ = ["FAMILIES", "Family", "Parameters", "Pipeline", "ceil_log2"]

Family = Literal["generic", "ecp5", "ice40", "nexus", "gowin", "xilinx", "intel"]


def ceil_log2(value: int) -> int:
    """Bits needed to count ``value`` things (0 for one)."""
    return (value - 1).bit_length()


class Pipeline(Record):
    """Register stages of the array; the gate unit's stages are fixed.

    Stage numbers count cycles from the issue cycle, in which the address registers hold a
    word's address, to the cycle in which the named register holds that word's result.
    """

    multiplier: Annotated[int, Field(ge=1, le=4)] = 2
    """Registers behind the operand registers, inside or after the multiplier."""
    tree_levels: Annotated[int, Field(ge=1, le=4)] = 2
    """Adder levels between two registers of the tree that sums a lane's products."""

    OPERANDS: ClassVar[int] = 2
    """Memory read, then the operand register."""
    QUAD: ClassVar[int] = 2
    """From a lane's full sum: accumulator register, then the drained quad's register."""
    PREACTIVATION: ClassVar[int] = QUAD + 2
    """... shifted, then rounded and saturated."""
    ACTIVATION: ClassVar[int] = 3
    """Table read, product, sum."""
    CELL: ClassVar[int] = 3
    """Products, sum, rounding."""
    HIDDEN: ClassVar[int] = 2
    """Product, rounding."""

    def tree(self, macs: int) -> int:
        """Register stages of the adder tree of a lane with ``macs`` multipliers."""
        return ceil(ceil_log2(macs) / self.tree_levels)

    def summed(self, macs: int) -> int:
        """Stage at which the sum of one word's products stands in a register."""
        return self.OPERANDS + self.multiplier + self.tree(macs)

    def dense_result(self, macs: int) -> int:
        """Stage at which a dense layer's first drained result stands in its register."""
        return self.summed(macs) + self.PREACTIVATION + self.ACTIVATION + 1

    def hidden_result(self, macs: int) -> int:
        """Stage at which the first drained unit's new h stands in its register."""
        return (
            self.summed(macs)
            + self.PREACTIVATION
            + self.ACTIVATION
            + self.CELL
            + self.ACTIVATION
            + self.HIDDEN
        )


FAMILIES: dict[Family, Pipeline] = {
    "generic": Pipeline(multiplier=2, tree_levels=2),
    "ecp5": Pipeline(multiplier=2, tree_levels=2),
    "ice40": Pipeline(multiplier=1, tree_levels=2),
    "nexus": Pipeline(multiplier=2, tree_levels=2),
    "gowin": Pipeline(multiplier=2, tree_levels=2),
    "xilinx": Pipeline(multiplier=2, tree_levels=2),
    "intel": Pipeline(multiplier=2, tree_levels=2),
}
"""Pipeline depth per device family. All families share one portable Verilog form."""


class Parameters(Record):
    """Size and shape of the array and its ports."""

    lanes: Annotated[int, Field(ge=4, le=1024)] = 4
    """Dot-product engines; a multiple of 4, so that a unit's four gates finish together."""
    macs: Annotated[int, Field(ge=1, le=1024)] = 32
    """Multipliers per lane."""
    beat_in: Annotated[int, Field(ge=1, le=1024)] = 1
    """Input words per transfer; must divide ``macs``."""
    beat_out: Annotated[int, Field(ge=1, le=1024)] = 1
    """Output words per transfer."""
    streams: Annotated[int, Field(ge=1, le=1024)] = 1
    """Independent sequences whose state is kept on the device."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Longest sequence the driver accepts; None for no limit."""
    family: Family = "generic"
    pipeline: Pipeline = Pipeline()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lanes % 4:
            raise ValueError(
                f"lanes must be a multiple of 4 (one lane per gate of a unit), not {self.lanes}; "
                f"try {self.lanes // 4 * 4 + 4}"
            )
        if self.macs % self.beat_in:
            raise ValueError(
                f"beat_in ({self.beat_in}) must divide macs ({self.macs}), so that a transfer "
                "never straddles two words of the array; try 1"
            )
        return self

    @classmethod
    def for_family(cls, family: Family, **fields: object) -> Self:
        """Return parameters with the family's pipeline depth."""
        return cls(family=family, pipeline=FAMILIES[family], **fields)

    @property
    def multiplies_per_cycle(self) -> int:
        """Multiply-accumulates per cycle, lanes x macs."""
        return self.lanes * self.macs

    @property
    def units(self) -> int:
        """Hidden units that one row group finishes."""
        return self.lanes // 4

    def words(self, values: int) -> int:
        """Words of ``macs`` values that hold ``values`` values."""
        return ceil(values / self.macs)
