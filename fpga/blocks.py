"""Hard blocks that a core takes, from its manifest alone: multipliers and block RAM, exact.

The rules are those of ``hdl/primitives``, and for memories that are left to synthesis those by
which Yosys chooses: the cheapest of block RAM, table RAM and flip-flops.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from rtlstm.hdl.core.layouts import TIMED_STEPS
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import MultiplierKind, ceil_log2, clocked_style
from rtlstm.spec.program.fields import drain_widths, issue_widths
from rtlstm.spec.registers import Region

__all__ = [
    "Blocks",
    "Mapped",
    "MemoryPart",
    "Multipliers",
    "count_blocks",
    "hard_blocks",
    "map_memory",
    "memory_parts",
    "multiplications",
]


@dataclass(frozen=True)
class MemoryPart:
    """``count`` memories of ``depth`` words of ``width`` bits, with ``granules`` write enables."""

    name: str
    count: int
    width: int
    depth: int
    granules: int = 1
    distributed: bool = False
    """Asked to be no block RAM, where the family has another kind."""
    forced: bool = False
    """Asked to be block RAM, where the family can be told."""
    at_once: bool = False
    """Read without a clock: never a block RAM."""
    registered: bool = False
    """With an output register."""
    large: bool = False
    """Asked to be the family's largest memory."""


@dataclass(frozen=True)
class Mapped:
    """What one memory is made of."""

    block_rams: int = 0
    large_rams: int = 0
    lutrams: int = 0
    """16 x 4 cells of table RAM."""
    flip_flop_bits: int = 0
    """Bits kept in flip-flops."""
    banks: int = 1
    """Parts below each other, told apart by a multiplexer."""
    output_bits: int = 0
    """Bits of registers behind it, in flip-flops."""


@dataclass(frozen=True)
class _Kind:
    """A RAM that Yosys knows: bits at the narrowest width, widths, granularity, cost."""

    address_bits: int
    widths: tuple[int, ...]
    byte: int
    """Bits to a write enable; 0, one for all."""
    cost: int
    block: bool


_ECP5_LUTRAM = _Kind(4, (4,), 0, 4, block=False)
_ECP5_BLOCK = _Kind(14, (1, 2, 4, 9, 18, 36), 9, 128, block=True)
_ICE40_BLOCK = _Kind(11, (2, 4, 8, 16), 1, 64, block=True)
# A port costs two whatever it reads.
_PORT_COST = 2.0
_ASPECTS = ((36, 9), (18, 10), (9, 11), (4, 12), (2, 13), (1, 14))
"""Of the ECP5's block RAM: bits of a word, bits of its address."""
_AUTO_WORDS, _AUTO_BITS = 64, 1024
"""Words, and bits if there is an output register, up to which ``rtlstm_memory`` of style "auto" leaves the
choice to synthesis on ECP5."""


