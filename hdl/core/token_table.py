"""The table in which the core looks up tokens, between the port and the input buffer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.stream import Interface as Stream

from rtlstm.hdl.component import In, Out
from rtlstm.hdl.core.layouts import input_beats, row_stream
from rtlstm.hdl.core.program_store import CorePart
from rtlstm.hdl.primitives.pipeline import delay_event, storage
from rtlstm.spec.inventory import memories
from rtlstm.spec.parameters import TOKEN_CYCLES, ceil_log2
from rtlstm.spec.registers import Region


class TokenTable(CorePart):
    """Looks up tokens: the number of a token becomes the values of its step.

    A token is accepted when the input buffer has room for a step and no other token is being looked up; so no
    beat of its row has to wait.

    Latency: ``TOKEN_CYCLES`` from a token to the first beat of its row. Throughput: a beat a cycle, and a
    token as soon as the last beat of the one before is in the buffer.
    """

    x: Stream = In(input_beats)
    """The port: numbers of tokens, below ``token_rows``."""
    y: Stream = Out(row_stream)
    """To the input buffer."""
    busy: Signal = Out(1)
    held: Signal = In(1)
    """A token is being looked up; none is accepted, since the memory window asks."""
    window: Signal = In(1)
    window_row: Signal = In(32)
    write: Signal = In(1)
    write_data: Signal = In(lambda manifest: manifest.regions[Region.TOKENS].width)
    """The memory window is open, and reads or writes this row."""
    entry: Signal = Out(lambda manifest: manifest.regions[Region.TOKENS].width)
    """The word of that row."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        parameters, memory = self._manifest.parameters, memories(self._manifest)["token table"]
        assert 1 + memory.latency == TOKEN_CYCLES, "a register of the address stands before the memory"
        read, write = storage(m, memory, "rows")
        beats = parameters.row_beats(self._manifest.program.inputs)
        token = Signal(ceil_log2(parameters.token_rows), reset_less=True)
        stream, suppress = Signal.like(self.x.payload.stream), Signal(reset_less=True, name="suppress")
        beat, reads, accepted, last = Signal(ceil_log2(beats)), Signal(), Signal(), Signal()
        m.d.comb += [
            self.x.ready.eq(self.y.ready & ~self.busy & ~self.held),
            accepted.eq(self.x.valid & self.x.ready),
            last.eq(reads & (beat == beats - 1)),
            read.addr.eq(Mux(self.window, self.window_row, Cat(beat, token))),
            write.addr.eq(self.window_row),
            write.data.eq(self.write_data),
            write.en.eq(self.write),
            self.entry.eq(read.data),
            self.y.valid.eq(delay_event(m, reads, memory.latency)),
            self.y.payload.data.eq(read.data),
            self.y.payload.stream.eq(stream),
            self.y.payload.suppress.eq(suppress),
        ]
        m.d.sync += [
            reads.eq(accepted | (reads & ~last)),
            beat.eq(Mux(reads & ~last, beat + 1, 0)),
            self.busy.eq(accepted | (self.busy & ~delay_event(m, last, memory.latency))),
        ]
        with m.If(accepted):
            m.d.sync += [
                token.eq(self.x.payload.data),
                stream.eq(self.x.payload.stream),
                suppress.eq(self.x.payload.suppress),
            ]
        return m
