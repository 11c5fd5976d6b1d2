"""A linked core compiled to native code, behind a :class:`~rtlstm.host.link.byte_ports.BytePort`."""

import ctypes
import math
from pathlib import Path
from tempfile import TemporaryDirectory

from rtlstm.sim.compile_model import LibraryModel, compile_library

HARNESS = Path(__file__).parent / "linked_core.cpp"
ROOM = 1 << 16
SIZE = ctypes.c_int64
FUNCTIONS = {
    "reset": (None, []),
    "drop": (None, []),
    "send": (None, [ctypes.c_char_p, SIZE]),
    "run": (SIZE, [SIZE, ctypes.c_char_p, SIZE]),
    **{name: (SIZE, []) for name in ("cycle", "pending", "bad_stops", "errors")},
}


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
        self._clock = clock
        self._held = b""
        self._buffer = ctypes.create_string_buffer(ROOM)
        bit = round(divisor * 256 * (1 + mismatch))
        self._call = LibraryModel(library, FUNCTIONS, seed - 1, bit).call

    def now(self) -> float:
        return self.cycle / self._clock

    @property
    def cycle(self) -> int:
        return int(self._call("cycle"))

    @property
    def errors(self) -> int:
        """What the core's output says."""
        return int(self._call("errors"))

    @property
    def bad_stops(self) -> int:
        return int(self._call("bad_stops"))

    @property
    def pending(self) -> int:
        """Bytes that are still to be sent."""
        return int(self._call("pending"))

    def reset(self) -> None:
        self._call("reset")

    def write(self, data: bytes) -> None:
        self._call("send", data, len(data))

    def read(self, seconds: float) -> bytes:
        if self._held:
            data, self._held = self._held, b""
            return data
        count = self._call("run", max(0, math.ceil(seconds * self._clock)), self._buffer, ROOM)
        return self._buffer.raw[:count]

    def pause(self, seconds: float) -> None:
        end = self.now() + seconds
        came = b""
        while self.now() < end:
            came += self.read(end - self.now())
        self._held = came

    def reopen(self) -> None:
        self._held = b""
        self._call("drop")

    def close(self) -> None:
        pass
