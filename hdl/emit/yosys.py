"""Runs Yosys to convert components: the system's, else Amaranth's.

Amaranth's Yosys is WebAssembly, compiled on its first use into a cache folder in the user's home.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from amaranth._toolchain.yosys import YosysError, find_yosys

from rtlstm.spec.errors import ToolError

__all__ = ["find_writer", "run_yosys"]

_OLDEST = (0, 40)

# The function has no type annotations.
_find: Callable[[Callable[[tuple[int, ...]], bool]], Any] = find_yosys


def find_writer() -> Any:
    """Return Amaranth's class of the Yosys that writes the Verilog; ``version()`` is its version.

    Raises
    ------
    amaranth._toolchain.yosys.YosysError
        If there is none that is new enough.
    """
    return _find(lambda version: version >= _OLDEST)


def run_yosys(script: str) -> str:
    """Run a script of Yosys commands and return what it writes to standard output.

    Raises
    ------
    ToolError
        If Yosys is missing or refuses the design.
    """
    try:
        yosys = find_writer()
        package = getattr(yosys, "YOSYS_PACKAGE", None)
        if package is None:
            return str(yosys.run(["-q", "-"], script))
        done = _run_package(package, script, os.environ)
        if done.returncode and "wasmtime" in done.stderr:
            # It cannot use its cache folder, because the home does not exist or cannot be written.
            home = _private_home().name
            done = _run_package(package, script, dict(os.environ) | {"HOME": home, "XDG_CACHE_HOME": home})
        return str(yosys._process_result(done.returncode, done.stdout, done.stderr, False, 0))
    except YosysError as error:
        raise ToolError(f"Yosys could not write Verilog: {_reason(str(error))}") from None
    except OSError as error:
        raise ToolError(f"Yosys could not be started: {error}") from None


def _run_package(
    package: str, script: str, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", package, "-q", "-"],
        input=script,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        # It opens the folder it is started in, and Python would import from there.
        cwd=os.sep,
        check=False,
    )


@cache
def _private_home() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder that lasts as long as this process: Yosys is compiled once in it, for 10 seconds."""
    try:
        return tempfile.TemporaryDirectory(prefix="rtlstm-yosys-")
    except OSError as error:
        raise ToolError(
            f"Yosys is compiled into the user's cache folder or a temporary one, but: {error}; set "
            "XDG_CACHE_HOME or TMPDIR to a folder that can be written"
        ) from None


def _reason(text: str) -> str:
    """Return the line that says why."""
    lines = text.strip().splitlines() or ["it says nothing"]
    found = [line for line in lines if re.match(r"(\S*Error|ERROR): ", line)]
    return (found or lines[-1:])[0]
