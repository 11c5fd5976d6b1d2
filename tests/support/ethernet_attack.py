"""Attacks a simulated board at its Ethernet pins, during a session, as one who knows the protocol.

``python tests/support/ethernet_attack.py BUILD [--seconds N] [--seed N]``: the board must answer the host
with the golden model's results all the time. Attackers have addresses of their own, or send in the host's
name what a session must survive: all but whole frames with its session's number, and answers to ARP.
"""

import argparse
import random
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from rtlstm.boards.ethernet import Ethernet
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.host import Accelerator
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.framing import Frame
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.link_port import BROADCAST, PREAMBLE, EthernetPort, ethernet_frame, ip_packet
from rtlstm.sim.simulated_board import NativeBoard
from rtlstm.spec.link import UDP_PORT, FrameType
from rtlstm.spec.registers import IDENTITY, Register

IP = "192.168.1.50"
BOARD, HOST, OTHER = 0xC0A80132, 0xC0A80101, 0xC0A80107
BOARD_MAC, HOST_MAC, OTHER_MAC = (
    bytes.fromhex(mac) for mac in ("0200c0a80132", "0201c0a80101", "0201c0a80107")
)
HOST_PORT = 40000
TIMEOUTS = LinkTimeouts(retry=0.0005, least_retry=0.0001, most_retry=0.001, opening=0.02, silence=0.02)
"""In the board's own seconds."""


class Attacker:
    """Draws frames as they are on the wire; ``session`` is that of the host, which a listener knows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.session = 0
        self.sent: Counter[str] = Counter()
        self.kinds: tuple[Callable[[], bytes], ...] = (
            self.noise, self.mutated, self.cut, self.ping, self.arp, self.ip, self.foreign, self.damaged_link,
            self.other_session, self.raw, self.storm,
        )  # fmt: skip

    def frames(self) -> Iterator[bytes]:
        """What comes before a datagram of the host: nothing, a frame, or a burst."""
        kind = self.random.choice(self.kinds)
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 5, 30))):
            kind = self.random.choice(self.kinds) if self.random.random() < 0.3 else kind
            self.sent[kind.__name__] += 1
            yield kind()

    def data(self, most: int) -> bytes:
        size = self.random.choice((0, 1, 2, 7, 8, self.random.randrange(most + 1), most))
        return self.random.choice((self.random.randbytes(size), bytes(size), b"\x55" * size, b"\xff" * size))

    def number(self) -> int:
        """Sixteen bits, often at an end."""
        return self.random.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF, self.random.randrange(1 << 16)))

    def udp(self, data: bytes, source: int = OTHER, port: int = UDP_PORT, target: int = BOARD) -> bytes:
        head = struct.pack(">HHHH", HOST_PORT, port, 8 + len(data), 0)
        mac = HOST_MAC if source == HOST else OTHER_MAC
        return ethernet_frame(BOARD_MAC, mac, 0x0800, ip_packet(source, target, 17, head + data))

    def noise(self) -> bytes:
        """Bytes with or without a preamble."""
        return self.random.choice((b"", PREAMBLE, PREAMBLE[-1:], b"\x55" * 30)) + self.data(2000)

    def mutated(self) -> bytes:
        """A frame of another kind with some bits inverted below its checksum, which is right or not."""
        found = bytearray(self.random.choice(self.kinds[3:])()[len(PREAMBLE) : -4])
        # Not below the addresses of a frame in the host's name: its session's frames would be the host's.
        for _ in range(self.random.choice((1, 1, 2, 8))):
            found[self.random.randrange(12, min(42, len(found)))] ^= 1 << self.random.randrange(8)
        check = zlib.crc32(found) ^ self.random.choice((0, 0, 0, 1))
        return PREAMBLE + bytes(found) + check.to_bytes(4, "little")

    def cut(self) -> bytes:
        """A frame that ends early or is longer than it should be."""
        found = self.random.choice(self.kinds[3:])()
        end = self.random.randrange(1, len(found))
        return self.random.choice((found[:end], found + self.data(1600), found[:end] + found))

    def ping(self) -> bytes:
        body = struct.pack(
            ">BBHHH", *self.random.choice(((8, 0), (0, 0), (3, 3), (5, 1))), self.number(), 1, 2
        )
        return ethernet_frame(
            BOARD_MAC, OTHER_MAC, 0x0800, ip_packet(OTHER, BOARD, 1, body + self.data(1400))
        )

    def arp(self) -> bytes:
        """Questions and answers in the name of others than the host."""
        operation, source = (
            self.random.choice((0, 1, 1, 1, 2, 3)),
            self.random.choice((OTHER, BOARD, 0, 0xFFFFFFFF)),
        )
        target = self.random.choice((BOARD, BOARD + 1, HOST, 0))
        head = (self.random.choice((1, 1, 6)), self.random.choice((0x0800, 0x0800, 0)), 6, 4, operation)
        body = struct.pack(">HHBBH6sI6sI", *head, OTHER_MAC, source, self.data(6)[:6], target)
        return ethernet_frame(self.random.choice((BOARD_MAC, BROADCAST)), OTHER_MAC, 0x0806, body)

    def ip(self) -> bytes:
        """A packet with a header that lies."""
        packet = bytearray(ip_packet(OTHER, BOARD, self.random.choice((1, 2, 6, 17, 255)), self.data(300)))
        field = self.random.choice((0, 1, 2, 6, 8, 9, 10))
        packet[field : field + 2] = self.number().to_bytes(2, "big")
        total = sum(struct.unpack(">10H", bytes(packet[:10]) + b"\0\0" + bytes(packet[12:20])))
        total = (total & 0xFFFF) + (total >> 16)
        if self.random.random() < 0.8:
            packet[10:12] = (~(total + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
        return ethernet_frame(
            BOARD_MAC, OTHER_MAC, self.random.choice((0x0800, 0x86DD, 0x8100)), bytes(packet)
        )

    def frame(self, session: int) -> Frame:
        kind = self.random.choice((*FrameType, 0, 0x1F, 0xFF))
        return Frame(int(kind), session, self.number(), self.number(), self.data(500))

    def foreign(self) -> bytes:
        """A whole frame of the host's session, by another host."""
        data = b"\0" + self.frame(self.session).to_wire()
        return self.udp(data, port=self.random.choice((UDP_PORT, UDP_PORT, UDP_PORT + 1, 0)))

    def damaged_link(self) -> bytes:
        """In the host's name: a frame of its session with a wrong checksum, or bytes that are no frame."""
        wire = bytearray(self.frame(self.session).to_wire())
        wire[self.random.randrange(len(wire) - 1)] ^= 1 << self.random.randrange(8)
        data = self.random.choice((bytes(wire), self.data(1400), b"\x02" + self.data(1000)))
        return self.udp(b"\0" + data, HOST)

    def other_session(self) -> bytes:
        """In the host's name: a whole frame of another session."""
        session = self.random.choice(
            [one for one in (1, self.number(), 0xFFFF) if one not in (0, self.session)]
        )
        frame = self.frame(session)
        if frame.type == FrameType.HELLO:  # One that knows the session takes it over, as the protocol says.
            frame = frame._replace(payload=b"\1" + session.to_bytes(2, "little"))
        return self.udp(b"\0" + frame.to_wire(), HOST)

    def raw(self) -> bytes:
        """A raw step of another host, or a damaged one in the host's name."""
        step = b"\x01" + self.data(600)
        return self.udp(step) if self.random.random() < 0.5 else self.udp(step + b"\xa5", HOST)

    def storm(self) -> bytes:
        packet = ip_packet(OTHER, 0xFFFFFFFF, 17, self.data(64))
        return ethernet_frame(BROADCAST, OTHER_MAC, 0x0800, packet)


