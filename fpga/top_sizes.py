"""Estimates what a board's top takes in addition to the core: serial link, PLL, reset and LEDs.

Block RAMs are exact, because the link's memories are known. LUTs and flip-flops depend little on the network:
they are those of synthesised tops, plus some for each bit of the core's data ports.
"""

from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.resources import Resources
from rtlstm.spec.inventory import link_limits, link_memories
from rtlstm.spec.manifest import Manifest

__all__ = ["top_sizes"]


def top_sizes(manifest: Manifest, family: Estimates) -> Resources:
    """Estimate what a board's top takes in addition to the core.

    Raises
    ------
    ConfigurationError
        If a step is too large for the link, or the build takes whole sequences.
    """
    parameters, numerics = manifest.parameters, manifest.numerics
    x_bits, y_bits = parameters.beat_in * numerics.data_bits, parameters.beat_out * numerics.output_bits
    memories = link_memories(link_limits(manifest)).values()
    luts, per_bit = family.top_luts
    ffs, per_input_bit = family.top_ffs
    return Resources(
        luts=round(luts + per_bit * (x_bits + y_bits)),
        ffs=round(ffs + per_input_bit * x_bits),
        multipliers=0,
        block_rams=sum(family.map_memory(memory).block_rams for memory in memories),
        large_rams=0,
    )
