"""cocotb tests of the link's line side; ``tests/hdl/test_link_line.py`` runs them."""

import os
import random
from fractions import Fraction

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from cocotbext.uart import UartSink, UartSource

from rtlstm.hdl.link.framing import BODY, DECODED
from rtlstm.host.link.framing import Deframer, Frame

PERIOD_NS = 1000


async def start(dut) -> None:
    for name in ("received_ready", "sent_valid", "i_valid", "o_ready"):
        if hasattr(dut, name):
            getattr(dut, name).value = 0
    dut.rst.value = 1
    Clock(dut.clk, PERIOD_NS, unit="ns").start()
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


BYTE = ("payload",)
"""The ports of a stream's payload; of a structure, one for each field, the lowest bits first."""


async def take(
    dut, stream: str, rng: random.Random, pause: float, into: list, fields: tuple[str, ...] = BYTE
) -> None:
    """Take what a stream offers, with random pauses; X anywhere in it raises."""
    valid, ready = (getattr(dut, f"{stream}_{part}") for part in ("valid", "ready"))
    payload = [getattr(dut, f"{stream}_{field}") for field in fields]
    while True:
        ready.value = int(rng.random() >= pause)
        await ReadOnly()
        taken = int(valid.value) and int(ready.value)
        if taken:
            item = 0
            for part in reversed(payload):
                item = item << len(part) | int(part.value)
            into.append(item)
        await RisingEdge(dut.clk)


async def give(
    dut, stream: str, rng: random.Random, pause: float, items: list[int], fields: tuple[str, ...] = BYTE
) -> None:
    """Offer payloads, with random pauses."""
    valid, ready = (getattr(dut, f"{stream}_{part}") for part in ("valid", "ready"))
    payload = [getattr(dut, f"{stream}_{field}") for field in fields]
    for item in items:
        while rng.random() < pause:
            valid.value = 0
            await RisingEdge(dut.clk)
        valid.value = 1
        for part in payload:
            part.value = item & (1 << len(part)) - 1
            item >>= len(part)
        while True:
            await ReadOnly()
            taken = int(ready.value)
            await RisingEdge(dut.clk)
            if taken:
                break
    valid.value = 0


@cocotb.test()
async def uart_understands_another_uart(dut) -> None:
    divisor, mismatch = Fraction(os.environ["LINK_DIVISOR"]), float(os.environ["LINK_MISMATCH"])
    rng = random.Random(1)
    baud = 1e9 / (float(divisor) * PERIOD_NS * (1 + mismatch))
    source, sink = UartSource(dut.rx, baud=baud), UartSink(dut.tx, baud=baud)
    await start(dut)
    data = bytes([0x00, 0xFF, 0x55, 0xAA, 0x01, 0x80]) + rng.randbytes(60)
    received: list[int] = []
    cocotb.start_soon(take(dut, "received", rng, 0.5, received))
    await source.write(data)
    await give(dut, "sent", rng, 0.0, list(data))
    for _ in range(round(12 * divisor * 3)):
        await RisingEdge(dut.clk)
    await source.wait()
    assert bytes(received) == data
    assert bytes(sink.read_nowait()) == data


@cocotb.test()
async def bodies_are_found_among_anything(dut) -> None:
    """The receiver finds what the Python side finds, in damaged bytes too."""
    rng = random.Random(2)
    await start(dut)
    line = b""
    for _ in range(40):
        size = rng.choice([0, 1, 2, 5, 9, 20, 240, 243, 244])
        payload = (
            bytes(rng.choice([0, 1, 2, 255]) for _ in range(size))
            if rng.random() < 0.5
            else rng.randbytes(size)
        )
        frame = bytearray(Frame(rng.randrange(256), rng.randrange(65536), 1, 2, payload).to_wire())
        damage = rng.randrange(6)
        if damage == 0:
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        elif damage == 1:
            del frame[rng.randrange(len(frame)) :]
        elif damage == 2:
            frame += rng.randbytes(rng.randrange(20))
        elif damage == 3:
            frame += b"\0\0\1\0"
        line += bytes(frame)
    taken: list[int] = []
    cocotb.start_soon(take(dut, "o", rng, 0.2, taken, tuple(DECODED.members)))
    await give(dut, "i", rng, 0.2, list(line + b"\0"))
    for _ in range(100):
        await RisingEdge(dut.clk)
    bodies, body = [], b""
    for item in taken:
        if item >> 8 & 1:
            if item >> 9 and 11 <= len(body) <= 516:
                bodies.append(body[:-4])
            body = b""
        else:
            body += bytes([item & 255])
    frames = Deframer().feed(line + b"\0")
    wanted = [bytes([f.type]) + f.session.to_bytes(2, "little") + b"\1\0\2\0" + f.payload for f in frames]
    assert len(wanted) > 15
    assert bodies == wanted


@cocotb.test()
async def bodies_are_framed(dut) -> None:
    """What the sender makes, the Python side reads, and it is as short as the Python side's."""
    rng = random.Random(3)
    await start(dut)
    frames = [
        Frame(7, 8, 9, 10, bytes(rng.choice([0, 1, 255]) for _ in range(n))) for n in (0, 1, 2, 300, 505)
    ]
    frames += [Frame(1, 0x0101, 0x0101, 0x0101, b"\1" * n) for n in range(242, 246)]
    frames += [Frame(1, 0x0101, 0x0101, 0x0101, b"\1" * n + b"\0" * (n % 3)) for n in range(241, 245)]
    items = []
    for frame in frames:
        body = bytes([frame.type]) + b"".join(v.to_bytes(2, "little") for v in frame[1:4]) + frame.payload
        # The end is an item of its own, without a byte.
        items += [*body, 256]
    taken: list[int] = []
    cocotb.start_soon(take(dut, "o", rng, 0.3, taken))
    await give(dut, "i", rng, 0.1, items, tuple(BODY.members))
    for _ in range(3000):
        await RisingEdge(dut.clk)
    assert bytes(taken) == b"".join(frame.to_wire() for frame in frames)


@cocotb.test()
async def frames_have_no_gaps(dut) -> None:
    """Wires that take a byte in every eighth cycle, or else a zero, take no zero within a frame."""
    rng = random.Random(4)
    await start(dut)
    # Short blocks, and then the longest ones.
    frames = [Frame(7, 8, 9, 0, bytes(rng.randrange(1, 256) for _ in range(n))) for n in (500, 90, 3, 300)]
    items = []
    for frame in frames:
        body = bytes([frame.type]) + b"".join(v.to_bytes(2, "little") for v in frame[1:4]) + frame.payload
        items += [*body, 256]
    cocotb.start_soon(give(dut, "i", rng, 0.5, items, tuple(BODY.members)))
    wires = bytearray()
    for _ in range(sum(len(frame.to_wire()) for frame in frames) + 1000):
        dut.o_ready.value = 1
        await ReadOnly()
        wires.append(int(dut.o_payload.value) if int(dut.o_valid.value) else 0)
        await RisingEdge(dut.clk)
        dut.o_ready.value = 0
        for _ in range(7):
            await RisingEdge(dut.clk)
    found = [each + b"\0" for each in bytes(wires).split(b"\0") if each]
    assert found == [frame.to_wire() for frame in frames]
