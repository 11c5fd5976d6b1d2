"""Speech made by espeak-ng, with pauses and noise: something to train on that no recording is needed for."""

import io
import shutil
import subprocess
import wave
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import ToolError

__all__ = ["RATE", "make_speech"]

RATE = 16000
VOICES = (
    "en-us", "en-gb", "de", "fr-fr", "es", "it", "ru", "pt", "nl", "pl", "sv", "tr", "cs", "fi",
    "en-us+f2", "en-us+m3", "en-gb+f4", "de+f3", "fr-fr+f1", "ru+f3", "en-us+m7", "en-us+whisper",
)  # fmt: skip
TEXT = """
the of and a to in is you that it he was for on are as with his they I at be this have from or one had by
word but not what all were we when your can said there use an each which she do how their if will up other
about out many then them these so some her would make like him into time has look two more write go see number
no way could people my than first water been call who oil its now find long down day did get come made may
part seven eleven twenty thousand telephone umbrella question answer yesterday
"""


def make_speech(
    seconds: float, seed: int, progress: Callable[[str, int, int], None] | None = None
) -> NDArray[np.float32]:
    """Return 16 kHz samples within -1 to 1: sentences of drawn words in drawn voices.

    Raises
    ------
    ToolError
        If espeak-ng is not there, or fails.
    """
    if shutil.which("espeak-ng") is None:
        raise ToolError("speech is made by espeak-ng: install it, for example with apt-get install espeak-ng")
    rng = np.random.default_rng(seed)
    parts: list[NDArray[np.float64]] = []
    total = 0
    while total < seconds * RATE:
        spoken = _say(rng)
        loud = 0.9 * 10.0 ** (rng.uniform(-25.0, 0.0) / 20.0) / max(0.05, float(np.abs(spoken).max()))
        parts += [spoken * loud, np.zeros(int(rng.exponential(0.9) * RATE))]
        total += len(parts[-2]) + len(parts[-1])
        if progress:
            progress("make speech", min(total // RATE, int(seconds)), int(seconds))
    clean = np.concatenate(parts)[: int(seconds * RATE)]
    return np.clip(clean + _noise(rng, len(clean)), -1.0, 1.0).astype(np.float32)


def _say(rng: Any) -> NDArray[np.float64]:
    """A sentence of drawn words, in a drawn voice at a drawn speed and pitch."""
    text = " ".join(rng.choice(TEXT.split(), rng.integers(4, 16)))
    voice, speed, pitch = rng.choice(VOICES), rng.integers(110, 220), rng.integers(20, 80)
    command = ["espeak-ng", "-v", str(voice), "-s", str(speed), "-p", str(pitch), "--stdout", text]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise ToolError(f"espeak-ng must speak, but failed: {done.stderr.decode(errors='replace')[:200]}")
    with wave.open(io.BytesIO(done.stdout)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2") / 32768.0
    return np.interp(np.arange(0.0, len(samples) - 1.0, rate / RATE), np.arange(len(samples)), samples)


def _noise(rng: Any, count: int) -> NDArray[np.float64]:
    """Noise whose power falls with frequency, at a level that changes every 2.5 s."""
    spectrum = np.fft.rfft(rng.normal(size=count))
    noise = np.fft.irfft(spectrum / np.sqrt(np.fft.rfftfreq(count, 1.0 / RATE) + 20.0), count)
    span = int(2.5 * RATE)
    levels = 10.0 ** (rng.uniform(-70.0, -22.0, count // span + 1) / 20.0)
    return np.repeat(levels, span)[:count] * noise / noise.std()
