"""Simulated lines: a serial port between a host and a :class:`DeviceEngine`, and a cable of Ethernet."""

import heapq
import ipaddress
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from rtlstm.host.link.byte_ports import split_datagrams
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.simulated_board import BoardPort, NativeBoard
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.link import UDP_PORT

_BITS = 10
"""Bits that are sent for a byte: start, eight of data, stop."""


class SimulatedPort:
    """A simulated serial port: every byte takes its time, but no computation.

    Time passes only while the host reads or pauses. The device itself takes no time. ``device`` is the device
    at the other end. ``baud`` is bits per second; infinite by default. ``latency`` is the time in seconds
    that every byte takes in addition, each way, such as that of a USB adapter.
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


PREAMBLE: Final = b"\x55" * 7 + b"\xd5"
BROADCAST: Final = b"\xff" * 6
_ARP, _IP = 0x0806, 0x0800
_SHORTEST = 60
"""Bytes of a frame without its checksum."""
_RESOLVE_SECONDS = 0.001
_ETHERNET, _IPV4, _UDP = struct.Struct(">6s6sH"), struct.Struct(">BBHHHBBHII"), struct.Struct(">HHHH")
_ARP_BODY = struct.Struct(">HHBBH6sI6sI")


def ethernet_frame(target: bytes, source: bytes, kind: int, payload: bytes) -> bytes:
    """Return a frame as it is on the wire, from its preamble to its checksum."""
    body = (_ETHERNET.pack(target, source, kind) + payload).ljust(_SHORTEST, b"\0")
    return PREAMBLE + body + zlib.crc32(body).to_bytes(4, "little")


def ip_packet(source: int, target: int, protocol: int, payload: bytes) -> bytes:
    """Return an IPv4 packet."""
    head = [0x45, 0, _IPV4.size + len(payload), 0, 0, 64, protocol, 0, source, target]
    total = sum(struct.unpack(">10H", _IPV4.pack(*head)))
    total = (total & 0xFFFF) + (total >> 16)
    head[7] = ~(total + (total >> 16)) & 0xFFFF
    return _IPV4.pack(*head) + payload


class EthernetPort(BoardPort):
    """A board's Ethernet as a :class:`~rtlstm.host.link.byte_ports.BytePort`, by a host on its cable.

    Its time is the board's: simulated time passes only in ``read`` and ``pause``. ``ip`` and ``port`` are the
    board's. ``host`` is the host's IP address; by default it is another one of the same net. Raises
    DeviceError if the board does not answer ARP.
    """

    def __init__(self, board: NativeBoard, ip: str, port: int = UDP_PORT, host: str | None = None) -> None:
        super().__init__(board)
        self._ip, self._port, self._own_port = int(ipaddress.IPv4Address(ip)), port, 40000
        other = (self._ip & ~0xFF) | (2 if self._ip & 0xFF == 1 else 1)
        self._host = other if host is None else int(ipaddress.IPv4Address(host))
        self._mac, self._own_mac = b"", bytes([2, 1, *self._host.to_bytes(4, "big")])
        self.damaged = 0
        """Frames of the board whose checksum was wrong."""
        self._board.send(self._arp(1, BROADCAST, b"\0" * 6, self._ip))
        end = self.now() + _RESOLVE_SECONDS
        while not self._mac:
            if self.now() > end:
                raise DeviceError(f"the board must answer ARP for {ip}, but does not")
            self.read(end - self.now())

    def write(self, data: bytes) -> None:
        """Send bytes to the board, in datagrams of whole frames."""
        for datagram in split_datagrams(data):
            self.send(datagram)

    def send(self, datagram: bytes) -> None:
        """Send a datagram to the board."""
        head = _UDP.pack(self._own_port, self._port, _UDP.size + len(datagram), 0)
        packet = ip_packet(self._host, self._ip, 17, head + datagram)
        self._board.send(ethernet_frame(self._mac, self._own_mac, _IP, packet))

    def read(self, seconds: float) -> bytes:
        """Return what has come in datagrams; if nothing has, run the board for up to ``seconds``."""
        return b"".join(self.receive(seconds))

    def receive(self, seconds: float) -> list[bytes]:
        """Return the datagrams that have come, likewise."""
        end = self.now() + seconds
        while True:
            found = [data for data in map(self._take, self._frames(end - self.now())) if data]
            if found or self.now() >= end:
                return found

    def pause(self, seconds: float) -> None:
        """Run the board; what it sends to the link meanwhile is lost."""
        end = self.now() + seconds
        while self.now() < end:
            self.read(end - self.now())

    def _frames(self, seconds: float) -> Iterator[bytes]:
        """Run the board, and yield the frames that it sends, without preamble and checksum."""
        found = self._board.run(self._cycles(seconds))
        while found:
            size = int.from_bytes(found[:2], "little")
            frame, found = found[2 : 2 + size], found[2 + size :]
            body, check = frame[len(PREAMBLE) : -4], frame[-4:]
            if frame.startswith(PREAMBLE) and zlib.crc32(body).to_bytes(4, "little") == check:
                yield body
            else:
                self.damaged += 1

    def _take(self, frame: bytes) -> bytes:
        """Answer ARP; return the bytes of a datagram to this host."""
        _, _, kind = _ETHERNET.unpack_from(frame)
        payload = frame[_ETHERNET.size :]
        if kind == _ARP:
            _, _, _, _, asks, mac, ip, _, target = _ARP_BODY.unpack_from(payload)
            if asks == 1 and target == self._host:
                self._board.send(self._arp(2, mac, mac, ip))
            elif asks == 2 and ip == self._ip:
                self._mac = mac
            return b""
        if kind != _IP:
            return b""
        _, _, size, _, _, _, protocol, _, _, target = _IPV4.unpack_from(payload)
        source_port, port, _, _ = _UDP.unpack_from(payload, _IPV4.size)
        mine = (protocol, target, source_port, port) == (17, self._host, self._port, self._own_port)
        return payload[_IPV4.size + _UDP.size : size] if mine else b""

    def _arp(self, operation: int, to: bytes, mac: bytes, ip: int) -> bytes:
        body = _ARP_BODY.pack(1, _IP, 6, 4, operation, self._own_mac, self._host, mac, ip)
        return ethernet_frame(to, self._own_mac, _ARP, body)
