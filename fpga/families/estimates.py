"""A family's part of the estimates: the cells of memories and multipliers, and measured factors.

:mod:`rtlstm.fpga.estimate` sums over the parts of a core; the resources of each part depend on the family.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self

from rtlstm.spec.family import DEFAULT_PIPELINE
from rtlstm.spec.inventory import MemorySpec, MultiplierSpec
from rtlstm.spec.parameters import TableMemory, ceil_log2
from rtlstm.spec.record import Record


@dataclass(frozen=True)
class Mapped:
    """The cells of one memory."""

    block_rams: float = 0
    large_rams: int = 0
    lutrams: int = 0
    """Cells of LUTRAM."""
    flip_flop_bits: int = 0
    """Bits stored in flip-flops."""
    banks: int = 1
    """Parts in depth, selected by a multiplexer."""
    output_bits: int = 0
    """Bits of output registers in flip-flops."""


@dataclass(frozen=True)
class RamKind:
    """A kind of RAM of Yosys: bits at the narrowest width, widths, granularity, cost."""

    address_bits: int
    widths: tuple[int, ...]
    byte: int
    """Bits per write enable; 0 for one enable for all bits."""
    cost: int
    block: bool
    scaled: int = 0
    """How much of the cost falls with the unused bits of a cell: ``widthscale`` of Yosys's rules."""
    size: float = 1
    """Block RAMs that a cell takes."""


LATTICE_LUTRAM = RamKind(4, (4,), 0, 4, block=False)
"""A cell of 16 x 4 bits, as ECP5 and Nexus have it."""
LATTICE_BLOCK = RamKind(14, (1, 2, 4, 9, 18, 36), 9, 128, block=True)
"""A block RAM of 18 Kibit, as Lattice and Gowin have it."""
# A port costs two, whatever its width.
_PORT_COST = 2.0


def cheapest_memory(memory: MemorySpec, kinds: tuple[RamKind, ...]) -> Mapped:
    """Return Yosys's choice for a memory: the cheapest of the kinds of RAM and of flip-flops."""
    forced = False
    if memory.asynchronous:
        kinds = tuple(kind for kind in kinds if not kind.block)
    elif memory.style == "distributed":
        lutrams = tuple(kind for kind in kinds if not kind.block)
        # A memory that asks for LUTRAM is not made of flip-flops if the family has LUTRAM.
        kinds, forced = lutrams or kinds, bool(lutrams)
    elif memory.style in ("block", "huge"):
        kinds, forced = tuple(kind for kind in kinds if kind.block), True
    bits = memory.width * memory.depth
    best, cost = Mapped(flip_flop_bits=bits), float("inf") if forced else float(bits)
    for kind in kinds:
        found, price = _cheapest(memory, kind)
        if price < cost:
            best, cost = found, price
    # The read register of a memory without block RAM, and any output register, are flip-flops.
    reads = not memory.asynchronous and not best.block_rams
    return replace(best, output_bits=memory.width * (reads + memory.output_register))


