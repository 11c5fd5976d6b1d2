"""A board's top level compiled to native code: its LEDs, its clock, and its serial port for the driver.

The clock pin toggles, the PLL is modelled, and the serial port is sampled at the host's own rate. So a wrong
divider, a wrong divisor or a missing synchroniser shows as it would on the board. The registers of a build in
Icarus serve the memory-mapped driver.
"""

import ctypes
import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtlstm.sim.compile_model import LibraryModel, compile_library
from rtlstm.sim.simulated_ports import SIMULATION, board_models, own_file, simulation_sources
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.family import GENERIC
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import Register
from rtlstm.tools.toolchain import icarus, run_tool


class SimulatedRegisters:
    """A testbench that takes accesses from its standard input, such as ``sim/axilite_port.v``.

    ``program`` is the absolute path of the compiled simulation, which is written. Files that sources name
    stand beside it. ``sources`` are Verilog, the testbench's too, relative to the program's folder. ``base``
    is the word address of the first register. Raises ToolError if Icarus Verilog is missing or fails.
    """

    def __init__(self, program: Path, top: str, sources: Sequence[str | Path], base: int = 0) -> None:
        tool = icarus()
        options = ("-g2005", f"-D{SIMULATION}", "-s", top, "-o", program)
        command: list[str | Path] = [tool.iverilog, *options, *sources]
        run_tool(command, f"compiling {top} for simulation", program.parent)
        self.process = subprocess.Popen(
            [str(tool.vvp), "-n", str(program)],
            cwd=program.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.base = base
        self.reads = 0

    def ask(self, line: str) -> int:
        """Send a command; return the word that answers it.

        Raises DeviceError if the access was refused, or the simulation has ended.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{line}\n")
        stdin.flush()
        kind, *word = stdout.readline().split() or ["no answer"]
        if kind != "a":
            raise DeviceError(f"a simulated bus must take every access, but {line!r} gave {kind!r}")
        return int(word[0], 16)

    def read(self, register: Register) -> int:
        """Read a register: an unsigned 32-bit word."""
        self.reads += 1
        return self.ask(f"r {self.base + register:x}")

    def write(self, register: Register, word: int) -> None:
        """Write an unsigned 32-bit word."""
        self.ask(f"w {self.base + register:x} {word:x}")

    def close(self) -> None:
        """End the simulation. Further calls do nothing."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(10)


_ROOM = 1 << 16
"""Bytes taken from a board at once; the next call takes more."""


@dataclass(frozen=True, kw_only=True)
class BoardSpec:
    """What a simulator must know of a board's top."""

    top: str
    clock_hz: int
    """Frequency at the clock pin."""
    baud: int
    """Baud rate of the host's end of the serial port, or the host's clock on SPI, in Hz."""
    inverted_leds: Sequence[bool]
    inverted_button: bool | None = None
    """None if the board has no button."""
    family: str = GENERIC
    """Family that the core was built for."""
    device_family: str
    """Family of the board's device, which determines the PLL."""
    link: str = "serial"
    """What the board's link is on: its serial port, ``ethernet`` (an RGMII), ``spi``, or ``raw_spi`` with the
    raw mode."""


def build_board(top: Path, core: Path, spec: BoardSpec, progress: Progress | None = None) -> Path:
    """Compile a board's top and its core; return the library, from the cache if it is there.

    Raises ToolError if Verilator or a C++ compiler is missing or fails.
    """
    sources = [top.absolute(), *simulation_sources(core, spec.family), *board_models(spec.device_family)]
    defines = [f"-DRTLSTM_LED{index}={int(dark)}" for index, dark in enumerate(spec.inverted_leds)]
    if spec.inverted_button is not None:
        defines.append(f"-DRTLSTM_BUTTON={int(spec.inverted_button)}")
    if spec.link != "serial":
        defines.append(f"-DRTLSTM_{spec.link.upper()}")
    return compile_library(spec.top, sources, own_file("board.cpp"), defines, progress)


_SIZE = ctypes.c_int64
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "send": (None, [ctypes.c_char_p, _SIZE]),
    "cut": (None, []),
    "transfer": (_SIZE, [ctypes.c_char_p, _SIZE]),
    "run": (_SIZE, [_SIZE, ctypes.c_char_p, _SIZE]),
    "pending": (_SIZE, []),
    "cycle": (_SIZE, []),
    "bad_stops": (_SIZE, []),
    "frame_in": (_SIZE, []),
    "frame_out": (_SIZE, []),
    "clock_hz": (ctypes.c_double, []),
    "leds": (ctypes.c_int, []),
}


