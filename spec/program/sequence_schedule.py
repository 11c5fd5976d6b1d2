"""Computes exact cycle counts of whole sequences; :mod:`rtlstm.spec.program.schedule` does so for steps.

The core reads a sequence, computes all passes, then gives its output. Then it reads the next sequence. There
are no stalls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import Cycles, Issued, LayerCycles, Schedule, Timeline
from rtlstm.spec.program.sequences import PartPlan, SequencePlan
from rtlstm.spec.program.step import Program

START = 3
"""Cycles from a sequence's last input beat to its first word being issued."""
LOOK = 2
"""Cycles for the decision whether a step's output is given."""
GIVE = 2
"""Cycles from a word of the sequence memory to the offer of the output beat that it completes."""


@dataclass(frozen=True)
class SequenceCycles:
    """Cycles of one sequence, counted from the first input beat of the first one."""

    begun: int
    """The cycle that accepts its first input beat."""
    accepted: int
    """The cycle that accepts its last input beat."""
    computed: int
    """The cycle in which the last result is in the sequence memory."""
    offered: tuple[int, ...]
    """The cycles that offer each step's last output beat; -1 for a step whose output is suppressed."""
    done: int
    """The first cycle in which the next sequence is read."""


def sequence_lengths(ends: NDArray[np.bool_]) -> list[int]:
    """Return the lengths of sequences whose last steps are marked."""
    lengths: list[int] = np.diff(np.flatnonzero(ends), prepend=-1).tolist()
    return lengths


@dataclass(frozen=True)
class SequenceSchedule(Schedule):
    """The schedule of a build that takes whole sequences."""

    program: Program
    parameters: Parameters
    plan: SequencePlan

    @property
    def prepares(self) -> bool:
        """Whether a stream's recurrent part is computed before its next input comes: never."""
        return False

    @cached_property
    def output_index(self) -> IntArray:
        """Index of each output among the values of a step's beats."""
        return np.array(self.plan.output_positions)

    def cycles(
        self,
        lengths: Sequence[int],
        suppress: Sequence[bool] | None = None,
        record: list[Issued] | None = None,
    ) -> list[SequenceCycles]:
        """Count the cycles of sequences of these lengths, one after the other.

        ``suppress`` says which outputs of all their steps are suppressed (none, if None); ``record`` gets all
        operations as they are issued.
        """
        silent = [False] * sum(lengths) if suppress is None else list(suppress)
        found: list[SequenceCycles] = []
        begins = 0
        for length in lengths:
            hushed, silent = silent[:length], silent[length:]
            accepted = begins + length * -(-self.program.inputs // self.parameters.beat_in) - 1
            computed = self._compute(length, accepted + START, record)
            offered, done = self._give(hushed, computed)
            found.append(SequenceCycles(begins, accepted, computed, tuple(offered), done))
            begins = done
        return found

    def _compute(self, length: int, free: int, record: list[Issued] | None) -> int:
        """Run all passes. Their first word may be issued in cycle ``free``.

        Once a step of a pass moves everything by a number of cycles, all further steps of the pass do. They
        are run only for a record.
        """
        timeline = Timeline(self.program, self.parameters, free=free, record=record)
        for parts in self.plan.passes:
            before: list[int] = []
            for left in reversed(range(length)):
                for part in parts:
                    self._run(timeline, part)
                now = timeline.moments
                apart = {later - earlier for later, earlier in zip(now, before, strict=False)}
                if record is None and len(now) == len(before) and len(apart) == 1:
                    timeline.move(apart.pop() * left)
                    break
                before = now
            # The last result is in its register, and one cycle later in the memory.
            timeline.free = timeline.results + 1
        return timeline.results

    def _run(self, timeline: Timeline, part: PartPlan) -> None:
        """Run a step of a part."""
        ops = self.program.ops[part.first : part.last + 1]
        for op in ops:
            timeline.run(op)
        # Steps of a single word are issued every second cycle.
        timeline.free += sum(op.words for op in ops) == 1

    def _give(self, suppress: Sequence[bool], now: int) -> tuple[list[int], int]:
        """Give the output; return the cycle that offers each step's, and the cycle after all were read."""
        stages = min(self.parameters.pipeline.operand - 1, 2)
        offered = []
        for silent in suppress:
            now += LOOK
            if not silent:
                now += self.plan.output_beats
            offered.append(-1 if silent else now - 1 + stages + GIVE)
        return offered, now

    def count(self, shapes: tuple[LayerShape, ...]) -> Cycles:
        """Count the cycles of a step within a long sequence, and of the longest sequence."""
        steps = self.plan.steps
        longest, shorter = self.cycles([steps])[0], self.cycles([max(1, steps - 1)])[0]
        interval = longest.done - (shorter.done if steps > 1 else 0)
        layers = []
        for index, shape in enumerate(shapes):
            ops = [op for op in self.program.ops if op.layer == index]
            array = sum(op.words for op in ops if op.kind != "recurrent")
            recurrent = sum(op.words for op in ops if op.kind == "recurrent")
            layers.append(
                LayerCycles(
                    name=shape.name, array_cycles=array, overhead_cycles=0, recurrent_cycles=recurrent
                )
            )
        array_cycles = sum(layer.array_cycles for layer in layers)
        recurrent_cycles = sum(layer.recurrent_cycles for layer in layers)
        latency = longest.offered[-1] - longest.accepted
        return Cycles(
            step_latency_cycles=latency,
            array_cycles=array_cycles,
            overhead_cycles=latency - steps * (array_cycles + recurrent_cycles),
            recurrent_cycles=recurrent_cycles,
            first_step_latency_cycles=latency,
            step_interval_cycles=interval,
            layers=tuple(layers),
        )

    def order(self, lengths: IntArray) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
        """Return step and sequence of all steps, one sequence after the other, and their ``ends``."""
        sequence, step = np.nonzero(np.arange(lengths.max()) < lengths[:, None])
        return step, sequence, step == lengths[sequence] - 1

    def offered(self, streams: IntArray, ends: NDArray[np.bool_]) -> list[int]:
        """Return the cycle that offers each step's last output beat; cycle 0 accepts the first input beat."""
        return [at for one in self.cycles(sequence_lengths(ends)) for at in one.offered]

    def latency(
        self,
        streams: IntArray,
        ends: NDArray[np.bool_],
        ready: NDArray[np.bool_],
        suppress: NDArray[np.bool_],
    ) -> int:
        """Return the latency of the last sequence with an output."""
        after = np.flatnonzero(ends) + 1
        number = int(np.searchsorted(after, np.flatnonzero(~suppress)[-1], side="right"))
        length = sequence_lengths(ends)[number]
        cycles = self.cycles([length], suppress[after[number] - length : after[number]].tolist())[0]
        return max(cycles.offered) - cycles.accepted

    def duration(self, length: int) -> int:
        """Return the cycles of a sequence."""
        return self.cycles([length])[0].done
