"""A bad line: faults put on any other one, at random but repeatably."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterable
from enum import Enum

from rtlstm.host.link.byte_ports import BytePort, PortBroken

__all__ = ["Fault", "FaultInjector", "FaultyPort"]


class Fault(Enum):
    """What can happen to a frame on the link."""

    DROP = "drop"
    FLIP = "flip"
    """1 to 5 bits change."""
    DUPLICATE = "duplicate"
    """It comes again, at once or late."""
    TRUNCATE = "truncate"
    """Its end is lost, perhaps with the zero that ends it."""
    BURST = "burst"
    """Some bytes in a row become others."""
    INSERT = "insert"
    """Bytes come that nobody has sent."""
    PAUSE = "pause"
    """It and all after it wait."""
    DELAY = "delay"
    """It alone waits: others overtake it."""
    DISCONNECT = "disconnect"
    """The line breaks; what is on the way is lost."""


class FaultInjector:
    """Turns the pieces of one direction into what arrives of them.

    Parameters
    ----------
    rate
        Probability of a fault per frame.
    seed
        Makes the faults repeatable.
    faults
        The kinds to choose from; all by default.
    longest
        Longest pause or delay in seconds.
    """

    def __init__(
        self, rate: float, seed: int, faults: Iterable[Fault] = tuple(Fault), longest: float = 0.05
    ) -> None:
        self.counts: Counter[Fault] = Counter()
        """How often each fault has happened."""
        self._rate, self._faults, self._longest = rate, list(faults), longest
        self._random = random.Random(seed)

    def strike(self) -> Fault | None:
        """Decide what happens to the next piece."""
        if self._random.random() >= self._rate:
            return None
        fault = self._random.choice(self._faults)
        self.counts[fault] += 1
        return fault

    def chance(self, count: int) -> int:
        """Return a number below ``count``."""
        return self._random.randrange(count)

    def delay(self) -> float:
        """Return seconds to wait."""
        return self._random.uniform(0, self._longest)

    def apply(self, piece: bytes, fault: Fault | None) -> list[tuple[float, bytes]]:
        """Return what arrives of a piece: seconds to wait and bytes, in order."""
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
    """A line with faults in both directions.

    Parameters
    ----------
    port
        The good line underneath.
    rate
        Probability of a fault per frame, each way.
    seed
        Makes the faults repeatable.
    faults, longest
        See :class:`FaultInjector`.
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
        """Attempts to open the line that will still fail; None while it is open."""

    @property
    def counts(self) -> Counter[Fault]:
        """How often each fault has happened."""
        return self._directions[0].injector.counts + self._directions[1].injector.counts

    def now(self) -> float:
        """Return the time of the line underneath."""
        return self._port.now()

    def write(self, data: bytes) -> None:
        """Send bytes, some of which will get lost."""
        self._check()
        if self._directions[0].push(data, self.now()):
            self._break()
        self._pass_on()

    def read(self, seconds: float) -> bytes:
        """Return what has come, or something like it."""
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
        """Open the line again, which may take several attempts."""
        if self._refusals:
            self._refusals -= 1
            raise PortBroken("there is still no line")
        self._port.reopen()
        self._refusals = None

    def close(self) -> None:
        """Close the line underneath."""
        self._port.close()

    def _pass_on(self) -> None:
        if data := self._directions[0].due(self.now()):
            self._port.write(data)

    def _check(self) -> None:
        if self._refusals is not None:
            raise PortBroken("the line is broken")

    def _break(self) -> None:
        for direction in self._directions:
            direction.clear()
        self._refusals = self._directions[0].injector.chance(3)
        raise PortBroken("the line broke")


class _Direction:
    """One direction: bytes cut into frames, faults, and what waits."""

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
        """When the next bytes are due."""
        return self._waiting[0][0] if self._waiting else float("inf")

    def push(self, data: bytes, now: float) -> bool:
        """Take bytes; return whether the line breaks."""
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
        """Return the bytes whose time has come."""
        data = b""
        while self._waiting and self._waiting[0][0] <= now:
            data += heapq.heappop(self._waiting)[2]
        return data
