"""A picture of the speech, the probabilities and the decisions."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rtlstm.zoo.silero import CHUNK, RATE

__all__ = ["draw_picture", "runs"]

_GREY, _BLUE, _ORANGE, _GREEN = "#8a8f98", "#1f4e8c", "#f28e2b", "#2a9d6f"


def runs(decisions: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], decisions, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def draw_picture(
    path: Path, audio: NDArray[np.floating], reference: NDArray[np.floating], rtl: NDArray[np.floating]
) -> None:
    """Write a PNG of the steps that the RTL ran; ``reference`` is the float model's probability."""
    seconds = CHUNK / RATE
    time = (np.arange(len(rtl)) + 0.5) * seconds
    reference, audio = reference[: len(rtl)], audio[: len(rtl) * CHUNK]
    figure = Figure(figsize=(12, 7.2), dpi=130, layout="constrained")
    wave, probability, decision, error = figure.subplots(
        4, 1, sharex=True, height_ratios=[2.2, 2.6, 0.9, 1.4]
    )
    figure.suptitle("silero VAD: the float model and the core's RTL on real speech", fontsize=14)

    _draw_wave(wave, audio)
    for axes in (wave, probability):
        for begin, end in runs(rtl > 0.5):
            axes.axvspan(begin * seconds, end * seconds, color=_GREEN, alpha=0.12, linewidth=0)

    probability.plot(time, reference, color=_ORANGE, linewidth=3.6, alpha=0.75, label="float (onnxruntime)")
    probability.plot(time, rtl, color=_BLUE, linewidth=1.1, label="RTL, 16-bit weights")
    probability.axhline(0.5, color=_GREY, linewidth=0.8, linestyle="--")
    probability.set(ylabel="speech probability", ylim=(-0.04, 1.04), yticks=[0, 0.5, 1])

    for row, values, color in ((1, reference, _ORANGE), (0, rtl, _BLUE)):
        bars = [(begin * seconds, (end - begin) * seconds) for begin, end in runs(values > 0.5)]
        decision.broken_barh(bars, (row - 0.38, 0.76), color=color, linewidth=0)
    decision.set(ylabel="decision", yticks=[0, 1], yticklabels=["RTL", "float"], ylim=(-0.6, 1.6))

    difference = (rtl - reference) * 1000
    error.fill_between(time, difference, color=_BLUE, alpha=0.3, linewidth=0)
    error.plot(time, difference, color=_BLUE, linewidth=0.8)
    error.axhline(0, color=_GREY, linewidth=0.8)
    most = max(float(np.abs(difference).max()), 1e-3) * 1.15
    error.set(ylabel="RTL - float\n(thousandths)", xlabel="time (s)", ylim=(-most, most))

    error.set_xlim(0, len(rtl) * seconds)
    for axes in (wave, probability, decision, error):
        axes.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels()
    figure.legend(
        *probability.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False
    )
    figure.savefig(path)


def _draw_wave(axes: Axes, audio: NDArray[np.floating]) -> None:
    """Draw the envelope: lowest and highest sample of each block of 64 (4 ms)."""
    block = 64
    blocks = audio[: len(audio) // block * block].reshape(-1, block)
    time = (np.arange(len(blocks)) + 0.5) * block / RATE
    axes.fill_between(time, blocks.min(axis=1), blocks.max(axis=1), color=_GREY, linewidth=0)
    most = max(float(np.abs(audio).max()), 1e-3) * 1.05
    axes.set(ylabel="waveform", ylim=(-most, most))
