"""AXI4-Stream on the core's data ports."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, ResetSignal, Signal, Value
from amaranth.lib import enum, fifo
from amaranth.lib.stream import Interface as Stream

from rtlstm.hdl.component import In, Out
from rtlstm.hdl.core.layouts import input_beats, number_bits, output_beats
from rtlstm.hdl.core.program_store import CorePart, StepPart, count_values, program_store
from rtlstm.spec.inventory import wrapper_memories


def padded_bits(bits: int) -> int:
    """Return the width in TDATA of a value of ``bits`` bits: whole bytes."""
    return -(-bits // 8) * 8


class Mode(enum.Enum):
    """States of an input stream."""

    FORWARD = 0
    PAD = 1
    """The packet was too short: zeros complete the step."""
    DROP = 2
    """Transfers up to TLAST belong to no step and are dropped."""


class InputStream(StepPart):
    """Passes packets to the core, one for each step; adds no cycle.

    A packet is malformed if TLAST comes before its last beat (zeros complete the step), or not with it
    (further beats are dropped up to TLAST), if TID or TUSER change within it (those of the first beat are
    used), or if TID names no stream (the packet is dropped). The next packet is read correctly in each case.
    """

    tdata: Signal = In(lambda manifest: manifest.input_port.beat * padded_bits(manifest.input_port.bits))
    tid: Signal = In(number_bits)
    tuser: Signal = In(1)
    tlast: Signal = In(1)
    tvalid: Signal = In(1)
    tready: Signal = Out(1)
    """The stream: values in the low bits of whole bytes; TUSER is the core's ``x_quiet``."""
    x: Stream = Out(input_beats)
    """To the core."""
    malformed: Signal = Out(1)
    """For one cycle per malformed packet."""
    frame: Signal = Out(1)
    frame_valid: Signal = Out(1)
    frame_ready: Signal = In(1)
    """With the last beat of a step that will have an output: whether its packet was malformed. Without
    ``frame_ready`` no transfer is accepted."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest = self._manifest
        x, mode, moved = self.x.payload, Signal(Mode), self.x.valid & self.x.ready
        program, beat = program_store(manifest), manifest.input_port.beat
        step = count_values(m, program, self, "inputs", moved, self.tid, beat)
        first, last = step.first, step.last
        stream, suppress, changed = Signal.like(self.tid), Signal(), Signal()
        all_known = manifest.parameters.streams == 1 << len(self.tid)
        unknown = Const(0) if all_known else first & program.unknown(self.tid, self.shape)
        open_ = self.frame_ready & ~ResetSignal()
        with m.Switch(mode):
            with m.Case(Mode.FORWARD):
                m.d.comb += [
                    self.x.valid.eq(self.tvalid & open_ & ~unknown),
                    self.tready.eq(self.x.ready & open_),
                ]
            with m.Case(Mode.PAD):
                m.d.comb += self.x.valid.eq(open_)
            with m.Case(Mode.DROP):
                m.d.comb += self.tready.eq(~ResetSignal())
        taken = self.tvalid & self.tready & (mode == Mode.FORWARD)
        changes = ~first & ((self.tid != stream) | (self.tuser != suppress)) & (mode == Mode.FORWARD)
        ends_wrong = taken & (unknown | (last ^ self.tlast))
        m.d.comb += [
            x.data.eq(Mux(mode == Mode.PAD, 0, self._values())),
            x.stream.eq(Mux(first, self.tid, stream)),
            x.suppress.eq(Mux(first, self.tuser, suppress)),
            self.frame_valid.eq(moved & last & ~x.suppress),
            self.frame.eq((mode == Mode.PAD) | changed | changes | ~self.tlast),
            self.malformed.eq(ends_wrong | (taken & last & (changed | changes))),
        ]
        with m.If(moved):
            m.d.sync += [
                stream.eq(x.stream),
                suppress.eq(x.suppress),
                changed.eq((changed | changes) & ~last),
            ]
        with m.If(ends_wrong):
            m.d.sync += mode.eq(Mux(self.tlast, Mux(unknown, Mode.FORWARD, Mode.PAD), Mode.DROP))
        with m.If(moved & last & (mode == Mode.PAD)):
            m.d.sync += mode.eq(Mode.FORWARD)
        with m.If(self.tvalid & self.tlast & (mode == Mode.DROP)):
            m.d.sync += mode.eq(Mode.FORWARD)
        return m

    def _values(self) -> Value:
        """Return the words of a beat without their padding."""
        beat, bits = self._manifest.input_port.beat, self._manifest.input_port.bits
        width = padded_bits(bits)
        return Cat(self.tdata[width * index : width * index + bits] for index in range(beat))


class OutputStream(CorePart):
    """Gives each step's output as a packet; adds no cycle."""

    y: Stream = In(output_beats)
    """From the core."""
    tdata: Signal = Out(
        lambda manifest: manifest.parameters.beat_out * padded_bits(manifest.numerics.output_bits)
    )
    tid: Signal = Out(number_bits)
    tuser: Signal = Out(1)
    tlast: Signal = Out(1)
    tvalid: Signal = Out(1)
    tready: Signal = In(1)
    """The stream: values sign-extended to whole bytes; TUSER says that the step's input was malformed."""
    frame: Signal = In(1)
    frame_valid: Signal = In(1)
    frame_ready: Signal = Out(1)
    """From :class:`InputStream`."""
    forget: Signal = In(1)
    """Frame states from :class:`InputStream` belong to steps without output and are dropped."""
    done: Signal = Out(1)
    """A step's last beat is accepted."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        packets = wrapper_memories(self._manifest)["malformed packets"]
        frames = fifo.SyncFIFO(width=packets.width, depth=packets.depth)
        m.submodules.frames = ResetInserter(self.forget)(frames)
        bits = self._manifest.numerics.output_bits
        width = padded_bits(bits)
        words = [
            self.y.payload.data.word_select(index, bits).as_signed()
            for index in range(self._manifest.parameters.beat_out)
        ]
        m.d.comb += [
            self.frame_ready.eq(frames.w_rdy),
            frames.w_en.eq(self.frame_valid),
            frames.w_data.eq(self.frame),
            frames.r_en.eq(self.done),
            self.tdata.eq(Cat(_extended(word, width) for word in words)),
            self.tid.eq(self.y.payload.stream),
            self.tuser.eq(frames.r_data),
            self.tlast.eq(self.y.payload.last),
            self.tvalid.eq(self.y.valid & ~ResetSignal()),
            self.y.ready.eq(self.tready & ~ResetSignal()),
            self.done.eq(self.tvalid & self.tready & self.tlast),
        ]
        return m


def _extended(word: Value, width: int) -> Value:
    """Return a signed word in ``width`` bits."""
    return Cat(word, word[-1].replicate(width - len(word)))
