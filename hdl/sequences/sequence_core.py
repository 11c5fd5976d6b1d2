"""The core of networks with reverse directions: it takes whole sequences."""

from amaranth.hdl import Module, Value

from rtlstm.hdl.core.core import Core
from rtlstm.hdl.sequences.controller import SequenceMemory
from rtlstm.hdl.sequences.part_sequencer import PartSequencer
from rtlstm.spec.manifest import Manifest

__all__ = ["SequenceCore", "make_core"]


def make_core(manifest: Manifest) -> Core:
    """Return the core of a build: one of single steps, or of whole sequences."""
    return Core(manifest) if manifest.sequence is None else SequenceCore(manifest)


class SequenceCore(Core):
    """A core whose array reads its input from a sequence memory, and whose results go there.

    Latency and throughput: :mod:`rtlstm.spec.program.sequence_schedule`, exact. Ports: ``docs/ports.md``.
    """

    _sequencer: PartSequencer
    _input: SequenceMemory
    _output: SequenceMemory

    def _add_input(self, m: Module) -> None:
        m.submodules.sequencer = self._sequencer = PartSequencer(self._manifest)
        m.submodules.sequences = self._input = self._memory = SequenceMemory(self._manifest)

    def _add_output(self, m: Module) -> None:
        self._output = self._memory

    def _window_wanted(self) -> Value:
        # Within a sequence the core is never idle for long, but never done either.
        return self._window.active & ~self._memory.computing

    def _since(self, m: Module) -> Value:
        return self._memory.since

    def _steps(self, m: Module) -> None:
        sequencer, memory = self._sequencer, self._memory
        m.d.comb += [
            sequencer.step_part.eq(memory.part),
            sequencer.step_base.eq(memory.base),
            sequencer.step_there.eq(memory.there),
            sequencer.input_stream.eq(memory.stream),
            # The memory has room for every result.
            sequencer.room.eq(1),
            memory.begun.eq(sequencer.begun),
            memory.hold.eq(self._window.active | sequencer.window_wanted),
            memory.now.eq(self._window.now),
        ]

    def _waiting(self) -> Value:
        return self._memory.busy
