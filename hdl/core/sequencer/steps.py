"""What decides which step comes next, as the sequencer sees it."""

from typing import ClassVar

from amaranth.hdl import Module, Mux, Signal

from rtlstm.hdl.component import Component, In, Out, Ports, Struct
from rtlstm.hdl.core.layouts import row_bits, vector_bits
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.hdl.core.sequencer.signatures import AFTER, READY, Fetched, Walk
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.manifest import Manifest


class Steps(Component):
    """Decides which step comes next, when it begins and with which operation; knows its stream and vectors.

    Parameters
    ----------
    fields
        The fields of the build's operations.
    """

    step: Struct = In(lambda fields: program_store(fields.manifest).step_layout)
    """What is loaded of a step."""
    fetched: Fetched = In(Fetched)
    walk: Walk = In(Walk)
    """The operation that is loaded, the next one, and how far it is."""
    window_wanted: Signal = In(1)
    """The memory window waits to be open: from the next cycle on no step begins."""
    reset_stream: Signal = In(1)
    state_written: Signal = In(1)
    """The stream ``command_stream`` starts from zero, or from what was written."""
    weights_written: Signal = In(1)
    """The partial sums of all streams are invalid."""
    command_stream: Signal = In(lambda fields: fields.manifest.parameters.stream_bits)
    after_op: Struct = Out(AFTER)
    after_next: Struct = Out(AFTER)
    """What comes after the operation that is loaded, and after the next one."""
    redirect: Signal = Out(1)
    target: Signal = Out(lambda fields: row_bits(fields.manifest.capacity.operations))
    """The step that is there begins with another operation than the one that is loaded."""
    input_ready: Struct = Out(READY)
    """The word that may be issued in the next cycle is in the input, and its step may begin."""
    vector_start: Signal = Out(lambda fields: vector_bits(fields.manifest))
    """First word of the vector of the next operation: in the input, or in the vector memory."""
    restarts: Signal = Out(1)
    """It is that of the loaded operation, which waits, and may be another than when that was loaded."""
    stream: Signal = Out(lambda fields: fields.manifest.parameters.stream_bits)
    """The stream of the step under way."""
    zero_state: Signal = Out(1)
    copy: Signal = Out(1)
    suppress: Signal = Out(1)
    """Its state is zero; results go to the second copy of the first layer's h; its output is not wanted."""
    blank: Signal = Out(1)
    """The operation reads zeros."""
    flags: Signal = Out(3)
    """State of ``command_stream``."""

    outside: ClassVar[type[Ports]]
    """Ports beside these, which the sequencer has, too."""

    def __init__(self, fields: OpFields) -> None:
        self.fields = fields
        super().__init__(fields)


class CurrentStream(Component):
    """Takes the next step's stream as long as an operation waits for that step."""

    listens: Signal = In(1)
    """An operation waits for the next step, or is loaded and will."""
    input_stream: Signal = In(lambda manifest: manifest.parameters.stream_bits)
    """The stream of the next step."""
    stream: Signal = Out(lambda manifest: manifest.parameters.stream_bits)
    """That of the step under way."""
    context: Signal = Out(vector_bits)
    next_context: Signal = Out(vector_bits)
    """First word of the stream's vectors in the vector memory, in this cycle and in the next."""

    def __init__(self, manifest: Manifest) -> None:
        size = manifest.program.vector_context
        self._contexts = [index * size for index in range(manifest.parameters.streams)]
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stream = Mux(self.listens, self.input_stream, self.stream)
        context = Signal.like(self.context, reset_less=True)
        m.d.sync += [self.stream.eq(stream), context.eq(self.next_context)]
        m.d.comb += [
            self.next_context.eq(lookup(m, stream, self._contexts, "context")),
            self.context.eq(context),
        ]
        return m
