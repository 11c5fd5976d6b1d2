"""The serial link's bytes: what ``docs/link.md`` says, as constants that both sides import."""

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Final, Self

__all__ = [
    "BAUD_RATES",
    "BODY_LIMIT",
    "CRC_BYTES",
    "CRC_CHECK",
    "CRC_POLYNOMIAL",
    "CRC_RESIDUE",
    "HEADER",
    "LINK_VERSION",
    "NUMBERED",
    "PAYLOAD_LIMIT",
    "READ_LIMIT",
    "RECORDS",
    "REQUEST_FIELDS",
    "SEQUENCE",
    "STREAM_MASK",
    "SUPPRESS",
    "ErrorCode",
    "FrameType",
    "Limits",
    "LinkReport",
    "value_bytes",
]

LINK_VERSION: Final = 1

BAUD_RATES: Final = (3_000_000, 2_000_000, 1_000_000, 115_200)
"""The rates a host tries, in this order, if it is not told one. 8 data bits, no parity, 1 stop bit."""

CRC_POLYNOMIAL: Final = 0x82F63B78
"""CRC-32C, bits reflected; starts from all ones and is inverted at the end."""
CRC_CHECK: Final = 0xE3069283
"""The CRC of the nine characters ``123456789``."""
CRC_RESIDUE: Final = 0x48674BC7
"""The CRC of anything followed by its own CRC."""
CRC_BYTES: Final = 4

BODY_LIMIT: Final = 512
"""Most bytes of a body, header included, that any device takes or sends."""
HEADER: Final = struct.Struct("<BHHH")
"""Type, session, sequence number, acknowledgement."""
PAYLOAD_LIMIT: Final = BODY_LIMIT - HEADER.size
READ_LIMIT: Final = PAYLOAD_LIMIT // 4
"""Most words of one READ."""
RECORDS: Final = 256
"""Requests, or responses, that a device has room for, whatever their sizes."""
REQUEST_FIELDS: Final = {"length": 10, "kind": 4}
"""What a device notes of a request, in bits: bytes of its payload, those of the frame's checksum counted in,
and the lower half of the frame's type."""
SEQUENCE: Final = 1 << 16
"""Sequence numbers count modulo this."""

SUPPRESS: Final = 1 << 15
"""Bit of a step's first two bytes: its output is not wanted."""
STREAM_MASK: Final = 0x3FF
"""Bits of a step's first two bytes: its stream."""


class FrameType(IntEnum):
    """First byte of a body. Bit 7 says which way a frame goes, bit 4 whether it is numbered."""

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
    """What a device can hold. Bytes are those of bodies, headers included."""

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
    """What the ID register reads."""
    build: int
    """What the BUILD register reads."""
    steps: int
    """Steps handed to the core since reset, quiet ones too, modulo 2**32."""
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
        """Read a payload; one that is longer than it should be is of a later version.

        Raises
        ------
        struct.error
            If it is too short.
        """
        version, _, session, *limits, identity, build, steps, dropped = cls.LAYOUT.unpack_from(payload)
        return cls(version, session, Limits(*limits), identity, build, steps, dropped)


def value_bytes(bits: int) -> int:
    """Bytes of one value of a step: two's complement, sign extended, little-endian."""
    return -(-bits // 8)
