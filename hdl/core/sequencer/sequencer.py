"""The sequencer: executes the program, one word of the array per cycle.

The program is a list of operations, each a matrix-vector product: ``groups`` row groups of ``columns`` words.
The sequencer walks the words of an operation, then loads the next; no cycle is lost between two operations.

=======  ==========================================================================================
cycle    what happens
=======  ==========================================================================================
k - 1    ``Admission`` decides whether a word may be issued in cycle k. What it depends on (results in
         memory, words of the input, room for the output, the drain) is announced one cycle ahead.
k        The word is issued: ``token`` is valid, beside ``weight_row`` and ``vector_row``.
k        If it is the operation's last word, ``Fetch`` loads the fields of the next operation ...
k + 1    ... and its first word may be issued.
=======  ==========================================================================================

A redirect takes 2 cycles (``REDIRECT_CYCLES`` in :mod:`rtlstm.spec.program.schedule`). In cycle k a
complete input waits whose stream has invalid partial sums; in k + 1 the program's first operation is the
next one and is loaded; in k + 2 its first word may be issued.
"""

from collections.abc import Callable, Mapping
from functools import partial

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring

from rtlstm.hdl.component import Component, In, Out, Struct, connect_some
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import row_bits, stream_bits, token_layout, vector_bits
from rtlstm.hdl.core.program_store import NextOp, OpFields, ProgramPart, program_store
from rtlstm.hdl.core.sequencer.admission import Admission, Results
from rtlstm.hdl.core.sequencer.steps import Fetched, Steps, Walk, after_layout, network_bits, several_bit
from rtlstm.hdl.core.sequencer.walker import Walker
from rtlstm.spec.registers import Region

# Members of the sequencer that are those of one of its parts.
_COMMANDS = ("reset_stream", "state_written", "weights_written", "command_stream", "flags")
_OF_STEPS = ("window_wanted", "blank")
_OF_PROGRAM = ("step", "stopped", "program_window", "program_write", "program_data", "program_word")


