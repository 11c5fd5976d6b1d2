"""The serial line of a simulated board."""

import math

from rtlstm.sim.simulated_board import NativeBoard

__all__ = ["BoardPort"]

_AWAKE = 2000
"""The core's cycles after which PLL and reset have let go."""
_GONE = 0.001
"""Seconds of the board's time that a broken line is away."""


class BoardPort:
    """The serial line of a simulated board, as a :class:`~rtlstm.host.link.byte_ports.BytePort`.

    Its time is the board's: it passes only while somebody reads or pauses.
    """

    def __init__(self, board: NativeBoard) -> None:
        self._board = board
        self._hertz = board.clock_hz
        # Nobody is quick enough to open the line of a board that is still in reset.
        board.run(_AWAKE)

    def now(self) -> float:
        """Return seconds since the power came up."""
        return self._board.cycle / self._hertz

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        self._board.send(data)

    def read(self, seconds: float) -> bytes:
        """Return what has come, running the board for so long if nothing has."""
        return self._board.run(self._cycles(seconds))

    def pause(self, seconds: float) -> None:
        """Run the board; what it sends meanwhile is lost, as on a line that nobody has open."""
        end = self.now() + seconds
        while self.now() < end:
            self._board.run(self._cycles(end - self.now()))

    def _cycles(self, seconds: float) -> int:
        # Rounded up: a host that waits for less than a cycle must see time pass, or it waits for ever.
        return max(0, math.ceil(seconds * self._hertz))

    def reopen(self) -> None:
        """Plug the cable in again: what was on the way is lost, and what the board says meanwhile."""
        self._board.cut()
        self.pause(_GONE)

    def close(self) -> None:
        """Switch the board off."""
        self._board.close()
