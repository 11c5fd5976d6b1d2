"""Networks trained at 4 bits are as good as in float; the published models are in ``make train-examples``."""

import importlib
import io
import subprocess
import wave

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def tasks(monkeypatch):
    from support.paths import EXAMPLES

    monkeypatch.syspath_prepend(str(EXAMPLES / "training"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield importlib.import_module("tasks")
    torch.set_num_threads(threads)


def test_the_adding_problem_at_four_bits(tasks):
    (row,) = tasks.adding()
    assert row.in_float > 90.0
    assert row.trained >= row.in_float - 1.0
    assert row.trained > row.rounded


def test_digits_at_four_bits(tasks):
    pytest.importorskip("sklearn")
    (row,) = tasks.digits()
    assert row.in_float > 95.0
    assert row.trained >= row.in_float - 1.0


def test_the_command_prints_a_table(tasks, capsys, monkeypatch):
    row = tasks.Row("digits", "recognised, %", 2, 96.0, 12.5, 95.25, 6.0)
    monkeypatch.setitem(tasks.TASKS, "digits", lambda weight_bits, progress: [row])
    assert tasks.main(["digits", "--weight-bits", "2"]) == 0
    found = capsys.readouterr().out
    assert "recognised, %" in found
    assert "95.25" in found


def test_pruned_tasks_show_their_cycles(tasks, monkeypatch, capsys):
    from rtlstm.spec.network import Network
    from rtlstm.train import FinetuneRequest, prepare

    torch.manual_seed(0)
    network: Network = prepare(tasks.LastStep(4, 8, 1).lstm, weight_bits=8).network
    x = np.random.default_rng(0).normal(size=(24, 10, 4))
    given = tasks.Speech(network, x, x[:, :1], np.ones(24, dtype=bool))
    monkeypatch.setattr(tasks, "speech", lambda progress: given)
    monkeypatch.setattr(
        tasks, "FinetuneRequest", lambda **asked: FinetuneRequest(**asked | {"updates": 4, "steps": 8})
    )
    (row,) = tasks.silero_pruned()
    before, after = row.cycles
    assert after == before // 2
    assert 0.0 <= row.trained <= 100.0
    tasks.main(["silero_pruned"])
    assert f"{before} to {after}" in capsys.readouterr().out


def test_scenes_are_the_same_for_a_seed(tasks, monkeypatch):
    speech = importlib.import_module("synthetic_speech")
    spoken = io.BytesIO()
    with wave.open(spoken, "wb") as file:
        file.setparams((1, 2, 22050, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(0).integers(-9000, 9000, 30000, dtype=np.int16).tobytes())
    said = []

    def speak(command, **options):
        said.append(command)
        return subprocess.CompletedProcess(command, 0, spoken.getvalue(), b"")

    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("subprocess.run", speak)
    seconds = 3 * speech.SCENE / speech.RATE
    made = speech.make_speech(seconds, 0)
    assert made.shape == (3 * speech.SCENE,)
    assert made.dtype == np.float32
    assert 0.001 < np.abs(made).max() <= 1.0
    np.testing.assert_array_equal(speech.make_speech(seconds, 0), made)
    assert not np.array_equal(speech.make_speech(seconds, 1), made)
    assert len({command[command.index("-v") + 1] for command in said}) > 3


def test_speech_without_espeak_is_said(tasks, monkeypatch):
    speech = importlib.import_module("synthetic_speech")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Exception, match="install it"):
        speech.make_speech(1.0, 0)
