"""Computes exact cycle counts of whole sequences; :mod:`rtlstm.spec.program.schedule` does so for steps.

The core reads a sequence, computes all passes, then gives its output. Then it reads the next sequence. There
are no stalls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import Cycles, LayerCycles, Timeline
from rtlstm.spec.program.sequences import SequencePlan
from rtlstm.spec.program.step import Program

__all__ = [
    "SequenceCycles",
    "count_sequence_cycles",
    "sequence_cycles",
    "sequence_lengths",
]

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


def sequence_cycles(
    program: Program,
    plan: SequencePlan,
    parameters: Parameters,
    lengths: Sequence[int],
    suppress: Sequence[bool] | None = None,
) -> list[SequenceCycles]:
    """Count the cycles of sequences of these lengths, one after the other.

    ``suppress`` says which outputs of all their steps are suppressed (none, if None).
    """
    silent = [False] * sum(lengths) if suppress is None else list(suppress)
    found: list[SequenceCycles] = []
    begins = 0
    for length in lengths:
        hushed, silent = silent[:length], silent[length:]
        accepted = begins + length * -(-program.inputs // parameters.beat_in) - 1
        computed = _compute(program, plan, parameters, length, accepted + START)
        offered, done = _give(plan, parameters, hushed, computed)
        found.append(SequenceCycles(begins, accepted, computed, tuple(offered), done))
        begins = done
    return found


def sequence_lengths(ends: Sequence[bool]) -> list[int]:
    """Return the lengths of sequences whose last steps are marked."""
    last = [index for index, end in enumerate(ends) if end]
    return [end - before for before, end in pairwise([-1, *last])]


def _compute(program: Program, plan: SequencePlan, parameters: Parameters, length: int, free: int) -> int:
    """Run all passes. Their first word may be issued in cycle ``free``."""
    timeline = Timeline(program, parameters, free=free)
    for parts in plan.passes:
        for _ in range(length):
            for part in parts:
                ops = program.ops[part.first : part.last + 1]
                for op in ops:
                    timeline.run(op)
                # Steps of a single word are issued every second cycle.
                timeline.free += sum(op.groups * op.columns for op in ops) == 1
        # The last result is in its register, and one cycle later in the memory.
        timeline.free = timeline.results + 1
    return timeline.results


def _give(
    plan: SequencePlan, parameters: Parameters, suppress: Sequence[bool], now: int
) -> tuple[list[int], int]:
    """Give the output; return the cycle that offers each step's, and the cycle after all have been read."""
    stages = min(parameters.pipeline.operand - 1, 2)
    offered = []
    for silent in suppress:
        now += LOOK
        if not silent:
            now += plan.output_beats
        offered.append(-1 if silent else now - 1 + stages + GIVE)
    return offered, now


def count_sequence_cycles(
    shapes: tuple[LayerShape, ...], program: Program, plan: SequencePlan, parameters: Parameters
) -> Cycles:
    """Count the cycles of a step within a long sequence, and of the longest sequence."""
    longest = sequence_cycles(program, plan, parameters, [plan.steps])[0]
    shorter = sequence_cycles(program, plan, parameters, [max(1, plan.steps - 1)])[0]
    interval = longest.done - (shorter.done if plan.steps > 1 else 0)
    layers = []
    for index, shape in enumerate(shapes):
        ops = [op for op in program.ops if op.layer == index]
        array = sum(op.groups * op.columns for op in ops if op.kind != "recurrent")
        recurrent = sum(op.groups * op.columns for op in ops if op.kind == "recurrent")
        layers.append(
            LayerCycles(name=shape.name, array_cycles=array, overhead_cycles=0, recurrent_cycles=recurrent)
        )
    array_cycles = sum(layer.array_cycles for layer in layers)
    recurrent_cycles = sum(layer.recurrent_cycles for layer in layers)
    latency = longest.offered[-1] - longest.accepted
    return Cycles(
        step_latency_cycles=latency,
        array_cycles=array_cycles,
        overhead_cycles=latency - plan.steps * (array_cycles + recurrent_cycles),
        recurrent_cycles=recurrent_cycles,
        first_step_latency_cycles=latency,
        step_interval_cycles=interval,
        layers=tuple(layers),
    )
