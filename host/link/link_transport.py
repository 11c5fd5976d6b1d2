"""A transport to a core at the end of a line: the backends ``serial``, ``tcp``, ``udp`` and ``spi``."""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rtlstm.host.link.byte_ports import BytePort, PortBroken, SerialPort, SpiPort, TcpPort, UdpPort
from rtlstm.host.link.engine import LinkEngine, LinkStatistics, LinkTimeouts
from rtlstm.host.link.framing import Request, StepCodec
from rtlstm.host.raw_values import Steps
from rtlstm.host.transport import Transport, register_words
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import BAUD_RATES, HEADER, READ_LIMIT, UDP_PORT, ErrorCode, FrameType, LinkReport
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import Register

_REOPEN_SECONDS = 0.1
_SPI_MHZ, _MOST_SPI_MHZ = 10.0, 200.0
"""Clock of SPI by default, which every board's link is fast enough for, and the most that is tried."""
_SEARCH = LinkTimeouts(retry=0.1, opening=1.0)
"""Timeouts for a device that may use another baud rate."""

_REFUSALS: dict[int, str] = {
    ErrorCode.TYPE: "does not know this kind of request",
    ErrorCode.LENGTH: "found the request too short or too long",
    ErrorCode.REGISTER: "has no such register",
    ErrorCode.STREAM: "has no such stream, or does not hold its network",
    ErrorCode.DEVICE: "could not do it, because the core or server that the link connects to failed",
}


class _AbsentError(DeviceError):
    """Nothing was received from a device."""


