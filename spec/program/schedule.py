"""Computes exact cycle counts of a program of time steps, and has the base class of every schedule.

The sequencer issues one word of the array per cycle, in program order, and waits only where
this module waits; tests compare every cycle with the RTL. Cycle 0 is the cycle that
accepts a step's last input beat; a step ends in the cycle that offers its last output beat.
There are no stalls: input is valid whenever it is accepted, output is accepted at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.cells.unit import UnitTiming
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import LayerShape
from rtlstm.spec.parameters import TOKEN_CYCLES, Parameters
from rtlstm.spec.program.step import Op, Program, group_ends
from rtlstm.spec.record import Record

REDIRECT_CYCLES = 2
"""Cycles from a step's input being complete to the first recurrent word, if the stream's partial sums are
invalid; the sequencer's module text shows them."""


class LayerCycles(Record):
    """Cycles of one layer on the path from input to output."""

    name: str
    array_cycles: int
    """Words issued on the input path."""
    overhead_cycles: int
    """Latency the layer adds, minus ``array_cycles``."""
    recurrent_cycles: int
    """Words issued for the recurrent part, off the input path."""


class Cycles(Record):
    """Cycle counts of one step; the module's docstring defines them."""

    step_latency_cycles: int
    """Latency of a step whose recurrent part is ready."""
    array_cycles: int
    overhead_cycles: int
    recurrent_cycles: int
    first_step_latency_cycles: int
    """Latency of the first step after a reset or a state load."""
    step_interval_cycles: int
    """Interval between steps of one stream, back to back."""
    layers: tuple[LayerCycles, ...]

    @property
    def use(self) -> float:
        """Share of cycles in which the array multiplies, in steps back to back."""
        return (self.array_cycles + self.recurrent_cycles) / self.step_interval_cycles


@dataclass(frozen=True)
class Issued:
    """An operation as the sequencer issued it."""

    op: Op
    start: int
    """First cycle in which its first word may be issued, by what was issued before."""
    ends: Sequence[int]
    """Issue cycle of each group's last word."""
    readable: Sequence[int]
    """First cycle in which each word of the vector can be read; empty if all can."""

    @property
    def issues(self) -> list[tuple[int, int]]:
        """Runs of cycles in which a word is issued: the first cycle, and the one after the last."""
        runs: list[tuple[int, int]] = []

        def issue(first: int, words: int) -> int:
            """Issue words one per cycle; return the cycle after the last one."""
            if words and runs and runs[-1][1] == first:
                runs[-1] = (runs[-1][0], first + words)
            elif words:
                runs.append((first, first + words))
            return first + words

        at = self.start
        for group, (words, end) in enumerate(zip(self.op.group_words, self.ends, strict=True)):
            # As the sequencer's admission: a word of a section's first group waits until it is there, a
            # group's last one until the drain is free.
            if group % self.op.groups == 0 and self.readable:
                for word in words[:-1]:
                    at = issue(max(at, self.readable[min(word, len(self.readable) - 1)]), 1)
            else:
                issue(at, len(words) - 1)
            at = issue(end, 1)
        return runs

    def beats(self, stage: int) -> list[tuple[int, int]]:
        """Return runs of cycles with a beat in a stage: the first one, and the one after the last."""
        counts = [self.op.drain_beats] * (self.op.groups - 1) + [self.op.last_drain_beats]
        runs = list(zip([end + stage for end in self.ends[-self.op.groups :]], counts, strict=True))
        if self.op.beat_cycles == 1:
            return [(first, first + count) for first, count in runs]
        beats = [first + self.op.beat_cycles * beat for first, count in runs for beat in range(count)]
        return [(beat, beat + 1) for beat in beats]


