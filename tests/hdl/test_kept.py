"""Verilog comes from the cache only if all that decides it is the same, and if the entry is whole."""

import time
from importlib.metadata import version
from pathlib import Path

import pytest
from support.small_builds import NARROW, TINY, network

from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.emit import verilog as kept
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.spec.activations.functions import ACTIVATIONS
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Parameters
from rtlstm.tools.cache import CACHE_VARIABLE


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a folder in place of those with code."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "files", lambda name: tmp_path / "code")
    (tmp_path / "code" / "cells").mkdir(parents=True)
    (tmp_path / "code" / "adder.py").write_text("sum = 1")
    change(monkeypatch, tmp_path / "code" / "cells" / "ecp5.v", "assign y = a;")
    yield tmp_path / "code"
    kept._sources.cache_clear()


def change(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    """Change code before the program begins."""
    path.write_text(text)
    kept._sources.cache_clear()
    monkeypatch.setattr(kept, "_BEGIN", time.time() + 1)


def manifest(parameters: Parameters = TINY, bits: int = 8) -> Manifest:
    return Manifest.of("tiny", quantise(network(), NARROW.replace(weight_bits=bits)), parameters)


def is_written(given: Manifest, what: str = "core") -> bool:
    """Whether Verilog is written for a manifest, or comes from the cache, where its text is its hash."""
    written = []

    def write() -> str:
        written.append(f"{what} {given.build_hash}")
        return written[-1]

    assert kept.kept_verilog(what, given, write) == f"{what} {given.build_hash}"
    assert len(written) < 2
    return bool(written)


def test_the_same_is_written_once(source: Path) -> None:
    assert is_written(manifest()) and not is_written(manifest())
    # They say what the data mean: the Verilog is the same.
    assert not is_written(manifest().replace(frames=3, batch_first=True).with_files({"rtl/tiny.v": "text"}))


def test_what_decides_is_in_the_key(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_written(manifest())
    assert is_written(manifest(), "link 4") and is_written(manifest(), "link 5")
    assert is_written(manifest(bits=7)) and is_written(manifest(TINY.replace(streams=3)))
    assert is_written(manifest(TINY.replace(bus="axi")))
    assert is_written(manifest().replace(rtlstm_version="9.9.9"))
    for name in ("adder.py", "cells/ecp5.v", "cells/new.py"):
        change(monkeypatch, source / name, "changed")
        assert is_written(manifest()) and not is_written(manifest())
    for name in ("amaranth", "numpy"):
        monkeypatch.setattr(kept, "version", lambda of, name=name: "99" if of == name else version(of))
        assert is_written(manifest()) and not is_written(manifest())
    yosys = kept.find_writer()
    monkeypatch.setattr(kept, "find_writer", lambda: type("Other", (yosys,), {"version": lambda: (0, 99)}))
    assert is_written(manifest())


def test_code_that_changes_meanwhile_is_not_trusted(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, source / "adder.py", "sum = 2")
    monkeypatch.setattr(kept, "_BEGIN", 0.0)
    assert is_written(manifest()) and is_written(manifest())


def test_code_of_the_program_is_not_in_the_key(source: Path) -> None:
    ACTIVATIONS.add("mine", ACTIVATIONS["tanh"])
    try:
        assert is_written(manifest()) and is_written(manifest())
    finally:
        ACTIVATIONS.remove("mine")
    assert is_written(manifest()) and not is_written(manifest())


@pytest.mark.parametrize("damage", [b"", b"not packed", None])
def test_damaged_entries_are_written_again(source: Path, tmp_path: Path, damage: bytes | None) -> None:
    assert is_written(manifest())
    (path,) = (tmp_path / "cache").glob("verilog-*/*.gz")
    data = bytearray(path.read_bytes())
    data[-12] ^= 1  # Its length stays, so that the check of lengths does not see it.
    path.write_bytes(data if damage is None else damage)
    assert is_written(manifest()) and not is_written(manifest())


def test_without_a_cache_it_is_written(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert is_written(manifest()) and is_written(manifest())


def test_the_cores_verilog_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    first = core_to_verilog(manifest())
    monkeypatch.setattr("rtlstm.hdl.emit.verilog.convert", None)
    assert core_to_verilog(manifest()) == first and "module tiny(" in first
