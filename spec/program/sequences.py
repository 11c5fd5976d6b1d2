"""Whole sequences on the device: one program of all parts, the memory for their results, and exact cycles.

Each part of a pass has a program of one step, in which a layer's product with its h comes before the product
with its input. The sequence memory has two halves: a pass reads one and writes the other. A step has
``row_words`` words in each. The core reads a sequence, computes all passes, then gives its output. Then it
reads the next sequence. There are no stalls. :mod:`rtlstm.spec.program.schedule` counts the cycles of steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.buses import NO_BUS
from rtlstm.spec.cells.unit import UnitTiming
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.passes import (
    NOTHING_SKIPPED,
    Kept,
    Passes,
    input_positions,
    output_positions,
    part_layers,
)
from rtlstm.spec.program.schedule import Cycles, Issued, LayerCycles, Schedule, Timeline
from rtlstm.spec.program.step import Op, Program, compile_program, idle_between
from rtlstm.spec.program.wave import check_wave
from rtlstm.spec.record import Record


class PartPlan(Record):
    """The operations of a part, and the target of its results."""

    first: int
    """Index of its first operation."""
    last: int
    """Index of its last operation, whose results are written to the sequence memory."""
    number: int
    """Index of its pass."""
    reverse: bool
    reversed_output: bool
    """Its results are stored from the first step on, in either direction."""
    closes: bool
    """It is the last part of its pass."""
    first_beat: int
    """Index of its first results in a step, in drain beats of ``gate_units`` values."""


class SequencePlan(Record):
    """The parts in order, and the sequence memory."""

    parts: tuple[PartPlan, ...]
    steps: int
    """Steps of the longest sequence."""
    row_words: int
    """Words of a step in each half of the memory."""
    output_beats: int
    """Drain beats of a step's output."""
    output_positions: tuple[int, ...]
    """Index of each output among the values of a step's beats."""

    @property
    def passes(self) -> tuple[tuple[PartPlan, ...], ...]:
        """The parts, pass by pass."""
        count = 1 + self.parts[-1].number
        return tuple(tuple(part for part in self.parts if part.number == number) for number in range(count))

    @property
    def rows(self) -> int:
        """Words of both halves."""
        return 2 * self.steps * self.row_words

    def follows(self, part: int) -> int:
        """The part that follows within a pass."""
        if not self.parts[part].closes:
            return part + 1
        return next(index for index, one in enumerate(self.parts) if one.number == self.parts[part].number)


def compile_sequences(
    shapes: tuple[LayerShape, ...],
    passes: Passes,
    parameters: Parameters,
    timing: UnitTiming,
    kept: Kept = NOTHING_SKIPPED,
) -> tuple[Program, SequencePlan]:
    """Compile every part's program into the same memories.

    ``timing`` is that of the unit that computes the layers' cells; ``kept`` says which words are issued of
    products that skip some.

    Raises ConfigurationError if ``kept`` does not fit the layers, the parameters have a bus or a loadable
    program, or the longest sequence is not stated.
    """
    if parameters.bus != NO_BUS:
        raise ConfigurationError(
            f"bus must be none for a network with a reverse direction, not {parameters.bus}: "
            "the wrappers take steps one by one; connect the core's streams yourself"
        )
    if parameters.wave_front:
        check_wave(shapes, passes)
    parameters.require_fixed_program(
        "a loadable core takes steps one by one, but this network has a reverse direction; "
        "generate a separate build for it, without `capacities` and `device`"
    )
    if parameters.lane_sums is not None:
        raise ConfigurationError(
            "`lane_sums` needs a core that takes steps one by one, but this network has a reverse direction; "
            "leave it out"
        )
    longest = longest_sequence(parameters.max_steps)
    check_gate_units(parameters.gate_units, parameters.macs)
    merger = _Merger(shapes, passes, parameters, timing, kept)
    for number, parts in enumerate(part_layers(passes)):
        merger.add_pass(number, parts)
    return merger.program(), merger.plan(longest)


def check_gate_units(gate_units: int, macs: int) -> None:
    """Refuse results of a cycle that fill several words: the sequence memory takes one."""
    if macs % gate_units:
        raise ConfigurationError(
            f"`gate_units` ({gate_units}) must divide `macs` ({macs}) for a network with "
            "a reverse direction, whose results go to a memory of whole sequences; try "
            f"`gate_units={gcd(gate_units, macs)}`"
        )


def longest_sequence(max_steps: int | None) -> int:
    """Return the steps of the longest sequence; ConfigurationError if they are not stated."""
    if max_steps is None:
        raise ConfigurationError(
            "a network with a reverse direction keeps whole sequences on the device: state the longest one, "
            "with `max_steps`"
        )
    return max_steps


