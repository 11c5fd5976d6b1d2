"""The sequencer: executes the program, one word of the array per cycle."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.layouts import row_bits, stream_bits, token_layout
from rtlstm.hdl.pipeline import lookup
from rtlstm.spec.manifest import Manifest

__all__ = ["Sequencer"]


class Sequencer(wiring.Component):
    """Issues the program's operations in order; :mod:`rtlstm.spec.schedule` is its exact model.

    The parking recurrent operations follow a step at once and prepare the next one; the body's first
    operation then waits for input. If a step ends with its stream's next input there, the program
    goes ahead with that instead. A stream whose state was reset or written from outside has its
    recurrent operations run again first. In an operation's first group, each word waits until it
    stands in the vector memory or the input buffer; the first word also waits for room for the
    output. A group's last word waits until the drain is free.

    Whether a word may be issued is decided one cycle ahead, so that little stands between two
    registers; what it depends on is announced a cycle ahead, too.

    Members
    -------
    token : Out
        The word being issued, beside its three addresses.
    weight_row, vector_row : Out
        Addresses of the word.
    from_input, relu, blank : Out(1)
        Of the word: read the input buffer; apply ReLU; read zeros.
    input_full, input_coming, input_words : In
        The next input is complete; it is not, but is coming, and so many of its words are complete.
    input_grows, input_fills : In(1)
        A word of it is complete with this cycle; so is all of it.
    input_stream, input_quiet : In
        Its stream and whether its output is not wanted, as known after this cycle.
    input_bank : In(1)
        Its half of the buffer.
    halves_full, halves_streams : In
        Of each half of the buffer, whether it holds a complete input, and of which stream.
    input_taken : Out(1)
        The operation that reads the input has been issued.
    room : In(1), emits, output : Out(1)
        The output has room for a whole step; an operation that will need it begins, or has ended.
    result_last, result_word : In(1)
        In the next cycle, an operation's last result will be written, or one that completes a word of
        the vector memory; of operations whose results are stored.
    window_wanted, window : In(1), window_row : In
        The memory window waits for the core to be idle: from the next cycle on no step begins. It is
        open: addresses follow its row.
    reset_stream, state_written : In(1)
        The stream ``command_stream`` starts from zero, or from what was written.
    weights_written : In(1)
        Every stream's recurrent part must be computed anew.
    idle : Out(1)
        Nothing is issued, under way or to be parked any more.
    flags : Out(3)
        Of ``command_stream``: zero state; recurrent part not ready; the first layer's h is in its
        second copy.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        streams = stream_bits(manifest)
        super().__init__(
            {
                "token": Out(token_layout(manifest)),
                "weight_row": Out(row_bits(manifest.program.weight_rows)),
                "vector_row": Out(_vector_bits(manifest)),
                "from_input": Out(1),
                "relu": Out(1),
                "blank": Out(1),
                "input_full": In(1),
                "input_coming": In(1),
                "input_words": In(range(manifest.program.input_words + 1)),
                "input_grows": In(1),
                "input_fills": In(1),
                "input_stream": In(streams),
                "input_quiet": In(1),
                "input_bank": In(1),
                "halves_full": In(2),
                "halves_streams": In(2 * streams),
                "input_taken": Out(1),
                "room": In(1),
                "emits": Out(1),
                "output": Out(1),
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
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._registers()
        self._tables(m)
        self._conditions(m)
        self._issue(m)
        self._next_operation(m)
        self._admit_next(m)
        self._streams(m)
        self._quiet_time(m)
        return m

    def _registers(self) -> None:
        program = self._manifest.program
        ops = program.ops
        widest = max(op.columns for op in ops)
        self._pc = Signal(range(len(ops)))
        self._next = Signal(range(len(ops)), init=program.body)
        self._loading = Signal(init=1)
        self._admitted = Signal()
        self._begin = Signal()
        self._open = Signal()
        self._last_column = Signal(reset_less=True)
        self._last_group = Signal(reset_less=True)
        self._drain_busy = Signal()
        self._word = Signal(range(widest + 1), reset_less=True)
        self._word_next = Signal(range(widest + 2), reset_less=True)
        self._written = Signal(range(widest + 1))
        self._stream = Signal(stream_bits(self._manifest))
        self._quiet = Signal(reset_less=True)
        self._fields = {
            name: Signal(range(max(1, *values) + 1), reset_less=True, name=f"op_{name}")
            for name, values in _field_values(self._manifest).items()
        }
        self._column = Signal.like(self._fields["columns"], reset_less=True)
        self._group = Signal.like(self._fields["groups"], reset_less=True)
        self._weight_row = Signal(self.weight_row.shape(), reset_less=True)
        self._vector_row = Signal(self.vector_row.shape(), reset_less=True)
        self._vector_start = Signal(self.vector_row.shape(), reset_less=True)
        self._context = Signal(self.vector_row.shape(), reset_less=True)
        self._drain_left = Signal(range(max(op.items for op in ops) + 1))
        self._outstanding = Signal(3)
        self._rest = Signal(range(max(1, *(op.rest for op in ops)) + 1))
        self._blank = Signal()
        streams = self._manifest.parameters.streams
        self._fresh = Signal(streams, init=-1)
        self._stale = Signal(streams, init=-1)
        self._copy = Signal(streams)

    def _tables(self, m: Module) -> None:
        """Look up the next operation's fields."""
        self._table = {
            name: lookup(m, self._next, values, f"next_{name}")
            for name, values in _field_values(self._manifest).items()
        }

    def _conditions(self, m: Module) -> None:
        """What this cycle does."""
        fields, program = self._fields, self._manifest.program
        self._listening = Signal()
        self._cold = Signal()
        self._valid = Signal()
        self._advance = Signal()
        self._load = Signal()
        self._flips = Signal()
        self._ends_step = Signal()
        stale = self._stale.bit_select(self._stream, 1)
        self._last_op = self._ends(m, self._pc, "this")
        m.d.comb += [
            self._valid.eq(self._admitted & ~(self._last_column & self._drain_busy)),
            self._advance.eq(self._valid & self._last_column & self._last_group),
            self._load.eq(self._advance | self._loading),
            self._listening.eq(self._open & fields["waits"] & ~self._loading),
            self._cold.eq(
                self._listening & self.input_full & stale & ~self.window_wanted & (self._rest == 0)
            ),
            self._flips.eq(self._advance & (self._pc == program.ahead + 1)),
            self._ends_step.eq(self._advance & self._last_op),
        ]

    def _ends(self, m: Module, index: Signal, name: str) -> Value:
        """Whether operation ``index``, this one or the next, is its step's last."""
        program = self._manifest.program
        ops = range(len(program.ops))
        loud = lookup(m, index, [int(program.follows(i) is None) for i in ops], f"{name}_ends")
        quiet = lookup(
            m, index, [int(program.follows(i, quiet=True) is None) for i in ops], f"{name}_ends_quiet"
        )
        return loud | (quiet & (self._now_quiet if name == "this" else self._next_quiet))

    @property
    def _now_quiet(self) -> Value:
        """Whether the current step's output is not wanted."""
        return Mux(self._fields["from_input"], self.input_quiet, self._quiet)

    @property
    def _next_quiet(self) -> Value:
        """The same of the step that the next operation belongs to."""
        return Mux(self._fields["from_input"] | self._table["waits"], self.input_quiet, self._quiet)

    def _issue(self, m: Module) -> None:
        """Walk the words of an operation."""
        fields = self._fields
        with m.If(self._drain_left != 0):
            m.d.sync += self._drain_left.eq(self._drain_left - 1)
        m.d.sync += self._drain_busy.eq(self._drain_left > 1)
        with m.If(self._valid):
            m.d.sync += [
                self._begin.eq(0),
                self._word.eq(self._word_next),
                self._word_next.eq(self._word_next + 1),
                self._weight_row.eq(self._weight_row + 1),
            ]
            with m.If(self._last_column):
                items = Mux(self._last_group, fields["last_items"], fields["items"])
                m.d.sync += [
                    self._open.eq(0),
                    self._column.eq(fields["columns"]),
                    self._last_column.eq(fields["columns"] == 0),
                    self._vector_row.eq(self._vector_start),
                    self._group.eq(self._group - 1),
                    self._last_group.eq(self._group == 1),
                    self._drain_left.eq(items - 1),
                    self._drain_busy.eq(items != 1),
                ]
            with m.Else():
                m.d.sync += [
                    self._column.eq(self._column - 1),
                    self._last_column.eq(self._column == 1),
                    self._vector_row.eq(self._vector_row + 1),
                ]
        m.d.comb += [
            self.token.valid.eq(self._valid),
            self.token.first.eq(self._column == fields["columns"]),
            self.token.last.eq(self._last_column),
            self.token.group_first.eq(self._group == fields["groups"]),
            self.token.group_last.eq(self._last_group),
            self.token.op.eq(self._pc),
            self.token.stream.eq(self._stream),
            self.token.fresh.eq(self._fresh.bit_select(self._stream, 1)),
            self.token.copy.eq(
                (fields["writes_current"] & self._copy.bit_select(self._stream, 1))
                | (fields["writes_other"] & ~self._copy.bit_select(self._stream, 1))
            ),
            self.token.quiet.eq(self._now_quiet),
            self.weight_row.eq(self._weight_row),
            self.vector_row.eq(self._vector_row),
            self.from_input.eq(fields["from_input"]),
            self.relu.eq(fields["relu"]),
            self.blank.eq(self._blank),
            self.output.eq(self._advance & fields["emit"]),
            self.emits.eq(self._valid & self._begin & fields["emit"] & ~self._now_quiet),
            self.input_taken.eq(self._advance & fields["from_input"]),
        ]

    def _next_operation(self, m: Module) -> None:
        """Load the following operation when one ends, when a stream is cold, after the window."""
        program, table = self._manifest.program, self._table
        # What follows an operation that reads the input reads the next input, if any.
        bank = Mux(self.input_bank ^ self._fields["from_input"], program.input_words, 0)
        source, copied = (lookup(m, self._next, values, name) for name, values in self._sources().items())
        second = self._copy.bit_select(self._stream, 1) ^ self._flips
        start = Signal.like(self._vector_row, name="next_vector_row")
        m.d.comb += start.eq(Mux(second, copied, source) + Mux(table["from_input"], bank, self._context))
        m.d.sync += self._next.eq(
            Mux(self._load, self._successor(m, self._next, "next"), self._successor(m, self._pc, "this"))
        )
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
                self._last_column.eq(table["columns"] == 0),
                self._group.eq(table["groups"]),
                self._last_group.eq(table["groups"] == 0),
                self._weight_row.eq(table["weights"]),
                self._vector_row.eq(start),
                self._vector_start.eq(start),
            ]
        with m.If(self._cold):
            m.d.sync += [self._next.eq(0), self._loading.eq(1)]
        with m.If(self.window):
            m.d.sync += [
                self._next.eq(program.body),
                self._loading.eq(1),
                self._weight_row.eq(self.window_row),
                self._vector_row.eq(self.window_row),
            ]

    def _sources(self) -> dict[str, list[int]]:
        """First words of the vectors read, if the first layer's h is in its first or second copy."""
        program = self._manifest.program
        return {
            "source": [op.source for op in program.ops],
            "source_copied": [op.source + program.copy_words * op.reads_copy for op in program.ops],
        }

    def _successor(self, m: Module, index: Signal, name: str) -> Value:
        """The operation after ``index``; after a step's last, the next step's first."""
        program = self._manifest.program
        # While an operation reads the input, or one is loaded that does, the next step's is the other.
        other = self._fields["from_input"] | (self._table["from_input"] if name == "next" else 0)
        place = self.input_bank ^ other
        same = self.halves_streams.word_select(place, len(self._stream)) == self._stream
        there = self.halves_full.bit_select(place, 1) & same & ~self.window_wanted
        after = [program.follows(i) or 0 for i in range(len(program.ops))]
        following = lookup(m, index, after, f"{name}_following")
        ends = self._last_op if name == "this" else self._ends(m, index, name)
        return Mux(ends, Mux(there, program.ahead, 0), following)

    def _admit_next(self, m: Module) -> None:
        """Decide whether a word may be issued in the next cycle, but for the drain."""
        fields, table = self._fields, self._table
        resting = Signal()
        stores = self._advance & fields["stores"]

        def beyond(count: Signal) -> Value:
            """Whether a count has passed the word that comes next."""
            return Mux(self._valid, count > self._word_next, count > self._word)

        def vector_ready(op: dict[str, Signal], first: bool) -> Value:
            newer = self._outstanding + (stores if first else 0)
            known = self._written != 0 if first else beyond(self._written)
            return ~op["fence"] | (newer <= op["behind"]) | ((newer == op["behind"] + 1) & known)

        def input_ready(op: dict[str, Signal], first: bool) -> Value:
            words = self.input_words
            known = words != 0 if first else beyond(words)
            grown = 1 if first else Mux(self._valid, words > self._word, words >= self._word)
            there = (
                (self.input_coming & known) | (self.input_grows & grown) | self.input_full | self.input_fills
            )
            stale = self._stale.bit_select(self.input_stream, 1)
            prepared = self._prepared & (self.input_stream == self._stream)
            return ~op["waits"] | (there & (~stale | prepared) & ~self.window_wanted)

        def output_ready(op: dict[str, Signal], first: bool) -> Value:
            return ~op["emit"] | self.room | (self._next_quiet if first else self._now_quiet)

        again = ~self._open | (self._valid & self._last_column)
        same = (again | (vector_ready(fields, False) & input_ready(fields, False))) & (
            ~self._begin | self._valid | output_ready(fields, False)
        )
        new = vector_ready(table, True) & input_ready(table, True) & output_ready(table, True)
        m.d.comb += resting.eq(Mux(self._advance, fields["rest"] != 0, self._rest > 1))
        m.d.sync += [
            self._admitted.eq(Mux(self._load, new, same) & ~resting & ~self.window & ~self._cold),
            self._rest.eq(Mux(self._advance, fields["rest"], Mux(self._rest != 0, self._rest - 1, 0))),
        ]

    def _streams(self, m: Module) -> None:
        """Keep, per stream, where its state stands and whether its recurrent part is ready."""
        program = self._manifest.program
        listens = self._listening | (self._load & self._table["waits"])
        stream = Mux(listens, self.input_stream, self._stream)
        sizes = [i * program.vector_context for i in range(self._manifest.parameters.streams)]
        m.d.sync += [
            self._stream.eq(stream),
            self._context.eq(lookup(m, stream, sizes, "context")),
            self._quiet.eq(self._now_quiet),
        ]
        with m.If(self._prepared):
            m.d.sync += [self._stale.bit_select(self._stream, 1).eq(0), self._blank.eq(0)]
        with m.If(self._flips):
            m.d.sync += self._copy.bit_select(self._stream, 1).eq(~self._copy.bit_select(self._stream, 1))
        with m.If(self._ends_step):
            m.d.sync += self._fresh.bit_select(self._stream, 1).eq(0)
        with m.If(self._cold):
            m.d.sync += self._blank.eq(self._fresh.bit_select(self._stream, 1))
        commanded = self.command_stream
        with m.If(self.reset_stream | self.state_written):
            m.d.sync += [
                self._fresh.bit_select(commanded, 1).eq(self.reset_stream),
                self._stale.bit_select(commanded, 1).eq(1),
                self._copy.bit_select(commanded, 1).eq(0),
            ]
        with m.If(self.weights_written):
            m.d.sync += self._stale.eq(-1)
        m.d.comb += self.flags.eq(
            Cat(bits.bit_select(commanded, 1) for bits in (self._fresh, self._stale, self._copy))
        )

    @property
    def _prepared(self) -> Value:
        """The stream's parking recurrent operations have been issued with this word."""
        return self._advance & (self._pc == self._manifest.program.body - 1)

    def _quiet_time(self, m: Module) -> None:
        """Count results under way, and cycles until whatever was issued has left the pipeline."""
        manifest = self._manifest
        stores = self._advance & self._fields["stores"]
        m.d.sync += self._outstanding.eq(self._outstanding + stores - self.result_last)
        with m.If(self.result_last):
            m.d.sync += self._written.eq(0)
        with m.Elif(self.result_word):
            m.d.sync += self._written.eq(self._written + 1)
        depth = manifest.parameters.hidden_result
        depth += max(op.items for op in manifest.program.ops) + 2
        left = Signal(range(depth + 1))
        with m.If(self._valid):
            m.d.sync += left.eq(depth)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        waits = self._open & self._fields["waits"]
        m.d.comb += self.idle.eq(waits & (left == 0) & ~self._valid & ~self._cold)


def _vector_bits(manifest: Manifest) -> int:
    program = manifest.program
    words = manifest.parameters.streams * program.vector_context
    return row_bits(max(words, 2 * program.input_words))


def _field_values(manifest: Manifest) -> dict[str, list[int]]:
    """Per field of the operation register, its value in every operation."""
    ops = manifest.program.ops
    return {
        "columns": [op.columns - 1 for op in ops],
        "groups": [op.groups - 1 for op in ops],
        "items": [op.items for op in ops],
        "last_items": [op.last_items for op in ops],
        "weights": [op.weights for op in ops],
        "rest": [op.rest for op in ops],
        "behind": [op.behind for op in ops],
        "from_input": [int(op.from_input) for op in ops],
        "waits": [int(op.from_input and not op.parks) for op in ops],
        "relu": [int(op.relu) for op in ops],
        "fence": [int(op.fence) for op in ops],
        "emit": [int(op.emit) for op in ops],
        "stores": [int(op.destination is not None) for op in ops],
        "writes_current": [int(op.writes_copy == "current") for op in ops],
        "writes_other": [int(op.writes_copy == "other") for op in ops],
    }
