"""Selects what leaves the array, one beat per cycle, and says where each beat belongs.

No sums pass through here: ``Preactivation`` holds the datapath, and this part its selects and addresses.
A beat is what the units take in one cycle: ``gate_units`` units of an LSTM layer, or as many dense outputs.
A group whose last word is issued in cycle ``n`` drains from ``S = n + parameters.summed`` on; its beat ``k``
(0, 1, ...), with one beat per cycle:

=========================================  ============================================================
cycle                                      what happens
=========================================  ============================================================
S - 3 (once per group)                     the group's last word arrives as ``token``
S - 2, S - 1                               its operation's fields; first rows of each memory, with the
                                           stream's offset; whether it has a first beat
S + k                                      ``shift_row`` and ``addend_row``: addresses of the beat
S + k + 1                                  ``blocks`` or ``lanes`` select its totals in the array
S + k + collect + narrow + scale           ``next_beat``, a cycle before its rounded pre-activations
=========================================  ============================================================

With ``unit_copies``, all of this is a cycle earlier, and units see copies of it in these cycles.

``cell_row`` comes three cycles before a unit uses the old state. If the results of a beat fill several words
of the vector memory, the next beat comes as many cycles later.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.data import View

from rtlstm.hdl.component import In, Out, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import DelayLine, beat_layout, row_bits, token_layout
from rtlstm.hdl.core.program_store import ProgramPart, program_store
from rtlstm.hdl.primitives.pipeline import delay, delay_event, lookup
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import BEAT_FLAGS
from rtlstm.spec.registers import Region


class Drain(ProgramPart):
    """Counts the beats of every group and the memory rows that go with them.

    An LSTM layer's beat is a block: the four totals of each of its ``gate_units`` units. A dense
    layer's beat is one lane of four: a block drains in four cycles.

    Latency: with a group's last word issued in cycle ``n`` and ``S = n + summed``, beat ``k`` has
    its memory rows in cycle ``S + k``, ``blocks`` and ``lanes`` in the cycle after that, and
    ``next_beat`` a cycle before its pre-activations are ready. Throughput: one beat per cycle, or one in
    ``words_per_beat`` cycles if its results are stored.

    """

    token: Struct = In(lambda fields: token_layout(fields.manifest))
    """The array's word three cycles before its products' sum stands in a register, or four with
    ``unit_copies``."""
    blocks: Signal = Out(lambda fields: fields.manifest.parameters.blocks)
    lanes: Signal = Out(lambda fields: 4 * fields.manifest.parameters.blocks)
    """One-hot: the block whose held totals are an LSTM layer's beat; the block, and the lane in each four,
    whose total is a dense layer's."""
    shift_row: Signal = Out(lambda fields: row_bits(fields.manifest.regions[Region.SHIFTS].rows))
    addend_row: Signal = Out(lambda fields: row_bits(fields.manifest.regions[Region.PARTIALS].rows))
    """Rows of the shift and partial-sum memories."""
    next_beat: Struct = Out(lambda fields: beat_layout(fields.manifest))
    """What comes out of the rounding in the next cycle."""
    cell_row: Signal = Out(lambda fields: beat_layout(fields.manifest)["cell_row"].shape)
    cell_zero_state: Signal = Out(1)
    """Row of the cell memory, in time for the beat's gates; whether the stream's state is zero."""
    result_last: Signal = Out(1)
    result_word: Signal = Out(1)
    """An operation's last result, or one that completes a word of the vector memory, will be there two cycles
    more than ``parameters.ahead()`` later; of operations whose results are stored."""
    window: Signal = In(1)
    window_block: Signal = In(lambda fields: fields.manifest.parameters.blocks)
    """While the memory window is open, all read ports look at its row, and this is what ``blocks`` is."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._parameters = manifest.parameters
        self._program = program_store(manifest)
        self._shared = (*BEAT_FLAGS, *manifest.numerics.unit.beat_fields)
        super().__init__(self._program.drained)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tokens = DelayLine(m, token_layout(self._manifest), self.token, "token", 2)
        self._of_op = self._program.read_drained(m, self, self.window, tokens.at(0).op)
        # Of the word at the line's end: it ends a group; that is its operation's first.
        ends, opens = Signal(), Signal()
        ending = tokens.at(1).valid & tokens.at(1).last
        opening = ending & tokens.at(1).group_first
        m.d.sync += [ends.eq(ending), opens.eq(opening)]
        beat = self._sequence(m, tokens, ends, opens, opening)
        self._choose(m, ends, beat)
        depth = self._parameters.preactivation - self._parameters.summed
        early = depth + self._manifest.timing.state - 3
        beats = DelayLine(m, beat_layout(self._manifest), beat, "beat", max(depth, early))
        m.d.comb += [
            self.cell_row.eq(beats.at(early).cell_row),
            self.cell_zero_state.eq(beats.at(early).zero_state),
            self.next_beat.eq(beats.at(depth - 1)),
        ]
        if self._parameters.wave_front:
            # What is announced is waited for, also if it is not stored.
            given = beats.at(depth - 1)
            m.d.comb += self.next_beat.valid.eq(given.valid & ~given.bubble)
        self._announce_results(m, beats, depth)
        return m

    def _announce_results(self, m: Module, beats: DelayLine, depth: int) -> None:
        """Tell the sequencer of results to come, from registers: it is far.

        A word that reads them is issued ``parameters.ahead()`` cycles before they are there, which is decided
        a cycle before.
        """
        timing, parameters = self._manifest.timing, self._parameters
        last_slot = parameters.macs // parameters.values_stored - 1
        several = parameters.words_per_beat > 1
        lasts, words, masks = [], [], list[Value]()
        kinds = {timing.of_units, timing.of_rows, timing.of_linear_rows}
        norms = self._manifest.numerics.unit.norms is not None
        for cycles in kinds | ({timing.of_norms} if norms else set()):
            results = parameters.preactivation + cycles
            stage = results - parameters.summed - parameters.ahead(results) - 3 + parameters.unit_copies
            beat, later = beats.at(min(stage, depth)), max(0, stage - depth)
            function = beat.sigmoid | beat.tanh
            of_beat = Mux(
                beat.lstm,
                timing.of_units == cycles,
                Mux(function, timing.of_rows == cycles, timing.of_linear_rows == cycles),
            )
            if norms:
                of_beat = Mux(beat.norm, timing.of_norms == cycles, of_beat)
            stores = beat.valid & beat.store & of_beat
            lasts.append(delay_event(m, stores & beat.last, later))
            words.append(delay_event(m, stores & (beat.slot == last_slot), later))
            if several:
                masks.append(delay_event(m, beat.mask & stores.replicate(len(beat.mask)), later))
        last, word = any_of(lasts), any_of(words)
        if several:
            last, word = self._words_of_beat(m, last, word, any_of(masks))
        m.d.sync += [self.result_last.eq(last), self.result_word.eq(word)]

    def _words_of_beat(self, m: Module, last: Value, begins: Value, mask: Value) -> tuple[Value, Value]:
        """Return whether an operation's last word is stored, and whether any is; beats fill several words."""
        size = self._parameters.macs
        filled = Cat(mask[first : first + size].any() for first in range(size, len(mask), size))
        # The words that follow the one of this cycle, and whether they are the operation's last.
        following, ending = Signal(len(filled)), Signal(reset_less=True)
        after = Signal.like(following, name="after")
        is_last = Mux(begins, last, ending)
        m.d.comb += after.eq(Mux(begins, filled, following >> 1))
        m.d.sync += [following.eq(after), ending.eq(is_last)]
        word = begins | following[0]
        return word & is_last & ~after[0], word

    def _sequence(self, m: Module, tokens: DelayLine, ends: Signal, opens: Signal, opening: Value) -> Struct:
        """Count beats and their rows; a group's first beat is there as soon as it is summed.

        Whether there is a beat is decided one cycle ahead.
        """
        width = self._parameters.gate_units
        layout = beat_layout(self._manifest)
        beat = View(layout, Signal(layout, name="beat0"))
        shift_row = Signal.like(self.shift_row, reset_less=True)
        addend_row = Signal.like(self.addend_row, reset_less=True)
        partial_row, cell_row, row, slot = (
            Signal(beat[field].shape(), reset_less=True, name=field)
            for field in ("partial_row", "cell_row", "row", "slot")
        )
        last_mask = Signal(width, reset_less=True)
        in_last_group = Signal(reset_less=True)
        # What an operation's beats share: also which cell computes them, where there are several kinds.
        shared = Cat(beat[name] for name in self._shared)
        flags = Signal(len(shared), reset_less=True)

        # Beats of the word's group but for its first, and what remains of the group that drains.
        beats, last_count = self._of_op["more"], self._of_op["last_more"]
        more, remaining = (
            Signal(len(beats), reset_less=True, name="more"),
            Signal(len(beats), name="remaining"),
        )
        m.d.sync += more.eq(Mux(tokens.at(1).group_last, last_count, beats))
        valid, last = Signal(name="has_beat"), Signal(reset_less=True, name="is_last_beat")
        *firsts, first_row, first_mask, first_flags = self._bases(m, tokens)
        store = BEAT_FLAGS.index("store")
        # Constants have no bits for flags that no operation has.
        follows = self._follows(m, ends, remaining != 0, Mux(opens, first_flags, flags)[store])
        m.d.sync += [
            last.eq(Mux(ends, tokens.at(2).group_last & (more == 0), in_last_group & (remaining == 1))),
            remaining.eq(Mux(ends, more, remaining - follows)),
        ]
        stored = self._parameters.values_stored
        wraps = slot == self._parameters.macs // stored - 1
        # The counters' enable (a beat is there, or a group opens) is a register, too: it goes far.
        moves, has_next = Signal(reset_less=True), ends | follows
        m.d.sync += [valid.eq(has_next), moves.eq(has_next | opening)]
        counters = (shift_row, addend_row, partial_row, cell_row)
        with m.If(moves):
            m.d.sync += [
                *(
                    counter.eq(Mux(opens, base, counter + 1))
                    for counter, base in zip(counters, firsts, strict=True)
                ),
                slot.eq(Mux(opens | wraps, 0, slot + 1)),
                row.eq(Mux(opens, first_row, row + Mux(wraps, self._parameters.words_per_beat, 0))),
            ]
        with m.If(opens):
            m.d.sync += [last_mask.eq(first_mask), flags.eq(first_flags)]
        with m.If(ends):
            m.d.sync += in_last_group.eq(tokens.at(2).group_last)
        with m.If(self.window):
            m.d.sync += [register.eq(self.window_row) for register in (shift_row, addend_row, cell_row)]
        m.d.comb += [
            self.shift_row.eq(shift_row),
            self.addend_row.eq(addend_row),
            beat.valid.eq(valid),
            beat.last.eq(last),
            beat.mask.eq(Mux(last, last_mask, -1)),
            beat.partial_row.eq(partial_row),
            beat.cell_row.eq(cell_row),
            beat.row.eq(row),
            beat.slot.eq(slot),
            shared.eq(flags),
        ]
        zero_state, stream = Signal(reset_less=True), Signal.like(beat.stream, reset_less=True)
        suppress = Signal(reset_less=True)
        with m.If(ends):
            token = tokens.at(2)
            m.d.sync += [
                zero_state.eq(token.zero_state),
                stream.eq(token.stream),
                suppress.eq(token.suppress),
            ]
        m.d.comb += [beat.zero_state.eq(zero_state), beat.stream.eq(stream)]
        if self._parameters.wave_front:
            bubble = Signal(reset_less=True)
            with m.If(ends):
                m.d.sync += bubble.eq(tokens.at(2).bubble)
            m.d.comb += beat.bubble.eq(bubble)
        with m.If(suppress):
            m.d.comb += beat.emit.eq(0)
        return beat

    def _follows(self, m: Module, ends: Signal, remain: Value, stores: Value) -> Value:
        """Return whether the next cycle has another beat of a group: the words of the last are stored."""
        cycles = self._parameters.words_per_beat
        if cycles == 1:
            return remain
        left = Signal(range(cycles), name="words_left")
        follows = remain & (left == 0)
        with m.If(ends | follows):
            m.d.sync += left.eq(Mux(stores, cycles - 1, 0))
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        return follows

    def _bases(self, m: Module, tokens: DelayLine) -> list[Value]:
        """Find an operation's first rows: its own, then the stream's offset, two cycles after the token."""
        program, of_op = self._manifest.program, self._of_op
        streams, stream = range(self._parameters.streams), tokens.at(0).stream[: self._parameters.stream_bits]

        def offset(name: str, size: int) -> Signal:
            value = lookup(m, stream, [index * size for index in streams], f"{name}_stream")
            register = Signal.like(value, reset_less=True, name=f"{name}_of_stream")
            m.d.sync += register.eq(value)
            return register

        partials_row = offset("partials_row", program.partials_context)
        bases = [
            of_op["shift"],
            of_op["addend"] + Mux(of_op["adds"], partials_row, 0),
            of_op["partials_row"] + partials_row,
            of_op["cell"] + offset("cell", program.cell_context),
            Mux(tokens.at(1).copy, of_op["other_row"], of_op["row"]) + offset("row", program.vector_context),
            of_op["last_mask"],
            of_op["flags"],
        ]
        return [delay(m, base, 1) for base in bases]

    def _choose(self, m: Module, ends: Signal, beat: Struct) -> None:
        """Step through an LSTM layer's blocks, or a dense layer's lanes, behind a group's last word."""
        starts = Signal()
        blocks, lanes = Signal.like(self.blocks, reset_less=True), Signal.like(self.lanes, reset_less=True)
        m.d.sync += starts.eq(ends)
        # Beats that come one by one have no other cycle between them.
        with m.If(starts | beat.valid if self._parameters.words_per_beat > 1 else Const(1)):
            m.d.sync += [
                blocks.eq(Mux(starts, ~beat.dense, blocks << 1)),
                lanes.eq(Mux(starts, beat.dense, lanes << 1)),
            ]
        with m.If(self.window):
            m.d.sync += [blocks.eq(self.window_block), lanes.eq(0)]
        m.d.comb += [self.blocks.eq(blocks), self.lanes.eq(lanes)]
