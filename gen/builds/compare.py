"""Compares RTL and golden model in every word and every cycle."""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.builds.command_options import SimulateOptions
from rtlstm.host import Accelerator
from rtlstm.host.embeddings import load_tables
from rtlstm.host.raw_values import CodesWarning, Steps
from rtlstm.host.transport import Transport, open_transport
from rtlstm.sim.backends import SimulatedDevice, Waves
from rtlstm.sim.simulated_ports import Simulator, StepCycles, random_input
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.layout import Pad, sequences_first
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.spec.record import Record
from rtlstm.spec.registers import Register


class Comparison(Record):
    """The result of a comparison."""

    simulator: str
    sequences: int
    steps: int
    """Steps computed in all sequences."""
    output_words: int
    """Words of the valid steps' outputs."""
    output_different: int
    state_words: int
    """Words of the final h and c."""
    state_different: int
    first_difference: str
    cycles_predicted: int
    """From each first input beat to the last output beat, summed over the exchanges."""
    cycles_measured: int
    cycles_different: int
    """Steps whose last output beat is not offered in the predicted cycle."""
    seconds: float
    """Wall time of the RTL's run, without compiling and loading."""

    @property
    def passed(self) -> bool:
        """Whether all words and cycles are as predicted."""
        return not (self.output_different or self.state_different or self.cycles_different)

    @property
    def steps_per_second(self) -> float:
        """Steps per second of wall time: the speed of the simulation, not of the hardware."""
        return self.steps / max(self.seconds, 1e-9)


class _Exchange(NamedTuple):
    streams: IntArray
    ends: NDArray[np.bool_]
    cycles: StepCycles

    def predict(self, manifest: Manifest) -> list[int]:
        """The cycle that offers each step's last output beat; cycle 0 accepts the first input beat."""
        return manifest.schedule.offered(self.streams, self.ends)


class _Recorder(Transport):
    """A transport that records the cycles of every exchange."""

    takes_sequences = True
    simulated = True

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__(device.manifest)
        self._device = device
        self.exchanges: list[_Exchange] = []

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        self._device.write(register, words)

    def read(self, register: Register, count: int = 1) -> IntArray:
        return self._device.read(register, count)

    def run_steps(self, steps: Steps) -> IntArray:
        y = self._device.run_steps(steps)
        self.exchanges.append(_Exchange(steps.streams, steps.ends, self._device.last_cycles))
        return y

    def close(self) -> None:
        self._device.close()


def compare_build(
    folder: Path,
    asked: SimulateOptions,
    x: NDArray[Any] | None = None,
    lengths: NDArray[Any] | None = None,
    batch_first: bool | None = None,
    progress: Progress | None = None,
    pad: Pad = "back",
) -> tuple[Comparison, NDArray[Any]]:
    """Run ``x``, or random input if None, through a build's RTL and its golden model, see :func:`compare`.

    Raises ConfigurationError if there is an input, and options for a random one. Raises InputError if the
    input has fewer steps than are asked for.
    """
    manifest = Manifest.load(folder)
    with warnings.catch_warnings():
        if x is None:
            x, first = random_input(manifest, asked.steps, asked.seed or 0), bool(batch_first)
            x = x.swapaxes(0, 1) if first else x
            # Random input is of codes on purpose.
            warnings.simplefilter("ignore", CodesWarning)
        else:
            if asked.seed is not None:
                raise ConfigurationError("`seed` is for random input: leave it out if an input is given")
            x = load_tables(folder, manifest).look_up(x, lengths, batch_first, pad)
            first = sequences_first("x", x, batch_first, manifest.batch_first, lengths)
            if asked.steps is not None:
                x, lengths = _first_steps(manifest, x, lengths, asked.steps, first, pad)
        return compare(
            folder, x, lengths, asked.chosen_simulator, progress, asked.verify, first, asked.wave, pad
        )