@dataclass
class Timeline:
    """Walks through a program and tracks the earliest cycle of each next event."""

    program: Program
    parameters: Parameters
    free: int = 1
    """Next issue cycle of the sequencer."""
    drain_free: int = 0
    """First cycle in which a group may end: before it, the drain is busy with the group before."""
    results: int = 0
    """Cycle after the last beat of results so far is written or offered: an absolute cycle; ``Op.results``
    counts cycles."""
    stored_until: int = 0
    """First cycle in which every result so far has been stored: a beat may fill several words."""
    stored: list[list[int]] = field(init=False)
    """First cycles in which the vector words can be issued that the last operations which store results
    write, at least two, or as many as any operation asks for; the oldest operation comes first."""
    issued: int = 0
    """Cycle that issued the last word so far."""
    record: list[Issued] | None = None
    """Where each operation is kept as it was issued, for who wants to see it."""

    def __post_init__(self) -> None:
        deepest = max((op.newer_results for op in self.program.ops), default=0)
        self.stored = [[] for _ in range(max(2, 1 + deepest))]

    def run(self, op: Op, arrivals: Sequence[int] = ()) -> int:
        """Issue one operation; return the cycle after the last beat of results so far.

        These are its own results if it yields any; otherwise the cycle is that of an earlier operation.
        ``arrivals`` is the first cycle in which each word of the input can be read.
        """
        readable = (
            arrivals if op.from_input else self.stored[-1 - op.newer_results] if op.waits_for_results else ()
        )
        start = self.free
        ends, self.drain_free = group_ends(op, start, self.drain_free, readable)
        if self.record is not None:
            self.record.append(Issued(op, start, ends, readable))
        self.issued = ends[-1]
        self.free = ends[-1] + 1 + op.idle_cycles
        if op.yields:
            stage, ends = op.results, ends[-op.groups :]
            assert ends[0] + stage >= self.stored_until, "results come in the order of their operations"
            last_beat = self.drain_free + stage - op.beat_cycles
            words = -(-op.last_units // self.parameters.macs) if op.beat_cycles > 1 else 1
            self.results, self.stored_until = last_beat + 1, last_beat + words
            if op.destination is not None:
                self.stored = [*self.stored[1:], self._words(op, ends, stage)]
        return self.results

    def _words(self, op: Op, ends: list[int], stage: int) -> list[int]:
        """Return the first cycle in which each vector word that an operation writes can be issued."""
        per_group = op.drain_beats * self.parameters.gate_units
        count = (
            (op.groups - 1) * per_group
            + (op.last_drain_beats - 1) * self.parameters.gate_units
            + op.last_units
        )
        words, ahead = [], self.parameters.ahead(stage)
        for first in range(0, count, self.parameters.macs):
            last = min(first + self.parameters.macs, count) - 1
            beat, position = divmod(last % per_group, self.parameters.gate_units)
            cycle = beat * op.beat_cycles + position // self.parameters.macs
            words.append(ends[last // per_group] + cycle + stage - ahead)
        return words

    @property
    def moments(self) -> list[int]:
        """All cycles on which later ones depend: moved by a number of cycles, they move those by it, too.

        What was possible before the next issue is as good as possible then.
        """
        waits = (self.drain_free, *(cycle for words in self.stored for cycle in words))
        return [self.free, self.results, *(max(cycle, self.free) for cycle in waits)]

    def move(self, cycles: int) -> None:
        """Go on as if everything so far had happened a number of cycles later."""
        self.free += cycles
        self.issued += cycles
        self.drain_free += cycles
        self.results += cycles
        self.stored_until += cycles
        self.stored = [[cycle + cycles for cycle in words] for words in self.stored]

    def prepare(self) -> None:
        """Issue the recurrent operations that store partial sums."""
        for op in self.program.ops[: self.program.body]:
            self.run(op)

    def beats(self, begins: int) -> range:
        """Return the cycles that accept a step's beats, the first in ``begins``, the others right after."""
        return range(begins, begins + self.parameters.port_beats(self.program.inputs))

    def entering(self, beats: Sequence[int]) -> Sequence[int]:
        """Return the cycles in which a step enters the input buffer: a token's row, later than its number."""
        if not self.parameters.token_rows:
            return beats
        first = beats[0] + TOKEN_CYCLES
        return range(first, first + self.parameters.row_beats(self.program.inputs))

    def entered(self, beats: Sequence[int]) -> int:
        """Return the cycle behind those in which a step enters the input buffer."""
        return self.entering(beats)[-1] + 1

    def arrivals(self, beats: Sequence[int]) -> list[int]:
        """Return the first cycle in which each input word can be read; ``beats`` are accepted in these."""
        macs, beat, beats = self.parameters.macs, self.parameters.beat_in, self.entering(beats)
        counts = (min(first + macs, self.program.inputs) for first in range(0, self.program.inputs, macs))
        return [beats[-(-count // beat) - 1] + 1 + self.parameters.pipeline.accept for count in counts]

    def change(self, program: Program, timing: UnitTiming) -> int:
        """Go on with another network's program; return the first cycle in which its step may begin.

        All results that are stored are written then. If the step's results could be earlier than those of the
        step before, nothing is under way any more.
        """
        slowest = self.parameters.preactivation + timing.slowest
        written = max((cycle - 1 for words in self.stored for cycle in words), default=0)
        decides = self.parameters.decision_cycles(self.program.outputs)
        depth = slowest + self.parameters.most_drain_cycles(timing.norm_values) + decides + 3
        self.program = program
        return max(written, self.issued + depth) if program.overtakes(slowest) else written

    def step(
        self,
        beats: Sequence[int],
        first_step: bool,
        prefetch: bool = False,
        suppress: bool = False,
        changed: int | None = None,
    ) -> tuple[int, int]:
        """Run a step whose beats are accepted in these cycles.

        ``changed`` is the first cycle in which it may begin if the step before was another network's.
        ``prefetch`` says that this step's input was there when the step before ended; its recurrent
        part is then not computed yet. Returns the cycle after which the input buffer is free again, and the
        cycle that offers the last output beat, or would offer it if the output is suppressed.
        """
        program, arrivals = self.program, self.arrivals(beats)
        if (first_step and program.body) or changed is not None:
            # Input is marked complete in the cycle after its last beat.
            self.free = max(self.free, self.entered(beats), changed or 0) + REDIRECT_CYCLES
            if first_step:
                self.prepare()
        index: int | None = program.prefetch if prefetch else program.body
        released = self.free
        while index is not None:
            op = program.ops[index]
            self.run(op, arrivals)
            if op.from_input:
                released = self.free - 1 - op.idle_cycles
            index = program.follows(index, suppress)
        decides = self.parameters.decision_cycles(program.outputs)
        return released, self.results + (0 if suppress else decides)

    def next_is_there(self, beats: Sequence[int]) -> bool:
        """Return whether the next step's input, accepted in these cycles, is there when this step ends."""
        return self.entered(beats) < self.free - 1


def offer_cycles(
    program: Program,
    parameters: Parameters,
    steps: int,
    first_step: bool = True,
    streams: Sequence[int] | None = None,
    suppress: Sequence[bool] | None = None,
) -> list[int]:
    """Return the cycle in which each of ``steps`` steps offers its last output beat.

    Cycle 0 accepts the first input beat. ``streams`` is the stream of each step (one stream if
    None); ``first_step`` says that their states were reset or written just before; ``suppress`` says which
    steps' outputs are suppressed (none, if None): for those, the cycle after the last result is returned.
    """
    stream_of = [0] * steps if streams is None else list(streams)
    found = step_cycles(program, parameters, stream_of, set() if first_step else set(stream_of), suppress)
    return [offered for _, offered in found]


def step_cycles(
    program: Program,
    parameters: Parameters,
    streams: Sequence[int],
    warm: Collection[int],
    suppress: Sequence[bool] | None = None,
    record: list[Issued] | None = None,
    changed: bool = False,
) -> list[tuple[int, int]]:
    """Return the cycles that accept each step's last input beat and offer its last output beat.

    The parameters are those of :func:`offer_cycles`; ``warm`` are the streams whose recurrent part is ready
    at the beginning; ``record`` gets all operations as they are issued. ``changed``: the core ran another
    network before.
    """
    silent = [False] * len(streams) if suppress is None else list(suppress)
    if program.wave is not None:
        return WaveRun(Timeline(program, parameters, record=record), streams[0] in warm).back_to_back(silent)
    known = set(warm)
    timeline = Timeline(program, parameters, record=record)
    released: list[int] = []
    found: list[tuple[int, int]] = []
    beats, prefetch = timeline.beats(0), False
    for index, stream in enumerate(streams):
        begins_at = 0 if changed and not index else None
        free, offered = timeline.step(beats, stream not in known, prefetch, silent[index], begins_at)
        known.add(stream)
        released.append(free)
        found.append((beats[-1], offered))
        begins = timeline.entered(beats)
        if index >= 1:
            # The input buffer holds two steps: the next one replaces the last but one, which has been read.
            begins = max(begins, released[index - 1] + 1)
        beats = timeline.beats(begins)
        same = index + 1 < len(streams) and streams[index + 1] == stream
        prefetch = program.prefetch is not None and same and timeline.next_is_there(beats)
        if not prefetch:
            timeline.prepare()
    return found


class WaveRun:
    """Walks through the steps of a program with a wave-front, as far as their inputs are known.

    ``timeline`` is that of the program, from an idle core on. ``ready`` says whether the stream's partial
    sums are valid.
    """

    def __init__(self, timeline: Timeline, ready: bool) -> None:
        self._timeline, self._program = timeline, timeline.program
        self.ready = ready
        """Whether the next step finds valid partial sums."""
        self.offered: dict[int, int] = {}
        """The cycle that offers each step's last output beat, or would, by the step's number."""
        self._beats: list[Sequence[int]] = []
        self._suppress: list[bool] = []
        self._released: list[int] = []
        self._walk = self._steps()
        self._decides = next(self._walk)

    def give(self, beats: Sequence[int], suppress: bool) -> None:
        """Take the next step, whose input beats are accepted in these cycles."""
        self._beats.append(beats)
        self._suppress.append(suppress)

    def advance(self, now: float) -> None:
        """Go on as far as everything depends on inputs up to this cycle only."""
        while self._decides is None or self._decides <= now:
            if self._decides is None and not self._waiting:
                return
            self._decides = next(self._walk)

    def back_to_back(self, suppress: Sequence[bool]) -> list[tuple[int, int]]:
        """Return what :func:`step_cycles` does, for steps whose inputs come as soon as they are taken."""
        begins, timeline = 0, self._timeline
        for index, silent in enumerate(suppress):
            # The input buffer holds two steps.
            while index >= 2 and len(self._released) < index - 1:
                self._decides = next(self._walk)
            if index >= 2:
                begins = max(begins, self._released[index - 2] + 1)
            beats = timeline.beats(begins)
            begins = timeline.entered(beats)
            self.give(beats, silent)
        self.advance(float("inf"))
        return [(beats[-1], self.offered[index]) for index, beats in enumerate(self._beats)]

    @property
    def _waiting(self) -> bool:
        """Whether a step waits that nothing has taken."""
        return len(self._beats) > len(self._released)

    def _there(self, cycle: int) -> bool:
        """Whether the next step's input is complete in a cycle."""
        return self._waiting and self._timeline.entered(self._beats[len(self._released)]) <= cycle

    def _steps(self) -> Iterator[int | None]:
        """Run steps; before each decision, yield the cycle that it depends on, None if it is for an input."""
        timeline, program = self._timeline, self._program
        while True:
            while not self._waiting:
                yield None
            step = len(self._released)
            beats, silent = self._beats[step], self._suppress[step]
            if not self.ready:
                timeline.free = max(timeline.free, timeline.entered(beats)) + REDIRECT_CYCLES
                timeline.prepare()
            self.ready = True
            timeline.run(program.ops[program.body], timeline.arrivals(beats))
            self._released.append(timeline.issued)
            yield timeline.issued - 1
            if self._there(timeline.issued - 1):
                self._finish(step, silent)
                yield from self._wave(program.wave_enter, step)
            else:
                index = program.follows(program.body, silent)
                while index is not None:
                    timeline.run(program.ops[index])
                    index = program.follows(index, silent)
                self._finish(step, silent)
                yield timeline.issued - 1
                if self._there(timeline.issued - 1):
                    yield from self._wave(program.wave, None)
            timeline.prepare()

    def _finish(self, step: int, silent: bool) -> None:
        decides = self._timeline.parameters.decision_cycles(self._program.outputs)
        self.offered[step] = self._timeline.results + (0 if silent else decides)

    def _wave(self, index: int | None, first: int | None) -> Iterator[int | None]:
        """Run the last part, from operation ``index`` on; the first layer has done step ``first``."""
        timeline, program = self._timeline, self._program
        layers = 1 + program.ops[program.wave_exit].layer
        under_way = [first, *[None] * (layers - 1)]
        while index is not None:
            op = program.ops[index]
            here = False
            if index == program.wave:
                yield timeline.issued
                here = self._there(timeline.issued)
                step = len(self._released)
                under_way = [step if here else None, *under_way[:-1]]
                timeline.run(op, timeline.arrivals(self._beats[step]) if here else ())
            else:
                timeline.run(op)
            if here:
                self._released.append(timeline.issued)
            after = program.follows(index)
            if index == program.wave_exit:
                if under_way[-1] is not None:
                    self._finish(under_way[-1], self._suppress[under_way[-1]])
                if all(step is None for step in under_way[:-1]):
                    yield timeline.issued - 1
                    after = program.wave if self._there(timeline.issued - 1) else None
            index = after


@dataclass(frozen=True)
class NetworkStep:
    """A step in a device that holds several networks."""

    stream: int
    network: int
    program: Program
    """That network's."""


def resident_cycles(
    steps: Sequence[NetworkStep], parameters: Parameters, timing: UnitTiming
) -> list[tuple[int, int]]:
    """Return what :func:`step_cycles` does, for steps of several networks on a core that was reset.

    Network 0 was loaded, so that its operations are the first. A stream whose step is of another network than
    the one before begins anew.
    """
    timeline = Timeline(steps[0].program, parameters)
    # The network of each stream's state, and that whose operations are loaded.
    known: dict[int, int] = {}
    before = 0
    released: list[int] = []
    found: list[tuple[int, int]] = []
    beats, prefetch = timeline.beats(0), False
    for index, step in enumerate(steps):
        # The state of another network costs a redirect, too; after a reset, all are of network 0.
        changed = None if known.get(step.stream, 0) == step.network else 0
        if step.network != before:
            changed, before = timeline.change(step.program, timing) if index else 0, step.network
        free, offered = timeline.step(
            beats, known.get(step.stream) != step.network, prefetch, changed=changed
        )
        known[step.stream] = step.network
        released.append(free)
        found.append((beats[-1], offered))
        if index + 1 == len(steps):
            break
        begins = max(beats[-1] + 1, *[released[index - 1] + 1] * bool(index), 0)
        following = steps[index + 1]
        count = -(-following.program.inputs // parameters.beat_in)
        beats = range(begins, begins + count)
        same = (following.stream, following.network) == (step.stream, step.network)
        prefetch = step.program.prefetch is not None and same and timeline.next_is_there(beats)
        if not prefetch:
            timeline.prepare()
    return found


class Schedule(ABC):
    """When a device computes what, to the cycle.

    A build that takes time steps one by one has a :class:`StepSchedule`; one that takes whole sequences has a
    :class:`~rtlstm.spec.program.sequences.SequenceSchedule`. Of steps that are sent together,
    ``streams`` is the stream of each, and ``ends`` says which are the last of a sequence.
    """

    @property
    @abstractmethod
    def prepares(self) -> bool:
        """Whether a stream's recurrent part is computed before its next input comes."""

    @property
    @abstractmethod
    def output_index(self) -> IntArray:
        """Index of each output among the values of a step's beats."""

    @abstractmethod
    def count(self, shapes: tuple[LayerShape, ...]) -> Cycles:
        """Count the cycles that the manifest states."""

    def order(self, lengths: IntArray) -> tuple[IntArray, IntArray, NDArray[np.bool_] | None]:
        """Return step and sequence of all steps of a batch, in the order to send them, and their ``ends``.

        If the device takes steps one by one, a step of each sequence in turn, so that all advance together;
        the ends are None.
        """
        step, sequence = np.nonzero(np.arange(lengths.max())[:, None] < lengths)
        return step, sequence, None

    @abstractmethod
    def offered(self, streams: IntArray, ends: NDArray[np.bool_]) -> list[int]:
        """Return the cycle that offers each step's last output beat; cycle 0 accepts the first input beat."""

    @abstractmethod
    def latency(
        self,
        streams: IntArray,
        ends: NDArray[np.bool_],
        ready: NDArray[np.bool_],
        suppress: NDArray[np.bool_],
    ) -> int:
        """Return the latency of the last step or sequence with an output.

        ``ready`` says which streams are prepared, ``suppress`` which steps' outputs are suppressed.
        """

    @abstractmethod
    def duration(self, length: int) -> int:
        """Return the cycles of a sequence among others."""


@dataclass(frozen=True)
class StepSchedule(Schedule):
    """The schedule of a build that takes time steps one by one."""

    program: Program
    parameters: Parameters

    @property
    def prepares(self) -> bool:
        """Whether a stream's recurrent part is computed before its next input comes: there may be none."""
        return self.program.body > 0

    @cached_property
    def output_index(self) -> IntArray:
        """Index of each output among the values of a step's beats."""
        return np.arange(self.program.outputs)

    @cached_property
    def interval(self) -> int:
        """Cycles between steps of one stream, back to back."""
        if self.program.wave is not None:
            # Several, since a step whose input comes too late for one repetition waits for the next.
            offered = offer_cycles(
                self.program, self.parameters, 24 + len(self.program.ops), first_step=False
            )
            return -(-(offered[-1] - offered[-9]) // 8)
        offered = offer_cycles(self.program, self.parameters, 8, first_step=False)
        return offered[-1] - offered[-2]

    def count(self, shapes: tuple[LayerShape, ...]) -> Cycles:
        """Count the cycles that the manifest states."""
        program, parameters = self.program, self.parameters
        begins = 1 - parameters.port_beats(program.inputs)
        warm = Timeline(program, parameters, free=begins, drain_free=begins)
        layers = []
        body = program.ops[program.body : program.body_end]
        before = 0
        for op, shape in zip(body, shapes, strict=True):
            done = warm.run(op, warm.arrivals(warm.beats(begins)))
            array = op.words
            recurrent = 0
            if op.kind == "input":
                partials = program.recurrent_op(op.layer)
                recurrent = partials.words if partials else 0
            layers.append(
                LayerCycles(
                    name=shape.name,
                    array_cycles=array,
                    overhead_cycles=done - before - array,
                    recurrent_cycles=recurrent,
                )
            )
            before = done
        decides = parameters.decision_cycles(program.outputs)
        before += decides
        layers[-1] = layers[-1].replace(overhead_cycles=layers[-1].overhead_cycles + decides)
        array_cycles = sum(layer.array_cycles for layer in layers)
        alone = Timeline(program, parameters, free=begins, drain_free=begins)
        _, first_step = alone.step(alone.beats(begins), first_step=True)
        return Cycles(
            step_latency_cycles=before,
            array_cycles=array_cycles,
            overhead_cycles=before - array_cycles,
            recurrent_cycles=sum(layer.recurrent_cycles for layer in layers),
            first_step_latency_cycles=first_step,
            step_interval_cycles=self.interval,
            layers=tuple(layers),
        )

    def offered(self, streams: IntArray, ends: NDArray[np.bool_]) -> list[int]:
        """Return the cycle that offers each step's last output beat; cycle 0 accepts the first input beat."""
        return offer_cycles(self.program, self.parameters, len(streams), streams=streams.tolist())

    def latency(
        self,
        streams: IntArray,
        ends: NDArray[np.bool_],
        ready: NDArray[np.bool_],
        suppress: NDArray[np.bool_],
        changed: bool = False,
    ) -> int:
        """Return the latency of the last step with an output; the streams that are ``ready`` are prepared.

        ``changed`` says that the core ran another network before. The step's wait for earlier ones is
        included, as if the core had been idle at the beginning.
        """
        last, prepared = int(np.flatnonzero(~suppress)[-1]), np.flatnonzero(ready).tolist()
        cycles = step_cycles(
            self.program, self.parameters, streams.tolist(), prepared, suppress.tolist(), changed=changed
        )
        accepted, offered = cycles[last]
        return offered - accepted

    def duration(self, length: int) -> int:
        """Return the cycles of a sequence among others."""
        return length * self.interval
