"""The sequencer: it reserves only with room, and what was idle when the memory window asks stays idle."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Elaboratable, Module, ResetSignal, Signal, Value
from support.formal import Inside, before, free_inputs, implies
from support.formal_shapes import fixed_manifest, loadable_manifest
from support.loadable_builds import NARROW
from support.proofs import cases, covered, proven, refute, slow_cases, with_bug
from support.pruned_builds import with_kept
from support.quick import quick
from support.random_builds import random_network, random_parameters

from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.component import Component
from rtlstm.hdl.core.sequencer import input_steps, sequencer
from rtlstm.hdl.core.sequencer.admission import Admission
from rtlstm.hdl.core.sequencer.input_steps import InputSteps, StepSequencer
from rtlstm.hdl.core.sequencer.sequencer import Activity
from rtlstm.spec.family import Pipeline
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import issue_fields
from rtlstm.spec.program.step import Program

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """A sequencer between an input buffer, an output queue and a memory window.

    What it needs of the others: an input that is there stays what it is until it is taken; room stays until
    it is reserved, as the queue's proof shows; the window opens, and commands come, only while it has been
    wanted since all was idle, as the proof of the core's memory window shows.

    A fixed program is known. A loadable one is any: what its memory gives is free, but for what holds of
    every program. It is written, and the core stopped, only through the open window.
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

        # While the window is wanted, what was idle stays idle, but for the cycle in which a loaded program's
        # first operation comes. So nothing is issued while it is open.
        halted = inside["fetch.fetched"].halted
        begins_program = before(m, halted) & ~halted
        with m.If(running):
            m.d.comb += [
                Assert(implies(settled & wanted, (sequencer.idle | begins_program) & ~valid)),
                Assert(implies(sequencer.window | commands, ~valid)),
            ]

        # Each operation that emits results has reserved room for them, once, when it begins. If another
        # program may come, what is reserved is given back, once, while nothing is under way.
        loadable = self._manifest.parameters.capacity is not None
        reserved, releases = Signal(), sequencer.releases if loadable else Const(0)
        output = inside["admission.output"]
        m.d.sync += reserved.eq((reserved | sequencer.emits) & ~output & ~releases)
        with m.If(running):
            m.d.comb += [
                Assert(implies(sequencer.emits, sequencer.room & ~reserved)),
                Assert(implies(output & ~sequencer.token.suppress, reserved | sequencer.emits)),
                Assert(implies(releases, reserved & ~valid & (inside["activity.left"] == 0))),
                Assert(implies(before(m, halted), ~reserved)),
            ]

        # What its registers hold for that.
        fetched, walk = inside["fetch.fetched"], inside["walker.walk"]
        loading, op = fetched.loading, fetched.op
        begun = ~walk.begins & ~loading
        m.d.comb += [
            Assert(reserved == inside["admission.reserved"]),
            Assert(inside["_count.last_word"] == (walk.last_column & walk.last_group)),
            Assert(implies(walk.begins, walk.first_group)),
            Assert(implies(valid, ~loading)),
            Assert(implies((begun | valid) & op.waits_for_input, known)),
            Assert(implies(begun & op.emit & ~sequencer.token.suppress, reserved)),
            Assert(implies(inside["activity.drained"], inside["activity.left"] == 0)),
            Assert(implies(loading & inside["activity.drained"] & ~halted, fetched.next_op.waits_for_input)),
        ]
        if loadable:
            self._load_program(m, inside)
        else:
            self._know_program(m, inside)

        # All of this happens: an operation ends that has room for its results, and later the window opens.
        ended, has_room = Signal(), reserved | sequencer.emits
        m.d.sync += ended.eq(ended | (output & has_room))
        m.d.comb += Cover(ended & sequencer.window)
        return m

    def _know_program(self, m: Module, inside: Inside) -> None:
        """The operation in its registers is the program's, and the one to be loaded may follow it."""
        program = self._manifest.program
        sections = self._manifest.parameters.lane_sums is not None
        values = issue_fields(program, sections=sections)
        fetched, walk = inside["fetch.fetched"], inside["walker.walk"]
        loading, op, index = fetched.loading, fetched.op, fetched.index
        with m.If(~loading):
            m.d.comb += Assert(index < len(program.ops))
        upcoming, next_op = inside["fetch.next_index"], fetched.next_op
        for number in range(len(program.ops)):
            with m.If(upcoming == number):
                m.d.comb += [
                    Assert(next_op[name] == values[name][number]) for name in next_op.shape().members
                ]
            with m.If(~loading & (index == number)):
                followers = _followers(program, number)
                group = inside["_count.group"]
                m.d.comb += [
                    Assert(Cat(upcoming == other for other in sorted(followers)).any()),
                    *(Assert(op[name] == values[name][number]) for name in op.shape().members),
                    Assert(group <= values["groups"][number]),
                    Assert(walk.first_group == (group == values["groups"][number])),
                    Assert(walk.last_group == (group == 0) & (~walk.keeps if sections else 1)),
                ]
                if sections:
                    left, groups = (inside[f"_begin_sections.{name}"] for name in ("left", "groups"))
                    m.d.comb += [
                        Assert(left <= values["sections"][number]),
                        Assert(groups == values["groups"][number]),
                    ]

    def _load_program(self, m: Module, inside: Inside) -> None:
        """The window writes the program and the step's fields, and the core is stopped meanwhile."""
        sequencer, fetched = self._sequencer, inside["fetch.fetched"]
        stopped, step, next_op = sequencer.stopped, Value.cast(sequencer.step), fetched.next_op
        running = ~ResetSignal()
        fresh = Signal(init=1)
        m.d.sync += fresh.eq(0)
        was_stopped, changes = before(m, stopped) | fresh, step != before(m, step)
        m.d.comb += [
            Assume(implies(fresh, stopped)),
            Assume(implies(stopped & ~was_stopped, before(m, sequencer.window))),
            Assume(implies(changes, stopped & was_stopped)),
            Assume(implies(sequencer.program_window, sequencer.window)),
        ]
        # What :func:`test_programs` shows of all programs.
        begins = before(m, inside["_read.row"] == sequencer.step.body)
        m.d.comb += [
            Assume(implies(begins & ~stopped, next_op.waits_for_input)),
            Assume(implies(next_op.waits_for_input, next_op.from_input)),
            Assume(implies(next_op.emit & next_op.from_input, next_op.waits_for_input)),
            Assume(implies(fetched.op.emit & ~fetched.loading, ~next_op.emit)),
            Assume(implies(fetched.op.from_input & ~fetched.loading, ~next_op.waits_for_input)),
        ]
        # A reservation is given back.
        m.d.comb += Cover(sequencer.releases & running)
        # What its registers hold for that.
        op, loading = fetched.op, fetched.loading
        m.d.comb += [
            Assert(implies(fetched.halted & running, loading)),
            Assert(implies(~loading & op.waits_for_input, op.from_input)),
            Assert(implies(~loading & op.emit & op.from_input, op.waits_for_input)),
        ]