def compare(
    folder: Path,
    x: NDArray[Any],
    lengths: NDArray[Any] | None = None,
    simulator: Simulator = "verilator",
    progress: Progress | None = None,
    verify: bool = True,
    batch_first: bool | None = None,
    wave: Path | None = None,
    pad: Pad = "back",
) -> tuple[Comparison, NDArray[Any]]:
    """Run ``x`` through a build's RTL and its golden model.

    Raises InputError if there is nothing to compare, ``x`` does not fit the build, or ``wave`` cannot be
    written. Raises ConfigurationError if the simulator does not write files that are called like ``wave``.

    Parameters
    ----------
    verify
        Read the weights back first, word by word. Under Icarus this takes longer than a few steps.
    batch_first
        Whether ``x`` and the outputs have the batch first; by default as the model has it.
    wave
        File for waveforms of the steps.
    pad
        Where padding stands, as for ``Accelerator.run``.

    Returns
    -------
    The comparison, and the RTL's outputs; ``x`` and the outputs have the shapes of ``Accelerator.run``.
    """
    manifest = Manifest.load(folder)
    if 0 in np.shape(x):
        raise InputError(f"x must hold at least one step of one sequence to compare, not shape {np.shape(x)}")
    batch_first = sequences_first("x", x, batch_first, manifest.batch_first, lengths)
    backend = simulator if wave is None else f"{simulator}:{_wave_file(wave, simulator)}"
    with Accelerator.open(folder, "golden") as golden:
        expected_y, expected_state = golden.run(x, lengths, batch_first=batch_first, pad=pad)
    device = cast(SimulatedDevice, open_transport(backend, folder, manifest, progress))
    recorder = _Recorder(device)
    try:
        with Accelerator(recorder, manifest, progress) as accelerator:
            accelerator.begin_as(folder)
            accelerator.load_weights(folder / "weights.bin", verify)
            started = time.perf_counter()
            y, state = accelerator.run(x, lengths, batch_first=batch_first, pad=pad)
            seconds = time.perf_counter() - started
    finally:
        recorder.close()
    states = list(zip(_flat(expected_state), _flat(state), strict=True))
    different = np.argwhere(y != expected_y)
    steps = sum(len(each.streams) for each in recorder.exchanges)
    predicted, measured, wrong = _compare_cycles(manifest, recorder.exchanges)
    first = _describe("y", y, expected_y)
    for index, (expected, found) in enumerate(states):
        first = first or _describe(f"final state array {index}", found, expected)
    if wrong and not first:
        first = f"step {wrong[0][0]} is offered in cycle {wrong[0][1]}, but was predicted for {wrong[0][2]}"
    result = Comparison(
        simulator=simulator,
        sequences=1 if y.ndim + manifest.gives_number == 2 else y.shape[0 if batch_first else 1],
        steps=steps,
        output_words=steps * manifest.outputs,
        output_different=len(different),
        state_words=sum(left.size for left, _ in states),
        state_different=sum(int(np.count_nonzero(left != right)) for left, right in states),
        first_difference=first,
        cycles_predicted=predicted,
        cycles_measured=measured,
        cycles_different=len(wrong),
        seconds=round(seconds, 6),
    )
    return result, y


def _first_steps(
    manifest: Manifest, x: NDArray[Any], lengths: NDArray[Any] | None, steps: int, batch_first: bool, pad: Pad
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the first steps of an input, and lengths within them, in frames if the input is.

    If padding stands in front, they are the last steps.
    """
    axis = 1 if batch_first and x.ndim > 2 else 0
    if x.ndim < 2:
        return x, lengths  # The driver says what an input is.
    # An input may have the model's frames, or whole steps.
    count = steps * (1 if x.shape[-1] == manifest.program.inputs else manifest.frames)
    if count > x.shape[axis]:
        raise InputError(
            f"`steps` must be at most the steps of the input, {x.shape[axis] * steps // count}, not {steps}"
        )
    kept = slice(-count, None) if pad == "front" else slice(count)
    return x[:, kept] if axis else x[kept], None if lengths is None else np.minimum(lengths, count)


def _wave_file(wave: Path, simulator: Simulator) -> Path:
    """The absolute path of a file for waveforms: a backend takes a name such as 5 for a seed."""
    try:
        return Waves.named(str(wave), simulator).path
    except ConfigurationError as error:
        raise ConfigurationError(f"`wave`: {error}") from None


def _flat(state: tuple[Any, Any]) -> list[NDArray[Any]]:
    return [array for part in state for array in (part if isinstance(part, tuple) else (part,))]


def _describe(name: str, found: NDArray[Any], expected: NDArray[Any]) -> str:
    different = np.argwhere(found != expected)
    if not len(different):
        return ""
    where = tuple(int(index) for index in different[0])
    index = ", ".join(map(str, where))
    return f"{name}[{index}] is {found[where]}, but the golden model says {expected[where]}"


def _compare_cycles(
    manifest: Manifest, exchanges: list[_Exchange]
) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Return predicted and measured cycles, and (step, found, predicted) where they differ."""
    predicted = measured = steps = 0
    wrong = []
    for each in exchanges:
        expected = each.predict(manifest)
        found = (each.cycles.offered - each.cycles.begun[0]).tolist()
        predicted, measured = predicted + expected[-1], measured + found[-1]
        wrong += [
            (steps + step, got, want)
            for step, (got, want) in enumerate(zip(found, expected, strict=True))
            if got != want
        ]
        steps += len(each.streams)
    return predicted, measured, wrong
