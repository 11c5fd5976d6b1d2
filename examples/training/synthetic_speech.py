"""Scenes of speech made by espeak-ng, to train on without recordings: voices in rooms, noise and music."""

import io
import shutil
import subprocess
import wave
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import ToolError

__all__ = ["RATE", "SCENE", "make_speech", "speak"]

RATE = 16000
SCENE = 16 * RATE
"""Samples of a scene."""
_LANGUAGES = (
    "en-us", "en-gb", "en-gb-scotland", "de", "fr-fr", "es", "es-419", "it", "ru", "pt", "pt-br", "nl", "pl",
    "sv", "tr", "cs", "fi", "da", "hu", "ro", "el", "hi", "cmn", "ja", "ko", "vi", "ar", "fa", "sw", "id",
    "bg", "uk", "hr", "nb", "lt",
)  # fmt: skip
_VARIANTS = (
    "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "f1", "f2", "f3", "f4", "f5", "whisper", "croak", "klatt",
    "klatt2", "klatt3", "klatt4", "Andy", "Annie", "Gene", "Mario", "adam", "linda", "steph", "rob", "michel",
)  # fmt: skip
_TEXT = """
the of and a to in is you that it he was for on are as with his they I at be this have from or one had by
word but not what all were we when your can said there use an each which she do how their if will up other
about out many then them these so some her would make like him into time has look two more write go see number
no way could people my than first water been call who oil its now find long down day did get come made may
part seven eleven twenty thousand telephone umbrella question answer yesterday
"""

Samples = NDArray[np.float64]


