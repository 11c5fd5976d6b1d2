"""Run the quantised network: the golden model over everything, the RTL over a part of it."""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtlstm.bench.hardware import last_intervals, measure_latencies
from rtlstm.host import Accelerator, SaturationWarning
from rtlstm.sim.golden import Golden
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.zoo.silero import STEPS_PER_SECOND

__all__ = ["CHUNK_STEPS", "Accuracy", "GoldenRun", "RtlRun", "compare_words", "run_golden", "run_rtl"]
__all__ += ["measure_accuracy", "whole_chunks"]

Progress = Callable[[str, int, int], None]
Floats = NDArray[np.float64]
States = tuple[tuple[IntArray, IntArray], ...]

CHUNK_STEPS = 32
"""Steps handed to the driver at once: about a second of speech."""


@dataclass(frozen=True)
class GoldenRun:
    """Integers of the golden model."""

    y: IntArray
    """Speech probability of each step."""
    probability: Floats
    states: States
    """h and c after each chunk of ``CHUNK_STEPS`` steps."""
    saturated_inputs: int
    saturated_cells: int


@dataclass(frozen=True)
class RtlRun:
    """Integers and cycles of the RTL."""

    y: IntArray
    probability: Floats
    states: States
    """h and c after each chunk, read back from the device."""
    seconds: float
    """Wall time of the steps."""
    warm_latency: int
    first_step_latency: int
    intervals: tuple[int, ...]
    """All different intervals between steps that were back to back."""


@dataclass(frozen=True)
class Accuracy:
    """How far speech probabilities are from the float model's."""

    steps: int
    difference: float
    flips: int
    """Steps whose decision at 0.5 differs."""


def measure_accuracy(probability: Floats, reference: NDArray[np.floating]) -> Accuracy:
    """Compare with the float model's first steps."""
    reference = reference[: len(probability)]
    return Accuracy(
        steps=len(probability),
        difference=float(np.abs(probability - reference).max()),
        flips=int(np.count_nonzero((probability > 0.5) != (reference > 0.5))),
    )


def whole_chunks(seconds: float, steps: int) -> int:
    """Return the steps of ``seconds`` of speech, up to a whole number of chunks or to all steps."""
    wanted = math.ceil(seconds * STEPS_PER_SECOND / CHUNK_STEPS) * CHUNK_STEPS
    return min(max(wanted, CHUNK_STEPS), steps)


def run_golden(network: QuantizedNetwork, features: NDArray[np.floating]) -> GoldenRun:
    """Run the golden model over all steps, chunk by chunk, with carried state."""
    golden = Golden(network)
    numerics = network.numerics
    x = numerics.quantise_input(features)[:, None]
    outputs: list[IntArray] = []
    states: list[tuple[IntArray, IntArray]] = []
    saturated = 0
    state = None
    for begin in range(0, len(x), CHUNK_STEPS):
        result = golden.run(x[begin : begin + CHUNK_STEPS], state)
        state = (result.h, result.c)
        outputs.append(result.y[:, 0, 0])
        states.append((result.h[0][0], result.c[0][0]))
        saturated += result.cell_saturations
    y = np.concatenate(outputs)
    probability = network.shapes[-1].output.to_floats(y)
    return GoldenRun(
        y, probability, tuple(states), numerics.input.saturated(numerics.scale_input(features)), saturated
    )


def run_rtl(
    folder: Path, backend: str, features: NDArray[np.floating], progress: Progress | None = None
) -> RtlRun:
    """Build the RTL in a simulator and stream the features through it with the host driver."""
    with Accelerator.open(folder, backend=backend, progress=progress) as accelerator:
        manifest = accelerator.manifest
        outputs: list[Floats] = []
        states: list[tuple[IntArray, IntArray]] = []
        intervals: set[int] = set()
        elapsed = 0.0
        with accelerator.stream() as stream, warnings.catch_warnings():
            # Saturated inputs are counted and shown in the table.
            warnings.simplefilter("ignore", SaturationWarning)
            for begin in range(0, len(features), CHUNK_STEPS):
                if progress:
                    progress("stream speech through the RTL", begin, len(features))
                start = time.perf_counter()
                outputs.append(stream.steps(features[begin : begin + CHUNK_STEPS])[:, 0])
                elapsed += time.perf_counter() - start
                intervals.update(last_intervals(accelerator))
                h, c = stream.state_integers
                states.append((np.asarray(h).reshape(-1), np.asarray(c).reshape(-1)))
        cold, warm = measure_latencies(accelerator, features[0])
    if progress:
        progress("stream speech through the RTL", len(features), len(features))
    probability = np.concatenate(outputs)
    y = manifest.layers[-1].output.to_integers(probability)
    return RtlRun(y, probability, tuple(states), elapsed, warm, cold, tuple(sorted(intervals)))


def compare_words(golden: GoldenRun, rtl: RtlRun) -> tuple[int, int]:
    """Return how many words of y, h and c were compared, and how many differ.

    h and c are compared after every chunk that the RTL ran, the last one included.
    """
    pairs = [(golden.y[: len(rtl.y)], rtl.y)]
    for expected, found in zip(golden.states[: len(rtl.states)], rtl.states, strict=True):
        pairs += zip(expected, found, strict=True)
    compared = sum(found.size for _, found in pairs)
    return compared, sum(int(np.count_nonzero(expected != found)) for expected, found in pairs)
