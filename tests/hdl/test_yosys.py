"""Amaranth's Yosys, where its cache cannot be used, and what is said when it fails."""

import gc
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Elaboratable, Module, Signal

from rtlstm.hdl.emit import yosys
from rtlstm.hdl.emit.verilog import convert
from rtlstm.hdl.emit.yosys import run_yosys
from rtlstm.spec.errors import ToolError

DESIGN = """
read_rtlil <<rtlil
module \\top
  wire input 1 \\a
  wire output 2 \\b
  connect \\b \\a
end
rtlil
"""


def test_home_that_cannot_be_written(monkeypatch, tmp_path: Path):
    """It runs with a folder of its own; here that is the usual one, so that it need not be compiled."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    asked = []

    def private():
        asked.append(True)
        return SimpleNamespace(name=str(usual))

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(yosys, "_private_home", private)
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    assert "module top(a, b);" in run_yosys(DESIGN + "write_verilog")
    assert asked


def test_private_home(monkeypatch, tmp_path: Path):
    fresh = yosys._private_home.__wrapped__
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with fresh() as folder:
        assert Path(folder).parent == tmp_path
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(ToolError, match="set XDG_CACHE_HOME or TMPDIR to a folder that can be written"):
        fresh()


def test_says_why_in_one_line(monkeypatch):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    with pytest.raises(ToolError) as raised:
        run_yosys("read_rtlil nothing")
    assert str(raised.value).startswith(
        "Yosys could not write Verilog: ERROR: Can't open input file `nothing'"
    )
    assert "\n" not in str(raised.value)


def test_folder_that_has_gone(monkeypatch, tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    assert "module top(a, b);" in run_yosys(DESIGN + "write_verilog")
    os.chdir(tmp_path)


@pytest.mark.parametrize("on", [True, False])
def test_garbage_collection_is_as_before(on: bool) -> None:
    """Elaboration suspends it, also one that fails."""
    states = []

    class Failing(Elaboratable):
        def elaborate(self, platform: object) -> Module:
            states.append(gc.isenabled())
            raise ToolError("no hardware")

    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ToolError, match="no hardware"):
            convert({"top": (Failing(), [Signal(name="a")])}, "top")
        states.append(gc.isenabled())
    finally:
        (gc.enable if was_on else gc.disable)()
    assert states == [False, on]
