"""Walker: the words of an operation, row group by row group."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.program_store import OpFields
from rtlstm.hdl.core.sequencer.signatures import (
    Fetched,
    FetchedPort,
    Walk,
    WalkPort,
    vector_bits,
)
from rtlstm.hdl.core.sequencer.words import group_words
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.registers import Region


class Walker(Component):
    """Walks the words of an operation: each group reads the next words of weights, and the vector anew.

    Which words a group has is decided by its :class:`rtlstm.hdl.core.sequencer.words.Words`.

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

    Members
    -------
    fetched : In
        The operation that is loaded, and the next one.
    issued : In(1)
        A word is issued in this cycle.
    vector_start : In
        First word of the next operation's vector, or if ``restarts``, of the loaded one's.
    restarts : In(1)
        The operation that is loaded waits for its first word, which begins anew.
    window : In(1), window_row : In
        The memory window is open: addresses follow its row.
    walk : Out
        How far the operation is.
    weight_row, vector_row : Out
        Addresses of the word.
    """

    fetched: FetchedPort
    issued: Signal
    vector_start: Signal
    restarts: Signal
    window: Signal
    window_row: Signal
    walk: WalkPort
    weight_row: Signal
    vector_row: Signal

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        self._words = group_words(manifest, fields)
        super().__init__(
            {
                "fetched": In(Fetched(manifest, fields)),
                "issued": In(1),
                "vector_start": In(vector_bits(manifest)),
                "restarts": In(1),
                "window": In(1),
                "window_row": In(32),
                "walk": Out(Walk(manifest, fields)),
                "weight_row": Out(row_bits(manifest.regions[Region.WEIGHTS].rows)),
                "vector_row": Out(vector_bits(manifest)),
            }
        )

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
        with m.If(self.issued):
            m.d.sync += [
                begins.eq(0),
                last_column.eq(follows_last),
                last_word.eq(follows_last & Mux(last_column, group == 1, last_group)),
            ]
            with m.If(last_column):
                m.d.sync += [first_group.eq(0), group.eq(group - 1), last_group.eq(group == 1)]
        with m.If(self.fetched.load):
            m.d.sync += [
                begins.eq(1),
                first_group.eq(1),
                last_column.eq(next_op.single),
                last_word.eq(next_op.single & (next_op.groups == 0)),
                group.eq(next_op.groups),
                last_group.eq(next_op.groups == 0),
            ]
        m.d.comb += [
            walk.begins.eq(begins),
            walk.first_group.eq(first_group),
            walk.last_group.eq(last_group),
            walk.last_column.eq(last_column),
        ]
        return last_word

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
        with m.If(self.issued & walk.last_column):
            m.d.sync += [drain_left.eq(cycles - 1), drains.eq(cycles > 2)]
        with m.If(walk.ends):
            m.d.sync += [idle_left.eq(op.idle_cycles), idles_on.eq(op.idle_cycles > 1)]
        with m.Elif(idle_left != 0):
            m.d.sync += [idle_left.eq(idle_left - 1), idles_on.eq(idle_left > 2)]
        m.d.comb += [walk.drains.eq(drains), walk.idles.eq(idle_left != 0), walk.idles_on.eq(idles_on)]