class LinkTransport(Transport):
    """A transport to a core at the other end of a port.

    ``write`` returns when the words have been sent: if the device refuses them, the next call
    raises. ``read`` and ``exchange`` return when the device has answered. A broken port is opened
    again until the timeout, and nothing is lost. After a :class:`~rtlstm.spec.errors.DeviceError` for
    a dead link all further calls raise it again: close the transport and open another. The device
    may have executed steps after the last one that it answered.

    ``port`` is the port; the transport closes it, also if this constructor raises. ``manifest`` is the build
    that the device holds. ``timeouts`` says how long to wait for each kind of answer. ``seed`` makes the
    session repeatable, for tests. Raises DeviceError if no device answers, or it speaks another version of
    the protocol.
    """

    def __init__(
        self,
        port: BytePort,
        manifest: Manifest,
        timeouts: LinkTimeouts | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(manifest)
        self._port = port
        self._closed = False
        self._broken = False
        self._busy = False
        """Whether a call uses the port, or was interrupted while using it."""
        self._trouble: PortBroken | None = None
        """What happened to the port since bytes were last received."""
        self._posted: deque[Request] = deque()
        self._engine = LinkEngine(port.now(), timeouts, seed)
        try:
            self._until(lambda: self._engine.open)
        except BaseException:
            port.close()
            raise
        self._codec = StepCodec(manifest, self.report.limits)
        # Words that fit beside a register's number or in an answer, up to the limit of a READ.
        self._words = min(READ_LIMIT, (self.report.limits.body - HEADER.size - 1) // 4)

    @property
    def report(self) -> LinkReport:
        """The device's description of itself, from when the session was opened."""
        assert self._engine.report is not None
        return self._engine.report

    @property
    def statistics(self) -> LinkStatistics:
        """Counts of requests, responses and errors on the link."""
        return self._engine.statistics

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        """Write 32-bit words to a register, one after the other.

        Raises InputError if a word is out of range. Raises DeviceError if the link is dead, or the device
        refused this or an earlier write.
        """
        data, prefix = register_words(words).astype("<u4"), bytes([register])
        for begin in range(0, len(data), self._words):
            payload = prefix + data[begin : begin + self._words].tobytes()
            self._post([Request(FrameType.WRITE, payload)])
        self._until(lambda: not self._engine.unsent)

    def read(self, register: Register, count: int = 1) -> IntArray:
        """Read a register ``count`` times; 32-bit words as non-negative int64."""
        counts = [min(self._words, count - begin) for begin in range(0, count, self._words)]
        requests = [Request(FrameType.READ, bytes([register, words]), 4 * words) for words in counts]
        data = self._begin([[request] for request in requests])()
        return np.frombuffer(data, dtype="<u4").astype(np.int64)

    def run_steps(self, steps: Steps) -> IntArray:
        """Run checked steps in order; see :meth:`rtlstm.host.transport.Transport.run_steps`.

        As many requests are in progress as the device has space for. If it raises, the device has
        run the steps in order up to some step, perhaps none or all of them.
        """
        return self.begin_steps(steps)()

    def begin_steps(self, steps: Steps) -> Callable[[], IntArray]:
        """Begin checked steps, and return the function that waits for their end and gives the outputs.

        Further steps may be begun before these end; all are run in the order in which they were begun.
        """
        self._busy = True
        finish = self._begin(list(self._codec.encode(steps.streams, steps.x, steps.suppress)))
        self._move(0.0)
        self._busy = False
        return lambda: self._codec.decode(finish(), steps.suppress)

    def adopt(self, manifest: Manifest) -> None:
        """Use another build of the same hardware from now on."""
        self.manifest, self._codec = manifest, StepCodec(manifest, self.report.limits)

    def flush(self) -> None:
        """Wait until the device has accepted all written words. Raises the errors of :meth:`write`."""
        self._until(lambda: not self._posted)

    def close(self) -> None:
        """Wait for written words, if the link works and no call was interrupted; release the port."""
        if self._closed:
            return
        try:
            if not (self._engine.failure or self._busy):
                self.flush()
        finally:
            self._closed = True
            self._port.close()

    def _post(self, chain: list[Request]) -> None:
        self._check()
        self._engine.submit(chain, self._port.now())
        self._posted.extend(chain)

    def _begin(self, chains: list[list[Request]]) -> Callable[[], bytes]:
        """Submit chains; return the function that gives the payloads of their responses."""
        for chain in chains:
            self._post(chain)
        requests = [request for chain in chains for request in chain]

        def finish() -> bytes:
            if requests:
                self._until(lambda: requests[-1].response is not None)
            return b"".join(request.response.payload for request in requests if request.response)

        return finish

    def _until(self, done: Callable[[], bool]) -> None:
        """Keep the link going until ``done``."""
        engine, port = self._engine, self._port
        self._check()
        self._busy = True
        while True:
            self._move(0.0)
            self._settle()
            if done():
                self._busy = False
                return
            deadline = engine.deadline
            self._move(0.0 if deadline is None else deadline - port.now())
            engine.tick(port.now())
            self._check()

    def _check(self) -> None:
        if self._closed:
            raise DeviceError("the link is closed; open it again")
        engine = self._engine
        if engine.failure:
            port = f" ({self._trouble})" if self._trouble else ""
            raise (_AbsentError if engine.absent else DeviceError)(
                f"{engine.failure}{port}; check cable, power and bitstream, and open the device again"
            )

    def _move(self, seconds: float) -> None:
        """Send pending bytes; wait at most ``seconds`` for received ones."""
        engine, port = self._engine, self._port
        try:
            if self._broken:
                port.reopen()
                self._broken = False
                engine.reopened(port.now())
            if data := engine.transmit(port.now()):
                port.write(data)
            if data := port.read(seconds):
                engine.receive(data, port.now())
                self._trouble = None
        except PortBroken as trouble:
            self._broken, self._trouble = True, trouble
            port.pause(min(max(0.0, seconds), _REOPEN_SECONDS))

    def _settle(self) -> None:
        """Drop the requests that were answered. Raises DeviceError if one was refused."""
        while self._posted and (response := self._posted[0].response):
            request = self._posted.popleft()
            if response.type != FrameType.ERROR:
                continue
            code = response.payload[0] if response.payload else 0
            why = _REFUSALS.get(code, f"gave the unknown error code {code}")
            # The other requests of the same call are not needed any more.
            self._posted.clear()
            raise DeviceError(f"the device must take a {request.type.name} request, but it {why}")


_PORTS = " with a port of 1 to 65535"


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) < 1 << 16


def open_tcp(
    folder: Path, manifest: Manifest, argument: str, progress: Progress | None = None
) -> LinkTransport:
    """Open ``tcp:HOST:PORT``.

    Raises ConfigurationError if ``argument`` is no host and port. Raises DeviceError if no device answers.
    """
    host, _, port = argument.rpartition(":")
    if not host or not _is_port(port):
        raise ConfigurationError(f"what follows 'tcp:' must be HOST:PORT{_PORTS}, not {argument!r}")
    return LinkTransport(TcpPort(host.strip("[]"), int(port)), manifest)


def open_udp(
    folder: Path, manifest: Manifest, argument: str, progress: Progress | None = None
) -> LinkTransport:
    """Open ``udp:HOST`` or ``udp:HOST:PORT``.

    Raises ConfigurationError if ``argument`` is no host, or no host and port. Raises DeviceError if no device
    answers.
    """
    host, colon, port = argument.partition(":")
    if not host or (colon and not _is_port(port)):
        raise ConfigurationError(f"what follows 'udp:' must be HOST or HOST:PORT{_PORTS}, not {argument!r}")
    return LinkTransport(UdpPort(host, int(port) if port else UDP_PORT), manifest)


def open_spi(
    folder: Path, manifest: Manifest, argument: str, progress: Progress | None = None
) -> LinkTransport:
    """Open ``spi:DEVICE`` or ``spi:DEVICE@MHZ``.

    Raises ConfigurationError if ``argument`` is no device, or the clock is no number above 0. Raises
    DeviceError if it cannot be opened, or no device answers.
    """
    path, _, clock = argument.partition("@")
    try:
        mhz = float(clock) if "@" in argument else _SPI_MHZ
    except ValueError:
        mhz = 0.0
    if not path or not 0 < mhz <= _MOST_SPI_MHZ:
        raise ConfigurationError(
            f"what follows 'spi:' must be DEVICE or DEVICE@MHZ, such as /dev/spidev0.0@10, not {argument!r}"
        )
    return LinkTransport(SpiPort(path, mhz), manifest)


def open_serial(
    folder: Path, manifest: Manifest, argument: str, progress: Progress | None = None
) -> LinkTransport:
    """Open ``serial:PORT`` or ``serial:PORT@BAUD``; without a rate, try the usual ones.

    Raises ConfigurationError if ``argument`` names no port, or a rate that the port does not support. Raises
    DeviceError if the port cannot be opened or no device answers.
    """
    port, _, baud = argument.rpartition("@") if "@" in argument else (argument, "", "")
    if not port or (baud and not baud.isdecimal()) or ("@" in argument and not baud):
        raise ConfigurationError(
            f"what follows 'serial:' must be PORT or PORT@BAUD, such as /dev/ttyUSB0@115200, not {argument!r}"
        )
    if baud:
        return LinkTransport(SerialPort(port, int(baud)), manifest)
    for rate in BAUD_RATES:
        try:
            return LinkTransport(SerialPort(port, rate), manifest, _SEARCH)
        except _AbsentError:
            continue
    raise DeviceError(
        f"an rtlstm device must answer on {port}, but none does at {', '.join(map(str, BAUD_RATES))} baud; "
        "check cable, power and bitstream, and that no other program is using the device, or give its rate "
        "with serial:PORT@BAUD"
    )
