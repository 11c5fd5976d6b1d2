"""A linked core compiled to native code, at the other end of a :class:`~rtlstm.host.link.lines.Line`."""

import ctypes
import math
import os
import subprocess
from pathlib import Path

from rtlstm.sim.cache import cached, digest
from rtlstm.sim.sources import SIMULATION
from rtlstm.sim.toolchain import compiler, verilator

HARNESS = Path(__file__).parent / "linked_core.cpp"
ROOM = 1 << 16
RUNTIME = ("verilated", "verilated_threads")


def compile_linked(verilog: str, top: str) -> Path:
    """Return the library of a design with the ports of a linked core, from the cache if it is there."""
    tool, cxx = verilator(), compiler()
    include = [f"-I{tool.include}", f"-I{tool.include / 'vltstd'}"]
    flags = ["-std=c++17", "-fPIC", "-w", "-DVL_TIME_CONTEXT"]

    def build_runtime(folder: Path) -> None:
        for name in RUNTIME:
            command = [cxx.path, "-O2", *flags, *include, "-c", tool.include / f"{name}.cpp"]
            subprocess.run(command, cwd=folder, check=True)

    def build(folder: Path) -> None:
        (folder / "linked.v").write_text(verilog)
        command = [tool.binary, "--cc", "-O3", "--x-assign", "unique", "--x-initial", "unique", "--quiet"]
        command += ["-Wno-fatal", "-Wno-lint", f"-D{SIMULATION}", "--top-module", top, "--prefix", "Vlinked"]
        environment = dict(os.environ) | {"VERILATOR_ROOT": str(tool.root)}
        subprocess.run([*command, "--Mdir", "cpp", "linked.v"], cwd=folder, check=True, env=environment)
        sources = [HARNESS, *sorted((folder / "cpp").glob("*.cpp"))]
        # One unit: all of Verilator's files include the same long headers.
        (folder / "all.cpp").write_text("".join(f'#include "{source}"\n' for source in sources))
        objects = [runtime / f"{name}.o" for name in RUNTIME]
        command = [cxx.path, "-O1", *flags, "-shared", "-pthread", "-Icpp", *include, "-o", "linked.so"]
        subprocess.run([*command, "all.cpp", *objects], cwd=folder, check=True)

    runtime = cached("linked-runtime", digest(tool.version, cxx.version), build_runtime)
    key = digest(verilog, HARNESS.read_text(), tool.version, cxx.version, top)
    return cached("linked", key, build) / "linked.so"


class LinkedLine:
    """The line to a linked core; a :class:`~rtlstm.host.link.lines.Line` whose time is the simulation's."""

    def __init__(
        self, library: Path, divisor: int, seed: int = 1, mismatch: float = 0.0, clock: float = 1e6
    ) -> None:
        self._library = ctypes.CDLL(str(library))
        handle, size = ctypes.c_void_p, ctypes.c_int64
        for name, result, arguments in (
            ("create", handle, [ctypes.c_uint64, size]),
            ("destroy", None, [handle]),
            ("reset", None, [handle]),
            ("drop", None, [handle]),
            ("send", None, [handle, ctypes.c_char_p, size]),
            ("run", size, [handle, size, ctypes.c_char_p, size]),
            *((name, size, [handle]) for name in ("cycle", "pending", "bad_stops", "errors")),
        ):
            function = getattr(self._library, f"linked_{name}")
            function.restype, function.argtypes = result, arguments
        self._clock = clock
        self._held = b""
        self._buffer = ctypes.create_string_buffer(ROOM)
        self._it = self._library.linked_create(seed, round(divisor * 256 * (1 + mismatch)))

    def now(self) -> float:
        return self.cycle / self._clock

    @property
    def cycle(self) -> int:
        return int(self._library.linked_cycle(self._it))

    @property
    def errors(self) -> int:
        """What the core's output says."""
        return int(self._library.linked_errors(self._it))

    @property
    def bad_stops(self) -> int:
        return int(self._library.linked_bad_stops(self._it))

    @property
    def pending(self) -> int:
        """Bytes that are still to be sent."""
        return int(self._library.linked_pending(self._it))

    def reset(self) -> None:
        self._library.linked_reset(self._it)

    def write(self, data: bytes) -> None:
        self._library.linked_send(self._it, data, len(data))

    def read(self, seconds: float) -> bytes:
        if self._held:
            data, self._held = self._held, b""
            return data
        cycles = max(0, math.ceil(seconds * self._clock))
        count = self._library.linked_run(self._it, cycles, self._buffer, ROOM)
        return self._buffer.raw[:count]

    def pause(self, seconds: float) -> None:
        end = self.now() + seconds
        came = b""
        while self.now() < end:
            came += self.read(end - self.now())
        self._held = came

    def reopen(self) -> None:
        self._held = b""
        self._library.linked_drop(self._it)

    def close(self) -> None:
        pass
