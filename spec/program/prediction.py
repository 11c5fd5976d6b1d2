"""Predicts the cycle of each step's last output beat while its input arrives, whenever that is.

:class:`~rtlstm.spec.program.schedule.Schedule` counts steps that are sent back to back. Here the cycles that
accepted the input beats are known instead, so that any pause between them is part of the prediction. The
output must not be held back.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rtlstm.spec.program.schedule import Schedule, StepSchedule, Timeline
from rtlstm.spec.program.sequence_schedule import SequenceSchedule


class Prediction(ABC):
    """Follows the steps that a core accepts, from its reset on or from a moment in which it was idle."""

    @abstractmethod
    def complete(self, beats: Sequence[int], stream: int, suppress: bool, last: bool) -> list[int]:
        """Take a step whose input is complete.

        Parameters
        ----------
        beats
            The cycles that accepted its beats.
        last
            Whether it ends a sequence, for a build that takes whole ones.

        Returns
        -------
        The cycle that offers the last output beat, of each step that is known now, in the steps' order. A
        suppressed step has a number, too, which means nothing.
        """

    @abstractmethod
    def forget(self, streams: Sequence[int]) -> None:
        """Take note that the recurrent partial sums of streams have become invalid."""

    @abstractmethod
    def settle(self) -> None:
        """Take note that the core is idle: it has finished what followed the steps so far."""


class StepPrediction(Prediction):
    """The prediction for a build that takes time steps one by one."""

    def __init__(self, schedule: StepSchedule) -> None:
        self._program, self._parameters = schedule.program, schedule.parameters
        self._ready: set[int] = set()
        self.settle()

    def settle(self) -> None:
        """Take note that the core is idle; streams that are ready stay so."""
        self._timeline = Timeline(self._program, self._parameters)
        self._before: int | None = None
        """Stream of the step before, after which nothing is prepared yet."""

    def complete(self, beats: Sequence[int], stream: int, suppress: bool, last: bool) -> list[int]:
        """Take a step; return the cycle of its last output beat."""
        timeline, prefetch = self._timeline, False
        if self._before is not None:
            prefetch = (
                self._program.prefetch is not None
                and stream == self._before
                and stream in self._ready
                and timeline.next_is_there(beats)
            )
            if not prefetch:
                timeline.prepare()
        _, offered = timeline.step(beats, stream not in self._ready, prefetch, suppress)
        self._ready.add(stream)
        self._before = stream
        return [offered]

    def forget(self, streams: Sequence[int]) -> None:
        """Take note that partial sums have become invalid."""
        self._ready -= set(streams)


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


def prediction(schedule: Schedule) -> Prediction:
    """Return a prediction that begins in an idle core."""
    if isinstance(schedule, SequenceSchedule):
        return SequencePrediction(schedule)
    assert isinstance(schedule, StepSchedule)
    return StepPrediction(schedule)
