"""The input FIFO of a bus wrapper: values written one by one become beats, in order, and always have room."""

from functools import partial

import pytest
from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib.data import View
from support.formal import Inside, before, follow, free_inputs, holds, implies, step_size
from support.formal_shapes import fixed_manifest, loadable_manifest
from support.proofs import cases, covered, found, proven, slow_cases

from rtlstm.hdl.buses.wrappers import InputFifo
from rtlstm.spec.inventory import WAITING_STEPS
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """An input FIFO, registers that write what they like when they like, and a core that takes beats.

    With a loadable core the number of values of a step changes in reset only, which begins the FIFO's life
    and lasts two cycles.
    """

    def __init__(self, manifest: Manifest, kind: type[InputFifo] = InputFifo) -> None:
        self._manifest = manifest
        self._fifo = kind(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fifo, port, x = self._fifo, self._fifo.port, self._fifo.x
        parameters, most = self._manifest.parameters, self._manifest.capacity.inputs
        free_inputs(m, fifo)
        inside = Inside(m, fifo)
        running, beat = ~ResetSignal(), parameters.beat_in

        values, beats = step_size(m, self._manifest, fifo, "inputs")

        # The registers. A value is refused only if it would begin a step that has no room.
        writes = port.decided & port.write & running
        mine = writes & (port.number == Register.X_DATA)
        index, steps = Signal(range(most)), Signal(range(WAITING_STEPS + 1))
        first, last = index == 0, index == values - 1
        accepted = mine & ~port.refused
        with m.If(accepted):
            m.d.sync += index.eq(Mux(last, 0, index + 1))
        with m.If(running & (port.number == Register.X_DATA)):
            m.d.comb += Assert(port.refused == (first & (steps == WAITING_STEPS)))

        # The stream is that of the last X_STREAM that was not refused, when the step begins.
        name = Cat(x.payload.stream, x.payload.suppress)
        named, step_name = Signal(len(name)), Signal(len(name))
        stream = port.data[: len(x.payload.stream)]
        with m.If(writes & (port.number == Register.X_STREAM)):
            m.d.comb += Assert(port.refused == (port.data[:16] >= parameters.streams))
            with m.If(~port.refused):
                m.d.sync += named.eq(Cat(stream, port.data[31]))
        with m.If(accepted & first):
            m.d.sync += step_name.eq(named)

        # Values of a beat come side by side: follow any one place. It has come, for the beat to be written.
        slot, chosen, bits = Signal(range(beat)), AnyConst(range(beat)), self._manifest.numerics.data_bits
        ends = accepted & (last | (slot == beat - 1))
        value, came = Signal(bits), Signal()
        m.d.comb += Assume(chosen < beat)
        with m.If(accepted):
            m.d.sync += [slot.eq(Mux(ends, 0, slot + 1)), came.eq((slot == chosen) | (came & (slot != 0)))]
            with m.If(slot == chosen):
                m.d.sync += value.eq(port.data[:bits])

        # A beat is written in the cycle after its last value. What is written is right, and has room; and all
        # that is written leaves once, in order, as it is.
        queue, pushes, final = inside["queue"], before(m, ends), before(m, accepted & last)
        written = View(x.payload.shape(), queue.w_data[:-1])
        with m.If(queue.w_en):
            m.d.comb += [
                Assert(queue.w_rdy),
                Assert(implies(came, written.data.word_select(chosen, bits) == value)),
                Assert(Cat(written.stream, written.suppress) == step_name),
                Assert(queue.w_data[-1] == final),
            ]
        follow(m, inside, "queue")
        taken = x.valid & x.ready
        m.d.comb += [
            Assert(queue.w_en == pushes),
            Assert(holds(m, x)),
            Assert(x.valid == (queue.r_rdy & running)),
            Assert(Value.cast(x.payload) == queue.r_data[:-1]),
        ]

        # Why there is room. Of the steps that have begun, and not left, some are written as a whole; the
        # oldest may be read in part, the newest written in part.
        whole, put, gone = Signal(range(WAITING_STEPS + 1)), Signal(range(most)), Signal(range(most))
        puts_last, takes_last = pushes & final, taken & (gone == beats - 1)
        with m.If(pushes):
            m.d.sync += put.eq(Mux(final, 0, put + 1))
        with m.If(taken):
            m.d.sync += gone.eq(Mux(takes_last, 0, gone + 1))
        m.d.sync += [
            whole.eq(whole + puts_last - takes_last),
            steps.eq(steps + (accepted & first) - takes_last),
        ]
        with m.If(running):
            m.d.comb += [
                Assert(index < values),
                Assert(slot < beat),
                Assert(inside["slot"] == slot),
                Assert(inside["step.first"] == first),
                Assert(inside["count_values.left"] == values - 1 - index),
                Assert(Cat(inside["stream"], inside["suppress"]) == named),
                Assert(Cat(inside["named"], inside["suppressed"]) == step_name),
                Assert(implies(came, inside["beats"].word_select(chosen, bits) == value)),
                Assert(implies(pushes, inside["final"] == final)),
                Assert(index == slot + Mux(puts_last, 0, (put + pushes) * beat)),
                Assert((put < beats) & (gone < beats) & implies(final, put == beats - 1)),
                Assert(queue.level + gone == whole * beats + put),
                Assert(implies(whole == 0, gone <= put)),
                Assert(steps == whole + Mux(puts_last, 1 + (index != 0), index != 0)),
                Assert(steps + inside["room"] == WAITING_STEPS),
            ]

        # Each word says rightly whether it is its step's last. ``place`` is its place in the queue.
        for row in range(queue.depth - 1):
            place = Signal(range(2 * queue.depth), name=f"place{row}")
            distance = row - inside["queue.consume"]
            m.d.comb += place.eq(Mux(distance < 0, distance + queue.depth - 1, distance) + queue.r_rdy)
            word = inside.word("queue.storage", row)
            m.d.comb += Assert(
                implies(running & (place < queue.level), word[-1] == self._is_last(place + gone, beats))
            )
        m.d.comb += Assert(implies(running & queue.r_rdy, queue.r_data[-1] == (gone == beats - 1)))

        # All of this happens: there was no room, and the last of what waited leaves.
        full = Signal()
        m.d.sync += full.eq(full | (steps == WAITING_STEPS))
        m.d.comb += Cover(full & takes_last & (steps == 1))
        return m

    def _is_last(self, place: Value, beats: Value) -> Value:
        """Whether a beat is the last of its step, by its place after a step's first beat."""
        return Cat(place == (step + 1) * beats - 1 for step in range(WAITING_STEPS)).any()


SHAPES = {
    "one value": partial(fixed_manifest, bus="axilite", inputs=1),
    "three beats": partial(fixed_manifest, bus="axilite", inputs=3),
    "last beat partly filled": partial(fixed_manifest, bus="axilite", inputs=3, beat_in=2, streams=3),
    "one full beat": partial(fixed_manifest, bus="axilite", inputs=4, beat_in=4),
    "loadable": partial(loadable_manifest, bus="axilite", inputs=3, beat_in=2, streams=2),
}
test_holds = proven(Harness, cases(SHAPES, "last beat partly filled"))
test_reached = covered(Harness, 30, slow_cases(SHAPES, "one value", "last beat partly filled", "loadable"))

BUGS = {
    "no room counted": ("(accepted & first) + gone", "gone"),
    "room for each beat": (
        "gone = self.x.valid & self.x.ready & leaves",
        "gone = self.x.valid & self.x.ready",
    ),
    "an unfinished last beat waits": ("ends.eq(accepted & (last | (slot", "ends.eq(accepted & ((slot"),
    "the next step's stream": ("named, suppressed, final)", "stream, suppress, final)"),
    "a beat that is not taken": ("r_en.eq(self.x.valid & self.x.ready)", "r_en.eq(self.x.valid)"),
    "a value in the middle refused": ("(mine & first & full)", "(mine & full)"),
    "an unknown stream": ("port.write & wants_stream & ~unknown", "port.write & wants_stream"),
}
test_bug_is_found = found(
    Harness, InputFifo, cases(BUGS, "no room counted"), 24, SHAPES["last beat partly filled"]
)
