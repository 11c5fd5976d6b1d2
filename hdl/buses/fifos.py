"""Data FIFOs: a step's values through registers, one value per word."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import fifo
from amaranth.lib.stream import Interface as Stream

from rtlstm.hdl.buses.request_port import FifoPort
from rtlstm.hdl.component import In, Out
from rtlstm.hdl.core.layouts import input_beats, output_beats
from rtlstm.hdl.core.program_store import StepPart, count_values, program_store
from rtlstm.spec.inventory import WAITING_STEPS, MemorySpec, wrapper_memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Register


def _queue(memory: MemorySpec, width: int) -> fifo.SyncFIFOBuffered:
    """Return a FIFO around a memory of the inventory; its output register holds one word more."""
    assert memory.width == width, f"{memory.name} has {memory.width} bits, not {width}"
    return fifo.SyncFIFOBuffered(width=memory.width, depth=memory.depth + 1)


class InputFifo(StepPart):
    """Collects values written to X_DATA into beats for the core.

    Free space is counted in whole steps: there is always space for the rest of a step that has begun.
    Latency: a beat is offered to the core 2 cycles after its last value was written.
    """

    port: FifoPort = In(FifoPort)
    """X_DATA, X_STREAM and X_ROOM; others are not looked at, and read 0."""
    x: Stream = Out(input_beats)
    """To the core."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self._manifest.parameters.beat_in
        bits, port = self._manifest.numerics.input.bits, self.port
        x = self.x.payload
        leaves = Signal()
        m.submodules.queue = queue = _queue(
            wrapper_memories(self._manifest)["input FIFO"], len(Cat(x, leaves))
        )
        room = Signal(range(WAITING_STEPS + 1), init=WAITING_STEPS)
        stream, suppress = Signal.like(x.stream), Signal()
        slot, accepted = Signal(range(beat)), Signal()
        step = count_values(m, self._program, self, "inputs", accepted, stream)
        first, last = step.first, step.last
        named, suppressed = Signal.like(stream, name="step_stream"), Signal(name="step_quiet")
        mine, wants_stream = port.number == Register.X_DATA, port.number == Register.X_STREAM
        unknown = self._program.unknown(port.data[:16], self.shape)
        # In reset, as while another network is loaded, no value is accepted.
        rooms = Mux(ResetSignal(), 0, room)
        full: Value = rooms == 0
        if self._program.several:
            # Its network may be gone since the stream was named.
            full |= self._program.unknown(stream, self.shape)
        refused = (mine & first & full) | (wants_stream & port.write & (unknown | ResetSignal()))
        m.d.comb += accepted.eq(port.decided & port.write & mine & ~refused)
        with m.If(port.decided & port.write & wants_stream & ~unknown):
            m.d.sync += [stream.eq(port.data[: len(stream)]), suppress.eq(port.data[31])]
        beats = Signal.like(x.data)
        ends = Signal()
        m.d.sync += ends.eq(accepted & (last | (slot == beat - 1)))
        final = Signal()
        with m.If(accepted):
            m.d.sync += [
                slot.eq(Mux(last | (slot == beat - 1), 0, slot + 1)),
                final.eq(last),
                beats.word_select(slot, bits).eq(port.data[:bits]),
            ]
            with m.If(first):
                m.d.sync += [named.eq(stream), suppressed.eq(suppress)]
        gone = self.x.valid & self.x.ready & leaves
        m.d.sync += room.eq(room - (accepted & first) + gone)
        m.d.comb += [
            port.refused.eq(refused),
            queue.w_en.eq(ends),
            queue.w_data.eq(Cat(beats, named, suppressed, final)),
            Cat(x, leaves).eq(queue.r_data),
            self.x.valid.eq(queue.r_rdy & ~ResetSignal()),
            queue.r_en.eq(self.x.valid & self.x.ready),
        ]
        with m.If(wants_stream):
            m.d.comb += port.read_data.eq(Cat(stream, Const(0, 31 - len(stream)), suppress))
        with m.Elif(port.number == Register.X_ROOM):
            m.d.comb += port.read_data.eq(rooms)
        return m


class OutputFifo(StepPart):
    """Stores the core's output beats and gives their values one by one through Y_DATA."""

    port: FifoPort = In(FifoPort)
    """Y_DATA, Y_STREAM and Y_STEPS; others are not looked at, and read 0."""
    y: Stream = In(output_beats)
    """From the core."""
    done: Signal = Out(1)
    """A step's last beat arrives."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._program = manifest, program_store(manifest)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, bits, port = self._manifest.parameters.beat_out, self._manifest.numerics.output_bits, self.port
        y = self.y.payload
        memory = wrapper_memories(self._manifest)["output FIFO"]
        m.submodules.queue = queue = _queue(memory, len(Cat(y.data, y.stream)))
        most_steps = queue.depth // self._program.least_beats
        # A beat appears at the queue's output one or two cycles after it came, and so does the count of
        # steps.
        arrived, ready = Signal(2), Signal(range(most_steps + 2))
        slot, taken, mine = Signal(range(beat)), Signal(), port.number == Register.Y_DATA
        data, y_stream = Signal.like(y.data), Signal.like(y.stream, name="stream")
        last = count_values(m, self._program, self, "outputs", taken, y_stream).last
        refused = mine & (ready == 0)
        ends = taken & (last | (slot == beat - 1))
        word = data.word_select(slot, bits)
        m.d.comb += [
            taken.eq(port.decided & ~port.write & mine & ~refused),
            Cat(data, y_stream).eq(queue.r_data),
            # What the core still has in reset, as while another network is loaded, is dropped.
            self.y.ready.eq(queue.w_rdy | ResetSignal()),
            queue.w_en.eq(self.y.valid & queue.w_rdy & ~ResetSignal()),
            queue.w_data.eq(Cat(y.data, y.stream)),
            queue.r_en.eq(ends),
            self.done.eq(queue.w_en & y.last),
            port.refused.eq(refused),
        ]
        m.d.sync += [
            arrived.eq(Cat(self.done, arrived)),
            ready.eq(ready + arrived[-1] - (taken & last)),
        ]
        with m.If(taken):
            m.d.sync += slot.eq(Mux(ends, 0, slot + 1))
        with m.If(mine):
            m.d.comb += port.read_data.eq(Cat(word, word[-1].replicate(32 - bits)))
        with m.Elif(port.number == Register.Y_STREAM):
            m.d.comb += port.read_data.eq(y_stream)
        with m.Elif(port.number == Register.Y_STEPS):
            m.d.comb += port.read_data.eq(ready)
        return m
