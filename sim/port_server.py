"""Offers a simulated port to other programs, as a pseudo-terminal, as a TCP port and as a UDP port."""

import os
import select
import socket
import termios
import threading
import time
import tty
from collections.abc import Callable
from pathlib import Path

from rtlstm.host.link.byte_ports import BytePort, PortBroken, split_datagrams
from rtlstm.host.transport import Closing, Owner
from rtlstm.sim.link_port import EthernetPort
from rtlstm.spec.errors import ConfigurationError

_REST = 0.02
"""Seconds between two slices while no bytes come."""
_WRITE_SECONDS = 5.0
_CHUNK = 65536
_STOP, _HANG_UP = b"s", b"h"


class PortServer(Closing):
    """Offers a port to one program at a time: by a pseudo-terminal, a TCP port or a UDP port.

    It serves in a thread, from its creation to :meth:`close`, and closes ``port``, a simulated board's or any
    other, perhaps with faults. A second TCP connection is closed, as a serial port that is in use cannot be
    opened, at the first pause of whoever is connected. What is written to the terminal meanwhile is lost.

    There is a pseudo-terminal if ``terminal`` is set. ``tcp`` and ``udp`` are ports to listen at, on this
    machine alone; 0 for any, None for none. Datagrams go to whoever sent the last one. ``span`` is the time
    in seconds, of the port's, between two checks of who is connected. ``transfer`` makes a raw transfer and
    returns the bytes that come meanwhile: then each datagram is one, and is answered with these. The port's
    time goes on without a pause for ``linger`` seconds after a byte: a board may have more to send. Raises
    ConfigurationError if the port is taken.
    """

    def __init__(
        self,
        port: BytePort,
        *,
        terminal: bool = True,
        tcp: int | None = None,
        udp: int | None = None,
        linger: float = 0.0,
        span: float = 0.001,
        transfer: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._port, self._linger, self._span = port, linger, span
        self._transfer = transfer
        # It alone has datagrams that need not be whole frames.
        self._ethernet = port if isinstance(port, EthernetPort) else None
        self._datagrams = None if udp is None else _bind(udp)
        self._asker: tuple[str, int] | None = None
        self._busy, self._awake_until = False, 0.0
        self._client: socket.socket | None = None
        try:
            self._listener = None if tcp is None else _listen(tcp)
        except BaseException:
            if self._datagrams is not None:
                self._datagrams.close()
            raise
        self._terminal = self._slave = -1
        if terminal:
            self._terminal, self._slave = os.openpty()
            tty.setraw(self._slave)
            os.set_blocking(self._terminal, False)
        self._orders, self._order = os.pipe()
        self._trouble: BaseException | None = None
        self._closed = False
        self._owner = Owner("the port server")
        self._thread = threading.Thread(target=self._serve, name="line server", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int | None:
        """The TCP port."""
        return None if self._listener is None else int(self._listener.getsockname()[1])

    @property
    def udp_port(self) -> int | None:
        """The UDP port."""
        return None if self._datagrams is None else int(self._datagrams.getsockname()[1])

    @property
    def path(self) -> Path | None:
        """Path of the pseudo-terminal, to open as a serial port."""
        return None if self._slave < 0 else Path(os.ttyname(self._slave))

    def disconnect(self) -> None:
        """Close the TCP connection, if there is one; the next one is accepted."""
        self._owner.check_process()
        os.write(self._order, _HANG_UP)

    def stop(self) -> None:
        """Ask the server to end; a signal handler may call this."""
        self._owner.check_process()
        os.write(self._order, _STOP)

    def wait(self) -> None:
        """Wait until the server has ended; raise the error that ended it, if there was one."""
        self._owner.check_process()
        self._thread.join()
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def close(self) -> None:
        """Stop, as if the board were unplugged, and close the port. May be called again."""
        if self._closed:
            return
        self._owner.check_process()
        self._closed = True
        self.stop()
        try:
            self.wait()
        finally:
            self._drop()
            for listening in (self._listener, self._datagrams):
                if listening is not None:
                    listening.close()
            for file in (self._terminal, self._slave, self._orders, self._order):
                if file >= 0:
                    os.close(file)
            self._port.close()

    def _serve(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            self._trouble = error

    def _turn(self) -> bool:
        """Transfer bytes in both directions; return whether to go on."""
        sockets = (self._listener, self._client, self._datagrams)
        ends: list[socket.socket | int] = [end for end in sockets if end is not None]
        ends += [file for file in (self._orders, self._terminal) if file >= 0]
        rests = not self._busy and time.monotonic() > self._awake_until
        ready = select.select(ends, [], [], _REST if rests else 0)[0]
        if self._orders in ready:
            if os.read(self._orders, 1) == _STOP:
                return False
            self._drop()
        heard, datagram = b"", b""
        if self._client in ready:
            heard += self._hear_client()
        if self._datagrams in ready:
            datagram = self._hear_datagram()
        if self._terminal in ready:
            written = os.read(self._terminal, _CHUNK)
            if self._client is None:
                heard += written
        # A client that has gone may have left bytes: the end is seen only after them.
        if self._listener in ready and not (heard and self._client):
            self._accept()
        try:
            if heard:
                self._port.write(heard)
            if datagram and self._transfer and self._datagrams and self._asker:
                self._datagrams.sendto(self._transfer(datagram), self._asker)
            elif datagram:
                (self._ethernet.send if self._ethernet else self._port.write)(datagram)
            said = self._answers()
            self._say(said)
        except PortBroken:
            said = []
            self._broken()
        self._busy = bool(said)
        if heard or datagram or said:
            self._awake_until = time.monotonic() + self._linger
        return True

    def _accept(self) -> None:
        assert self._listener is not None
        client, _ = self._listener.accept()
        if self._client is not None:
            # The first client keeps the port.
            client.close()
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(_WRITE_SECONDS)
        self._client = client

    def _hear_client(self) -> bytes:
        if self._client is None:
            return b""
        try:
            data = self._client.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self._drop()
        return data

    def _hear_datagram(self) -> bytes:
        assert self._datagrams is not None
        try:
            data, self._asker = self._datagrams.recvfrom(_CHUNK)
        except OSError:
            # The last answer found nobody: its program has ended.
            return b""
        return data

    def _answers(self) -> list[bytes]:
        if self._ethernet:
            return self._ethernet.receive(self._span)
        data = self._port.read(self._span)
        return [data] if data else []

    def _say(self, said: list[bytes]) -> None:
        data = b"".join(said)
        if self._datagrams is not None and self._asker is not None and self._transfer is None:
            for datagram in said if self._ethernet else split_datagrams(data):
                self._datagrams.sendto(datagram, self._asker)
        if data and self._client is not None:
            try:
                self._client.sendall(data)
            except OSError:
                self._drop()
        if self._terminal >= 0:
            try:
                while data:
                    data = data[os.write(self._terminal, data) :]
            except BlockingIOError:
                # No program reads, and a serial port does not wait.
                termios.tcflush(self._slave, termios.TCIFLUSH)

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _broken(self) -> None:
        """Drop the client, as if the cable were pulled, and reopen the port."""
        self._drop()
        if self._slave >= 0:
            termios.tcflush(self._slave, termios.TCIOFLUSH)
        while True:
            try:
                self._port.reopen()
                return
            except PortBroken:
                continue


def check_free(tcp: int | None, udp: int | None) -> None:
    """Check the ports before a long work that needs them. Raises ConfigurationError if one is taken."""
    for port, open_port in ((tcp, _listen), (udp, _bind)):
        if port is not None:
            open_port(port).close()


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise _taken("TCP", port, error) from None


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError as error:
        bound.close()
        raise _taken("UDP", port, error) from None
    return bound


def _taken(kind: str, port: int, error: OSError) -> ConfigurationError:
    why = os.strerror(error.errno or 0)
    return ConfigurationError(
        f"{kind} port {port} must be free, but is not ({why}); choose another, or 0 for any"
    )
