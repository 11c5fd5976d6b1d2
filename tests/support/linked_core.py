"""A linked core compiled to native code, behind a :class:`~rtlstm.host.link.byte_ports.BytePort`."""

import ctypes
import math
from pathlib import Path
from tempfile import TemporaryDirectory

from rtlstm.sim.compile_model import compile_library

HARNESS = Path(__file__).parent / "linked_core.cpp"
ROOM = 1 << 16


def compile_linked(verilog: str, top: str) -> Path:
    """Return the library of a design with the ports of a linked core, from the cache if it is there."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "linked.v"
        path.write_text(verilog)
        return compile_library(top, [path], HARNESS, [])


class LinkedPort:
    """The line to a linked core; a :class:`~rtlstm.host.link.byte_ports.BytePort` in simulated time."""

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