def _cheapest(memory: MemorySpec, kind: RamKind) -> tuple[Mapped, float]:
    """Return the best use of one kind of RAM, and Yosys's cost of it."""
    best, cost = Mapped(), float("inf")
    granule = memory.width // memory.granules
    for index, width in enumerate(kind.widths):
        byte = min(kind.byte or width, width)
        bits = memory.granules * -(-granule // byte) * byte
        banks = -(-memory.depth >> kind.address_bits - index)
        cells = -(-banks * bits // width)
        # Yosys counts in integers.
        price = float((kind.cost - kind.scaled) * cells + kind.scaled * banks * memory.width // width)
        price += (banks - 1) * memory.width / 2 + _PORT_COST
        price += banks * memory.granules / 2 if banks > 1 else 0
        if price < cost:
            taken = {"block_rams": kind.size * cells} if kind.block else {"lutrams": cells}
            best = Mapped(banks=banks, **taken)
            cost = price
    return best, cost


class ClockModel(Record):
    """Fmax of a family's pipeline per speed grade, and its losses on a full device."""

    base_mhz: Mapping[str, float]
    """MHz for each speed grade, on an almost empty device."""
    filled: float
    """Share of the clock that is lost on a device whose logic cells are all used."""
    narrow_bits: int
    """Widest sum of a lane without a loss."""
    wide_bit: float
    """Share of the clock that is lost for each further bit of the sum."""
    logic_slopes: float
    """Share of the clock that is lost with slope multipliers made of LUTs, which have one stage, if the
    device has DSP blocks."""
    direct_tables: float = 0
    """Share of the clock that is lost with direct tables: from their block RAM, values go straight to
    multipliers."""
    deep_constants: float = 0
    """Share of the clock that is lost with constant tables, for each doubling of their rows beyond 256: they
    are several LUTs deep."""

    @classmethod
    def assumed(cls, mhz: float) -> Self:
        """Return a clock that no design changes."""
        return cls(base_mhz={"": mhz}, filled=0, narrow_bits=0, wide_bit=0, logic_slopes=0)

    def scaled(self, factor: float) -> "ClockModel":
        """Return the model with all clocks multiplied by a factor."""
        return self.replace(base_mhz={grade: factor * mhz for grade, mhz in self.base_mhz.items()})

    def mhz(
        self,
        grade: str,
        fill: float,
        sum_bits: int,
        *,
        logic_slopes: bool = False,
        direct_tables: bool = False,
        constant_rows: int = 0,
    ) -> float:
        """Return the Fmax of a core at a speed grade.

        ``fill`` is the share of used logic cells, ``constant_rows`` the rows of the largest constant table.
        """
        base = self.base_mhz.get(grade, min(self.base_mhz.values()))
        wide = max(0, sum_bits - self.narrow_bits) * self.wide_bit
        lost = self.filled * min(1.0, fill) + self.logic_slopes * logic_slopes
        lost += self.direct_tables * (direct_tables and not constant_rows)
        lost += self.deep_constants * max(0, ceil_log2(max(1, constant_rows)) - 8)
        return base * (1 - lost) / (1 + wide)


class RoutedDesign(NamedTuple):
    """A design that was placed and routed, or failed.

    Shares are of the device, in percent: as synthesised, or for a design that failed, as estimated. The top
    around the core is included only for a board.
    """

    device: str
    what: str
    cell_share: float
    """Logic cells, as estimates count them."""
    chain_share: float | None
    """Tiles of carry chains; None if they are no limit."""
    mhz: float | None
    """Its Fmax; None if it could not be placed or routed."""
    sum_bits: int | None = None
    """Bits of a lane's sum, if the clock is that of a core alone, of the hardware as it is now and with its
    default pipeline: the family's clocks are fitted to such designs. Else None."""
    direct: bool = False
    """Whether its tables are direct."""
    multiplier_share: float | None = None
    """DSP blocks, where not all can be placed; else None."""


class RoutedInSpace(NamedTuple):
    """An LSTM that was placed and routed in space, with 4-bit weights, 8-bit data and odd codes of h."""

    device: str
    inputs: int
    units: int
    dense: int
    """Outputs of a dense layer behind it; 0 without one."""
    loop_registers: int
    streams: int
    table_memory: TableMemory
    luts: int
    """As synthesised, with the harness."""
    cell_share: float
    """Share of the device's logic cells, in percent."""
    mhz: float


@dataclass(frozen=True)
class SpatialClocks:
    """Clocks of a family's spatial builds, from the longest time between two registers in their plan."""

    scale: float
    """Factor of that time: operations, with the wires between neighbours, in ns."""
    register: float
    """What a register and its clock take of a period, in ns."""
    wires: float
    """Share by which all this is longer for each 10,000 LUTs."""
    array_mhz: float
    """The clock of an almost empty array on the device of these times; others are in proportion to theirs."""
    routed: tuple[RoutedInSpace, ...]
    """Builds to which they are fitted, and from which it follows how full a device may be."""

    def mhz(self, period: float, luts: int, array_mhz: float) -> float:
        """Return the clock of a build with this period; ``array_mhz`` is that of an array on its device."""
        wires = 1 + self.wires * luts / 10_000
        return 1000 * array_mhz / self.array_mhz / ((self.scale * period + self.register) * wires)


@dataclass(frozen=True)
class SpatialFactors:
    """A family's part of the estimates of spatial builds: factors of the parts, and clocks."""

    luts: Mapping[str, float]
    """LUTs for each unit of :func:`~rtlstm.fpga.spatial_parts.spatial_parts`; the factor of others is 1."""
    ffs: Mapping[str, float]
    """Flip-flops, likewise."""
    clocks: SpatialClocks | None = None
    """None if too few of the family were routed."""
    untimed: str = ""
    """The part of each step whose delays nextpnr does not know, so that it has no clocks; or empty."""
    chain_tiles: Mapping[str, float] = field(default_factory=dict)
    """Tiles of carry chains, likewise."""


class EthernetSizes(NamedTuple):
    """What a board's top takes in addition to a serial one if its link is on Ethernet."""

    luts: int = 0
    ffs: int = 0
    block_rams: int = 0
    chain_tiles: int = 0


class Estimates(ABC):
    """A family's part of the estimates; factors are measured with Yosys 0.70.

    ``rtlstm bench --estimates`` fits ``luts`` and ``ffs`` again, by least squares over its builds.
    """

    luts: ClassVar[Mapping[str, float]]
    """LUTs for each unit of :func:`~rtlstm.fpga.core_parts.lut_parts`; the factor of others is 1."""
    ffs: ClassVar[Mapping[str, float]]
    """Flip-flops for each unit of :func:`~rtlstm.fpga.core_parts.ff_parts`."""
    chain_tiles: ClassVar[Mapping[str, float]] = {}
    """Tiles of carry chains for each unit of :func:`~rtlstm.fpga.core_parts.chain_parts`; the factor
    of others is 1. Needed if devices have ``chain_tiles``."""
    lone_ffs: float | None = None
    """Share of the flip-flops that share no logic cell with a LUT, for cells of one LUT and one flip-flop.
    None: a design takes as many cells as the larger number of LUTs and flip-flops."""
    pair_adders: bool = False
    """Whether adders consist of carry cells of two bits."""
    fast_multipliers: bool = False
    """Whether multipliers of LUTs with one register are trees, as those with more are, and not rows."""
    adders_multiply: bool = False
    """Whether an adder's LUTs also form the partial products, as in ``rtlstm_sum``."""
    row_luts: int = 0
    """LUTs that rows of a multiplier then take beside the adders, for each bit of the wider factor."""
    lutram_luts: int = 6
    """LUTs of a cell of LUTRAM, as ``Cells`` counts them."""
    delay_stages: int | None = None
    """Registers in a row of which synthesis makes one LUT for each bit; None if it never does."""
    shared_luts: float = 0.5
    """LUTs that correct a product of a DSP block that two share, for each bit of its weight and one."""
    inferred_multipliers: bool = False
    """Whether synthesis makes DSP blocks of all multipliers, whatever their kind: the Verilog is portable."""
    registers_outside: bool = False
    """Whether synthesis makes flip-flops of the registers of those multipliers."""

    top_luts: tuple[float, float] | None = None
    """LUTs of a board's top, and those for each bit of ``x_data`` and ``y_data``; None if there are no open
    bitstreams."""
    top_ffs: tuple[float, float] = (0, 0)
    """Flip-flops of a top, and those for each bit of ``x_data``."""
    ethernet: EthernetSizes = EthernetSizes()
    """What a top takes more whose link is on Ethernet; nothing if no board of the family has a PHY."""
    top_lone_ffs: float = 0
    """``lone_ffs`` of a top, whose counters and states share cells with LUTs more often."""
    top_chain_tiles: int = 0
    """Tiles of the carry chains of a top."""

    clocks: ClassVar[Mapping[str, ClockModel]] = {}
    """Clocks by device; the one with the empty name is for all others. Empty if no tool here knows the
    family's delays: whoever wants times then assumes a clock."""
    dies: ClassVar[Mapping[str, float]] = {}
    """Factors of these clocks by device; 1 for others. Wires of a small die are shorter."""
    pipelines: ClassVar[Mapping[str, float]] = {}
    """Factors of the clocks by the name of a pipeline in :attr:`~rtlstm.spec.family.Family.shorter`, each of
    them measured. ``--fit`` offers these, and the default."""
    assumed_fill: float = 0
    """Share of the logic cells that a design may take although none so full was routed: an assumption."""
    assumed_blocks: float = 1.0
    """Share of the DSP blocks, and of each kind of memory blocks, that a design may take: likewise."""
    routed: tuple[RoutedDesign, ...] = ()
    """Designs from which it follows how full a device may be; none without open place and route."""
    spatial: SpatialFactors | None = None
    """The factors of spatial builds; None if none of the family were synthesised."""

    @abstractmethod
    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return the cells of one of these memories."""

    def block_rams(self, memory: MemorySpec) -> float:
        """Return the block RAMs of all of these memories."""
        return memory.count * self.map_memory(memory).block_rams

    @abstractmethod
    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> float:
        """Return the DSP blocks of so many multipliers of this size in a lane, or halves of blocks."""

    def multiplier_blocks(self, multiplier: MultiplierSpec) -> float:
        """Return the DSP blocks of all of these multipliers, which are hard ones."""
        each = self.hard_blocks(multiplier.a_bits, multiplier.b_bits, multiplier.each)
        return multiplier.sets * each / (1 + multiplier.shared)

    def is_hard(self, multiplier: MultiplierSpec, multipliers: bool) -> bool:
        """Return whether a multiplier is made of DSP blocks; ``multipliers`` says whether any is."""
        return multipliers and (multiplier.kind == "dsp" or self.inferred_multipliers)

    def hard_luts(self, a_bits: int, b_bits: int) -> int:
        """Return the LUTs that a multiplier needs in addition, if its operands are wider than a DSP block."""
        return 0

    def adds_products(self, a_bits: int, b_bits: int, shared: bool) -> bool:
        """Return whether DSP blocks add two such products, where a core asks for that; ``shared`` as for a
        multiplier."""
        return False

    @property
    def knows_clocks(self) -> bool:
        """Whether Fmax can be estimated; else somebody must assume a clock."""
        return bool(self.clocks)

    @property
    def spatial_clocks(self) -> SpatialClocks | None:
        """The clocks of spatial builds; None if too few of the family were routed."""
        return None if self.spatial is None else self.spatial.clocks

    def usable_clock(self, die: str, pipeline: str, assumed_mhz: float | None) -> ClockModel | None:
        """Return a die's clocks: where none are known, the one that the user assumes, whatever the design.

        None if there is none of both.
        """
        if self.knows_clocks:
            return self.clock(die, pipeline)
        return None if assumed_mhz is None else ClockModel.assumed(assumed_mhz)

    def clock(self, die: str, pipeline: str = DEFAULT_PIPELINE) -> ClockModel:
        """Return the clocks that were measured on devices with a die, or on others of its family."""
        factor = self.dies.get(die, 1.0) * self.pipelines.get(pipeline, 1.0)
        return (self.clocks.get(die) or self.clocks[""]).scaled(factor)
