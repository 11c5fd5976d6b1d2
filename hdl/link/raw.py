"""The raw mode of the link: a transfer holds one step, another its result, and there is no session."""

from binascii import crc_hqx

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout

from rtlstm.hdl.component import In, Out, Struct, connect_some
from rtlstm.hdl.core.program_store import StepPart, program_store, tell_shape
from rtlstm.hdl.link.executor import Executor, low
from rtlstm.hdl.link.framing import FRAMED
from rtlstm.hdl.link.memories import REQUEST, RequestMemory, ResponseMemory, read_bytes
from rtlstm.hdl.link.responder import LinkSession
from rtlstm.hdl.link.serial_link import LinkDevice
from rtlstm.hdl.primitives.pipeline import storage
from rtlstm.spec.inventory import raw_memory
from rtlstm.spec.link import (
    CRC_BYTES,
    NUMBER_MASK,
    RAW_CRC_START,
    RAW_STEP,
    RESET_STATE,
    STREAM_MASK,
    FrameType,
    value_bytes,
)
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Command, Register

RAW = StructLayout({"data": 8, "first": 1, "last": 1})
"""A byte of a transfer, and whether it is the first one and the last one."""


class RawSteps(StepPart):
    """Takes one step at a time, makes requests of it, and offers its result until the next step begins.

    The bytes of the step, and then those of the result, are in one memory.

    Latency: two cycles from a step's last byte until its request is there.

    ``sized`` says whether a transfer has an end: it must be where the step ends, and the result is to be sent
    before the next step. Without, bytes behind a step are ignored, and a step drops the result.
    """

    i: stream.Interface = In(stream.Signature(RAW, always_ready=True))
    o: stream.Interface = Out(stream.Signature(FRAMED))
    """Bytes of transfers; of the result."""
    again: Signal = In(1)
    """Offer the result from its first byte."""
    held: Signal = In(1)
    """The host has yet to read a byte that was accepted from ``o``."""
    answers: Signal = Out(1)
    """There is a result that the host has not read to its end yet."""
    dropped: Signal = Out(1)
    """A transfer was dropped, for one cycle."""
    there: Signal = Out(1)
    request: Struct = Out(REQUEST)
    content: stream.Interface = Out(stream.Signature(8))
    close: Signal = In(1)
    """The current request, as from a :class:`~rtlstm.hdl.link.memories.RequestMemory`; it is closed when its
    response is complete."""
    output: stream.Interface = In(stream.Signature(8, always_ready=True))
    restart: Signal = In(1)
    failed: Signal = In(1)
    """Its response, as to a :class:`~rtlstm.hdl.link.memories.ResponseMemory`."""
    stream: Signal = In(len(Const(NUMBER_MASK)))
    """What the session wrote to the register STREAM."""

    def __init__(self, manifest: Manifest, sized: bool) -> None:
        self._sized = sized
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory = raw_memory(self._manifest)
        read, self._write = storage(m, memory, "bytes")
        # Bytes of the step that came, or of the result; how many of them were read.
        self._written = Signal(range(memory.depth + 1))
        self._taken, self._reads = Signal.like(self._written, name="taken"), Signal()
        self._byte = read_bytes(m, read, self._taken, self._reads)
        self._head, self._failure = Signal(16, reset_less=True), Signal(reset_less=True)
        self._unread = Signal()
        m.d.comb += self.answers.eq(self._unread)
        # The checksum of what comes, or of what is sent; which byte of it is next, if there is one.
        self._crc, self._summed, self._sums = Signal(16), Signal(8), Signal()
        with m.If(self._sums):
            m.d.sync += self._crc.eq(_with_byte(self._crc, self._summed))
        self._free, self._taking, self._wrong = Signal(), Signal(), Signal()
        first, ignored = self.i.valid & self.i.payload.first, Signal()
        # A zero asks for the result.
        m.d.sync += ignored.eq(first & ~(self._free & self._begins) & (self.i.payload.data != 0))
        m.d.comb += self.dropped.eq((first & self._taking) | ignored | self._wrong)
        m.d.comb += self._write.addr.eq(self._written)
        with m.If(self._write.en):
            m.d.sync += self._written.eq(self._written + 1)
        with m.FSM():
            with m.State("IDLE"):
                self._begin(m)
            self._take(m)
            self._ask(m)
            self._answer(m)
        return m

    @property
    def _comes(self) -> Value:
        """Whether the byte that comes is a step's first one."""
        item, alone = self.i.payload, self.i.payload.last if self._sized else Const(0)
        comes: Value = self.i.valid & item.first & (item.data == RAW_STEP) & ~alone
        return comes

    @property
    def _begins(self) -> Value:
        """Whether a step begins with it: without a program no size of a step is known, and SHAPE is 0."""
        program = program_store(self._manifest)
        return program.unless(program.event(lambda: self.shape == 0), self._comes)

    def _begin(self, m: Module) -> None:
        m.d.comb += self._free.eq(1)
        with m.If(self._comes):
            start = crc_hqx(bytes([RAW_STEP]), RAW_CRC_START)
            m.d.sync += [self._written.eq(0), self._crc.eq(start), self._unread.eq(0)]
            m.next = "TAKE"
            if program_store(self._manifest).told:
                # An earlier result is no answer to a step that is dropped.
                with m.If(self.shape == 0):
                    m.next = "IDLE"

    def _take(self, m: Module) -> None:
        """Take the bytes of a step and its checksum."""
        each = value_bytes(self._manifest.input_port.bits)
        program = program_store(self._manifest)
        after_first = program.after_first(self.shape, "inputs", self._head)
        # Sums, since a product may become a multiplier.
        size = Signal.like(self._written, name="size")
        m.d.comb += size.eq(2 + each + sum((after_first for _ in range(each)), Const(0)))
        self._all_read = self._taken == size
        item, head = self.i.payload, self._head
        with m.State("TAKE"):
            m.d.comb += [self._taking.eq(1), self._summed.eq(item.data), self._write.data.eq(item.data)]
            with m.If(self.i.valid & ~item.first):
                m.d.comb += [self._sums.eq(1), self._write.en.eq(1)]
                with m.If(self._written == 0):
                    m.d.sync += head[:8].eq(item.data)
                with m.If(self._written == 1):
                    m.d.sync += head[8:].eq(item.data)
                with m.If(self._written == size + 1):
                    m.next = "JUDGE"
                if self._sized:
                    with m.If(item.last != (self._written == size + 1)):
                        m.d.comb += self._wrong.eq(1)
                        m.next = "IDLE"
            with m.If(self.i.valid & item.first):
                m.next = "IDLE"
            self._begin(m)
        with m.State("JUDGE"):
            m.d.sync += [self._written.eq(0), self._taken.eq(0)]
            number = head & (NUMBER_MASK if program.several else STREAM_MASK)
            known = ~program.unknown(number, self.shape)
            m.next = "STEP"
            with m.If(((head & RESET_STATE) != 0) & known):
                m.next = "STREAM"
            with m.If(self._crc != 0):
                m.d.comb += self._wrong.eq(1)
                m.next = "IDLE"

    def _ask(self, m: Module) -> None:
        """Make requests: three that write registers if the state is to be reset, and the step's.

        Then STREAM is what it was for the session, which may write COMMAND next.
        """
        head, taken, (valid, data, ready) = self._head, self._taken, self._byte
        word = (Const(0, 8), Const(0, 8), Const(0, 8))
        bits = 14 if program_store(self._manifest).several else 10
        stream = Const(Register.STREAM, 8)
        chosen = (stream, head[:8], head[8:bits], *word[1:])
        reset = (Const(Register.COMMAND, 8), Const(Command.RESET, 8), *word)
        back = (stream, self.stream[:8], self.stream[8:bits], *word[1:])
        requests = (("STREAM", "COMMAND", chosen), ("COMMAND", "BACK", reset), ("BACK", "STEP", back))
        for name, following, content in requests:
            with m.State(name):
                m.d.comb += [
                    self.there.eq(1),
                    self.request.kind.eq(low(FrameType.WRITE)),
                    self.request.length.eq(CRC_BYTES + len(content) - taken),
                    self.content.valid.eq(taken != len(content)),
                    self.content.payload.eq(Array(content)[taken[:3]]),
                ]
                with m.If(self.content.valid & self.content.ready):
                    m.d.sync += taken.eq(taken + 1)
                with m.If(self.close):
                    m.d.sync += taken.eq(0)
                    m.next = following
        with m.State("STEP"):
            m.d.comb += [
                self.there.eq(1),
                self.request.kind.eq(low(FrameType.STEPS)),
                # Whether there are bytes left is all that counts of a step's length.
                self.request.length.eq(CRC_BYTES + ~self._all_read),
                self._reads.eq(~self._all_read),
                self.content.valid.eq(valid),
                self.content.payload.eq(data),
                ready.eq(self.content.ready),
                self._write.data.eq(self.output.payload),
                self._write.en.eq(self.output.valid),
            ]
            with m.If(self.restart):
                m.d.sync += self._written.eq(0)
            with m.If(self.close):
                m.d.sync += [self._failure.eq(self.failed), self._unread.eq(1)]
                self._offer(m)

    def _offer(self, m: Module) -> None:
        m.d.sync += [self._taken.eq(0), self._crc.eq(RAW_CRC_START)]
        m.next = "STATUS"

    def _answer(self, m: Module) -> None:
        """Offer the result: how the step went, the outputs, and a checksum."""
        valid, data, ready = self._byte
        o, goes = self.o, self.o.valid & self.o.ready
        offered = (
            ("STATUS", "OUTPUT", 1, Mux(self._failure, FrameType.ERROR, FrameType.DONE), goes),
            ("OUTPUT", "CRC HIGH", valid, data, self._taken == self._written),
            ("CRC HIGH", "CRC LOW", 1, self._crc[8:], goes),
            ("CRC LOW", "SENT", 1, self._crc[:8], goes),
        )
        for name, following, there, byte, done in offered:
            with m.State(name):
                m.d.comb += [o.valid.eq(there), o.payload.data.eq(byte), self._summed.eq(byte)]
                m.d.comb += self._sums.eq(goes if name in ("STATUS", "OUTPUT") else 0)
                if name == "OUTPUT":
                    m.d.comb += [self._reads.eq(self._taken != self._written), ready.eq(o.ready)]
                with m.If(done):
                    m.next = following
                self._change(m, sent=False)
                m.d.comb += o.payload.last.eq(name == "CRC LOW")
        with m.State("SENT"):
            with m.If(~self.held):
                m.d.sync += self._unread.eq(0)
            self._change(m, sent=True)

    def _change(self, m: Module, *, sent: bool) -> None:
        """Offer the result again, or take a new step."""
        with m.If(self.again):
            self._offer(m)
        if sent or not self._sized:
            self._begin(m)


