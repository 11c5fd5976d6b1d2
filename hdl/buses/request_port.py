"""The interface between a bus and the registers: one request at a time."""

from amaranth.hdl import Signal
from amaranth.lib import wiring

from rtlstm.hdl.component import Component, In, Interface, Out
from rtlstm.spec.registers import Register

NUMBER_BITS = (max(Register)).bit_length()
"""Width of a register number."""


class RequestPort(Interface):
    """Requests from a bus to the registers, seen from the bus.

    ``valid`` and the request are stable until the cycle with ``done``, which has the answer; ``valid`` in the
    cycle after that is a new request.
    """

    number: Signal = Out(NUMBER_BITS)
    write: Signal = Out(1)
    data: Signal = Out(32)
    """Register, whether it is written, and the word to write."""
    whole: Signal = Out(1)
    """The request is for all four bytes of one word; other requests are refused."""
    valid: Signal = Out(1)
    done: Signal = In(1)
    """Handshake."""
    read_data: Signal = In(32)
    refused: Signal = In(1)
    """The answer."""


Requests = RequestPort.signature_for
"""The signature of a :class:`RequestPort`."""


class FifoPort(Interface):
    """Requests from the registers to a further component that has some of them, seen from the registers."""

    number: Signal = Out(NUMBER_BITS)
    write: Signal = Out(1)
    data: Signal = Out(32)
    """The request."""
    decided: Signal = Out(1)
    """The request takes effect with this cycle, unless it is refused."""
    read_data: Signal = In(32)
    refused: Signal = In(1)
    """The answer, in the same cycle."""


class BusSlave(Component):
    """Converts a bus' transfers to requests, one at a time; has the bus' ports, too."""

    bus: RequestPort = Out(RequestPort)

    @classmethod
    def bus_ports(cls, prefix: str = "") -> dict[str, wiring.Member]:
        """Return the ports of the bus, with a prefix."""
        return {prefix + name: port for name, port in cls.declared_members().items() if name != "bus"}
