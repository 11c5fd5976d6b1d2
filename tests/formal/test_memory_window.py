"""The memory window in a whole core: it opens, and commands come, only between steps."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, ResetSignal, Signal, Value
from support.formal import Inside, before, free_inputs, free_module, holds, implies
from support.formal_shapes import fixed_manifest, loadable_manifest
from support.proofs import cases, prove, reach, refute, with_bug

from rtlstm.hdl.core.core import Core, part_modules
from rtlstm.hdl.core.ends import StepEnds
from rtlstm.spec.family import Pipeline
from rtlstm.spec.manifest import Manifest

pytestmark = pytest.mark.tools


class Harness(Elaboratable):
    """A whole core and a bus that keeps the rule of streams; memories, lanes and units are free."""

    def __init__(self, manifest: Manifest, kind: type[Core] = Core) -> None:
        self._manifest = manifest
        self._core = kind(manifest, StepEnds(manifest))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core, bus = self._core, self._core.bus
        free_inputs(m, core)
        inside = Inside(m, core)
        sequencer, running = inside["_sequencer"], ~ResetSignal()
        asked = Cat(bus.address, bus.write, bus.data)
        m.d.comb += Assume(holds(m, SimpleNamespace(payload=asked, valid=bus.valid, ready=bus.ready)))

        # In some cycle all was idle, and since then the window has been wanted. The proof of the sequencer
        # shows that nothing begins then.
        wanted, settled = sequencer.window_wanted, Signal()
        commands = sequencer.reset_stream | sequencer.state_written | sequencer.weights_written
        m.d.sync += settled.eq(wanted & (sequencer.idle | settled))
        with m.If(running):
            m.d.comb += [
                Assert(implies(sequencer.window, wanted & settled)),
                Assert(implies(commands, wanted & settled)),
                # That a row ends is decided before its last word is staged, whatever came before.
                Assert(
                    implies(
                        inside["_serve.states"].ongoing("WORD"),
                        inside["_serve.row_ends"] == inside["_serve.last_word"],
                    )
                ),
            ]

        # A loadable core is stopped only through the open window, and what it knows of a step changes only
        # while it is: so the proof of the sequencer assumes.
        if self._manifest.parameters.capacity is not None:
            stopped, step = sequencer.stopped, Value.cast(sequencer.step)
            fresh = Signal(init=1)
            m.d.sync += fresh.eq(0)
            was_stopped = before(m, stopped) | fresh
            with m.If(running):
                m.d.comb += [
                    Assert(implies(fresh, stopped)),
                    Assert(implies(stopped & ~was_stopped, before(m, sequencer.window))),
                    Assert(implies(step != before(m, step), stopped & was_stopped)),
                    Assert(implies(sequencer.program_window, sequencer.window)),
                ]

        # All of this happens: after a weight was written, the window opens again.
        written = Signal()
        m.d.sync += written.eq(written | sequencer.weights_written)
        m.d.comb += Cover(written & sequencer.window & running)
        return m


def parts(manifest: Manifest) -> str:
    """The modules of lanes and units, with free outputs."""
    return "".join(free_module(name, module) for name, module in part_modules(manifest).items())


SHAPES = {
    "small": partial(fixed_manifest, inputs=2, outputs=2, macs=1),
    "registered": partial(
        fixed_manifest, inputs=3, outputs=2, macs=2, pipeline=Pipeline(accept=1, operand=4, window=2)
    ),
    "loadable": partial(loadable_manifest, inputs=2, outputs=2, macs=1),
}


@pytest.mark.parametrize("shape", cases(SHAPES, "small"))
def test_holds(shape: Callable[[], Manifest], tmp_path: Path) -> None:
    manifest = shape()
    prove(Harness(manifest), tmp_path, 6, parts(manifest))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_reached(shape: Callable[[], Manifest], tmp_path: Path) -> None:
    manifest = shape()
    reach(Harness(manifest), tmp_path, 24, parts(manifest))


BUGS = {
    "a step begins before sums are invalid": (" | window.stores)", ")"),
    "open without waiting": ("& asked & wanted & idle),\n        ]", "),\n        ]"),
}


@pytest.mark.parametrize("bug", cases(BUGS, "open without waiting"))
def test_bug_is_found(bug: tuple[str, str], tmp_path: Path) -> None:
    manifest = SHAPES["small"]()
    refute(Harness(manifest, with_bug(Core, *bug)), tmp_path, 20, parts(manifest))


@pytest.mark.slow
def test_a_program_is_looked_at_in_the_open_window(tmp_path: Path) -> None:
    """Else the sequencer would load what the window looks at."""
    manifest = SHAPES["loadable"]()
    kind = with_bug(
        Core, "self._opened & (window.region == Region.PROGRAM)", "window.region == Region.PROGRAM"
    )
    refute(Harness(manifest, kind), tmp_path, 12, parts(manifest))
