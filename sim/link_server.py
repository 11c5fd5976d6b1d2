"""A device behind a TCP port and a pseudo-terminal, for drivers that know only lines."""

import contextlib
import os
import selectors
import socket
import threading
import tty
from types import TracebackType
from typing import Self

from rtlstm.sim.link_device import DeviceEngine

__all__ = ["LinkServer"]

_CHUNK = 65536


class LinkServer:
    """Serves one :class:`DeviceEngine`, in a thread, from ``with`` to the end of its block.

    A second TCP connection is closed at once, as a serial port that is in use cannot be opened.

    Parameters
    ----------
    device
        What answers.
    host, port
        Where to listen; port 0 takes any that is free.
    """

    def __init__(self, device: DeviceEngine, host: str = "127.0.0.1", port: int = 0) -> None:
        self.device = device
        self._listener = socket.create_server((host, port))
        self._listener.setblocking(False)
        self._connection: socket.socket | None = None
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        """The TCP port."""
        return int(self._listener.getsockname()[1])

    @property
    def path(self) -> str:
        """The pseudo-terminal's device file."""
        return os.ttyname(self._slave)

    def __enter__(self) -> Self:
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._master, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop: as if the board were unplugged. May be called again."""
        if self._woken < 0:
            return
        os.write(self._woken, b"x")
        self._thread.join()
        self.disconnect()
        self._selector.close()
        self._listener.close()
        for file in (self._master, self._slave, self._wake, self._woken):
            os.close(file)
        self._woken = -1

    def disconnect(self) -> None:
        """Close the TCP connection, if there is one; the next one is welcome."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._wake:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._master:
                    with contextlib.suppress(OSError):
                        for frame in self._answer(os.read(self._master, _CHUNK)):
                            os.write(self._master, frame)
                else:
                    self._talk()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if self._connection is not None:
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(5.0)
        self._connection = connection
        self._selector.register(connection, selectors.EVENT_READ)

    def _talk(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            data = connection.recv(_CHUNK)
            for frame in self._answer(data):
                connection.sendall(frame)
        except OSError:
            data = b""
        if not data:
            self.disconnect()

    def _answer(self, data: bytes) -> list[bytes]:
        """Let the device take bytes; return what it says."""
        device = self.device
        device.receive(data)
        frames = []
        more = True
        while more:
            more = device.work()
            while frame := device.transmit():
                frames.append(frame)
        return frames
