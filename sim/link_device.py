"""The reference model of the link's device side, over any transport; servers use it, too."""

from collections import deque
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from rtlstm.host.link.framing import Deframer, Frame, decode_values, encode_values
from rtlstm.host.transport import Transport
from rtlstm.spec.errors import RtlstmError
from rtlstm.spec.link import (
    HEADER,
    LINK_VERSION,
    NUMBER_MASK,
    NUMBERED,
    READ_LIMIT,
    SEQUENCE,
    STREAM_MASK,
    SUPPRESS,
    ErrorCode,
    FrameType,
    Limits,
    LinkReport,
    value_bytes,
)
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import NETWORK_BIT
from rtlstm.spec.registers import IDENTITY, Register

DEVICE_LIMITS = Limits(body=512, request_bytes=4096, response_bytes=4096, frames=32)
_REGISTERS = 16
"""How many addresses the core's bus has."""


@dataclass
class _Response:
    """An unfinished response."""

    payload: bytearray = field(default_factory=bytearray)
    error: ErrorCode | None = None

    def frame(self, session: int, seq: int, ack: int) -> Frame:
        if self.error is None:
            return Frame(FrameType.DONE, session, seq, ack, bytes(self.payload))
        return Frame(FrameType.ERROR, session, seq, ack, bytes([self.error]))


