"""A core's scoreboard: the golden model beside a core, told what crosses the core's ports, and comparing.

It knows no simulator: a testbench calls it in every cycle in which something is transferred. Every output
word and the cycle of every step's last output beat are compared. If something differs, a call raises
AssertionError, which is how a testbench fails.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rtlstm.host.raw_values import Steps
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.simulated_ports import PortSpec, sign_extend, unpack_beats
from rtlstm.spec.errors import DeviceError, ImageError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import NETWORK_BIT
from rtlstm.spec.program.schedule import Schedule, StepSchedule, Timeline, WaveRun
from rtlstm.spec.program.sequences import SequenceSchedule
from rtlstm.spec.program.spatial import SpatialSchedule
from rtlstm.spec.registers import Command, Region, Register, field
from rtlstm.spec.residents import split_numbers

LATER = -2
"""In place of a cycle that is not known yet."""


class Prediction(ABC):
    """Predicts the cycle of each step's last output beat, from a reset on or from when the core was idle.

    The cycles that accepted the input beats are known, so any pause between them is part of the prediction.
    The output must not be held back.
    """

    @abstractmethod
    def complete(self, beats: Sequence[int], stream: int, suppress: bool, last: bool) -> list[int]:
        """Take a step whose input is complete: the cycles that accepted its beats, and whether it ends a
        sequence.

        Only a build that takes whole sequences has these ends. Returns the cycle that offers the last output
        beat, of each step that is known now, in the steps' order. A suppressed step has a number, too, which
        means nothing. ``LATER`` if it depends on inputs to come.
        """

    def given(self, now: int) -> int:
        """Return that cycle of the next step that has an output and was said to be known later, in cycle
        ``now``, in which it gives its output."""
        raise AssertionError("all cycles are known with the inputs")

    @abstractmethod
    def forget(self, streams: Sequence[int]) -> None:
        """Take note that the recurrent partial sums of streams have become invalid."""

    def begin(self, number: int) -> None:
        """Take note that a stream was reset, or its state written: one of the network that ``number`` names,
        if there are several."""
        self.forget([number])

    @abstractmethod
    def settle(self) -> None:
        """Take note that the core is idle: it has finished what followed the steps so far."""


class StepPrediction(Prediction):
    """The prediction for a build that takes time steps one by one.

    ``build_of`` gives the build of each network of a device that holds several.
    """

    def __init__(self, schedule: StepSchedule, build_of: Callable[[int], Manifest] | None = None) -> None:
        self._parameters, self._build_of = schedule.parameters, build_of
        self._ready: set[int] = set()
        self._networks: dict[int, int] = {}
        """Whose state each stream has: after a reset, that of network 0."""
        self._network, self._program = 0, schedule.program
        """The network that ran last."""
        self.settle()

    def settle(self) -> None:
        """Take note that the core is idle; streams that are ready stay so."""
        self._timeline = Timeline(self._program, self._parameters)
        self._before: int | None = None
        """Stream of the step before, after which nothing is prepared yet."""

    def complete(self, beats: Sequence[int], stream: int, suppress: bool, last: bool) -> list[int]:
        """Take a step; return the cycle of its last output beat."""
        timeline, prefetch, number = self._timeline, False, stream
        if self._build_of is not None:
            stream, network = split_numbers(number)
        if self._before is not None:
            prefetch = (
                self._program.prefetch is not None
                and number == self._before
                and stream in self._ready
                and timeline.next_is_there(beats)
            )
            if not prefetch:
                timeline.prepare()
        changed = None if self._build_of is None else self._change(stream, self._build_of(network), network)
        _, offered = self._timeline.step(beats, stream not in self._ready, prefetch, suppress, changed)
        self._ready.add(stream)
        self._before = number
        return [offered]

    def _change(self, stream: int, build: Manifest, network: int) -> int | None:
        """Go on with a network's program; return what :meth:`Timeline.step` asks for if it is another one's,
        or if the stream's state is."""
        changed = None
        if self._networks.get(stream, 0) != network:
            self._ready.discard(stream)
            changed = 0
        before, self._program = self._program, build.program
        if network != self._network:
            changed = self._timeline.change(self._program, build.timing)
        elif self._program is not before:
            # Another build was loaded in its place, so that the core is idle.
            self.settle()
        self._network = self._networks[stream] = network
        return changed

    def forget(self, streams: Sequence[int]) -> None:
        """Take note that partial sums have become invalid."""
        self._ready -= set(streams)

    def begin(self, number: int) -> None:
        """Take note that a stream was reset, or its state written."""
        stream, network = (number, 0) if self._build_of is None else split_numbers(number)
        self._networks[stream] = network
        self.forget([stream])


