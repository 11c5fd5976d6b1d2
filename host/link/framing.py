"""Converts bodies to frames and frames to bodies; see ``docs/link.md``."""

from typing import NamedTuple

from rtlstm.spec.distribution import distribution
from rtlstm.spec.errors import ToolError
from rtlstm.spec.link import BODY_LIMIT, CRC_BYTES, CRC_RESIDUE, HEADER

try:
    from cobs import cobs
    from fastcrc.crc32 import iscsi as crc32c
except ImportError as error:
    raise ToolError(
        f"the serial link needs the packages cobs and fastcrc ({error}); install them with "
        f"pip install '{distribution()}[link]'"
    ) from None

__all__ = ["FRAME_LIMIT", "Deframer", "Frame"]

_ENCODED_LIMIT = BODY_LIMIT + CRC_BYTES + (BODY_LIMIT + CRC_BYTES) // 254 + 2
"""Bytes of the longest frame before its zero; one more than is needed if a block ends with it."""
FRAME_LIMIT = _ENCODED_LIMIT + 1
"""Largest number of bytes of a transmitted frame."""


class Frame(NamedTuple):
    """The parts of a body."""

    type: int
    session: int
    seq: int
    ack: int
    payload: bytes = b""

    def to_wire(self) -> bytes:
        """Return the bytes to transmit."""
        body = HEADER.pack(self.type, self.session, self.seq, self.ack) + self.payload
        encoded: bytes = cobs.encode(body + crc32c(body).to_bytes(CRC_BYTES, "little"))
        return encoded + b"\0"


class Deframer:
    """Finds the frames in received bytes, which come in pieces of any size."""

    def __init__(self, limit: int = BODY_LIMIT) -> None:
        self.dropped = 0
        """Number of damaged frames."""
        self._limit = limit + CRC_BYTES
        self._rest = b""
        self._overlong = False

    def reset(self) -> None:
        """Discard the beginning of a frame: the port was opened again."""
        self._rest, self._overlong = b"", False

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that end in ``data``."""
        *ended, rest = (self._rest + data).split(b"\0")
        frames = []
        for encoded in ended:
            if encoded or self._overlong:
                frame = None if self._overlong else self._decode(encoded)
                self._overlong = False
                if frame is None:
                    self.dropped += 1
                else:
                    frames.append(frame)
        # Bytes that cannot become a frame are dropped: a port may send noise without end.
        self._overlong |= len(rest) > _ENCODED_LIMIT
        self._rest = b"" if self._overlong else rest
        return frames

    def _decode(self, encoded: bytes) -> Frame | None:
        try:
            decoded = cobs.decode(encoded)
        except cobs.DecodeError:
            return None
        if not HEADER.size + CRC_BYTES <= len(decoded) <= self._limit or crc32c(decoded) != CRC_RESIDUE:
            return None
        type, session, seq, ack = HEADER.unpack_from(decoded)
        return Frame(type, session, seq, ack, decoded[HEADER.size : -CRC_BYTES])