def make_speech(
    seconds: float, seed: int, progress: Callable[[str, int, int], None] | None = None
) -> NDArray[np.float32]:
    """Return 16 kHz samples within -1 to 1: scenes of 16 s, one behind the other.

    Every scene has pauses, a level, noise and, by lot, an echo, a narrow band, other speakers, music, clicks
    or clipping.

    Raises
    ------
    ToolError
        If espeak-ng is not there, or fails.
    """
    _check_espeak()
    studio = _Studio(np.random.default_rng(seed))
    count = -(-int(seconds * RATE) // SCENE)
    scenes = []
    for number in range(count):
        scenes.append(studio.scene())
        if progress:
            progress("make speech", number + 1, count)
    return np.concatenate(scenes)[: int(seconds * RATE)].astype(np.float32)


def speak(text: str, voice: str, speed: int, pitch: int, gap: int = 0) -> Samples:
    """Return 16 kHz samples within -1 to 1 of a text, spoken by espeak-ng with these options.

    Raises
    ------
    ToolError
        If espeak-ng is not there, or fails.
    """
    _check_espeak()
    options = ["-v", voice, "-s", str(speed), "-p", str(pitch), "-g", str(gap)]
    done = subprocess.run(["espeak-ng", *options, "--stdout", text], capture_output=True, check=False)
    if done.returncode:
        raise ToolError(f"espeak-ng must speak, but failed: {done.stderr.decode(errors='replace')[:200]}")
    with wave.open(io.BytesIO(done.stdout)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2") / 32768.0
    return np.interp(np.arange(0.0, len(samples) - 1.0, rate / RATE), np.arange(len(samples)), samples)


def _check_espeak() -> None:
    if shutil.which("espeak-ng") is None:
        raise ToolError("speech is made by espeak-ng: install it, for example with apt-get install espeak-ng")


class _Studio:
    """Makes scenes; what was said in one is the babble behind a later one."""

    def __init__(self, rng: Any) -> None:
        self._rng = rng
        self._said: list[Samples] = []

    def scene(self) -> Samples:
        """Return a scene."""
        rng = self._rng
        voices = np.zeros(SCENE) if self._happens(0.06) else self._talk(rng.choice([0.2, 0.6, 1.5, 4.0]))
        if self._happens(0.4):
            voices = self._in_a_room(voices)
        if self._happens(0.35):
            voices = self._narrow(voices)
        level = _gain(rng.uniform(-38.0, -10.0))
        loud = np.abs(voices) > 1e-3
        sound = voices * level / (_rms(voices[loud]) if loud.any() else 1.0)
        quieter = rng.uniform(25.0, 65.0) if self._happens(0.5) else rng.uniform(-3.0, 25.0)
        sound += self._noise() * level * _gain(-quieter)
        if self._happens(0.2) and len(self._said) > 8:
            sound += self._babble() * level * _gain(rng.uniform(-30.0, -3.0))
        if self._happens(0.15):
            sound += self._music() * level * _gain(rng.uniform(-30.0, 0.0))
        if self._happens(0.1):
            sound += self._clicks() * level * _gain(rng.uniform(-6.0, 10.0))
        if self._happens(0.1):
            sound = np.clip(sound * _gain(rng.uniform(0.0, 20.0)), -1.0, 1.0) * _gain(rng.uniform(-20.0, 0.0))
        return np.clip(sound, -1.0, 1.0)

    def _happens(self, chance: float) -> bool:
        return bool(self._rng.uniform() < chance)

    def _talk(self, pause: float) -> Samples:
        """Sentences with pauses of some seconds in the mean."""
        rng, track = self._rng, np.zeros(SCENE)
        at = int(rng.exponential(pause) * RATE)
        while at < SCENE:
            said = self._say()
            self._said = [*self._said[-59:], said]
            _add(track, at, said * _gain(rng.uniform(-12.0, 0.0)))
            at += len(said) + int(rng.exponential(pause) * RATE)
        return track

    def _say(self) -> Samples:
        """A sentence of drawn words in a drawn voice, whose largest sample is 1."""
        rng = self._rng
        text = " ".join(rng.choice(_TEXT.split(), rng.integers(2, 16)))
        voice = str(rng.choice(_LANGUAGES)) + (f"+{rng.choice(_VARIANTS)}" if self._happens(0.75) else "")
        speed, pitch, gap = rng.integers(110, 240), rng.integers(10, 95), rng.integers(0, 6)
        spoken = speak(text, voice, int(speed), int(pitch), int(gap))
        return spoken / (np.abs(spoken).max() + 1e-6)

    def _in_a_room(self, sound: Samples) -> Samples:
        """Add an echo: noise that falls by 60 dB within some tenths of a second."""
        rng = self._rng
        length = int(rng.uniform(0.1, 0.8) * RATE)
        echo = rng.normal(size=length) * 10.0 ** (-3.0 * np.arange(length) / length)
        echo *= _gain(rng.uniform(-18.0, 0.0)) / np.sqrt(np.square(echo).sum())
        echo[0] = 1.0
        size = 1 << (SCENE + length).bit_length()
        return np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(echo, size), size)[:SCENE]

    def _narrow(self, sound: Samples) -> Samples:
        """Leave out low and high frequencies, as telephones and small microphones do."""
        rng, frequency = self._rng, np.fft.rfftfreq(SCENE, 1.0 / RATE)
        passed = 1.0 / (1.0 + (frequency / rng.uniform(2000.0, 7500.0)) ** rng.integers(4, 17))
        passed /= 1.0 + (rng.uniform(20.0, 350.0) / (frequency + 1.0)) ** 4
        return np.fft.irfft(np.fft.rfft(sound) * passed, SCENE)

    def _noise(self) -> Samples:
        """Noise of a drawn colour, from white to brown, whose level may change."""
        rng = self._rng
        spectrum = np.fft.rfft(rng.normal(size=SCENE))
        frequency = np.fft.rfftfreq(SCENE, 1.0 / RATE)
        noise = np.fft.irfft(spectrum * (frequency + 30.0) ** -rng.uniform(0.0, 1.2), SCENE)
        span = int(rng.uniform(0.3, 6.0) * RATE)
        levels = _gain(rng.uniform(-1.0, 1.0, SCENE // span + 1) * rng.choice([0.0, 3.0, 10.0]))
        return noise / _rms(noise) * np.repeat(levels, span)[:SCENE]

    def _babble(self) -> Samples:
        """Several voices at once."""
        rng, track = self._rng, np.zeros(SCENE)
        for _ in range(rng.integers(3, 8)):
            at = 0
            while at < SCENE:
                said = self._said[rng.integers(len(self._said))]
                _add(track, at, said)
                at += len(said)
        return track / _rms(track)

    def _music(self) -> Samples:
        """Chords of a few tones with harmonics, which fade."""
        rng, track, at = self._rng, np.zeros(SCENE), 0
        lowest = rng.uniform(60.0, 300.0)
        while at < SCENE:
            time = np.arange(int(rng.uniform(0.1, 0.8) * RATE)) / RATE
            for _ in range(rng.integers(1, 4)):
                tone = lowest * 2.0 ** (rng.integers(0, 25) / 12.0)
                fading = np.exp(-time * rng.uniform(0.0, 6.0))
                for harmonic in range(1, 6):
                    phase = 2.0 * np.pi * (tone * harmonic * time + rng.uniform())
                    _add(track, at, np.sin(phase) * fading / harmonic)
            at += len(time)
        return track / _rms(track)

    def _clicks(self) -> Samples:
        """Short bursts of noise, as of doors and keys."""
        rng, track = self._rng, np.zeros(SCENE)
        fading = np.exp(-np.arange(200) / rng.uniform(5.0, 60.0))
        for at in rng.integers(0, SCENE, rng.integers(1, 40)):
            _add(track, at, rng.normal(size=200) * fading)
        return track


def _add(track: Samples, at: int, sound: Samples) -> None:
    """Add a sound to a track, as far as there is room."""
    part = sound[: len(track) - at]
    track[at : at + len(part)] += part


def _gain(decibels: Any) -> Any:
    return 10.0 ** (decibels / 20.0)


def _rms(sound: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(sound)) + 1e-12))
