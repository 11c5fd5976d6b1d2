"""The input buffer: what is read is what was accepted, and what it tells of its two halves is true."""

from functools import partial
from pathlib import Path

import pytest
from amaranth.asserts import AnyConst
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from support.formal import Inside, before, free_inputs, implies
from support.formal_shapes import fixed_manifest, loadable_manifest
from support.proofs import cases, covered, found, proven, refute, slow_cases, with_bug

from rtlstm.hdl.core.ports import InputBuffer
from rtlstm.hdl.core.program_store import program_store
from rtlstm.spec.family import Pipeline
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """An input buffer, a source of beats, and a sequencer that reads any word at any time.

    The source's side of the contract: all beats of a step have its stream and its ``suppress``. The
    sequencer's: it takes an input that is complete. With a loadable program the core is stopped after reset,
    and while what it knows of a step changes.

    The memory is free, but for one part of one word in one half: any.
    """

    def __init__(self, manifest: Manifest, kind: type[InputBuffer] = InputBuffer) -> None:
        self._manifest = manifest
        self._buffer = kind(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest, buffer, x = self._manifest, self._buffer, self._buffer.x.payload
        parameters, words = manifest.parameters, manifest.program.input_words
        free_inputs(m, buffer)
        inside = Inside(m, buffer)
        running = ~ResetSignal()
        accepted, taken = buffer.x.valid & buffer.x.ready, buffer.taken
        slots = parameters.macs // parameters.beat_in  # beats of a word
        # Complete inputs; beats of the one that arrives; the half that is read next, and that is written.
        waiting, arrived = Signal(range(3)), Signal(range(words * slots + 1))
        reads, writes = Signal(), Signal()

        # The sequencer and the program.
        program = program_store(manifest)
        stopped, step = program.event(lambda: buffer.stopped), program.fields_of(buffer.step)
        beats = Signal(range(words * slots + 1))
        m.d.comb += [
            beats.eq(step.beats_after + 1),
            Assume(implies(taken, (waiting != 0) & ~stopped & running)),
        ]
        if parameters.capacity:
            fresh, fields = Signal(init=1), Value.cast(step)
            m.d.sync += fresh.eq(0)
            m.d.comb += [
                Assume(implies(fresh | (fields != before(m, fields)), stopped)),
                Assume((step.beats_after < words * slots) & step.last_beat[0]),
                Assume(implies(step.one_word, beats <= slots)),
            ]

        # The source.
        named = Cat(x.stream, x.suppress)
        kept = Array(Signal.like(named, name=f"kept{half}") for half in (0, 1))
        m.d.comb += Assume(implies(buffer.x.valid & (arrived != 0), named == kept[writes]))
        with m.If(accepted):
            m.d.sync += kept[writes].eq(named)

        # Two inputs at most, and room until there are two: nothing is lost, and nothing is overwritten before
        # it is taken.
        completes = accepted & (arrived == beats - 1)
        m.d.sync += [
            waiting.eq(waiting + completes - taken),
            arrived.eq(Mux(completes, 0, arrived + accepted)),
            reads.eq(reads ^ taken),
            writes.eq(writes ^ completes),
        ]
        with m.If(stopped):
            m.d.sync += [register.eq(0) for register in (waiting, arrived, reads, writes)]
        m.d.comb += [
            Assert(buffer.x.ready == (running & ~stopped & (waiting != 2))),
            Assert(waiting <= 2),
            Assert(writes == reads ^ (waiting == 1)),
            Assert(implies(~stopped, arrived < beats)),
        ]

        # What it tells is true. Of the next input, with what arrives in this cycle unless that waits for a
        # register (``accept``):
        news = accepted & (waiting == 0) & (parameters.pipeline.accept == 0)
        slot, streams = inside["slot"], len(x.stream)
        next_stream, next_suppress = kept[reads][:streams], kept[reads][-1]
        with m.If(running):
            m.d.comb += [
                Assert(buffer.full == (waiting != 0)),
                Assert(buffer.bank == reads),
                Assert(implies(waiting != 2, buffer.coming == (waiting == 0))),
                Assert(buffer.words * slots + slot == arrived),
                Assert(buffer.grows == (news & (slot == slots - 1))),
                Assert(buffer.fills == (news & completes)),
                Assert(implies(buffer.full | (arrived != 0), buffer.stream == next_stream)),
                Assert(implies(buffer.full, buffer.suppress == next_suppress)),
                Assert(implies(news, buffer.stream == x.stream)),
                Assert(implies(news & step.one_word, buffer.suppress == x.suppress)),
                Assert(buffer.filled == completes),
            ]
        # Of both halves, and what the registers behind it hold:
        for half in (0, 1):
            complete = (waiting == 2) | ((waiting == 1) & (reads == half))
            arrives = (arrived != 0) & (writes == half)
            stream = buffer.halves_streams.word_select(half, streams)
            m.d.comb += [
                Assert(buffer.halves_full[half] == complete),
                Assert(implies(complete | arrives, stream == kept[half][:streams])),
                Assert(implies(complete | arrives, inside["suppress"][half] == kept[half][-1])),
            ]
        m.d.comb += [
            Assert(inside["ready"] == (waiting != 2)),
            Assert(inside["empty"] == (waiting == 0)),
            Assert(inside["same_bank"] == (reads == writes)),
            Assert(inside["bank_in"] == writes),
            Assert(slot < slots),
            Assert(implies(~stopped, inside["last_beat"] == (arrived == beats - 1))),
            Assert(implies(~stopped, inside["left"] == beats - 1 - arrived)),
        ]

        # What is read is what was accepted. Follow any word of either half, and one beat's part of it, which
        # must have this ``value``. Where no beat comes for it, the word's first one clears it.
        half, word, part = AnyConst(1), AnyConst(range(words)), AnyConst(range(slots))
        value, has_value = Signal(len(x.data)), Signal()
        counts = Cat(bit.replicate(manifest.numerics.data_bits) for bit in step.last_beat)
        mine = accepted & (writes == half)
        m.d.comb += [Assume(word < words), Assume(part < slots)]
        with m.If(mine & (buffer.words == word) & (slot == part)):
            m.d.sync += [has_value.eq(1), value.eq(Mux(completes, x.data & counts, x.data))]
        with m.Elif(mine & (buffer.words == word) & (slot == 0)):
            m.d.sync += [has_value.eq(1), value.eq(0)]
        with m.Elif(mine & (arrived == 0)):
            m.d.sync += has_value.eq(0)

        # The memory holds it from the word's first beat until the input has been taken.
        read, write, row = inside["read"], inside["write"], word + Mux(half, words, 0)
        here, stored = write.addr == row, Signal(len(x.data), reset_less=True)
        with m.If(here & write.en.bit_select(part, 1)):
            m.d.sync += stored.eq(write.data.word_select(part, len(x.data)))
        arrives = (writes == half) & (arrived != 0)
        is_whole = buffer.halves_full.bit_select(half, 1)
        has_word = Mux(is_whole, word <= (beats - 1) // slots, arrives & (buffer.words > word))
        has_part = has_word | (arrives & (buffer.words == word) & (slot != 0))
        m.d.comb += Assert(implies(has_part & ~stopped, has_value))
        if parameters.pipeline.accept:
            # It is written a cycle later, and may be read a cycle later.
            value, has_value, has_word = (
                before(m, value),
                before(m, has_value),
                has_word & before(m, has_word),
            )
        m.d.comb += [
            Assert(implies(has_value, stored == value)),
            Assert(implies(has_word & ~stopped, ~(here & write.en.any()))),
        ]

        # It is read one cycle after its row is given, or two. The memory's contract is assumed: it gives what
        # is stored, unless the word is written at the same time.
        given = running & ~stopped & (read.addr == row)
        keeps, reads_word = given & has_value & ~(here & write.en.any()), given & has_word
        was_stored, was_value = stored, value
        for _ in range(memories(manifest)["input buffer"].latency):
            keeps, reads_word = before(m, keeps & running), before(m, reads_word & running)
            was_stored, was_value = before(m, was_stored), before(m, was_value)
        m.d.comb += [
            Assume(implies(keeps, read.data.word_select(part, len(x.data)) == was_stored)),
            Assert(implies(reads_word, buffer.word.word_select(part, len(x.data)) == was_value)),
        ]

        # All of this happens: both halves were full, and of a later input, a word that is not zero is read.
        full = Signal()
        m.d.sync += full.eq(full | (waiting == 2))
        m.d.comb += Cover(full & half & reads_word & (was_value != 0) & (waiting == 0) & (arrived != 0))
        return m


SHAPES = {
    "one value": partial(fixed_manifest, inputs=1),
    "one word": partial(fixed_manifest, inputs=4),
    "one beat": partial(fixed_manifest, inputs=4, beat_in=4),
    "words partly filled": partial(fixed_manifest, inputs=9, beat_in=2, streams=2),
    "whole words": partial(fixed_manifest, inputs=8, beat_in=4, streams=3),
    "five slots": partial(fixed_manifest, inputs=17, macs=5),
    "registered": partial(
        fixed_manifest, inputs=9, beat_in=2, streams=2, pipeline=Pipeline(accept=1, operand=3)
    ),
    "registered, one word": partial(fixed_manifest, inputs=3, pipeline=Pipeline(accept=1, operand=4)),
    "64 values": partial(fixed_manifest, inputs=64, macs=8),
    "loadable": partial(loadable_manifest, inputs=9, beat_in=2, streams=2),
    "loadable, registered": partial(
        loadable_manifest, inputs=9, streams=2, pipeline=Pipeline(accept=1, operand=3)
    ),
}
test_holds = proven(Harness, cases(SHAPES, "words partly filled", "loadable"), depth=3)
test_reached = covered(
    Harness, 30, slow_cases(SHAPES, "one word", "words partly filled", "registered", "loadable")
)

BUGS = {
    "a third input": ("Mux(fills, empty, ready)", "ready"),
    "both inputs in one half": ("row + Mux(bank_in, words, 0)", "row"),
    "the rest of a word undefined": ("((slot == 0) | (slot == i))", "(slot == i)"),
    "what is past the end": (
        "data.eq(as_vector(self._manifest, x.data) & keep)",
        "data.eq(as_vector(self._manifest, x.data))",
    ),
    "the next input begins late": ("left.eq(after),\n                    slot.eq(0),", "left.eq(after),"),
    "the stream of the other": ("streams[bank_in].eq", "streams[bank_out].eq"),
    "coming is not told": ("same_bank ^ fills ^ self.taken", "same_bank ^ fills"),
    "news of the input after next": (
        "self.grows.eq(news & ends_word)",
        "self.grows.eq(accepted & ends_word)",
    ),
    "one beat too few": (
        "last_beat.eq((follow == 1) | (after == 0))",
        "last_beat.eq((follow <= 2) | (after == 0))",
    ),
}
test_bug_is_found = found(
    Harness, InputBuffer, cases(BUGS, "a third input"), 30, SHAPES["words partly filled"]
)


@pytest.mark.slow
def test_forgetting_is_seen(tmp_path: Path) -> None:
    """A loadable core that is stopped in the middle of an input forgets all of it."""
    kind = with_bug(InputBuffer, "(full, bank_in, bank_out, slot, row))", "(full, bank_in, bank_out, row))")
    refute(Harness(SHAPES["loadable"](), kind), tmp_path, 10)
