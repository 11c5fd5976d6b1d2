"""Admission: whether a word is issued in the next cycle."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.program_store import OpFields
from rtlstm.hdl.core.sequencer.signatures import (
    READY,
    Fetched,
    FetchedPort,
    Walk,
    WalkPort,
)
from rtlstm.spec.manifest import Manifest


class Admission(Component):
    """Decides in each cycle whether a word is issued in the next one.

    This cycle is one of four cases. What each case asks for is computed side by side. That a word is there is
    known latest, so it is joined last.

    ===========  ===============================================  ===========================================
    case         this cycle                                       the next cycle's word waits for
    ===========  ===============================================  ===========================================
    ``loaded``   loads an operation                               vector, input, room, drain, idle cycles
    ``wraps``    issues a word that ends a group, and not more    drain, idle cycles
    ``goes_on``  issues another word                              vector, input, drain, idle cycles
    ``waits``    does neither                                     vector, input, room, drain, idle cycles
    ===========  ===============================================  ===========================================

    In an operation's first group, each word waits until it is in the vector memory or the input. The later
    groups read the same words again. Its first word waits for room for the output, a group's last word until
    the drain is free.

    Members
    -------
    fetched, walk : In
        The operation that is loaded, the next one, and how far it is.
    results_ready, input_ready : In
        The next cycle's word will be in the vector memory; it will be in the input, and the step may begin.
    room : In(1)
        The output has room for a whole step.
    suppress : In(1)
        The step's output is not wanted.
    issued : Out(1)
        A word is issued in this cycle.
    emits, output : Out(1)
        An operation that will need room for the output begins, or has ended.
    releases : Out(1)
        The room of an operation that began is not needed any more: another program may come.
    """

    fetched: FetchedPort
    walk: WalkPort
    results_ready: Struct
    input_ready: Struct
    room: Signal
    suppress: Signal
    issued: Signal
    emits: Signal
    output: Signal
    releases: Signal

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        super().__init__(
            {
                "fetched": In(Fetched(manifest, fields)),
                "walk": In(Walk(manifest, fields)),
                "results_ready": In(READY),
                "input_ready": In(READY),
                "room": In(1),
                "suppress": In(1),
                "issued": Out(1),
                "emits": Out(1),
                "output": Out(1),
                "releases": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched, walk = self.fetched, self.walk
        op = fetched.op
        # Room in the output has been taken for an operation that has not ended yet. One that is issued again
        # keeps the room it has.
        reserved = Signal()
        m.d.comb += [
            self.emits.eq(walk.issued & walk.begins & op.emit & ~self.suppress & ~reserved),
            self.output.eq(walk.ends & op.emit),
            self.releases.eq(reserved & fetched.halted),
        ]
        m.d.sync += reserved.eq((reserved | self.emits) & ~self.output & ~fetched.halted)

        loads = fetched.loading | (walk.issued & walk.last_column & walk.last_group)
        walks = walk.issued & ~fetched.loading
        cases = [
            loads & self._loaded(reserved) & ~(fetched.loading & fetched.halted),
            walks & walk.last_column & ~walk.last_group & self._wraps(),
            walks & ~walk.last_column & self._goes_on(),
            ~walk.issued & ~fetched.loading & self._waits(reserved),
        ]
        m.d.sync += self.issued.eq(any_of(cases))
        return m

    def _loaded(self, reserved: Signal) -> Value:
        """Whether the first word may follow, if this cycle loads its operation."""
        op, next_op, walk, loading = self.fetched.op, self.fetched.next_op, self.walk, self.fetched.loading
        kept = reserved & (loading | ~op.emit)
        room = ~next_op.emit | self.room | kept
        # Before an operation that is loaded, the last group of another has ended, or none at all.
        free = Mux(
            loading,
            ~(next_op.single & walk.drains),
            ~(next_op.single & ~op.last_one_cycle) & (op.idle_cycles == 0),
        )
        there = self.results_ready.loaded & self.input_ready.loaded
        admitted: Value = room & free & there
        return admitted

    def _wraps(self) -> Value:
        """Whether the next group's first word may follow a group's last."""
        op = self.fetched.op
        drained: Value = ~(self.walk.single_follows(op) & ~op.one_cycle)
        return ~self.walk.idles_on & drained

    def _goes_on(self) -> Value:
        """Whether the next word may follow within a group."""
        walk = self.walk
        free = ~walk.idles_on & ~(walk.last_follows & walk.drains)
        return self._there(self.results_ready.goes_on, self.input_ready.goes_on, free)

    def _waits(self, reserved: Signal) -> Value:
        """Whether the word that waits may be issued."""
        walk = self.walk
        has_room: Value = ~walk.begins | ~self.fetched.op.emit | self.room | reserved
        free = has_room & ~walk.idles_on & ~(walk.last_column & walk.drains)
        return self._there(self.results_ready.waits, self.input_ready.waits, free)

    def _there(self, results: Value, inputs: Value, free: Value) -> Value:
        """Whether a word may be issued that is there or has been read before, if all else is ``free``."""
        there: Value = (free & ~self.walk.first_group) | (free & results & inputs)
        return there