class DeviceEngine:
    """Takes and returns the port's bytes; opens no port and reads no clock.

    ``receive`` what comes, then ``work`` as long as it returns True, then send what ``transmit`` returns,
    frame by frame. ``docs/link.md`` specifies the device's behaviour. ``transport`` is what executes the
    requests. ``manifest`` is the transport's build. ``limits`` are sizes of the device's buffers.
    """

    def __init__(self, transport: Transport, manifest: Manifest, limits: Limits = DEVICE_LIMITS) -> None:
        self.overflows = 0
        """Requests dropped because the buffer was full: none if the host keeps to its credit."""
        self.steps = 0
        """Steps given to the core."""
        self.limits = limits
        self._transport = transport
        self._know(manifest, 0)
        self._deframer = Deframer(limits.body)
        self._dropped = 0
        self._session = 0
        self._clear()

    def adopt(self, manifest: Manifest, network: int) -> None:
        """Take steps of this one of the networks that the transport holds, and no others."""
        self._transport.adopt(manifest)
        self._know(manifest, network)

    def _know(self, manifest: Manifest, network: int) -> None:
        self._manifest, self._network = manifest, network
        self._x_size = value_bytes(manifest.input_port.bits)
        self._y_size = value_bytes(manifest.numerics.output_bits)
        self._x_bytes = manifest.input_port.values * self._x_size

    def _clear(self) -> None:
        self._expected = self._oldest = 0
        self._requests: deque[Frame] = deque()
        self._responses: deque[_Response] = deque()
        self._sending = 0
        """Index of the response to send next."""
        self._noticed = False
        self._answer: tuple[FrameType, int, int] | None = None

    @property
    def session(self) -> int:
        """The session; 0 for none."""
        return self._session

    @property
    def dropped(self) -> int:
        """Frames dropped."""
        return self._dropped + self._deframer.dropped

    def reset(self) -> None:
        """Forget everything about the link, as after power-up; the core is not reset."""
        self._session = self._dropped = self.steps = 0
        self._deframer = Deframer(self.limits.body)
        self._clear()

    def receive(self, data: bytes) -> None:
        """Take bytes from the port."""
        for frame in self._deframer.feed(data):
            if frame.type == FrameType.RESUME:
                self._resume(frame)
            elif frame.type == FrameType.HELLO and len(frame.payload) >= 3:
                self._hello(frame)
            elif frame.session == self._session and frame.type & 0xF0 == NUMBERED:
                self._request(frame)
            else:
                self._dropped += 1

    def _resume(self, frame: Frame) -> None:
        if frame.session != self._session:
            self._answer = (FrameType.LOST, frame.session, frame.seq)
            return
        self._take_ack(frame.ack)
        self._sending, self._noticed = 0, False
        self._answer = (FrameType.REPORT, frame.session, frame.seq)

    def _hello(self, frame: Frame) -> None:
        believed = int.from_bytes(frame.payload[1:3], "little")
        if self._session not in (frame.session, believed):
            self._answer = (FrameType.LOST, frame.session, frame.seq)
            return
        if frame.session != self._session:
            self._clear()
            self._session = frame.session
        self._answer = (FrameType.REPORT, frame.session, frame.seq)

    def _request(self, frame: Frame) -> None:
        self._take_ack(frame.ack)
        size = HEADER.size + len(frame.payload)
        held = sum(HEADER.size + len(request.payload) for request in self._requests)
        room = (
            held + size <= self.limits.request_bytes
            and len(self._requests) + len(self._responses) < self.limits.frames
        )
        ahead = (frame.seq - self._expected) % SEQUENCE
        if not ahead and room:
            self._requests.append(frame)
            self._expected = (self._expected + 1) % SEQUENCE
            self._noticed = False
            return
        self.overflows += not ahead
        self._dropped += 1
        if ahead < SEQUENCE // 2 and not self._noticed:
            self._noticed = True
            self._answer = (FrameType.REPORT, self._session, 0)

    def _take_ack(self, ack: int) -> None:
        count = (ack - self._oldest) % SEQUENCE
        if count <= len(self._responses):
            for _ in range(count):
                self._responses.popleft()
            self._oldest = ack
            self._sending = max(0, self._sending - count)

    def transmit(self) -> bytes:
        """Return the next frame for the port; empty if there is none."""
        if self._answer:
            type, session, seq = self._answer
            self._answer = None
            return Frame(type, session, seq, self._expected, self.report().to_bytes()).to_wire()
        if self._sending == len(self._responses):
            return b""
        seq = (self._oldest + self._sending) % SEQUENCE
        self._sending += 1
        return self._responses[self._sending - 1].frame(self._session, seq, self._expected).to_wire()

    def report(self) -> LinkReport:
        """Return the content of a REPORT."""
        return LinkReport(
            version=LINK_VERSION,
            session=self._session,
            limits=self.limits,
            identity=IDENTITY,
            build=self._manifest.build_number,
            steps=self.steps % (1 << 32),
            dropped=self.dropped % (1 << 32),
        )

    def work(self) -> bool:
        """Execute a request, or a chain; return whether there was one."""
        ends = (index for index, frame in enumerate(self._requests) if frame.type != FrameType.PART)
        end = next(ends, None)
        if end is None:
            return False
        chain = [self._requests.popleft() for _ in range(end + 1)]
        responses = [_Response() for _ in chain]
        try:
            # A faulty host may end a chain of steps with a request of another kind.
            if chain[-1].type == FrameType.STEPS:
                self._run_steps(chain, responses)
            else:
                for response in responses[:-1]:
                    response.error = ErrorCode.LENGTH
                self._access(chain[-1], responses[-1])
        except RtlstmError:
            for response in responses:
                response.error = ErrorCode.DEVICE
        self._responses.extend(responses)
        kept = sum(HEADER.size + len(response.payload) for response in self._responses)
        assert kept <= self.limits.response_bytes, "the host has asked for more than the device can keep"
        return True

    def _access(self, request: Frame, response: _Response) -> None:
        payload = request.payload
        size = len(payload) - 1
        if request.type == FrameType.WRITE:
            right = size > 0 and not size % 4
        elif request.type == FrameType.READ:
            right = size == 1 and 1 <= payload[1] <= READ_LIMIT
        else:
            response.error = ErrorCode.TYPE
            return
        if not right:
            response.error = ErrorCode.LENGTH
        elif payload[0] >= _REGISTERS:
            response.error = ErrorCode.REGISTER
        elif request.type == FrameType.WRITE:
            words = np.frombuffer(payload[1:], dtype="<u4").astype(np.int64)
            self._transport.write(cast(Register, payload[0]), words)
        else:
            words = self._transport.read(cast(Register, payload[0]), payload[1])
            response.payload += words.astype("<u4").tobytes()

    def _run_steps(self, chain: list[Frame], responses: list[_Response]) -> None:
        data = b"".join(frame.payload for frame in chain)
        ends = np.cumsum([len(frame.payload) for frame in chain]).tolist()
        step = 2 + self._x_bytes
        count, rest = divmod(len(data), step)
        # A step that is cut short gets zeros.
        padded = data + bytes(step - rest) if rest > 2 else data[: count * step]
        steps = np.frombuffer(padded, dtype=np.uint8).reshape(-1, step)
        heads = decode_values(steps[:, :2].tobytes(), 2)
        # Steps here have one size: those of other networks are refused.
        mask = NUMBER_MASK if self._manifest.parameters.networks > 1 else STREAM_MASK
        streams, suppress = heads & mask, (heads & SUPPRESS) != 0
        known = (streams ^ self._network << NETWORK_BIT) < self._manifest.parameters.streams
        valid = len(known) if known.all() else int(np.argmin(known))
        outputs = self._exchange(steps[:valid], streams[:valid], suppress[:valid])
        current = self._deal(outputs[:count], step, ends, responses)
        error = ErrorCode.STREAM if valid < len(known) else ErrorCode.LENGTH if rest else None
        if error is ErrorCode.STREAM:
            # The fault is detected when a step's first two bytes have been read.
            current = max(current, next(i for i, end in enumerate(ends) if end >= valid * step + 2))
        elif error is ErrorCode.LENGTH:
            # The fault is detected at the end of the last frame.
            current = len(chain) - 1
        for response in responses[current:] if error else []:
            response.error = error
            response.payload.clear()

    def _exchange(self, steps: np.ndarray, streams: np.ndarray, suppress: np.ndarray) -> list[bytes]:
        """Run steps; return each one's bytes of output, none for suppressed outputs."""
        if not len(steps):
            return []
        bits = self._manifest.input_port.bits
        half = 1 << (bits - 1)
        x = decode_values(steps[:, 2:].tobytes(), self._x_size).reshape(len(steps), -1)
        x = ((x & (2 * half - 1)) ^ half) - half
        y = self._transport.exchange(streams, x, suppress if suppress.any() else None)
        self.steps += len(steps)
        rows = encode_values(np.asarray(y), self._y_size)
        return [b"" if suppressed else row.tobytes() for row, suppressed in zip(rows, suppress, strict=True)]

    def _deal(self, outputs: list[bytes], step: int, ends: list[int], responses: list[_Response]) -> int:
        """Put outputs into the responses of the frames that are current when they come.

        Returns the frame that is current at the end.
        """
        room, current, used = self.limits.body - HEADER.size, 0, 0
        for output in outputs:
            used += step
            while ends[current] < used:
                current += 1
            while output:
                payload = responses[current].payload
                taken = room - len(payload)
                payload += output[:taken]
                output = output[taken:]
                if output:
                    if used < ends[current] or current == len(ends) - 1:
                        break
                    current += 1
        return current
