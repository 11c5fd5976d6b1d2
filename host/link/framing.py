"""Converts steps to requests, bodies to frames, and both back; see ``docs/link.md``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtlstm.spec.errors import DeviceError, ToolError, distribution
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import (
    BODY_LIMIT,
    CRC_BYTES,
    CRC_RESIDUE,
    HEADER,
    SUPPRESS,
    FrameType,
    Limits,
    value_bytes,
)
from rtlstm.spec.manifest import Manifest

try:
    from cobs import cobs
    from fastcrc.crc32 import iscsi as crc32c
except ImportError as error:
    raise ToolError(
        f"the link needs the packages cobs and fastcrc ({error}); install them with "
        f"pip install '{distribution()}[link]'"
    ) from None

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


@dataclass(eq=False, slots=True)
class Request:
    """A numbered request, and later its response."""

    type: FrameType
    payload: bytes
    answer_bytes: int = 0
    """Bytes that the payload of its response will have."""
    response: Frame | None = None
    sent_at: float = 0.0
    """When it was sent for the first time."""
    sendings: int = 0

    @property
    def body_bytes(self) -> int:
        """Bytes that it needs in the device's memory for requests."""
        return HEADER.size + len(self.payload)

    @property
    def response_bytes(self) -> int:
        """Bytes that it needs in the device's memory for responses; at least those of an ERROR."""
        return HEADER.size + max(1, self.answer_bytes)


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


def encode_values(values: IntArray, size: int) -> NDArray[np.uint8]:
    """Convert each integer to ``size`` bytes, at most 4, little-endian: ``(K, n)`` to ``(K, n * size)``."""
    words = np.ascontiguousarray(values, dtype="<i4").view(np.uint8)
    parts = words.reshape(*values.shape, 4)[..., :size]
    return parts.reshape(len(values), values.shape[1] * size)


def decode_values(data: bytes, size: int) -> IntArray:
    """Inverse of :func:`encode_values`, flat."""
    words = np.zeros((len(data) // size, 4), dtype=np.uint8)
    words[:, 4 - size :] = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
    values: IntArray = words.view("<i4").reshape(-1).astype(np.int64) >> (8 * (4 - size))
    return values


class StepCodec:
    """Packs a build's steps into requests that a device's link can hold.

    ``limits`` is what the device's link can hold.
    """

    def __init__(self, manifest: Manifest, limits: Limits) -> None:
        self._inputs, self._outputs = manifest.input_port.values, manifest.program.outputs
        self._x_size = value_bytes(manifest.input_port.bits)
        self._y_size = value_bytes(manifest.numerics.output_bits)
        self._room = limits.body - HEADER.size
        self._x_bytes = 2 + self._inputs * self._x_size
        self._y_bytes = self._outputs * self._y_size

    def encode(self, streams: IntArray, x: IntArray, suppress: NDArray[np.bool_]) -> Iterator[list[Request]]:
        """Yield chains of requests, in order."""
        steps = np.empty((len(streams), self._x_bytes), dtype=np.uint8)
        steps[:, :2] = encode_values((streams | suppress * SUPPRESS)[:, None], 2)
        steps[:, 2:] = encode_values(x, self._x_size)
        if self._x_bytes <= self._room and self._y_bytes <= self._room:
            many = min(self._room // self._x_bytes, self._room // self._y_bytes)
            for begin in range(0, len(steps), many):
                answered = (
                    many - int(suppress[begin : begin + many].sum()) - max(0, begin + many - len(steps))
                )
                payload = steps[begin : begin + many].tobytes()
                yield [Request(FrameType.STEPS, payload, answered * self._y_bytes)]
            return
        for step, suppressed in zip(steps, suppress, strict=True):
            yield self._chain(step.tobytes(), 0 if suppressed else self._y_bytes)

    def _chain(self, step: bytes, output: int) -> list[Request]:
        """Return the requests of one step: as many as its input and then its output need."""
        room = self._room
        pieces = [step[begin : begin + room] for begin in range(0, len(step), room)]
        inputs = len(pieces)
        # The response to the last part of the input contains the first outputs.
        pieces += [b""] * (max(1, -(-output // room)) - 1)
        return [
            Request(
                FrameType.STEPS if index == len(pieces) - 1 else FrameType.PART,
                piece,
                max(0, min(room, output - (index - inputs + 1) * room)) if index >= inputs - 1 else 0,
            )
            for index, piece in enumerate(pieces)
        ]

    def decode(self, data: bytes, suppress: NDArray[np.bool_]) -> IntArray:
        """Return outputs ``(steps, outputs)`` from all responses' bytes; zero for suppressed steps.

        Raises DeviceError if there are too few or too many bytes.
        """
        with_output = ~suppress
        expected = int(with_output.sum()) * self._y_bytes
        if len(data) != expected:
            raise DeviceError(
                f"the device must answer these steps with {expected} bytes, not {len(data)}; "
                "load this build's bitstream"
            )
        y = np.zeros((len(suppress), self._outputs), dtype=np.int64)
        y[with_output] = decode_values(data, self._y_size).reshape(-1, self._outputs)
        return y