class _Merger:
    """Concatenates programs: their weights, biases and shifts; within a context h, dense results and c."""

    def __init__(
        self,
        shapes: tuple[LayerShape, ...],
        passes: Passes,
        parameters: Parameters,
        timing: UnitTiming,
        kept: Kept,
    ) -> None:
        self._shapes, self._passes, self._parameters = shapes, passes, parameters
        self._timing, self._kept = timing, kept
        self._ops: list[Op] = []
        self._parts: list[PartPlan] = []
        self._weights = self._shifts = self._biases = self._vectors = self._cells = self._partials = 0
        self._hidden: list[tuple[int, int]] = []
        self._cell_rows: list[tuple[int, int]] = []
        self._widths = [shapes[0].inputs]

    def add_pass(self, number: int, parts: Sequence[range]) -> None:
        """Append the parts of a pass."""
        begins, first_beat = len(self._ops), 0
        outputs = [self._shapes[layers[-1]].outputs for layers in parts]
        for layers, width, part in zip(parts, outputs, self._passes[number], strict=True):
            first = len(self._ops)
            self._add(layers)
            plan = PartPlan(
                first=first,
                last=len(self._ops) - 1,
                number=number,
                reverse=part.reverse,
                reversed_output=part.reversed_output,
                closes=layers == parts[-1],
                first_beat=first_beat,
            )
            self._parts.append(plan)
            first_beat += self._parameters.drain_beats(width)
        self._positions = output_positions(outputs, self._parameters.gate_units)
        self._widths.append(first_beat * self._parameters.gate_units)
        _wait_for_results(self._ops, begins)

    def _add(self, layers: range) -> None:
        """Append a part's operations, each layer's recurrent one right before its others."""
        shapes = [self._shapes[index] for index in layers]
        positions = input_positions(
            self._passes,
            [shape.outputs for shape in self._shapes],
            layers[0],
            shapes[0].inputs,
            self._parameters.gate_units,
        )
        # There may be unused words between the parts that it reads.
        shapes[0] = shapes[0].replace(inputs=positions[-1] + 1)
        kept = {
            (index - layers[0], recurrent): groups
            for (index, recurrent), groups in self._kept.items()
            if index in layers
        }
        program = compile_program(tuple(shapes), self._parameters, self._timing, kept, kept_results=True)
        recurrent = {op.layer: op for op in program.ops[: program.body]}
        for op in program.ops[program.body : program.prefetch]:
            before = recurrent.get(op.layer)
            if before is not None:
                idle_cycles = idle_between(
                    [before.replace(idle_cycles=0)], op, self._parameters.partial_to_add
                )
                self._append(before.replace(idle_cycles=idle_cycles), program, layers[0])
            self._append(op, program, layers[0])
        self._hidden += [(self._vector(first, program), units) for first, units in program.hidden]
        self._cell_rows += [(first + self._cells, units) for first, units in program.cells]
        self._weights += program.weight_rows
        self._shifts += program.shift_rows
        self._biases += program.bias_rows
        self._vectors += program.vector_context - program.copy_words
        self._cells += program.cell_context
        self._partials = max(self._partials, program.partials_context)

    def _vector(self, row: int, program: Program) -> int:
        """A row of the vector memory; h is read only before it is written, and so has no second copy."""
        return self._vectors + row - (program.copy_words if row >= program.copy_words else 0)

    def _append(self, op: Op, program: Program, first_layer: int) -> None:
        self._ops.append(
            op.replace(
                layer=op.layer + first_layer,
                source=0 if op.from_input else self._vector(op.source, program),
                waits_for_results=op.waits_for_results and op.kind != "recurrent",
                reads_copy=False,
                writes_copy=None,
                weights=op.weights + self._weights,
                shifts=op.shifts + self._shifts,
                addends=op.addends + (0 if op.adds_partials else self._biases),
                cell=op.cell + self._cells,
                destination=None if op.destination is None else self._vector(op.destination, program),
            )
        )

    def program(self) -> Program:
        """Return the operations of all parts, and the depths of the memories."""
        return Program(
            ops=tuple(self._ops),
            body=0,
            prefetch=None,
            recurrent_end=len(self._ops),
            copy_words=0,
            inputs=self._widths[0],
            outputs=self._parameters.values_given(self._positions[-1] + 1),
            input_words=self._parameters.words(self._widths[0]),
            weight_rows=self._weights,
            bias_rows=self._biases,
            partials_context=self._partials,
            shift_rows=self._shifts,
            vector_context=self._vectors,
            cell_context=self._cells,
            hidden=tuple(self._hidden),
            cells=tuple(self._cell_rows),
        )

    def plan(self, steps: int) -> SequencePlan:
        """Return the parts, and the sequence memory for so many steps."""
        return SequencePlan(
            parts=tuple(self._parts),
            steps=steps,
            row_words=max(self._parameters.words(width) for width in self._widths),
            output_beats=self._widths[-1] // self._parameters.gate_units,
            output_positions=tuple(self._positions),
        )


def _wait_for_results(ops: list[Op], begins: int) -> None:
    """Make recurrent operations wait for the h of the step before, unless an earlier operation has."""
    for index in range(begins, len(ops)):
        if ops[index].kind == "recurrent":
            newer_results = _results_since(ops[begins:], index - begins)
            if newer_results is not None:
                ops[index] = ops[index].replace(waits_for_results=True, newer_results=min(newer_results, 1))


def _results_since(ops: Sequence[Op], index: int) -> int | None:
    """Return how many operations have stored results since the one whose results an operation reads.

    ``ops`` are those of a pass, step after step. None if one in between waited for all earlier results.
    """
    count = 0
    for back in range(1, len(ops) + 1):
        other = ops[index - back]
        if other.destination == ops[index].source:
            return count
        if other.waits_for_results and other.kind != "recurrent":
            return None
        count += other.destination is not None
    raise AssertionError("what a recurrent operation reads is stored in its pass")


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
        return (
            np.arange(self.program.outputs)
            if self.parameters.decide
            else np.array(self.plan.output_positions)
        )

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
        # Steps of a single word are issued every second cycle, if none are idle anyway.
        timeline.free += sum(op.words for op in ops) == 1 and not ops[-1].idle_cycles

    def _give(self, suppress: Sequence[bool], now: int) -> tuple[list[int], int]:
        """Give the output; return the cycle that offers each step's, and the cycle after all were read."""
        stages = min(self.parameters.pipeline.operand - 1, 2)
        offered = []
        for silent in suppress:
            now += LOOK
            if not silent:
                now += self.plan.output_beats
            decides = self.parameters.decision_cycles(self.program.outputs)
            offered.append(-1 if silent else now - 1 + stages + GIVE + decides)
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
