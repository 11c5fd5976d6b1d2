"""The output queue: no result is ever without room, and every value leaves once, in order, in its place."""

from functools import partial
from pathlib import Path

import pytest
from amaranth.asserts import AnyConst
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib.data import View
from support.formal import Inside, before, follow, free_inputs, holds, implies
from support.formal_shapes import fixed_manifest, loadable_manifest
from support.proofs import cases, covered, found, proven, refute, slow_cases, with_bug

from rtlstm.hdl.core.ports import OutputQueue
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import step_fields

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """An output queue, what reserves its room, what fills it, and a reader that takes beats as it likes.

    The sequencer's side of the contract: it reserves (``emits``) with ``room`` only. The gate units' side:
    results come for what is reserved alone; a step's last result is in the last of its beats, in any place
    there. With a loadable program, the sequencer may give back the one reservation that is left, and the
    number of beats of a step changes while nothing is reserved.
    """

    def __init__(self, manifest: Manifest, kind: type[OutputQueue] = OutputQueue) -> None:
        self._manifest = manifest
        self._queue = kind(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest, queue, result = self._manifest, self._queue, self._queue.result
        parameters, depth = manifest.parameters, memories(manifest)["output queue"].depth
        free_inputs(m, queue)
        inside = Inside(m, queue)
        running = ~ResetSignal()
        # Beats that are reserved and not yet in the queue; and those in the queue.
        owed, held = Signal(range(depth + 1)), Signal(range(depth + 1))

        # The sequencer.
        m.d.comb += Assume(implies(queue.emits, queue.room & running))
        if parameters.capacity is None:
            beats, changes = Const(step_fields(manifest.program, parameters)["beats_out"]), Const(0)
            releases: Value = Const(0)
        else:
            beats, most = queue.step.beats_out, -(-manifest.capacity.outputs // parameters.beat_out)
            changes, releases = beats != before(m, beats), queue.releases
            m.d.comb += [
                Assume((beats >= 1) & (beats <= most)),
                Assume(implies(changes, (owed == 0) & ~queue.emits)),
            ]

        # The gate units. ``beat`` and ``place`` count the beats of a step and the results in a beat.
        emitted = result.valid & result.emit
        places = parameters.beat_out // parameters.gate_units
        beat, place = Signal(range(depth)), Signal(range(places))
        in_last_beat, in_last_place = beat == beats - 1, place == places - 1
        fills = emitted & (result.last | in_last_place)
        m.d.comb += [
            Assume(implies(emitted, (owed != 0) & running)),
            Assume(implies(emitted & ~in_last_beat, ~result.last)),
            Assume(implies(emitted & in_last_beat & in_last_place, result.last)),
            Assume(implies(releases, (owed == beats) & (beat == 0) & (place == 0) & running)),
            Assume(implies(releases, ~emitted & ~queue.emits & ~before(m, queue.emits))),
        ]
        with m.If(emitted):
            m.d.sync += place.eq(Mux(fills, 0, place + 1))
        with m.If(fills):
            m.d.sync += beat.eq(Mux(in_last_beat, 0, beat + 1))

        # No result is ever without room. Every beat of the queue is free, in use, or owed to a reservation;
        # one of the cycle before is not subtracted yet, nor is a beat that left then added. What ``room``
        # promises is free.
        taken = queue.y.valid & queue.y.ready
        free = Signal(range(-depth, depth + 1))
        m.d.sync += [
            owed.eq(owed + Mux(queue.emits, beats, 0) - Mux(releases, beats, 0) - fills),
            held.eq(held + fills - taken),
        ]
        m.d.comb += [
            free.eq(inside["credits"] - Mux(inside["reserved"], beats, 0)),
            Assert(free + held + owed + inside["taken"] == depth),
            Assert(implies(inside["reserved"], owed >= beats)),
            Assert(free >= Mux(queue.room & ~changes, beats, 0)),
            Assert(implies(fills, inside["queue.w_rdy"])),
        ]

        # Room stays until it is reserved, and there is some if there is nothing else: nobody waits for ever.
        asked = before(m, queue.room & ~queue.emits & ~changes & running)
        empty = before(m, (held == 0) & (owed == 0) & ~inside["taken"] & ~queue.emits & running)
        m.d.comb += Assert(implies(asked | empty, queue.room | changes))

        # The reader sees a stream: what is offered stays. There is a beat as long as the queue holds one.
        m.d.comb += [
            Assert(holds(m, queue.y)),
            Assert(queue.y.valid == ((held != 0) & running)),
            Assert(queue.pushed_last == (emitted & result.last)),
        ]

        # Values of a beat come side by side: follow any one place. What no result wrote is zero.
        width = len(queue.values)
        each = width // parameters.gate_units
        chosen, value, there = AnyConst(range(places)), Signal(width), Signal(width)
        masked = Cat(bit.replicate(each) for bit in result.mask) & queue.values
        m.d.comb += [
            Assume(chosen < places),
            value.eq(Mux(emitted & (place == chosen), masked, there)),
            Assert((inside["slot"] == place) & (place < places)),
            Assert(implies(chosen >= place, there == 0)),
            Assert(inside["packed"].word_select(chosen, width) == there),
        ]
        m.d.sync += there.eq(Mux(fills, 0, value))

        # So what is written is right; and all that is written leaves once, in order, as it is.
        follow(m, inside, "queue")
        written = View(queue.y.payload.shape(), inside["queue.w_data"])
        m.d.comb += [
            Assert(inside["queue.level"] == held),
            Assert(Value.cast(queue.y.payload) == inside["queue.r_data"]),
            Assert(inside["queue.w_en"] == fills),
        ]
        with m.If(fills):
            m.d.comb += [
                Assert(written.data.word_select(chosen, width) == value),
                Assert((written.stream == result.stream) & (written.last == result.last)),
            ]

        # All of this happens: the queue was full, and the last of what it held leaves.
        full = Signal()
        m.d.sync += full.eq(full | (held == depth))
        m.d.comb += Cover(full & taken & queue.y.payload.last & (held == 1))
        return m


SHAPES = {
    "one value": partial(fixed_manifest, outputs=1),
    "7 beats": partial(fixed_manifest, outputs=7),
    "8 beats": partial(fixed_manifest, outputs=8, streams=3),
    "all in one beat": partial(fixed_manifest, outputs=3, beat_out=4),
    "last beat partly filled": partial(fixed_manifest, outputs=3, beat_out=2),
    "three places, three streams": partial(fixed_manifest, outputs=7, beat_out=3, streams=3),
    "two gate units": partial(fixed_manifest, outputs=5, beat_out=4, gate_units=2, lanes=8),
    "40 beats": partial(fixed_manifest, outputs=40, streams=2),
    "loadable": partial(loadable_manifest, outputs=5, beat_out=2),
    "loadable, one beat": partial(loadable_manifest, outputs=2, beat_out=2, streams=2),
    "loadable, two gate units": partial(loadable_manifest, outputs=9, beat_out=2, gate_units=2, lanes=8),
}
test_holds = proven(Harness, cases(SHAPES, "last beat partly filled", "loadable"))
test_reached = covered(
    Harness, 24, slow_cases(SHAPES, "one value", "last beat partly filled", "two gate units", "loadable")
)

BUGS = {
    "room promised twice": ("~reserved & (credits", "(credits"),
    "the reservation before forgotten": ("Mux(self.emits, for_two, for_one)", "for_one"),
    "what is taken is not counted": ("credits + taken -", "credits -"),
    "too much promised": ("credits >= Mux(reserved, beats << 1, beats)", "credits >= beats"),
    "a beat is dropped": ("r_en.eq(self.y.ready & ~ResetSignal())", "r_en.eq(self.y.valid)"),
    "an unfinished last beat stays": ("(slot == beat - 1) | result.last", "slot == beat - 1"),
    "values of the beat before": ("packed.eq(Mux(ends, 0, full))", "packed.eq(full)"),
    "values that do not count": ("value.eq(values & valid)", "value.eq(values)"),
    "a value in the wrong place": ("slot.eq(Mux(ends, 0, slot + 1))", "slot.eq(slot + 1)"),
    "results of other operations": ("emitted = result.valid & result.emit", "emitted = result.valid"),
}
test_bug_is_found = found(
    Harness, OutputQueue, cases(BUGS, "room promised twice"), 20, SHAPES["last beat partly filled"]
)


@pytest.mark.slow
def test_release_is_seen(tmp_path: Path) -> None:
    """What a stopped core had reserved would be lost."""
    kind = with_bug(OutputQueue, "-beats, Mux(reserved", "0, Mux(reserved")
    refute(Harness(SHAPES["loadable"](), kind), tmp_path, 20)
