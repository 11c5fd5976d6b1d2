"""Memory-mapped registers: a core with a bus wrapper, on the bus of the processor that runs the driver.

The backend ``mmio:PATH`` or ``mmio:PATH@OFFSET`` maps a file of the system: a UIO device (``/dev/uio0``),
physical memory (``/dev/mem@0x43C00000``), or a plain file that another program serves.
"""

import fcntl
import mmap
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rtlstm.host.raw_values import Steps
from rtlstm.host.transport import Transport, register_words
from rtlstm.spec.buses import registers_of
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import IDENTITY, MAP_VERSION, Register, field

_STOPPED = field(Register.STATUS, "STOPPED")


def check_program(device: Manifest, status: Callable[[], int]) -> None:
    """Check that a device has a program; ``status`` reads STATUS. Raises DeviceError if it has none."""
    if device.parameters.capacity is not None and _STOPPED.of(status()):
        raise DeviceError(
            "the device must have a program, but a loadable device loses it at a reset; load its weights "
            "again, which loads the program, too"
        )


_BYTES = 128
"""Size of the map: registers 0 to 31."""

_MAJOR = field(Register.VERSION, "MAJOR")
_RESET = field(Register.CONTROL, "RESET")
_SUPPRESS, _STREAM = field(Register.X_STREAM, "SUPPRESS"), field(Register.X_STREAM, "STREAM")
_TIMEOUT = 5.0
"""Seconds without progress of any step after which the device counts as dead."""


class RegisterFile(Protocol):
    """Registers that are read and written one word at a time."""

    def read(self, register: Register) -> int:
        """Read a register: an unsigned 32-bit word."""

    def write(self, register: Register, word: int) -> None:
        """Write an unsigned 32-bit word."""

    def close(self) -> None:
        """Release the registers."""


