"""What the memories and multipliers of :mod:`rtlstm.spec.inventory` become on ECP5 and iCE40: hard blocks,
exact.

The rules are those of ``hdl/primitives``, and for memories that are left to synthesis those by
which Yosys chooses: the cheapest of block RAM, table RAM and flip-flops.
"""

from dataclasses import dataclass, replace

from rtlstm.spec import inventory
from rtlstm.spec.inventory import MemorySpec
from rtlstm.spec.manifest import Manifest

__all__ = [
    "Blocks",
    "Mapped",
    "count_blocks",
    "hard_blocks",
    "map_memory",
]


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


def map_memory(memory: MemorySpec, family: str) -> Mapped:
    """Return what one of these memories becomes on ECP5 or iCE40."""
    large = memory.depth > _AUTO_WORDS or (
        memory.output_register and memory.width * memory.depth > _AUTO_BITS
    )
    free = memory.style != "distributed" and not memory.asynchronous
    if family == "ecp5" and (memory.style == "block" or (free and large)):
        return _ecp5_block(memory)
    if memory.style == "huge" and family == "ice40":
        # 16 K words of 16 bits; a bank's number is kept for the multiplexer behind them.
        banks = -(-memory.depth // 16384)
        return Mapped(large_rams=banks * -(-memory.width // 16), banks=banks, output_bits=memory.width)
    best = _chosen(memory, family)
    # Yosys keeps what a memory without block RAM reads, and any output register, in flip-flops.
    reads = not memory.asynchronous and not best.block_rams
    return replace(best, output_bits=memory.width * (reads + memory.output_register))


def _chosen(memory: MemorySpec, family: str) -> Mapped:
    """The cheapest for Yosys."""
    kinds = {"ecp5": (_ECP5_LUTRAM, _ECP5_BLOCK), "ice40": (_ICE40_BLOCK,)}[family]
    if memory.asynchronous:
        kinds = tuple(kind for kind in kinds if not kind.block)
    elif memory.style == "distributed":
        kinds = tuple(kind for kind in kinds if not kind.block) or kinds
    # A memory that asks for table RAM is not made of flip-flops.
    forced = memory.style == "distributed" and family == "ecp5"
    bits = memory.width * memory.depth
    best, cost = Mapped(flip_flop_bits=bits), float("inf") if forced else float(bits)
    for kind in kinds:
        found, price = _cheapest(memory, kind)
        if price < cost:
            best, cost = found, price
    return best


def _cheapest(memory: MemorySpec, kind: _Kind) -> tuple[Mapped, float]:
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


def _ecp5_block(memory: MemorySpec) -> Mapped:
    """The aspect that takes the fewest blocks, and of those the deepest."""
    best = Mapped()
    for bits, address_bits in _ASPECTS:
        lane = min(bits, 9)
        lanes = -(-(memory.width // memory.granules) // lane)
        columns = -(-memory.granules * lanes * lane // bits)
        banks = -(-memory.depth >> address_bits)
        if not best.block_rams or columns * banks <= best.block_rams:
            best = Mapped(block_rams=columns * banks, banks=banks)
    return best


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
        some.sets * hard_blocks(some.a_bits, some.b_bits, family, some.each) // (1 + some.shared)
        for some in inventory.multipliers(manifest).values()
        if some.kind == "dsp" and multipliers
    )
    mapped = [(memory.count, map_memory(memory, family)) for memory in inventory.memories(manifest).values()]
    return Blocks(
        multipliers=hard,
        block_rams=sum(count * each.block_rams for count, each in mapped),
        large_rams=sum(count * each.large_rams for count, each in mapped),
    )
