"""The prediction from the cycles of input beats: the schedule's, where the schedule has one."""

import numpy as np
import pytest
from support.random_builds import random_case
from support.random_sequences import random_sequence_case

from rtlstm.sim.scoreboard import prediction
from rtlstm.spec.program.schedule import offer_cycles, step_cycles

SMALL = (1, 2, 3, 5, 7)


@pytest.mark.parametrize("seed", range(1, 9))
def test_back_to_back_it_is_the_schedule(seed: int) -> None:
    manifest = (case := random_case(seed, sizes=SMALL)).manifest
    program, parameters, streams = manifest.program, manifest.parameters, case.streams.tolist()
    beats = -(-program.inputs // parameters.beat_in)
    predicted = prediction(manifest.schedule)
    found = [
        predicted.complete(range(accepted - beats + 1, accepted + 1), stream, False, False)[0]
        for (accepted, _), stream in zip(
            step_cycles(program, parameters, streams, set()), streams, strict=True
        )
    ]
    assert found == offer_cycles(program, parameters, len(streams), streams=streams)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_single_steps_take_the_manifests_latency(seed: int) -> None:
    manifest = random_case(seed, sizes=SMALL).manifest
    beats = -(-manifest.program.inputs // manifest.parameters.beat_in)
    predicted, cycles = prediction(manifest.schedule), manifest.cycles

    def latency(begin: int) -> int:
        (offered,) = predicted.complete(range(begin, begin + beats), 0, False, False)
        return offered - (begin + beats - 1)

    apart = 4 * (cycles.first_step_latency_cycles + cycles.step_interval_cycles)
    assert latency(0) == cycles.first_step_latency_cycles
    assert latency(apart) == cycles.step_latency_cycles
    predicted.settle()
    assert latency(2 * apart) == cycles.step_latency_cycles
    predicted.forget([0])
    assert latency(3 * apart) == cycles.first_step_latency_cycles


def test_each_sequence_is_predicted_from_its_last_input_beat() -> None:
    manifest = random_sequence_case(1, sizes=SMALL).manifest
    schedule = manifest.schedule
    beats = -(-manifest.program.inputs // manifest.parameters.beat_in)
    ends = np.array([False, False, True])
    expected = schedule.offered(np.zeros(3, dtype=np.int64), ends)
    for pause in (0, 7):
        predicted, at = prediction(schedule), 0
        for last in ends.tolist():
            found = predicted.complete(range(at, at + beats), 0, False, last)
            at += beats + pause
        assert found == [cycle + 2 * pause for cycle in expected]
