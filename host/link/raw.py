"""Raw steps over SPI or Ethernet, without a session; ``docs/link.md`` describes the transfers."""

import contextlib
import socket
import time
from binascii import crc_hqx
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.host.link.framing import decode_values, encode_values
from rtlstm.host.raw_values import Steps
from rtlstm.host.transport import Closing
from rtlstm.spec.errors import DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.link import (
    RAW_CRC_BYTES,
    RAW_CRC_START,
    RAW_STEP,
    RESET_STATE,
    UDP_PORT,
    FrameType,
    value_bytes,
)
from rtlstm.spec.manifest import Manifest

_SECONDS = 0.5
"""After which a result counts as lost."""
_MOST = 1 << 16
"""Bytes of a datagram."""

Exchange = Callable[[bytes], bytes]
"""Sends the bytes of a transfer. Over SPI it selects the raw mode once, and returns the bytes that come
meanwhile, as many; over Ethernet it returns the next datagram, or nothing if none comes. No bytes ask for
one more datagram."""


class RawLink:
    """Runs single steps of a build whose weights are loaded already.

    Nothing is sent again: after an error the step may have been run or not, so reset the state.

    Parameters
    ----------
    manifest
        The build that the device holds, which the raw mode cannot check.
    exchange
        How bytes go to the device, such as :class:`UdpExchange` or the method ``transfer`` of a
        ``periphery.SPI``.
    spare
        Over SPI the zeros behind a step during which it is run, for its result to come in the same transfer;
        0 for a result that further transfers ask for. None for datagrams.
    seconds
        How long a result is asked for, behind the first transfer, and datagrams that hold none are skipped.
    """

    def __init__(
        self, manifest: Manifest, exchange: Exchange, spare: int | None = None, *, seconds: float = _SECONDS
    ) -> None:
        self._manifest, self._exchange, self._spare, self._seconds = manifest, exchange, spare, seconds
        self._x_size = value_bytes(manifest.input_port.bits)
        self._y_size = value_bytes(manifest.numerics.output_bits)
        self._result = 1 + manifest.program.outputs * self._y_size + RAW_CRC_BYTES

    def step(self, x: ArrayLike, stream: int = 0, *, reset: bool = False) -> IntArray:
        """Run a step of codes, ``(inputs,)``, and return the codes of its outputs, ``(outputs,)``.

        Parameters
        ----------
        reset
            Reset the stream's state before.

        Raises
        ------
        InputError
            If there is no such stream, or ``x`` has other values.
        DeviceError
            If no whole result comes, or the device refuses the step.
        """
        checked = Steps.checked(self._manifest, [stream], np.asarray(x)[None])
        head = (stream | reset * RESET_STATE).to_bytes(2, "little")
        sent = bytes([RAW_STEP]) + head + encode_values(checked.x, self._x_size).tobytes()
        sent += crc_hqx(sent, RAW_CRC_START).to_bytes(RAW_CRC_BYTES, "big")
        more = bytes(self._spare + self._result if self._spare else 0)
        asks = b"" if self._spare is None else bytes(2 + self._result)
        came = bytes(self._exchange(sent + more))
        found = self._find(came if self._spare is None else came[len(sent) :])
        deadline = time.monotonic() + self._seconds
        while came and not found and time.monotonic() < deadline:
            came = bytes(self._exchange(asks))
            # The first byte of a transfer says nothing.
            found = self._find(came if self._spare is None else came[1:])
        if not found:
            raise DeviceError(
                "a raw step must be answered, but no whole result came; check cable and bitstream, and reset "
                "the state, since the step may have been run"
            )
        if found[0] == FrameType.ERROR:
            raise DeviceError(
                "the device has no such stream, or its program is being loaded; load this build's bitstream "
                "and its weights"
            )
        return decode_values(found[1:-RAW_CRC_BYTES], self._y_size)

    def _find(self, data: bytes) -> bytes:
        """Return the result in what came; nothing if there is no whole one."""
        data = data.lstrip(b"\0")
        size = self._result if data[:1] == bytes([FrameType.DONE]) else 2 + RAW_CRC_BYTES
        whole = data[:size]
        kind = whole[:1] in (bytes([FrameType.DONE]), bytes([FrameType.ERROR]))
        return whole if kind and len(whole) == size and not crc_hqx(whole, RAW_CRC_START) else b""


class UdpExchange(Closing):
    """Sends datagrams to a board, and waits ``seconds`` for what comes in answer to each.

    Raises
    ------
    DeviceError
        If there is no such host.
    """

    def __init__(self, host: str, port: int = UDP_PORT, seconds: float = _SECONDS) -> None:
        self._seconds, self._deadline = seconds, 0.0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.connect((host, port))
        except OSError as error:
            self._socket.close()
            raise DeviceError(
                f"{host}:{port} must be reachable for raw steps, but is not ({error}); check host and port"
            ) from None

    def __call__(self, data: bytes) -> bytes:
        """Send a datagram, if there are bytes for one; return the next one, or nothing if none comes."""
        came = b""
        with contextlib.suppress(OSError):
            if data:
                self._send(data)
            while not came:
                self._socket.settimeout(max(0, self._deadline - time.monotonic()))
                came = self._socket.recv(_MOST)
        return came

    def _send(self, data: bytes) -> None:
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            # What came too late for an earlier step is no answer to this one.
            while True:
                self._socket.recv(_MOST)
        self._deadline = time.monotonic() + self._seconds
        self._socket.send(data)

    def close(self) -> None:
        """Release the port of this machine."""
        self._socket.close()
