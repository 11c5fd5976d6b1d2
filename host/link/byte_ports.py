"""Ports that carry bytes: serial ports, TCP connections, datagrams of UDP, and SPI."""

import select
import socket
import time
from collections.abc import Iterator
from typing import Any, Protocol

from rtlstm.spec.errors import ConfigurationError, DeviceError, ToolError, distribution
from rtlstm.spec.link import DATAGRAM_LIMIT

_CHUNK = 65536
_SPI_LIMIT, _SPI_POLL = 4096, 16
"""Bytes of a transfer at most, as Linux' driver has it by default; bytes of one that asks for news."""
_SECONDS = 5.0
"""Seconds after which a port that is not reached, or accepts no byte, counts as broken."""


class PortBroken(Exception):  # noqa: N818 (no error yet: the port may be opened again)
    """The port was unplugged, or the other end has closed the connection."""


class BytePort(Protocol):
    """Carries bytes in both directions; bytes may be lost or damaged."""

    def now(self) -> float:
        """Return the port's time in seconds; it never decreases."""

    def write(self, data: bytes) -> None:
        """Send bytes. Raise PortBroken if the port cannot send them."""

    def read(self, seconds: float) -> bytes:
        """Return the received bytes; wait at most ``seconds`` for the first one. May raise PortBroken."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""

    def reopen(self) -> None:
        """Open a broken port again; bytes in transit are lost. Raise PortBroken if it cannot be opened."""

    def close(self) -> None:
        """Release the port. Further calls do nothing."""


def split_datagrams(data: bytes) -> Iterator[bytes]:
    """Yield bytes to transmit as datagrams, which hold whole frames."""
    datagram = b""
    for frame in data.split(b"\0"):
        if datagram and len(datagram) + len(frame) >= DATAGRAM_LIMIT:
            yield datagram
            datagram = b""
        datagram += frame + b"\0"
    if datagram[:-1]:
        yield datagram[:-1]


_CLOSED = "the other end has closed the connection; another program may be using it"


def _lost(error: OSError) -> PortBroken:
    """Raise PortBroken: the other end has closed the connection."""
    return PortBroken(_CLOSED if isinstance(error, ConnectionResetError | BrokenPipeError) else error)


class _RealPort:
    """What ports to other programs and to hardware have in common: the clock, and what is open."""

    _name = "the port"
    _held: Any = None
    """The socket or device; None if the port is closed."""

    def now(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def _opened(self) -> Any:
        if self._held is None:
            raise PortBroken(f"{self._name} is closed")
        return self._held


class TcpPort(_RealPort):
    """A TCP connection to a board server. Raises DeviceError if nothing answers there."""

    _name = "the connection"

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
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
            self._held = socket.create_connection(self._address, _SECONDS)
            self._held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._held.settimeout(_SECONDS)
        except OSError as error:
            raise PortBroken(error) from None

    def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._opened().sendall(data)
        except OSError as error:
            raise _lost(error) from None

    def read(self, seconds: float) -> bytes:
        """Return the received bytes."""
        connection = self._opened()
        try:
            if not select.select([connection], [], [], max(0.0, seconds))[0]:
                return b""
            data: bytes = connection.recv(_CHUNK)
        except OSError as error:
            raise _lost(error) from None
        if not data:
            raise PortBroken(_CLOSED)
        return data


class UdpPort(_RealPort):
    """Datagrams to and from a board with Ethernet; they may be lost, doubled and reordered.

    Raises DeviceError if there is no such host.
    """

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        try:
            self.reopen()
        except PortBroken as error:
            raise DeviceError(
                f"datagrams must have a way to {host}:{port}, but there is none ({error}); check host, port, "
                "and that this machine has an address in the board's net"
            ) from None

    def reopen(self) -> None:
        """Take another port of this machine."""
        self.close()
        try:
            self._held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._held.connect(self._address)
        except OSError as error:
            self.close()
            raise PortBroken(error) from None

    def write(self, data: bytes) -> None:
        """Send bytes, which are whole frames."""
        try:
            for datagram in split_datagrams(data):
                self._opened().send(datagram)
        except OSError as error:
            raise _unheard(error, self._address) from None

    def read(self, seconds: float) -> bytes:
        """Return the bytes of all datagrams that have come, with a zero behind each: it ends a frame."""
        opened, found = self._opened(), b""
        try:
            wait = max(0.0, seconds)
            while len(found) < _CHUNK and select.select([opened], [], [], wait)[0]:
                found += opened.recv(_CHUNK) + b"\0"
                wait = 0.0
        except OSError as error:
            if not found:
                raise _unheard(error, self._address) from None
        return found


class SpiPort(_RealPort):
    """SPI of this machine, mode 0, with a device that answers with zeros where it has nothing to send.

    ``path`` is Linux' file, such as ``/dev/spidev0.0``. Raises DeviceError if it cannot be opened. Raises
    ToolError if the package periphery is missing.
    """

    def __init__(self, path: str, mhz: float) -> None:
        self._path, self._mhz = path, mhz
        self._broken: tuple[type[Exception], ...] = ()
        self._read, self._within = b"", False
        """What has come, and whether the last byte was no zero."""
        try:
            self.reopen()
        except PortBroken as error:
            raise DeviceError(
                f"SPI must be at {path}, but it cannot be opened ({error}); switch it on in the machine's "
                "settings, and check who may use it"
            ) from None

    def reopen(self) -> None:
        """Open it, anew."""
        self.close()
        try:
            import periphery
        except ImportError:
            raise ToolError(
                "SPI needs the package python-periphery; install it with pip install "
                f"'{distribution()}[link]'"
            ) from None
        self._broken = (periphery.SPIError, OSError)
        self._read, self._within = b"", False
        try:
            self._held = periphery.SPI(self._path, 0, self._mhz * 1e6)
        except self._broken as error:
            raise PortBroken(error) from None

    def write(self, data: bytes) -> None:
        """Send bytes, and keep what comes meanwhile."""
        for first in range(0, len(data), _SPI_LIMIT):
            self._exchange(data[first : first + _SPI_LIMIT])

    def read(self, seconds: float) -> bytes:
        """Return the bytes that have come, without zeros that follow one another."""
        end = self.now() + seconds
        while not self._read:
            self._exchange(bytes(_SPI_POLL))
            if self.now() >= end:
                break
        found, self._read = self._read, b""
        return found

    def _exchange(self, data: bytes) -> None:
        try:
            found = bytes(self._opened().transfer(data))
        except self._broken as error:
            raise PortBroken(error) from None
        # A zero ends a frame. Further ones say that there was nothing.
        if any(found) or self._within:
            kept = found.rstrip(b"\0")
            self._within = len(kept) == len(found)
            self._read += kept if self._within else kept + b"\0"


def _unheard(error: OSError, address: tuple[str, int]) -> PortBroken:
    words = "no program takes datagrams at {}:{}; a simulated board says when it does"
    return PortBroken(words.format(*address) if isinstance(error, ConnectionRefusedError) else error)


class SerialPort(_RealPort):
    """A serial port or pseudo-terminal, 8N1, locked against other programs.

    Raises DeviceError if there is no such port, or another program has it. Raises ToolError if serialx is not
    installed.
    """

    def __init__(self, port: str, baud: int) -> None:
        self._name, self._baud = port, baud
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
                f"serial ports need the package serialx; install it with pip install '{distribution()}[link]'"
            ) from None
        self.close()
        try:
            port = serialx.serial_for_url(self._name, baudrate=self._baud, exclusive=True, do_not_open=True)
            port.open()
        except serialx.UnsupportedSetting as error:
            raise ConfigurationError(f"{self._name} must take {self._baud} baud, but: {error}") from None
        except (OSError, serialx.SerialException) as error:
            raise PortBroken(error) from None
        self._held = port

    def write(self, data: bytes) -> None:
        """Send bytes."""
        rest = memoryview(data)
        try:
            while rest:
                taken = self._opened().write(rest, timeout=_SECONDS)
                if not taken:
                    raise PortBroken(f"{self._name} takes no more bytes")
                rest = rest[taken:]
        except (OSError, ValueError) as error:
            raise PortBroken(error) from None

    def read(self, seconds: float) -> bytes:
        """Return the received bytes."""
        buffer = bytearray(_CHUNK)
        try:
            count = self._opened().readinto(buffer, timeout=max(0.0, seconds))
        except (OSError, ValueError) as error:
            raise PortBroken(error) from None
        return bytes(buffer[:count])
