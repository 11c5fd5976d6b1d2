"""A core compiled to native code by Verilator: the fast simulator, about 10 million cycles/s.

The harness around it is ``native.cpp``; :mod:`rtlstm.sim.compile_model` says how it is built and what the
seed is for.
"""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.compile_model import LibraryModel, compile_library
from rtlstm.sim.simulated_ports import PortFault, PortSpec, StepCycles
from rtlstm.sim.sources import own_file, simulation_sources
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.progress import Progress

_SLICE = 1 << 20
"""Cycles between two checks for an interrupt and calls of ``progress``."""


def build_native(
    verilog: Path, ports: PortSpec, progress: Progress | None = None, waves: bool = False
) -> Path:
    """Compile a core and return its library, from the cache if it is there.

    With ``waves`` it can write waveforms, and is slower.

    Raises
    ------
    ToolError
        If Verilator or a C++ compiler is missing or fails.
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
        """Write waveforms from now on."""
        self._waves = None
        if not self._core.call("trace", bytes(path)):
            raise DeviceError(f"{self._ports.name}: waveforms cannot be written to {path}")

    def close(self) -> None:
        """End the simulation. Further calls raise DeviceError."""
        self._core.close()

    def _check(self, code: int, step: int) -> None:
        if code:
            raise PortFault(code, step).error(self._ports)
