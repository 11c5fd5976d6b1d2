"""AXI4-Stream: a packet is a step, whatever packets come, and each output says rightly how its packet was."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from support.formal import Inside, follow, free_inputs, holds, implies, step_size
from support.formal_shapes import fixed_manifest, loadable_manifest
from support.proofs import cases, covered, proven, refute, slow_cases, with_bug

from rtlstm.hdl.buses.axi_stream import InputStream, Mode, OutputStream, padded_bits
from rtlstm.spec.manifest import Manifest

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """Both streams of a wrapper, a master that sends any packets, a core, and a slave.

    Master and core keep the rule of streams. The core gives an output for each step that wants one, in
    order, after its input. With a loadable core the number of values changes in reset only.
    """

    def __init__(
        self,
        manifest: Manifest,
        source: type[InputStream] = InputStream,
        sink: type[OutputStream] = OutputStream,
    ) -> None:
        self._manifest = manifest
        self._source, self._sink = source(manifest), sink(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        manifest, source, sink = self._manifest, self._source, self._sink
        parameters, x, y = manifest.parameters, source.x.payload, sink.y
        free_inputs(m, source, "frame_ready")
        free_inputs(m, sink, "frame", "frame_valid", "forget")
        m.d.comb += [
            sink.frame.eq(source.frame),
            sink.frame_valid.eq(source.frame_valid),
            source.frame_ready.eq(sink.frame_ready),
        ]
        inside, frames = Inside(m, source, "source"), Inside(m, sink, "sink")
        running = ~ResetSignal()

        most, given = manifest.capacity.inputs, manifest.capacity.outputs
        values, beats = step_size(m, manifest, source, "inputs")

        # The master. A packet's first beat names its stream.
        named = Cat(source.tid, source.tuser)
        sent = Cat(source.tdata, named, source.tlast)
        offered = SimpleNamespace(payload=sent, valid=source.tvalid, ready=source.tready)
        taken = source.tvalid & source.tready
        within, name, differs = Signal(), Signal(len(named)), Signal()
        m.d.comb += Assume(holds(m, offered))
        with m.If(taken):
            m.d.sync += within.eq(~source.tlast)
            with m.If(~within):
                m.d.sync += name.eq(named)

        # A step: so many of its beats have moved to the core.
        moved, beat = source.x.valid & source.x.ready & running, Signal(range(most))
        first, last = beat == 0, beat == beats - 1
        with m.If(moved):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))

        # Packets and steps go side by side; else zeros complete a step whose packet has ended, or the rest of
        # a packet is dropped. So the next packet is always the next step.
        mode = inside["mode"]
        forwards, pads, drops = mode == Mode.FORWARD, mode == Mode.PAD, mode == Mode.DROP
        unknown = forwards & first & (source.tid >= parameters.streams)
        bits, width = manifest.numerics.data_bits, padded_bits(manifest.numerics.data_bits)
        words = Cat(source.tdata[width * i : width * i + bits] for i in range(parameters.beat_in))
        with m.If(running):
            m.d.comb += [
                Assert(forwards | pads | drops),
                Assert(implies(forwards, within == ~first)),
                Assert(implies(pads, ~within & ~first)),
                Assert(implies(drops, within & first)),
                Assert(moved == Mux(forwards, taken & ~unknown, pads & source.x.ready & sink.frame_ready)),
                Assert(implies(taken, forwards | drops)),
                Assert(holds(m, source.x)),
            ]
            with m.If(source.x.valid):
                m.d.comb += [
                    Assert(x.data == Mux(pads, 0, words)),
                    Assert(Cat(x.stream, x.suppress) == Mux(first, named, name)),
                ]

        # A packet is malformed if its step needs zeros, or drops some of it, or its stream changes within it.
        # That is told once, and with the step; a packet for no stream is told when it comes.
        differs_now = within & (named != name) & forwards
        malformed = pads | differs | differs_now | ~source.tlast
        told = Signal()
        m.d.sync += told.eq((told | (source.malformed & ~unknown)) & ~(moved & last))
        with m.If(moved):
            m.d.sync += differs.eq((differs | differs_now) & ~last)
        with m.If(running):
            m.d.comb += [
                Assert(source.frame_valid == (moved & last & ~x.suppress)),
                Assert(implies(moved & last, source.frame == malformed)),
                Assert(implies(moved & last, malformed == (told | source.malformed))),
                Assert(implies(source.malformed, taken & forwards & ~told)),
                Assert(implies(taken & unknown, source.malformed)),
                Assert(told == pads),
            ]

        # The core: steps that want an output, and have none yet; and the beats of the one that is given.
        computed, put = Signal(range(9)), Signal(range(given))
        outputs = -(-given // parameters.beat_out)
        done = y.valid & y.ready & y.payload.last & running
        m.d.sync += computed.eq(computed + source.frame_valid - done)
        m.d.comb += [Assume(holds(m, y)), Assume(implies(y.valid, (computed != 0) & running))]
        if parameters.capacity is None:
            m.d.comb += Assume(implies(y.valid, y.payload.last == (put == outputs - 1)))
            with m.If(y.valid & y.ready):
                m.d.sync += put.eq(Mux(y.payload.last, 0, put + 1))

        # Beats pass as they are, with what was found out about the packet of their step: it waits in a queue
        # that always has room for it.
        follow(m, frames, "frames")
        queue, out = frames["frames"], y.payload.data.word_select
        bits, width = manifest.numerics.output_bits, padded_bits(manifest.numerics.output_bits)
        extended = [
            Cat(word, word[-1].replicate(width - bits))
            for word in (out(i, bits) for i in range(parameters.beat_out))
        ]
        passed = Cat(sink.tdata, sink.tid, sink.tlast, sink.tuser)
        with m.If(running):
            m.d.comb += [
                Assert(queue.w_en == source.frame_valid),
                Assert(queue.w_data == source.frame),
                Assert(implies(queue.w_en, queue.w_rdy)),
                Assert(queue.level == computed),
                Assert(queue.r_en == done),
                Assert((sink.tvalid == y.valid) & (y.ready == sink.tready)),
                Assert(passed == Cat(*extended, y.payload.stream, y.payload.last, queue.r_data)),
                Assert(holds(m, SimpleNamespace(payload=passed, valid=sink.tvalid, ready=sink.tready))),
            ]

        # What its registers hold for that.
        with m.If(running):
            m.d.comb += [
                Assert(beat < beats),
                Assert(inside["step.first"] == first),
                Assert(inside["count_values.left"] == values - 1 - beat * parameters.beat_in),
                Assert(inside["changed"] == differs),
                Assert(implies(~first, Cat(inside["stream"], inside["suppress"]) == name)),
                Assert(implies(first, ~differs)),
            ]

        # All of this happens: an output tells of a malformed packet, and a later one of a sound one.
        bad = Signal()
        m.d.sync += bad.eq(bad | (done & sink.tuser))
        m.d.comb += Cover(bad & done & ~sink.tuser)
        return m


SHAPES = {
    "one value": partial(fixed_manifest, bus="axi", inputs=1, outputs=1),
    "three beats": partial(fixed_manifest, bus="axi", inputs=3, outputs=2),
    "last beat partly filled": partial(
        fixed_manifest, bus="axi", inputs=7, outputs=3, beat_in=2, beat_out=2, streams=3
    ),
    "four streams": partial(fixed_manifest, bus="axi", inputs=4, beat_in=2, streams=4),
    "loadable": partial(loadable_manifest, bus="axi", inputs=3, beat_in=2, streams=2),
}
test_holds = proven(Harness, cases(SHAPES, "last beat partly filled"))
test_reached = covered(Harness, 20, slow_cases(SHAPES, "one value", "last beat partly filled", "loadable"))


INPUT_BUGS = {
    "the next packet is not aligned": (
        "Mux(unknown, Mode.FORWARD, Mode.PAD), Mode.DROP",
        "Mode.FORWARD, Mode.DROP",
    ),
    "a step's stream changes": ("Mux(first, self.tid, stream)", "self.tid"),
    "a change is forgotten": ("changed.eq((changed | changes) & ~last)", "changed.eq(changes & ~last)"),
    "a change is remembered": ("changed.eq((changed | changes) & ~last)", "changed.eq(changed | changes)"),
    "steps without output": ("moved & last & ~x.suppress", "moved & last"),
    "dropping ends too early": (
        "self.tvalid & self.tlast & (mode == Mode.DROP)",
        "self.tvalid & (mode == Mode.DROP)",
    ),
}
OUTPUT_BUGS = {
    "told once a beat": ("frames.r_en.eq(self.done)", "frames.r_en.eq(self.tvalid & self.tready)"),
    "sign lost": ("word[-1].replicate(width - len(word))", "Const(0, width - len(word))"),
}


@pytest.mark.parametrize("bug", cases(INPUT_BUGS, "the next packet is not aligned"))
def test_bug_of_input_is_found(bug: tuple[str, str], tmp_path: Path) -> None:
    shape = SHAPES["last beat partly filled"]()
    refute(Harness(shape, source=with_bug(InputStream, *bug)), tmp_path, 24)


@pytest.mark.parametrize("bug", cases(OUTPUT_BUGS, "told once a beat"))
def test_bug_of_output_is_found(bug: tuple[str, str], tmp_path: Path) -> None:
    refute(Harness(SHAPES["last beat partly filled"](), sink=with_bug(OutputStream, *bug)), tmp_path, 20)


@pytest.mark.slow
def test_more_packets_than_room(tmp_path: Path) -> None:
    """Without ``frame_ready`` the ninth packet's state would be lost."""
    kind = with_bug(InputStream, "open_ = self.frame_ready & ~ResetSignal()", "open_ = ~ResetSignal()")
    refute(Harness(SHAPES["one value"](), source=kind), tmp_path, 12)
