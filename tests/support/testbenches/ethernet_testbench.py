"""cocotb tests of a board's RGMII, by other people's PHY; ``tests/boards/test_ethernet.py`` runs them."""

import struct
import zlib

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Timer, with_timeout
from cocotbext.eth import GmiiFrame, RgmiiPhy

from rtlstm.host.link.framing import Deframer, Frame
from rtlstm.sim.link_port import BROADCAST, PREAMBLE, ethernet_frame, ip_packet
from rtlstm.spec.link import UDP_PORT, FrameType, LinkReport

BOARD, HOST, OTHER = 0xC0A80132, 0xC0A80101, 0xC0A80107
BOARD_MAC, HOST_MAC = bytes.fromhex("0200c0a80132"), bytes.fromhex("020100000001")
HOST_PORT = 40000
ARP, IP, VLAN = 0x0806, 0x0800, 0x8100


class Wire:
    """The other end of the cable: frames without preamble and checksum."""

    def __init__(self, dut) -> None:
        self.phy = RgmiiPhy(
            dut.tx_data, dut.tx_ctl, dut.tx_clk, dut.rx_data, dut.rx_ctl, dut.rx_clk, speed=1000e6
        )

    async def send(self, frame: bytes) -> None:
        """Send what is on the wire behind the preamble, as it is."""
        await self.phy.rx.send(GmiiFrame(PREAMBLE + frame))

    async def receive(self) -> bytes:
        frame = await with_timeout(self.phy.tx.recv(), 200, "us")
        assert frame.check_fcs(), frame
        return bytes(frame.get_payload())

    async def sends_nothing_for(self, microseconds: int) -> None:
        await Timer(microseconds, "us")
        assert self.phy.tx.empty()


async def start(dut) -> Wire:
    for oscillator, period in (
        (dut.board.pll.model.oscillator, 10),
        (dut.board.network_pll.model.oscillator, 8),
    ):
        oscillator.value = 0
        Clock(oscillator, period, unit="ns").start()
    Clock(dut.clk, 40, unit="ns").start()
    wire = Wire(dut)
    await Timer(20, "us")
    # Before the reset the pins are at random.
    wire.phy.tx.clear()
    return wire


def on_wire(kind: int, payload: bytes, target: bytes = BOARD_MAC) -> bytes:
    """A frame with its checksum."""
    return ethernet_frame(target, HOST_MAC, kind, payload)[len(PREAMBLE) :]


def arp(operation: int = 1, target: int = BOARD) -> bytes:
    body = struct.pack(">HHBBH6sI6sI", 1, IP, 6, 4, operation, HOST_MAC, HOST, b"\0" * 6, target)
    return on_wire(ARP, body, BROADCAST if operation == 1 else BOARD_MAC)


def udp(data: bytes, source: int = HOST, port: int = UDP_PORT) -> bytes:
    """An IP packet."""
    return ip_packet(source, BOARD, 17, struct.pack(">HHHH", HOST_PORT, port, 8 + len(data), 0) + data)


def resume(number: int) -> bytes:
    return b"\0" + Frame(FrameType.RESUME, 0, number, 0).to_wire()


async def report(wire: Wire, number: int) -> LinkReport:
    """Ask the link for its status; answer the board's question for the host's MAC address."""
    await wire.send(on_wire(IP, udp(resume(number))))
    while True:
        frame = await wire.receive()
        if frame[12:14] == ARP.to_bytes(2, "big"):
            assert frame[20:22] == b"\0\1" and frame[38:42] == HOST.to_bytes(4, "big")
            await wire.send(arp(operation=2))
            continue
        assert frame[:6] == HOST_MAC and frame[6:12] == BOARD_MAC
        packet = frame[14:]
        assert sum(struct.unpack(">10H", packet[:20])) % 0xFFFF == 0
        ports = struct.unpack(">HH", packet[20:24])
        assert ports == (UDP_PORT, HOST_PORT) and packet[12:20] == struct.pack(">II", BOARD, HOST)
        size = int.from_bytes(packet[24:26], "big")
        assert size == int.from_bytes(packet[2:4], "big") - 20
        (answer,) = Deframer().feed(packet[28 : 20 + size])
        assert answer.seq == number
        return LinkReport.from_bytes(answer.payload)


