"""Walker: the words of an operation, row group by row group."""

from abc import ABC, abstractmethod

from amaranth.hdl import Module, Mux, Signal, Value

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.core.layouts import row_bits, vector_bits
from rtlstm.hdl.core.program_store import OpFields
from rtlstm.hdl.core.sequencer.steps import Fetched, Walk
from rtlstm.hdl.primitives.pipeline import lookup
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import kept_words
from rtlstm.spec.registers import Region


class Walker(Component):
    """Walks the words of an operation: each group reads the next words of weights, and the vector anew.

    Which words a group has is decided by its :class:`rtlstm.hdl.core.sequencer.walker.Words`.

    All its counters stand at the word that is issued, or waits to be. Here is an operation of two groups of
    two columns, whose words are issued as soon as they can be:

    ===============  ==========  =====  =====  =====  =====
    cycle            0           1      2      3      4
    ===============  ==========  =====  =====  =====  =====
    ``load``         1           0      0      0      1
    ``issued``       0           1      1      1      1
    ``begins``                   1      0      0      0
    ``first_group``              1      1      0      0
    ``last_group``               0      0      1      1
    ``last_column``              0      1      0      1
    ``weight_row``               w      w + 1  w + 2  w + 3
    ``vector_row``               v      v + 1  v      v + 1
    ===============  ==========  =====  =====  =====  =====
    """

    fetched: Fetched = In(Fetched)
    """The operation that is loaded, and the next one."""
    issued: Signal = In(1)
    """A word is issued in this cycle."""
    vector_start: Signal = In(lambda fields: vector_bits(fields.manifest))
    """First word of the next operation's vector, or if ``restarts``, of the loaded one's."""
    restarts: Signal = In(1)
    """The operation that is loaded waits for its first word, which begins anew."""
    window: Signal = In(1)
    window_row: Signal = In(32)
    """The memory window is open: addresses follow its row."""
    walk: Walk = Out(Walk)
    """How far the operation is."""
    weight_row: Signal = Out(lambda fields: row_bits(fields.manifest.regions[Region.WEIGHTS].rows))
    vector_row: Signal = Out(lambda fields: vector_bits(fields.manifest))
    """Addresses of the word."""

    def __init__(self, fields: OpFields) -> None:
        self._words = group_words(fields)
        self._sections = fields.sections
        super().__init__(fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.walk.issued.eq(self.issued), self.walk.ends.eq(self.issued & self._count(m))]
        self._words.number(m, self)
        self._address(m)
        self._wait(m)
        return m

    def _count(self, m: Module) -> Signal:
        """Count columns and groups; return whether the word is the operation's last."""
        next_op, walk = self.fetched.next_op, self.walk
        begins = Signal()
        first_group = Signal()
        last_column, last_group, last_word = (
            Signal(reset_less=True, name=name) for name in ("last_column", "last_group", "last_word")
        )
        follows_last = self._words.look_ahead(m, self, last_column)
        # Groups that follow this one.
        group = Signal(next_op.groups.shape(), reset_less=True)
        before_last: Value = group == 1
        is_last = next_op.groups == 0
        if self._sections:
            # The groups of earlier sections are not the operation's last.
            before_last &= ~walk.keeps
            is_last &= next_op.sections == 0
        with m.If(self.issued):
            m.d.sync += [
                begins.eq(0),
                last_column.eq(follows_last),
                last_word.eq(follows_last & Mux(last_column, before_last, last_group)),
            ]
            with m.If(last_column):
                m.d.sync += [first_group.eq(0), group.eq(group - 1), last_group.eq(before_last)]
        if self._sections:
            self._begin_sections(m, last_column, first_group, group)
        with m.If(self.fetched.load):
            m.d.sync += [
                begins.eq(1),
                first_group.eq(1),
                last_column.eq(next_op.single),
                last_word.eq(next_op.single & is_last),
                group.eq(next_op.groups),
                last_group.eq(is_last),
            ]
        m.d.comb += [
            walk.begins.eq(begins),
            walk.first_group.eq(first_group),
            walk.last_group.eq(last_group),
            walk.last_column.eq(last_column),
        ]
        return last_word

    def _begin_sections(self, m: Module, last_column: Signal, first_group: Signal, group: Signal) -> None:
        """Count sections; behind the last group of one begins the first of the next."""
        next_op, walk = self.fetched.next_op, self.walk
        left = Signal(next_op.sections.shape(), reset_less=True, name="sections_left")
        groups = Signal.like(group, reset_less=True, name="all_groups")
        first_column, continues = Signal(reset_less=True), Signal(reset_less=True)
        with m.If(self.issued):
            m.d.sync += first_column.eq(last_column)
            with m.If(walk.section_ends):
                m.d.sync += [left.eq(left - 1), continues.eq(1), first_group.eq(1), group.eq(groups)]
        with m.If(self.fetched.load):
            m.d.sync += [
                left.eq(next_op.sections),
                groups.eq(next_op.groups),
                first_column.eq(1),
                continues.eq(0),
            ]
        m.d.comb += [
            walk.keeps.eq(left != 0),
            walk.section_ends.eq(last_column & (group == 0) & walk.keeps),
            walk.ends_in_last.eq(left == 1),
            walk.first_column.eq(first_column),
            walk.continues.eq(continues),
            walk.group.eq(group),
        ]

    def _address(self, m: Module) -> None:
        """Step through the rows of weights, and in each group through the words of the vector."""
        weight_row = Signal.like(self.weight_row, reset_less=True)
        vector_row = Signal.like(self.vector_row, reset_less=True)
        start = Signal.like(self.vector_row, reset_less=True)
        self._words.step(m, self, weight_row, vector_row, start)
        with m.If(self.fetched.load):
            m.d.sync += weight_row.eq(self.fetched.next_op.weights)
        with m.If(self.fetched.load | self.restarts):
            m.d.sync += [vector_row.eq(self._words.first_row(self)), start.eq(self.vector_start)]
        with m.If(self.window):
            m.d.sync += [weight_row.eq(self.window_row), vector_row.eq(self.window_row)]
        m.d.comb += [self.weight_row.eq(weight_row), self.vector_row.eq(vector_row)]

    def _wait(self, m: Module) -> None:
        """Count the cycles of the drain behind a group, and the idle cycles behind an operation."""
        op, walk = self.fetched.op, self.walk
        drain_left = Signal(op.drain_cycles.shape())
        idle_left = Signal(op.idle_cycles.shape())
        # Whether more than one cycle is left is known a cycle ahead: admission waits for it.
        drains, idles_on = Signal(), Signal()
        cycles = Mux(walk.last_group, op.last_drain_cycles, op.drain_cycles)
        with m.If(drain_left != 0):
            m.d.sync += [drain_left.eq(drain_left - 1), drains.eq(drain_left > 2)]
        drains_now: Value = self.issued & walk.last_column
        if self._sections:
            # Sums that lanes keep do not drain.
            drains_now &= ~walk.keeps
        with m.If(drains_now):
            m.d.sync += [drain_left.eq(cycles - 1), drains.eq(cycles > 2)]
        with m.If(walk.ends):
            m.d.sync += [idle_left.eq(op.idle_cycles), idles_on.eq(op.idle_cycles > 1)]
        with m.Elif(idle_left != 0):
            m.d.sync += [idle_left.eq(idle_left - 1), idles_on.eq(idle_left > 2)]
        m.d.comb += [walk.drains.eq(drains), walk.idles.eq(idle_left != 0), walk.idles_on.eq(idles_on)]


