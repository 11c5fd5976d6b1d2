"""The ends of a core's array that takes whole sequences, and the core of any build."""

from amaranth.hdl import Module, Value

from rtlstm.hdl.core.core import Core
from rtlstm.hdl.core.ends import Ends, StepEnds
from rtlstm.hdl.core.memory_window import MemoryWindow
from rtlstm.hdl.core.program_store import Loaded, program_store
from rtlstm.hdl.sequences.controller import SequenceMemory
from rtlstm.hdl.sequences.part_steps import PartSequencer
from rtlstm.spec.manifest import Manifest


def make_core(manifest: Manifest) -> Core:
    """Return the core of a build: one of single steps, or of whole sequences."""
    return Core(manifest, StepEnds(manifest) if manifest.sequence is None else SequenceEnds(manifest))


class SequenceEnds(Ends):
    """The array reads its input from a sequence memory, and its results go there.

    Latency and throughput: :mod:`rtlstm.spec.program.sequence_schedule`, exact.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._program = program_store(manifest)
        self.sequencer = self._sequencer = PartSequencer(manifest)
        self.source = self.sink = self._memory = SequenceMemory(manifest)

    def add_input(self, m: Module) -> None:
        m.submodules.sequencer = self._sequencer
        m.submodules.sequences = self._memory

    def add_output(self, m: Module) -> None:
        """Add nothing: the memory that keeps the input gives the output, too."""

    def window_wanted(self, window: MemoryWindow) -> Value:
        # Within a sequence the core is never idle for long, but never done either.
        return window.active & ~self._memory.computing

    def since(self, m: Module, window: MemoryWindow) -> Value:
        return self._memory.since

    def connect(self, m: Module, window: MemoryWindow) -> None:
        sequencer, memory = self._sequencer, self._memory
        m.d.comb += [
            sequencer.step_part.eq(memory.part),
            sequencer.step_base.eq(memory.base),
            sequencer.step_there.eq(memory.there),
            sequencer.input_stream.eq(memory.stream),
            # The memory has room for every result.
            sequencer.room.eq(1),
            memory.begun.eq(sequencer.begun),
            memory.hold.eq(window.active | sequencer.window_wanted),
            memory.now.eq(window.now),
        ]

    def connect_program(self, m: Module, loaded: Loaded) -> None:
        statements = [part.step.eq(loaded.fields) for part in (self._sequencer, self._memory)]
        self._program.drive(m, [*statements, self._sequencer.stopped.eq(loaded.stopped)])

    @property
    def waiting(self) -> Value:
        return self._memory.busy
