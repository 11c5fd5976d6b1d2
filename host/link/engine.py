"""The host's side of the protocol: bytes and times in, bytes out. It opens no port and reads no clock."""

import random
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from rtlstm.host.link.framing import Deframer, Frame, Request
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.link import LINK_VERSION, SEQUENCE, FrameType, Limits, LinkReport


class SendWindow:
    """The host's queue of requests, of which the device may hold as many as its limits allow.

    The bound holds for the requests from the first without response to the last one sent: the
    device takes that acknowledgement with every request, before it looks for room.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._base = 0
        self._accepted = self._marked = 0
        self.first = self.repeated = 0
        """Requests sent for the first time, and once more."""
        self._sent: deque[Request] = deque()
        self._unsent: deque[Request] = deque()
        self._request_bytes = self._response_bytes = 0

    @property
    def ack(self) -> int:
        """Number of the first request without response."""
        return self._base % SEQUENCE

    @property
    def outstanding(self) -> int:
        """Requests sent that have no response yet."""
        return len(self._sent)

    @property
    def unsent(self) -> int:
        """Requests that wait for space."""
        return len(self._unsent)

    def submit(self, chain: Sequence[Request]) -> None:
        """Queue requests that the device executes together.

        Raises ConfigurationError if the device can never hold them.
        """
        limits = self.limits
        needs = (
            sum(request.body_bytes for request in chain),
            sum(request.response_bytes for request in chain),
            len(chain),
            max(max(request.body_bytes, request.response_bytes) for request in chain),
        )
        has = (limits.request_bytes, limits.response_bytes, limits.frames, limits.body)
        if any(need > limit for need, limit in zip(needs, has, strict=True)):
            raise ConfigurationError(
                "a request must fit in the device's link memory of "
                f"{has[0]} and {has[1]} bytes, {has[2]} frames of {has[3]} bytes, but it needs "
                f"{needs[0]} and {needs[1]} bytes, {needs[2]} frames of {needs[3]}; "
                "load a bitstream that was made for this build"
            )
        self._unsent.extend(chain)

    def send(self, session: int, now: float) -> Iterator[Frame]:
        """Yield the frames of all requests that there is space for."""
        limits = self.limits
        while self._unsent and len(self._sent) < limits.frames:
            request = self._unsent[0]
            requests = self._request_bytes + request.body_bytes
            responses = self._response_bytes + request.response_bytes
            if requests > limits.request_bytes or responses > limits.response_bytes:
                return
            self._request_bytes, self._response_bytes = requests, responses
            seq = (self._base + len(self._sent)) % SEQUENCE
            self._sent.append(self._unsent.popleft())
            request.sendings += 1
            if request.sendings == 1:
                request.sent_at = now
                self.first += 1
            else:
                self.repeated += 1
            yield Frame(request.type, session, seq, self.ack, request.payload)

    def take_ack(self, ack: int) -> None:
        """Record that the device has accepted the requests before ``ack``."""
        offset = (ack - self._base) % SEQUENCE
        if offset <= len(self._sent):
            self._accepted = max(self._accepted, self._base + offset)

    def mark(self) -> None:
        """Remember the requests sent so far: the device is asked which of them it has accepted."""
        self._marked = self._base + len(self._sent)

    def go_back(self, ack: int, asked: bool) -> None:
        """Send the requests from ``ack`` on again: the device has not accepted them.

        If the device was ``asked``, its answer covers requests sent before the last :meth:`mark`; otherwise
        it reports a gap because requests after ``ack`` have arrived.
        """
        first = self._base + (ack - self._base) % SEQUENCE
        if first < self._accepted or (asked and first >= self._marked):
            return
        self._marked = first
        while self._base + len(self._sent) > first:
            request = self._sent.pop()
            self._request_bytes -= request.body_bytes
            self._response_bytes -= request.response_bytes
            self._unsent.appendleft(request)

    def deliver(self, frame: Frame) -> Request | None:
        """Store a response with its request, if it is the next one due; return that request."""
        if frame.seq != self.ack:
            return None
        if self._sent:
            request = self._sent.popleft()
            self._request_bytes -= request.body_bytes
            self._response_bytes -= request.response_bytes
        elif self._unsent and self._unsent[0].sendings:
            # It was queued to be sent again, but had arrived in the meantime.
            request = self._unsent.popleft()
        else:
            return None
        self._base += 1
        self._accepted = max(self._accepted, self._base)
        request.response = frame
        return request

    def expects_later(self, seq: int) -> bool:
        """Whether a response with this number is due, but not the next."""
        return 0 < (seq - self._base) % SEQUENCE < len(self._sent)


_HELLO = struct.Struct("<BH")


@dataclass(frozen=True, kw_only=True)
class LinkTimeouts:
    """Times in seconds."""

    retry: float = 0.25
    """Wait before the host asks again, until it has measured a round trip."""
    least_retry: float = 0.02
    most_retry: float = 1.0
    opening: float = 3.0
    """Wait for a first frame of the device before it counts as absent."""
    silence: float = 3.0
    """Wait for any frame of the device before the link counts as dead."""
    stall: float = 60.0
    """Wait for a response to a request, if the device sends other frames."""


class RetryTimer:
    """How long to wait for a response: mean and deviation of round trips, doubled at each retry.

    The rule is TCP's (RFC 6298); requests that were sent twice are not counted.
    """

    def __init__(self, timeouts: LinkTimeouts) -> None:
        self._timeouts = timeouts
        self._mean: float | None = None
        self._deviation = 0.0
        self._factor = 1.0

    @property
    def interval(self) -> float:
        """Seconds to wait."""
        timeouts = self._timeouts
        base = timeouts.retry
        if self._mean is not None:
            base = max(timeouts.least_retry, self._mean + 4 * self._deviation)
        return min(timeouts.most_retry, base * self._factor)

    def measured(self, seconds: float) -> None:
        """Record the time of a round trip."""
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
        self._deviation += (abs(seconds - self._mean) - self._deviation) / 4
        self._mean += (seconds - self._mean) / 8

    def progressed(self) -> None:
        """Record that a response came."""
        self._factor = 1.0

    def expired(self) -> None:
        """Double the next wait, because no response came."""
        self._factor = min(64.0, self._factor * 2)


@dataclass
class LinkStatistics:
    """Counts of requests, responses and errors on the link."""

    bytes_sent: int = 0
    bytes_received: int = 0
    requests: int = 0
    """Requests sent for the first time."""
    repeated: int = 0
    """Requests sent again."""
    responses: int = 0
    """Responses accepted."""
    surplus: int = 0
    """Duplicate responses, and responses that came too early."""
    damaged: int = 0
    """Damaged frames received."""
    resumed: int = 0
    """How many times the host asked for the device's status."""
    reopened: int = 0
    """How many times the port was opened again."""


