"""The steps that layers work on in a wave-front; :mod:`rtlstm.spec.program.wave` has the program."""

from amaranth.hdl import Cat, Module, Mux, Signal

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.core.program_store import OpFields
from rtlstm.hdl.core.sequencer.steps import Fetched, Walk


class WaveStages(Component):
    """Keeps three bits for each layer: it has a step; that one's output is not wanted; its old state is zero.

    They move on by a layer when the wave's first operation is loaded, which begins the next step if its input
    is there. The body's first operation gives the first layer a step, if the wave follows.
    """

    fetched: Fetched = In(Fetched)
    walk: Walk = In(Walk)
    """The operation that is loaded, the next one, and how far it is."""
    there: Signal = In(1)
    """The next step's input is there, and may be read."""
    input_suppress: Signal = In(1)
    """The output of the step whose input is being read is not wanted."""
    first_zero_state: Signal = In(1)
    """The stream's state is zero before the step that the body begins."""
    bubble: Signal = Out(1)
    suppress: Signal = Out(1)
    zero_state: Signal = Out(1)
    """The layer of the wave's operation that is loaded has no step; no output is wanted of it; its state is
    zero."""
    blank: Signal = Out(1)
    """It reads an h that is zero."""
    silent: Signal = Out(1)
    """The operation that gives outputs will give none."""
    others: Signal = Out(1)
    """A layer before the last one has a step."""

    def __init__(self, fields: OpFields) -> None:
        self._layers = len(fields.manifest.layers)
        super().__init__(fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, next_op = self.fetched.op, self.fetched.next_op
        begins, enters = op.waits_for_input, next_op.in_wave
        shifts = self.fetched.load & next_op.in_wave & next_op.from_input
        live, silent, zero = (Signal(self._layers, name=name) for name in ("live", "unwanted", "zero"))
        for bits, first, given in (
            (live, 1, self.there),
            (silent, self.input_suppress, 0),
            (zero, self.first_zero_state, 0),
        ):
            before = Mux(begins, first, bits)
            with m.If(shifts):
                m.d.sync += bits.eq(Cat(given, before[: self._layers - 1]))
            with m.Elif(self.walk.ends & begins):
                m.d.sync += bits.eq(Mux(enters, first, 0))
        with m.If(self.walk.ends & op.in_wave & op.from_input):
            m.d.sync += silent[0].eq(self.input_suppress)
        mine = [bits.bit_select(op.stage, 1) for bits in (live, silent, zero)]
        m.d.comb += [
            self.bubble.eq(op.in_wave & ~mine[0]),
            self.suppress.eq(~mine[0] | mine[1]),
            self.zero_state.eq(mine[2]),
            self.blank.eq(op.in_wave & op.reads_h & mine[2]),
            # With one layer, its step has just begun.
            self.silent.eq(~live[-1] | (silent[-1] if self._layers > 1 else 0)),
            self.others.eq(live[:-1].any()),
        ]
        return m