def memory_parts(manifest: Manifest) -> Iterator[MemoryPart]:
    """Yield all memories of a core."""
    parameters, numerics, regions = manifest.parameters, manifest.numerics, manifest.regions
    units, macs = parameters.gate_units, parameters.macs
    late = parameters.pipeline.operand >= 3

    def part(
        name: str, region: Region, count: int, granules: int = 1, *, registered: bool = True
    ) -> MemoryPart:
        layout = regions[region]
        return MemoryPart(name, count, layout.width, max(2, layout.rows), granules, registered=registered)

    weights = part("weights", Region.WEIGHTS, parameters.lanes)
    yield replace(weights, large=parameters.weight_memory == "large")
    yield _clocked(part("vectors", Region.VECTORS, 1, macs // units, registered=late))
    plan = manifest.sequence
    granules = macs // (parameters.beat_in if plan is None else gcd(parameters.beat_in, units))
    name = "input buffer" if plan is None else "sequence memory"
    buffered = max(2, manifest.buffer_rows)
    yield _clocked(MemoryPart(name, 1, macs * numerics.data_bits, buffered, granules, registered=late))
    if plan is not None:
        yield MemoryPart("quiet steps", 1, 1, max(2, plan.steps), registered=False)
    else:
        yield _clocked(MemoryPart("input times", 1, 32, TIMED_STEPS, registered=False))
    collected = parameters.collect > 0
    yield part("row shifts", Region.SHIFTS, units, registered=collected)
    yield part("partial sums", Region.PARTIALS, units, registered=collected)
    yield part("cell states", Region.CELLS, units)
    registered = parameters.pipeline.table == 2
    for name, table, count in numerics.unit.table_uses:
        width = table.base_bits + table.slope_bits
        found = MemoryPart(f"{name} tables", count * units, width, max(2, table.rows), registered=registered)
        yield _clocked(found)
    beat = parameters.beat_out * numerics.output_bits + max(1, ceil_log2(parameters.streams)) + 1
    capacity = parameters.capacity
    beats = -(-(capacity.outputs if capacity else manifest.program.outputs) // parameters.beat_out)
    if capacity:
        for name, widths in (
            ("program, issued", issue_widths(parameters)),
            ("program, drained", drain_widths(parameters, numerics.unit)),
        ):
            rows = capacity.operations
            yield _clocked(MemoryPart(name, 1, sum(widths.values()), rows, registered=False))
    yield MemoryPart("output queue", 1, beat, max(2, (2 if plan is None else 4) * beats), at_once=True)


def _clocked(part: MemoryPart) -> MemoryPart:
    """Ask for what :func:`rtlstm.hdl.primitives.pipeline.clocked` does."""
    style = clocked_style(part.depth, 2 if part.registered else 1)
    return replace(part, forced=style == "block", distributed=style == "distributed")


def map_memory(part: MemoryPart, family: str) -> Mapped:
    """Return what one memory becomes on ECP5 or iCE40."""
    free = not part.distributed and not part.at_once
    large = part.depth > _AUTO_WORDS or (part.registered and part.width * part.depth > _AUTO_BITS)
    if family == "ecp5" and (part.forced or (free and large)):
        return _ecp5_block(part)
    if part.large and family == "ice40":
        # 16 K words of 16 bits; a bank's number is kept for the multiplexer behind them.
        banks = -(-part.depth // 16384)
        return Mapped(large_rams=banks * -(-part.width // 16), banks=banks, output_bits=part.width)
    best = _chosen(part, family)
    # Yosys keeps what a memory without block RAM reads, and any output register, in flip-flops.
    reads = not part.at_once and not best.block_rams
    return replace(best, output_bits=part.width * (reads + part.registered))


def _chosen(part: MemoryPart, family: str) -> Mapped:
    """The cheapest for Yosys."""
    kinds = {"ecp5": (_ECP5_LUTRAM, _ECP5_BLOCK), "ice40": (_ICE40_BLOCK,)}[family]
    if part.at_once:
        kinds = tuple(kind for kind in kinds if not kind.block)
    elif part.distributed:
        kinds = tuple(kind for kind in kinds if not kind.block) or kinds
    # A memory that asks for table RAM is not made of flip-flops.
    forced = part.distributed and family == "ecp5"
    bits = part.width * part.depth
    best, cost = Mapped(flip_flop_bits=bits), float("inf") if forced else float(bits)
    for kind in kinds:
        found, price = _cheapest(part, kind)
        if price < cost:
            best, cost = found, price
    return best


def _cheapest(part: MemoryPart, kind: _Kind) -> tuple[Mapped, float]:
    """Best use of one kind of RAM, and what Yosys holds it to cost."""
    best, cost = Mapped(), float("inf")
    granule = part.width // part.granules
    for index, width in enumerate(kind.widths):
        byte = min(kind.byte or width, width)
        bits = part.granules * -(-granule // byte) * byte
        banks = -(-part.depth >> kind.address_bits - index)
        cells = -(-banks * bits // width)
        price = kind.cost * cells + (banks - 1) * part.width / 2 + _PORT_COST
        price += banks * part.granules / 2 if banks > 1 else 0
        if price < cost:
            best = Mapped(block_rams=cells, banks=banks) if kind.block else Mapped(lutrams=cells, banks=banks)
            cost = price
    return best, cost


def _ecp5_block(part: MemoryPart) -> Mapped:
    """The aspect that takes the fewest blocks, and of those the deepest."""
    best = Mapped()
    for bits, address_bits in _ASPECTS:
        lane = min(bits, 9)
        lanes = -(-(part.width // part.granules) // lane)
        columns = -(-part.granules * lanes * lane // bits)
        banks = -(-part.depth >> address_bits)
        if not best.block_rams or columns * banks <= best.block_rams:
            best = Mapped(block_rams=columns * banks, banks=banks)
    return best


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of one sort: ``sets`` times so many side by side in a lane."""

    sets: int
    each: int
    a_bits: int
    b_bits: int
    kind: MultiplierKind
    stages: int
    paired: bool = False
    """Two lanes share one."""

    @property
    def count(self) -> int:
        """All of them."""
        return self.sets * self.each


def multiplications(manifest: Manifest) -> Iterator[Multipliers]:
    """Yield the multipliers of a core, sort by sort."""
    parameters, numerics = manifest.parameters, manifest.numerics
    weight, data, units = numerics.weight_bits, numerics.data_bits, parameters.gate_units
    stages = parameters.pipeline.multiplier
    hard, paired = parameters.macs - parameters.lut_macs, manifest.paired_lanes
    yield Multipliers(parameters.lanes, hard, weight, data, "dsp", stages, paired)
    yield Multipliers(parameters.lanes, parameters.lut_macs, weight, data, "lut", stages)
    for a, b in numerics.unit.products:
        yield Multipliers(units, 1, a, b, "dsp", 1)
    if parameters.tables == "interpolated":
        kind = parameters.slope_multipliers
        for _, table, count in numerics.unit.table_uses:
            if table.low_bits:
                yield Multipliers(count * units, 1, table.slope_bits, table.low_bits + 1, kind, 1)


def hard_blocks(a: int, b: int, family: str, count: int = 1) -> int:
    """Multiplier blocks that so many hard multipliers of this size take, side by side in a lane."""
    if family == "ice40":
        # A block is two multipliers of 8 x 8.
        return -(-count // 2) if max(a, b) <= 8 else count * int(max(a, b) <= 20)
    # Synthesis cuts wider operands into pieces of 17 bits, the uppermost of 18.
    pieces = [1 if bits <= 18 else -(-(bits - 18) // 17) + 1 for bits in (a, b)]
    return count * pieces[0] * pieces[1]


@dataclass(frozen=True)
class Blocks:
    """Exact counts of hard blocks."""

    multipliers: int
    block_rams: int
    large_rams: int


def count_blocks(manifest: Manifest, family: str, multipliers: bool = True) -> Blocks:
    """Count the hard blocks of a core for ``family``; ``multipliers`` says whether it uses those."""
    hard = sum(
        some.sets * hard_blocks(some.a_bits, some.b_bits, family, some.each) // (1 + some.paired)
        for some in multiplications(manifest)
        if some.kind == "dsp" and multipliers
    )
    mapped = [(part.count, map_memory(part, family)) for part in memory_parts(manifest)]
    return Blocks(
        multipliers=hard,
        block_rams=sum(count * each.block_rams for count, each in mapped),
        large_rams=sum(count * each.large_rams for count, each in mapped),
    )
