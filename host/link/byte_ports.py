"""Lines of bytes: serial ports and TCP connections."""

import select
import socket
import time
from typing import Any, Protocol

from rtlstm.spec.errors import ConfigurationError, DeviceError, ToolError

__all__ = ["BytePort", "PortBroken", "SerialPort", "TcpPort"]

_CHUNK = 65536
_WRITE_SECONDS = 5.0
"""A line that takes no byte for so long is broken."""


class PortBroken(Exception):  # noqa: N818 (no error yet: the line may be opened again)
    """The line was unplugged, or the other end has closed it."""


class BytePort(Protocol):
    """Carries bytes both ways, perhaps badly."""

    def now(self) -> float:
        """Return the line's time in seconds; it never goes back."""

    def write(self, data: bytes) -> None:
        """Send bytes; raise LineBroken if that is impossible."""

    def read(self, seconds: float) -> bytes:
        """Return what has come, waiting for the first byte for so long; raise LineBroken."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""

    def reopen(self) -> None:
        """Open a broken line again, from both ends' first byte on; raise LineBroken."""

    def close(self) -> None:
        """Release it. May be called again."""


_CLOSED = "the other end has closed the connection; another program may be using it"


def _lost(error: OSError) -> PortBroken:
    """Say why a connection is of no use any more."""
    return PortBroken(_CLOSED if isinstance(error, ConnectionResetError | BrokenPipeError) else error)


class _RealTime:
    """The clock of lines that lead out of this program."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


class TcpPort(_RealTime):
    """A TCP connection to a board server.

    Raises
    ------
    DeviceError
        If nothing answers there.
    """

    def __init__(self, host: str, port: int, seconds: float = 5.0) -> None:
        self._address = (host, port)
        self._seconds = seconds
        self._socket: socket.socket | None = None
        try:
            self.reopen()
        except PortBroken as error:
            raise DeviceError(
                f"a board server must listen at {host}:{port}, but it cannot be reached ({error}); "
                "start it and wait until it says where it listens, or check host and port"
            ) from None

    def reopen(self) -> None:
        """Connect, anew."""
        self.close()
        try:
            self._socket = socket.create_connection(self._address, self._seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(_WRITE_SECONDS)
        except OSError as error:
            raise PortBroken(error) from None

    def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._connected().sendall(data)
        except OSError as error:
            raise _lost(error) from None

    def read(self, seconds: float) -> bytes:
        """Return what has come."""
        connection = self._connected()
        try:
            if not select.select([connection], [], [], max(0.0, seconds))[0]:
                return b""
            data = connection.recv(_CHUNK)
        except OSError as error:
            raise _lost(error) from None
        if not data:
            raise PortBroken(_CLOSED)
        return data

    def close(self) -> None:
        """Close the connection."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise PortBroken("the connection is closed")
        return self._socket


class SerialPort(_RealTime):
    """A serial port or pseudo-terminal, 8N1, held for this program alone.

    Raises
    ------
    DeviceError
        If there is no such port, or another program has it.
    ToolError
        If serialx is not installed.
    """

    def __init__(self, port: str, baud: int) -> None:
        self._port, self._baud = port, baud
        self._serial: Any = None
        try:
            self.reopen()
        except PortBroken as error:
            raise DeviceError(
                f"the serial port {port} must exist and be free, but it cannot be opened ({error}); "
                "plug the board in, or close the other program that uses it"
            ) from None

    def reopen(self) -> None:
        """Open the port, anew."""
        try:
            import serialx
        except ImportError:
            raise ToolError(
                "serial ports need the package serialx; install it with pip install 'rtlstm[link]'"
            ) from None
        self.close()
        try:
            port = serialx.serial_for_url(self._port, baudrate=self._baud, exclusive=True, do_not_open=True)
            port.open()
        except serialx.UnsupportedSetting as error:
            raise ConfigurationError(f"{self._port} must take {self._baud} baud, but: {error}") from None
        except (OSError, serialx.SerialException) as error:
            raise PortBroken(error) from None
        self._serial = port

    def write(self, data: bytes) -> None:
        """Send bytes."""
        rest = memoryview(data)
        try:
            while rest:
                taken = self._opened().write(rest, timeout=_WRITE_SECONDS)
                if not taken:
                    raise PortBroken(f"{self._port} takes no more bytes")
                rest = rest[taken:]
        except (OSError, ValueError) as error:
            raise PortBroken(error) from None

    def read(self, seconds: float) -> bytes:
        """Return what has come."""
        buffer = bytearray(_CHUNK)
        try:
            count = self._opened().readinto(buffer, timeout=max(0.0, seconds))
        except (OSError, ValueError) as error:
            raise PortBroken(error) from None
        return bytes(buffer[:count])

    def close(self) -> None:
        """Close the port."""
        port, self._serial = self._serial, None
        if port is not None:
            port.close()

    def _opened(self) -> Any:
        if self._serial is None:
            raise PortBroken(f"{self._port} is closed")
        return self._serial
