"""Fetch: which operation comes next, and the fields of the one that is loaded."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.program_memory import (
    ProgramPart,
    field_lookup,
    field_memory,
    program_ports,
    step_layout,
    step_values,
)
from rtlstm.hdl.core.sequencer.signatures import Fetched, FetchedPort, OpFields, Walk, WalkPort, most_words
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest

__all__ = ["Fetch"]


class Fetch(ProgramPart):
    """Loads the next operation when one ends, at a redirect, and after the window.

    The fields of the next operation are always there: a fixed program's are looked up, a loadable one's are
    read from its memory, whose address is decided a cycle before.

    =======  ==============================================================================
    cycle    at a redirect
    =======  ==============================================================================
    k        ``redirect``: the memory is given ``target``.
    k + 1    ``next_op`` is that operation; ``loading``, and with it ``load``.
    k + 2    ``op`` is that operation.
    =======  ==============================================================================

    Members
    -------
    walk : In
        How far the operation is; its last word loads the next one.
    after_op, after_next : In
        Number of the operation that follows the one that is loaded, and the next one.
    redirect : In(1), target : In
        Load another operation instead.
    window : In(1), window_row : In
        The memory window is open; its row.
    fetched : Out
        The operation that is loaded, and the next one.
    step : In, stopped : In(1), program_window : In(1), program_write, program_data, program_word
        Only with a loadable program; see :class:`rtlstm.hdl.core.sequencer.sequencer.Sequencer`.
    """

    walk: WalkPort
    after_op: Signal
    after_next: Signal
    redirect: Signal
    target: Signal
    window: Signal
    window_row: Signal
    fetched: FetchedPort
    step: Struct
    stopped: Signal
    program_window: Signal

    def __init__(self, manifest: Manifest, fields: OpFields) -> None:
        self._manifest = manifest
        self._op_fields = fields
        self._loadable = manifest.parameters.capacity is not None
        fetched = Fetched(manifest, fields)
        index = fetched.members["index"].shape
        loaded: dict[str, wiring.Member] = {}
        if self._loadable:
            loaded = {"step": In(step_layout(manifest)), "stopped": In(1), "program_window": In(1)}
            loaded |= program_ports(fields.widths)
        super().__init__(
            loaded
            | {
                "walk": In(Walk(most_words(manifest, fields))),
                "after_op": In(index),
                "after_next": In(index),
                "redirect": In(1),
                "target": In(index),
                "window": In(1),
                "window_row": In(32),
                "fetched": Out(fetched),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched = self.fetched
        body = step_values(self._manifest, self.step if self._loadable else None)["body"]
        upcoming = Signal.like(fetched.index)
        next_index = Signal.like(fetched.index, init=0 if self._loadable else self._manifest.program.body)
        loading = Signal(init=1)
        table = self._table(m, next_index, upcoming)
        m.d.comb += [
            upcoming.eq(Mux(fetched.load, self.after_next, self.after_op)),
            fetched.load.eq(self.walk.ends | (loading & ~fetched.halted)),
            fetched.loading.eq(loading),
            fetched.halted.eq(self._halted(m)),
        ]
        m.d.sync += next_index.eq(upcoming)
        with m.If(fetched.load):
            m.d.sync += [fetched.index.eq(next_index), loading.eq(0)]
        with m.If(self.redirect):
            m.d.comb += upcoming.eq(self.target)
            m.d.sync += loading.eq(1)
        with m.If(self.window | fetched.halted):
            m.d.comb += upcoming.eq(body)
        with m.If(self.window):
            m.d.sync += loading.eq(1)
        self._load_fields(m, table)
        return m

    def _table(self, m: Module, next_index: Signal, upcoming: Signal) -> Mapping[str, Value]:
        """Return the fields of operation ``next_index``, which was ``upcoming`` a cycle ago."""
        if not self._loadable:
            return field_lookup(m, next_index, self._op_fields.values, "next")
        row = Mux(self.program_window, self.window_row, upcoming)
        spec = memories(self._manifest)["program, issued"]
        table, write = field_memory(m, spec, row, self._op_fields.widths, "program")
        m.d.comb += [
            write.addr.eq(self.window_row),
            write.data.eq(self.program_data),
            write.en.eq(self.program_write),
            self.program_word.eq(Cat(table.values())),
        ]
        return table

    def _halted(self, m: Module) -> Value:
        """Whether there is no program, or its memory shows another row."""
        if not self._loadable:
            return Const(0, 1)
        looked = Signal()
        m.d.sync += looked.eq(self.program_window)
        return self.stopped | looked

    def _load_fields(self, m: Module, table: Mapping[str, Value]) -> None:
        """Keep those of the fields that are asked for while words are issued."""
        m.d.comb += [self.fetched.next_op[name].eq(value) for name, value in table.items()]
        for name in self._op_fields.of_op.members:
            kept = Signal(self._op_fields.widths[name], reset_less=True, name=f"op_{name}")
            m.d.comb += self.fetched.op[name].eq(kept)
            with m.If(self.fetched.load):
                m.d.sync += kept.eq(table[name])
