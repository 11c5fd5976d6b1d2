"""Converts bytes to the core's input, and its output to bytes."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream

from rtlstm.hdl.component import In, Out
from rtlstm.hdl.core.layouts import input_beats, output_beats
from rtlstm.hdl.core.program_store import StepPart, count_values, program_store
from rtlstm.spec.link import NUMBER_MASK, STREAM_MASK, SUPPRESS, value_bytes
from rtlstm.spec.manifest import Manifest


class StepFeeder(StepPart):
    """Passes steps that come as bytes to the core."""

    i: stream.Interface = In(stream.Signature(8))
    cut: Signal = In(1)
    """No more bytes come: a step that was begun is completed with zeros, or dropped if the core has no part
    of it."""
    between: Signal = Out(1)
    hungry: Signal = Out(1)
    """No step is in progress; a byte is needed to continue."""
    unknown: Signal = Out(1)
    """The core has no such stream, or not its network; for one cycle, in which the step is dropped."""
    given: Signal = Out(1)
    with_output: Signal = Out(1)
    """A step has been given to the core, for one cycle; its output is wanted."""
    x: stream.Interface = Out(input_beats)
    """To the core."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inputs, beat = self._manifest.capacity.inputs, self._manifest.parameters.beat_in
        bits, program = self._manifest.numerics.input.bits, self._program
        size = value_bytes(bits)
        word = Signal(16, reset_less=True)
        low = Signal(8 * (size - 1), reset_less=True)
        x = self.x.payload
        data = Signal.like(x.data, reset_less=True)
        # Of the value being taken: which byte, its place in its beat, how many come after it.
        byte, slot, left = Signal(range(size)), Signal(range(beat)), Signal(range(inputs))
        # Whether the core has no part of the step yet; whether this is the step's last beat.
        fresh, last_beat = Signal(), Signal()
        payload, value, number = Signal(8), Signal(8 * size), Signal(16)
        begins = program.after_first(self.shape, "inputs", number)
        taken, filled = Signal(), Signal()
        m.d.comb += [
            x.data.eq(data),
            x.stream.eq(word),
            x.suppress.eq((word & SUPPRESS) != 0),
            self.with_output.eq(~x.suppress),
            self.i.ready.eq(self.hungry),
            taken.eq(self.hungry & self.i.valid),
            payload.eq(Mux(self.cut, 0, self.i.payload)),
            value.eq(Cat(low, payload)),
            number.eq(word & (NUMBER_MASK if program.several else STREAM_MASK)),
        ]
        with m.FSM():
            with m.State("LOW"):
                m.d.comb += [self.between.eq(1), self.hungry.eq(1)]
                m.d.sync += [byte.eq(0), slot.eq(0), left.eq(begins), fresh.eq(1)]
                with m.If(taken):
                    m.d.sync += word[:8].eq(self.i.payload)
                    m.next = "HIGH"
            with m.State("HIGH"):
                m.d.comb += self.hungry.eq(1)
                with m.If(taken):
                    m.d.sync += word[8:].eq(self.i.payload)
                    m.next = "CHECK"
                with m.Elif(self.cut):
                    m.next = "LOW"
            with m.State("CHECK"):
                m.d.comb += self.unknown.eq(program.unknown(number, self.shape))
                if program.several:
                    m.d.sync += left.eq(begins)
                m.next = "VALUE"
                with m.If(self.unknown):
                    m.next = "LOW"
            with m.State("VALUE"):
                m.d.comb += [
                    self.hungry.eq(1),
                    filled.eq((taken | self.cut) & (byte == size - 1)),
                ]
                m.d.sync += last_beat.eq(left == 0)
                with m.If(taken | self.cut):
                    m.d.sync += [byte.eq(byte + 1), low.eq(value >> 8)]
                with m.If(filled):
                    m.d.sync += [
                        byte.eq(0),
                        slot.eq(slot + 1),
                        left.eq(left - 1),
                        data.eq(Cat(data, value[:bits])[bits:]),
                    ]
                    with m.If(slot == beat - 1):
                        m.next = "BEAT"
                    with m.Elif(left == 0):
                        m.next = "MOVE"
                with m.If(self.cut & fresh):
                    m.next = "LOW"
            with m.State("MOVE"):
                # The values of a last beat that is not full are shifted to the low end.
                m.d.sync += [data.eq(data >> bits), slot.eq(slot + 1)]
                with m.If(slot == beat - 1):
                    m.next = "BEAT"
            with m.State("BEAT"):
                m.d.comb += [self.x.valid.eq(1), self.given.eq(self.x.ready & last_beat)]
                with m.If(self.x.ready):
                    m.d.sync += [slot.eq(0), fresh.eq(0)]
                    m.next = "VALUE"
                    with m.If(last_beat):
                        m.next = "LOW"
        return m


class StepReader(StepPart):
    """Converts the core's output to bytes."""

    o: stream.Interface = Out(stream.Signature(8))
    done: Signal = Out(1)
    """The last byte of a step is taken with this cycle."""
    y: stream.Interface = In(output_beats)
    """From the core."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits, beat = self._manifest.numerics.output_bits, self._manifest.parameters.beat_out
        size = value_bytes(bits)
        byte, slot = Signal(range(size)), Signal(range(beat))
        value = Signal(signed(8 * size))
        taken, last_byte = Signal(), Signal()
        last = count_values(m, self._program, self, "outputs", last_byte, self.y.payload.stream).last
        m.d.comb += [
            value.eq(self.y.payload.data.word_select(slot, bits).as_signed()),
            self.o.payload.eq(value.word_select(byte, 8)),
            self.o.valid.eq(self.y.valid),
            taken.eq(self.o.valid & self.o.ready),
            last_byte.eq(taken & (byte == size - 1)),
            self.y.ready.eq(last_byte & ((slot == beat - 1) | last)),
            self.done.eq(last_byte & last),
        ]
        with m.If(taken):
            m.d.sync += byte.eq(byte + 1)
        with m.If(last_byte):
            m.d.sync += [byte.eq(0), slot.eq(slot + 1)]
        with m.If(self.y.ready):
            m.d.sync += slot.eq(0)
        return m
