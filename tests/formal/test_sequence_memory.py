"""The memory of whole sequences: one sequence at a time, and its results with room, all and in order."""

from functools import partial

import pytest
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, before, free_inputs, implies
from support.formal_shapes import sequence_manifest
from support.proofs import cases, covered, found, proven, slow_cases

from rtlstm.hdl.sequences.controller import SequenceMemory, _Phase
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """A memory of sequences, a source of beats, a core that computes passes, and a reader.

    The core's results come while passes are computed only. The queue behind has its own proof; here is what
    that needs.
    """

    def __init__(self, manifest: Manifest, kind: type[SequenceMemory] = SequenceMemory) -> None:
        self._manifest = manifest
        self._memory = kind(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest, memory = self._manifest, self._memory
        plan = manifest.sequence
        assert plan is not None
        free_inputs(m, memory)
        inside = Inside(m, memory)
        running, phase, queue = ~ResetSignal(), inside["_phase"], inside["_give.queue"]
        loads, gives = phase == _Phase.LOAD, phase == _Phase.GIVE
        giving, step, beat = inside["_give.giving"], inside["_give.step"], inside["_give.beat"]
        m.d.comb += Assume(implies(memory.result.valid, phase == _Phase.COMPUTE))

        # The source: a sequence ends with its last beat, or where the memory does; and no beat is taken until
        # what it gives has been decided.
        accepted = memory.x.valid & memory.x.ready & running
        m.d.comb += [
            Assert(memory.x.ready == (loads & running)),
            Assert(implies(giving & running, gives)),
            Assert(memory.busy == ~loads),
        ]

        # A step that is given reserves its beats once, with room, and then all of its results come, the last
        # one marked, with the sequence's stream.
        late = memories(manifest)["sequence memory"].latency + 1
        results = plan.output_beats
        left = Signal(range(results + 1))
        starts, goes_on, last = queue.emits & running, giving & running, giving & (beat == results - 1)
        stream = memory.stream
        m.d.sync += left.eq(Mux(starts, results, left - goes_on))
        for _ in range(late):
            goes_on, last, stream = before(m, goes_on), before(m, last), before(m, stream)
        with m.If(running):
            m.d.comb += [
                Assert(implies(starts, queue.room & gives & ~giving)),
                Assert(left == Mux(giving, results - beat, 0)),
                Assert((beat < results) & implies(~giving, beat == 0)),
                Assert(queue.result.valid == goes_on),
                Assert(implies(goes_on, queue.result.last == last)),
                Assert(implies(goes_on, queue.result.stream == stream)),
            ]

        # Each step of the sequence is given or dropped once.
        count, passed = inside["_steps"], inside["_give.passes"]
        told = Signal(range(plan.steps + 1))
        m.d.sync += told.eq(Mux(gives, told + passed, 0))
        with m.If(running):
            m.d.comb += [
                Assert(implies(passed, gives)),
                Assert(implies(gives, (step == told) & (told <= count))),
                Assert(implies(before(m, gives) & ~gives, loads & (told == before(m, count) + 1))),
                Assert(implies(~loads, count < plan.steps)),
                Assert(inside["_load.step"] < plan.steps),
            ]

        # All of this happens: a step is dropped, a later one given, and the next sequence begins.
        dropped, given = Signal(), Signal()
        m.d.sync += [
            dropped.eq(dropped | (passed & ~giving)),
            given.eq(given | (dropped & queue.pushed_last)),
        ]
        m.d.comb += Cover(given & accepted)
        return m


SHAPES = {
    "one value": partial(sequence_manifest, inputs=1, outputs=1, steps=5),
    "several words": partial(sequence_manifest, inputs=5, outputs=3, macs=2, streams=2),
    "two gate units": partial(sequence_manifest, inputs=3, outputs=5, beat_out=4, gate_units=2, lanes=8),
}
test_holds = proven(Harness, cases(SHAPES, "several words"), depth=5)
test_reached = covered(Harness, 24, slow_cases(SHAPES, "one value"))

BUGS = {
    "given without room": ("~self._suppress_read.data & queue.room)", "~self._suppress_read.data)"),
    "reserved twice": ("decides = active & looked & ~giving", "decides = active & looked"),
    "the next sequence comes too early": (
        "(self._phase == _Phase.LOAD) & ~ResetSignal()",
        "((self._phase == _Phase.LOAD) | (self._phase == _Phase.GIVE)) & ~ResetSignal()",
    ),
    "a result too early": (
        "pushes = delay_event(m, giving, stages + 1)",
        "pushes = delay_event(m, giving, stages)",
    ),
}
test_bug_is_found = found(Harness, SequenceMemory, cases(BUGS, "given without room"), 44, SHAPES["one value"])
