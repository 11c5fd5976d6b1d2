"""The sequencer of whole sequences: which part's step comes next is told, not waited for at a port."""

from rtlstm.hdl.core.sequencer.sequencer import Sequencer
from rtlstm.hdl.sequences.part_steps import PartPorts, PartSteps
from rtlstm.spec.manifest import Manifest


class PartSequencer(PartPorts, Sequencer):
    """Executes the programs of several parts.

    Its exact model is :mod:`rtlstm.spec.program.sequence_schedule`.

    Its members are those of its bases.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, PartSteps(manifest))
