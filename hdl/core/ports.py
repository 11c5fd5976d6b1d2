"""The data ports: input beats to the array's words, results to output beats."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import fifo
from amaranth.lib.stream import Interface as Stream

from rtlstm.hdl.component import In, Out, Struct
from rtlstm.hdl.core.decision import Decision, Ranking
from rtlstm.hdl.core.layouts import (
    as_vector,
    from_number,
    output_beats,
    result_layout,
    row_bits,
    row_stream,
    stream_bits,
)
from rtlstm.hdl.core.probabilities import Probabilities
from rtlstm.hdl.core.program_store import CorePart, program_store
from rtlstm.hdl.primitives.pipeline import delay, delay_event, storage
from rtlstm.spec.inventory import memories, steps_held
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import NETWORK_BIT


class InputBuffer(CorePart):
    """Holds two steps' inputs, so that one can arrive while the other is read.

    Latency: a step whose last beat is accepted in cycle ``n`` has ``full`` set, and can be read,
    in cycle ``n + 1``; with ``pipeline.accept``, it can be read in the cycle after that. Positions past
    the input's end read as zero.
    """

    x: Stream = In(row_stream)
    """The port, or the rows of its tokens; see ``docs/ports.md``."""
    row: Signal = In(lambda manifest: row_bits(2 * manifest.program.input_words))
    word: Signal = Out(lambda manifest: manifest.parameters.macs * manifest.numerics.data_bits)
    """Clocked read: the word of ``row``, one or two cycles later, as that of the vector memory."""
    full: Signal = Out(1)
    coming: Signal = Out(1)
    words: Signal = Out(lambda manifest: range(manifest.program.input_words + 1))
    bank: Signal = Out(1)
    """The next input is complete; it is not, but what arrives is part of it; how many words of what arrives
    are complete; the next input's half of the buffer."""
    filled: Signal = Out(1)
    coming_number: Signal = Out(lambda manifest: range(steps_held(manifest)))
    """An input is complete with this cycle; the number of the one that arrives, among those whose output is
    wanted."""
    grows: Signal = Out(1)
    fills: Signal = Out(1)
    stream: Signal = Out(stream_bits)
    suppress: Signal = Out(1)
    """One more of its words is complete with this cycle; so is all of it; its stream, as known with this
    cycle; and whether its output is not wanted. With ``pipeline.accept`` nothing of this is known before the
    cycle after a beat."""
    halves_full: Signal = Out(2)
    halves_streams: Signal = Out(lambda manifest: 2 * stream_bits(manifest))
    """Whether each half holds a complete input, and of which stream."""
    taken: Signal = In(1)
    """It has been read."""
    step: Struct = In(lambda manifest: program_store(manifest).step_layout)
    stopped: Signal = In(1)
    """What is loaded of a step. While stopped, nothing is accepted and what was is forgotten."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = self._manifest.program.input_words
        beat, macs = self._manifest.parameters.beat_in, self._manifest.parameters.macs
        several = self._program.several
        accept = self._manifest.parameters.pipeline.accept
        width = self._manifest.numerics.data_bits * beat
        read, write = storage(m, memories(self._manifest)["input buffer"], "memory")
        full, streams = (
            Signal(2, name="full_halves"),
            Array(Signal.like(self.stream, name=f"stream{i}") for i in (0, 1)),
        )
        suppress = Array(Signal(name=f"suppress{i}", reset_less=True) for i in (0, 1))
        bank_in, bank_out = Signal(name="bank_in"), Signal(name="bank_out")
        x, first = self.x.payload, Signal(init=1, name="first_beat")
        stream: Value = from_number(self._manifest, x.stream)
        if several:
            # A step's first beat says whose it is.
            stream = Mux(first, stream, streams[bank_in])
        step = self._program.fields_of(self.step, stream[self._manifest.parameters.stream_bits :])
        after = step.beats_after
        # How many beats follow the next, whether that is an input's last, whether there is room for it;
        # whether no half is full: then there is room for one more than this.
        begins = self._program.at_reset["beats_after"]
        left = Signal(len(after), init=begins)
        last_beat = Signal(init=begins == 0)
        follow, ends = (
            (Mux(first, after, left), Mux(first, after == 0, last_beat)) if several else (left, last_beat)
        )
        ready, empty = Signal(init=1, name="ready"), Signal(init=1, name="empty")
        row, slot = Signal(range(words), name="row_in"), Signal(range(macs // beat), name="slot")
        # In reset nothing is offered room; what the registers do then does not matter.
        # Which network a beat is of is only known where there is one.
        open_ = (
            ready & ~(self.x.valid & ~step.present) if several else self._program.unless(self.stopped, ready)
        )
        accepted = self.x.valid & open_
        same_bank = Signal(init=1)
        for_next = accepted & same_bank
        fills = accepted & ends
        m.d.sync += [
            same_bank.eq(same_bank ^ fills ^ self.taken),
            ready.eq(self.taken | Mux(fills, empty, ready)),
            empty.eq(~fills & Mux(self.taken, ready & ~empty, empty)),
        ]
        # What is heard of a beat before its registers show it: with ``accept`` nothing, for a short way.
        news = for_next if accept == 0 else Const(0)
        ends_word = slot == macs // beat - 1
        data = Signal(width)
        # Where a word is not read in the next cycle, it is written from registers: the port is far.
        word = Cat(Mux(slot == i, data, 0) for i in range(macs // beat))
        enable = Cat(accepted & ((slot == 0) | (slot == i)) for i in range(macs // beat))
        keep = Cat((~ends | bit).replicate(width // beat) for bit in step.last_beat)
        m.d.comb += [
            self.x.ready.eq(~ResetSignal() & open_),
            data.eq(as_vector(self._manifest, x.data) & keep),
            write.addr.eq(delay(m, row + Mux(bank_in, words, 0), accept)),
            # A word's first beat clears the rest of it, so that no position stays undefined.
            write.data.eq(delay(m, word, accept)),
            write.en.eq(delay_event(m, enable, accept)),
            read.addr.eq(self.row),
            self.word.eq(read.data),
            self.full.eq(full.bit_select(bank_out, 1)),
            self.coming.eq(same_bank),
            self.words.eq(row),
            self.grows.eq(news & ends_word),
            self.fills.eq(news & ends),
            self.stream.eq(Mux(news, stream, streams[bank_out])),
            # Not before it is needed: an operation of several words outlasts the cycle in which it comes.
            self.suppress.eq(Mux(news & step.one_word, x.suppress, suppress[bank_out])),
            self.halves_full.eq(full),
            self.halves_streams.eq(Cat(*streams)),
            self.bank.eq(bank_out),
            self.filled.eq(fills),
        ]
        m.d.sync += self.coming_number.eq(self.coming_number + (fills & ~x.suppress))
        with m.If(self.taken):
            m.d.sync += [full.bit_select(bank_out, 1).eq(0), bank_out.eq(~bank_out)]
        with m.If(accepted):
            m.d.sync += [
                left.eq(follow - 1),
                last_beat.eq((follow == 1) | (after == 0)),
                slot.eq(Mux(ends_word, 0, slot + 1)),
                row.eq(row + ends_word),
                streams[bank_in].eq(stream),
                suppress[bank_in].eq(x.suppress),
            ]
            if several:
                m.d.sync += first.eq(ends)
            with m.If(ends):
                m.d.sync += [
                    full.bit_select(bank_in, 1).eq(1),
                    bank_in.eq(~bank_in),
                    left.eq(after),
                    slot.eq(0),
                    row.eq(0),
                ]
        self._program.when(
            m,
            self.stopped,
            [
                *(register.eq(0) for register in (full, bank_in, bank_out, slot, row)),
                *(register.eq(1) for register in (same_bank, ready, empty)),
                left.eq(after),
                last_beat.eq(after == 0),
            ],
        )
        return m


class OutputQueue(CorePart):
    """Packs emitted results into beats and queues two steps of them, or more.

    Where the device decides, the decision takes the place of a step's results, so many cycles later.

    Latency: a beat whose last result is written in cycle ``n`` is offered in cycle ``n + 1`` if
    the queue is empty. The sequencer reserves a step's beats before it starts the operation that
    emits them, so results never find the queue full.
    """

    result: Struct = In(result_layout)
    values: Signal = In(lambda manifest: manifest.parameters.gate_units * manifest.numerics.output_bits)
    """Results being written, ``gate_units`` side by side."""
    y: Stream = Out(output_beats)
    """The port; see ``docs/ports.md``."""
    emits: Signal = In(1)
    room: Signal = Out(1)
    """Reserve a step's beats; whether there is room for them."""
    releases: Signal = In(1)
    """A step's beats that were reserved will not come: another program is loaded. Nothing is reserved in this
    cycle, nor was in the one before."""
    pushed_last: Signal = Out(1)
    """A step's last beat enters the queue."""
    step: Struct = In(lambda manifest: program_store(manifest).step_layout)
    """What is loaded of a step."""
    network: Signal = In(lambda manifest: manifest.parameters.network_bits or None)
    """The network of the step that reserves, where there are several."""

    def __init__(self, manifest: Manifest) -> None:
        self._memory = memories(manifest)["output queue"]
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters = self._manifest.parameters
        units = parameters.gate_units
        width, beat = len(self.values), parameters.beat_out // units
        several, depth = self._program.several, self._memory.depth
        step = self._program.fields_of(self.step, self.network if several else 0)
        beats = step.beats_out
        m.submodules.queue = queue = fifo.SyncFIFO(width=self._memory.width, depth=depth)
        slot, packed = Signal(range(beat)), Signal(len(self.y.payload.data))
        full = Signal(len(packed))
        result, values = self.result, self.values
        if parameters.decide:
            kind = {"argmax": Decision, "softmax": Probabilities}.get(parameters.decide, Ranking)
            m.submodules.decision = decision = kind(self._manifest)
            m.d.comb += [decision.result.eq(result), decision.values.eq(values)]
            result, values = decision.decided, decision.number
        valid = Cat(bit.replicate(width // units) for bit in result.mask)
        value = Signal(width)
        emitted = result.valid & result.emit
        ends = (slot == beat - 1) | result.last
        m.d.comb += [
            value.eq(values & valid),
            full.eq(packed | Cat(Mux(slot == i, value, 0) for i in range(beat))),
            queue.w_en.eq(emitted & ends),
            queue.w_data.eq(Cat(full, result.stream, result.last)),
            self.pushed_last.eq(emitted & result.last),
            self._offered.eq(queue.r_data),
            self.y.valid.eq(queue.r_rdy & ~ResetSignal()),
            # The queue itself gives nothing while it is empty.
            queue.r_en.eq(self.y.ready & ~ResetSignal()),
        ]
        with m.If(emitted):
            m.d.sync += [slot.eq(Mux(ends, 0, slot + 1)), packed.eq(Mux(ends, 0, full))]
        credits = Signal(range(depth + 1), init=depth)
        # What is reserved or taken in a cycle is counted in the next; so is what is left of it.
        reserved, taken, room = Signal(len(beats) if several else 1), Signal(), Signal(init=1)
        if several:
            # Which network the next step is of is known late: there is to be room for that of any.
            most = -(-self._manifest.capacity.outputs // self._manifest.parameters.beat_out)
            being, reserves = Value.cast(reserved), Mux(self.emits, beats, 0)
            for_one, for_two = credits >= reserved + most, (reserved == 0) & (credits >= beats + most)
        else:
            being, reserves = Mux(reserved, beats, 0), self.emits
            for_one = credits >= Mux(reserved, beats << 1, beats)
            for_two = ~reserved & (credits >= beats << 1)
        used = self._program.choose(self.releases, -beats, being)
        m.d.sync += [
            reserved.eq(reserves),
            taken.eq(self.y.valid & self.y.ready),
            credits.eq(credits + taken - used),
            room.eq(Mux(self.emits, for_two, for_one)),
        ]
        m.d.comb += self.room.eq(room)
        return m

    @property
    def _offered(self) -> Value:
        """The queue's word at the port."""
        y = self.y.payload
        if not self._program.several:
            return Value.cast(y)
        bits = self._manifest.parameters.stream_bits
        network = y.stream[NETWORK_BIT : NETWORK_BIT + self._manifest.parameters.network_bits]
        return Cat(y.data, y.stream[:bits], network, y.last)
