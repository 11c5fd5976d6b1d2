"""Steps of the parts of a sequence, in the order that the controller tells, and the core of any build."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from rtlstm.hdl.component import In, Out, Ports
from rtlstm.hdl.core.core import Core
from rtlstm.hdl.core.ends import Ends, StepEnds
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.memory_window import MemoryWindow
from rtlstm.hdl.core.program_store import Loaded, program_store
from rtlstm.hdl.core.sequencer.sequencer import Sequencer
from rtlstm.hdl.core.sequencer.steps import CurrentStream, Steps
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.hdl.sequences.controller import SequenceMemory
from rtlstm.hdl.spatial.core import SpatialCore
from rtlstm.spec.manifest import Manifest


class PartPorts(Ports):
    """Ports at which the controller tells of the next step."""

    step_part: Signal = In(lambda fields: row_bits(len(fields.manifest.sequence.parts)))
    step_base: Signal = In(lambda fields: row_bits(fields.manifest.sequence.rows))
    step_there: Signal = In(1)
    """The next step's part, whatever it waits for, and the first word of its input; it may begin."""
    input_stream: Signal = In(lambda fields: fields.manifest.parameters.stream_bits)
    """Its stream."""
    begun: Signal = Out(1)
    """Its first word is being issued; from the next cycle on these speak of the step after it."""


class PartSteps(PartPorts, Steps):
    """Begins the step that the controller names, as soon as it may begin.

    A part's first operation waits until its step may begin. If the next step is of another part than the
    loaded operation's, that part's first operation is loaded instead. Nothing is computed in advance, and
    there is no prefetch: a step computes its recurrent products itself, while the results of the step
    before, which is another part's, are outstanding. So no partial sums are ever invalid, and h has one
    copy. All outputs are wanted here: the controller drops those that are not.
    """

    outside = PartPorts

    def __init__(self, manifest: Manifest) -> None:
        assert manifest.sequence is not None
        self._manifest = manifest
        self._plan = manifest.sequence
        super().__init__(program_store(manifest).issued(_fields(manifest)))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.current_stream = current = CurrentStream(self._manifest)
        fetched, walk = self.fetched, self.walk
        op = fetched.op
        waits = walk.begins & ~walk.issued & op.waits_for_input & ~fetched.loading
        firsts = [part.first for part in self._plan.parts]
        m.d.comb += [
            self.begun.eq(walk.issued & walk.begins & op.waits_for_input),
            self.redirect.eq(waits & (self.step_part != op.part)),
            self.target.eq(lookup(m, self.step_part, firsts, "first_of_part")),
        ]
        self._follow_step(m, current, waits)
        self._await_step(m)
        self._keep_states(m)
        return m

    def _follow_step(self, m: Module, current: CurrentStream, waits: Value) -> None:
        """Take the stream and the input of the next step as long as an operation waits for it."""
        fetched = self.fetched
        op, next_op = fetched.op, fetched.next_op
        input_base = Signal.like(self.vector_start, reset_less=True)
        source = Signal(next_op.source.shape(), reset_less=True)
        m.d.comb += [
            current.listens.eq(waits | (fetched.load & next_op.waits_for_input)),
            current.input_stream.eq(self.input_stream),
            self.stream.eq(current.stream),
            self.restarts.eq(waits),
        ]
        with m.If(current.listens):
            m.d.sync += input_base.eq(self.step_base)
        with m.If(fetched.load):
            m.d.sync += source.eq(next_op.source)
        input_row = Mux(next_op.waits_for_input, self.step_base, input_base)
        next_start = Mux(next_op.from_input, input_row, next_op.source + current.context)
        start = Mux(op.from_input, self.step_base, source + current.next_context)
        m.d.comb += self.vector_start.eq(Mux(waits, start, next_start))

    def _await_step(self, m: Module) -> None:
        """Let a step's first word wait until it may begin; what has begun finds all of its input."""
        op, next_op = self.fetched.op, self.fetched.next_op
        # A step that begins is not the next one any more.
        there = self.step_there & ~self.begun & ~self.window_wanted
        m.d.comb += [
            self.input_ready.loaded.eq(~next_op.waits_for_input | (there & (self.step_part == next_op.part))),
            self.input_ready.goes_on.eq(1),
            self.input_ready.waits.eq(
                ~op.waits_for_input | ~self.walk.begins | (there & (self.step_part == op.part))
            ),
        ]

    def _keep_states(self, m: Module) -> None:
        """Keep, per stream and part, whether its state is zero."""
        op, part_bits = self.fetched.op, len(self.step_part)
        zero_state = Signal(self._manifest.parameters.streams << part_bits, init=-1)
        part = Cat(op.part, Const(0, part_bits - len(op.part)))
        current = zero_state.bit_select(Cat(part, self.stream), 1)
        commanded = zero_state.word_select(self.command_stream, 1 << part_bits)
        with m.If(self.walk.ends & op.ends):
            m.d.sync += current.eq(0)
        with m.If(self.reset_stream | self.state_written):
            m.d.sync += commanded.eq(self.reset_stream.replicate(len(commanded)))
        m.d.comb += [
            self.zero_state.eq(current),
            self.blank.eq(op.recurrent & current),
            self.flags.eq(commanded[0]),
        ]


def _fields(manifest: Manifest) -> dict[str, list[int]]:
    """Fields of every operation that know of parts."""
    plan, ops = manifest.sequence, manifest.program.ops
    assert plan is not None
    part_of = [
        next(number for number, part in enumerate(plan.parts) if part.first <= index <= part.last)
        for index in range(len(ops))
    ]
    first = [plan.parts[part].first == index for index, part in enumerate(part_of)]
    last = [plan.parts[part].last == index for index, part in enumerate(part_of)]
    return {
        "part": part_of,
        "recurrent": [int(op.kind == "recurrent") for op in ops],
        "waits_for_input": [int(begins) for begins in first],
        "prepares": [0] * len(ops),
        "ends": [int(ends) for ends in last],
        "ends_suppressed": [int(ends) for ends in last],
        "follows": [
            plan.parts[plan.follows(part)].first if ends else index + 1
            for index, (part, ends) in enumerate(zip(part_of, last, strict=True))
        ],
    }


class PartSequencer(PartPorts, Sequencer):
    """Executes the programs of several parts.

    Its exact model is :mod:`rtlstm.spec.program.sequences`.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(PartSteps(manifest))


def make_core(manifest: Manifest) -> Core | SpatialCore:
    """Return the core of a build: in space, or with an array, of single steps or of whole sequences."""
    if manifest.spatial is not None:
        return SpatialCore(manifest)
    return Core(manifest, StepEnds(manifest) if manifest.sequence is None else SequenceEnds(manifest))


class SequenceEnds(Ends):
    """The array reads its input from a sequence memory, and its results go there.

    Latency and throughput: :mod:`rtlstm.spec.program.sequences`, exact.
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
    def last_pass(self) -> Value:
        return self._memory.last_pass

    @property
    def waiting(self) -> Value:
        return self._memory.busy
