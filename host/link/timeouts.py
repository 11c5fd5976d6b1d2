"""How long the host waits."""

from dataclasses import dataclass

__all__ = ["LinkTimeouts", "RetryTimer"]


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