class NativeBoard:
    """A board in a library of :func:`build_board`, at power-up; ``seed`` sets uninitialised contents."""

    def __init__(self, library: Path, spec: BoardSpec, seed: int = 1) -> None:
        self._board = LibraryModel(library, _FUNCTIONS, seed, spec.clock_hz, spec.baud)
        self._bytes = ctypes.create_string_buffer(_ROOM)
        self.transfer_seconds = 0.0
        """What the last raw transfer took, from the selection to the end of its last bit."""

    @property
    def clock_hz(self) -> float:
        """The core's clock, as the PLL's parameters make it."""
        return float(self._board.call("clock_hz"))

    @property
    def cycle(self) -> int:
        """The core's cycles since power-up."""
        return int(self._board.call("cycle"))

    @property
    def pending(self) -> int:
        """Bytes that are still to be sent to the board."""
        return int(self._board.call("pending"))

    @property
    def bad_stops(self) -> int:
        """Framing errors: bytes from the board without a stop bit. None at the right baud rate."""
        return int(self._board.call("bad_stops"))

    @property
    def answer_seconds(self) -> float:
        """The time from the first bit of what was sent last until the last bit of what came; on Ethernet,
        those of frames with preamble and checksum."""
        return (int(self._board.call("frame_out")) - int(self._board.call("frame_in"))) * 1e-15

    @property
    def leds(self) -> int:
        """Lit LEDs, the first in bit 0."""
        return int(self._board.call("leds"))

    def send(self, data: bytes) -> None:
        """Send bytes to the board, after those that are still waiting."""
        self._board.call("send", data, len(data))

    def transfer(self, data: bytes, bits: int | None = None) -> bytes:
        """Make a raw transfer over SPI, perhaps of the first ``bits`` alone; return the bytes that come.

        A board without the raw mode gives those that were sent.
        """
        exchanged = ctypes.create_string_buffer(data, len(data))
        given = 8 * len(data) if bits is None else bits
        self.transfer_seconds = self._board.call("transfer", exchanged, given) * 1e-15
        return exchanged.raw

    def cut(self) -> None:
        """Drop bytes in transfer, both ways, as when a cable is pulled: perhaps half a byte arrives."""
        self._board.call("cut")

    def run(self, cycles: int) -> bytes:
        """Run so many of the core's cycles and return what the board has sent.

        It returns earlier if bytes have come and no more follow.
        """
        count = self._board.call("run", cycles, self._bytes, _ROOM)
        return self._bytes.raw[:count]

    def close(self) -> None:
        """Switch the board off. Further calls raise DeviceError."""
        self._board.close()


_AWAKE = 2000
"""Cycles of the core's clock until the PLL has locked and the reset has ended."""
_GONE = 0.001
"""Seconds of the board's time that a broken connection stays closed."""


class BoardPort:
    """The serial port of a simulated board, as a :class:`~rtlstm.host.link.byte_ports.BytePort`.

    Its time is the board's: simulated time passes only in ``read`` and ``pause``.
    """

    def __init__(self, board: NativeBoard) -> None:
        self._board = board
        self._hertz = board.clock_hz
        # No host opens the port of a board that is still in reset.
        board.run(_AWAKE)

    def now(self) -> float:
        """Return seconds since power-up."""
        return self._board.cycle / self._hertz

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        self._board.send(data)

    def read(self, seconds: float) -> bytes:
        """Return the bytes that have come; if there are none, run the board for up to ``seconds``."""
        return self._board.run(self._cycles(seconds))

    def pause(self, seconds: float) -> None:
        """Run the board; what it sends meanwhile is lost, as at a port that no program has open."""
        end = self.now() + seconds
        while self.now() < end:
            self._board.run(self._cycles(end - self.now()))

    def _cycles(self, seconds: float) -> int:
        # Rounded up: if a wait of less than a cycle took no time, the host would wait for ever.
        return max(0, math.ceil(seconds * self._hertz))

    def reopen(self) -> None:
        """Reconnect the cable: bytes in transfer are lost, and so is what the board sends meanwhile."""
        self._board.cut()
        self.pause(_GONE)

    def close(self) -> None:
        """Switch the board off."""
        self._board.close()
