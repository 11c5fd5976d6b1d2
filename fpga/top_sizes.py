"""What a board's top takes beside the core: serial link, PLL, reset and LEDs.

Block RAMs are exact, since the link's memories are known. Tables and flip-flops hardly depend on the network:
they are those of synthesised tops, and a little for each bit of the core's data ports.
"""

from collections.abc import Mapping

from rtlstm.fpga.blocks import map_memory
from rtlstm.fpga.resources import Resources
from rtlstm.hdl.link.serial_link import link_limits
from rtlstm.spec.inventory import link_memories
from rtlstm.spec.manifest import Manifest

__all__ = ["TOP_CHAIN_TILES", "top_sizes"]

_LUTS: Mapping[str, tuple[float, float]] = {"ecp5": (1426, 0.69), "ice40": (1390, 0.9)}
"""Tables of a top, and those for each bit of ``x_data`` and ``y_data``; Yosys 0.70, seven tops on ECP5 and
six on iCE40, of 1 to 300 inputs and outputs, 1 to 8 words per transfer, 8 to 16 bits: 2 % off at most."""
_FFS: Mapping[str, tuple[float, float]] = {"ecp5": (756, 1.2), "ice40": (760, 1.35)}
"""Flip-flops, and those for each bit of ``x_data``; the same tops, 2 % off at most."""
TOP_CHAIN_TILES = 81
"""Tiles that the carry chains of a top take on ECP5; it has some 35, nearly the same ones in each."""


def top_sizes(manifest: Manifest, family: str) -> Resources:
    """Estimate what a board's top takes beside the core, on ECP5 or iCE40.

    Raises
    ------
    ConfigurationError
        If a step is too large for the link, or the build takes whole sequences.
    """
    parameters, numerics = manifest.parameters, manifest.numerics
    x_bits, y_bits = parameters.beat_in * numerics.data_bits, parameters.beat_out * numerics.output_bits
    memories = link_memories(link_limits(manifest)).values()
    luts, per_bit = _LUTS[family]
    ffs, per_input_bit = _FFS[family]
    return Resources(
        luts=round(luts + per_bit * (x_bits + y_bits)),
        ffs=round(ffs + per_input_bit * x_bits),
        multipliers=0,
        block_rams=sum(map_memory(memory, family).block_rams for memory in memories),
        large_rams=0,
    )