class Fetch(ProgramPart):
    """Loads the next operation when one ends, at a redirect, and after the window.

    The fields of the next operation are always there: its number is decided a cycle before.

    =======  ==============================================================================
    cycle    at a redirect
    =======  ==============================================================================
    k        ``redirect``: the program store is given ``target``.
    k + 1    ``next_op`` is that operation; ``loading``, and with it ``load``.
    k + 2    ``op`` is that operation.
    =======  ==============================================================================

    """

    step: Struct = In(lambda fields: program_store(fields.manifest).step_layout)
    """What is loaded of a step."""
    network: Signal = In(network_bits)
    """The network whose operations are loaded, where there are several."""
    stopped: Signal = In(1)
    """No operation is to be loaded."""
    program_window: Signal = In(1)
    """The window looks at the program."""
    walk: Walk = In(Walk)
    """How far the operation is; its last word loads the next one."""
    after_op: Struct = In(after_layout)
    after_next: Struct = In(after_layout)
    """What comes after the operation that is loaded, and after the next one."""
    redirect: Signal = In(1)
    target: Signal = In(lambda fields: row_bits(fields.manifest.capacity.operations))
    """Load another operation instead."""
    window: Signal = In(1)
    """The memory window is open."""
    fetched: Fetched = Out(Fetched)
    """The operation that is loaded, and the next one."""

    def __init__(self, fields: OpFields) -> None:
        self._program = program_store(fields.manifest)
        self._op_fields = fields
        super().__init__(fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched = self.fetched
        upcoming = Signal.like(fetched.index)
        next_index = Signal.like(fetched.index, init=self._program.first_op)
        loading = Signal(init=1)
        next_op = NextOp(next_index, upcoming, self._upcoming)
        table = self._program.read_issued(m, self, self._op_fields, self.program_window, next_op)
        m.d.comb += [
            upcoming.eq(self._upcoming(Value.cast)),
            fetched.load.eq(self.walk.ends | (loading & ~fetched.halted)),
            fetched.loading.eq(loading),
            fetched.halted.eq(self._program.event(partial(self._halted, m))),
        ]
        m.d.sync += next_index.eq(upcoming)
        with m.If(fetched.load):
            m.d.sync += [fetched.index.eq(next_index), loading.eq(0)]
        with m.If(self.redirect | self.window):
            m.d.sync += loading.eq(1)
        self._load_fields(m, table)
        return m

    def _upcoming(self, of: Callable[[Value], Value]) -> Value:
        """Return ``of`` the number of the operation that is the next one in the next cycle.

        That an operation ends, and its step, is known last, so ``of`` stands in front of all choices.
        """

        step = self._step
        begin = step.begin if self._program.several else Const(0)

        def after(chosen: Value, op: Struct, comes: Struct) -> Value:
            first = Mux(comes.prefetches, of(step.prefetch), of(begin))
            found = Mux(comes.ends_step, Mux(chosen, first, 0), Mux(chosen, of(op.follows), 0))
            return Mux(comes.enters & chosen, of(step.enter), found) if self._op_fields.wave else found

        fetched = self.fetched
        # A step of a network that is there ends the wait for one that is not.
        halted = fetched.halted & ~self.redirect if self._program.several else fetched.halted
        begins = self.window | halted
        goes_on = ~begins & ~self.redirect
        return any_of(
            [
                Mux(begins, of(step.body), 0),
                Mux(~begins & self.redirect, of(self.target), 0),
                after(goes_on & fetched.load, fetched.next_op, self.after_next),
                after(goes_on & ~fetched.load, fetched.op, self.after_op),
            ]
        )

    def _halted(self, m: Module) -> Value:
        """Whether there is no program, or its memory shows another row."""
        looked = Signal()
        m.d.sync += looked.eq(self.program_window)
        stopped = ~self._step.present if self._program.several else self.stopped
        return stopped | looked

    @property
    def _step(self) -> Struct:
        return self._program.fields_of(self.step, getattr(self, "network", 0))

    def _load_fields(self, m: Module, table: Mapping[str, Value]) -> None:
        """Keep those of the fields that are asked for while words are issued."""
        m.d.comb += [self.fetched.next_op[name].eq(value) for name, value in table.items()]
        for name in self._op_fields.of_op.members:
            kept = Signal(self._op_fields.widths[name], reset_less=True, name=f"op_{name}")
            m.d.comb += self.fetched.op[name].eq(kept)
            with m.If(self.fetched.load):
                m.d.sync += kept.eq(table[name])


class Sequencer(ProgramPart):
    """Issues the program's operations in order.

    Whether a word may be issued is decided one cycle ahead, so that little stands between two registers; what
    it depends on is announced a cycle ahead, too. ``steps`` is what decides which step comes next; a subclass
    has its ports ``outside``, too.
    """

    step: Struct = In(lambda fields: program_store(fields.manifest).step_layout)
    """What is loaded of a step."""
    stopped: Signal = In(1)
    """No operation is to be loaded."""
    program_window: Signal = In(1)
    """The window looks at the program."""
    releases: Signal = Out(1)
    """The room for the output that the last ``emits`` reserved is free again, since the operation that began
    will not end: another program is loaded."""
    network: Signal = Out(network_bits)
    """The network whose operations are loaded, where there are several."""
    token: Struct = Out(lambda fields: token_layout(fields.manifest))
    """The word being issued, beside its addresses."""
    weight_row: Signal = Out(lambda fields: row_bits(fields.manifest.regions[Region.WEIGHTS].rows))
    vector_row: Signal = Out(lambda fields: vector_bits(fields.manifest))
    """Addresses of the word: of its weights, and of what they multiply."""
    from_input: Signal = Out(1)
    relu: Signal = Out(1)
    blank: Signal = Out(1)
    """The word is read from the input buffer; with ReLU; as zeros."""
    input_taken: Signal = Out(1)
    """The operation that reads the input has been issued."""
    room: Signal = In(1)
    emits: Signal = Out(1)
    """The output has room for a whole step; an operation that will need it begins."""
    abandons: Signal = Out(1)
    """What was issued of an operation will be issued again: it waited in the middle of a row."""
    result_last: Signal = In(1)
    result_word: Signal = In(1)
    """An operation's last result, or one that completes a word of the vector memory, will be there two cycles
    more than ``parameters.ahead()`` later; of operations whose results are stored."""
    window: Signal = In(1)
    """The memory window is open: addresses follow its row."""
    window_wanted: Signal = In(1)
    """It waits for the core to be idle: from the next cycle on no step begins."""
    reset_stream: Signal = In(1)
    state_written: Signal = In(1)
    """The stream ``command_stream`` starts from zero, or from what was written."""
    handed_over: Signal = In(several_bit)
    """Where there are several networks: its state is from now on that of the network it names."""
    weights_written: Signal = In(1)
    """The partial sums of all streams are invalid from now on."""
    command_stream: Signal = In(lambda fields: stream_bits(fields.manifest))
    idle: Signal = Out(1)
    """Nothing is issued or under way, and no partial sum is to be stored any more."""
    flags: Signal = Out(3)
    """State of ``command_stream``: it is zero; its partial sums are invalid; the first layer's h is in the
    second half of its ping-pong buffer."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._program = steps, program_store(steps.fields.manifest)
        super().__init__(steps.fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fields, outside = self._steps.fields, wiring.flipped(self)
        m.submodules.steps = steps = self._steps
        m.submodules.fetch = fetch = Fetch(fields)
        m.submodules.walker = walker = Walker(fields)
        m.submodules.results = results = Results(fields)
        m.submodules.admission = admission = Admission(fields)
        m.submodules.activity = activity = Activity(fields)
        followers = (steps, results, admission, activity)
        wiring.connect(m, fetch.fetched, walker.fetched, *(part.fetched for part in followers))
        wiring.connect(m, walker.walk, fetch.walk, *(part.walk for part in followers))

        # Steps choose what is fetched, and where its vectors begin.
        connect_some(m, steps, fetch, ("after_op", "after_next", "redirect", "target"))
        connect_some(m, steps, walker, ("vector_start", "restarts"))
        # A word is issued when what it reads is there, and its results have room.
        connect_some(m, results, admission, ("results_ready",))
        connect_some(m, steps, admission, ("input_ready", "suppress", *(("silent",) if fields.wave else ())))
        connect_some(m, admission, walker, ("issued",))
        connect_some(m, steps, activity, ("redirect",))

        connect_some(m, outside, steps, (*steps.outside.port_names(), *_COMMANDS, *_OF_STEPS))
        connect_some(m, outside, fetch, ("window", "window_row"))
        connect_some(m, outside, walker, ("window", "window_row", "weight_row", "vector_row"))
        connect_some(m, outside, results, ("result_last", "result_word"))
        connect_some(m, outside, admission, ("room", "emits"))
        connect_some(m, outside, activity, ("idle",))
        self._program.connect(m, outside, fetch, _OF_PROGRAM)
        self._program.connect(m, outside, steps, ("step",))
        self._program.connect(m, outside, admission, ("releases",))
        if self._program.several:
            connect_some(m, steps, fetch, ("network",))
            connect_some(m, outside, steps, ("network", "handed_over"))
            connect_some(m, results, steps, ("settled",))
            connect_some(m, activity, steps, ("drained",))
        self._describe_word(m, fetch.fetched, walker.walk)
        return m

    def _describe_word(self, m: Module, fetched: Fetched, walk: Walk) -> None:
        """Tell what goes with the word that is issued."""
        steps, op = self._steps, fetched.op
        m.d.comb += [
            self.token.valid.eq(walk.issued),
            self.token.last.eq(walk.last_column),
            self.token.group_first.eq(walk.first_group),
            self.token.group_last.eq(walk.last_group),
            self.token.op.eq(fetched.index),
            self.token.stream.eq(steps.stream),
            self.token.zero_state.eq(steps.zero_state),
            self.token.copy.eq(steps.copy),
            self.token.suppress.eq(steps.suppress),
            self.from_input.eq(op.from_input),
            self.relu.eq(op.relu),
            self.input_taken.eq(walk.ends & steps.reads_input),
            self.abandons.eq(self.window | (steps.redirect & walk.underway)),
        ]
        if steps.fields.sections:
            m.d.comb += [
                self.token.first.eq(walk.first_column),
                self.token.keeps.eq(walk.keeps),
                self.token.continues.eq(walk.continues),
                self.token.sum_row.eq(walk.group),
            ]
        if steps.fields.wave:
            m.d.comb += self.token.bubble.eq(steps.bubble)


class Activity(Component):
    """Counts the cycles until whatever was issued has left the pipeline."""

    fetched: Fetched = In(Fetched)
    walk: Walk = In(Walk)
    """The operation that is loaded, and how far it is."""
    redirect: Signal = In(1)
    """Another operation is going to be loaded."""
    idle: Signal = Out(1)
    """Nothing is issued or under way, and no partial sum is to be stored any more."""
    drained: Signal = Out(several_bit)
    """Nothing is, wherever in a step."""

    def __init__(self, fields: OpFields) -> None:
        self._several = network_bits(fields) is not None
        program = program_store(fields.manifest)
        # A word's last result can be read so many cycles after it; two are spare.
        self._depth = program.latest_results + program.most_drain_cycles + 2
        self._depth += fields.manifest.decision_cycles
        super().__init__(fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched, walk = self.fetched, self.walk
        # That nothing is left is known a cycle ahead: ``idle`` goes far.
        left = Signal(range(self._depth + 1))
        drained = Signal(init=1)
        # A redirect loads an operation in the next cycle, and its first word may be issued in the one after.
        m.d.sync += drained.eq(~walk.issued & (left <= 1) & ~self.redirect)
        with m.If(walk.issued):
            m.d.sync += left.eq(self._depth)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        between_steps = (walk.first_group & fetched.op.waits_for_input) | fetched.halted
        if self._several:
            m.d.comb += self.drained.eq(drained & ~walk.issued)
        m.d.comb += self.idle.eq(between_steps & drained & ~walk.issued & ~self.redirect)
        return m
