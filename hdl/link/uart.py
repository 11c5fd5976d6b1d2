"""A UART: 8 data bits, no parity, one stop bit, least significant bit first.

A bit may take a fraction of a cycle: then some bits of a byte are a cycle longer than others, so that each of
its edges is within half a cycle of where it belongs.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, ValueLike
from amaranth.lib import stream, wiring

from rtlstm.hdl.component import Component, In, Out
from rtlstm.spec.errors import ConfigurationError

SMALLEST_DIVISOR = 4
"""Fewest clock cycles per bit at which the two rates may still differ by 2 %, or by 1 % if a bit takes a
fraction of a cycle."""
_BITS = 10
"""Bits of a byte on the line: a start bit, data and a stop bit."""


def bit_cycles(divisor: Fraction | int) -> tuple[int, ...]:
    """Return the cycles of each bit of a byte, from the start bit on."""
    edges = [round(number * divisor) for number in range(_BITS + 1)]
    return tuple(end - begin for begin, end in pairwise(edges))


def _reload(cycles: Sequence[int], left: Signal) -> ValueLike:
    """Return what the timer of the next bit begins with, the first of ``left``; bits take these cycles."""
    least = min(cycles)
    longer = Const(
        sum(1 << (_BITS - number) for number, each in enumerate(cycles) if each > least), _BITS + 1
    )
    return Mux(longer.bit_select(left, 1), least, least - 1) if max(cycles) > least else least - 1


def check_divisor(divisor: Fraction | int) -> Fraction | int:
    """Return ``divisor``. Raises ConfigurationError if it is too small."""
    if divisor < SMALLEST_DIVISOR:
        raise ConfigurationError(
            f"divisor (clock cycles per bit) must be at least {SMALLEST_DIVISOR}, not {float(divisor):g}; "
            "choose a lower baud rate or a faster clock"
        )
    return divisor


class UartReceiver(Component):
    """Receives bytes.

    A byte is offered half a bit time and three cycles after its stop bit begins. It is lost if it is not
    accepted before the next is complete, or if its stop bit is low.
    """

    rx: Signal = In(1)
    """The input, not synchronous to the clock."""
    o: stream.Interface = Out(stream.Signature(8))

    def __init__(self, divisor: Fraction | int) -> None:
        self._divisor = check_divisor(divisor)
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, line = Signal(init=1), Signal(init=1)
        m.d.sync += [first.eq(self.rx), line.eq(first)]
        # Number of samples left: start bit, data, stop bit. Each is taken in the middle of its bit.
        cycles = bit_cycles(self._divisor)
        left, timer = Signal(range(_BITS + 1)), Signal(range(max(cycles)))
        bits, sample = Signal(8, reset_less=True), Signal()
        m.d.comb += sample.eq((left != 0) & (timer == 0))
        m.d.sync += timer.eq(Mux(timer == 0, _reload(cycles, left), timer - 1))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(left == 0):
            # Half a bit, minus the cycle and a half, on average, from the edge to the start of the count.
            m.d.sync += timer.eq(int((self._divisor - 3) / 2))
            with m.If(~line):
                m.d.sync += left.eq(_BITS)
        with m.If(sample):
            m.d.sync += [left.eq(left - 1), bits.eq(Cat(bits[1:], line))]
            with m.If((left == _BITS) & line):
                m.d.sync += left.eq(0)
            with m.If((left == 1) & line):
                m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(bits)]
        return m


class UartTransmitter(Component):
    """Transmits bytes without a pause between them."""

    i: stream.Interface = In(stream.Signature(8))
    tx: Signal = Out(1)
    """The output, from a register; 1 when idle."""

    def __init__(self, divisor: Fraction | int) -> None:
        self._divisor = check_divisor(divisor)
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = Signal(_BITS, init=-1)
        cycles = bit_cycles(self._divisor)
        left, timer = Signal(range(_BITS)), Signal(range(max(cycles)))
        m.d.comb += [self.tx.eq(bits[0]), self.i.ready.eq((left == 0) & (timer == 0))]
        with m.If(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Elif(left != 0):
            m.d.sync += [
                bits.eq(Cat(bits[1:], 1)),
                left.eq(left - 1),
                timer.eq(_reload(cycles, left)),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += [
                bits.eq(Cat(Const(0, 1), self.i.payload, 1)),
                left.eq(_BITS - 1),
                timer.eq(cycles[0] - 1),
            ]
        return m


class Uart(Component):
    """Receiver and transmitter of a serial port.

    ``divisor`` is the number of clock cycles per bit, perhaps a fraction, at least :data:`SMALLEST_DIVISOR`.
    """

    rx: Signal = In(1)
    tx: Signal = Out(1)
    """The serial port's pins."""
    received: stream.Interface = Out(stream.Signature(8))
    sent: stream.Interface = In(stream.Signature(8))
    """Their bytes; see :class:`UartReceiver` and :class:`UartTransmitter`."""

    def __init__(self, divisor: Fraction | int) -> None:
        self._divisor = check_divisor(divisor)
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(self._divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(self._divisor)
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]
        wiring.connect(m, receiver.o, wiring.flipped(self.received))
        wiring.connect(m, wiring.flipped(self.sent), transmitter.i)
        return m
