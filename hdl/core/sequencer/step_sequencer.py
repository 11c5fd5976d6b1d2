"""The sequencer of steps that come one by one, each with its input."""

from rtlstm.hdl.core.sequencer.input_steps import InputPorts, InputSteps
from rtlstm.hdl.core.sequencer.sequencer import Sequencer
from rtlstm.spec.manifest import Manifest


class StepSequencer(InputPorts, Sequencer):
    """Executes the program of a step; :mod:`rtlstm.spec.program.schedule` is its exact model.

    The recurrent operations, which store partial sums, follow a step at once and prepare the next one; the
    body's first operation then waits for input. If a step ends with its stream's next input there, the
    program prefetches: it multiplies that input first. A stream whose state was reset or written from
    outside has its recurrent operations run again first.

    Its members are those of its bases.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest, InputSteps(manifest))
