"""A host on the cable of a simulated board with Ethernet: bytes of the link in, frames on the wire out."""

import ipaddress
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from rtlstm.host.link.byte_ports import split_datagrams
from rtlstm.sim.simulated_board import BoardPort, NativeBoard
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.link import UDP_PORT

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

    Its time is the board's: simulated time passes only in ``read`` and ``pause``.

    Parameters
    ----------
    ip, port
        The board's.
    host
        The host's IP address; by default another one of the same net.

    Raises
    ------
    DeviceError
        If the board does not answer ARP.
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
