"""Your sensor here: four channels of an SPI ADC, an MCP3204, as a step of a network with four inputs.

It stands where ``FrontEnd`` of listener.py does, between pins and the core's input.
"""

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from sound_parts import Codes

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.core.layouts import input_beats
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest

CLOCKS, GAP = 19, 4
"""Clocks of a conversion: five of the command, two of sampling, twelve of the result; then a pause's."""


class FourChannels(Component):
    """Converts channels 0 to 3 in turn, for ever: 0 to 4095 becomes -1 to 1, rounded to the build's codes.

    ``half_cycles`` are the cycles of half a clock of the ADC, 3 at least: its clock has 1 MHz at 2.7 V.
    Raises ConfigurationError if they are fewer.
    """

    cs_n: Signal = Out(1)
    sck: Signal = Out(1)
    din: Signal = Out(1)
    dout: Signal = In(1)
    lost: Signal = Out(1)
    x: stream.Interface = Out(lambda given: input_beats(given))

    def __init__(self, manifest: Manifest, half_cycles: int) -> None:
        if half_cycles < 3:
            raise ConfigurationError(
                f"half a clock of the ADC must have at least 3 cycles, not {half_cycles}; give at least half "
                "of the core's clock in MHz"
            )
        self._codes, self._half = Codes(manifest, 12, 11), half_cycles
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.codes = codes = self._codes
        count, clock, high = Signal(range(self._half)), Signal(range(CLOCKS + GAP)), Signal()
        channel, shift, dout, sample = Signal(2), Signal(12), Signal(), Signal(signed(12))
        m.submodules.line = FFSynchronizer(self.dout, dout)
        ends = count == self._half - 1
        m.d.sync += [count.eq(Mux(ends, 0, count + 1)), high.eq(high ^ ends)]
        m.d.sync += [self.cs_n.eq(clock >= CLOCKS), self.sck.eq(high & (clock < CLOCKS))]
        # Start, single-ended, three bits of the channel.
        m.d.sync += self.din.eq(Array([1, 1, 0, channel[1], channel[0]])[clock])
        with m.If(codes.i.ready):
            m.d.sync += codes.i.valid.eq(0)
        with m.If(ends & high):
            m.d.sync += [
                shift.eq((shift << 1) | dout),
                clock.eq(Mux(clock == CLOCKS + GAP - 1, 0, clock + 1)),
            ]
            with m.If(clock == CLOCKS - 1):
                # The highest bit inverted: 2048 less.
                m.d.sync += [sample.eq(((shift << 1) | dout) ^ 0x800), codes.i.valid.eq(1)]
                m.d.sync += channel.eq(channel + 1)
                m.d.comb += self.lost.eq(codes.i.valid & ~codes.i.ready)
        m.d.comb += codes.i.payload.eq(sample)
        wiring.connect(m, codes.x, wiring.flipped(self.x))
        return m
