"""Networks trained at 4 bits are as good as in float; the published models are in ``make train-examples``."""

import importlib

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


def test_speech_without_espeak_is_said(tasks, monkeypatch):
    speech = importlib.import_module("synthetic_speech")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Exception, match="install it"):
        speech.make_speech(1.0, 0)
