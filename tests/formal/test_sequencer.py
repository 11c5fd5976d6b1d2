"""The sequencer: it reserves only with room, and what was idle when the memory window asks stays idle."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, ResetSignal, Signal
from support.formal import Inside, before, cases, free_inputs, implies, prove, reach, refute, with_bug
from support.formal_shapes import fixed_manifest

from rtlstm.hdl.component import Component
from rtlstm.hdl.core.sequencer import sequencer, step_sequencer
from rtlstm.hdl.core.sequencer.activity import Activity
from rtlstm.hdl.core.sequencer.admission import Admission
from rtlstm.hdl.core.sequencer.input_steps import InputSteps
from rtlstm.hdl.core.sequencer.step_sequencer import StepSequencer
from rtlstm.spec.family import Pipeline
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import issue_fields

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """A sequencer of a fixed program between an input buffer, an output queue and a memory window.

    What it needs of the others: an input that is there stays what it is until it is taken; room stays until
    it is reserved, as the queue's proof shows; the window opens, and commands come, only while it has been
    wanted since all was idle, as the proof of the core's memory window shows.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._sequencer = StepSequencer(manifest)

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

        # The memory window. In some cycle all was idle, and since then it has been wanted.
        wanted, settled = sequencer.window_wanted, Signal()
        commands = sequencer.reset_stream | sequencer.state_written | sequencer.weights_written
        m.d.sync += settled.eq(wanted & (sequencer.idle | settled))
        m.d.comb += Assume(implies(sequencer.window | commands, wanted & settled))

        # While the window is wanted, what was idle stays idle. So nothing is issued while it is open.
        with m.If(running):
            m.d.comb += [
                Assert(implies(settled & wanted, sequencer.idle & ~valid)),
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
        fetched, walk = inside["fetch.fetched"], inside["walker.walk"]
        loading, op, index = fetched.loading, fetched.op, fetched.index
        begun = ~walk.begins & ~loading
        m.d.comb += [
            Assert(reserved == inside["admission.reserved"]),
            Assert(inside["_count.last_word"] == (walk.last_column & walk.last_group)),
            Assert(implies(walk.begins, walk.first_group)),
            Assert(implies(valid, ~loading)),
            Assert(implies((begun | valid) & op.waits_for_input, known)),
            Assert(implies(begun & op.emit & ~sequencer.token.suppress, reserved)),
            Assert(implies(inside["activity.drained"], inside["activity.left"] == 0)),
            Assert(implies(loading & inside["activity.drained"], fetched.next_op.waits_for_input)),
        ]
        # The operation in its registers is the program's, and the one to be loaded may follow it.
        program = self._manifest.program
        values = issue_fields(program)
        with m.If(~loading):
            m.d.comb += Assert(index < len(program.ops))
        for number in range(len(program.ops)):
            with m.If(~loading & (index == number)):
                followers = {program.follows(number), program.follows(number, suppress=True)}
                if None in followers:
                    followers = followers - {None} | {0, program.prefetch or 0}
                upcoming, group = inside["fetch.next_index"], inside["_count.group"]
                m.d.comb += [
                    Assert(Cat(upcoming == other for other in sorted(followers)).any()),
                    *(Assert(op[name] == values[name][number]) for name in op.shape().members),
                    Assert(group <= values["groups"][number]),
                    Assert(walk.first_group == (group == values["groups"][number])),
                    Assert(walk.last_group == (group == 0)),
                ]

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


REACHED = {name: SHAPES[name] for name in ("one word", "two words, two groups")}


@pytest.mark.parametrize("shape", cases(REACHED, "one word"))
def test_reached(shape: Callable[[], Manifest], tmp_path: Path) -> None:
    reach(Harness(shape()), tmp_path, 60)


BUGS = {
    "idle between redirect and word": (Activity, "(left <= 1) & ~self.redirect", "(left <= 1)"),
    "begins without room": (Admission, "(~next_op.emit | self.room | kept)", "(1 | kept)"),
    "waits without room": (Admission, "~walk.begins | ~self.fetched.op.emit | self.room | reserved", "1"),
    "reserves twice": (Admission, "(reserved | self.emits) & ~self.output", "self.emits & ~self.output"),
    "keeps room that is used": (Admission, "reserved & (loading | ~op.emit)", "reserved | 1"),
    "begins while the window waits": (
        InputSteps,
        "(there & precomputed & ~self.window_wanted)",
        "(there & precomputed)",
    ),
}


@pytest.mark.parametrize("bug", cases(BUGS, "idle between redirect and word"))
def test_bug_is_found(
    bug: tuple[type[Component], str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, right, wrong = bug
    user = step_sequencer if part is InputSteps else sequencer
    monkeypatch.setattr(user, part.__name__, with_bug(part, right, wrong))
    refute(Harness(SHAPES["two words, two groups"]()), tmp_path, 40)
