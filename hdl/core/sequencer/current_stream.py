"""The stream of the step under way."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.core.sequencer.signatures import vector_bits
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.manifest import Manifest


class CurrentStream(Component):
    """Takes the next step's stream as long as an operation waits for that step.

    Members
    -------
    listens : In(1)
        An operation waits for the next step, or is loaded and will.
    input_stream : In
        The stream of the next step.
    stream : Out
        That of the step under way.
    context, next_context : Out
        First word of the stream's vectors in the vector memory, in this cycle and in the next.
    """

    listens: Signal
    input_stream: Signal
    stream: Signal
    context: Signal
    next_context: Signal

    def __init__(self, manifest: Manifest) -> None:
        size = manifest.program.vector_context
        self._contexts = [index * size for index in range(manifest.parameters.streams)]
        streams = manifest.parameters.stream_bits
        super().__init__(
            {
                "listens": In(1),
                "input_stream": In(streams),
                "stream": Out(streams),
                "context": Out(vector_bits(manifest)),
                "next_context": Out(vector_bits(manifest)),
            }
        )

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
