"""Steps whose inputs come one by one, through the input buffer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring

from rtlstm.hdl.component import Component, In, Out, Ports, Struct, connect_some
from rtlstm.hdl.core.layouts import if_several, stream_bits
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.hdl.core.sequencer.sequencer import Sequencer
from rtlstm.hdl.core.sequencer.steps import CurrentStream, Fetched, Steps, Walk, exceeds
from rtlstm.spec.manifest import Manifest


class WaveStages(Component):
    """Keeps three bits for each layer: it has a step; that one's output is not wanted; its old state is zero.

    They move on by a layer when the wave's first operation is loaded, which begins the next step if its input
    is there. The body's first operation gives the first layer a step, if the wave follows.
    """

    fetched: Fetched = In(Fetched)
    walk: Walk = In(Walk)
    """The operation that is loaded, the next one, and how far it is."""
    there: Signal = In(1)
    """The next step's input is there, and may be read."""
    input_suppress: Signal = In(1)
    """The output of the step whose input is being read is not wanted."""
    first_zero_state: Signal = In(1)
    """The stream's state is zero before the step that the body begins."""
    bubble: Signal = Out(1)
    suppress: Signal = Out(1)
    zero_state: Signal = Out(1)
    """The layer of the wave's operation that is loaded has no step; no output is wanted of it; its state is
    zero."""
    blank: Signal = Out(1)
    """It reads an h that is zero."""
    silent: Signal = Out(1)
    """The operation that gives outputs will give none."""
    others: Signal = Out(1)
    """A layer before the last one has a step."""

    def __init__(self, fields: OpFields) -> None:
        self._layers = len(fields.manifest.layers)
        super().__init__(fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, next_op = self.fetched.op, self.fetched.next_op
        begins, enters = op.waits_for_input, next_op.in_wave
        shifts = self.fetched.load & next_op.in_wave & next_op.from_input
        live, silent, zero = (Signal(self._layers, name=name) for name in ("live", "unwanted", "zero"))
        for bits, first, given in (
            (live, 1, self.there),
            (silent, self.input_suppress, 0),
            (zero, self.first_zero_state, 0),
        ):
            before = Mux(begins, first, bits)
            with m.If(shifts):
                m.d.sync += bits.eq(Cat(given, before[: self._layers - 1]))
            with m.Elif(self.walk.ends & begins):
                m.d.sync += bits.eq(Mux(enters, first, 0))
        with m.If(self.walk.ends & op.in_wave & op.from_input):
            m.d.sync += silent[0].eq(self.input_suppress)
        mine = [bits.bit_select(op.stage, 1) for bits in (live, silent, zero)]
        m.d.comb += [
            self.bubble.eq(op.in_wave & ~mine[0]),
            self.suppress.eq(~mine[0] | mine[1]),
            self.zero_state.eq(mine[2]),
            self.blank.eq(op.in_wave & op.reads_h & mine[2]),
            # With one layer, its step has just begun.
            self.silent.eq(~live[-1] | (silent[-1] if self._layers > 1 else 0)),
            self.others.eq(live[:-1].any()),
        ]
        return m


class StreamFlags(Component):
    """Keeps three bits per stream: its state is zero; its partial sums are invalid; h is in the other half.

    ====================  ==========  =============  ====
    after                 zero state  sums invalid   copy
    ====================  ==========  =============  ====
    reset                 1           1              0
    ``prepared``                      0
    ``flips``                                        ~copy
    ``step_ends``         0
    ``reset_stream``      1           1              0
    ``state_written``     0           1              0
    ``handed_over``                   1
    ``weights_written``               1, all streams
    ====================  ==========  =============  ====

    Where there are several networks, it keeps whose state a stream has: that of the network which the
    stream's last step or command named. A step of another one finds a zero state, as after ``reset_stream``.
    """

    prepares: Signal = In(1)
    """The program has recurrent operations that store partial sums; without them none are ever invalid."""
    stream: Signal = In(stream_bits)
    input_stream: Signal = In(stream_bits)
    """The stream of the step under way, and that of the next input."""
    prepared: Signal = In(1)
    """Its recurrent operations, which store its partial sums, are issued."""
    flips: Signal = In(1)
    """The first layer's h is from now on in the other half of its ping-pong buffer."""
    step_ends: Signal = In(1)
    """Its last operation is issued."""
    reset_stream: Signal = In(1)
    state_written: Signal = In(1)
    command_stream: Signal = In(stream_bits)
    """A stream starts from zero, or from what was written."""
    handed_over: Signal = In(if_several)
    """Where there are several networks: its state is from now on that of the one that it names."""
    weights_written: Signal = In(1)
    """The partial sums of all streams are invalid."""
    adopts: Signal = In(if_several)
    command_prepares: Signal = In(if_several)
    foreign: Signal = Out(if_several)
    """Where there are several networks: ``input_stream`` is from now on that of the network which it names;
    ``prepares`` of ``command_stream``; the state of ``input_stream`` is another network's."""
    zero_state: Signal = Out(1)
    copy: Signal = Out(1)
    """The state of ``stream`` is zero; which half holds the first layer's h."""
    input_zero_state: Signal = Out(1)
    input_invalid: Signal = Out(1)
    """The state of ``input_stream`` is zero; its partial sums are invalid."""
    flags: Signal = Out(3)
    """The three bits of ``command_stream``."""

    def __init__(self, manifest: Manifest) -> None:
        self._streams, self._bits = manifest.parameters.streams, manifest.parameters.stream_bits
        self._network_bits = manifest.parameters.network_bits
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        zero_state = Signal(self._streams, init=-1)
        invalid = Signal(self._streams, init=-1)
        copy = Signal(self._streams)
        with m.If(self.prepared):
            m.d.sync += self._of(invalid, self.stream).eq(0)
        with m.If(self.flips):
            m.d.sync += self._of(copy, self.stream).eq(~self.copy)
        with m.If(self.step_ends):
            m.d.sync += self._of(zero_state, self.stream).eq(0)
        # A host may name a stream that is not there: then nothing changes.
        commanded = [
            bits.bit_select(self.command_stream[: self._bits], 1) for bits in (zero_state, invalid, copy)
        ]
        with m.If(self.reset_stream | self.state_written):
            m.d.sync += [
                bit.eq(value) for bit, value in zip(commanded, (self.reset_stream, 1, 0), strict=True)
            ]
        command_prepares = self.prepares
        zero, old = (self._of(bits, self.input_stream) for bits in (zero_state, invalid))
        if self._network_bits:
            self._follow_networks(m, zero_state, invalid)
            zero, old, command_prepares = zero | self.foreign, old | self.foreign, self.command_prepares
        with m.If(self.weights_written):
            m.d.sync += invalid.eq(-1)
        m.d.comb += [
            self.zero_state.eq(self._of(zero_state, self.stream)),
            self.copy.eq(self._of(copy, self.stream)),
            self.input_zero_state.eq(zero),
            self.input_invalid.eq(old & self.prepares),
            self.flags.eq(Cat(commanded[0], commanded[1] & command_prepares, commanded[2])),
        ]
        return m

    def _follow_networks(self, m: Module, zero_state: Signal, invalid: Signal) -> None:
        """Keep whose state each stream's is."""
        networks = Signal(self._streams * self._network_bits)

        def of(stream: Signal) -> Value:
            return networks.word_select(stream[: self._bits], self._network_bits)

        with m.If(self.reset_stream | self.state_written):
            m.d.sync += of(self.command_stream).eq(self.command_stream[self._bits :])
        with m.If(self.handed_over):
            m.d.sync += [
                of(self.command_stream).eq(self.command_stream[self._bits :]),
                self._of(invalid, self.command_stream).eq(1),
            ]
        with m.If(self.adopts & self.foreign):
            m.d.sync += [
                of(self.input_stream).eq(self.input_stream[self._bits :]),
                *(self._of(bits, self.input_stream).eq(1) for bits in (zero_state, invalid)),
            ]
        m.d.comb += self.foreign.eq(of(self.input_stream) != self.input_stream[self._bits :])

    def _of(self, bits: Signal, stream: Signal) -> Value:
        """A stream's bit."""
        return bits.bit_select(stream[: self._bits], 1) if self._streams > 1 else bits[0]


class InputPorts(Ports):
    """Ports at which the input buffer tells of the next input."""

    input_full: Signal = In(1)
    input_coming: Signal = In(1)
    input_words: Signal = In(lambda fields: range(fields.manifest.program.input_words + 1))
    """The next input is complete; it is not, but is coming, and so many of its words are complete."""
    input_grows: Signal = In(1)
    input_fills: Signal = In(1)
    """A word of it is complete with this cycle; so is all of it."""
    input_stream: Signal = In(lambda fields: stream_bits(fields.manifest))
    input_suppress: Signal = In(1)
    """Its stream, as known after this cycle, and whether its output is not wanted."""
    input_bank: Signal = In(1)
    """Its half of the buffer."""
    halves_full: Signal = In(2)
    halves_streams: Signal = In(lambda fields: 2 * stream_bits(fields.manifest))
    """Whether each half of the buffer holds a complete input, and of which stream."""


class InputSteps(InputPorts, Steps):
    """Begins a step when its input comes; a stream with invalid partial sums has them computed first.

    The input of such a stream is never ready, nor is any while the window is wanted.
    """

    outside = InputPorts

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        super().__init__(self._program.issued())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.current_stream = current = CurrentStream(self._manifest)
        m.submodules.flags = flags = StreamFlags(self._manifest)
        op_ends_step, next_ends_step = self._ends_step(m)
        self._follow_streams(m, current, flags, op_ends_step)
        waits = (self._choose_network if self._program.several else self._redirect)(m, flags)
        self._succeed(m, op_ends_step, next_ends_step)
        if self.fields.wave:
            self._follow_wave(m, flags, op_ends_step, next_ends_step)
        self._address(m, current.context, flags)
        self._await_input(m, ~waits)
        return m

    @property
    def _of_network(self) -> Struct:
        """The fields of a step of the network whose operations are loaded."""
        return self._program.fields_of(self.step, self.network if self._program.several else 0)

    def _choose_network(self, m: Module, flags: StreamFlags) -> Value:
        """Begin with a step's network, if that of the loaded operations is another, or the stream has the
        state of another; return whether the next input waits for that.

        It is known in the first cycle in which all of an input is there, as that sums are invalid: a network
        is changed in the time of a stream's first step. Results of the step before must not be overtaken.
        """
        program, bits = self._program, self._manifest.parameters.stream_bits
        number = self.input_stream[bits:]
        step = program.fields_of(self.step, number)
        missing = ~self._of_network.present
        changes = Signal()
        m.d.comb += changes.eq((number != self.network) | missing)
        waits = flags.input_invalid | flags.foreign | changes
        calm = ~changes | (self.settled & (self.drained | ~step.overtakes))
        needed = self._listens() & self.input_full & step.present & waits & calm
        blank = Signal()
        with m.If(flags.prepared):
            m.d.sync += blank.eq(0)
        with m.If(self.redirect):
            m.d.sync += [
                blank.eq(flags.input_zero_state & flags.input_invalid),
                self.network.eq(number),
            ]
        command = program.fields_of(self.step, self.command_stream[bits:])
        m.d.comb += [
            self.redirect.eq(needed & ~self.window_wanted & ~self.walk.idles),
            self.target.eq(Mux(flags.input_invalid, step.begin, step.body)),
            self.blank.eq(blank),
            flags.prepares.eq(step.prepares),
            flags.command_prepares.eq(command.prepares),
            flags.adopts.eq(self.redirect),
        ]
        return waits

    def _listens(self) -> Value:
        """Whether an operation waits for a step's input."""
        waits: Value = self.walk.first_group & self.fetched.op.waits_for_input & ~self.fetched.loading
        if self._program.several:
            waits |= self.fetched.loading & ~self._of_network.present
        return waits

    def _ends_step(self, m: Module) -> tuple[Value, Value]:
        """Return whether the loaded operation ends a step, and whether the next one does.

        A step whose output is not wanted ends earlier.
        """
        op, next_op = self.fetched.op, self.fetched.next_op
        suppress = Signal(reset_less=True)
        asks = op.from_input
        m.d.comb += self.suppress.eq(Mux(asks, self.input_suppress, suppress))
        m.d.sync += suppress.eq(self.suppress)
        suppress_next = Mux(asks | next_op.waits_for_input, self.input_suppress, suppress)
        return (
            op.ends | (op.ends_suppressed & self.suppress),
            next_op.ends | (next_op.ends_suppressed & suppress_next),
        )

    def _follow_streams(
        self, m: Module, current: CurrentStream, flags: StreamFlags, op_ends_step: Value
    ) -> None:
        """Follow the input's stream, and tell the streams' flags what happens."""
        op, walk = self.fetched.op, self.walk
        several = ("handed_over",) if self._program.several else ()
        commands = ("reset_stream", "state_written", *several, "weights_written", "command_stream")
        connect_some(m, wiring.flipped(self), flags, (*commands, "flags", "zero_state"))
        m.d.comb += [
            current.listens.eq(self._listens() | (self.fetched.load & self.fetched.next_op.waits_for_input)),
            current.input_stream.eq(self.input_stream),
            self.stream.eq(current.stream),
            *([] if self._program.several else [flags.prepares.eq(self._of_network.body != 0)]),
            flags.stream.eq(current.stream),
            flags.input_stream.eq(self.input_stream),
            flags.prepared.eq(walk.ends & op.prepares),
            flags.flips.eq(walk.ends & op.writes_other),
            flags.step_ends.eq(walk.ends & op_ends_step),
            self.copy.eq((op.writes_current & flags.copy) | (op.writes_other & ~flags.copy)),
        ]

    def _redirect(self, m: Module, flags: StreamFlags) -> Value:
        """Have invalid partial sums computed before a step that adds them; a zero state is read as blanks.

        Returns whether the next input waits for that.
        """
        # Flags of the complete input's stream, which a lone beat shows before it is the current one.
        needed = self._listens() & self.input_full & flags.input_invalid
        blank = Signal()
        with m.If(flags.prepared):
            m.d.sync += blank.eq(0)
        with m.If(self.redirect):
            m.d.sync += blank.eq(flags.input_zero_state)
        m.d.comb += [
            self.redirect.eq(needed & ~self.window_wanted & ~self.walk.idles),
            self.target.eq(0),
            self.blank.eq(blank),
        ]
        return flags.input_invalid

    def _succeed(self, m: Module, op_ends_step: Value, next_ends_step: Value) -> None:
        """Say what comes after a step's last operation: the next step's first."""
        next_op = self.fetched.next_op

        def prefetches(reads: Value) -> Value:
            # While an operation reads the input, or one is loaded that does, the next step's is the other.
            bank = self.input_bank ^ reads
            same = self._same(self.halves_streams.word_select(bank, len(self.stream)))
            there = self.halves_full.bit_select(bank, 1) & same & ~self.window_wanted
            return Value.cast(there & self._of_network.prefetches)

        m.d.comb += [
            self.after_op.ends_step.eq(op_ends_step),
            self.after_op.prefetches.eq(prefetches(self.reads_input)),
            self.after_next.ends_step.eq(next_ends_step),
            self.after_next.prefetches.eq(prefetches(self.reads_input | next_op.from_input)),
        ]

    def _follow_wave(self, m: Module, flags: StreamFlags, op_ends_step: Value, next_ends_step: Value) -> None:
        """Follow the steps of all layers in a wave-front, and say when it begins and ends."""
        op, next_op = self.fetched.op, self.fetched.next_op
        m.submodules.stages = stages = WaveStages(self.fields)
        wiring.connect(m, wiring.flipped(self.fetched), stages.fetched)
        wiring.connect(m, wiring.flipped(self.walk), stages.walk)
        enters = self.walk.ends & op.waits_for_input & next_op.in_wave
        m.d.comb += [
            stages.there.eq(self.after_op.prefetches),
            stages.input_suppress.eq(self.input_suppress),
            stages.first_zero_state.eq(flags.zero_state),
            self.after_op.enters.eq(op.waits_for_input & self.after_op.prefetches),
            self.after_next.enters.eq(next_op.waits_for_input & self.after_next.prefetches),
            self.after_op.ends_step.eq(op_ends_step | (op.in_wave & op.emit & ~stages.others)),
            self.after_next.ends_step.eq(next_ends_step | (next_op.in_wave & next_op.emit & ~stages.others)),
            flags.step_ends.eq((self.walk.ends & op_ends_step) | enters),
            self.bubble.eq(stages.bubble),
            self.silent.eq(stages.silent),
        ]
        with m.If(op.in_wave):
            m.d.comb += [
                self.suppress.eq(stages.suppress),
                self.zero_state.eq(stages.zero_state),
                self.blank.eq(stages.blank),
            ]

    def _address(self, m: Module, context: Value, flags: StreamFlags) -> None:
        """Find the vector of the next operation; the input's begins where the input does."""
        fetched = self.fetched
        next_op = fetched.next_op
        # What follows an operation that reads the input reads the next input, if any.
        taken = fetched.op.from_input & ~fetched.loading
        input_row = Mux(self.input_bank ^ taken, self._manifest.program.input_words, 0)
        source = Mux(flags.copy ^ flags.flips, next_op.source_copied, next_op.source)
        m.d.comb += self.vector_start.eq(Mux(next_op.from_input, input_row, source + context))

    def _await_input(self, m: Module, valid: Value) -> None:
        """Compare the input's words with those that may be issued in the next cycle."""
        op, next_op, walk, words = self.fetched.op, self.fetched.next_op, self.walk, self.input_words
        # With this cycle the current stream's recurrent part may be ready.
        prepared = op.prepares & ~self.fetched.loading & self._same(self.input_stream)

        def ready(waits: Value, complete: Value, grown: Value, precomputed: Value) -> Value:
            known = (self.input_coming & complete) | (self.input_grows & grown)
            there = known | self.input_full | self.input_fills
            return ~waits | (there & precomputed & ~self.window_wanted)

        loads, waits = next_op.waits_for_input, op.waits_for_input
        beyond, at_least = exceeds(words, walk.word), ~exceeds(walk.word, words)
        # The next word is the one after this, or, if words are skipped, any later one.
        first_there: Value = words != 0
        first_grown: Value = Const(1)
        next_grown = beyond
        if self.fields.skip:
            first_there, first_grown = exceeds(words, next_op.first_word), ~exceeds(next_op.first_word, words)
            next_grown = ~exceeds(walk.next_word, words)
        m.d.comb += [
            self.input_ready.loaded.eq(ready(loads, first_there, first_grown, valid | prepared)),
            self.input_ready.goes_on.eq(ready(waits, exceeds(words, walk.next_word), next_grown, valid)),
            self.input_ready.waits.eq(ready(waits, beyond, at_least, valid)),
        ]

    def _same(self, stream: Value) -> Value:
        """Whether this is the current stream."""
        parameters = self._manifest.parameters
        return stream == self.stream if parameters.streams > 1 or parameters.networks > 1 else Const(1)


class StepSequencer(InputPorts, Sequencer):
    """Executes the program of a step; :mod:`rtlstm.spec.program.schedule` is its exact model.

    The recurrent operations, which store partial sums, follow a step at once and prepare the next one; the
    body's first operation then waits for input. If a step ends with its stream's next input there, the
    program prefetches: it multiplies that input first. A stream whose state was reset or written from
    outside has its recurrent operations run again first.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(InputSteps(manifest))
