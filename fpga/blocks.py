"""Counts the DSP blocks and block RAMs of a core exactly, for families with estimates."""

from dataclasses import dataclass

from rtlstm.fpga.families.estimates import Estimates
from rtlstm.spec import inventory
from rtlstm.spec.manifest import Manifest

__all__ = ["Blocks", "count_blocks"]


@dataclass(frozen=True)
class Blocks:
    """Exact counts of hard blocks."""

    multipliers: float
    """A half of a block counts as such."""
    block_rams: int
    large_rams: int
    wrapper_block_rams: int = 0
    """Block RAMs of the bus wrapper, in addition to those of the core."""


def count_blocks(manifest: Manifest, family: Estimates, multipliers: bool = True) -> Blocks:
    """Count the hard blocks of a core for a family; ``multipliers`` says whether it uses DSP blocks."""
    hard = sum(
        some.sets * family.hard_blocks(some.a_bits, some.b_bits, some.each) / (1 + some.shared)
        for some in inventory.multipliers(manifest).values()
        if family.is_hard(some, multipliers)
    )
    memories = inventory.memories(manifest).values()
    wrapped = inventory.wrapper_memories(manifest).values()
    return Blocks(
        multipliers=hard,
        block_rams=sum(map(family.block_rams, memories)),
        large_rams=sum(memory.count * family.map_memory(memory).large_rams for memory in memories),
        wrapper_block_rams=sum(family.map_memory(memory).block_rams for memory in wrapped),
    )