class MappedRegisters:
    """Registers in a mapped file, in the byte order of this machine. Locked against other programs.

    Raises DeviceError if the file cannot be opened, mapped or locked.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        if offset % 4:
            raise DeviceError(f"the registers' offset must be a multiple of 4, not {offset:#x}")
        begin = offset % mmap.ALLOCATIONGRANULARITY
        try:
            file = os.open(path, os.O_RDWR | getattr(os, "O_SYNC", 0))
        except OSError as error:
            raise DeviceError(
                f"{path} must be a device or file that can be written: {error.strerror}"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._map = mmap.mmap(file, begin + _BYTES, offset=offset - begin)
        except BlockingIOError:
            os.close(file)
            raise DeviceError(f"{path} is in use by another program; end that first") from None
        except (OSError, ValueError) as error:
            os.close(file)
            raise DeviceError(
                f"{path} must hold {_BYTES} bytes of registers at {offset:#x}, but cannot be mapped: {error}"
            ) from None
        self._file = file
        self._words = memoryview(self._map).cast("I")
        self._first = begin // 4

    def read(self, register: Register) -> int:
        """Read a register, in one access of 32 bits."""
        return self._words[self._first + register]

    def write(self, register: Register, word: int) -> None:
        """Write a register, in one access of 32 bits."""
        self._words[self._first + register] = word

    def close(self) -> None:
        """Unmap and unlock the file. Further calls do nothing."""
        if self._file >= 0:
            self._words.release()
            self._map.close()
            os.close(self._file)
            self._file = -1


class MmioTransport(Transport):
    """A transport to a wrapped core through its registers.

    Steps go through the data FIFOs, as many at a time as there is space for. Opening it resets core and
    FIFOs: an earlier program may have left steps there.

    Raises DeviceError if the device has another register map.

    Parameters
    ----------
    registers
        The device's registers; the transport closes them.
    manifest
        The build. Steps need one with data FIFOs (``--bus axilite`` or ``wishbone``).
    clock
        The time in seconds, against which a device without progress is found; a simulation has its own.
    """

    def __init__(
        self,
        registers: RegisterFile,
        manifest: Manifest,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(manifest)
        self._clock = clock
        self._registers: RegisterFile | None = registers
        self._errors = 0
        # A device with another ID is not an rtlstm core: the driver raises the error for that.
        if registers.read(Register.ID) == IDENTITY:
            major = _MAJOR.of(registers.read(Register.VERSION))
            if major != MAP_VERSION[0]:
                raise DeviceError(
                    f"the device's register map must be of version {MAP_VERSION[0]}, but it is {major}; "
                    "generate the build and its bitstream again"
                )
            self._restart(registers)

    def _restart(self, registers: RegisterFile) -> None:
        registers.write(Register.CONTROL, _RESET.at(1))
        self._errors = registers.read(Register.LINK_ERRORS)

    def _open(self) -> RegisterFile:
        if self._registers is None:
            raise DeviceError("the memory-mapped device is closed; open it again")
        return self._registers

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        """Write 32-bit words to a register, one after the other."""
        registers = self._open()
        for word in register_words(words).tolist():
            registers.write(register, word)

    def read(self, register: Register, count: int = 1) -> IntArray:
        """Read a register ``count`` times; 32-bit words as non-negative int64."""
        registers = self._open()
        return np.array([registers.read(register) for _ in range(count)], dtype=np.int64)

    def run_steps(self, steps: Steps) -> IntArray:
        """Run checked steps in order; see :meth:`rtlstm.host.transport.Transport.run_steps`.

        Raises DeviceError if there is no progress for 5 seconds, an output belongs to another stream than
        expected, or the device refused an access. The device has then been reset: all state is zero, and a
        loadable device takes no step, which is an error as well, until weights and program are loaded again.
        """
        registers = self._open()
        check_program(self.manifest, lambda: registers.read(Register.STATUS))
        try:
            y = self._exchange(registers, steps.streams, steps.x, ~steps.suppress)
            errors = (registers.read(Register.LINK_ERRORS) - self._errors) & 0xFFFFFFFF
            if errors:
                raise DeviceError(f"the device must take every access, but it has refused {errors}")
        except BaseException:
            # Steps may still be in progress.
            self._restart(registers)
            raise
        return y

    def _exchange(
        self, registers: RegisterFile, streams: IntArray, x: IntArray, with_output: NDArray[np.bool_]
    ) -> IntArray:
        outputs = self.manifest.program.outputs
        y = np.zeros((len(streams), outputs), dtype=np.int64)
        sent, due = 0, deque[int]()
        deadline = self._clock() + _TIMEOUT
        while sent < len(streams) or due:
            before = sent, len(due)
            room = registers.read(Register.X_ROOM) if sent < len(streams) else 0
            for step in range(sent, min(sent + room, len(streams))):
                registers.write(
                    Register.X_STREAM,
                    _STREAM.at(int(streams[step])) | _SUPPRESS.at(int(not with_output[step])),
                )
                for value in x[step].tolist():
                    registers.write(Register.X_DATA, value & 0xFFFFFFFF)
                sent += 1
                if with_output[step]:
                    due.append(step)
            for _ in range(registers.read(Register.Y_STEPS) if due else 0):
                step = due.popleft() if due else -1
                self._check_stream(registers.read(Register.Y_STREAM), step, streams)
                y[step] = [_signed(registers.read(Register.Y_DATA)) for _ in range(outputs)]
            if before != (sent, len(due)):
                deadline = self._clock() + _TIMEOUT
            elif self._clock() > deadline:
                raise DeviceError(
                    f"the device must make progress, but no step has for {_TIMEOUT:g} s ({sent} of "
                    f"{len(streams)} sent, {len(due)} answers missing); it was reset: every state is zero"
                )
        return y

    @staticmethod
    def _check_stream(found: int, step: int, streams: IntArray) -> None:
        if step < 0 or found != streams[step]:
            due = "no answer is due" if step < 0 else f"stream {streams[step]}'s answer is due"
            raise DeviceError(f"{due}, but the device gives one of stream {found}; open it again")

    def adopt(self, manifest: Manifest) -> None:
        """Use another build of the same hardware from now on."""
        self.manifest = manifest

    def close(self) -> None:
        """Release the registers; further accesses raise DeviceError."""
        registers, self._registers = self._registers, None
        if registers is not None:
            registers.close()


def _signed(word: int) -> int:
    return word - (word >> 31 << 32)


def check_fifos(manifest: Manifest) -> None:
    """Check that a build takes steps through registers.

    Raises ConfigurationError if it has no data FIFOs behind registers.
    """
    if Register.X_DATA not in registers_of(manifest.parameters.bus):
        raise ConfigurationError(
            f"steps through registers need a build with data FIFOs, but this one's bus is "
            f"{manifest.parameters.bus}; generate it with "
            "`bus='axilite'` or `bus='wishbone'`"
        )


def open_mmio(
    folder: Path, manifest: Manifest, argument: str, progress: Progress | None = None
) -> MmioTransport:
    """Open ``PATH`` or ``PATH@OFFSET``; the factory of the backend ``mmio``.

    Raises ConfigurationError if ``argument`` names no path, or the build has no data FIFOs behind registers.
    Raises DeviceError if the file cannot be used, or the device has another register map.
    """
    path, _, offset = argument.partition("@")
    try:
        begin = int(offset or "0", 0)
    except ValueError:
        begin = -1
    if not path or begin < 0:
        raise ConfigurationError(
            f"mmio needs a path, and an offset if not 0, as in mmio:/dev/mem@0x43C00000, not {argument!r}"
        )
    check_fifos(manifest)
    registers = MappedRegisters(Path(path), begin)
    try:
        return MmioTransport(registers, manifest)
    except BaseException:
        registers.close()
        raise
