"""Admission: whether a word is issued in the next cycle."""

from amaranth.hdl import Module, Mux, Signal, Value

from rtlstm.hdl.component import Component, In, Out, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.hdl.core.sequencer.steps import READY, Fetched, Walk, exceeds, network_bits, several_bit, wave_bit


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
    groups read the same words again. So it is in each section, where lanes keep sums. The operation's first
    word waits for room for the output, a group's last word until the drain is free.
    """

    fetched: Fetched = In(Fetched)
    walk: Walk = In(Walk)
    """The operation that is loaded, the next one, and how far it is."""
    results_ready: Struct = In(READY)
    input_ready: Struct = In(READY)
    """The next cycle's word will be in the vector memory; it will be in the input, and the step may begin."""
    room: Signal = In(1)
    """The output has room for a whole step."""
    suppress: Signal = In(1)
    """The step's output is not wanted."""
    silent: Signal = In(wave_bit)
    """With a wave-front: its output is not wanted."""
    issued: Signal = Out(1)
    """A word is issued in this cycle."""
    emits: Signal = Out(1)
    output: Signal = Out(1)
    """An operation that will need room for the output begins, or has ended."""
    releases: Signal = Out(1)
    """The room of an operation that began is not needed any more: another program may come."""

    def __init__(self, fields: OpFields) -> None:
        self._sections = fields.sections
        self._wave = fields.wave
        super().__init__(fields)

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
        room = ~next_op.emit | self._room(next_op) | kept
        # Whether the first word ends a group that is to drain.
        ends = next_op.drains_first if self._sections else next_op.single
        # Before an operation that is loaded, the last group of another has ended, or none at all.
        free = Mux(
            loading,
            ~(ends & walk.drains),
            ~(ends & ~op.last_one_cycle) & (op.idle_cycles == 0),
        )
        there = self.results_ready.loaded & self.input_ready.loaded
        admitted: Value = room & free & there
        return admitted

    def _wraps(self) -> Value:
        """Whether the next group's first word may follow a group's last."""
        op = self.fetched.op
        walk = self.walk
        drained: Value = ~(walk.single_follows(op) & ~op.one_cycle)
        if not self._sections:
            return ~walk.idles_on & drained
        # Beside kept sums, a group before may drain. A section's first group waits, as the operation's does.
        there = ~walk.section_ends | (self.results_ready.waits & self.input_ready.waits)
        last_begins = walk.section_ends & walk.ends_in_last
        passes = ~(last_begins & walk.single_next & walk.drains) & there
        free: Value = ~walk.idles_on & Mux(walk.keeps, passes, drained)
        return free

    def _goes_on(self) -> Value:
        """Whether the next word may follow within a group."""
        walk = self.walk
        free = ~walk.idles_on & ~(walk.last_follows & self._drain_busy)
        return self._there(self.results_ready.goes_on, self.input_ready.goes_on, free)

    def _waits(self, reserved: Signal) -> Value:
        """Whether the word that waits may be issued."""
        walk = self.walk
        has_room: Value = ~walk.begins | ~self.fetched.op.emit | self._room(self.fetched.op) | reserved
        free = has_room & ~walk.idles_on & ~(walk.last_column & self._drain_busy)
        return self._there(self.results_ready.waits, self.input_ready.waits, free)

    @property
    def _drain_busy(self) -> Value:
        """Whether the group of the word that may be issued has to wait for the drain."""
        busy: Value = self.walk.drains & ~self.walk.keeps if self._sections else self.walk.drains
        return busy

    def _room(self, op: Struct) -> Value:
        """Whether the output has room for what an operation will give."""
        return self.room | (op.in_wave & self.silent) if self._wave else self.room

    def _there(self, results: Value, inputs: Value, free: Value) -> Value:
        """Whether a word may be issued that is there or has been read before, if all else is ``free``."""
        there: Value = (free & ~self.walk.first_group) | (free & results & inputs)
        return there


class Results(Component):
    """Counts results under way, so that each word is issued when its results will be there in time."""

    fetched: Fetched = In(Fetched)
    walk: Walk = In(Walk)
    """The operation that is loaded, the next one, and how far it is."""
    result_last: Signal = In(1)
    result_word: Signal = In(1)
    """An operation's last result, or one that completes a word of the vector memory, will be there two cycles
    more than ``parameters.ahead()`` later; of operations whose results are stored."""
    results_ready: Struct = Out(READY)
    """The word that may be issued in the next cycle is there then."""
    settled: Signal = Out(several_bit)
    """None is under way."""

    def __init__(self, fields: OpFields) -> None:
        self._most_words = program_store(fields.manifest).most_words
        self._skip, self._fields = fields.skip, fields
        self._most = len(fields.manifest.layers) + 2 if fields.wave else 3
        super().__init__(fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, next_op, walk = self.fetched.op, self.fetched.next_op, self.walk
        # Operations whose results are not all written: three at most, or the program has one wait.
        outstanding = Signal(range(self._most + 1), name="outstanding")
        # Words of the vector memory written so far by the oldest of them.
        written, some = Signal(range(self._most_words + 1)), Signal(name="some_written")
        m.d.sync += outstanding.eq(outstanding + (walk.ends & op.stores) - self.result_last)
        with m.If(self.result_last):
            m.d.sync += [written.eq(0), some.eq(0)]
        with m.Elif(self.result_word):
            m.d.sync += [written.eq(written + 1), some.eq(1)]

        if network_bits(self._fields) is not None:
            m.d.comb += self.settled.eq(outstanding == 0)

        def ready(of: Struct, counted: Value, more: int = 0) -> Value:
            newer = outstanding + more
            last = (newer == of.newer_results + 1) & counted
            there: Value = ~of.waits_for_results | (newer <= of.newer_results) | last
            return there

        first_there = exceeds(written, next_op.first_word) if self._skip else some
        # An operation is loaded when the one before ends, but for the first; then that one's results count.
        one_more = op.stores & ~self.fetched.loading
        m.d.comb += [
            self.results_ready.loaded.eq(
                Mux(one_more, ready(next_op, first_there, 1), ready(next_op, first_there))
            ),
            self.results_ready.goes_on.eq(ready(op, exceeds(written, walk.next_word))),
            self.results_ready.waits.eq(ready(op, exceeds(written, walk.word))),
        ]
        return m
