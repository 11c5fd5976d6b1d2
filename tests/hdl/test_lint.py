"""The generated Verilog passes Verilator's lint, all warnings on, and holds no word that turns one off."""

import subprocess
from pathlib import Path

import pytest
from support.bus_builds import write_build, write_loadable
from support.random_builds import TINY, Case, make_case, random_case

from rtlstm.hdl.emit.tidy import tidy_verilog
from rtlstm.spec.buses import BusName
from rtlstm.tools.toolchain import verilator, verilator_environment

pytestmark = pytest.mark.rtl


def lint(verilog: Path, top: str) -> list[str]:
    """Verilator's warnings and errors. DECLFILENAME wants a file for each module; a build is one file."""
    command = [verilator().binary, "--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", top, verilog]
    done = subprocess.run(
        list(map(str, command)), env=verilator_environment(), capture_output=True, text=True, check=False
    )
    found = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("%")]
    assert bool(done.returncode) == bool(found)
    return found


def check(folder: Path, name: str, bus: BusName) -> None:
    verilog = folder / "rtl" / f"{name}.v"
    text = verilog.read_text()
    assert "lint_off" not in text and "verilator" not in text
    assert lint(verilog, name if bus == "none" else f"{name}_{bus}") == []


@pytest.mark.parametrize("bus", ["axi", "axilite", "wishbone"])
def test_wrapped_build_passes(bus: BusName, tmp_path: Path) -> None:
    write_build(tmp_path, bus)
    check(tmp_path, "dut", bus)


@pytest.mark.parametrize("bus", ["axi", "axilite", "wishbone"])
def test_wrapped_loadable_build_passes(bus: BusName, tmp_path: Path) -> None:
    write_loadable(tmp_path, bus)
    check(tmp_path, "dut", bus)


def test_core_passes(tmp_path: Path) -> None:
    case = random_case(201, sizes=TINY)
    case.write(tmp_path)
    check(tmp_path, case.manifest.name, "none")


def with_bus(case: Case, bus: BusName) -> Case:
    parameters = case.manifest.parameters.replace(bus=bus)
    return make_case(case.seed, case.network, parameters, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 41))
def test_random_builds_pass(seed: int, tmp_path: Path) -> None:
    bus: BusName = ("none", "axi", "axilite", "wishbone")[seed % 4]
    case = with_bus(random_case(seed), bus)
    case.write(tmp_path)
    check(tmp_path, case.manifest.name, bus)


def test_lint_hears_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "dut.v"
    path.write_text("module dut(input [3:0] a, output [7:0] b);\n  assign b = a;\nendmodule\n")
    assert "WIDTHEXPAND" in lint(path, "dut")[0]


def test_verilog_is_made_tidy() -> None:
    given = """
  reg [3:0] \\a.b  = 4'h3;
  reg c = 1'h0;
    casez (s) // synopsys parallel_case
      3'b??1:
      3'b1??:
"""
    wanted = """
  reg [3:0] \\a.b ;
  initial \\a.b  = 4'h3;
  reg c;
  initial c = 1'h0;
    case (1'b1)
      s[0]:
      s[2]:
"""
    assert tidy_verilog(given) == wanted
