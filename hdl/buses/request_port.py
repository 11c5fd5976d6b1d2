"""The interface between a bus and the registers: one request at a time."""

from amaranth.hdl import Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Interface
from rtlstm.spec.registers import Register

NUMBER_BITS = (max(Register)).bit_length()
"""Width of a register number."""


class RequestPort(Interface):
    """A port with the members of :class:`Requests`."""

    number: Signal
    write: Signal
    data: Signal
    whole: Signal
    valid: Signal
    done: Signal
    read_data: Signal
    refused: Signal


class Requests(wiring.Signature):
    """Requests from a bus to the registers.

    ``valid`` and the request are stable until the cycle with ``done``, which has the answer; ``valid`` in the
    cycle after that is a new request.

    Members
    -------
    number, write, data : Out
        Register, whether it is written, and the word to write.
    whole : Out(1)
        The request is for all four bytes of one word; other requests are refused.
    valid : Out(1), done : In(1)
        Handshake.
    read_data : In(32), refused : In(1)
        The answer.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "number": Out(NUMBER_BITS),
                "write": Out(1),
                "data": Out(32),
                "whole": Out(1),
                "valid": Out(1),
                "done": In(1),
                "read_data": In(32),
                "refused": In(1),
            }
        )

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> RequestPort:
        """Make a port."""
        return RequestPort(self, path=path, src_loc_at=src_loc_at + 1)


class BusSlave(Component):
    """Converts a bus' transfers to requests, one at a time; has the bus' ports in addition to ``bus``."""

    bus: RequestPort


class FifoPort(Interface):
    """A port with the members of :class:`PortRequests`."""

    number: Signal
    write: Signal
    data: Signal
    decided: Signal
    read_data: Signal
    refused: Signal


class PortRequests(wiring.Signature):
    """Requests from the registers to a further component that has some of them.

    Members
    -------
    number, write, data : Out
        The request.
    decided : Out(1)
        The request takes effect with this cycle, unless it is refused.
    read_data : In(32), refused : In(1)
        The answer, in the same cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "number": Out(NUMBER_BITS),
                "write": Out(1),
                "data": Out(32),
                "decided": Out(1),
                "read_data": In(32),
                "refused": In(1),
            }
        )

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> FifoPort:
        """Make a port."""
        return FifoPort(self, path=path, src_loc_at=src_loc_at + 1)
