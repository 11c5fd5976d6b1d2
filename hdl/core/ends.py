"""What stands at the two ends of a core's array: where its input comes from, and where its results go.

They also decide which step comes next. :class:`StepEnds` are those of a core that takes steps;
:mod:`rtlstm.hdl.sequences.part_steps` has those of one that takes whole sequences.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import stream

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.memory_window import MemoryWindow
from rtlstm.hdl.core.ports import InputBuffer, OutputQueue
from rtlstm.hdl.core.program_store import Loaded, program_store
from rtlstm.hdl.core.sequencer.input_steps import StepSequencer
from rtlstm.hdl.core.sequencer.sequencer import Sequencer
from rtlstm.hdl.primitives.pipeline import delay, delay_event, storage
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest

_INPUT_NEWS = ("full", "coming", "words", "grows", "fills", "stream", "suppress", "bank")
"""What the sequencer hears of the input buffer."""


class Source(Protocol):
    """What a core needs of the part that keeps its input; see :class:`rtlstm.hdl.core.ports.InputBuffer`."""

    @property
    def x(self) -> stream.Interface: ...
    @property
    def row(self) -> Signal: ...
    @property
    def word(self) -> Signal: ...


class Sink(Protocol):
    """What a core needs of the part that gives its output; see :class:`rtlstm.hdl.core.ports.OutputQueue`."""

    @property
    def result(self) -> Struct: ...
    @property
    def values(self) -> Signal: ...
    @property
    def y(self) -> stream.Interface: ...
    @property
    def pushed_last(self) -> Signal: ...


class Ends(ABC):
    """Sequencer, source and sink of a core, and how they are wired to each other and to the memory window."""

    sequencer: Sequencer
    source: Source
    sink: Sink

    @abstractmethod
    def add_input(self, m: Module) -> None:
        """Add the sequencer, and what keeps the input."""

    @abstractmethod
    def add_output(self, m: Module) -> None:
        """Add what gives the output."""

    @abstractmethod
    def window_wanted(self, window: MemoryWindow) -> Value:
        """Whether the memory window waits for the core to be idle."""

    @abstractmethod
    def since(self, m: Module, window: MemoryWindow) -> Value:
        """The cycle of the last input beat of the step whose output is being given."""

    @abstractmethod
    def connect(self, m: Module, window: MemoryWindow) -> None:
        """Wire sequencer, source and sink."""

    @abstractmethod
    def connect_program(self, m: Module, loaded: Loaded) -> None:
        """Give all of them what is loaded of a step."""

    @property
    def last_pass(self) -> Value:
        """Whether results are those of the last pass of a sequence."""
        return Const(1)

    @property
    @abstractmethod
    def waiting(self) -> Value:
        """Whether a complete input waits to be read."""


class StepEnds(Ends):
    """Those of a core that takes steps: an input buffer and an output queue."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        self.sequencer = self._sequencer = StepSequencer(manifest)
        self.source = self._buffer = InputBuffer(manifest)
        self.sink = self._queue = OutputQueue(manifest)

    def add_input(self, m: Module) -> None:
        m.submodules.sequencer = self._sequencer
        m.submodules.input_buffer = self._buffer

    def add_output(self, m: Module) -> None:
        m.submodules.output_queue = self._queue

    def window_wanted(self, window: MemoryWindow) -> Value:
        return window.active

    def since(self, m: Module, window: MemoryWindow) -> Value:
        source = self._buffer
        # Outputs come in the order of the inputs whose output is wanted.
        number = Signal.like(source.coming_number, name="output_number")
        m.d.sync += number.eq(number + self._queue.pushed_last)
        # What was not read of the input is forgotten.
        stopped, forgets = self._sequencer.stopped, [number.eq(source.coming_number)]
        self._program.when(m, stopped, forgets)
        read, write = storage(m, memories(self._manifest)["input times"], "begun")
        # As late as the input is stored: it is read much later.
        later, inputs = self._manifest.parameters.pipeline.accept, self._manifest.program.inputs
        looks_up = self._manifest.parameters.look_up_cycles(inputs)
        accepted = (window.now - looks_up)[:32] if looks_up else window.now
        m.d.comb += [
            read.addr.eq(number),
            write.addr.eq(delay(m, source.coming_number, later)),
            write.data.eq(delay(m, accepted, later)),
            write.en.eq(delay_event(m, source.filled, later)),
        ]
        return read.data

    def connect(self, m: Module, window: MemoryWindow) -> None:
        sequencer, source = self._sequencer, self._buffer
        m.d.comb += [
            *(getattr(sequencer, f"input_{name}").eq(getattr(source, name)) for name in _INPUT_NEWS),
            sequencer.halves_full.eq(source.halves_full),
            sequencer.halves_streams.eq(source.halves_streams),
            source.taken.eq(sequencer.input_taken),
            sequencer.room.eq(self._queue.room),
            self._queue.emits.eq(sequencer.emits),
        ]

    def connect_program(self, m: Module, loaded: Loaded) -> None:
        sequencer, buffer, queue = self._sequencer, self._buffer, self._queue
        self._program.drive(
            m,
            [
                *(part.step.eq(loaded.fields) for part in (sequencer, buffer, queue)),
                *(part.stopped.eq(loaded.stopped) for part in (sequencer, buffer)),
                queue.releases.eq(sequencer.releases),
                *([queue.network.eq(sequencer.network)] if self._program.several else []),
            ],
        )

    @property
    def waiting(self) -> Value:
        return self._buffer.halves_full.any()
