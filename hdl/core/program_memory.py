"""The program: constants of a build, or a memory that the host loads."""

from collections.abc import Mapping

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.component import Component, Struct
from rtlstm.hdl.core.layouts import row_bits
from rtlstm.hdl.primitives.pipeline import WritePort, lookup, storage
from rtlstm.spec.inventory import MemorySpec
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.program.fields import step_fields, step_widths

__all__ = [
    "ProgramPart",
    "StepFields",
    "field_lookup",
    "field_memory",
    "program_ports",
    "step_layout",
    "step_values",
]


def program_ports(widths: Mapping[str, int]) -> dict[str, wiring.Member]:
    """Ports of a part with a program memory of its own, with fields of these widths.

    ``program_write`` stores ``program_data`` in the row that the window is at; ``program_word`` is the word
    of that row, while the window looks at the program.
    """
    width = sum(widths.values())
    return {"program_write": In(1), "program_data": In(width), "program_word": Out(width)}


class ProgramPart(Component):
    """A component with the members of :func:`program_ports` if the program is loadable, and more."""

    program_write: Signal
    program_data: Signal
    program_word: Signal


def field_lookup(m: Module, index: Value, fields: Mapping[str, list[int]], name: str) -> dict[str, Value]:
    """Return the fields of operation ``index``, of a fixed program, without delay."""
    return {field: lookup(m, index, values, f"{name}_{field}") for field, values in fields.items()}


def field_memory(
    m: Module, spec: MemorySpec, index: Value, widths: Mapping[str, int], name: str
) -> tuple[dict[str, Value], WritePort]:
    """Return the fields of the operation that ``index`` was a cycle ago, and the memory's write port."""
    read, write = storage(m, spec, name)
    m.d.comb += read.addr.eq(index)
    fields: dict[str, Value] = {}
    low = 0
    for field, width in widths.items():
        fields[field] = Signal(width, name=f"{name}_{field}")
        m.d.comb += fields[field].eq(read.data[low : low + width])
        low += width
    return fields, write


def step_layout(manifest: Manifest) -> StructLayout:
    """The fields of a step of a loaded program."""
    return StructLayout(step_widths(manifest.parameters))


def step_values(manifest: Manifest, loaded: Struct | None) -> dict[str, Value]:
    """Return a step's fields: what is loaded, or a fixed program's constants."""
    if manifest.parameters.capacity is None:
        fields = step_fields(manifest.program, manifest.parameters)
        widths = {"last_beat": manifest.parameters.beat_in}
        return {name: Const(value, widths.get(name)) for name, value in fields.items()}
    assert loaded is not None
    return {name: loaded[name] for name in step_widths(manifest.parameters)}


class StepFields(Component):
    """Keeps a loaded program's fields of a step, and stops the core while there is no whole program.

    The core is stopped by reset, and as soon as any word of the program is written; it goes on when the
    program's last row, these fields, has been. Nothing before that row is looked at: rows, weights and tables
    may come in any order.

    Members
    -------
    touched : In(1)
        A word of the program is being written; the core is idle.
    write : In(1), row, data : In
        Store a row of the program.
    fields : Out
        The last row.
    stopped : Out(1)
        No operation is to be loaded, no input taken.
    """

    touched: Signal
    write: Signal
    row: Signal
    data: Signal
    fields: Struct
    stopped: Signal

    def __init__(self, manifest: Manifest) -> None:
        self._last = manifest.capacity.operations
        layout = step_layout(manifest)
        super().__init__(
            {
                "touched": In(1),
                "write": In(1),
                "row": In(row_bits(self._last + 1)),
                "data": In(layout.size),
                "fields": Out(layout),
                "stopped": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stored = self.write & (self.row == self._last)
        kept = Signal(self.data.shape())
        stopped, complete = Signal(init=1), Signal()
        m.d.comb += [Value.cast(self.fields).eq(kept), self.stopped.eq(stopped)]
        # What depends on the fields has seen them when the core goes on.
        m.d.sync += complete.eq(stored & ~self.touched)
        with m.If(stored):
            m.d.sync += kept.eq(self.data)
        with m.If(self.touched):
            m.d.sync += stopped.eq(1)
        with m.Elif(complete):
            m.d.sync += stopped.eq(0)
        return m
