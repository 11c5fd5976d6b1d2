"""Whole sequences: the memory that passes read and write, and what leads the core through them."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.stream import Interface as Stream

from rtlstm.hdl.component import In, Out, Struct
from rtlstm.hdl.core.layouts import (
    as_vector,
    input_beats,
    output_beats,
    result_layout,
    row_bits,
    stream_bits,
)
from rtlstm.hdl.core.ports import OutputQueue
from rtlstm.hdl.core.program_store import CorePart, program_store
from rtlstm.hdl.primitives.pipeline import ReadPort, WritePort, delay, delay_event, lookup, storage
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest


def _widths_differ(manifest: Manifest) -> bool:
    """Whether outputs have other bits than the values that the memory keeps."""
    return manifest.numerics.output_bits != manifest.numerics.data_bits


class _Phase(enum.Enum):
    LOAD = 0
    WAIT = 1
    COMPUTE = 2
    GIVE = 3


class SequenceMemory(CorePart):
    """Takes a sequence in, lets every pass read one half of it and write the other, gives the output.

    Outputs that are wider than other results have a memory for their upper bits.

    Latency and throughput: :mod:`rtlstm.spec.program.sequences`, exact. It takes an input beat a
    cycle; a pass's steps are announced one after the other, in turns of its parts, forward ones from the
    first step and reverse ones from the last; results are stored in the cycle after they come.
    """

    x: Stream = In(input_beats)
    """The port; see ``docs/ports.md``."""
    hold: Signal = In(1)
    """No sequence is to begin."""
    computing: Signal = Out(1)
    busy: Signal = Out(1)
    """Passes are under way; or there is a sequence whose output has not been given."""
    part: Signal = Out(lambda manifest: row_bits(len(manifest.sequence.parts)))
    stream: Signal = Out(stream_bits)
    base: Signal = Out(lambda manifest: row_bits(manifest.sequence.rows))
    there: Signal = Out(1)
    """The next step: its part, its stream, and the first word of its input; it may begin."""
    begun: Signal = In(1)
    """It has begun; what is announced in this cycle is the same still."""
    row: Signal = In(lambda manifest: row_bits(manifest.sequence.rows))
    word: Signal = Out(lambda manifest: manifest.parameters.macs * manifest.numerics.data_bits)
    """Clocked read, one or two cycles later, as that of the vector memory."""
    result: Struct = In(result_layout)
    values: Signal = In(lambda manifest: manifest.parameters.gate_units * manifest.numerics.result_bits)
    """Results being written, ``gate_units`` side by side."""
    last_pass: Signal = Out(lambda manifest: 1 if _widths_differ(manifest) else None)
    """They are those of the last pass, from two cycles after the last result of the one before on. Only where
    outputs have other bits than the words of the memory."""
    y: Stream = Out(output_beats)
    """The port."""
    pushed_last: Signal = Out(1)
    since: Signal = Out(32)
    now: Signal = In(32)
    """A step's last beat leaves; the cycle of the last input beat; the cycle counter."""
    step: Struct = In(lambda manifest: program_store(manifest).step_layout)
    """What is loaded of a step."""

    def __init__(self, manifest: Manifest) -> None:
        assert manifest.sequence is not None
        self._plan = manifest.sequence
        self._specs = memories(manifest)
        self._rows = row_bits(self._plan.rows)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        plan = self._plan
        self._phase = Signal(_Phase)
        # Rows of the first half, or relative to their half's first.
        self._last_row = Signal(self._rows, reset_less=True)
        self._steps = Signal(range(plan.steps), reset_less=True)
        memory = self._specs["sequence memory"]
        self._read, self._write = storage(m, memory, "memory")
        self._suppress_read, self._suppress_write = storage(m, self._specs["suppressed outputs"], "suppress")
        upper = self._specs.get("upper outputs")
        self._upper = None if upper is None else storage(m, upper, "upper")
        self._load(m)
        collected = self._collect(m)
        self._announce(m, collected)
        self._give(m, memory.latency)
        m.d.comb += [
            self.computing.eq(self._phase == _Phase.COMPUTE),
            self.busy.eq(self._phase != _Phase.LOAD),
            self.word.eq(self._read.data),
        ]
        with m.If((self._phase == _Phase.WAIT) & ~self.hold):
            m.d.sync += self._phase.eq(_Phase.COMPUTE)
        return m

    def _store(self, m: Module, enable: Value, row: Value, slot: Value, data: Value, ends: Value) -> None:
        """Write values side by side at a place of a word; a step's last ones clear the rest of it."""
        slot_count = len(self.word) // len(data)
        each = len(self._write.en) // slot_count
        m.d.comb += [
            self._write.addr.eq(row),
            self._write.data.eq(Cat(Mux(slot == i, data, 0) for i in range(slot_count))),
            self._write.en.eq(
                Cat((enable & ((slot == i) | (ends & (slot < i)))).replicate(each) for i in range(slot_count))
            ),
        ]

    def _load(self, m: Module) -> None:
        """Take a sequence in, to the first half."""
        manifest, plan = self._manifest, self._plan
        beat, macs = manifest.parameters.beat_in, manifest.parameters.macs
        inputs, words = manifest.program.inputs, manifest.program.input_words
        beats = -(-inputs // beat)
        left, slot = Signal(range(beats), init=beats - 1), Signal(range(macs // beat))
        row, first = Signal(self._rows), Signal(self._rows)
        step = Signal(range(plan.steps))
        x, accepted = self.x.payload, self.x.valid & self.x.ready
        last_beat = left == 0
        last_values = (inputs - 1) % beat + 1
        data = as_vector(manifest, x.data)
        keep = Mux(last_beat, (1 << len(data) // beat * last_values) - 1, -1)
        ends_word = slot == macs // beat - 1
        with m.If(self._phase == _Phase.LOAD):
            self._store(m, accepted, row, slot, (data & keep)[: len(data)], last_beat)
        m.d.comb += [
            self.x.ready.eq((self._phase == _Phase.LOAD) & ~ResetSignal()),
            self._suppress_write.addr.eq(step),
            self._suppress_write.data.eq(x.suppress),
            self._suppress_write.en.eq(accepted & last_beat),
        ]
        ends = x.last | (step == plan.steps - 1)
        self._loaded_step = accepted & last_beat & ~ends
        with m.If(accepted):
            m.d.sync += [
                left.eq(Mux(last_beat, beats - 1, left - 1)),
                slot.eq(Mux(last_beat | ends_word, 0, slot + 1)),
                row.eq(Mux(last_beat, first + plan.row_words, row + ends_word)),
                self.stream.eq(x.stream),
            ]
            with m.If(last_beat):
                m.d.sync += [step.eq(step + 1), first.eq(first + plan.row_words)]
                # A sequence ends where the memory does.
                with m.If(ends):
                    m.d.sync += [
                        self._phase.eq(_Phase.WAIT),
                        self._last_row.eq(first),
                        self._steps.eq(step),
                        self.since.eq(self.now),
                        *(register.eq(0) for register in (step, first, row)),
                    ]
        assert words <= plan.row_words

    def _walk(self, m: Module, name: str, advance: Value, half: int) -> tuple[Signal, Value, Value, Value]:
        """Walk through all passes, a part's step at a time, in the half that a pass reads (0) or writes (1).

        Returns the part, its step's first row, whether the step ends its pass, and all passes.
        """
        plan, parts = self._plan, self._plan.parts
        size = plan.steps * plan.row_words
        part = Signal(len(self.part), name=f"{name}_part")
        left = Signal.like(self._steps, name=f"{name}_left", reset_less=True)
        front, back = (Signal(self._rows, name=f"{name}_{end}", reset_less=True) for end in ("front", "back"))
        halves = [size * ((one.number + half) % 2) for one in parts]
        count = range(len(parts))
        closes = lookup(m, part, [int(one.closes) for one in parts], f"{name}_closes")
        back_to_front = [int(one.reverse and not (half and one.reversed_output)) for one in parts]
        reverse = lookup(m, part, back_to_front, f"{name}_reverse")
        follows = lookup(m, part, [plan.follows(index) for index in count], f"{name}_follows")
        following = lookup(m, part, [(index + 1) % len(parts) for index in count], f"{name}_next")
        next_half = lookup(m, part, [halves[(index + 1) % len(parts)] for index in count], f"{name}_half")
        ends_pass = closes & (left == 0)
        with m.If(advance):
            m.d.sync += part.eq(Mux(ends_pass, following, follows))
            with m.If(closes):
                m.d.sync += [
                    left.eq(left - 1),
                    front.eq(front + plan.row_words),
                    back.eq(back - plan.row_words),
                ]
            with m.If(ends_pass):
                m.d.sync += [left.eq(self._steps), front.eq(next_half), back.eq(next_half + self._last_row)]
        with m.If(self._phase == _Phase.WAIT):
            m.d.sync += [
                left.eq(self._steps),
                front.eq(halves[0]),
                back.eq(self._last_row + halves[0]),
            ]
        return part, Mux(reverse, back, front), ends_pass, ends_pass & (following == 0)

    def _announce(self, m: Module, collected: Value) -> None:
        """Say what the next step is; a pass begins when all results of the one before are stored."""
        part, base, ends_pass, ends_all = self._walk(m, "issue", self.begun, 0)
        more = Signal()
        m.d.comb += [self.part.eq(part), self.base.eq(base)]
        with m.If(self.begun & ends_pass):
            m.d.sync += [self.there.eq(0), more.eq(~ends_all)]
        with m.If(collected & more):
            m.d.sync += self.there.eq(1)
        with m.If((self._phase == _Phase.WAIT) & ~self.hold):
            m.d.sync += self.there.eq(1)

    def _collect(self, m: Module) -> Value:
        """Store results; return whether a pass's last one has come."""
        manifest, plan = self._manifest, self._plan
        units, slots = (
            manifest.parameters.gate_units,
            manifest.parameters.macs // manifest.parameters.gate_units,
        )
        come = self.result.valid & self.result.emit
        part, base, ends_pass, ends_all = self._walk(m, "store", come & self.result.last, 1)
        word = lookup(m, part, [one.first_beat // slots for one in plan.parts], "store_word")
        first_slot = lookup(m, part, [one.first_beat % slots for one in plan.parts], "store_slot")
        closes = lookup(m, part, [int(one.closes) for one in plan.parts], "store_ends")
        # Which of its step's results comes next.
        begins, row, slot = Signal(init=1), Signal(self._rows), Signal(range(slots))
        here, there = Signal(range(slots)), Signal(self._rows)
        m.d.comb += [here.eq(Mux(begins, first_slot, slot)), there.eq(Mux(begins, base + word, row))]
        wraps = here == slots - 1
        values = self.values & Cat(bit.replicate(len(self.values) // units) for bit in self.result.mask)
        decoded = {
            "enable": come,
            "row": there,
            "slot": here,
            "data": self._slices(values, 0, manifest.numerics.data_bits),
            "ends": self.result.last & closes,
        }
        registers = {name: Signal(len(value), name=f"store_{name}") for name, value in decoded.items()}
        m.d.sync += [registers[name].eq(value) for name, value in decoded.items()]
        with m.If(self._phase != _Phase.LOAD):
            self._store(m, **registers)
        with m.If(come):
            m.d.sync += [
                begins.eq(self.result.last),
                slot.eq(Mux(wraps, 0, here + 1)),
                row.eq(there + wraps),
            ]
        if _widths_differ(manifest):
            last = len(plan.passes) - 1
            in_last = lookup(m, part, [int(one.number == last) for one in plan.parts], "store_last")
            m.d.sync += self.last_pass.eq(in_last)
        if self._upper is not None:
            self._store_upper(m, self._upper[1], come & self.last_pass, values)
        collected: Value = come & self.result.last & ends_pass
        with m.If(collected & ends_all):
            m.d.sync += self._phase.eq(_Phase.GIVE)
        return collected

    def _slices(self, values: Value, start: int, stop: int) -> Value:
        """Return these bits of each of the values that stand side by side."""
        units = self._manifest.parameters.gate_units
        width = len(values) // units
        if (start, stop) == (0, width):
            return values
        return Cat(values.word_select(unit, width)[start:stop] for unit in range(units))

    def _store_upper(self, m: Module, write: WritePort, come: Value, values: Value) -> None:
        """Store the upper bits of the last pass's results, a step's beats in rows one after the other."""
        numerics, (part,) = self._manifest.numerics, self._plan.passes[-1]
        beats = self._plan.output_beats
        row = Signal.like(write.addr, name="upper_row")
        m.d.comb += [
            write.addr.eq(delay(m, row, 1)),
            write.data.eq(delay(m, self._slices(values, numerics.data_bits, numerics.result_bits), 1)),
            write.en.eq(delay_event(m, come, 1)),
        ]
        back_to_front = part.reverse and not part.reversed_output
        if back_to_front:
            # While a sequence comes in, this counts to its last step.
            with m.If(self._loaded_step):
                m.d.sync += row.eq(row + beats)
        with m.If(come):
            m.d.sync += row.eq(row + (Mux(self.result.last, 1 - 2 * beats, 1) if back_to_front else 1))
        with m.If(self._phase == _Phase.GIVE):
            m.d.sync += row.eq(0)

    def _read_upper(self, m: Module, read: ReadPort, giving: Value, passes: Value) -> Value:
        """Read the upper bits of the outputs, beat by beat, without those of steps that are passed over."""
        row = Signal.like(read.addr, name="upper_read")
        with m.If(giving):
            m.d.sync += row.eq(row + 1)
        with m.Elif(passes):
            m.d.sync += row.eq(row + self._plan.output_beats)
        with m.If(self._phase != _Phase.GIVE):
            m.d.sync += row.eq(0)
        m.d.comb += read.addr.eq(row)
        return read.data

    def _give(self, m: Module, stages: int) -> None:
        """Give the output of all steps that is wanted."""
        manifest, plan = self._manifest, self._plan
        units, slots = (
            manifest.parameters.gate_units,
            manifest.parameters.macs // manifest.parameters.gate_units,
        )
        m.submodules.queue = queue = OutputQueue(manifest)
        first = (len(plan.passes) % 2) * plan.steps * plan.row_words
        looked, giving = Signal(), Signal()
        step, base, row = Signal(range(plan.steps)), Signal(self._rows), Signal(self._rows)
        slot, beat = Signal(range(slots)), Signal(range(plan.output_beats))
        active = self._phase == _Phase.GIVE
        decides = active & looked & ~giving
        last = beat == plan.output_beats - 1
        passes = Signal()
        m.d.comb += [
            queue.emits.eq(decides & ~self._suppress_read.data & queue.room),
            passes.eq((decides & self._suppress_read.data) | (giving & last)),
            self._suppress_read.addr.eq(step),
            self._read.addr.eq(Mux(active, row, self.row)),
        ]
        m.d.sync += looked.eq(active & ~passes)
        with m.If(queue.emits):
            m.d.sync += giving.eq(1)
        with m.If(giving):
            wraps = slot == slots - 1
            m.d.sync += [beat.eq(beat + 1), slot.eq(Mux(wraps, 0, slot + 1)), row.eq(row + wraps)]
        with m.If(passes):
            following = base + plan.row_words
            m.d.sync += [giving.eq(0), step.eq(step + 1), base.eq(following), row.eq(following)]
            m.d.sync += [beat.eq(0), slot.eq(0)]
            with m.If(step == self._steps):
                m.d.sync += self._phase.eq(_Phase.LOAD)
        with m.If(~active):
            m.d.sync += [step.eq(0), base.eq(first), row.eq(first)]
        # The word comes ``stages`` cycles after its row, and what is picked of it one later.
        picked = delay(m, slot, stages)
        width = len(self.word) // slots
        values: Value = Array(self.word.word_select(i, width) for i in range(slots))[picked]
        if _widths_differ(manifest):
            kept = Signal(width, name="kept")
            m.d.comb += kept.eq(values)
            values = self._slices(kept, 0, min(width // units, manifest.numerics.output_bits))
        if self._upper is not None:
            upper = self._read_upper(m, self._upper[0], giving, passes)
            fields = (values, upper)
            values = Cat(
                field.word_select(unit, len(field) // units) for unit in range(units) for field in fields
            )
        pushes = delay_event(m, giving, stages + 1)
        m.d.comb += [
            queue.values.eq(delay(m, values, 1)),
            queue.result.valid.eq(pushes),
            queue.result.emit.eq(1),
            queue.result.last.eq(delay(m, giving & last, stages + 1)),
            queue.result.mask.eq(self._given_mask(m, giving & last, stages + 1)),
            queue.result.stream.eq(self._given_stream(m, active)),
            self.pushed_last.eq(queue.pushed_last),
        ]
        self._program.drive(m, [queue.step.eq(self.step)])
        wiring.connect(m, queue.y, wiring.flipped(self.y))

    def _given_mask(self, m: Module, last: Value, stages: int) -> Value:
        """Which results of a beat are outputs: where it is decided, words past the end are none."""
        units = self._manifest.parameters.gate_units
        left = (self._manifest.classes - 1) % units + 1
        if not self._manifest.parameters.decide or left == units:
            return Const(-1, units)
        return Mux(delay(m, last, stages), Const((1 << left) - 1, units), Const(-1, units))

    def _given_stream(self, m: Module, active: Value) -> Signal:
        """The stream whose output is given: the next sequence's may be known before all of it has left."""
        stream = Signal.like(self.stream, name="given_stream", reset_less=True)
        with m.If(active):
            m.d.sync += stream.eq(self.stream)
        return stream
