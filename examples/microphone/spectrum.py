"""What silero computes in front of its convolutions: magnitudes of a short Fourier transform, in integers.

A step is some samples, with the last ones mirrored behind them, as many as a quarter of a frame. Frames of
``points`` samples begin half a frame apart, and Hann's window weights them. A frame has ``points / 2 + 1``
bins. The samples ``n`` and ``points - n`` share their factors, so they are added, or subtracted, first.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import stream
from amaranth.lib.data import StructLayout
from amaranth.lib.memory import Memory
from sound_parts import rounded

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.primitives.pipeline import delay, delay_event
from rtlstm.spec.fixed import round_shift

SAMPLE_BITS: Final = 16
"""Bits of a sample, which is within -1 and 1."""
FRACTION: Final = 16
"""Fraction bits of windowed samples, of factors, and of magnitudes."""
_WIDE = 18


@dataclass(frozen=True)
class Frames:
    """Sizes of the transform."""

    points: int = 256
    """Samples of a frame, a power of two."""
    samples: int = 576
    """Samples of a step, without those that are mirrored: whole halves of a frame with them."""

    @property
    def bins(self) -> int:
        """Magnitudes of a frame."""
        return self.points // 2 + 1

    @property
    def count(self) -> int:
        """Frames of a step."""
        return (self.samples + self.points // 4 - self.points) // (self.points // 2) + 1

    @property
    def bits(self) -> int:
        """Bits of a sum, and of a magnitude: with sign, ``FRACTION`` of them behind the point."""
        return (self.points // 2).bit_length() + FRACTION + 2

    @property
    def window(self) -> Any:
        """Hann's window up to the middle, which is in two samples that are one: so half of it."""
        angle = 2 * np.pi * np.arange(self.bins) / self.points
        window = 0.5 - 0.5 * np.cos(angle)
        window[-1] /= 2
        return np.floor(np.ldexp(window, FRACTION + 1) + 0.5).astype(np.int64)

    @property
    def cosine(self) -> Any:
        """A whole turn of the cosine."""
        angle = 2 * np.pi * np.arange(self.points) / self.points
        return np.floor(np.ldexp(np.cos(angle), FRACTION) + 0.5).astype(np.int64)

    def magnitudes(self, steps: Any) -> Any:
        """Return what the hardware computes of steps ``(T, samples)``, ``(T, frames, bins)``."""
        mirrored = steps[:, -2 : -2 - self.points // 4 : -1]
        padded = np.concatenate([steps, mirrored], axis=1)
        half = np.arange(1, self.bins)
        phase = np.arange(self.bins)[:, None] * half
        cosine = self.cosine[phase % self.points]
        sine = self.cosine[(phase - self.points // 4) % self.points]
        found = []
        for number in range(self.count):
            frame = padded[:, number * self.points // 2 :][:, : self.points]
            one, other = frame[:, half], frame[:, self.points - half]
            even, odd = (
                round_shift(part * self.window[half], SAMPLE_BITS) for part in (one + other, one - other)
            )
            sums = [
                round_shift(part @ factors.T, FRACTION) for part, factors in ((even, cosine), (odd, sine))
            ]
            found.append(_roots(sums[0] ** 2 + sums[1] ** 2))
        return np.stack(found, axis=1)


def _roots(values: Any) -> Any:
    """Return square roots of integers below 2**52, rounded down."""
    found = np.floor(np.sqrt(values.astype(np.float64))).astype(np.int64)
    found -= found**2 > values
    return found + ((found + 1) ** 2 <= values)


def sums(bits: int) -> StructLayout:
    """The two sums of a bin."""
    return StructLayout({"cosine": signed(bits), "sine": signed(bits)})


class Transform(Component):
    """Computes the sums of each bin, frame by frame.

    A frame is computed when its samples are there, in ``bins * (points / 4 + 5) + points / 2 + 5`` cycles or
    more. Samples of the next frame come meanwhile; those of the one after it wait.
    """

    i: stream.Interface = In(stream.Signature(StructLayout({"sample": signed(SAMPLE_BITS), "last": 1})))
    o: stream.Interface = Out(lambda frames: stream.Signature(sums(frames.bits)))

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        super().__init__(frames)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        frames, points = self._frames, self._frames.points
        half, quarter = points // 2, points // 4
        samples: Memory[Any, Any] = Memory(shape=signed(SAMPLE_BITS), depth=frames.samples, init=[])
        window: Memory[Any, Any] = Memory(shape=signed(_WIDE), depth=half + 1, init=frames.window.tolist())
        turn: Memory[Any, Any] = Memory(shape=signed(_WIDE), depth=points, init=frames.cosine.tolist())
        m.submodules.samples, m.submodules.window, m.submodules.turn = samples, window, turn
        number, begin, bin_, n = (
            Signal(range(size)) for size in (frames.samples, frames.samples, frames.bins, half + 1)
        )
        waits, angle = Signal(2), Signal(range(points))

        write = samples.write_port()
        m.d.comb += [
            write.addr.eq(number),
            write.data.eq(self.i.payload.sample),
            write.en.eq(self.i.valid & self.i.ready),
        ]

        def place(offset: Any) -> Any:
            """Where a sample of the frame is, which may be a mirrored one."""
            index = begin + offset
            return Mux(index >= frames.samples, 2 * frames.samples - 2 - index, index)

        # Windowing: a cycle each for reading, adding, multiplying and writing.
        folds = Signal()
        one, other, weight = samples.read_port(), samples.read_port(), window.read_port()
        m.d.comb += [one.addr.eq(place(n)), other.addr.eq(place(points - n)), weight.addr.eq(n)]
        parts = []
        for part in (one.data + other.data, one.data - other.data):
            product = delay(m, part, 1) * delay(m, weight.data, 1)
            parts.append(rounded(delay(m, product, 1), SAMPLE_BITS, _WIDE))
        place_of_n, folded = delay(m, n - 1, 3), delay_event(m, folds, 3)

        # The sums, of two samples at once: a cycle each for reading, turning, multiplying and adding. The
        # second sample is a quarter of a frame behind the first: its angle is some quarters of a turn more.
        adds, clear = Signal(), Signal()
        cosine, sine = turn.read_port(), turn.read_port()
        m.d.comb += [cosine.addr.eq(angle), sine.addr.eq(angle - points // 4)]
        c, s = cosine.data, sine.data
        turned = [(c, s), (Array([c, -s, -c, s])[bin_[:2]], Array([s, c, -s, -c])[bin_[:2]])]
        products = []
        for lane, factors in enumerate(turned):
            windowed: Memory[Any, Any] = Memory(shape=unsigned(2 * _WIDE), depth=quarter, init=[])
            m.submodules[f"windowed{lane}"] = windowed
            write, read = windowed.write_port(), windowed.read_port()
            m.d.comb += [
                write.addr.eq(place_of_n),
                write.data.eq(Cat(*parts)),
                write.en.eq(folded & (place_of_n[quarter.bit_length() - 1] == lane)),
                read.addr.eq(n - 1),
            ]
            values = delay(m, read.data, 1)
            halves = values[:_WIDE].as_signed(), values[_WIDE:].as_signed()
            narrow = [delay(m, Value.cast(factor)[:_WIDE].as_signed(), 1) for factor in factors]
            products.append([delay(m, half * factor, 1) for half, factor in zip(halves, narrow, strict=True)])
        adding = delay_event(m, adds, 3)
        for name, one, other in zip(("cosine", "sine"), *products, strict=True):
            total = Signal(signed(frames.bits + FRACTION), name=f"sum_{name}")
            with m.If(clear):
                m.d.sync += total.eq(0)
            with m.Elif(adding):
                m.d.sync += total.eq(total + one + other)
            m.d.comb += self.o.payload[name].eq(rounded(total, FRACTION, frames.bits))

        pending, last = Signal(), Signal()
        m.d.comb += self.i.ready.eq(~pending)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [number.eq(Mux(self.i.payload.last, 0, number + 1)), last.eq(self.i.payload.last)]
            m.d.sync += pending.eq((number == begin + points - 1) | self.i.payload.last)
        with m.FSM():
            with m.State("WAIT"):
                m.d.sync += n.eq(1)
                with m.If(pending):
                    m.next = "FOLD"
            with m.State("FOLD"):
                m.d.comb += folds.eq(1)
                m.d.sync += n.eq(n + 1)
                with m.If(n == half):
                    m.d.sync += [bin_.eq(0), waits.eq(3), pending.eq(0)]
                    m.d.sync += begin.eq(Mux(last, 0, begin + half))
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += clear.eq(1)
                m.d.sync += [waits.eq(waits - 1), n.eq(1), angle.eq(bin_)]
                with m.If(waits == 0):
                    m.next = "ADD"
            with m.State("ADD"):
                m.d.comb += adds.eq(1)
                m.d.sync += [n.eq(n + 1), angle.eq(angle + bin_), waits.eq(2)]
                with m.If(n == quarter):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += waits.eq(waits - 1)
                with m.If(waits == 0):
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [bin_.eq(bin_ + 1), waits.eq(0)]
                    m.next = "BEGIN"
                    with m.If(bin_ == frames.bins - 1):
                        m.next = "WAIT"
        return m


class Magnitude(Component):
    """The root of the sum of two squares, rounded down, bit by bit: two cycles for each bit of a value."""

    i: stream.Interface = In(lambda bits: stream.Signature(sums(bits)))
    o: stream.Interface = Out(lambda bits: stream.Signature(signed(bits)))

    def __init__(self, bits: int) -> None:
        self._bits = bits
        super().__init__(bits)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self._bits
        count = Signal(range(bits))
        left, right = ((Signal(bits, name=f"bits{at}"), Signal(2 * bits, name=f"part{at}")) for at in "01")
        total, root, trial = (Signal(2 * bits, name=name) for name in ("total", "root", "trial"))
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [total.eq(0), count.eq(bits - 1)]
                for (value, part), given in (
                    (left, self.i.payload.cosine),
                    (right, self.i.payload.sine),
                ):
                    m.d.sync += [value.eq(abs(given)), part.eq(abs(given))]
                with m.If(self.i.valid):
                    m.next = "SQUARE"
            with m.State("SQUARE"):
                for value, part in (left, right):
                    m.d.sync += [value.eq(value >> 1), part.eq(part << 1)]
                squares = (Mux(value[0], part, 0) for value, part in (left, right))
                m.d.sync += [total.eq(sum(squares, start=total)), count.eq(count - 1)]
                with m.If(count == 0):
                    m.d.sync += [root.eq(0), trial.eq(1 << 2 * bits - 2)]
                    m.next = "ROOT"
            with m.State("ROOT"):
                fits = total >= root + trial
                m.d.sync += [root.eq((root >> 1) + Mux(fits, trial, 0)), trial.eq(trial >> 2)]
                m.d.sync += total.eq(total - Mux(fits, root + trial, 0))
                with m.If(trial[0]):
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(root)]
                with m.If(self.o.ready):
                    m.next = "TAKE"
        return m
