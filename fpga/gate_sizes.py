"""Sizes of a gate unit's arithmetic, without its tables and products."""

from dataclasses import dataclass

from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters

__all__ = ["GateSizes", "gate_sizes"]

_CARRIES = {"add": 1, "subtract": 1, "narrow": 3, "clamp": 3, "table": 1, "pieces": 4}
"""Number of adders and comparisons, of the result's width, of each kind of node."""


@dataclass(frozen=True)
class GateSizes:
    """Numbers of bits, computed from the formats."""

    carries: int
    """Bits of all sums, roundings and comparisons."""
    chains: tuple[int, ...]
    """Width of each carry chain."""
    registers: int
    """Bits of pipeline registers."""


def gate_sizes(manifest: Manifest) -> GateSizes:
    """Return the sizes of one of a core's gate units."""
    if isinstance(manifest.numerics.unit, FusedUnit):
        return _fused(manifest)
    cells = manifest.numerics.cells
    nodes = [node for cell in cells for node in cell.nodes]
    return GateSizes(
        carries=sum(_CARRIES.get(node.kind, 0) * node.format.bits for node in nodes),
        chains=tuple(node.format.bits for node in nodes if node.kind in _CARRIES and node.kind != "table"),
        registers=sum(_registers(cell, manifest.parameters) for cell in cells),
    )


def _fused(manifest: Manifest) -> GateSizes:
    numerics = manifest.numerics
    fraction = numerics.cell_sum_fraction
    product = numerics.cell.bits + numerics.gate.bits - numerics.gate.fraction - numerics.cell.fraction
    # f c + i g before rounding.
    total = max(product + fraction, fraction + 2)
    # Odd codes take no adder, and dense results have one of their own.
    hidden = numerics.result_bits if numerics.hidden_rounding == "half_up" or manifest.has_single_rows else 0
    return GateSizes(
        # The sum, its rounding and the rounding of h. The argument of tanh takes no adder.
        carries=2 * total + numerics.cell.bits + hidden,
        chains=(total,) * 2,
        registers=(numerics.gate.bits + numerics.cell.bits) * (manifest.parameters.activation + 1),
    )


def _registers(cell: CellGraph, parameters: Parameters) -> int:
    """Return the bits of a cell's registers: a node has them for each stage, and until the last use."""
    count, stages = 0, cell.stages(parameters)
    begins = [
        max((stages[arg] for arg in node.args), default=stages[position])
        for position, node in enumerate(cell.nodes)
    ]
    for position, node in enumerate(cell.nodes):
        used = [begins[user] for user, other in enumerate(cell.nodes) if position in other.args]
        waits = max(0, max(used, default=0) - stages[position])
        count += node.format.bits * (stages[position] - begins[position] + waits)
    return count
