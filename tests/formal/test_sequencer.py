"""The sequencer: it reserves only with room, and what was idle when the memory window asks stays idle."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, ResetSignal, Signal
from support.formal import Inside, before, cases, free_inputs, implies, prove, reach, refute, with_bug
from support.formal_shapes import fixed_manifest

from rtlstm.hdl.core.sequencer import Sequencer
from rtlstm.spec.family import Pipeline
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import issue_fields

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """A sequencer of a fixed program between an input buffer, an output queue and a memory window.

    What it needs of the others: an input that is there stays what it is until it is taken; room stays until
    it is reserved (which the queue's proof shows); the window opens, and commands come, in a cycle in which
    it is wanted and after one in which all was idle.
    """

    def __init__(self, manifest: Manifest, kind: type[Sequencer] = Sequencer) -> None:
        self._manifest = manifest
        self._sequencer = kind(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sequencer = self._sequencer
        free_inputs(m, sequencer)
        inside = Inside(m, sequencer)
        running, valid = ~ResetSignal(), sequencer.token.valid

        # The input buffer.
        known = sequencer.input_full | (sequencer.input_words != 0)
        heard = known | sequencer.input_grows | sequencer.input_fills
        named, suppress = sequencer.input_stream, sequencer.input_suppress
        stays = ~sequencer.input_taken & running
        m.d.comb += [
            Assume(implies(before(m, sequencer.input_full & stays), sequencer.input_full)),
            Assume(implies(before(m, heard & stays), (named == before(m, named)) & known)),
            Assume(implies(before(m, known & stays), suppress == before(m, suppress))),
        ]

        # The output queue.
        m.d.comb += Assume(implies(before(m, sequencer.room & ~sequencer.emits & running), sequencer.room))

        # The memory window.
        wanted = sequencer.window_wanted
        was_idle = before(m, sequencer.idle & wanted & running)
        commands = sequencer.reset_stream | sequencer.state_written | sequencer.weights_written
        m.d.comb += Assume(implies(sequencer.window | commands, wanted & was_idle))

        # While the window is wanted, what was idle stays idle. So nothing is issued while it is open.
        with m.If(running):
            m.d.comb += [
                Assert(implies(was_idle & wanted, sequencer.idle & ~valid)),
                Assert(implies(sequencer.window | commands, ~valid)),
            ]

        # Each operation that emits results has reserved room for them, once, when it begins.
        reserved = Signal()
        m.d.sync += reserved.eq((reserved | sequencer.emits) & ~sequencer.output)
        with m.If(running):
            m.d.comb += [
                Assert(implies(sequencer.emits, sequencer.room & ~reserved)),
                Assert(implies(sequencer.output & ~sequencer.token.suppress, reserved | sequencer.emits)),
            ]

        # What its registers hold for that.
        loading, fields, table = inside["_loading"], inside["_fields"], inside["_table"]
        begun = ~inside["_begin"] & ~loading
        m.d.comb += [
            Assert(reserved == inside["_reserved"]),
            Assert(inside["_last_word"] == (inside["_last_column"] & inside["_last_group"])),
            Assert(implies(inside["_begin"], inside["_open"])),
            Assert(implies(valid, ~loading)),
            Assert(implies((begun | valid) & fields["waits_for_input"], known)),
            Assert(implies(begun & fields["emit"] & ~sequencer.token.suppress, reserved)),
            Assert(implies(inside["_track_activity.drained"], inside["_track_activity.left"] == 0)),
            Assert(implies(loading & inside["_track_activity.drained"], table["waits_for_input"])),
        ]
        # The operation in its registers is the program's, and the one to be loaded may follow it.
        program = self._manifest.program
        values = issue_fields(program)
        with m.If(~loading):
            m.d.comb += Assert(inside["_pc"] < len(program.ops))
        for index in range(len(program.ops)):
            with m.If(~loading & (inside["_pc"] == index)):
                followers = {program.follows(index), program.follows(index, suppress=True)}
                if None in followers:
                    followers = followers - {None} | {0, program.prefetch or 0}
                m.d.comb += Assert(Cat(inside["_next"] == other for other in sorted(followers)).any())
                m.d.comb += [Assert(register == values[name][index]) for name, register in fields.items()]

        # All of this happens: an operation ends that has room for its results, and later the window opens.
        ended, has_room = Signal(), reserved | sequencer.emits
        m.d.sync += ended.eq(ended | (sequencer.output & has_room))
        m.d.comb += Cover(ended & sequencer.window)
        return m


SHAPES = {
    "one word": partial(fixed_manifest, inputs=1, outputs=1),
    "two words, two groups": partial(fixed_manifest, inputs=2, outputs=2, macs=1),
    "three streams": partial(fixed_manifest, inputs=5, outputs=3, macs=2, streams=3),
    "dense layer": partial(fixed_manifest, inputs=3, outputs=2, dense=2, macs=2, streams=2),
    "registered": partial(
        fixed_manifest, inputs=5, outputs=3, macs=2, pipeline=Pipeline(accept=1, operand=4)
    ),
}


@pytest.mark.parametrize("shape", cases(SHAPES, "two words, two groups"))
def test_holds(shape: Callable[[], Manifest], tmp_path: Path) -> None:
    prove(Harness(shape()), tmp_path, 3)


@pytest.mark.parametrize("shape", cases(SHAPES, "two words, two groups"))
def test_reached(shape: Callable[[], Manifest], tmp_path: Path) -> None:
    reach(Harness(shape()), tmp_path, 60)


BUGS = {
    "idle between redirect and word": ("(left <= 1) & ~self._redirect", "(left <= 1)"),
    "begins without room": (
        'loaded & (~table["emit"] | self.room | kept)',
        "loaded & (1 | kept)",
    ),
    "waits without room": ('(~self._begin | ~fields["emit"] | self.room | self._reserved)', "1"),
    "reserves twice": ("(self._reserved | self.emits) & ~self.output", "self.emits & ~self.output"),
    "keeps room that is used": ('self._reserved & (self._loading | ~fields["emit"])', "self._reserved | 1"),
    "begins while the window waits": (
        "(there & precomputed & ~self.window_wanted)",
        "(there & precomputed)",
    ),
}


@pytest.mark.parametrize("bug", cases(BUGS, "idle between redirect and word"))
def test_bug_is_found(bug: tuple[str, str], tmp_path: Path) -> None:
    refute(Harness(SHAPES["two words, two groups"](), with_bug(Sequencer, *bug)), tmp_path, 40)
