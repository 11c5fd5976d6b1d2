"""Walker of a program whose row groups skip words."""

from amaranth.hdl import Module, Mux, Signal, Value

from rtlstm.hdl.core.sequencer.signatures import OpFields
from rtlstm.hdl.core.sequencer.walker import Walker
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import kept_words

__all__ = ["SkippingWalker"]


class SkippingWalker(Walker):
    """Walks the kept words alone: which they are, and where groups end, is a table of constants.

    The table has an entry for each row of weights. It is read ahead, so that no word waits for it: beside the
    word that is issued stands the entry of the one after it. The first two entries of an operation come with
    its fields. Here is an operation of two groups, of words 0 and 3 and of word 1:

    ===============  ==========  =====  =====  =====
    cycle            0           1      2      3
    ===============  ==========  =====  =====  =====
    ``load``         1           0      0      1
    ``issued``       0           1      1      1
    ``weight_row``               w      w + 1  w + 2
    ``vector_row``               v      v + 3  v + 1
    ``last_column``              0      1      1
    ``word``                     0      3      1
    ``next_word``                3      1      ...
    table's row                  w + 2  w + 3  w + 4
    ===============  ==========  =====  =====  =====

    Members are those of :class:`rtlstm.hdl.core.sequencer.walker.Walker`. Here ``walk.last_follows`` is also
    true if the word after this one is the only one of the next group.
    """

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        self._table = kept_words(manifest.program)
        super().__init__(manifest, fields)

    def _look_ahead(self, m: Module, last_column: Signal) -> Value:
        """Read the table for the word after this one; return whether it ends its group."""
        next_op = self.fetched.next_op
        row = Signal(range(len(self._table) + 2), reset_less=True)
        follows_last = Signal(reset_less=True)
        follows = Signal.like(self.walk.next_word, reset_less=True)
        word = lookup(m, row, [word for word, _ in self._table], "kept_word")
        ends = lookup(m, row, [int(ends) for _, ends in self._table], "kept_ends")
        with m.If(self.issued):
            m.d.sync += [row.eq(row + 1), follows.eq(word), follows_last.eq(ends)]
        with m.If(self.fetched.load):
            m.d.sync += [
                row.eq(next_op.third_row),
                follows.eq(next_op.second_word),
                follows_last.eq(next_op.second_ends),
            ]
        m.d.comb += [self.walk.next_word.eq(follows), self.walk.last_follows.eq(follows_last)]
        return follows_last

    def _count_words(self, m: Module) -> None:
        """Keep the word's index in the vector: that of the one after it is read ahead."""
        word = Signal.like(self.walk.word, reset_less=True)
        with m.If(self.issued):
            m.d.sync += word.eq(self.walk.next_word)
        with m.If(self.fetched.load):
            m.d.sync += word.eq(self.fetched.next_op.first_word)
        m.d.comb += self.walk.word.eq(word)

    def _step(self, m: Module, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        """Go on to the row of the next kept word of the vector."""
        with m.If(self.issued):
            m.d.sync += [weight_row.eq(weight_row + 1), vector_row.eq(start + self.walk.next_word)]

    def _first_row(self) -> Value:
        first: Value = self.vector_start + Mux(self.restarts, self.walk.word, self.fetched.next_op.first_word)
        return first
