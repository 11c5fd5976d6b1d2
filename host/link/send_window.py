"""Requests in progress: which may be sent, which must be sent again, and their responses."""

from collections import deque
from collections.abc import Iterator, Sequence

from rtlstm.host.link.framing import Frame, Request
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.link import SEQUENCE, Limits


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

        Raises
        ------
        ConfigurationError
            If the device can never hold them.
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
