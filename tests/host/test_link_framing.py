"""Frames of the serial link: what docs/link.md says, byte by byte, and what comes of damage."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paths import DOCS

from rtlstm.host.link.framing import FRAME_LIMIT, Deframer, Frame
from rtlstm.spec.link import (
    BODY_LIMIT,
    CRC_CHECK,
    CRC_POLYNOMIAL,
    CRC_RESIDUE,
    PAYLOAD_LIMIT,
    ErrorCode,
    FrameType,
    Limits,
    LinkReport,
)

PAGE = (DOCS / "link.md").read_text()

number = st.integers(0, 0xFFFF)
frames = st.builds(
    Frame,
    st.integers(0, 255),
    number,
    number,
    number,
    st.binary(max_size=PAYLOAD_LIMIT) | st.just(b"\0" * 505),
)


def crc(data: bytes) -> int:
    """CRC-32C as the page says it, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (CRC_POLYNOMIAL if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def unstuff(encoded: bytes) -> bytes:
    """COBS as its paper says it."""
    data, at = b"", 0
    while at < len(encoded):
        length = encoded[at]
        data += encoded[at + 1 : at + length] + (b"\0" if length < 255 else b"")
        at += length
    return data[:-1] if data.endswith(b"\0") and encoded[at - length] < 255 else data


def test_crc():
    assert crc(b"123456789") == CRC_CHECK
    assert crc(b"abc" + crc(b"abc").to_bytes(4, "little")) == CRC_RESIDUE


@given(frames)
def test_frame_is_what_the_page_says(frame: Frame):
    line = frame.to_wire()
    assert line.count(0) == 1 and line[-1] == 0 and len(line) <= FRAME_LIMIT
    decoded = unstuff(line[:-1])
    body = b"".join(
        value.to_bytes(size, "little") for value, size in zip(frame[:4], (1, 2, 2, 2), strict=True)
    )
    assert decoded[:-4] == body + frame.payload
    assert int.from_bytes(decoded[-4:], "little") == crc(decoded[:-4])
    assert Deframer().feed(line) == [frame]


@given(st.lists(frames, max_size=4), st.binary(max_size=40), st.lists(st.integers(1, 300), min_size=1))
def test_receiver_synchronises_after_any_bytes(sent: list[Frame], noise: bytes, cuts: list[int]):
    line = noise + b"\0" + b"".join(frame.to_wire() for frame in sent)
    deframer, found = Deframer(), []
    while line:
        found += deframer.feed(line[: cuts[0]])
        line, cuts = line[cuts[0] :], cuts[1:] + cuts[:1]
    assert found == sent
    assert deframer.dropped == len([part for part in noise.split(b"\0") if part])


@settings(max_examples=300)
@given(frames, st.data())
def test_up_to_five_wrong_bits_are_seen(frame: Frame, data: st.DataObject):
    line = bytearray(frame.to_wire())
    for bit in data.draw(st.sets(st.integers(0, 8 * len(line) - 1), min_size=1, max_size=5)):
        line[bit // 8] ^= 1 << bit % 8
    # It may fall apart into several; none of them is taken.
    assert Deframer().feed(bytes(line) + b"\0") == []


def test_babble_takes_no_memory():
    deframer = Deframer()
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert deframer.feed(rng.integers(1, 256, 1000, dtype=np.uint8).tobytes()) == []
        assert len(deframer._rest) <= FRAME_LIMIT
    assert deframer.feed(b"\0" + Frame(1, 2, 3, 4).to_wire()) == [Frame(1, 2, 3, 4)]
    assert deframer.dropped == 1


def test_sizes():
    longest = Frame(1, 2, 3, 4, b"x" * PAYLOAD_LIMIT)
    assert Deframer().feed(longest.to_wire()) == [longest]
    assert Deframer().feed(Frame(1, 2, 3, 4, b"x" * (PAYLOAD_LIMIT + 1)).to_wire()) == []
    assert Deframer(64).feed(Frame(1, 2, 3, 4, b"x" * 58).to_wire()) == []
    assert Deframer().feed(b"\x05abcd\0\0\0") == []
    assert BODY_LIMIT + 4 <= 655


def test_block_of_254_may_end_with_one_more_byte():
    line = Frame(0x11, 0x1111, 0x1111, 0x1111, b"x" * 243).to_wire()
    assert line[0] == 0xFF and len(line) == 256, "choose another payload: this one has a zero in its CRC"
    assert Deframer().feed(line[:-1] + b"\x01\0") == Deframer().feed(line) != []


def test_bytes_of_the_page():
    lines = [bytes.fromhex(line) for line in re.findall(r"^    ((?:[0-9a-f]{2} )+[0-9a-f]{2})$", PAGE, re.M)]
    # The last two are of the raw mode.
    assert [Deframer().feed(line)[0] for line in lines[:-2]] == [
        Frame(FrameType.HELLO, 0x1234, 7, 0, bytes([1, 0xCD, 0xAB])),
        Frame(FrameType.READ, 0x1234, 0, 0, bytes([0, 1])),
        Frame(FrameType.DONE, 0x1234, 0, 1, bytes.fromhex("4d54534c")),
        Frame(FrameType.STEPS, 0x1234, 1, 1, bytes([2, 0, 5, 0xFF])),
    ]


def test_codes_of_the_page():
    for type in FrameType:
        assert re.search(rf"^\| 0x{type:02x} \| {type.name} \|", PAGE, re.M)
    for code in ErrorCode:
        assert re.search(rf"^\| {code} \| {code.name} \|", PAGE, re.M)


def test_report():
    report = LinkReport(1, 0x1234, Limits(512, 4096, 2048, 32), 0x4C53544D, 0xDEADBEEF, 7, 9)
    data = report.to_bytes()
    assert len(data) == 28 and data[:4] == bytes([1, 0, 0x34, 0x12])
    assert LinkReport.from_bytes(data + b"of a later version") == report
    with pytest.raises(Exception, match="requires a buffer"):
        LinkReport.from_bytes(data[:-1])
