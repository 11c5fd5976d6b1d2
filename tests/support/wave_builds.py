"""Builds with a wave-front: drawn ones, and a check of their words and cycles with pauses between inputs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rtlstm.sim.scoreboard import prediction
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.registers import Command, Register
from support.device_pair import pair
from support.random_builds import Case, make_case, random_integers, random_network, random_parameters


def wave_case(seed: int, sizes: tuple[int, ...], steps: int, whole: bool = False) -> Case:
    """Draw a case with a wave-front; ``whole``: an input comes in one beat.

    Arrays that are too small for it are drawn again.
    """
    rng = np.random.default_rng(seed)
    settings, network = random_integers(rng, random_network(rng, sizes))
    while True:
        parameters = random_parameters(rng, settings.tables).replace(streams=1, wave_front=True)
        if whole and network.inputs > parameters.macs:
            continue
        beat = {"beat_in": parameters.macs} if whole else {}
        try:
            return make_case(seed, network, parameters.replace(**beat), steps)
        except ConfigurationError:
            continue


def check_pauses(case: Case, folder: Path, backend: str, pauses: Sequence[float]) -> None:
    """Play a case whose inputs take a beat each, from a reset on and from its state on, with and without
    outputs, with these shares of cycles without a beat; compare words, states and every step's cycle."""
    case.write(folder)
    with pair(folder, backend) as both:
        for index, pause in enumerate(pauses):
            both.stalls(case.seed, pause, 0.0)
            for suppress in (None, case.suppress):
                if index % 2:
                    both.write_states(case)
                else:
                    for accelerator in both.both:
                        accelerator.device.transport.write(Register.STREAM, [0])
                        accelerator.device.transport.write(Register.COMMAND, [Command.RESET])
                both.exchange(case.streams, case.x, suppress)
                silent = np.zeros(len(case.x), dtype=bool) if suppress is None else suppress
                cycles = both.transport.last_cycles
                assert _predicted(case, cycles.accepted, silent) == cycles.offered[~silent].tolist()


def _predicted(case: Case, accepted: IntArray, silent: np.ndarray) -> list[int]:
    predicted = prediction(case.manifest.schedule)
    for cycle, suppress in zip(accepted.tolist(), silent.tolist(), strict=True):
        predicted.complete([cycle], 0, suppress, False)
    return [predicted.given(1 << 62) for suppress in silent if not suppress]
