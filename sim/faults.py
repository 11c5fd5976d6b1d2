"""Faults in a connection, at random but repeatable, for any serial port."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterable
from enum import Enum

from rtlstm.host.link.byte_ports import BytePort, PortBroken


class Fault(Enum):
    """What can happen to a frame on the link."""

    DROP = "drop"
    FLIP = "flip"
    """1 to 5 bits change."""
    DUPLICATE = "duplicate"
    """The frame comes a second time, at once or later."""
    TRUNCATE = "truncate"
    """The frame's end is lost, perhaps with its terminating zero."""
    BURST = "burst"
    """A run of bytes is overwritten with random ones."""
    INSERT = "insert"
    """Random bytes are inserted."""
    PAUSE = "pause"
    """The frame and all that follow are delayed."""
    DELAY = "delay"
    """The frame alone is delayed: others overtake it."""
    DISCONNECT = "disconnect"
    """The connection breaks; frames in transfer are lost."""


class FaultInjector:
    """Applies faults to the frames of one direction.

    ``rate`` is the probability of a fault per frame. ``seed`` makes the faults repeatable. ``faults`` are the
    kinds to choose from; all by default. ``longest`` is the longest pause or delay in seconds.
    """

    def __init__(
        self, rate: float, seed: int, faults: Iterable[Fault] = tuple(Fault), longest: float = 0.05
    ) -> None:
        self.counts: Counter[Fault] = Counter()
        """How often each fault has happened."""
        self._rate, self._faults, self._longest = rate, list(faults), longest
        self._random = random.Random(seed)

    def strike(self) -> Fault | None:
        """Choose the fault of the next frame; None for no fault."""
        if self._random.random() >= self._rate:
            return None
        fault = self._random.choice(self._faults)
        self.counts[fault] += 1
        return fault

    def chance(self, count: int) -> int:
        """Return a number below ``count``."""
        return self._random.randrange(count)

    def delay(self) -> float:
        """Return a random delay in seconds."""
        return self._random.uniform(0, self._longest)

    def apply(self, piece: bytes, fault: Fault | None) -> list[tuple[float, bytes]]:
        """Return what arrives of a frame: pairs of a delay in seconds and bytes, in order."""
        if fault is Fault.DROP:
            return []
        if fault is Fault.DUPLICATE:
            return [(0.0, piece), (self.delay() * self.chance(2), piece)]
        if fault in (Fault.PAUSE, Fault.DELAY):
            return [(self.delay(), piece)]
        if fault is Fault.TRUNCATE:
            return [(0.0, piece[: self.chance(len(piece))] + b"\0" * self.chance(2))]
        return [(0.0, self._changed(bytearray(piece), fault))]

    def _changed(self, data: bytearray, fault: Fault | None) -> bytes:
        if fault is Fault.FLIP:
            for position in self._random.sample(range(8 * len(data)), min(8 * len(data), 1 + self.chance(5))):
                data[position // 8] ^= 1 << position % 8
        elif fault is Fault.BURST:
            begin = self.chance(len(data))
            end = min(len(data), begin + 2 + self.chance(40))
            data[begin:end] = self._random.randbytes(end - begin)
        elif fault is Fault.INSERT:
            begin = self.chance(len(data) + 1)
            data[begin:begin] = self._random.randbytes(1 + self.chance(20)) + b"\0" * self.chance(2)
        return bytes(data)


class FaultyPort:
    """A serial port with faults in both directions.

    ``port`` is the port without faults. ``rate`` is the probability of a fault per frame, each way. ``seed``
    makes the faults repeatable. For ``faults`` and ``longest``, see :class:`FaultInjector`.
    """

    def __init__(
        self,
        port: BytePort,
        rate: float,
        seed: int,
        faults: Iterable[Fault] = tuple(Fault),
        longest: float = 0.05,
    ) -> None:
        self._port = port
        kinds = tuple(faults)
        self._directions = [
            _Direction(FaultInjector(rate, 2 * seed + direction, kinds, longest)) for direction in (0, 1)
        ]
        self._refusals: int | None = None
        """How many attempts to reopen the port will still fail; None while it is open."""

    @property
    def counts(self) -> Counter[Fault]:
        """How often each fault has happened."""
        return self._directions[0].injector.counts + self._directions[1].injector.counts

    def now(self) -> float:
        """Return the time of the port without faults."""
        return self._port.now()

    def write(self, data: bytes) -> None:
        """Send bytes; faults apply to their frames."""
        self._check()
        if self._directions[0].push(data, self.now()):
            self._break()
        self._pass_on()

    def read(self, seconds: float) -> bytes:
        """Return the bytes that have come, with faults."""
        self._check()
        up, down = self._directions
        end = self.now() + max(0.0, seconds)
        while not (data := down.due(self.now())):
            rest = min(end, up.next, down.next) - self.now()
            came = self._port.read(max(0.0, rest))
            if came and down.push(came, self.now()):
                self._break()
            self._pass_on()
            if not came and self.now() >= end:
                return down.due(self.now())
        return data

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self._port.pause(seconds)

    def reopen(self) -> None:
        """Reopen the port, which may take several attempts."""
        if self._refusals:
            self._refusals -= 1
            raise PortBroken("the connection is still broken; open it again")
        self._port.reopen()
        self._refusals = None

    def close(self) -> None:
        """Close the port without faults."""
        self._port.close()

    def _pass_on(self) -> None:
        if data := self._directions[0].due(self.now()):
            self._port.write(data)

    def _check(self) -> None:
        if self._refusals is not None:
            raise PortBroken("the connection is broken; open it again")

    def _break(self) -> None:
        for direction in self._directions:
            direction.clear()
        self._refusals = self._directions[0].injector.chance(3)
        raise PortBroken("the connection broke; open it again")


class _Direction:
    """One direction: cuts bytes into frames, applies faults, and keeps delayed frames."""

    def __init__(self, injector: FaultInjector) -> None:
        self.injector = injector
        self._order = itertools.count()
        self.clear()

    def clear(self) -> None:
        self._rest = b""
        self._open_at = 0.0
        self._waiting: list[tuple[float, int, bytes]] = []

    @property
    def next(self) -> float:
        return self._waiting[0][0] if self._waiting else float("inf")

    def push(self, data: bytes, now: float) -> bool:
        """Take bytes; return whether the connection breaks."""
        *ended, self._rest = (self._rest + data).split(b"\0")
        for frame in ended:
            fault = self.injector.strike()
            if fault is Fault.DISCONNECT:
                return True
            for delay, piece in self.injector.apply(frame + b"\0", fault):
                due = max(now, self._open_at) + delay
                if fault is Fault.PAUSE:
                    self._open_at = due
                heapq.heappush(self._waiting, (due, next(self._order), piece))
        return False

    def due(self, now: float) -> bytes:
        data = b""
        while self._waiting and self._waiting[0][0] <= now:
            data += heapq.heappop(self._waiting)[2]
        return data