class Words(ABC):
    """The words of an operation's groups, one after the other; a walker adds their logic to its module."""

    @abstractmethod
    def look_ahead(self, m: Module, walker: Walker, last_column: Signal) -> Value:
        """Drive ``walk.last_follows``; return whether the word after this one ends its group.

        ``last_column`` says that this one does.
        """

    @abstractmethod
    def number(self, m: Module, walker: Walker) -> None:
        """Drive ``walk.word`` and ``walk.next_word``, as far as :meth:`look_ahead` has not."""

    @abstractmethod
    def step(self, m: Module, walker: Walker, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        """Go on to the next word's rows when a word is issued; ``start`` is the vector's first row."""

    @abstractmethod
    def first_row(self, walker: Walker) -> Value:
        """Return the vector's row for an operation's first word."""


class _AllWords(Words):
    """Counts the words: every group has all of the vector's.

    The number of the one after the word that is issued is a register of its own, for comparisons without an
    adder.
    """

    def look_ahead(self, m: Module, walker: Walker, last_column: Signal) -> Value:
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

    def number(self, m: Module, walker: Walker) -> None:
        word = Signal.like(walker.walk.word, reset_less=True)
        next_word = Signal.like(walker.walk.next_word, reset_less=True)
        with m.If(self._counts(walker)):
            m.d.sync += [word.eq(next_word), next_word.eq(next_word + 1)]
        with m.If(walker.fetched.load):
            m.d.sync += [word.eq(0), next_word.eq(1)]
        m.d.comb += [walker.walk.word.eq(word), walker.walk.next_word.eq(next_word)]

    def step(self, m: Module, walker: Walker, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        m.d.sync += [
            weight_row.eq(weight_row + walker.issued),
            vector_row.eq(Mux(self._again(walker), start, vector_row + walker.issued)),
        ]

    def _counts(self, walker: Walker) -> Value:
        """Whether the next word's number follows this one's."""
        return walker.issued

    def _again(self, walker: Walker) -> Value:
        """Whether the next word is the vector's first again."""
        again: Value = walker.issued & walker.walk.last_column
        return again

    def first_row(self, walker: Walker) -> Value:
        return walker.vector_start


class _SectionWords(_AllWords):
    """Counts the words of sections: every group has all of a section's.

    Behind a section's last group, the next section's first word has the number that followed the last word of
    the section's first group.
    """

    def look_ahead(self, m: Module, walker: Walker, last_column: Signal) -> Value:
        op, next_op, walk = walker.fetched.op, walker.fetched.next_op, walker.walk
        # Words that follow this one in its group, and those that follow the first one in all its section's.
        column, one_left = Signal(op.columns.shape(), reset_less=True), Signal(reset_less=True)
        size = Signal.like(column, reset_less=True, name="section_columns")
        next_size = Mux(walk.section_ends & walk.ends_in_last, op.last_columns, size)
        with m.If(walker.issued):
            m.d.sync += [
                size.eq(next_size),
                column.eq(Mux(last_column, next_size, column - 1)),
                one_left.eq(Mux(last_column, next_size == 1, column == 2)),
            ]
        with m.If(walker.fetched.load):
            columns = next_op.columns
            m.d.sync += [size.eq(columns), column.eq(columns), one_left.eq(columns == 1)]
        m.d.comb += [walk.last_follows.eq(one_left), walk.single_next.eq(next_size == 0)]
        return Mux(last_column, walk.single_next, one_left)

    def _counts(self, walker: Walker) -> Value:
        counts: Value = walker.issued & walker.walk.first_group
        return counts

    def _again(self, walker: Walker) -> Value:
        again: Value = super()._again(walker) & ~walker.walk.section_ends
        return again

    def step(self, m: Module, walker: Walker, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        super().step(m, walker, weight_row, vector_row, start)
        with m.If(walker.issued & walker.walk.section_ends):
            m.d.sync += start.eq(vector_row + 1)


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

    def look_ahead(self, m: Module, walker: Walker, last_column: Signal) -> Value:
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

    def number(self, m: Module, walker: Walker) -> None:
        # The number of the one after it is read ahead.
        word = Signal.like(walker.walk.word, reset_less=True)
        with m.If(walker.issued):
            m.d.sync += word.eq(walker.walk.next_word)
        with m.If(walker.fetched.load):
            m.d.sync += word.eq(walker.fetched.next_op.first_word)
        m.d.comb += walker.walk.word.eq(word)

    def step(self, m: Module, walker: Walker, weight_row: Signal, vector_row: Signal, start: Signal) -> None:
        with m.If(walker.issued):
            m.d.sync += [weight_row.eq(weight_row + 1), vector_row.eq(start + walker.walk.next_word)]

    def first_row(self, walker: Walker) -> Value:
        first = Mux(walker.restarts, walker.walk.word, walker.fetched.next_op.first_word)
        row: Value = walker.vector_start + first
        return row


def group_words(fields: OpFields) -> Words:
    """Return the words of a program's groups: the kept ones if it skips some, else all, or a section's."""
    if fields.skip:
        return _KeptWords(fields.manifest)
    return _SectionWords() if fields.sections else _AllWords()
