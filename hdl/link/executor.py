"""Executes requests, one after the other: bytes become the core's input, and its output bytes."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring

from rtlstm.hdl.component import In, Out, Struct
from rtlstm.hdl.core.core import CoreSide
from rtlstm.hdl.core.layouts import input_beats, output_beats
from rtlstm.hdl.core.program_store import CorePart, StepPart, count_values, program_store, tell_shape
from rtlstm.hdl.link.memories import REQUEST
from rtlstm.spec.link import (
    CRC_BYTES,
    NUMBER_MASK,
    NUMBERED,
    READ_LIMIT,
    STREAM_MASK,
    SUPPRESS,
    ErrorCode,
    FrameType,
    value_bytes,
)


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

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port, program = self._manifest.input_port, self._program
        inputs, beat, bits = port.most, port.beat, port.bits
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


class Executor(CoreSide, CorePart):
    """Takes requests from their memory, drives the core, and writes responses."""

    there: Signal = In(1)
    request: Struct = In(REQUEST)
    i: stream.Interface = In(stream.Signature(8))
    close: Signal = Out(1)
    """The current request; see :class:`~rtlstm.hdl.link.memories.RequestMemory`."""
    o: stream.Interface = Out(stream.Signature(8))
    full: Signal = In(1)
    restart: Signal = Out(1)
    finish: Signal = Out(1)
    failed: Signal = Out(1)
    room: Signal = In(1)
    """Its response; see :class:`~rtlstm.hdl.link.memories.ResponseMemory`."""
    ending: Signal = In(1)
    """Begin no request."""
    idle: Signal = Out(1)
    """No request is being executed."""
    steps: Signal = Out(32)
    """Steps given to the core."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.feeder = self._feeder = StepFeeder(self._manifest)
        m.submodules.reader = self._reader = StepReader(self._manifest)
        # Why the request fails; number of steps in the core whose outputs the host expects.
        self._failure, self._owed = Signal(range(max(ErrorCode) + 1)), Signal(5)
        # Whether no bytes of the request are left; whether more requests of its chain follow.
        self._used_up, self._chained = Signal(), Signal()
        self._word = Signal(32, reset_less=True)
        self._ports(m)
        # This is delayed by a cycle; the next byte does not come earlier.
        m.d.sync += self._used_up.eq(self.request.length == CRC_BYTES)
        m.d.comb += [
            self._chained.eq(self.request.kind == low(FrameType.PART)),
            self.failed.eq(self._failure != 0),
            self.bus.write.eq(self.request.kind == low(FrameType.WRITE)),
            self.bus.data.eq(self._word),
        ]
        with m.If(self.bus.read_valid):
            m.d.sync += self._word.eq(self.bus.read_data)
        with m.FSM():
            self._begin(m)
            self._registers(m)
            self._steps(m)
            self._end(m)
        return m

    def _ports(self, m: Module) -> None:
        feeder, reader = self._feeder, self._reader
        with_output = feeder.given & feeder.with_output
        program = program_store(self._manifest)
        wiring.connect(m, feeder.x, wiring.flipped(self.x))
        m.d.comb += feeder.i.payload.eq(self.i.payload)
        wiring.connect(m, wiring.flipped(self.y), reader.y)
        for part in (feeder, reader):
            tell_shape(m, program, self, part)
        m.d.sync += [
            self.steps.eq(self.steps + feeder.given),
            self._owed.eq(self._owed + with_output - reader.done),
        ]

    def _fail(self, m: Module, code: ErrorCode) -> None:
        m.d.sync += self._failure.eq(code)
        m.next = "FAIL"

    def _begin(self, m: Module) -> None:
        length, kind = self.request.length, self.request.kind
        with m.State("BEGIN"):
            m.d.comb += self.idle.eq(1)
            with m.If(self.there & ~self.ending):
                # Not earlier, because the last response was being finished until now.
                m.d.sync += self._failure.eq(0)
                with m.Switch(kind):
                    with m.Case(low(FrameType.WRITE)):
                        m.next = "REGISTER"
                        with m.If((length[:2] != (CRC_BYTES + 1) % 4) | (length == CRC_BYTES + 1)):
                            self._fail(m, ErrorCode.LENGTH)
                    with m.Case(low(FrameType.READ)):
                        m.next = "REGISTER"
                        with m.If(length != CRC_BYTES + 2):
                            self._fail(m, ErrorCode.LENGTH)
                    with m.Case(low(FrameType.PART), low(FrameType.STEPS)):
                        m.next = "STEPS"
                    with m.Default():
                        self._fail(m, ErrorCode.TYPE)
        # The frame after a PART is there, or will be at once.
        with m.State("GO ON"), m.If(self.there):
            m.next = "STEPS"
            with m.If(self._failure != 0):
                m.next = "FAIL"
            with m.Elif((kind != low(FrameType.PART)) & (kind != low(FrameType.STEPS))):
                self._fail(m, ErrorCode.LENGTH)

    def _registers(self, m: Module) -> None:
        word, index, words = self._word, Signal(2), Signal(range(READ_LIMIT + 1))
        writes = self.bus.write
        with m.State("REGISTER"):
            m.d.comb += self.i.ready.eq(1)
            m.d.sync += [self.bus.address.eq(self.i.payload), index.eq(0)]
            with m.If(self.i.valid):
                m.next = "COUNT"
                with m.If(writes):
                    m.next = "WORD"
                with m.If(self.i.payload[4:] != 0):
                    self._fail(m, ErrorCode.REGISTER)
        with m.State("COUNT"):
            m.d.comb += self.i.ready.eq(1)
            m.d.sync += words.eq(self.i.payload)
            with m.If(self.i.valid):
                m.next = "BUS"
                with m.If((self.i.payload == 0) | (self.i.payload > READ_LIMIT)):
                    self._fail(m, ErrorCode.LENGTH)
        with m.State("WORD"):
            m.d.comb += self.i.ready.eq(1)
            with m.If(self.i.valid):
                m.d.sync += [word.eq(Cat(word[8:], self.i.payload)), index.eq(index + 1)]
                with m.If(index == 3):
                    m.next = "BUS"
        with m.State("BUS"):
            m.d.comb += self.bus.valid.eq(1)
            with m.If(self.bus.ready):
                m.next = "ANSWER"
                with m.If(writes):
                    m.next = "WORD"
                    with m.If(self._used_up):
                        m.next = "END"
                with m.Elif(self.bus.read_valid):
                    m.next = "READ"
        with m.State("ANSWER"), m.If(self.bus.read_valid):
            m.next = "READ"
        with m.State("READ"):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(word)]
            with m.If(self.o.ready):
                m.d.sync += [word.eq(word >> 8), index.eq(index + 1)]
                with m.If(index == 3):
                    m.d.sync += words.eq(words - 1)
                    m.next = "BUS"
                    with m.If(words == 1):
                        m.next = "END"

    def _steps(self, m: Module) -> None:
        feeder, reader = self._feeder, self._reader
        starves = self._used_up & feeder.hungry
        floods = reader.o.valid & self.full
        with m.State("STEPS"):
            m.d.comb += [
                feeder.i.valid.eq(self.i.valid),
                self.i.ready.eq(feeder.i.ready),
                self.o.valid.eq(reader.o.valid),
                self.o.payload.eq(reader.o.payload),
                reader.o.ready.eq(self.o.ready),
            ]
            with m.If(feeder.unknown):
                self._fail(m, ErrorCode.STREAM)
            with m.Elif(starves & ~self._chained & ~feeder.between):
                self._fail(m, ErrorCode.LENGTH)
            with m.Elif((starves & (self._owed == 0)) | (floods & self._used_up & self._chained)):
                m.next = "END"
            with m.Elif(floods & (self._used_up | self.i.valid)):
                m.d.comb += reader.o.ready.eq(1)

    def _end(self, m: Module) -> None:
        feeder, reader = self._feeder, self._reader
        with m.State("FAIL"):
            # Further outputs of the failed chain are dropped.
            m.d.comb += [feeder.cut.eq(1), reader.o.ready.eq(1), self.restart.eq(1)]
            with m.If(feeder.between & (self._owed == 0)):
                m.next = "CODE"
        with m.State("CODE"):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(self._failure)]
            with m.If(self.o.ready):
                m.next = "END"
        with m.State("END"), m.If(self.room):
            m.d.comb += [self.finish.eq(1), self.close.eq(1)]
            m.next = "BEGIN"
            with m.If(self._chained):
                m.next = "GO ON"


def low(kind: FrameType) -> int:
    """Return the part of a request's type that its memory stores."""
    return kind ^ NUMBERED
