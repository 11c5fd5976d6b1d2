"""Jobs and their journal: what ended before a kill is not done again, and nothing else is taken for it."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from support import sweep

from rtlstm.bench.jobs import open_journal
from rtlstm.spec.errors import BuildError
from rtlstm.tools.work import open_workers

JOBS = {"a": 1, "b": 2, "c": 3}


def run(path: Path, about: str, end: str = "") -> tuple[dict[str, object], list[int]]:
    """Do the jobs until that of a name has ended; return what there is, and what was worked out."""
    done: list[int] = []

    def add(shared: int, item: int) -> object:
        done.append(item)
        return {"sum": (shared + item,)}

    found: dict[str, object] = {}
    with open_workers(1) as workers, open_journal(path, about) as journal:
        for name, result in journal.run(workers, add, 10, JOBS):
            found[name] = result
            if name == end:
                raise KeyboardInterrupt
    return found, done


WHOLE = {"a": {"sum": [11]}, "b": {"sum": [12]}, "c": {"sum": [13]}}


def test_goes_on_after_an_interruption(tmp_path: Path):
    path = tmp_path / "made" / "j"
    with pytest.raises(KeyboardInterrupt):
        run(path, "x", end="b")
    assert run(path, "x") == (WHOLE, [3])
    # What is finished is not taken for a later call's.
    assert not path.parent.exists() and run(path, "x") == (WHOLE, [1, 2, 3])


def test_journal_of_something_else_is_begun_again(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "j", "x", end="b")
    assert run(tmp_path / "j", "y") == (WHOLE, [1, 2, 3])


def test_damage_is_told_with_its_file(tmp_path: Path):
    path = tmp_path / "j"
    path.write_text("of something else " * 100)
    with pytest.raises(BuildError, match=r"j is damaged \(file is not a database\): delete it"):
        run(path, "x")


def test_two_processes_are_refused(tmp_path: Path):
    with (
        open_journal(tmp_path / "j", "x"),
        pytest.raises(BuildError, match="another process does the jobs"),
        open_journal(tmp_path / "j", "x"),
    ):
        pass


def test_sweep_of_tests_goes_on_after_a_kill(tmp_path: Path):
    """A killed sweep goes on with the tests that have not ended; one that fails is told of."""
    runs, journal = tmp_path / "runs", tmp_path / "build" / "sweep.journal"
    first, second = tmp_path / "tests" / "test_first.py", tmp_path / "tests" / "test_second.py"
    first.parent.mkdir()
    first.write_text(f"def test_it():\n    open({str(runs)!r}, 'a').write('1')\n")
    second.write_text(
        f"import time\ndef test_it():\n    open({str(runs)!r}, 'a').write('2')\n    time.sleep(4)\n"
    )
    command = [sys.executable, sweep.__file__, "--workers", "1", "-m", "", "tests"]
    killed = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    while not runs.exists() or "2" not in runs.read_text():
        time.sleep(0.05)
        assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    with closing(sqlite3.connect(journal)) as database:
        assert database.execute("SELECT COUNT(*) FROM jobs").fetchall() == [(1,)]
    assert runs.read_text() == "12"
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and runs.read_text() == "122", done.stdout + done.stderr
    assert "2 tests in 2 jobs, 1 of them done before" in done.stdout
    assert "2 of 2 jobs passed with 1 worker in " in done.stdout and not journal.exists()
    second.write_text("def test_it(): assert 2 < 1\n")
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1 and "assert 2 < 1" in failed.stdout
    assert failed.stdout.splitlines()[-1].startswith("failed: ") and "1 of 2 jobs passed" in failed.stdout
