"""Fetch: which operation comes next, and the fields of the one that is loaded."""

from collections.abc import Callable, Mapping
from functools import partial

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.program_memory import (
    ProgramPart,
    field_lookup,
    field_memory,
    program_ports,
    step_layout,
    step_values,
)
from rtlstm.hdl.core.sequencer.signatures import (
    ADMITTING,
    AFTER,
    Fetched,
    FetchedPort,
    OpFields,
    Walk,
    WalkPort,
)
from rtlstm.hdl.primitives.pipeline import lookup
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
        What comes after the operation that is loaded, and after the next one.
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
    after_op: Struct
    after_next: Struct
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
                "walk": In(Walk(manifest, fields)),
                "after_op": In(AFTER),
                "after_next": In(AFTER),
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
        upcoming = Signal.like(fetched.index)
        next_index = Signal.like(fetched.index, init=0 if self._loadable else self._manifest.program.body)
        loading = Signal(init=1)
        table = self._table(m, next_index, upcoming)
        m.d.comb += [
            upcoming.eq(self._upcoming(Value.cast)),
            fetched.load.eq(self.walk.ends | (loading & ~fetched.halted)),
            fetched.loading.eq(loading),
            fetched.halted.eq(self._halted(m)),
        ]
        m.d.sync += next_index.eq(upcoming)
        with m.If(fetched.load):
            m.d.sync += [fetched.index.eq(next_index), loading.eq(0)]
        with m.If(self.redirect | self.window):
            m.d.sync += loading.eq(1)
        self._load_fields(m, table)
        return m

    def _upcoming(self, of: Callable[[Value], Value]) -> Value:
        """Return ``of`` the number of the operation that is the next one in the next cycle.

        That an operation ends, and its step, is known last, so ``of`` stands in front of all choices.
        """
        step = step_values(self._manifest, self.step if self._loadable else None)
        body = step["body"]

        def after(chosen: Value, op: Struct, comes: Struct) -> Value:
            first = Mux(comes.prefetches, of(step["prefetch"]), of(Const(0)))
            return Mux(comes.ends_step, Mux(chosen, first, 0), Mux(chosen, of(op.follows), 0))

        fetched, begins = self.fetched, self.window | self.fetched.halted
        goes_on = ~begins & ~self.redirect
        return any_of(
            [
                Mux(begins, of(body), 0),
                Mux(~begins & self.redirect, of(self.target), 0),
                after(goes_on & fetched.load, fetched.next_op, self.after_next),
                after(goes_on & ~fetched.load, fetched.op, self.after_op),
            ]
        )

    def _table(self, m: Module, next_index: Signal, upcoming: Signal) -> Mapping[str, Value]:
        """Return the fields of operation ``next_index``, which was ``upcoming`` a cycle ago."""
        if not self._loadable:
            return self._fixed_table(m, next_index)
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

    def _fixed_table(self, m: Module, next_index: Signal) -> Mapping[str, Value]:
        """Return the fields of operation ``next_index``; from registers where admission waits for them."""
        fields, body = self._op_fields, self._manifest.program.body
        others = {name: values for name, values in fields.values.items() if name not in ADMITTING}
        table = field_lookup(m, next_index, others, "next")
        for name in sorted(fields.values.keys() - others.keys()):
            values = fields.values[name]
            table[name] = Signal(fields.widths[name], init=values[body], name=f"next_{name}_now")
            m.d.sync += table[name].eq(self._upcoming(partial(_look_up, m, values, name)))
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


def _look_up(m: Module, values: list[int], name: str, index: Value) -> Value:
    """Look up a field of an operation whose number may have fewer bits than the largest number."""
    number = Signal(range(max(2, len(values))), name=f"{name}_number")
    m.d.comb += number.eq(index)
    return lookup(m, number, values, name)
