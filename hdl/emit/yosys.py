"""Runs Yosys to convert components: the system's, else Amaranth's.

Amaranth's Yosys is WebAssembly, compiled on its first use into a cache folder in the user's home. It runs in
this process: a process for each script would load its 50 MB each time, which takes as long as most scripts.
"""

import re
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from threading import Thread
from typing import Any

import wasmtime
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
        return str(yosys._process_result(*_run_package(package, script), False, 0))
    except YosysError as error:
        raise ToolError(f"Yosys could not write Verilog: {_reason(str(error))}") from None
    except (OSError, wasmtime.WasmtimeError, wasmtime.Trap) as error:
        raise ToolError(f"Yosys could not be run: {_reason(str(error))}") from None


def _run_package(package: str, script: str) -> tuple[int, str, str]:
    """Run a packaged Yosys; return its exit code, standard output and standard error."""
    with tempfile.TemporaryDirectory(prefix="rtlstm-yosys-", ignore_cleanup_errors=True) as folder:
        streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(script, encoding="utf-8")
        code: Future[int] = Future()

        def run() -> None:
            try:
                code.set_result(_execute(package, streams))
            except Exception as error:
                code.set_exception(error)

        # The main thread waits, since it would hear of Ctrl-C only when Yosys has ended.
        Thread(target=run, name="yosys", daemon=True).start()
        return code.result(), streams[1].read_text(encoding="utf-8"), streams[2].read_text(encoding="utf-8")


def _execute(package: str, streams: list[Path]) -> int:
    """Run a packaged Yosys with files as its standard streams; return its exit code."""
    engine, module = _compiled(package)
    setup = wasmtime.WasiConfig()
    setup.argv = [package, "-q", "-"]
    setup.stdin_file, setup.stdout_file, setup.stderr_file = map(str, streams)
    linker, store = wasmtime.Linker(engine), wasmtime.Store(engine)
    linker.define_wasi()
    store.set_wasi(setup)
    start: Any = linker.instantiate(store, module).exports(store)["_start"]
    try:
        start(store)
    except wasmtime.ExitTrap as trap:
        return trap.code
    return 0


@cache
def _compiled(package: str) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Return the machine code of a packaged Yosys, from the cache folder if that can be used."""
    with as_file(files(package) / "yosys.wasm") as path:
        wasm = path.read_bytes()
    try:
        settings = wasmtime.Config()
        settings.cache = True
        engine = wasmtime.Engine(settings)
        return engine, wasmtime.Module(engine, wasm)
    except wasmtime.WasmtimeError:
        # The home does not exist or cannot be written: compiling takes 10 seconds in each process.
        engine = wasmtime.Engine()
        return engine, wasmtime.Module(engine, wasm)


def _reason(text: str) -> str:
    """Return the line that says why."""
    lines = text.strip().splitlines() or ["it says nothing"]
    found = [line for line in lines if re.match(r"(\S*Error|ERROR): ", line)]
    return (found or lines[-1:])[0]
