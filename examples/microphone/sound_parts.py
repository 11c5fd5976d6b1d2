"""From an I2S microphone to the core's input, and from the core's output to a pin.

Each part has streams of :mod:`amaranth.lib.stream`, so that another one takes its place: your sensor goes
where :class:`I2sReceiver` is. All run in the domain ``sync``.
"""

import math
from typing import Any

import numpy as np
from amaranth.hdl import Array, Module, Mux, Signal, Value, signed
from amaranth.lib import stream
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.data import StructLayout
from amaranth.lib.memory import Memory

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.core.layouts import input_beats, output_beats
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest

SLOTS, LEFT = 64, 32
"""Bits of a frame of I2S, and those of its left half."""


class I2sReceiver(Component):
    """Makes the clocks of an I2S microphone and receives its left channel, 24 bits with the first one high.

    A sample is offered right behind its last bit. If it is not taken before the next one comes, it is lost.

    Parameters
    ----------
    bit_cycles
        Cycles of a bit, an even number from 4 on. A sample comes every ``64 * bit_cycles`` cycles.
    """

    bclk: Signal = Out(1)
    ws: Signal = Out(1)
    """To the microphone: bit clock and word select, 0 for left. The microphone changes its bit when ``bclk``
    falls."""
    sd: Signal = In(1)
    """From the microphone."""
    samples: stream.Interface = Out(stream.Signature(signed(24)))
    lost: Signal = Out(1)
    """High for a cycle when a sample is lost."""

    def __init__(self, bit_cycles: int) -> None:
        if bit_cycles < 4 or bit_cycles % 2:
            raise ConfigurationError(
                f"a bit of I2S must have an even number of cycles from 4 on, not {bit_cycles}"
            )
        self._cycles = bit_cycles
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, slot, shift, sd = Signal(range(self._cycles)), Signal(range(SLOTS)), Signal(24), Signal()
        falls = count == self._cycles - 1
        m.submodules.line = FFSynchronizer(self.sd, sd)
        m.d.sync += [count.eq(Mux(falls, 0, count + 1)), self.bclk.eq(count >= self._cycles // 2)]
        m.d.sync += self.ws.eq(slot >= LEFT)
        out = self.samples
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        # The pins' registers and the synchroniser delay all by as much as a bit has cycles at least: what is
        # read here is what the microphone has given before bclk rose, or long after if cycles are many.
        with m.If(falls):
            m.d.sync += [slot.eq(slot + 1), shift.eq((shift << 1) | sd)]
            # In the first bit after a change of ws is still the other channel.
            with m.If(slot == 24):
                m.d.sync += [out.payload.eq((shift << 1) | sd), out.valid.eq(1)]
                m.d.comb += self.lost.eq(out.valid & ~out.ready)
        return m


def rounded(value: Value, drop: int, bits: int, zero: Value | int = 0) -> Value:
    """Return a value without its ``drop`` lowest bits, rounded half up and saturated to ``bits`` bits.

    If ``drop`` is negative, zeros are appended. This is docs/numerics.md's rounding and saturation, with
    ``zero`` added in between.
    """
    value = ((value + (1 << drop - 1)) >> drop if drop > 0 else value << -drop) + zero
    most = (1 << bits - 1) - 1
    return Mux(value > most, most, Mux(value < -most, -most, value))[:bits].as_signed()


class Narrow(Component):
    """Rounds and saturates samples to fewer bits: sample by sample, without a delay.

    Parameters
    ----------
    before, after
        Bits of a sample. Both stand for -1 to 1.
    gain
        How often a sample is doubled first.
    """

    i: stream.Interface = In(lambda given: stream.Signature(signed(given[0])))
    o: stream.Interface = Out(lambda given: stream.Signature(signed(given[1])))

    def __init__(self, before: int, after: int, gain: int = 0) -> None:
        self._drop, self._bits = before - after - gain, after
        super().__init__((before, after))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.o.payload.eq(rounded(self.i.payload, self._drop, self._bits)),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
        ]
        return m


class Framer(Component):
    """Makes steps of samples: in each the last ones of the step before, zeros in the first, then new ones.

    A new sample is passed on in the cycle in which it comes, so nothing waits for the whole step.

    Parameters
    ----------
    bits
        Bits of a sample.
    before, new
        Samples of a step that stood in the one before, at least 1, and those that are new.
    """

    i: stream.Interface = In(lambda bits: stream.Signature(signed(bits)))
    o: stream.Interface = Out(
        lambda bits: stream.Signature(StructLayout({"sample": signed(bits), "last": 1}))
    )

    def __init__(self, bits: int, before: int, new: int) -> None:
        self._bits, self._before, self._new = bits, before, new
        super().__init__(bits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory: Memory[Any, Any] = Memory(shape=signed(self._bits), depth=self._before, init=[])
        m.submodules.memory = memory
        write, read = memory.write_port(), memory.read_port(domain="comb")
        count, oldest, first = (
            Signal(range(self._before + self._new)),
            Signal(range(self._before)),
            Signal(init=1),
        )
        again, o = count < self._before, self.o
        moves = o.valid & o.ready
        m.d.comb += [
            # What is kept is a ring: each sample takes the room of the one that is oldest.
            read.addr.eq(oldest),
            write.addr.eq(oldest),
            write.data.eq(o.payload.sample),
            write.en.eq(moves),
            o.payload.sample.eq(Mux(again, Mux(first, 0, read.data), self.i.payload)),
            o.payload.last.eq(count == self._before + self._new - 1),
            o.valid.eq(again | self.i.valid),
            self.i.ready.eq(~again & o.ready),
        ]
        with m.If(moves):
            m.d.sync += [
                oldest.eq(Mux(oldest == self._before - 1, 0, oldest + 1)),
                count.eq(Mux(o.payload.last, 0, count + 1)),
                first.eq(first & ~o.payload.last),
            ]
        return m


def steps_of(samples: Any, before: int, new: int) -> Any:
    """Return what :class:`Framer` makes of samples ``(n,)``: whole steps, ``(n // new, before + new)``."""
    steps = len(samples) // new
    padded = np.concatenate([np.zeros(before, dtype=np.int64), samples[: steps * new]])
    return np.stack([padded[new * step : new * step + before + new] for step in range(steps)])


class Codes(Component):
    """Makes a build's input of values: rounds and saturates each to its code, and counts them into steps.

    Raises ConfigurationError if the build has several streams, takes several values a beat, or has factors
    of inputs that are not powers of two.

    Parameters
    ----------
    bits, fraction
        Format of the values, signed.
    """

    i: stream.Interface = In(lambda given: stream.Signature(signed(given[1])))
    x: stream.Interface = Out(lambda given: input_beats(given[0]))

    def __init__(self, manifest: Manifest, bits: int, fraction: int) -> None:
        inputs = manifest.program.inputs
        factors = np.broadcast_to(manifest.numerics.input_factor, inputs)
        shifts = np.log2(factors)
        parameters = manifest.parameters
        if parameters.beat_in != 1 or parameters.streams != 1 or manifest.sequence is not None:
            raise ConfigurationError("values are given one by one: build with --beat-in 1 and --streams 1")
        if (shifts != np.round(shifts)).any():
            raise ConfigurationError(
                "factors of inputs must be powers of two: give the range of the inputs with --input-range"
            )
        form = manifest.numerics.input
        self._bits = form.bits
        self._drops = [fraction - form.fraction - int(shift) for shift in shifts]
        self._zeros = manifest.numerics.input_zeros or (0,) * inputs
        super().__init__((manifest, bits))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kinds = sorted(set(self._drops))
        index = Signal(range(len(self._drops)))
        # A ROM: Yosys would make a long chain of choices of the entries of an array.
        layout = StructLayout({"kind": range(len(kinds)), "zero": signed(32)})
        rows = [
            {"kind": kinds.index(drop), "zero": zero}
            for drop, zero in zip(self._drops, self._zeros, strict=True)
        ]
        table: Memory[Any, Any] = Memory(shape=layout, depth=len(rows), init=rows)
        m.submodules.table = table
        row = table.read_port(domain="comb")
        choices = Array(rounded(self.i.payload, drop, self._bits, row.data.zero) for drop in kinds)
        m.d.comb += [
            row.addr.eq(index),
            self.x.payload.data.eq(choices[row.data.kind]),
            self.x.valid.eq(self.i.valid),
            self.i.ready.eq(self.x.ready),
        ]
        with m.If(self.x.valid & self.x.ready):
            m.d.sync += index.eq(Mux(index == len(self._drops) - 1, 0, index + 1))
        return m


class Decision(Component):
    """Compares each result with a threshold: on above the one, off below the other, else as before.

    Raises ConfigurationError if the thresholds are the wrong way around, or the network has several outputs.
    """

    y: stream.Interface = In(output_beats)
    on: Signal = Out(1)
    step: Signal = Out(1)
    """Changes with each decision."""

    def __init__(self, manifest: Manifest, above: float, below: float) -> None:
        if manifest.program.outputs != 1:
            raise ConfigurationError(
                f"a decision needs a network with 1 output, not {manifest.program.outputs}"
            )
        if below > above:
            raise ConfigurationError(f"on above {above} and off below {below} contradict each other")
        self.codes = decision_codes(manifest, above, below)
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        above, below = self.codes
        value = self.y.payload.data.as_signed()
        m.d.comb += self.y.ready.eq(1)
        with m.If(self.y.valid):
            m.d.sync += [
                self.on.eq((value > above) | (self.on & (value >= below))),
                self.step.eq(~self.step),
            ]
        return m


def decision_codes(manifest: Manifest, above: float, below: float) -> tuple[int, int]:
    """Return thresholds as codes of the output: on above the first, off below the second."""
    scale = 2.0 ** manifest.layers[-1].output.fraction
    return math.floor(above * scale), math.ceil(below * scale)


def decide(y: Any, codes: tuple[float, float]) -> list[bool]:
    """Return what :class:`Decision` says after each of the results ``(T,)``, codes or floats."""
    said, on = [], False
    for value in y:
        on = bool(value > codes[0] or (on and value >= codes[1]))
        said.append(on)
    return said
