"""What estimates must know of a family: what memories and multipliers become, and measured factors.

:mod:`rtlstm.fpga.estimate` sums over the parts of a core; what synthesis makes of a part is the family's.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from rtlstm.spec.inventory import MemorySpec
from rtlstm.spec.record import Record

__all__ = ["ClockModel", "Estimates", "Mapped", "RamKind", "RoutedDesign", "cheapest_memory"]


@dataclass(frozen=True)
class Mapped:
    """What one memory is made of."""

    block_rams: int = 0
    large_rams: int = 0
    lutrams: int = 0
    """Cells of LUTRAM, of 16 x 4 bits."""
    flip_flop_bits: int = 0
    """Bits kept in flip-flops."""
    banks: int = 1
    """Parts below each other, told apart by a multiplexer."""
    output_bits: int = 0
    """Bits of registers behind it, in flip-flops."""


@dataclass(frozen=True)
class RamKind:
    """A RAM that Yosys knows: bits at the narrowest width, widths, granularity, cost."""

    address_bits: int
    widths: tuple[int, ...]
    byte: int
    """Bits to a write enable; 0, one for all."""
    cost: int
    block: bool


# A port costs two whatever it reads.
_PORT_COST = 2.0


def cheapest_memory(memory: MemorySpec, kinds: tuple[RamKind, ...]) -> Mapped:
    """Return what Yosys makes of a memory left to it: the cheapest of the kinds and of flip-flops."""
    forced = False
    if memory.asynchronous:
        kinds = tuple(kind for kind in kinds if not kind.block)
    elif memory.style == "distributed":
        lutrams = tuple(kind for kind in kinds if not kind.block)
        # A memory that asks for LUTRAM is not made of flip-flops where there is some.
        kinds, forced = lutrams or kinds, bool(lutrams)
    bits = memory.width * memory.depth
    best, cost = Mapped(flip_flop_bits=bits), float("inf") if forced else float(bits)
    for kind in kinds:
        found, price = _cheapest(memory, kind)
        if price < cost:
            best, cost = found, price
    # Yosys keeps what a memory without block RAM reads, and any output register, in flip-flops.
    reads = not memory.asynchronous and not best.block_rams
    return replace(best, output_bits=memory.width * (reads + memory.output_register))


def _cheapest(memory: MemorySpec, kind: RamKind) -> tuple[Mapped, float]:
    """Best use of one kind of RAM, and what Yosys holds it to cost."""
    best, cost = Mapped(), float("inf")
    granule = memory.width // memory.granules
    for index, width in enumerate(kind.widths):
        byte = min(kind.byte or width, width)
        bits = memory.granules * -(-granule // byte) * byte
        banks = -(-memory.depth >> kind.address_bits - index)
        cells = -(-banks * bits // width)
        price = kind.cost * cells + (banks - 1) * memory.width / 2 + _PORT_COST
        price += banks * memory.granules / 2 if banks > 1 else 0
        if price < cost:
            best = Mapped(block_rams=cells, banks=banks) if kind.block else Mapped(lutrams=cells, banks=banks)
            cost = price
    return best, cost


class ClockModel(Record):
    """Clock in MHz per speed grade of a family's pipeline, in a device that is hardly filled."""

    base_mhz: Mapping[str, float]
    """Per speed grade."""
    filled: float
    """Share of the clock that is lost in a device whose logic cells are all taken."""
    narrow_bits: int
    """Widest sum of a lane that costs nothing."""
    wide_bit: float
    """Share of the clock that each further bit of it costs."""
    logic_slopes: float
    """Share of it that slope multipliers of LUTs cost, which have one stage, where the device has
    multiplier blocks."""

    def mhz(self, grade: str, fill: float, sum_bits: int, logic_slopes: bool = False) -> float:
        """Clock of a core at a speed grade; ``fill`` is the share of the logic cells it takes."""
        base = self.base_mhz.get(grade, min(self.base_mhz.values()))
        wide = max(0, sum_bits - self.narrow_bits) * self.wide_bit
        lost = self.filled * min(1.0, fill) + self.logic_slopes * logic_slopes
        return base * (1 - lost) / (1 + wide)


class RoutedDesign(NamedTuple):
    """A design that nextpnr was given, and what became of it.

    Shares are of the device, in percent: as synthesised; of a design that failed, as estimated. What it
    stood in is counted in for a board only.
    """

    device: str
    what: str
    cell_share: float
    """Logic cells, as estimates count them."""
    chain_share: float | None
    """Tiles that carry chains take; None where they are no limit."""
    mhz: float | None
    """The clock that it reached; None if it could not be placed or routed."""


class Estimates(ABC):
    """A family's part of the estimates; factors are measured with Yosys 0.70.

    ``rtlstm bench --estimates`` fits ``luts`` and ``ffs`` again, least squares over its builds.
    """

    luts: ClassVar[Mapping[str, float]]
    """LUTs for each unit of :func:`~rtlstm.fpga.core_parts.lut_parts`; those left out count one to one."""
    ffs: ClassVar[Mapping[str, float]]
    """Flip-flops for each unit of :func:`~rtlstm.fpga.core_parts.ff_parts`."""
    chain_tiles: ClassVar[Mapping[str, float]] = {}
    """Tiles of carry chains for each unit of :func:`~rtlstm.fpga.core_parts.chain_parts`; those left out are
    tiles. Needed where devices have ``chain_tiles``."""
    lone_ffs: float | None = None
    """Share of the flip-flops that no LUT feeds alone, so that each takes a logic cell to itself, where a
    cell has one LUT and one flip-flop. None: a design takes as many cells as the larger of its LUTs and
    flip-flops."""
    pair_adders: bool = False
    """Whether adders take whole cells of two bits."""
    adders_multiply: bool = False
    """Whether an adder's LUTs form partial products, too, as ``rtlstm_sum`` lets them."""

    top_luts: tuple[float, float]
    """LUTs of a board's top, and those for each bit of ``x_data`` and ``y_data``."""
    top_ffs: tuple[float, float]
    """Flip-flops of a top, and those for each bit of ``x_data``."""
    top_lone_ffs: float = 0
    """As ``lone_ffs``, of a top: its counters and states come from LUTs more often."""
    top_chain_tiles: int = 0
    """Tiles that the carry chains of a top take."""

    clocks: ClassVar[Mapping[str, ClockModel]]
    """By device; that of the empty name stands for all others."""
    routed: tuple[RoutedDesign, ...]
    """Designs that say how full a device may be; at least one was routed."""

    @abstractmethod
    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return what one of these memories becomes."""

    @abstractmethod
    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> int:
        """Return the blocks that so many hard multipliers of this size take, side by side in a lane."""

    def hard_luts(self, a_bits: int, b_bits: int) -> int:
        """Return the LUTs beside a hard multiplier, for operands that are wider than its block."""
        return 0

    def clock(self, device: str) -> ClockModel:
        """Return what is known of the clock on a device."""
        return self.clocks.get(device) or self.clocks[""]
