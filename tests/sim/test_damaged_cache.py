"""Full disks, cut files and odd paths: what the cache keeps is whole, or made again."""

import os
import shutil
from pathlib import Path

import pytest

from rtlstm.sim.compile_model import NativeModel, _runtime, build_native
from rtlstm.sim.icarus import IcarusModel, build_icarus
from rtlstm.sim.simulated_ports import PortSpec
from rtlstm.spec.errors import DeviceError, ToolError
from rtlstm.tools import toolchain
from rtlstm.tools.cache import CACHE_VARIABLE, cache_folder, cached, load_cached

pytestmark = pytest.mark.rtl

ODD = "a \"b\nc' $(d) `e` \\ é;%s"


@pytest.fixture
def dummy(dummy_of):
    """One core for all: what is tested here does not depend on its ports."""
    return dummy_of(PortSpec(name="narrow", inputs=3, outputs=2, data_bits=8, timeout_cycles=500))


@pytest.fixture
def ready(tmp_path: Path, dummy) -> Path:
    """A cache with Verilator's library and the core, from the usual one, which spares a minute."""
    library = build_native(dummy.verilog, dummy.ports)
    library_of_all = _runtime(toolchain.verilator(), toolchain.compiler(), None)[0]
    for entry in (library.parent, library_of_all.parent):
        shutil.copytree(entry, tmp_path / "ready" / entry.name)
    return tmp_path / "ready"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(kind: str) -> list[Path]:
    return sorted(cache_folder().glob(f"{kind}-*"))


def open_icarus(dummy) -> int:
    model = load_cached(
        lambda: build_icarus(dummy.verilog, dummy.ports), lambda program: IcarusModel(program, dummy.ports)
    )
    model.close()
    return model.cycle


@pytest.fixture
def limited_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An iverilog whose files end at 4 KiB, as on a full disk; it goes on and says nothing."""
    path = tmp_path / "bin"
    path.mkdir()
    real = toolchain.icarus().iverilog
    (path / "iverilog").write_text(f"#!/bin/bash\ntrap '' XFSZ\nulimit -f 4\nexec {real} \"$@\"\n")
    (path / "iverilog").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(path), prepend=os.pathsep)
        toolchain.icarus.cache_clear()
        yield patch
    toolchain.icarus.cache_clear()


def test_cut_program_is_not_kept(cache: Path, dummy, limited_disk):
    """iverilog ends without an error when the disk is full; the cut program must not stay for good."""
    for _ in range(2):
        with pytest.raises(ToolError, match="compiling .* for simulation failed"):
            build_icarus(dummy.verilog, dummy.ports)
        assert not entries("icarus")
    limited_disk.undo()
    toolchain.icarus.cache_clear()
    open_icarus(dummy)
    assert len(entries("icarus")) == 1


def test_programs_that_cannot_be_loaded_are_made_again(cache: Path, dummy):
    """One without a list of sizes; one of the right size with other contents."""
    open_icarus(dummy)
    (entry,) = entries("icarus")
    whole = (entry / "core.vvp").read_bytes()
    (entry / "core.vvp").write_bytes(whole[: len(whole) // 2])
    (entry / "contents.json").unlink()
    open_icarus(dummy)
    assert (entry / "core.vvp").stat().st_size == len(whole)
    (entry / "core.vvp").write_bytes(b"?" * len(whole))
    open_icarus(dummy)
    assert b"???" not in (entry / "core.vvp").read_bytes()


def test_library_that_cannot_be_loaded_is_made_again(ready: Path, cache: Path, dummy):
    for entry in ready.glob("veril*"):
        shutil.copytree(entry, cache / entry.name)
    library = build_native(dummy.verilog, dummy.ports)
    assert cache in library.parents
    library.write_bytes(b"?" * library.stat().st_size)
    model = load_cached(
        lambda: build_native(dummy.verilog, dummy.ports), lambda path: NativeModel(path, dummy.ports)
    )
    model.close()
    assert library.read_bytes()[:4] != b"????"


def test_only_once(cache: Path):
    """What fails twice is an error, and the second one."""
    builds: list[Path] = []

    def find() -> Path:
        return cached("kind", "key", builds.append) / "file"

    def load(path: Path) -> None:
        raise DeviceError(f"failed after {len(builds)} builds")

    with pytest.raises(DeviceError, match="failed after 2 builds"):
        load_cached(find, load)


def test_full_disk_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Tools may not notice. The list of sizes does, which goes to the disk before the build counts."""

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(ToolError, match=r"must be writable and have room \(No space left on device\)"):
            cached("kind", "key", lambda work: None)
    assert not [*cache.iterdir()]
    assert cached("kind", "key", lambda work: None).is_dir()


def test_damaged_contents(cache: Path):
    """Missing, longer and unreadable files, and a list that is none."""

    def build(work: Path) -> None:
        (work / "sub").mkdir()
        (work / "sub" / "file").write_text("12345")

    folder = cached("kind", "key", build)
    for damage in (
        lambda: (folder / "sub/file").write_text("123456"),
        lambda: (folder / "sub/file").unlink(),
        lambda: (folder / "contents.json").write_text("["),
        lambda: (folder / "contents.json").write_text("[1]"),
        lambda: (folder / "contents.json").write_text(""),
    ):
        damage()
        assert cached("kind", "key", build) == folder
        assert (folder / "sub/file").read_text() == "12345"
    (folder / "sub/file").write_text("54321")
    cached("kind", "key", build)
    assert (folder / "sub/file").read_text() == "54321"


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_odd_paths(simulator: str, ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dummy):
    """Quotes, line ends and all else in the path of a build, and in that of the cache."""
    folder = tmp_path / ODD
    verilog = folder / f"{ODD}.v"
    for entry in ready.glob("verilated-*"):
        shutil.copytree(entry, folder / "cache" / entry.name)
    verilog.write_bytes(dummy.verilog.read_bytes())
    monkeypatch.setenv(CACHE_VARIABLE, str(folder / "cache"))
    if simulator == "icarus":
        IcarusModel(build_icarus(verilog, dummy.ports), dummy.ports).close()
    else:
        NativeModel(build_native(verilog, dummy.ports), dummy.ports).close()
    files = {path.name for entry in entries(simulator) for path in entry.iterdir()}
    assert files == {"contents.json", "core.vvp" if simulator == "icarus" else "core.so"}
