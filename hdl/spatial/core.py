"""The core of a spatial build: its layers, and the same ports as a core with an array."""

from collections.abc import Sequence
from dataclasses import replace

from amaranth.hdl import Cat, Const, Module, Mux, ResetSignal, Signal, Value, signed
from amaranth.lib import fifo, wiring

from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.core import CorePorts
from rtlstm.hdl.core.memory_window import MemoryWindow
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.primitives.pipeline import delay, delay_event, storage
from rtlstm.hdl.primitives.staged import Staged
from rtlstm.hdl.spatial.layers import (
    DenseLayer,
    GraphDenseLayer,
    GraphRecurrentLayer,
    LstmLayer,
    RecurrentLayer,
    Source,
    StateAccess,
    Steps,
)
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import SKIPS
from rtlstm.spec.parameters import ceil_log2
from rtlstm.spec.program.spatial import gives_h
from rtlstm.spec.registers import Region


class SpatialCore(CorePorts, CorePart):
    """A network whose weights are constants of the hardware.

    Latency and throughput: ``manifest.cycles``, exact. Results: :class:`rtlstm.sim.golden.Golden`, exact.
    Ports: ``docs/ports.md``. In cycle 0 a step is accepted: its input stands in registers, and the step
    before is ``interval`` cycles old, that of its stream ``loop`` cycles. No later stage waits.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._schedule = manifest.spatial_schedule
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._accepts, self._held, self._room = Signal(), Signal(), Signal(init=1)
        results, self._several = self._schedule.results, self._manifest.parameters.streams > 1
        # What the window reads of a memory comes with the stages.
        m.submodules.window = self._window = MemoryWindow(
            self._manifest, read_back=(self._schedule.longest + 1) * self._several
        )
        wiring.connect(m, wiring.flipped(self.bus), self._window.bus)
        self._zero = Signal(self._manifest.parameters.streams, init=-1, name="zero")
        self._waits = Signal(name="waits")
        x = self._take_input(m)
        valid: list[Value] = [self._accepts]
        emits: Value = self._accepts & self._wanted
        for stage in range(self._schedule.longest):
            valid.append(delay_event(m, valid[-1], 1))
            emits = delay_event(m, emits, int(stage < results))
        self._steps = self._follow(m, valid)
        self._add_layers(m, x)
        self._give_output(m, emits)
        self._control(m)
        self._count(m, emits)
        return m

    def _follow(self, m: Module, valid: list[Value]) -> Steps:
        """Return the steps on their way; with several streams, say whether the next one waits for its own."""
        if not self._several:
            return Steps(valid, (), (), ())
        window, loop = self._window, self._schedule.loop
        asked = Mux(
            window.region == Region.CELLS, self._stream_of(Region.CELLS), self._stream_of(Region.VECTORS)
        )
        streams: list[Value] = [Signal.like(self._stream, name="stream")]
        m.d.comb += streams[0].eq(Mux(self._held, asked, self._stream))
        zero: list[Value] = [self._zero.bit_select(streams[0], 1)]
        for stage in range(self._schedule.longest):
            streams.append(delay(m, streams[stage], 1))
            zero.append(delay(m, zero[stage], 1))
        follows: list[Value] = [valid[loop] & (streams[loop] == streams[0])]
        for stage in range(self._schedule.longest):
            follows.append(delay(m, follows[stage], 1))
        # Known a cycle ahead, for the stream that will stand at the input: that which comes, or which waits.
        under_way = list(zip(valid, streams, strict=True))[1 : loop - 1]
        of_coming, of_waiting = (
            any_of([is_there & (at == stream) for is_there, at in under_way] or [Const(0)])
            for stream in (self.x.payload.stream, self._stream)
        )
        if loop > 1:
            of_coming |= self._accepts & (self._stream == self.x.payload.stream)
        m.d.sync += self._waits.eq(Mux(self._taken, of_coming, of_waiting))
        return Steps(valid, streams, zero, follows)

    def _stream_of(self, region: Region) -> Value:
        """Return the stream of the row at which the window looks."""
        program = self._manifest.program
        context = program.vector_context if region == Region.VECTORS else program.cell_context
        return self._window.row[ceil_log2(context) :][: self._manifest.parameters.stream_bits]

    def _take_input(self, m: Module) -> list[Staged]:
        """Collect a step's beats, and accept it once it is whole; return its values."""
        bits, inputs = self._manifest.numerics.input.bits, self._manifest.program.inputs
        beats, per_beat = self._schedule.input_beats, self._manifest.parameters.beat_in
        values = [Signal(signed(bits), reset_less=True, name=f"x{index}") for index in range(inputs)]
        full, wanted, beat = Signal(name="full"), Signal(reset_less=True, name="wanted"), Signal(range(beats))
        taken, last = Signal(name="taken"), beat == beats - 1
        room = ~full | self._accepts
        self._fills, self._full, self._wanted, self._taken = taken & last, full, wanted, taken
        self._stream = Signal(self._manifest.parameters.stream_bits, reset_less=True, name="stream_of_x")
        m.d.comb += [self.x.ready.eq(~ResetSignal() & room), taken.eq(self.x.valid & room)]
        m.d.sync += full.eq(self._fills | (full & ~self._accepts))
        with m.If(taken):
            m.d.sync += [beat.eq(Mux(last, 0, beat + 1)), wanted.eq(~self.x.payload.suppress)]
            if self._several:
                m.d.sync += self._stream.eq(self.x.payload.stream)
            for index, value in enumerate(values):
                with m.If(beat == index // per_beat):
                    m.d.sync += value.eq(self.x.payload.data.word_select(index % per_beat, bits))
        # Of the next step, as many cycles after this one as its layers need, or its output.
        interval = self._schedule.interval
        since = Signal(range(interval))
        with m.If(self._accepts):
            m.d.sync += since.eq(interval - 1)
        with m.Elif(since != 0):
            m.d.sync += since.eq(since - 1)
        free = (since == 0) & ~self._held & (self._room | ~wanted)
        free = free & ~self._waits if self._several else free
        m.d.comb += self._accepts.eq(full & free)
        return [Staged(m, value, 0) for value in values]

    def _add_layers(self, m: Module, x: Sequence[Staged]) -> None:
        """Add layer behind layer; the last one's results are the outputs."""
        self._recurrent: list[RecurrentLayer] = []
        program, fused = self._manifest.program, self._manifest.numerics.fused_lstm is not None
        cells = iter(program.cells)
        self._rows: dict[Region, list[tuple[Value, Value]]] = {Region.VECTORS: [], Region.CELLS: []}
        """Whether the window is at a row, and what that holds: of h, and of c."""
        given, sources = list[Sequence[Staged]](), list[Source]()
        for index, shape in enumerate(self._manifest.layers):
            read = given[index - shape.before] if index else x
            sources.append(Source(self._schedule.plan.layers[index], shape, read))
            if shape.kind in SKIPS:
                given.append(read)
                continue
            if gives_h(self._manifest.layers, index):
                # The layer before has it in its loop, and what it gives is that h.
                given.append(read)
                sources = []
                continue
            begins = self._schedule.times[index][0]
            sources = [
                replace(each, x=[value.later(begins - value.stage) for value in each.x]) for each in sources
            ]
            name = f"layer{index}"
            if shape.has_h:
                layer = (LstmLayer if fused else GraphRecurrentLayer)(self._manifest, index)
                word, row = program.hidden[len(self._recurrent)][0], next(cells)[0] if layer.c else 0
                self._recurrent.append(layer)
                access = self._access(m, layer, word, row)
                given.append(layer.add(m, name, sources, self._steps, access))
            else:
                dense = DenseLayer if fused else GraphDenseLayer
                given.append(dense(self._manifest, index).add(m, name, sources))
            sources = []
        x = given[-1]
        assert x[0].stage == self._schedule.results, "the schedule counts every register"
        bits = self._manifest.numerics.output_bits
        self._outputs = Cat(_extended(value.value, bits) for value in x)

    def _access(self, m: Module, layer: RecurrentLayer, word: int, row: int) -> StateAccess:
        """Say where the window has a layer's h and c."""
        window, per_word = self._window, self._manifest.parameters.macs
        bits, units = self._manifest.numerics.data_bits, range(len(layer.h))
        program = self._manifest.program
        word_of, row_of = (
            window.row[: ceil_log2(context)] if self._several else window.row
            for context in (program.vector_context, program.cell_context)
        )
        at_word = [word_of == word + index for index in range(-(-len(units) // per_word))]
        at_row = [row_of == row + unit for unit in range(len(layer.c))]
        self._rows[Region.VECTORS] += [
            (here, Cat(_extended(h, bits) for h in layer.h[index * per_word : (index + 1) * per_word]))
            for index, here in enumerate(at_word)
        ]
        self._rows[Region.CELLS] += list(zip(at_row, map(Value.cast, layer.c), strict=True))
        return StateAccess(
            writes_h=[window.write[Region.VECTORS] & at_word[unit // per_word] for unit in units],
            writes_c=[window.write[Region.CELLS] & here for here in at_row],
            h=[window.write_data.word_select(unit % per_word, bits) for unit in units],
            data=window.write_data,
            reset=window.reset_stream,
            stream=Mux(window.write[Region.CELLS], *map(self._stream_of, (Region.CELLS, Region.VECTORS))),
        )

    def _give_output(self, m: Module, emits: Value) -> None:
        """Queue steps' outputs, and give them beat by beat."""
        schedule, depth = self._schedule, self._schedule.depth
        if self._several:
            self._outputs = Cat(self._outputs, self._steps.streams[schedule.results])
        m.submodules.queue = queue = fifo.SyncFIFO(width=len(self._outputs), depth=depth)
        outputs = queue.r_data[: self._manifest.program.outputs * self._manifest.numerics.output_bits]
        beats, bits = schedule.output_beats, len(self.y.payload.data)
        beat = Signal(range(beats))
        last, gives = beat == beats - 1, self.y.valid & self.y.ready
        m.d.comb += [
            queue.w_data.eq(self._outputs),
            queue.w_en.eq(emits),
            self.y.payload.data.eq(outputs.word_select(beat, bits)),
            self.y.payload.stream.eq(queue.r_data[len(outputs) :]),
            self.y.payload.last.eq(last),
            self.y.valid.eq(queue.r_rdy & ~ResetSignal()),
            queue.r_en.eq(gives & last),
        ]
        with m.If(gives):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
        # Room for the steps on their way is reserved when they are accepted.
        left = Signal(range(depth + 1), init=depth)
        takes, returns = self._accepts & self._wanted, Signal()
        now = left - takes + returns
        m.d.sync += [returns.eq(gives & last), left.eq(now), self._room.eq(now != 0)]

    def _control(self, m: Module) -> None:
        """Open the window between steps; while it waits or writes, none is accepted."""
        window, busy, zero = self._window, any_of(list(self._steps.valid)), self._zero
        here = Signal(reset_less=True, name="at_cells")
        streams = range(self._manifest.parameters.streams)
        commanded, accepted = (
            Cat(stream == index for index in streams) if self._several else Const(1)
            for stream in (window.stream, self._stream)
        )

        def where(flag: Value, which: Value) -> Value:
            return flag.replicate(len(streams)) & which if self._several else flag

        m.d.sync += [
            self._held.eq(window.active | window.stores),
            # What is under way now was accepted before anything was held.
            window.granted.eq(window.active & self._held & ~busy),
            zero.eq(
                where(window.reset_stream, commanded)
                | (zero & ~where(window.state_written, commanded) & ~where(self._accepts, accepted))
            ),
            here.eq(window.region == Region.CELLS),
        ]
        words = {
            region: any_of([Mux(at, row, 0) for at, row in rows] or [Const(0)])
            for region, rows in self._rows.items()
        }
        m.d.comb += [
            window.busy.eq(busy | self._full),
            window.flags.eq(zero.bit_select(window.stream, 1) if self._several else zero),
            window.read_data.eq(Mux(here, words[Region.CELLS], words[Region.VECTORS])),
        ]

    def _count(self, m: Module, emits: Value) -> None:
        window = self._window
        read, write = storage(m, memories(self._manifest)["input times"], "begun")
        came, given = (Signal(len(read.addr), name=name) for name in ("came", "given"))
        counts = self._fills & ~self.x.payload.suppress
        done = delay_event(m, emits, self._schedule.output_beats - 1)
        m.d.sync += [came.eq(came + counts), given.eq(given + done)]
        clipped = [bit for layer in self._recurrent for bit in layer.saturated]
        m.d.comb += [
            write.addr.eq(came),
            write.data.eq(window.now),
            write.en.eq(counts),
            read.addr.eq(given),
            window.since.eq(read.data),
            window.step_done.eq(done),
            window.saturated.eq(sum(clipped, Const(0))),
        ]


def _extended(value: Value, bits: int) -> Value:
    """Return a signed value in so many bits."""
    return Cat(value, value[-1].replicate(bits - len(value)))
