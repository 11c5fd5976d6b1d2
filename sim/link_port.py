"""A simulated serial port, with simulated time, between a host and a :class:`DeviceEngine`."""

import heapq
import itertools
from collections.abc import Callable
from functools import partial

from rtlstm.sim.link_device import DeviceEngine

_BITS = 10
"""Bits that are sent for a byte: start, eight of data, stop."""


class SimulatedPort:
    """A simulated serial port: every byte takes its time, but no computation.

    Time passes only while the host reads or pauses. The device itself takes no time.

    Parameters
    ----------
    device
        The device at the other end.
    baud
        Bits per second; infinite by default.
    latency
        Seconds that every byte takes in addition, each way, such as those of a USB adapter.
    """

    def __init__(self, device: DeviceEngine, baud: float = float("inf"), latency: float = 0.0) -> None:
        self.device = device
        self.busy_seconds = [0.0, 0.0]
        """Seconds in which each direction carried bytes: to the device, from it."""
        self._byte = _BITS / baud
        self._latency = latency
        self._now = 0.0
        self._free = [0.0, 0.0]
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._inbox = bytearray()
        self._sending = False

    def now(self) -> float:
        """Return the simulated time in seconds."""
        return self._now

    def write(self, data: bytes) -> None:
        """Send bytes to the device."""
        # Frames arrive one after the other, each when its last byte has been sent.
        begin = 0
        while begin < len(data):
            end = data.find(0, begin) + 1 or len(data)
            piece = data[begin:end]
            self._carry(0, len(piece), partial(self._arrive, piece))
            begin = end

    def read(self, seconds: float) -> bytes:
        """Return the bytes that have come; wait up to ``seconds`` for the first one."""
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
        """Reopen the port: bytes in transfer are lost."""
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
        """Send the device's next frame; called again when the frame has been sent."""
        frame = self.device.transmit()
        self._sending = bool(frame)
        if frame:
            self._carry(1, len(frame), lambda: self._inbox.extend(frame))
            self._at(self._free[1], self._send)