def _followers(program: Program, number: int) -> set[int]:
    """The operations that may follow one."""
    followers = {program.follows(number), program.follows(number, suppress=True)}
    after_step = {0, program.prefetch or 0} if None in followers else set()
    return {other for other in followers if other is not None} | after_step


def skipping() -> Manifest:
    """A build whose row groups skip words: the first group begins with the second, the other has one."""
    return with_kept(fixed_manifest(inputs=5, outputs=2, macs=2), {(0, False): ((1, 2), (0,))})


SHAPES = {
    "skipped words": skipping,
    "one word": partial(fixed_manifest, inputs=1, outputs=1),
    "two words, two groups": partial(fixed_manifest, inputs=2, outputs=2, macs=1),
    "three streams": partial(fixed_manifest, inputs=5, outputs=3, macs=2, streams=3),
    "kept sums": partial(fixed_manifest, inputs=6, outputs=4, macs=3, lane_sums=4),
    "dense layer": partial(fixed_manifest, inputs=3, outputs=2, dense=2, macs=2, streams=2),
    "registered": partial(
        fixed_manifest, inputs=5, outputs=3, macs=2, pipeline=Pipeline(accept=1, operand=4)
    ),
    "loadable": partial(loadable_manifest, inputs=3, outputs=2, macs=2),
    "loadable, three streams": partial(
        loadable_manifest, inputs=5, outputs=3, macs=2, streams=3, pipeline=Pipeline(accept=1, operand=4)
    ),
}
test_holds = proven(Harness, cases(SHAPES, "two words, two groups"), depth=3)


@pytest.mark.parametrize("seed", quick(range(10), 0, 1))
def test_programs(seed: int) -> None:
    """What is assumed of a loadable program is so: drawn networks, drawn arrays."""
    rng = np.random.default_rng(seed)
    found = quantise(random_network(rng, (1, 2, 3, 5, 7)), NARROW)
    program = Manifest.of("dut", found, random_parameters(rng)).program
    ops = issue_fields(program)
    assert ops["waits_for_input"][program.body]
    for number in range(len(program.ops)):
        if ops["waits_for_input"][number]:
            assert ops["from_input"][number]
        if ops["emit"][number] and ops["from_input"][number]:
            assert ops["waits_for_input"][number]
        for other in _followers(program, number):
            assert not (ops["emit"][number] and ops["emit"][other])
            assert not (ops["from_input"][number] and ops["waits_for_input"][other])


test_reached = covered(Harness, 60, slow_cases(SHAPES, "one word", "two words, two groups", "loadable"))

BUGS = {
    "idle between redirect and word": (Activity, "(left <= 1) & ~self.redirect", "(left <= 1)"),
    "begins without room": (Admission, "room = ~next_op.emit | self._room(next_op) | kept", "room = 1"),
    "waits without room": (
        Admission,
        "~walk.begins | ~self.fetched.op.emit | self._room(self.fetched.op) | reserved",
        "1",
    ),
    "reserves twice": (Admission, "(reserved | self.emits) & ~self.output", "self.emits & ~self.output"),
    "keeps room that is used": (Admission, "reserved & (loading | ~op.emit)", "reserved | 1"),
    "begins while the window waits": (
        InputSteps,
        "(there & precomputed & ~self.window_wanted)",
        "(there & precomputed)",
    ),
}


def test_bugs_can_be_planted() -> None:
    """Each replaces one place of today's source; one of them is found in ``make test``, too."""
    for part, right, wrong in BUGS.values():
        assert with_bug(part, right, wrong) is not part


@pytest.mark.parametrize("bug", cases(BUGS, "idle between redirect and word"))
def test_bug_is_found(
    bug: tuple[type[Component], str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, right, wrong = bug
    user = input_steps if part is InputSteps else sequencer
    monkeypatch.setattr(user, part.__name__, with_bug(part, right, wrong))
    refute(Harness(SHAPES["two words, two groups"]()), tmp_path, 40)


@pytest.mark.slow
def test_release_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program would find room reserved that it has not asked for."""
    kind = with_bug(Admission, "& ~self.output & ~fetched.halted", "& ~self.output")
    monkeypatch.setattr(sequencer, "Admission", kind)
    refute(Harness(SHAPES["loadable"]()), tmp_path, 60)