class WavePrediction(Prediction):
    """The prediction for a build with a wave-front: what a step takes depends on when the next one comes."""

    def __init__(self, schedule: StepSchedule) -> None:
        self._schedule, self._ready = schedule, False
        self.settle()

    def settle(self) -> None:
        """Take note that the core is idle; a stream that is ready stays so."""
        self._run = WaveRun(Timeline(self._schedule.program, self._schedule.parameters), self._ready)
        self._steps, self._due = 0, deque[int]()

    def complete(self, beats: Sequence[int], stream: int, suppress: bool, last: bool) -> list[int]:
        """Take a step, whose cycles are known later."""
        self._ready = True
        self._run.advance(beats[0] - 1)
        self._run.give(beats, suppress)
        if not suppress:
            self._due.append(self._steps)
        self._steps += 1
        return [LATER]

    def given(self, now: int) -> int:
        """Return the cycle of the next step that has an output."""
        self._run.advance(now)
        return self._run.offered[self._due.popleft()]

    def forget(self, streams: Sequence[int]) -> None:
        """Take note that partial sums have become invalid: the core is idle."""
        if 0 in streams:
            self._ready = self._run.ready = False


class SpatialPrediction(Prediction):
    """The prediction for a spatial build: a step waits only for the one before, and for its stream's."""

    def __init__(self, schedule: SpatialSchedule) -> None:
        self._schedule = schedule
        self._before: dict[int, int] = {}

    def complete(self, beats: Sequence[int], stream: int, suppress: bool, last: bool) -> list[int]:
        """Take a step; return the cycle of its last output beat."""
        accepted = self._schedule.accept(beats[-1], stream, self._before)
        return [accepted - 1 + self._schedule.latency_of_step]

    def forget(self, streams: Sequence[int]) -> None:
        """Nothing is prepared in such a build."""

    def settle(self) -> None:
        """The next step waits for none before."""
        self._before = {}


class SequencePrediction(Prediction):
    """The prediction for a build that takes whole sequences: each is read, computed, given, then the next."""

    def __init__(self, schedule: SequenceSchedule) -> None:
        self._schedule = schedule
        self._suppressed: list[bool] = []

    def complete(self, beats: Sequence[int], stream: int, suppress: bool, last: bool) -> list[int]:
        """Take a step; if it ends its sequence, return the cycles of all steps of that."""
        self._suppressed.append(suppress)
        if not last:
            return []
        marks, self._suppressed = self._suppressed, []
        cycles = self._schedule.cycles([len(marks)], marks)[0]
        return [offered - cycles.accepted + beats[-1] for offered in cycles.offered]

    def forget(self, streams: Sequence[int]) -> None:
        """Nothing is prepared in such a build."""

    def settle(self) -> None:
        """A sequence depends on none before."""


def prediction(schedule: Schedule, build_of: Callable[[int], Manifest] | None = None) -> Prediction:
    """Return a prediction that begins in an idle core; ``build_of`` is as for :class:`StepPrediction`."""
    if isinstance(schedule, SequenceSchedule):
        return SequencePrediction(schedule)
    if isinstance(schedule, SpatialSchedule):
        return SpatialPrediction(schedule)
    assert isinstance(schedule, StepSchedule)
    if schedule.program.wave is not None:
        return WavePrediction(schedule)
    return StepPrediction(schedule, build_of)


_STREAM_BEGINS = {Register.COMMAND, Register.DATA}
_REGION = field(Register.SELECT, "REGION")
_STATES = (Region.VECTORS, Region.CELLS)


@dataclass
class Step:
    """A step whose output is due."""

    number: int
    """Steps before it since the scoreboard was made."""
    stream: int
    """Its number, which names its network, too, if there are several."""
    ports: PortSpec
    """The sizes of its network."""
    y: IntArray
    """What the golden model gives for it, ``(outputs,)``, codes."""
    cycle: int
    """Predicted cycle of its last output beat; -1 if it cannot be predicted, or ``LATER``."""
    accepted: int
    """Cycle of its last input beat."""