class _Phase(Enum):
    QUERY = auto()
    """Asks the device for its session."""
    SWAP = auto()
    """Asks it to take the host's."""
    OPEN = auto()
    FAILED = auto()


class LinkEngine:
    """One session with a device.

    The caller passes received bytes to :meth:`receive`, sends what :meth:`transmit` returns, and calls
    :meth:`tick` at :attr:`deadline` at the latest. Times are seconds of any clock that never decreases.
    ``timeouts`` says how long to wait for each kind of answer. ``seed`` makes session and numbers repeatable,
    for tests; from the system's entropy if None.
    """

    def __init__(self, now: float, timeouts: LinkTimeouts | None = None, seed: int | None = None) -> None:
        self.failure = ""
        """Why the session is over; empty while it is not."""
        self.report: LinkReport | None = None
        """The device's description of itself, once the session is open."""
        self._timeouts = timeouts or LinkTimeouts()
        self._timer = RetryTimer(self._timeouts)
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()
        self._session = self._random.randrange(1, SEQUENCE)
        self._nonce = self._random.randrange(1, SEQUENCE)
        self._awaited = False
        """Whether the last unnumbered frame has no answer yet."""
        self._offered = False
        """Whether the device was asked to join the session."""
        self._gap = False
        """Whether a response has been missing since the last accepted one."""
        self._phase = _Phase.QUERY
        self._window: SendWindow | None = None
        self._deframer = Deframer()
        self._statistics = LinkStatistics()
        self._control: list[Frame] = []
        self._prefix = b"\0"
        """Ends an incomplete frame that an earlier program may have sent."""
        self._begun = self._heard = self._progress = self._asked = now
        self._ask(now)

    @property
    def absent(self) -> bool:
        """Whether nothing has been received from the device yet."""
        return self._heard == self._begun

    @property
    def open(self) -> bool:
        """Whether the device has joined the session."""
        return self._phase is _Phase.OPEN

    @property
    def idle(self) -> bool:
        """Whether the engine waits for nothing."""
        return self._phase is _Phase.OPEN and not self._requests.outstanding + self._requests.unsent

    @property
    def unsent(self) -> int:
        """Requests that wait for space in the device."""
        return self._requests.unsent

    @property
    def statistics(self) -> LinkStatistics:
        """Counts since the beginning."""
        statistics = self._statistics
        statistics.damaged = self._deframer.dropped
        if self._window:
            statistics.requests, statistics.repeated = self._window.first, self._window.repeated
        return statistics

    @property
    def deadline(self) -> float | None:
        """When :meth:`tick` must be called; None if nothing is to be done before bytes arrive."""
        if self._phase is _Phase.FAILED or self.idle:
            return None
        return min(self._asked + self._timer.interval, self._heard + self._silence)

    @property
    def _silence(self) -> float:
        return self._timeouts.silence if self._phase is _Phase.OPEN else self._timeouts.opening

    @property
    def _requests(self) -> SendWindow:
        assert self._window is not None, "the session is not open"
        return self._window

    def submit(self, chain: Sequence[Request], now: float) -> None:
        """Queue requests that the device executes together; see :meth:`SendWindow.submit`."""
        if self.idle:
            self._heard = self._progress = self._asked = now
        self._requests.submit(chain)

    def transmit(self, now: float) -> bytes:
        """Return the bytes to be sent now."""
        frames, self._control = self._control, []
        statistics = self._statistics
        if self._phase is _Phase.OPEN:
            was_silent = not self._requests.outstanding
            requests = list(self._requests.send(self._session, now))
            if requests and was_silent:
                self._asked = now
            frames += requests
        data = b"".join(frame.to_wire() for frame in frames)
        if data:
            data, self._prefix = self._prefix + data, b""
        statistics.bytes_sent += len(data)
        return data

    def receive(self, data: bytes, now: float) -> None:
        """Process received bytes."""
        self._statistics.bytes_received += len(data)
        for frame in self._deframer.feed(data):
            if frame.type in (FrameType.REPORT, FrameType.LOST):
                self._take_report(frame, now)
            elif frame.type in (FrameType.DONE, FrameType.ERROR):
                self._take_response(frame, now)

    def reopened(self, now: float) -> None:
        """Ask for the device's status after the port was opened again."""
        self._statistics.reopened += 1
        self._deframer.reset()
        self._prefix = b"\0"
        if self._phase is not _Phase.FAILED:
            self._ask(now)

    def tick(self, now: float) -> None:
        """Ask again or give up, where a timeout has expired."""
        if self._phase is _Phase.FAILED or self.idle:
            return
        if now >= self._heard + self._silence:
            self._fail(
                f"the device must answer, but nothing was received from it for {now - self._heard:.1f} s"
            )
        elif now >= self._progress + self._timeouts.stall:
            self._fail(
                f"the device must finish its work, but it has answered no request for "
                f"{now - self._progress:.1f} s, although the link works"
            )
        elif now >= self._asked + self._timer.interval:
            self._timer.expired()
            self._ask(now)

    def _fail(self, why: str) -> None:
        self._phase, self.failure = _Phase.FAILED, why

    def _ask(self, now: float) -> None:
        session = self._session if self._phase is _Phase.OPEN else 0
        if self._phase is _Phase.SWAP:
            self._phase = _Phase.QUERY
        elif self._phase is _Phase.OPEN:
            self._statistics.resumed += 1
            self._requests.mark()
        self._send_control(FrameType.RESUME, session, now)

    def _send_control(self, type: FrameType, session: int, now: float, payload: bytes = b"") -> None:
        self._nonce = self._nonce % (SEQUENCE - 1) + 1
        self._asked, self._awaited = now, True
        ack = self._requests.ack if self._phase is _Phase.OPEN else 0
        # A question that has not been sent yet is obsolete.
        self._control = [Frame(type, session, self._nonce, ack, payload)]

    def _take_report(self, frame: Frame, now: float) -> None:
        try:
            report = LinkReport.from_bytes(frame.payload)
        except struct.error:
            return
        answers = self._awaited and frame.seq == self._nonce
        if self._phase is _Phase.OPEN:
            if frame.session == self._session:
                self._take_standing(frame, answers, now)
        elif answers:
            self._take_opening(frame, report, now)

    def _take_opening(self, frame: Frame, report: LinkReport, now: float) -> None:
        self._heard, self._awaited = now, False
        if report.version != LINK_VERSION:
            self._fail(
                f"the device must speak version {LINK_VERSION} of the link's protocol, but it speaks "
                f"version {report.version}; load a bitstream made by this rtlstm"
            )
        elif self._offered and report.session == self._session:
            self.report, self._window, self._phase = report, SendWindow(report.limits), _Phase.OPEN
            self._timer.progressed()
        elif self._phase is _Phase.QUERY:
            self._phase, self._offered = _Phase.SWAP, True
            while self._session == report.session:
                self._session = self._random.randrange(1, SEQUENCE)
            hello = _HELLO.pack(LINK_VERSION, report.session)
            self._send_control(FrameType.HELLO, self._session, now, hello)
        else:
            self._ask(now)

    def _take_standing(self, frame: Frame, answers: bool, now: float) -> None:
        if frame.type == FrameType.LOST:
            if answers:
                self._fail(
                    "the device must stay in this program's session, but it was reset, or another "
                    "program has opened it"
                )
            return
        self._heard = now
        window = self._requests
        window.take_ack(frame.ack)
        if answers or frame.seq == 0:
            window.go_back(frame.ack, answers)
        if answers:
            self._awaited = False
            self._asked = now

    def _take_response(self, frame: Frame, now: float) -> None:
        if self._phase is not _Phase.OPEN or frame.session != self._session:
            return
        window, statistics = self._requests, self._statistics
        self._heard = now
        window.take_ack(frame.ack)
        request = window.deliver(frame)
        if request is not None:
            statistics.responses += 1
            if request.sendings == 1:
                self._timer.measured(now - request.sent_at)
            self._timer.progressed()
            self._progress = self._asked = now
            self._gap = False
            return
        statistics.surplus += 1
        if window.expects_later(frame.seq) and not self._gap:
            self._gap = True
            self._ask(now)