def _with_byte(crc: Value, byte: Value) -> Value:
    """Return the register of CRC-16 after another byte, its highest bit first."""
    bits = list(crc)
    for bit in reversed(list(byte)):
        feedback = bits.pop() ^ bit
        bits.insert(0, feedback)
        bits[5], bits[12] = bits[5] ^ feedback, bits[12] ^ feedback
    return Cat(bits)


class RawLinkDevice(LinkDevice):
    """A :class:`~rtlstm.hdl.link.serial_link.LinkDevice` with :class:`RawSteps` beside the session.

    The core is given the steps of both in the order in which they came whole. For ``sized``, see
    :class:`RawSteps`.
    """

    raw_i: stream.Interface = In(stream.Signature(RAW, always_ready=True))
    raw_o: stream.Interface = Out(stream.Signature(FRAMED))
    again: Signal = In(1)
    held: Signal = In(1)
    answers: Signal = Out(1)
    """See :class:`RawSteps`."""

    def __init__(self, manifest: Manifest, *, sized: bool) -> None:
        super().__init__(manifest, crc_bits=8, gapless=not sized)
        self._sized = sized

    def _execute(
        self,
        m: Module,
        session: LinkSession,
        requests: RequestMemory,
        executor: Executor,
        responses: ResponseMemory,
    ) -> None:
        outside = wiring.flipped(self)
        m.submodules.raw = raw = RawSteps(self._manifest, self._sized)
        tell_shape(m, program_store(self._manifest), self, raw)
        wiring.connect(m, outside.raw_i, raw.i)
        wiring.connect(m, raw.o, outside.raw_o)
        connect_some(m, outside, raw, ("again", "held", "answers"))
        # Whose request is being executed; it changes where none is.
        chosen = Signal()
        with m.If(executor.idle & ~executor.there):
            m.d.sync += chosen.eq(raw.there)
        bus = executor.bus
        with m.If(bus.valid & bus.ready & bus.write & (bus.address == Register.STREAM) & ~chosen):
            m.d.sync += raw.stream.eq(bus.data)
        m.d.comb += [
            session.foreign.eq(raw.dropped),
            executor.there.eq(Mux(chosen, raw.there, requests.there)),
            executor.request.eq(Mux(chosen, raw.request, requests.request)),
            executor.i.valid.eq(Mux(chosen, raw.content.valid, requests.o.valid)),
            executor.i.payload.eq(Mux(chosen, raw.content.payload, requests.o.payload)),
            raw.content.ready.eq(chosen & executor.i.ready),
            requests.o.ready.eq(~chosen & executor.i.ready),
            raw.close.eq(chosen & executor.close),
            requests.close.eq(~chosen & executor.close),
            raw.output.valid.eq(chosen & executor.o.valid),
            raw.output.payload.eq(executor.o.payload),
            raw.restart.eq(chosen & executor.restart),
            raw.failed.eq(executor.failed),
            responses.i.valid.eq(~chosen & executor.o.valid),
            responses.i.payload.eq(executor.o.payload),
            responses.restart.eq(~chosen & executor.restart),
            responses.finish.eq(~chosen & executor.finish),
            responses.failed.eq(executor.failed),
            executor.o.ready.eq(chosen | responses.i.ready),
            executor.full.eq(~chosen & responses.full),
            executor.room.eq(chosen | responses.room),
        ]
