"""A line in memory, with a clock of its own, between a host and a :class:`DeviceEngine`."""

import heapq
import itertools
from collections.abc import Callable
from functools import partial

from rtlstm.sim.link_device import DeviceEngine

__all__ = ["SimulatedPort"]

_BITS = 10
"""Bits on the line for a byte: start, eight of data, stop."""


class SimulatedPort:
    """Both directions of a serial line, byte by byte in time, but not in effort.

    Time passes only while the host reads or pauses. The device works in no time.

    Parameters
    ----------
    device
        What is at the other end.
    baud
        Bits per second; infinite by default.
    latency
        Seconds that every byte takes besides, each way: a USB adapter's, say.
    """

    def __init__(self, device: DeviceEngine, baud: float = float("inf"), latency: float = 0.0) -> None:
        self.device = device
        self.busy_seconds = [0.0, 0.0]
        """How long each direction carried bytes: to the device, from it."""
        self._byte = _BITS / baud
        self._latency = latency
        self._now = 0.0
        self._free = [0.0, 0.0]
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._inbox = bytearray()
        self._sending = False

    def now(self) -> float:
        """Return the line's time in seconds."""
        return self._now

    def write(self, data: bytes) -> None:
        """Send bytes to the device."""
        # Each frame is complete in its own time.
        begin = 0
        while begin < len(data):
            end = data.find(0, begin) + 1 or len(data)
            piece = data[begin:end]
            self._carry(0, len(piece), partial(self._arrive, piece))
            begin = end

    def read(self, seconds: float) -> bytes:
        """Return what has come, waiting for so long for the first byte."""
        end = self._now + max(0.0, seconds)
        while not self._inbox and self._events and self._events[0][0] <= end:
            self._now, _, happens = heapq.heappop(self._events)
            happens()
        if not self._inbox:
            self._now = end
        data = bytes(self._inbox)
        self._inbox.clear()
        return data

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        end = self._now + seconds
        while self._events and self._events[0][0] <= end:
            self._now, _, happens = heapq.heappop(self._events)
            happens()
        self._now = end

    def reopen(self) -> None:
        """Lose what is on the way."""
        self._events.clear()
        self._inbox.clear()
        self._free = [self._now, self._now]
        self._sending = False

    def close(self) -> None:
        """Do nothing."""

    def _carry(self, direction: int, count: int, happens: Callable[[], None]) -> None:
        duration = count * self._byte
        self._free[direction] = max(self._now, self._free[direction]) + duration
        self.busy_seconds[direction] += duration
        self._at(self._free[direction] + self._latency, happens)

    def _at(self, time: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), happens))

    def _arrive(self, data: bytes) -> None:
        self.device.receive(data)
        while self.device.work():
            pass
        if not self._sending:
            self._send()

    def _send(self) -> None:
        """Put the device's next frame on the line; come back when it has left."""
        frame = self.device.transmit()
        self._sending = bool(frame)
        if frame:
            self._carry(1, len(frame), lambda: self._inbox.extend(frame))
            self._at(self._free[1], self._send)