class Scoreboard:
    """Compares what a core gives with the golden model.

    Parameters
    ----------
    manifest
        The build that the core holds.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.words = 0
        """Output words compared."""
        self.cycles = 0
        """Steps whose cycle was compared with the prediction."""
        self.steps = 0
        """Steps accepted."""
        self.outputs: deque[tuple[int, IntArray]] = deque()
        """Stream and output ``(outputs,)`` of each step that was given, in codes, until they are taken."""
        self.due: deque[Step] = deque()
        """Steps whose output has not been given completely."""
        self._golden = GoldenDevice(Path(), manifest)
        self._data: list[int] = []
        """Words written to DATA that the golden model has not been told yet."""
        self._stream = self._select = 0
        self._several = manifest.parameters.networks > 1
        self._builds: dict[str, Manifest] = {}
        """Builds that a device of several networks may hold, the last one that was named last."""
        self._held: dict[int, tuple[Manifest, PortSpec]] = {}
        """Those that its memories were found to hold, by the number of the network."""
        self.adopt(manifest)
        self._begin()

    def adopt(self, manifest: Manifest) -> None:
        """Expect another build of the same hardware: it is loaded next, or one of several that are there."""
        self._tell()
        self.manifest, self.ports = manifest, PortSpec.from_manifest(manifest)
        self._settling = manifest.settling_cycles
        self._golden.adopt(manifest)
        if not self._several:
            self._begin()
        self._builds.pop(manifest.build_hash, None)
        self._builds[manifest.build_hash] = manifest

    def build_of(self, number: int) -> tuple[Manifest, PortSpec]:
        """Return the build that a stream's number names, and its sizes.

        Raises AssertionError if a device of several networks holds none that was named with :meth:`adopt`.
        """
        if not self._several:
            return self.manifest, self.ports
        _, network = split_numbers(number)
        if network not in self._held:
            golden = self.golden
            found = next(
                (each for each in [*self._builds.values()][::-1] if golden.holds(each, network)), None
            )
            assert found is not None, (
                f"x_stream names network {network}, so its build must be known: load it with "
                "core.load(folder, network=...), or name it with core.expect(folder) if the design loads it"
            )
            self._held[network] = found, PortSpec.from_manifest(found)
        return self._held[network]

    @property
    def golden(self) -> GoldenDevice:
        """The golden model, which has been told everything so far."""
        self._tell()
        return self._golden

    @property
    def beats_in(self) -> int:
        """Input beats accepted of a step whose input is not complete."""
        return len(self._beats_in)

    @property
    def unfinished(self) -> bool:
        """Whether a part of a step, or of a whole sequence, was accepted, and the rest was not."""
        return bool(self._beats_in or self._sequence)

    def _begin(self) -> None:
        """Forget steps, as a core does."""
        self.due.clear()
        self._beats_in: list[tuple[int, int]] = []
        self._beats_out: list[int] = []
        self._sequence: list[tuple[int, IntArray, bool]] = []
        several = (lambda network: self.build_of(network << NETWORK_BIT)[0]) if self._several else None
        self._prediction = prediction(self.manifest.schedule, several)
        self._predicted = True
        self._idle_since = self._ready_from = -1 << 62

    def reset(self) -> None:
        """The core was reset: every stream begins anew, and a loadable core has no program."""
        self._tell()
        self._golden.restart()
        self._held.clear()
        self._begin()

    def wrote(self, register: int, word: int, cycle: int) -> None:
        """A write to one of the core's registers was accepted."""
        if register == Register.DATA:
            self._data.append(word)
            region = _REGION.of(self._select)
            if region not in _STATES:
                self._prediction.forget(range(self.manifest.parameters.streams))
            if region == Region.PROGRAM:
                self._held.clear()
        else:
            self._tell()
            self._golden.write(Register(register), [word])
        if register == Register.SELECT:
            self._select = word
        elif register == Register.STREAM:
            self._stream = word
        elif register == Register.COMMAND and word in set(Command):
            self._prediction.begin(self._stream)
        if register in _STREAM_BEGINS:
            self._opened(cycle)

    def read(self, register: int, cycle: int) -> None:
        """A read of one of the core's registers was accepted."""
        if register == Register.DATA:
            self._tell()
            self._golden.read(Register.DATA)
            self._opened(cycle)

    def _opened(self, cycle: int) -> None:
        """A request to the memories or to a stream's state was accepted: no step is being computed."""
        assert not self.due, (
            f"DATA or COMMAND was accessed in cycle {cycle} while outputs of {len(self.due)} steps were due: "
            "whether these steps come before it cannot be seen from outside; take their outputs first"
        )
        self._ready_from = cycle + 3

    def _tell(self) -> None:
        if self._data:
            self._golden.write(Register.DATA, self._data)
            self._data = []

    def input_beat(self, data: int, stream: int, suppress: bool, last: bool, cycle: int) -> None:
        """An input beat was accepted."""
        manifest, ports = self.build_of(stream)
        begins = not self._beats_in and not self.due
        if begins and not self._predicted and cycle > self._idle_since + self._settling:
            # Once outputs were held back, only an idle core's cycles are known again.
            self._prediction.settle()
            self._predicted = True
        if not self._beats_in and cycle <= self._ready_from and not manifest.schedule.prepares:
            # The core may still be loading its first operation.
            self._predicted = False
        self._beats_in.append((cycle, data))
        if len(self._beats_in) < ports.beats_in:
            return
        cycles = [at for at, _ in self._beats_in]
        words = _words([beat for _, beat in self._beats_in], ports.beat_in, ports.data_bits)
        self._beats_in = []
        self.steps += 1
        self._sequence.append((stream, words[: ports.inputs], suppress))
        whole = self.manifest.sequence is not None
        last = whole and (last or len(self._sequence) == ports.sequence_steps)
        predicted = self._prediction.complete(cycles, stream, suppress, last)
        if whole and not last:
            return
        self._compute(predicted, cycles[-1], last)

    def _compute(self, predicted: Sequence[int], accepted: int, last: bool) -> None:
        """Let the golden model compute the steps that are complete."""
        steps, self._sequence = self._sequence, []
        marks = np.array([suppress for _, _, suppress in steps])
        ends = np.zeros(len(steps), dtype=bool)
        ends[-1] = last
        streams = np.array([stream for stream, _, _ in steps], dtype=np.int64)
        manifest, ports = self.build_of(int(streams[0]))
        highest = manifest.parameters.streams - 1
        numbers = split_numbers(streams)[0] if self._several else streams
        assert (numbers <= highest).all(), f"x_stream must be 0 to {highest}, not {numbers.max()}"
        # A step without an output keeps the core busy, too.
        self._idle_since = max(self._idle_since, accepted)
        x = np.array([x for _, x, _ in steps], dtype=np.int64)
        if rows := manifest.parameters.token_rows:
            bad = x[(x < 0) | (x >= rows)]
            assert not bad.size, f"x_data must be a token of 0 to {rows - 1}, not {bad[0]}"
        first = self.steps - len(steps)
        golden = self.golden
        if golden.manifest is not manifest:
            golden.adopt(manifest)
        try:
            y = golden.run_steps(Steps(streams, x, marks, ends))
        except (ImageError, DeviceError) as error:
            raise AssertionError(
                f"step {first} was accepted before weights and tables were loaded completely ({error})"
            ) from None
        for index in np.flatnonzero(~marks).tolist():
            cycle = predicted[index] if self._predicted else -1
            self.due.append(Step(first + index, int(streams[index]), ports, y[index], cycle, accepted))

    def output_beat(self, data: int, stream: int, last: bool, offered: int, accepted: int) -> None:
        """An output beat was accepted; ``offered`` is the first cycle that offered it."""
        assert self.due, f"y offers a beat in cycle {offered}, but no step's output is due"
        step, ports = self.due[0], self.due[0].ports
        where = f"step {step.number}, beat {len(self._beats_out)}"
        self._beats_out.append(data)
        ends = len(self._beats_out) == ports.beats_out
        assert stream == step.stream, f"{where}: y_stream must be {step.stream}, not {stream}"
        assert last == ends, f"{where}: y_last must be {int(ends)}, not {int(last)}"
        if accepted > offered:
            # What the core does while nobody takes its output is not predicted.
            self._predicted = False
            for later in [*self.due][0 if not ends else 1 :]:
                later.cycle = -1
        if not ends:
            return
        beats, self._beats_out = self._beats_out, []
        self.due.popleft()
        words = _words(beats, ports.beat_out, ports.y_bits)
        assert not words[ports.outputs :].any(), (
            f"step {step.number}: words of y past the last output must be 0"
        )
        found = words[: ports.outputs]
        self.words += len(found)
        for index in np.flatnonzero(found != step.y)[:1].tolist():
            raise AssertionError(
                f"y of step {step.number}, word {index} must be {step.y[index]}, not {found[index]}"
            )
        self._idle_since = accepted
        self.outputs.append((stream, found))
        if step.cycle == LATER:
            step.cycle = self._prediction.given(offered)
        if step.cycle >= 0:
            self.cycles += 1
            must, was = step.cycle - step.accepted, offered - step.accepted
            assert was == must, (
                f"step {step.number} must offer its last output beat {must} cycles after its input was "
                f"complete, not {was}"
            )


def _words(beats: list[int], count: int, bits: int) -> IntArray:
    """Return the signed words of beats, the first in the low bits."""
    return sign_extend(unpack_beats([f"{beat:x}" for beat in beats], count, bits).reshape(-1), bits).astype(
        np.int64
    )
