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

    The recurrent operations follow a step at once and prepare the next one; the body's first
    operation then waits for input. A stream whose state was reset or written from outside has its
    recurrent operations run again first. In an operation's first group, each word waits until it
    stands in the vector memory or the input buffer; the first word also waits for room for the
    output. A group's last word waits until the drain is free.

    Members
    -------
    token : Out
        The word being issued, beside its three addresses.
    weight_row, vector_row : Out
        Addresses of the word.
    from_input, relu, blank : Out(1)
        Of the word: read the input buffer; apply ReLU; read zeros.
    input_valid, input_words, input_stream, input_bank : In
        The next input is complete; how many of its words are; its stream; its half of the buffer.
    input_taken : Out(1)
        The operation that reads the input has been issued.
    room : In(1), emits, output : Out(1)
        The output has room for a whole step; an operation that will need it begins, or is issued.
    result_last, result_word : In(1)
        An operation's last result is being written, or one that completes a word of the vector
        memory.
    window_wanted, window : In(1), window_row : In
        The memory window waits for the core to be idle: no step begins. It is open: addresses
        follow its row.
    reset_stream, state_written : In(1)
        The stream ``command_stream`` starts from zero, or from what was written.
    weights_written : In(1)
        Every stream's recurrent part must be computed anew.
    idle : Out(1)
        Nothing is issued, under way or parked any more.
    flags : Out(2)
        Of ``command_stream``: zero state; recurrent part not ready.
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
                "input_valid": In(1),
                "input_words": In(range(manifest.program.input_words + 1)),
                "input_stream": In(streams),
                "input_bank": In(1),
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
                "flags": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._registers()
        self._conditions(m)
        self._issue(m)
        self._next_operation(m)
        self._streams(m)
        self._quiet(m)
        return m

    def _registers(self) -> None:
        program = self._manifest.program
        ops = program.ops
        self._pc = Signal(range(len(ops)))
        self._next = Signal(range(len(ops)), init=program.body)
        self._loading = Signal(init=1)
        self._begin = Signal()
        self._open = Signal()
        self._word = Signal(range(max(op.columns for op in ops) + 1), reset_less=True)
        self._written = Signal(range(max(op.columns for op in ops) + 1))
        self._stream = Signal(stream_bits(self._manifest))
        self._fields = {
            name: Signal(range(max(1, *values) + 1), reset_less=True, name=f"op_{name}")
            for name, values in _field_values(self._manifest).items()
        }
        self._column = Signal.like(self._fields["columns"], reset_less=True)
        self._group = Signal.like(self._fields["groups"], reset_less=True)
        self._weight_row = Signal(self.weight_row.shape(), reset_less=True)
        self._vector_row = Signal(self.vector_row.shape(), reset_less=True)
        self._vector_start = Signal(self.vector_row.shape(), reset_less=True)
        self._drain_left = Signal(range(max(op.items for op in ops) + 1))
        self._outstanding = Signal(3)
        self._settle = Signal(range(program.settle + 1))
        self._blank = Signal()
        self._fresh = Signal(self._manifest.parameters.streams, init=-1)
        self._stale = Signal(self._manifest.parameters.streams, init=-1)

    def _conditions(self, m: Module) -> None:
        """Decide whether this cycle issues a word."""
        fields = self._fields
        self._last_column = Signal()
        self._last_group = Signal()
        self._waits_input = Signal()
        self._cold = Signal()
        self._valid = Signal()
        self._advance = Signal()
        ready = self.input_valid & ~self.window_wanted & (self._settle == 0)
        stale = self._stale.bit_select(self.input_stream, 1)
        partly = (self.input_words > self._word) & ~self.window_wanted & (self._settle == 0)
        written = (self._outstanding == 0) | (self._written > self._word)
        blocked = (
            self._open & ((fields["fence"] & ~written) | (fields["from_input"] & (~(ready | partly) | stale)))
            | self._begin & fields["emit"] & ~self.room
        )
        drain_busy = self._last_column & (self._drain_left != 0)
        m.d.comb += [
            self._last_column.eq(self._column == 0),
            self._last_group.eq(self._group == 0),
            self._waits_input.eq(self._open & fields["from_input"]),
            self._cold.eq(self._waits_input & ~self._loading & ready & stale),
            self._valid.eq(~self._loading & ~blocked & ~drain_busy),
            self._advance.eq(self._valid & self._last_column & self._last_group),
        ]

    def _issue(self, m: Module) -> None:
        """Walk the words of an operation."""
        fields = self._fields
        stream = self._current_stream()
        with m.If(self._drain_left != 0):
            m.d.sync += self._drain_left.eq(self._drain_left - 1)
        with m.If(self._valid):
            m.d.sync += [
                self._begin.eq(0),
                self._word.eq(self._word + 1),
                self._weight_row.eq(self._weight_row + 1),
            ]
            with m.If(self._last_column):
                m.d.sync += self._open.eq(0)
                items = Mux(self._last_group, fields["last_items"], fields["items"])
                m.d.sync += [
                    self._column.eq(fields["columns"]),
                    self._vector_row.eq(self._vector_start),
                    self._group.eq(self._group - 1),
                    self._drain_left.eq(items - 1),
                ]
            with m.Else():
                m.d.sync += [
                    self._column.eq(self._column - 1),
                    self._vector_row.eq(self._vector_row + 1),
                ]
        m.d.comb += [
            self.token.valid.eq(self._valid),
            self.token.first.eq(self._column == fields["columns"]),
            self.token.last.eq(self._last_column),
            self.token.group_first.eq(self._group == fields["groups"]),
            self.token.group_last.eq(self._last_group),
            self.token.op.eq(self._pc),
            self.token.stream.eq(stream),
            self.token.fresh.eq(self._fresh.bit_select(stream, 1)),
            self.weight_row.eq(self._weight_row),
            self.vector_row.eq(self._vector_row),
            self.from_input.eq(fields["from_input"]),
            self.relu.eq(fields["relu"]),
            self.blank.eq(self._blank),
            self.output.eq(fields["emit"]),
            self.emits.eq(self._valid & self._begin & fields["emit"]),
            self.input_taken.eq(self._advance & fields["from_input"]),
        ]

    def _current_stream(self) -> Value:
        return Mux(self._waits_input, self.input_stream, self._stream)

    def _next_operation(self, m: Module) -> None:
        """Load the following operation when one ends, when a stream is cold, after the window."""
        program = self._manifest.program
        table = {
            name: lookup(m, self._next, values, f"next_{name}")
            for name, values in _field_values(self._manifest).items()
        }
        sizes = [i * program.vector_context for i in range(self._manifest.parameters.streams)]
        context = lookup(m, self._current_stream(), sizes, "context")
        bank = Mux(self.input_bank, program.input_words, 0)
        start = Signal.like(self._vector_row, name="next_vector_row")
        m.d.comb += start.eq(table["source"] + Mux(table["from_input"], bank, context))
        with m.If(self._waits_input & self._valid | self._cold):
            m.d.sync += self._stream.eq(self.input_stream)
        with m.If(self._advance | self._loading):
            m.d.sync += [register.eq(table[name]) for name, register in self._fields.items()]
            m.d.sync += [
                self._pc.eq(self._next),
                self._next.eq(Mux(self._next == len(program.ops) - 1, 0, self._next + 1)),
                self._begin.eq(1),
                self._open.eq(1),
                self._word.eq(0),
                self._loading.eq(0),
                self._column.eq(table["columns"]),
                self._group.eq(table["groups"]),
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

    def _streams(self, m: Module) -> None:
        """Keep, per stream, whether its state is zero and whether its recurrent part is ready."""
        program = self._manifest.program
        prepared = self._advance & (self._pc == program.body - 1)
        stepped = self._advance & (self._pc == len(program.ops) - 1)
        with m.If(self._settle != 0):
            m.d.sync += self._settle.eq(self._settle - 1)
        with m.If(prepared):
            m.d.sync += [
                self._stale.bit_select(self._stream, 1).eq(0),
                self._settle.eq(program.settle),
            ]
        with m.If(stepped):
            m.d.sync += self._fresh.bit_select(self._current_stream(), 1).eq(0)
        with m.If(self._cold):
            m.d.sync += self._blank.eq(self._fresh.bit_select(self.input_stream, 1))
        with m.If(prepared):
            m.d.sync += self._blank.eq(0)
        commanded = self.command_stream
        with m.If(self.reset_stream | self.state_written):
            m.d.sync += [
                self._fresh.bit_select(commanded, 1).eq(self.reset_stream),
                self._stale.bit_select(commanded, 1).eq(1),
            ]
        with m.If(self.weights_written):
            m.d.sync += self._stale.eq(-1)
        m.d.comb += self.flags.eq(
            Cat(self._fresh.bit_select(commanded, 1), self._stale.bit_select(commanded, 1))
        )

    def _quiet(self, m: Module) -> None:
        """Count results under way, and cycles until whatever was issued has left the pipeline."""
        manifest = self._manifest
        yields = Array(op.yields for op in manifest.program.ops)[self._pc]
        issued = self._advance & yields
        m.d.sync += self._outstanding.eq(self._outstanding + issued - self.result_last)
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
        m.d.comb += self.idle.eq(self._waits_input & (left == 0) & ~self._cold)


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
        "source": [op.source for op in ops],
        "weights": [op.weights for op in ops],
        "from_input": [int(op.from_input) for op in ops],
        "relu": [int(op.relu) for op in ops],
        "fence": [int(op.fence) for op in ops],
        "emit": [int(op.emit) for op in ops],
    }
