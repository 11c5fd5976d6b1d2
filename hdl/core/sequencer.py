"""The sequencer: executes the program, one word of the array per cycle.

The program is a list of operations, each a matrix-vector product: ``groups`` row groups of ``columns`` words.
The sequencer walks the words of an operation, then loads the next; no cycle is lost between two operations.

=======  ==========================================================================================
cycle    what happens
=======  ==========================================================================================
k - 1    ``_admit_next`` decides whether a word may be issued in cycle k. What it depends on (results in
         memory, words of the input, room for the output, the drain) is announced one cycle ahead.
k        The word is issued: ``token`` is valid, beside ``weight_row``, ``vector_row`` and ``vector_base``.
k        If it is the operation's last word, ``_table`` (the fields of operation ``_next``) is loaded ...
k + 1    ... and the next operation's first word may be issued.
=======  ==========================================================================================

A redirect takes 2 cycles (``REDIRECT_CYCLES`` in :mod:`rtlstm.spec.program.schedule`). In cycle k a
complete input waits whose stream has invalid partial sums; in k + 1 ``_next`` is the program's first
operation and is loaded; in k + 2 its first word may be issued.
"""

from collections.abc import Mapping
from typing import Literal

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Member, Out

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.layouts import row_bits, token_layout
from rtlstm.hdl.core.program_memory import (
    ProgramPart,
    field_lookup,
    field_memory,
    program_ports,
    step_layout,
    step_values,
)
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import issue_fields, issue_widths
from rtlstm.spec.registers import Region

__all__ = ["Case", "Sequencer"]

Case = Literal["loaded", "goes_on", "waits"]
"""What a cycle does: it loads an operation, issues a word within a group, or neither.

``_admit_next`` has a fourth case, ``wraps``: the cycle issues a group's last word but not the operation's.
It asks for no readiness of vector or input: the first group has read every word, and the later groups read
the same words again.
"""