async def is_alive(wire: Wire, number: int) -> LinkReport:
    """ARP, ping and UDP work."""
    await wire.send(arp())
    answer = await wire.receive()
    assert answer[:12] == HOST_MAC + BOARD_MAC and answer[20:22] == b"\0\2"
    assert answer[22:32] == BOARD_MAC + BOARD.to_bytes(4, "big")
    found = await report(wire, number)
    echo = struct.pack(">BBHHH", 8, 0, 0, 7, number) + b"are you there?"
    total = sum(struct.unpack(f">{len(echo) // 2}H", echo))
    total = (total & 0xFFFF) + (total >> 16)
    echo = echo[:2] + (~total & 0xFFFF).to_bytes(2, "big") + echo[4:]
    await wire.send(on_wire(IP, ip_packet(HOST, BOARD, 1, echo)))
    packet = (await wire.receive())[14:]
    assert packet[9] == 1 and packet[20] == 0 and packet[24 : 20 + len(echo)] == echo[4:]
    return found


@cocotb.test()
async def it_answers_arp_ping_and_udp(dut) -> None:
    wire = await start(dut)
    for number in (1, 2):
        assert (await is_alive(wire, number)).dropped == 0
    await wire.send(arp(target=BOARD + 1))
    await wire.send(on_wire(IP, udp(resume(3), port=UDP_PORT + 1)))
    await wire.sends_nothing_for(20)


def damaged() -> dict[str, list[bytes]]:
    """Frames that are wrong, by what is wrong with them."""
    good, packet = on_wire(IP, udp(resume(9))), udp(resume(9))
    options = bytes([0x46]) + packet[1:]
    fragment = lambda flags: packet[:6] + flags.to_bytes(2, "big") + packet[8:]  # noqa: E731
    return {
        "short": [good[:length] for length in (1, 5, 13, 14, 20, 33, 34, 41, 42, 45, 59, 63)],
        "long": [on_wire(IP, udp(b"\1" * length)) for length in (1472, 1473, 2000, 4000)],
        "check sequence": [good[:-1] + bytes([good[-1] ^ 1]), good[:50] + b"\0" + good[51:]],
        "IP checksum": [on_wire(IP, packet[:10] + b"\0\0" + packet[12:])],
        "IP header": [on_wire(IP, options), on_wire(IP, bytes([0x55]) + packet[1:])],
        "UDP checksum": [on_wire(IP, packet[:26] + b"\x12\x34" + packet[28:])],
        "lengths": [
            on_wire(IP, packet[:24] + size.to_bytes(2, "big") + packet[26:]) for size in (0, 7, 8, 9, 65535)
        ],
        "fragments": [on_wire(IP, fragment(0x2000)), on_wire(IP, fragment(0x0007))],
        "port": [on_wire(IP, udp(resume(9), port=port)) for port in (0, UDP_PORT - 1, 65535)],
        "VLAN": [on_wire(VLAN, b"\0\5\x08\0" + packet)],
        "other kinds": [on_wire(kind, packet) for kind in (0x86DD, 0x88CC, 46, 0)],
        "no preamble": [b"\x55" * 80],
        "another's address": [on_wire(IP, ip_packet(HOST, BOARD + 1, 17, packet[20:]))],
    }


@cocotb.test()
async def it_survives_damaged_frames(dut) -> None:
    wire = await start(dut)
    number = 1
    await is_alive(wire, number)
    for kind, frames in damaged().items():
        for frame in frames:
            await wire.send(frame)
        await wire.phy.rx.wait()
        await Timer(10, "us")
        while not wire.phy.tx.empty():
            wire.phy.tx.recv_nowait()
        number += 1
        dut._log.info("after frames with a wrong %s", kind)
        await is_alive(wire, number)


@cocotb.test()
async def a_broadcast_storm_and_another_host_leave_the_link_working(dut) -> None:
    wire = await start(dut)
    before = await is_alive(wire, 1)
    storm = on_wire(IP, ip_packet(HOST, 0xFFFFFFFF, 17, b"\0" * 26), BROADCAST)
    foreign = on_wire(IP, udp(resume(7), source=OTHER))
    for _ in range(100):
        await wire.send(storm)
        await wire.send(arp(target=BOARD + 1))
    for _ in range(30):
        await wire.send(foreign)
    await wire.phy.rx.wait()
    await wire.sends_nothing_for(10)
    # Each of the other host's datagrams is counted, and none is answered.
    assert (await is_alive(wire, 2)).dropped == before.dropped + 30
    assert zlib.crc32(storm[:-4]) == int.from_bytes(storm[-4:], "little")
