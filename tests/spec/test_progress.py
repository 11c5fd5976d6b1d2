"""Long work in Python shows a line on a terminal or in a notebook, and nothing elsewhere."""

import io
import sys

import pytest

from rtlstm.spec import progress
from rtlstm.spec.progress import shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Cell(io.StringIO):
    """What ipykernel puts in place of standard error."""


Cell.__module__ = "ipykernel.iostream"


@pytest.fixture
def patient(monkeypatch):
    """Work is long at once."""
    monkeypatch.setattr(progress, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_DRAW_SECONDS", 0.0)
    monkeypatch.delenv("RTLSTM_PROGRESS", raising=False)


@pytest.mark.parametrize("stream", [Terminal, Cell])
def test_a_line_is_shown_where_somebody_looks(monkeypatch, patient, stream):
    monkeypatch.setattr(sys, "stderr", file := stream())
    with shown(None) as tell:
        tell("run", 0, 4)
        tell("run", 3, 4)
        with shown(None) as inner:
            assert inner is None
    lines = file.getvalue().split("\r")
    assert "run [....................] 0/4" in lines and "run [###############.....] 3/4" in lines
    # In the end the line is blank, and the next thing is written at its begin.
    assert lines[-2].strip() == lines[-1] == "" and len(lines[-2]) == len("run [....................] 0/4")
    with shown(None) as again:
        assert again is not None


@pytest.mark.parametrize("stream", [io.StringIO, lambda: None], ids=["pipe", "closed"])
def test_nothing_is_written_to_pipes(monkeypatch, patient, stream):
    monkeypatch.setattr(sys, "stderr", file := stream())
    with shown(None) as tell:
        assert tell is None
    assert file is None or not file.getvalue()


def test_the_environment_and_the_caller_come_first(monkeypatch, patient):
    monkeypatch.setattr(sys, "stderr", file := Terminal())
    with shown(print) as tell:
        assert tell is print
    monkeypatch.setenv("RTLSTM_PROGRESS", "none")
    with shown(None) as tell:
        assert tell is None
    assert not file.getvalue()


def test_short_work_shows_nothing(monkeypatch):
    monkeypatch.delenv("RTLSTM_PROGRESS", raising=False)
    monkeypatch.setattr(sys, "stderr", file := Terminal())
    with shown(None) as tell:
        tell("compile", 1, 2)
    assert not file.getvalue()