class Sequencer(ProgramPart):
    """Issues the program's operations in order; :mod:`rtlstm.spec.program.schedule` is its exact model.

    The recurrent operations, which store partial sums, follow a step at once and prepare the next one; the
    body's first operation then waits for input. If a step ends with its stream's next input there, the
    program prefetches: it multiplies that input first. A stream whose state was reset or written from
    outside has its recurrent operations run again first. In an operation's first group, each word waits
    until it is in the vector memory (a RAW hazard) or the input buffer; the first word also waits for room
    for the output. A group's last word waits until the drain is free.

    Whether a word may be issued is decided one cycle ahead, so that little stands between two
    registers; what it depends on is announced a cycle ahead, too.

    Members
    -------
    token : Out
        The word being issued, beside its addresses.
    weight_row, vector_row, vector_base : Out
        Addresses of the word; that of the vector's is the sum of two.
    from_input, relu, blank : Out(1)
        Of the word: read the input buffer; apply ReLU; read zeros.
    input_full, input_coming, input_words : In
        The next input is complete; it is not, but is coming, and so many of its words are complete.
    input_grows, input_fills : In(1)
        A word of it is complete with this cycle; so is all of it.
    input_stream, input_suppress : In
        Its stream, as known after this cycle, and whether its output is not wanted.
    input_bank : In(1)
        Its half of the buffer.
    halves_full, halves_streams : In
        Of each half of the buffer, whether it holds a complete input, and of which stream.
    input_taken : Out(1)
        The operation that reads the input has been issued.
    room : In(1), emits, output : Out(1)
        The output has room for a whole step; an operation that will need it begins, or has ended.
    abandons : Out(1)
        What was issued of an operation will be issued again: it waited in the middle of a row.
    result_last, result_word : In(1)
        In the next cycle, an operation's last result will be written, or one that completes a word of
        the vector memory; of operations whose results are stored.
    window_wanted, window : In(1), window_row : In
        The memory window waits for the core to be idle: from the next cycle on no step begins. It is
        open: addresses follow its row.
    reset_stream, state_written : In(1)
        The stream ``command_stream`` starts from zero, or from what was written.
    weights_written : In(1)
        The partial sums of all streams are invalid from now on.
    idle : Out(1)
        Nothing is issued or under way, and no partial sum is to be stored any more.
    flags : Out(3)
        State of ``command_stream``: it is zero; its partial sums are invalid; the first layer's h is in the
        second half of its ping-pong buffer.
    step : In, stopped : In(1), program_window : In(1), program_write, program_data, program_word
        Only with a loadable program: what was loaded of a step; no operation is to be loaded; the window
        looks at the program; and the ports of :func:`rtlstm.hdl.core.program_memory.program_ports`.
    """

    step: Struct
    stopped: Signal
    program_window: Signal
    token: Struct
    weight_row: Signal
    vector_row: Signal
    vector_base: Signal
    from_input: Signal
    relu: Signal
    blank: Signal
    input_full: Signal
    input_coming: Signal
    input_words: Signal
    input_grows: Signal
    input_fills: Signal
    input_stream: Signal
    input_suppress: Signal
    input_bank: Signal
    halves_full: Signal
    halves_streams: Signal
    input_taken: Signal
    room: Signal
    emits: Signal
    output: Signal
    abandons: Signal
    result_last: Signal
    result_word: Signal
    window: Signal
    window_wanted: Signal
    window_row: Signal
    reset_stream: Signal
    state_written: Signal
    weights_written: Signal
    command_stream: Signal
    idle: Signal
    flags: Signal

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._loadable = manifest.parameters.capacity is not None
        super().__init__(self._members(manifest))

    def _members(self, manifest: Manifest) -> dict[str, Member]:
        streams = manifest.parameters.stream_bits
        loaded: dict[str, Member] = {}
        if self._loadable:
            loaded = {"step": In(step_layout(manifest)), "stopped": In(1), "program_window": In(1)}
            loaded |= program_ports(issue_widths(manifest.parameters))
        return loaded | {
            "token": Out(token_layout(manifest)),
            "weight_row": Out(row_bits(manifest.regions[Region.WEIGHTS].rows)),
            "vector_row": Out(_vector_bits(manifest)),
            "vector_base": Out(_vector_bits(manifest)),
            "from_input": Out(1),
            "relu": Out(1),
            "blank": Out(1),
            "input_full": In(1),
            "input_coming": In(1),
            "input_words": In(range(manifest.program.input_words + 1)),
            "input_grows": In(1),
            "input_fills": In(1),
            "input_stream": In(streams),
            "input_suppress": In(1),
            "input_bank": In(1),
            "halves_full": In(2),
            "halves_streams": In(2 * streams),
            "input_taken": Out(1),
            "room": In(1),
            "emits": Out(1),
            "output": Out(1),
            "abandons": Out(1),
            "result_last": In(1),
            "result_word": In(1),
            "window": In(1),
            "window_wanted": In(1),
            "window_row": In(32),
            "reset_stream": In(1),
            "state_written": In(1),
            "weights_written": In(1),
            "command_stream": In(streams),
            "idle": Out(1),
            "flags": Out(3),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._step = step_values(self._manifest, self.step if self._loadable else None)
        self._registers(m)
        self._tables(m)
        self._conditions(m)
        self._issue(m)
        self._next_operation(m)
        self._admit_next(m)
        self._streams(m)
        self._track_activity(m)
        return m

    def _registers(self, m: Module) -> None:
        program, widths = self._manifest.program, self._field_widths()
        widest = (1 << widths["columns"]) if self._loadable else max(op.columns for op in program.ops)
        self._pc = Signal(self.token.op.shape())
        self._next = Signal.like(self._pc, init=0 if self._loadable else program.body)
        self._upcoming = Signal.like(self._pc)
        # No operation is loaded while there is no program, or its memory shows another row.
        self._load_stopped: Value = Const(0, 1)
        if self._loadable:
            looked = Signal()
            m.d.sync += looked.eq(self.program_window)
            self._load_stopped = self.stopped | looked
        # Operation ``_next`` is to be loaded without one ending: after a reset, a redirect or the window.
        self._loading = Signal(init=1)
        # A word is issued in this cycle.
        self._valid = Signal()
        # The operation's first word has not been issued yet.
        self._begin = Signal()
        # Room in the output has been taken for an operation that has not ended yet.
        self._reserved = Signal()
        # The operation is still in its first group.
        self._open = Signal()
        self._last_column = Signal(reset_less=True)
        self._last_group = Signal(reset_less=True)
        self._last_word = Signal(reset_less=True)
        self._word = Signal(range(widest + 1), reset_less=True)
        self._word_next = Signal(range(widest + 2), reset_less=True)
        # Words of the vector memory written so far by the oldest operation whose results are outstanding.
        self._written = Signal(range(widest + 1))
        self._stream = Signal(self._manifest.parameters.stream_bits)
        self._suppress = Signal(reset_less=True)
        self._fields = {
            name: Signal(width, reset_less=True, name=f"op_{name}")
            for name, width in widths.items()
            if not name.startswith("source")
        }
        self._column = Signal.like(self._fields["columns"], reset_less=True)
        self._group = Signal.like(self._fields["groups"], reset_less=True)
        self._weight_row = Signal(self.weight_row.shape(), reset_less=True)
        self._vector_row = Signal(self.vector_row.shape(), reset_less=True)
        self._vector_start = Signal(self.vector_row.shape(), reset_less=True)
        self._vector_base = Signal(self.vector_row.shape(), reset_less=True)
        self._context = Signal(self.vector_row.shape(), reset_less=True)
        self._drain_left = Signal(widths["drain_beats"])
        # Operations whose results are not all written: two at most, with prefetch the last layer's and the
        # next step's first. The third bit is spare.
        self._outstanding = Signal(3)
        self._idle_left = Signal(widths["idle_cycles"])
        self._blank = Signal()
        states = self._states
        self._zero_state = Signal(states, init=-1)
        self._partials_invalid = Signal(states, init=-1)
        # Which half of the ping-pong buffer holds the first layer's current h.
        self._copy = Signal(states)

    def _tables(self, m: Module) -> None:
        """Look up the next operation's fields."""
        if not self._loadable:
            self._table = field_lookup(m, self._next, self._field_values(), "next")
            return
        row = Mux(self.program_window, self.window_row, self._upcoming)
        spec = memories(self._manifest)["program, issued"]
        self._table, write = field_memory(m, spec, row, self._field_widths(), "program")
        m.d.comb += [
            write.addr.eq(self.window_row),
            write.data.eq(self.program_data),
            write.en.eq(self.program_write),
            self.program_word.eq(Cat(self._table.values())),
        ]

    @property
    def _states(self) -> int:
        """How many states there are, each with bits of its own: one per stream."""
        return self._manifest.parameters.streams

    def _of(self, bits: Signal, stream: Value | None = None) -> Value:
        """A stream's bit, the current one's if none is named."""
        return bits.bit_select(self._stream if stream is None else stream, 1) if len(bits) > 1 else bits[0]

    def _same(self, stream: Value) -> Value:
        """Whether this is the current stream."""
        return stream == self._stream if self._manifest.parameters.streams > 1 else Const(1)

    def _conditions(self, m: Module) -> None:
        """What this cycle does."""
        fields = self._fields
        self._listening = Signal()
        self._redirect = Signal()
        self._advance = Signal()
        self._load = Signal()
        self._flips = Signal()
        self._ends_step = Signal()
        self._last_op = fields["ends"] | (fields["ends_suppressed"] & self._suppress_now)
        m.d.comb += [
            self._advance.eq(self._valid & self._last_word),
            self._load.eq(self._advance | (self._loading & ~self._load_stopped)),
            self._listening.eq(self._listens()),
            self._redirect.eq(self._begins_elsewhere()),
            self._flips.eq(self._advance & fields["writes_other"]),
            self._ends_step.eq(self._advance & self._last_op),
        ]

    def _listens(self) -> Value:
        """Whether an operation waits for a step's input."""
        return self._open & self._fields["waits_for_input"] & ~self._loading

    def _begins_elsewhere(self) -> Value:
        """Whether the step that is there begins with another operation than the one that is loaded."""
        # Of the complete input's stream, which a lone beat shows before it is the current one.
        invalid = self._of(self._partials_invalid, self.input_stream)
        return self._listening & self.input_full & invalid & ~self.window_wanted & (self._idle_left == 0)

    @property
    def _suppress_now(self) -> Value:
        """Whether the current step's output is not wanted."""
        return Mux(self._fields["from_input"], self.input_suppress, self._suppress)

    @property
    def _suppress_next(self) -> Value:
        """The same of the step that the next operation belongs to."""
        return Mux(
            self._fields["from_input"] | self._table["waits_for_input"], self.input_suppress, self._suppress
        )

    def _issue(self, m: Module) -> None:
        """Walk the words of an operation."""
        fields = self._fields
        wraps = self._valid & self._last_column
        m.d.sync += [
            self._weight_row.eq(self._weight_row + self._valid),
            self._vector_row.eq(Mux(wraps, self._vector_start, self._vector_row + self._valid)),
        ]
        with m.If(self._drain_left != 0):
            m.d.sync += self._drain_left.eq(self._drain_left - 1)
        with m.If(self._valid):
            m.d.sync += [
                self._begin.eq(0),
                self._word.eq(self._word_next),
                self._word_next.eq(self._word_next + 1),
            ]
            with m.If(self._last_column):
                drain_beats = Mux(self._last_group, fields["last_drain_beats"], fields["drain_beats"])
                m.d.sync += [
                    self._open.eq(0),
                    self._column.eq(fields["columns"]),
                    self._last_column.eq(fields["single"]),
                    self._last_word.eq(fields["single"] & (self._group == 1)),
                    self._group.eq(self._group - 1),
                    self._last_group.eq(self._group == 1),
                    self._drain_left.eq(drain_beats - 1),
                ]
            with m.Else():
                m.d.sync += [
                    self._column.eq(self._column - 1),
                    self._last_column.eq(self._column == 1),
                    self._last_word.eq((self._column == 1) & self._last_group),
                ]
        # An operation that is issued again keeps the room it has.
        m.d.sync += self._reserved.eq((self._reserved | self.emits) & ~self.output)
        m.d.comb += [
            self.token.valid.eq(self._valid),
            self.token.last.eq(self._last_column),
            self.token.group_first.eq(self._group == fields["groups"]),
            self.token.group_last.eq(self._last_group),
            self.token.op.eq(self._pc),
            self.token.stream.eq(self._stream),
            self.token.zero_state.eq(self._of(self._zero_state)),
            self.token.copy.eq(
                (fields["writes_current"] & self._of(self._copy))
                | (fields["writes_other"] & ~self._of(self._copy))
            ),
            self.token.suppress.eq(self._suppress_now),
            self.weight_row.eq(self._weight_row),
            self.vector_row.eq(self._vector_row),
            self.vector_base.eq(self._vector_base),
            self.from_input.eq(fields["from_input"]),
            self.relu.eq(fields["relu"]),
            self.blank.eq(self._blank),
            self.output.eq(self._advance & fields["emit"]),
            self.emits.eq(self._valid & self._begin & fields["emit"] & ~self._suppress_now & ~self._reserved),
            self.abandons.eq(self.window | (self._redirect & (self._word != 0))),
            self.input_taken.eq(self._advance & fields["from_input"]),
        ]

    def _next_operation(self, m: Module) -> None:
        """Load the following operation when one ends, at a redirect, and after the window."""
        table = self._table
        input_row = self._input_row()
        second = self._of(self._copy) ^ self._flips
        start = Signal.like(self._vector_row, name="next_vector_row")
        m.d.comb += start.eq(Mux(second, table["source_copied"], table["source"]))
        m.d.comb += self._upcoming.eq(Mux(self._load, self._successor(table), self._successor(self._fields)))
        m.d.sync += self._next.eq(self._upcoming)
        with m.If(self._load):
            m.d.sync += [register.eq(table[name]) for name, register in self._fields.items()]
            m.d.sync += [
                self._pc.eq(self._next),
                self._begin.eq(1),
                self._open.eq(1),
                self._word.eq(0),
                self._word_next.eq(1),
                self._loading.eq(0),
                self._column.eq(table["columns"]),
                self._last_column.eq(table["single"]),
                self._last_word.eq(table["single"] & (table["groups"] == 0)),
                self._group.eq(table["groups"]),
                self._last_group.eq(table["groups"] == 0),
                self._weight_row.eq(table["weights"]),
                self._vector_row.eq(start),
                self._vector_start.eq(start),
                self._vector_base.eq(Mux(table["from_input"], input_row, self._context)),
            ]
        with m.If(self._redirect):
            m.d.comb += self._upcoming.eq(self._redirect_target(m))
            m.d.sync += self._loading.eq(1)
        with m.If(self.window | self._load_stopped):
            m.d.comb += self._upcoming.eq(self._step["body"])
        with m.If(self.window):
            m.d.sync += [
                self._loading.eq(1),
                self._weight_row.eq(self.window_row),
                self._vector_row.eq(self.window_row),
                self._vector_base.eq(0),
            ]

    def _input_row(self) -> Value:
        """First word of the input of the operation that comes next."""
        # What follows an operation that reads the input reads the next input, if any.
        taken = self._fields["from_input"] & ~self._loading
        return Mux(self.input_bank ^ taken, self._manifest.program.input_words, 0)

    def _redirect_target(self, m: Module) -> Value:
        """The operation that a stream with invalid partial sums begins with."""
        return Const(0, len(self._next))

    def _successor(self, op: Mapping[str, Value]) -> Value:
        """The operation after this or the next one; after a step's last, the next step's first."""
        step, this = self._step, op is self._fields
        # While an operation reads the input, or one is loaded that does, the next step's is the other.
        other = self._fields["from_input"] | (0 if this else op["from_input"])
        next_bank = self.input_bank ^ other
        same = self._same(self.halves_streams.word_select(next_bank, len(self._stream)))
        there = self.halves_full.bit_select(next_bank, 1) & same & ~self.window_wanted
        ends = self._last_op if this else op["ends"] | (op["ends_suppressed"] & self._suppress_next)
        first = Mux(there & step["prefetches"], step["prefetch"], 0)
        return Mux(ends, first, op["follows"])

    def _admit_next(self, m: Module) -> None:
        """Decide whether a word is issued in the next cycle.

        This cycle is one of four cases: it loads an operation (``loaded``), issues a word that ends a group
        (``wraps``), issues another word (``goes_on``), or issues none (``waits``). The readiness of all four
        is computed side by side, and the case selects among them last: its signals arrive latest.
        The input of a stream with invalid partial sums is never ready, nor is any while the window is
        wanted.
        """
        fields, table = self._fields, self._table
        draining, idle_done = self._drain_left > 1, self._idle_left <= 1
        loaded = self._vector_ready("loaded") & self._input_ready("loaded")
        kept = self._reserved & (self._loading | ~fields["emit"])
        loaded = loaded & (~table["emit"] | self.room | kept)
        # Before an operation that is loaded, the last group of another has ended, or none at all.
        loaded = Mux(
            self._loading,
            loaded & ~(table["single"] & draining),
            loaded & ~(table["single"] & ~fields["last_one_beat"]) & (fields["idle_cycles"] == 0),
        )
        wraps = idle_done & ~(fields["single"] & ~fields["one_beat"])
        goes_on = ~self._open | (self._vector_ready("goes_on") & self._input_ready("goes_on"))
        goes_on = goes_on & idle_done & ~((self._column == 1) & draining)
        waits = ~self._open | (self._vector_ready("waits") & self._input_ready("waits"))
        waits = waits & (~self._begin | ~fields["emit"] | self.room | self._reserved)
        waits = waits & idle_done & ~(self._last_column & draining)
        issued = Mux(self._last_column, Mux(self._last_group, loaded, wraps), goes_on)
        loaded_now = loaded & ~self._load_stopped
        m.d.sync += self._valid.eq(Mux(self._loading, loaded_now, Mux(self._valid, issued, waits)))
        with m.If(self._advance):
            m.d.sync += self._idle_left.eq(self._fields["idle_cycles"])
        with m.Elif(self._idle_left != 0):
            m.d.sync += self._idle_left.eq(self._idle_left - 1)

    def _beyond(self, case: Case, count: Signal) -> Value:
        """Whether a count has passed the word that comes next.

        ``_word_next`` is a register of its own: an adder in front of the comparison would be too slow.
        """
        if case == "loaded":
            return count != 0
        return _exceeds(count, self._word_next if case == "goes_on" else self._word)

    def _vector_ready(self, case: Case) -> Value:
        op = self._table if case == "loaded" else self._fields
        # An operation is loaded when the one before ends, but for the first.
        stores = self._fields["stores"] & ~self._loading if case == "loaded" else 0
        newer = self._outstanding + stores
        return (
            ~op["waits_for_results"]
            | (newer <= op["newer_results"])
            | ((newer == op["newer_results"] + 1) & self._beyond(case, self._written))
        )

    def _input_ready(self, case: Case) -> Value:
        op = self._table if case == "loaded" else self._fields
        known = self.input_coming & self._beyond(case, self.input_words)
        grown = {
            "loaded": 1,
            "goes_on": _exceeds(self.input_words, self._word),
            "waits": ~_exceeds(self._word, self.input_words),
        }
        there = known | (self.input_grows & grown[case]) | self.input_full | self.input_fills
        # With this cycle the current stream's recurrent part may be ready.
        prepared = self._fields["prepares"] & ~self._loading & self._same(self.input_stream)
        precomputed = ~self._of(self._partials_invalid, self.input_stream) | (
            prepared if case == "loaded" else 0
        )
        return ~op["waits_for_input"] | (there & precomputed & ~self.window_wanted)

    def _streams(self, m: Module) -> None:
        """Keep, per stream, where its state stands and whether its recurrent part is ready."""
        program = self._manifest.program
        listens = self._listening | (self._load & self._table["waits_for_input"])
        stream = Mux(listens, self.input_stream, self._stream)
        sizes = [i * program.vector_context for i in range(self._manifest.parameters.streams)]
        m.d.sync += [
            self._stream.eq(stream),
            self._context.eq(lookup(m, stream, sizes, "context")),
            self._suppress.eq(self._suppress_now),
        ]
        with m.If(self._prepared):
            m.d.sync += [self._of(self._partials_invalid).eq(0), self._blank.eq(0)]
        with m.If(self._flips):
            m.d.sync += self._of(self._copy).eq(~self._of(self._copy))
        with m.If(self._ends_step):
            m.d.sync += self._of(self._zero_state).eq(0)
        with m.If(self._redirect):
            m.d.sync += self._blank.eq(self._of(self._zero_state, self.input_stream))
        commanded = self.command_stream
        with m.If(self.reset_stream | self.state_written):
            m.d.sync += [
                self._zero_state.bit_select(commanded, 1).eq(self.reset_stream),
                self._partials_invalid.bit_select(commanded, 1).eq(1),
                self._copy.bit_select(commanded, 1).eq(0),
            ]
        with m.If(self.weights_written):
            m.d.sync += self._partials_invalid.eq(-1)
        m.d.comb += self.flags.eq(
            Cat(
                bits.bit_select(commanded, 1)
                for bits in (self._zero_state, self._partials_invalid, self._copy)
            )
        )

    @property
    def _prepared(self) -> Value:
        """The stream's recurrent operations, which store its partial sums, are issued with this word."""
        return self._advance & self._fields["prepares"]

    def _track_activity(self, m: Module) -> None:
        """Count results under way, and cycles until whatever was issued has left the pipeline."""
        manifest = self._manifest
        stores = self._advance & self._fields["stores"]
        m.d.sync += self._outstanding.eq(self._outstanding + stores - self.result_last)
        with m.If(self.result_last):
            m.d.sync += self._written.eq(0)
        with m.Elif(self.result_word):
            m.d.sync += self._written.eq(self._written + 1)
        ops, parameters = manifest.program.ops, manifest.parameters
        drain_beats = (
            parameters.drain_beats(parameters.lanes) if self._loadable else max(op.drain_beats for op in ops)
        )
        # A word's last result can be read ``results`` + ``drain_beats`` cycles after it; two are spare.
        depth = max(op.results for op in ops) + drain_beats + 2
        left, drained = Signal(range(depth + 1)), Signal(init=1)
        # A redirect loads an operation in the next cycle, and its first word may be issued in the one after.
        m.d.sync += drained.eq(~self._valid & (left <= 1) & ~self._redirect)
        with m.If(self._valid):
            m.d.sync += left.eq(depth)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        between_steps = (self._open & self._fields["waits_for_input"]) | self._load_stopped
        m.d.comb += self.idle.eq(between_steps & drained & ~self._valid & ~self._redirect)

    def _field_values(self) -> dict[str, list[int]]:
        """Per field of the operation register, its value in every operation."""
        return issue_fields(self._manifest.program)

    def _field_widths(self) -> dict[str, int]:
        """Widths of these fields."""
        if self._loadable:
            return issue_widths(self._manifest.parameters)
        return {name: max(1, *values).bit_length() for name, values in self._field_values().items()}


def _exceeds(a: Value, b: Value) -> Value:
    """Whether ``a > b``, bit by bit from the top: ``above``, a larger bit was seen; ``equal``, none differed.

    Without a carry chain, whose delay synthesis does not see when it balances logic.
    """
    width = max(len(a), len(b))
    above: Value = Const(0, 1)
    equal: Value = Const(1, 1)
    for bit in reversed(range(width)):
        one = a[bit] if bit < len(a) else Const(0, 1)
        other = b[bit] if bit < len(b) else Const(0, 1)
        above, equal = above | (equal & one & ~other), equal & ~(one ^ other)
    return above


def _vector_bits(manifest: Manifest) -> int:
    program = manifest.program
    words = manifest.parameters.streams * program.vector_context
    inputs = 2 * program.input_words if manifest.sequence is None else manifest.sequence.rows
    return row_bits(max(words, inputs))
