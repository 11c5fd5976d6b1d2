"""The one place that chooses the hardware of a network's cells."""

from rtlstm.hdl.core.cell_unit import CellUnit
from rtlstm.hdl.core.gate_unit import GateUnit
from rtlstm.hdl.core.unit import Unit
from rtlstm.spec.cells.unit import FusedUnit
from rtlstm.spec.manifest import Manifest


def make_unit(manifest: Manifest, index: int) -> Unit:
    """Return the ``index``-th of a core's gate units: the fused one, or one with a pipeline for each cell."""
    return (GateUnit if isinstance(manifest.numerics.unit, FusedUnit) else CellUnit)(manifest, index)
