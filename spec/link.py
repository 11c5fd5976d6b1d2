"""Constants of the serial link's protocol (``docs/link.md``), used by both sides."""

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Final, Self

LINK_VERSION: Final = 1

BAUD_RATES: Final = (3_000_000, 2_000_000, 1_000_000, 115_200)
"""The rates that a host tries, in this order, if none is given. 8 data bits, no parity, 1 stop bit."""

UDP_PORT: Final = 20051
"""The port at which a board with Ethernet takes datagrams."""
DATAGRAM_LIMIT: Final = 1400
"""Most bytes of a datagram that a host sends; it must not be split on its way."""

CRC_POLYNOMIAL: Final = 0x82F63B78
"""CRC-32C, bits reflected; starts from all ones and is inverted at the end."""
CRC_CHECK: Final = 0xE3069283
"""The CRC of the nine characters ``123456789``."""
CRC_RESIDUE: Final = 0x48674BC7
"""The CRC of any bytes followed by their CRC."""
CRC_BYTES: Final = 4

BODY_LIMIT: Final = 512
"""Largest number of bytes of a body, header included, of any device."""
HEADER: Final = struct.Struct("<BHHH")
"""Type, session, sequence number, acknowledgement."""
PAYLOAD_LIMIT: Final = BODY_LIMIT - HEADER.size
READ_LIMIT: Final = PAYLOAD_LIMIT // 4
"""Largest number of words of one READ."""
AHEAD_BYTES: Final = 96
"""Bytes of a frame with which a transmitter without gaps begins: it takes eight cycles for each, in which the
next block, of at most 254 bytes, grows by more than three."""
RECORDS: Final = 256
"""Largest number of requests, or of responses, that a device stores, for any sizes."""
REQUEST_FIELDS: Final = {"length": 10, "kind": 4}
"""Bits of a device's record of a request: the payload's length with the frame's checksum, and the lower
half of the frame's type."""
SEQUENCE: Final = 1 << 16
"""Modulus of sequence numbers."""

SUPPRESS: Final = 1 << 15
"""Bit of a step's first two bytes: its output is not wanted."""
STREAM_MASK: Final = 0x3FF
"""Bits of a step's first two bytes: its stream."""
NUMBER_MASK: Final = 0x3FFF
"""Bits that name its stream and, above that, its network, if the device holds several."""

RAW_STEP: Final = 0x01
"""First byte of a raw transfer with a step. No frame begins with it: after COBS, its type would be 0."""
RESET_STATE: Final = 1 << 14
"""Bit of a raw step's first two bytes: the stream's state is reset before the step."""
RAW_CRC_START: Final = 0xFFFF
"""What the CRC of a raw transfer begins with; its polynomial is 0x1021, and its bits are not reflected."""
RAW_CRC_BYTES: Final = 2
RAW_DATAGRAM_LIMIT: Final = 1000
"""Most bytes of a raw step, and of its result, over UDP."""


class FrameType(IntEnum):
    """First byte of a body. Bit 7 is the direction of a frame, bit 4 says whether it is numbered."""

    HELLO = 0x01
    RESUME = 0x02
    WRITE = 0x10
    READ = 0x11
    PART = 0x12
    STEPS = 0x13
    REPORT = 0x81
    LOST = 0x82
    DONE = 0x90
    ERROR = 0x91


NUMBERED: Final = 0x10
"""Bit of the type of a numbered frame."""


class ErrorCode(IntEnum):
    """Payload of ERROR: why a request was not carried out."""

    TYPE = 1
    LENGTH = 2
    REGISTER = 3
    STREAM = 4
    DEVICE = 5


@dataclass(frozen=True)
class Limits:
    """The limits of a device. Bytes are those of bodies, headers included."""

    body: int
    """Largest body, in either direction."""
    request_bytes: int
    """Requests that have no response yet."""
    response_bytes: int
    """Responses to requests that are not acknowledged yet."""
    frames: int
    """Requests that are not acknowledged yet."""


@dataclass(frozen=True)
class LinkReport:
    """Payload of REPORT and LOST."""

    version: int
    session: int
    """The device's session; 0 for none since its reset."""
    limits: Limits
    identity: int
    """Value of the ID register."""
    build: int
    """Value of the BUILD register."""
    steps: int
    """Steps given to the core since reset, suppressed ones included, modulo 2**32."""
    dropped: int
    """Frames dropped since reset, modulo 2**32."""

    LAYOUT = struct.Struct("<BBHHHHHIIII")
    """Version, 0, session, the limits, and the others, in the order above."""

    def to_bytes(self) -> bytes:
        """Return the payload."""
        limits = astuple(self.limits)
        rest = (self.identity, self.build, self.steps, self.dropped)
        return self.LAYOUT.pack(self.version, 0, self.session, *limits, *rest)

    @classmethod
    def from_bytes(cls, payload: bytes) -> Self:
        """Read a payload; a longer one comes from a later version. Raises struct.error if it is too short."""
        version, _, session, *limits, identity, build, steps, dropped = cls.LAYOUT.unpack_from(payload)
        return cls(version, session, Limits(*limits), identity, build, steps, dropped)


def value_bytes(bits: int) -> int:
    """Bytes of one value of a step: two's complement, sign extended, little-endian."""
    return -(-bits // 8)
