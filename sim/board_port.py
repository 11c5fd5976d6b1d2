"""The serial port of a simulated board."""

import math

from rtlstm.sim.simulated_board import NativeBoard

_AWAKE = 2000
"""Cycles of the core's clock until the PLL has locked and the reset has ended."""
_GONE = 0.001
"""Seconds of the board's time that a broken connection stays closed."""


class BoardPort:
    """The serial port of a simulated board, as a :class:`~rtlstm.host.link.byte_ports.BytePort`.

    Its time is the board's: simulated time passes only in ``read`` and ``pause``.
    """

    def __init__(self, board: NativeBoard) -> None:
        self._board = board
        self._hertz = board.clock_hz
        # No host opens the port of a board that is still in reset.
        board.run(_AWAKE)

    def now(self) -> float:
        """Return seconds since power-up."""
        return self._board.cycle / self._hertz

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        self._board.send(data)

    def read(self, seconds: float) -> bytes:
        """Return the bytes that have come; if there are none, run the board for up to ``seconds``."""
        return self._board.run(self._cycles(seconds))

    def pause(self, seconds: float) -> None:
        """Run the board; what it sends meanwhile is lost, as at a port that no program has open."""
        end = self.now() + seconds
        while self.now() < end:
            self._board.run(self._cycles(end - self.now()))

    def _cycles(self, seconds: float) -> int:
        # Rounded up: if a wait of less than a cycle took no time, the host would wait for ever.
        return max(0, math.ceil(seconds * self._hertz))

    def reopen(self) -> None:
        """Reconnect the cable: bytes in transfer are lost, and so is what the board sends meanwhile."""
        self._board.cut()
        self.pause(_GONE)

    def close(self) -> None:
        """Switch the board off."""
        self._board.close()
