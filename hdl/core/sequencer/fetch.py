"""Fetch: which operation comes next, and the fields of the one that is loaded."""

from collections.abc import Callable, Mapping
from functools import partial

from amaranth.hdl import Const, Module, Mux, Signal, Value

from rtlstm.hdl.component import In, Out, Struct
from rtlstm.hdl.core.array import any_of
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.core.program_store import NextOp, OpFields, ProgramPart, program_store
from rtlstm.hdl.core.sequencer.steps import Fetched, Walk, after_layout, network_bits


class Fetch(ProgramPart):
    """Loads the next operation when one ends, at a redirect, and after the window.

    The fields of the next operation are always there: its number is decided a cycle before.

    =======  ==============================================================================
    cycle    at a redirect
    =======  ==============================================================================
    k        ``redirect``: the program store is given ``target``.
    k + 1    ``next_op`` is that operation; ``loading``, and with it ``load``.
    k + 2    ``op`` is that operation.
    =======  ==============================================================================

    """

    step: Struct = In(lambda fields: program_store(fields.manifest).step_layout)
    """What is loaded of a step."""
    network: Signal = In(network_bits)
    """The network whose operations are loaded, where there are several."""
    stopped: Signal = In(1)
    """No operation is to be loaded."""
    program_window: Signal = In(1)
    """The window looks at the program."""
    walk: Walk = In(Walk)
    """How far the operation is; its last word loads the next one."""
    after_op: Struct = In(after_layout)
    after_next: Struct = In(after_layout)
    """What comes after the operation that is loaded, and after the next one."""
    redirect: Signal = In(1)
    target: Signal = In(lambda fields: row_bits(fields.manifest.capacity.operations))
    """Load another operation instead."""
    window: Signal = In(1)
    """The memory window is open."""
    fetched: Fetched = Out(Fetched)
    """The operation that is loaded, and the next one."""

    def __init__(self, fields: OpFields) -> None:
        self._program = program_store(fields.manifest)
        self._op_fields = fields
        super().__init__(fields)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched = self.fetched
        upcoming = Signal.like(fetched.index)
        next_index = Signal.like(fetched.index, init=self._program.first_op)
        loading = Signal(init=1)
        next_op = NextOp(next_index, upcoming, self._upcoming)
        table = self._program.read_issued(m, self, self._op_fields, self.program_window, next_op)
        m.d.comb += [
            upcoming.eq(self._upcoming(Value.cast)),
            fetched.load.eq(self.walk.ends | (loading & ~fetched.halted)),
            fetched.loading.eq(loading),
            fetched.halted.eq(self._program.event(partial(self._halted, m))),
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

        step = self._step
        begin = step.begin if self._program.several else Const(0)

        def after(chosen: Value, op: Struct, comes: Struct) -> Value:
            first = Mux(comes.prefetches, of(step.prefetch), of(begin))
            found = Mux(comes.ends_step, Mux(chosen, first, 0), Mux(chosen, of(op.follows), 0))
            return Mux(comes.enters & chosen, of(step.enter), found) if self._op_fields.wave else found

        fetched = self.fetched
        # A step of a network that is there ends the wait for one that is not.
        halted = fetched.halted & ~self.redirect if self._program.several else fetched.halted
        begins = self.window | halted
        goes_on = ~begins & ~self.redirect
        return any_of(
            [
                Mux(begins, of(step.body), 0),
                Mux(~begins & self.redirect, of(self.target), 0),
                after(goes_on & fetched.load, fetched.next_op, self.after_next),
                after(goes_on & ~fetched.load, fetched.op, self.after_op),
            ]
        )

    def _halted(self, m: Module) -> Value:
        """Whether there is no program, or its memory shows another row."""
        looked = Signal()
        m.d.sync += looked.eq(self.program_window)
        stopped = ~self._step.present if self._program.several else self.stopped
        return stopped | looked

    @property
    def _step(self) -> Struct:
        return self._program.fields_of(self.step, getattr(self, "network", 0))

    def _load_fields(self, m: Module, table: Mapping[str, Value]) -> None:
        """Keep those of the fields that are asked for while words are issued."""
        m.d.comb += [self.fetched.next_op[name].eq(value) for name, value in table.items()]
        for name in self._op_fields.of_op.members:
            kept = Signal(self._op_fields.widths[name], reset_less=True, name=f"op_{name}")
            m.d.comb += self.fetched.op[name].eq(kept)
            with m.If(self.fetched.load):
                m.d.sync += kept.eq(table[name])
