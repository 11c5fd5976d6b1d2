"""A simulated board as others see it: a serial port (a pseudo-terminal) and a TCP port, byte by byte."""

import os
import select
import socket
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rtlstm.host.link.lines import Line, LineBroken
from rtlstm.sim.board import NativeBoard
from rtlstm.spec.errors import ConfigurationError

__all__ = ["BoardLine", "BoardServer"]

_SLICE = 0.001
"""Seconds of the board's time between two looks at who is connected."""
_WATCHED = 0.5
"""Seconds without a byte after which the board runs only now and then."""
_REST = 0.02
_CHUNK = 4096
_AWAKE = 2000
"""The core's cycles after which PLL and reset have let go."""


class BoardLine:
    """The serial line of a simulated board, as a :class:`~rtlstm.host.link.lines.Line`.

    Its time is the board's: it passes only while somebody reads or pauses.
    """

    def __init__(self, board: NativeBoard) -> None:
        self._board = board
        self._hertz = board.clock_hz
        # Nobody is quick enough to open the line of a board that is still in reset.
        board.run(_AWAKE)

    def now(self) -> float:
        """Return seconds since the power came up."""
        return self._board.cycle / self._hertz

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        self._board.send(data)

    def read(self, seconds: float) -> bytes:
        """Return what has come, running the board for so long if nothing has."""
        return self._board.run(max(0, round(seconds * self._hertz)))

    def pause(self, seconds: float) -> None:
        """Run the board; what it sends meanwhile is lost, as on a line that nobody has open."""
        end = self.now() + seconds
        while self.now() < end:
            self._board.run(max(1, round((end - self.now()) * self._hertz)))

    def reopen(self) -> None:
        """Begin anew: what the board was about to say is lost."""
        self.pause(_SLICE)

    def close(self) -> None:
        """Switch the board off."""
        self._board.close()


class BoardServer:
    """Offers a line as a pseudo-terminal, a TCP port or both, to one program at a time.

    Parameters
    ----------
    line
        A board's, perhaps with faults on it.
    terminal
        Whether to make a pseudo-terminal.
    tcp
        Port to listen at, on this machine alone; 0 for any, None for none.

    Raises
    ------
    ConfigurationError
        If the port is taken.
    """

    def __init__(self, line: Line, *, terminal: bool = True, tcp: int | None = None) -> None:
        self._line = line
        self._listener: socket.socket | None = None
        self._client: socket.socket | None = None
        self._terminal: int | None = None
        self._slave: int | None = None
        self._active = 0.0
        self.terminal: Path | None = None
        """What to open as a serial port."""
        self.port: int | None = None
        """The TCP port."""
        if tcp is not None:
            self._listen(tcp)
        if terminal:
            self._terminal, self._slave = os.openpty()
            tty.setraw(self._slave)
            os.set_blocking(self._terminal, False)
            self.terminal = Path(os.ttyname(self._slave))

    def _listen(self, port: int) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind(("127.0.0.1", port))
        except OSError as error:
            self._listener.close()
            raise ConfigurationError(
                f"TCP port {port} must be free, but is not ({error.strerror}); choose another, or 0 for any"
            ) from None
        self._listener.listen()
        self.port = self._listener.getsockname()[1]

    def serve(self, stopped: Callable[[], bool]) -> None:
        """Carry bytes until ``stopped`` says so."""
        while not stopped():
            self._turn()

    def _turn(self) -> None:
        idle = time.monotonic() - self._active > _WATCHED
        ends = [end for end in (self._listener, self._client, self._terminal) if end is not None]
        ready = select.select(ends, [], [], _REST if idle else 0)[0]
        if self._listener in ready:
            self._accept()
        try:
            for end in (self._client, self._terminal):
                if end is not None and end in ready and (data := self._take(end)):
                    self._active = time.monotonic()
                    self._line.write(data)
            if data := self._line.read(_SLICE):
                self._active = time.monotonic()
                self._give(data)
        except LineBroken:
            self._broken()

    def _accept(self) -> None:
        assert self._listener is not None
        client, _ = self._listener.accept()
        if self._client is not None:
            # The line belongs to the first.
            client.close()
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = client

    def _take(self, end: socket.socket | int) -> bytes:
        try:
            data = end.recv(_CHUNK) if isinstance(end, socket.socket) else os.read(end, _CHUNK)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._drop()
        return data

    def _give(self, data: bytes) -> None:
        if self._client is not None:
            try:
                self._client.sendall(data)
            except OSError:
                self._drop()
        if self._terminal is not None:
            try:
                os.write(self._terminal, data)
            except BlockingIOError:
                # Nobody reads it, and a serial port does not wait.
                assert self._slave is not None
                termios.tcflush(self._slave, termios.TCIFLUSH)

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _broken(self) -> None:
        """Hang up, as a cable that is pulled, and plug it in again."""
        self._drop()
        if self._slave is not None:
            termios.tcflush(self._slave, termios.TCIOFLUSH)
        while True:
            try:
                self._line.reopen()
                return
            except LineBroken:
                continue

    def close(self) -> None:
        """Close all ends, and the line."""
        self._drop()
        if self._listener is not None:
            self._listener.close()
        for end in (self._terminal, self._slave):
            if end is not None:
                os.close(end)
        self._listener = self._terminal = self._slave = None
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
