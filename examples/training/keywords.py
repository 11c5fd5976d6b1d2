"""Ten words spoken by espeak-ng in many voices, with noise, and their log-mel features.

The speech is synthetic: figures on it say what rounding costs, not how well people are understood.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from synthetic_speech import RATE, speak

__all__ = ["BANDS", "HELD_OUT", "KEYWORDS", "TRAINED", "Spoken", "Voices", "features", "make_keywords"]

Floats = NDArray[np.float64]
KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
HOP, WINDOW, BANDS = 320, 512, 32


@dataclass(frozen=True)
class Voices:
    """Accents and voices of espeak-ng, each of which may speak with each."""

    accents: tuple[str, ...]
    variants: tuple[str, ...]


TRAINED = Voices(
    ("en-us", "en-gb", "en-029", "en-gb-x-gbclan", "en-gb-x-rp", "en-us-nyc"),
    ("f1", "f2", "f3", "m1", "m2", "m3", "m4", "m6", "m7", "Alex", "Andrea", "Annie", "Denis", "ed", "Gene",
     "Jacky", "Lee", "linda", "Mario", "Michael", "Mike", "steph", "Tweaky", "steph3", "victor"),
)  # fmt: skip
HELD_OUT = Voices(
    ("en-gb-scotland", "en-gb-x-gbcwmd"),
    ("f4", "f5", "m5", "m8", "Andy", "belinda", "Diogo", "Hugo", "iven", "Marco", "Nguyen", "rob"),
)
"""No accent and no voice of these is trained on."""


@dataclass(frozen=True)
class Spoken:
    """Words as features, ``(T, N, BANDS)``, with their numbers in ``KEYWORDS``, ``(N,)``."""

    x: Floats
    words: NDArray[np.int64]


def make_keywords(
    count: int, voices: Voices, seed: int, progress: Callable[[str, int, int], None] | None = None
) -> Spoken:
    """Speak words in turn, in drawn voices, at drawn speeds, pitches and levels, with drawn noise.

    Raises
    ------
    ToolError
        If espeak-ng is not there, or fails.
    """
    rng = np.random.default_rng(seed)
    words = np.arange(count) % len(KEYWORDS)
    parts = []
    for done, word in enumerate(words, start=1):
        voice = f"{rng.choice(voices.accents)}+{rng.choice(voices.variants)}"
        spoken = speak(KEYWORDS[word], voice, int(rng.integers(110, 220)), int(rng.integers(20, 80)))
        parts.append(features(_with_noise(spoken, rng)))
        if progress and done % 500 == 0:
            progress("speak words", done, count)
    return Spoken(np.stack(parts, axis=1), words)


def features(samples: Floats) -> Floats:
    """Return the logarithms of the power in 32 bands ``(T, 32)``, a step each 20 ms, about within -1 to 1."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP]
    power = np.square(np.abs(np.fft.rfft(frames * np.hanning(WINDOW), axis=1)))
    return np.log10(power @ _bands().T + 1e-4) / 3.0


def _bands() -> Floats:
    """Triangles, evenly spaced in mel from 60 Hz to 7600 Hz, over the spectrum's lines ``(BANDS, lines)``."""
    lowest, highest = 2595.0 * np.log10(1.0 + np.array([60.0, 7600.0]) / 700.0)
    mel = np.linspace(lowest, highest, BANDS + 2)
    edges = 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    lines = np.fft.rfftfreq(WINDOW, 1.0 / RATE)
    low, middle, high = (edges[at : at + BANDS, None] for at in range(3))
    return np.clip(np.minimum((lines - low) / (middle - low), (high - lines) / (high - middle)), 0.0, None)


def _with_noise(spoken: Floats, rng: Any) -> Floats:
    """Put a word somewhere in a second, with noise 5 to 40 dB below it whose power falls with frequency."""
    spoken = spoken[:RATE]
    samples = np.zeros(RATE)
    begin = rng.integers(0, RATE - len(spoken) + 1)
    samples[begin : begin + len(spoken)] = spoken
    fall = (np.fft.rfftfreq(RATE, 1.0 / RATE) + 50.0) ** rng.uniform(0.0, 0.7)
    noise = np.fft.irfft(np.fft.rfft(rng.normal(size=RATE)) / fall, RATE)
    mixed = samples + noise * samples.std() / noise.std() * 10.0 ** (-rng.uniform(5.0, 40.0) / 20.0)
    return mixed / np.abs(mixed).max() * 10.0 ** (-rng.uniform(0.0, 20.0) / 20.0)
