"""Activity: whether anything that was issued is still under way."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.hdl.core.sequencer.signatures import Fetched, FetchedPort, Walk, WalkPort
from rtlstm.spec.manifest import Manifest


class Activity(Component):
    """Counts the cycles until whatever was issued has left the pipeline.

    Members
    -------
    fetched, walk : In
        The operation that is loaded, and how far it is.
    redirect : In(1)
        Another operation is going to be loaded.
    idle : Out(1)
        Nothing is issued or under way, and no partial sum is to be stored any more.
    """

    fetched: FetchedPort
    walk: WalkPort
    redirect: Signal
    idle: Signal

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        program = program_store(manifest)
        # A word's last result can be read so many cycles after it; two are spare.
        self._depth = program.latest_results + program.most_drain_cycles + 2
        super().__init__(
            {
                "fetched": In(Fetched(manifest, fields)),
                "walk": In(Walk(manifest, fields)),
                "redirect": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched, walk = self.fetched, self.walk
        # That nothing is left is known a cycle ahead: ``idle`` goes far.
        left = Signal(range(self._depth + 1))
        drained = Signal(init=1)
        # A redirect loads an operation in the next cycle, and its first word may be issued in the one after.
        m.d.sync += drained.eq(~walk.issued & (left <= 1) & ~self.redirect)
        with m.If(walk.issued):
            m.d.sync += left.eq(self._depth)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        between_steps = (walk.first_group & fetched.op.waits_for_input) | fetched.halted
        m.d.comb += self.idle.eq(between_steps & drained & ~walk.issued & ~self.redirect)
        return m
