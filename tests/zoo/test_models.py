"""What the zoo's models read and how they are judged, without a download."""

import wave
from pathlib import Path

import numpy as np
import pytest

from rtlstm.spec.errors import InputError
from rtlstm.zoo import silero
from rtlstm.zoo.entry import Metric, Subject
from rtlstm.zoo.gait import SETTLING, differences, phase


def write_wave(path: Path, samples: np.ndarray, rate: int = silero.RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return path


def test_read_speech(tmp_path: Path) -> None:
    audio = silero.read_speech(write_wave(tmp_path / "a.wav", np.array([0, 16384, -32768])))
    assert audio.tolist() == [0.0, 0.5, -1.0]


def test_read_speech_wrong_rate(tmp_path: Path) -> None:
    path = write_wave(tmp_path / "a.wav", np.zeros(9), rate=8000)
    with pytest.raises(InputError, match=r"must hold 16000 Hz.*not 8000 Hz"):
        silero.read_speech(path)


def test_read_speech_not_a_wave_file(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"nothing")
    with pytest.raises(InputError, match="must be a WAV file"):
        silero.read_speech(tmp_path / "a.wav")


def test_chunk_audio() -> None:
    audio = np.arange(3 * 512 + 100, dtype=np.float32)
    chunks = silero.chunk_audio(audio)
    assert chunks.shape == (3, 576) and not chunks[0, :64].any()
    for step in (1, 2):
        assert np.array_equal(chunks[step], audio[step * 512 - 64 : (step + 1) * 512])


def test_chunk_audio_too_short() -> None:
    with pytest.raises(InputError, match="at least 512 samples, not 511"):
        silero.chunk_audio(np.zeros(511, dtype=np.float32))


def test_phases_are_apart_the_short_way_round() -> None:
    turn = np.linspace(0, 6 * np.pi, SETTLING + 50)
    one = phase(np.stack([np.sin(turn), np.cos(turn)], axis=1))
    np.testing.assert_allclose(differences(one, turn + 0.1), np.full(50, 0.1))


@pytest.mark.parametrize("less", [False, True])
def test_a_metric_may_be_worse_by_its_margin(less: bool) -> None:
    metric, sign = Metric("m", margin=0.5, less_is_better=less), 1 if less else -1
    assert metric.holds(10.0, 10.0 + 0.5 * sign) and metric.holds(10.0, 10.0 - 5 * sign)
    assert not metric.holds(10.0, 10.0 + 0.6 * sign) and not metric.holds(10.0, float("nan"))


def subject(lengths: np.ndarray | None, **more: object) -> Subject:
    x = np.zeros((9, 1 if lengths is None else len(lengths), 2))
    return Subject(None, x, 3, lambda y, begin: 0.0, lengths, **more)  # type: ignore[arg-type]


def test_held_out_data_calibrate_nothing() -> None:
    assert subject(None).held_out[:, 0].tolist() == [False] * 3 + [True] * 6
    held_out = subject(np.array([9, 9, 9, 4, 7])).held_out
    assert not held_out[:, :3].any() and held_out[:, 3:].sum(axis=0).tolist() == [4, 7]


def test_the_states_of_calibrating_sequences_calibrate() -> None:
    state = ((np.arange(10.0).reshape(5, 2),), (np.ones((5, 2)),))
    (h,), (c,) = subject(np.full(5, 9), state=state).calibration["calibration_state"]
    assert h.tolist() == state[0][0][:3].tolist() and c.shape == (3, 2)
    assert "calibration_state" not in subject(np.full(5, 9)).calibration
