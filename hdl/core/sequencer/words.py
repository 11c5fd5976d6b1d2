"""The words that the groups of an operation have: all of the vector's, or those that are kept."""

from abc import ABC, abstractmethod
from typing import Protocol

from amaranth.hdl import Module, Mux, Signal, Value

from rtlstm.hdl.core.program_store import OpFields
from rtlstm.hdl.core.sequencer.signatures import FetchedPort, WalkPort
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import kept_words


class Walking(Protocol):
    """The members of a walker that its words depend on."""

    fetched: FetchedPort
    issued: Signal
    vector_start: Signal
    restarts: Signal
    walk: WalkPort


class Words(ABC):
    """The words of an operation's groups, one after the other; a walker adds their logic to its module."""

    @abstractmethod
    def look_ahead(self, m: Module, walker: Walking, last_column: Signal) -> Value:
        """Drive ``walk.last_follows``; return whether the word after this one ends its group.

        ``last_column`` says that this one does.
        """

    @abstractmethod
    def number(self, m: Module, walker: Walking) -> None:
        """Drive ``walk.word`` and ``walk.next_word``, as far as :meth:`look_ahead` has not."""

    @abstractmethod
    def step(self, m: Module, walker: Walking, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        """Go on to the next word's rows when a word is issued; ``start`` is the vector's first row."""

    @abstractmethod
    def first_row(self, walker: Walking) -> Value:
        """Return the vector's row for an operation's first word."""


class _AllWords(Words):
    """Counts the words: every group has all of the vector's.

    The number of the one after the word that is issued is a register of its own, for comparisons without an
    adder.
    """

    def look_ahead(self, m: Module, walker: Walking, last_column: Signal) -> Value:
        op = walker.fetched.op
        # Words that follow this one.
        column, one_left = Signal(op.columns.shape(), reset_less=True), Signal(reset_less=True)
        with m.If(walker.issued):
            m.d.sync += [
                column.eq(Mux(last_column, op.columns, column - 1)),
                one_left.eq(Mux(last_column, op.columns == 1, column == 2)),
            ]
        with m.If(walker.fetched.load):
            columns = walker.fetched.next_op.columns
            m.d.sync += [column.eq(columns), one_left.eq(columns == 1)]
        m.d.comb += walker.walk.last_follows.eq(one_left)
        return Mux(last_column, op.single, one_left)

    def number(self, m: Module, walker: Walking) -> None:
        word = Signal.like(walker.walk.word, reset_less=True)
        next_word = Signal.like(walker.walk.next_word, reset_less=True)
        with m.If(walker.issued):
            m.d.sync += [word.eq(next_word), next_word.eq(next_word + 1)]
        with m.If(walker.fetched.load):
            m.d.sync += [word.eq(0), next_word.eq(1)]
        m.d.comb += [walker.walk.word.eq(word), walker.walk.next_word.eq(next_word)]

    def step(self, m: Module, walker: Walking, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        wraps = walker.issued & walker.walk.last_column
        m.d.sync += [
            weight_row.eq(weight_row + walker.issued),
            vector_row.eq(Mux(wraps, start, vector_row + walker.issued)),
        ]

    def first_row(self, walker: Walking) -> Value:
        return walker.vector_start


class _KeptWords(Words):
    """Looks the kept words up: which they are, and where groups end, is a table of constants.

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

    Here ``walk.last_follows`` is also true if the word after this one is the only one of the next group.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._table = kept_words(manifest.program)

    def look_ahead(self, m: Module, walker: Walking, last_column: Signal) -> Value:
        next_op = walker.fetched.next_op
        row = Signal(range(len(self._table) + 2), reset_less=True)
        follows_last = Signal(reset_less=True)
        follows = Signal.like(walker.walk.next_word, reset_less=True)
        word = lookup(m, row, [word for word, _ in self._table], "kept_word")
        ends = lookup(m, row, [int(ends) for _, ends in self._table], "kept_ends")
        with m.If(walker.issued):
            m.d.sync += [row.eq(row + 1), follows.eq(word), follows_last.eq(ends)]
        with m.If(walker.fetched.load):
            m.d.sync += [
                row.eq(next_op.third_row),
                follows.eq(next_op.second_word),
                follows_last.eq(next_op.second_ends),
            ]
        m.d.comb += [walker.walk.next_word.eq(follows), walker.walk.last_follows.eq(follows_last)]
        return follows_last

    def number(self, m: Module, walker: Walking) -> None:
        # The number of the one after it is read ahead.
        word = Signal.like(walker.walk.word, reset_less=True)
        with m.If(walker.issued):
            m.d.sync += word.eq(walker.walk.next_word)
        with m.If(walker.fetched.load):
            m.d.sync += word.eq(walker.fetched.next_op.first_word)
        m.d.comb += walker.walk.word.eq(word)

    def step(self, m: Module, walker: Walking, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        with m.If(walker.issued):
            m.d.sync += [weight_row.eq(weight_row + 1), vector_row.eq(start + walker.walk.next_word)]

    def first_row(self, walker: Walking) -> Value:
        first = Mux(walker.restarts, walker.walk.word, walker.fetched.next_op.first_word)
        row: Value = walker.vector_start + first
        return row


def group_words(manifest: Manifest, fields: OpFields) -> Words:
    """Return the words of a program's groups: the kept ones if it skips some, else all."""
    return _KeptWords(manifest) if fields.skip else _AllWords()