class AttackedPort(EthernetPort):
    """The host's port on a cable that an attacker uses, too, once the host has a session."""

    attacker: Attacker | None = None

    def send(self, datagram: bytes) -> None:
        """Send a datagram behind the attacker's frames."""
        for frame in self.attacker.frames() if self.attacker else ():
            self._board.send(frame)
        super().send(datagram)


def attack(
    native: NativeBoard, board: OnBoard, seed: int, rounds: int = 1, seconds: float = 0.0
) -> Counter[str]:
    """Attack for so many rounds, and on until a time is over; return the number of frames of each kind.

    Raises AssertionError if a result is not the golden model's, and DeviceError if the link is dead.
    """
    attacker, inputs, end = Attacker(seed), np.random.default_rng(seed), time.monotonic() + seconds
    port = AttackedPort(native, IP)
    link = LinkTransport(port, board.manifest, TIMEOUTS, seed=seed)
    with Accelerator(link, board.manifest) as device, Accelerator.open(board.folder, "golden") as golden:
        # The first one who sends is the host.
        attacker.session, port.attacker = link.report.session, attacker
        device.load_weights(board.folder / "weights.bin", verify=True)
        while rounds > 0 or time.monotonic() < end:
            rounds -= 1
            shape = (int(inputs.integers(1, 40)), int(inputs.integers(1, 4)), board.manifest.layers[0].inputs)
            x = inputs.integers(-50, 50, shape) / 64
            found, expected = (each.run(x, batch_first=False) for each in (device, golden))
            assert np.array_equal(found[0], expected[0]), f"results differ with seed {seed}"
        assert link.read(Register.ID).tolist() == [IDENTITY]
    return attacker.sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    board = OnBoard.create(given.build, "colorlight-i5", 100, ethernet=Ethernet.create(IP, raw=True))
    end, seed, sent = time.monotonic() + given.seconds, given.seed, Counter[str]()
    while time.monotonic() < end:
        native = board.simulate()
        sent += attack(native, board, seed, 3)
        native.close()
        print(f"seed {seed}: {sum(sent.values())} hostile frames so far", flush=True)
        seed += 1
    print(dict(sent))


if __name__ == "__main__":
    main()
