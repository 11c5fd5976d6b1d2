"""Results: which words of the vector memory may be issued."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Struct
from rtlstm.hdl.core.program_store import OpFields, program_store
from rtlstm.hdl.core.sequencer.compare import exceeds
from rtlstm.hdl.core.sequencer.signatures import READY, Fetched, FetchedPort, Walk, WalkPort
from rtlstm.spec.manifest import Manifest


class Results(Component):
    """Counts results under way, so that each word is issued when its results will be there in time.

    Members
    -------
    fetched, walk : In
        The operation that is loaded, the next one, and how far it is.
    result_last, result_word : In(1)
        An operation's last result, or one that completes a word of the vector memory, will be there two
        cycles more than ``parameters.ahead()`` later; of operations whose results are stored.
    results_ready : Out
        The word that may be issued in the next cycle is there then.
    """

    fetched: FetchedPort
    walk: WalkPort
    result_last: Signal
    result_word: Signal
    results_ready: Struct

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        self._most_words = program_store(manifest).most_words
        self._skip = fields.skip
        super().__init__(
            {
                "fetched": In(Fetched(manifest, fields)),
                "walk": In(Walk(manifest, fields)),
                "result_last": In(1),
                "result_word": In(1),
                "results_ready": Out(READY),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, next_op, walk = self.fetched.op, self.fetched.next_op, self.walk
        # Operations whose results are not all written: two at most, with prefetch the last layer's and the
        # next step's first.
        outstanding = Signal(2)
        # Words of the vector memory written so far by the oldest of them.
        written, some = Signal(range(self._most_words + 1)), Signal(name="some_written")
        m.d.sync += outstanding.eq(outstanding + (walk.ends & op.stores) - self.result_last)
        with m.If(self.result_last):
            m.d.sync += [written.eq(0), some.eq(0)]
        with m.Elif(self.result_word):
            m.d.sync += [written.eq(written + 1), some.eq(1)]

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
