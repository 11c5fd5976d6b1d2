"""The build cache: once, whole, and safe between processes."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from rtlstm.spec.errors import ToolError
from rtlstm.tools import cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_folder_follows_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.cache_folder() == folder
    monkeypatch.delenv(cache.CACHE_VARIABLE)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.cache_folder() == Path("/x/rtlstm")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == Path.home() / ".cache" / "rtlstm"


def test_digest_separates_its_parts() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert cache.digest("ab", b"c") == cache.digest(b"ab", "c")


def test_builds_once() -> None:
    calls: list[Path] = []

    def build(work: Path) -> None:
        calls.append(work)
        (work / "result").write_text("done")

    first = cache.cached("kind", "key", build)
    assert cache.cached("kind", "key", build) == first
    assert (first / "result").read_text() == "done"
    assert len(calls) == 1
    assert cache.cached("kind", "other", build) != first


def test_failed_build_leaves_nothing(folder: Path) -> None:
    def build(work: Path) -> None:
        (work / "half").write_text("")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cache.cached("kind", "key", build)
    assert not [*folder.iterdir()]


def test_unwritable_cache_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(ToolError, match=f"set {cache.CACHE_VARIABLE} to a folder"):
        cache.cached("kind", "key", lambda work: None)


def _run_four(target, given) -> None:
    """Run a function in four processes at once."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=target, args=(given,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def _slow(log: str) -> None:
    def build(work: Path) -> None:
        with open(log, "a") as file:
            file.write("built\n")
        time.sleep(0.3)
        (work / "result").write_text("done")

    assert (cache.cached("kind", "key", build) / "result").read_text() == "done"


def test_processes_share_one_build(tmp_path: Path) -> None:
    log = tmp_path / "log"
    _run_four(_slow, str(log))
    assert log.read_text() == "built\n"


def _in_turns(root: Path) -> None:
    """What two do at the same time fails: the file is there already, or is gone."""
    for _ in range(100):
        with cache._locked(root / ".kind-key.lock", None):
            (root / "inside").touch(exist_ok=False)
            time.sleep(0.0002)
            (root / "inside").unlink()
        cache._prune(root, 0.0)


def test_a_lock_that_its_holder_removes_is_held_by_one(tmp_path: Path) -> None:
    """Others have opened the file that goes: it is no lock any more."""
    _run_four(_in_turns, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_locks_that_nobody_holds_go(folder: Path) -> None:
    """Those of processes that were killed, and of earlier versions."""
    cache.cached("kind", "key", lambda work: None)
    (folder / ".kind-left.lock").touch()
    with cache._locked(folder / ".kind-held.lock", None):
        cache.cached("kind", "new", lambda work: None)
        assert {path.name for path in folder.glob(".*")} == {".kind-held.lock"}
    assert {path.name for path in folder.iterdir()} == {"kind-key", "kind-new"}


def test_old_builds_go(folder: Path) -> None:
    old = cache.cached("kind", "old", lambda work: None)
    recent = cache.cached("kind", "recent", lambda work: None)
    os.utime(old, (0, 0))
    cache.cached("kind", "new", lambda work: None)
    assert not old.exists()
    assert recent.exists()
