"""The output FIFO of a bus wrapper: the values of the core's beats, one by one, and only whole steps."""

from functools import partial

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, before, follow, free_inputs, implies, step_size
from support.formal_shapes import fixed_manifest, loadable_manifest
from support.proofs import cases, covered, found, proven, slow_cases

from rtlstm.hdl.buses.wrappers import OutputFifo
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """An output FIFO, a core that gives whole steps of beats, and registers that read when they like.

    With a loadable core the number of values of a step changes in reset only, which begins the FIFO's life
    and lasts two cycles.
    """

    def __init__(self, manifest: Manifest, kind: type[OutputFifo] = OutputFifo) -> None:
        self._manifest = manifest
        self._fifo = kind(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fifo, port, y = self._fifo, self._fifo.port, self._fifo.y
        parameters, most = self._manifest.parameters, self._manifest.capacity.outputs
        bits = self._manifest.numerics.output_bits
        free_inputs(m, fifo)
        inside = Inside(m, fifo)
        running, beat, queue = ~ResetSignal(), parameters.beat_out, inside["queue"]

        values, beats = step_size(m, self._manifest, fifo, "outputs")

        # The core: ``put`` beats of a step have come, of which the last one says so.
        put, gone, whole = Signal(range(most)), Signal(range(most)), Signal(range(queue.depth + 1))
        comes = y.valid & y.ready & running
        m.d.comb += Assume(implies(y.valid & running, y.payload.last == (put == beats - 1)))
        with m.If(comes):
            m.d.sync += put.eq(Mux(y.payload.last, 0, put + 1))

        # The registers: each read that is not refused takes the next value of the step.
        index, slot = Signal(range(most)), Signal(range(beat))
        mine = port.number == Register.Y_DATA
        taken = port.decided & ~port.write & mine & ~port.refused & running
        last = index == values - 1
        pops = taken & (last | (slot == beat - 1))
        with m.If(taken):
            m.d.sync += [index.eq(Mux(last, 0, index + 1)), slot.eq(Mux(pops, 0, slot + 1))]
        with m.If(pops):
            m.d.sync += gone.eq(Mux(last, 0, gone + 1))
        m.d.sync += whole.eq(whole + (comes & y.payload.last) - (taken & last))

        # Beats wait as they came, and a value is there when it is taken.
        follow(m, inside, "queue")
        word = queue.r_data.word_select(slot, bits)
        with m.If(running):
            m.d.comb += [
                Assert(y.ready == queue.w_rdy),
                Assert(queue.w_en == comes),
                Assert(implies(comes, queue.w_data == Cat(y.payload.data, y.payload.stream))),
                Assert(queue.r_en == pops),
                Assert(implies(taken, queue.r_rdy)),
                Assert(implies(mine, port.read_data == Cat(word, word[-1].replicate(32 - bits)))),
                Assert(fifo.done == (comes & y.payload.last)),
            ]
            with m.If(port.number == Register.Y_STREAM):
                m.d.comb += Assert(port.read_data == queue.r_data[beat * bits :])

        # Why it is there. What is told of a step waits until its last beat can be at the queue's output:
        # ``coming`` steps have come, and are not told yet.
        coming = inside["arrived"][0] + inside["arrived"][1]
        with m.If(running):
            m.d.comb += [
                Assert(implies(mine, port.refused == (whole == coming))),
                Assert(implies(port.number == Register.Y_STEPS, port.read_data == whole - coming)),
                Assert(inside["ready"] + coming == whole),
                Assert(inside["arrived"][0] == before(m, comes & y.payload.last)),
                Assert(implies(~queue.r_rdy & (queue.level != 0), before(m, comes) & (queue.level == 1))),
                Assert(queue.level + gone == whole * beats + put),
                Assert(implies(whole == 0, gone == 0)),
                Assert((put < beats) & (gone < beats)),
                Assert((index < values) & (slot < beat) & (index == gone * beat + slot)),
                Assert(inside["slot"] == slot),
                Assert(inside["count_values.left"] == values - 1 - index),
            ]

        # All of this happens: the queue was full, and the last value of what waited is taken.
        full = Signal()
        m.d.sync += full.eq(full | ~queue.w_rdy)
        m.d.comb += Cover(full & taken & last & (queue.level == 1))
        return m


SHAPES = {
    "one value": partial(fixed_manifest, bus="axilite", outputs=1),
    "three beats": partial(fixed_manifest, bus="axilite", outputs=3),
    "last beat partly filled": partial(fixed_manifest, bus="axilite", outputs=3, beat_out=2, streams=3),
    "one full beat": partial(fixed_manifest, bus="axilite", outputs=4, beat_out=4),
    "20 beats": partial(fixed_manifest, bus="axilite", outputs=20, streams=2),
    "loadable": partial(loadable_manifest, bus="axilite", outputs=3, beat_out=2, streams=2),
}
test_holds = proven(Harness, cases(SHAPES, "last beat partly filled"))
test_reached = covered(Harness, 34, slow_cases(SHAPES, "one value", "last beat partly filled", "loadable"))

BUGS = {
    "a step is told too early": ("ready + arrived[-1] -", "ready + self.done -"),
    "what is not there is given": ("refused = mine & (ready == 0)", "refused = mine & 0"),
    "an unfinished last beat stays": ("ends = taken & (last | (slot", "ends = taken & ((slot"),
    "a beat is lost": ("self.y.ready.eq(queue.w_rdy | ResetSignal())", "self.y.ready.eq(1)"),
    "each value is a step": ("- (taken & last))", "- taken)"),
    "a value in the wrong place": ("slot.eq(Mux(ends, 0, slot + 1))", "slot.eq(slot + 1)"),
}
test_bug_is_found = found(
    Harness, OutputFifo, cases(BUGS, "a step is told too early"), 24, SHAPES["last beat partly filled"]
)
