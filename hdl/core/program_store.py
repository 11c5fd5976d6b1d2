"""The program store: constants of the hardware, or memories that the host loads.

A fixed program is a loadable one whose memory is a constant. The core's parts have the same ports with both,
ask their store for what they need, and do not ask which of the two it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib.data import ArrayLayout, StructLayout, View

from rtlstm.hdl.component import AnyInterface, Component, In, Out, Struct, connect_some
from rtlstm.hdl.core.layouts import norms_of, row_bits
from rtlstm.hdl.primitives.pipeline import delay, lookup, storage
from rtlstm.spec.inventory import memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import NETWORK_BIT, NUMBER_BITS
from rtlstm.spec.program.fields import (
    drain_fields,
    drain_widths,
    issue_fields,
    issue_widths,
    norm_fields,
    step_fields,
    step_widths,
)

_ADMITTING = (
    *("emit", "single", "drains_first", "first_word"),
    *("waits_for_input", "waits_for_results", "newer_results"),
)
"""Fields of the next operation on which it depends whether its first word is issued."""
_READ_TO_LOAD = (
    "groups",
    "weights",
    "source",
    "source_copied",
    "first_word",
    "second_word",
    "second_ends",
    "third_row",
    "sections",
    "drains_first",
)
"""Fields that set up a walk, and that nobody asks for after that."""

AnyFields: TypeAlias = "Struct | View[ArrayLayout]"
"""The fields of a step, or of one of each network that a device holds."""

PortSide = Literal["inputs", "outputs"]
"""Values into a step, or out of it."""


@dataclass(frozen=True)
class OpFields:
    """Fields of an operation that a part reads."""

    manifest: Manifest
    widths: Mapping[str, int]
    values: Mapping[str, list[int]] = field(default_factory=dict)
    """Their values in every operation, if these are constants."""

    @property
    def skip(self) -> bool:
        """Whether row groups skip words."""
        return "first_word" in self.widths

    @property
    def sections(self) -> bool:
        """Whether lanes can keep the sums of row groups, from one section of an operation to the next."""
        return "sections" in self.widths

    @property
    def wave(self) -> bool:
        """Whether layers work on different steps at once."""
        return "in_wave" in self.widths

    @property
    def of_op(self) -> StructLayout:
        """Those that are kept of the operation that is loaded."""
        return StructLayout({name: self.widths[name] for name in self.widths if name not in _READ_TO_LOAD})


class ProgramPart(Component):
    """A component that reads fields of operations."""

    program_write: Signal = In(1)
    program_data: Signal = In(lambda fields: sum(fields.widths.values()))
    """Store a word in the row that the window is at."""
    program_word: Signal = Out(lambda fields: sum(fields.widths.values()))
    """The word of that row, while the window looks at the program."""
    window_row: Signal = In(32)
    """The window's row."""


@dataclass(frozen=True)
class NextOp:
    """The operation that the sequencer loads next."""

    number: Signal
    upcoming: Signal
    """The number in the next cycle."""
    of_upcoming: Callable[[Callable[[Value], Value]], Value]
    """A function of that; it is applied in front of the choices that are made last."""


@dataclass(frozen=True)
class Loaded:
    """What is known of a step of the program that is loaded."""

    fields: AnyFields
    stopped: Value
    """There is no whole program: no operation is to be loaded, no input taken."""
    shape: Value
    """Inputs and outputs of a step, 16 bits each, as SHAPE reads."""


class ProgramStore(ABC):
    """Where the program of a core is. What only loading brings makes no logic where nothing is loaded."""

    step_layout: StructLayout | ArrayLayout
    """The fields of a step; where a core holds several networks, of one of each."""
    at_reset: Mapping[str, int]
    """What the fields of a step are while nothing was loaded."""
    least_beats: int
    """Output beats that any step has."""
    first_op: int
    """Number of the operation that is the next one after a reset."""
    most_words: int
    """The most words that a vector can have."""
    latest_results: int
    """Cycles after which an operation's last results are there at the latest, from its last word."""
    most_drain_cycles: int
    """Cycles in which a group of an operation drains at most."""
    drained: OpFields
    """The fields that the drain reads."""
    told: Mapping[str, int]
    """Ports at which a core tells of what is loaded, with their widths."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    @abstractmethod
    def issued(self, more: Mapping[str, list[int]] | None = None) -> OpFields:
        """Return the fields that the sequencer reads: those of every program, and ``more`` or instead."""

    @abstractmethod
    def read_issued(
        self, m: Module, part: ProgramPart, fields: OpFields, looked: Value, next_op: NextOp
    ) -> Mapping[str, Value]:
        """Return the fields of the next operation; ``looked`` is 1 while the window looks at the program."""

    @abstractmethod
    def read_drained(self, m: Module, part: ProgramPart, looked: Value, op: Value) -> Mapping[str, Value]:
        """Return the fields that the drain reads of the operation that ``op`` was a cycle ago."""

    @abstractmethod
    def read_normed(self, m: Module, part: Any, looked: Value, op: Value) -> Callable[[str], Value]:
        """Return a function that gives fields by name, of those that what computes norms reads, of the
        operation that ``op`` was a cycle ago."""

    @abstractmethod
    def load(self, m: Module, *, touched: Value, write: Value, row: Value, data: Value) -> Loaded:
        """Return what is known of a step; see :class:`_StepFields`."""

    @abstractmethod
    def tells(self, core: Any, what: Literal["shape", "stopped"]) -> Value:
        """Return what a core tells at its port ``what`` of those in ``told``."""

    @abstractmethod
    def after_first(self, shape: Value, side: PortSide, number: Value) -> ValueLike:
        """How many values follow the first one of a step of a stream with this ``number`` at the ports."""

    @abstractmethod
    def counter(self, side: PortSide, name: str) -> Signal:
        """Make a counter of a step's values; it begins with those after the first, if they are known."""

    @property
    def several(self) -> bool:
        """Whether the core holds several networks."""
        return self._manifest.parameters.networks > 1

    def shape_of(self, shape: Value, number: Value) -> Value:
        """Return the sizes of a step of the network of a stream with this ``number`` at the ports."""
        return shape

    @abstractmethod
    def fields_of(self, step: AnyFields, network: ValueLike = 0) -> Struct:
        """Return the fields of a step of a network that are loaded; ``step`` is the port that has them."""

    def unknown(self, number: Value, shape: Value) -> Value:
        """Return whether there is no such stream, or its network is not loaded; ``number`` is at the ports,
        and has more bits than those of a stream."""
        return number >= self._manifest.parameters.streams

    @abstractmethod
    def drive(self, m: Module, statements: Sequence[Any]) -> None:
        """Drive ports that only loading needs."""

    @abstractmethod
    def connect(self, m: Module, one: AnyInterface, other: AnyInterface, names: Iterable[str]) -> None:
        """Connect such ports, as :func:`rtlstm.hdl.component.connect_some` does."""

    @abstractmethod
    def event(self, make: Callable[[], Value]) -> Value:
        """Return an event that only loading brings, of which ``make`` makes the logic."""

    def drops(self, make: Callable[[], Value]) -> Value:
        """Return an event of loading that drops parts of steps, of which ``make`` makes the logic."""
        return Const(0, 1) if self.several else self.event(make)

    @abstractmethod
    def when(self, m: Module, event: Value, statements: Sequence[Any], *, otherwise: bool = False) -> None:
        """Do this at such an event; with ``otherwise``, if the conditions before are false."""

    @abstractmethod
    def unless(self, event: Value, value: Value) -> Value:
        """Return a bit, and 0 at such an event."""

    @abstractmethod
    def choose(self, event: Value, first: Value, other: Value) -> Value:
        """Return ``first`` at such an event, else ``other``."""

    def most(self, side: PortSide) -> int:
        """Return the most values that a step can have."""
        manifest = self._manifest
        return manifest.input_port.most if side == "inputs" else manifest.capacity.outputs


class _ConstantProgram(ProgramStore):
    """The program is a constant of the build: fields are looked up, and no event of loading ever comes."""

    told: Mapping[str, int] = MappingProxyType({})

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        program, ops = manifest.program, manifest.program.ops
        self.at_reset = step_fields(program, manifest.parameters)
        self.least_beats = self.at_reset["beats_out"]
        wide = {"last_beat": manifest.parameters.beat_in, "inputs": 16, "outputs": 16}
        self.step_layout = StructLayout(
            {name: wide.get(name, len(Const(value))) for name, value in self.at_reset.items()}
        )
        values = Cat(Const(self.at_reset[name], each.width) for name, each in self.step_layout)
        step = View(self.step_layout, values)
        self._step, self._loaded = step, Loaded(step, Const(0, 1), Cat(step.inputs, step.outputs))
        self.first_op = program.body
        self.most_words = max((op.columns for op in ops), default=0)
        self.latest_results = max((op.results for op in ops), default=0)
        self.most_drain_cycles = max((op.drain_cycles for op in ops), default=0)
        self.drained = self._constants(drain_fields(program, manifest.layers, manifest.numerics.unit))

    def issued(self, more: Mapping[str, list[int]] | None = None) -> OpFields:
        sections = self._manifest.parameters.lane_sums is not None
        issued = issue_fields(self._manifest.program, sections=sections)
        return self._constants(issued | dict(more or {}))

    def _constants(self, values: Mapping[str, list[int]]) -> OpFields:
        """Return constant fields, as wide as they need to be."""
        widths = {name: max((1, *each)).bit_length() for name, each in values.items()}
        return OpFields(self._manifest, widths, values)

    def read_issued(
        self, m: Module, part: ProgramPart, fields: OpFields, looked: Value, next_op: NextOp
    ) -> Mapping[str, Value]:
        # From registers where admission waits for them.
        others = {name: values for name, values in fields.values.items() if name not in _ADMITTING}
        table = _look_up(m, next_op.number, others, "next")
        for name in sorted(fields.values.keys() - others.keys()):
            values = fields.values[name]
            table[name] = Signal(fields.widths[name], init=values[self.first_op], name=f"next_{name}_now")
            m.d.sync += table[name].eq(next_op.of_upcoming(partial(_look_up_one, m, values, name)))
        return table

    def read_drained(self, m: Module, part: ProgramPart, looked: Value, op: Value) -> Mapping[str, Value]:
        found = _look_up(m, op, self.drained.values, "op")
        return {name: delay(m, value, 1) for name, value in found.items()}

    def read_normed(self, m: Module, part: Any, looked: Value, op: Value) -> Callable[[str], Value]:
        manifest = self._manifest
        fields = norm_fields(manifest.program, manifest.layers, norms_of(manifest))
        return lambda name: delay(m, lookup(m, op, fields[name], f"{name}_of_op"), 1)

    def load(self, m: Module, *, touched: Value, write: Value, row: Value, data: Value) -> Loaded:
        return self._loaded

    def tells(self, core: Any, what: Literal["shape", "stopped"]) -> Value:
        return self._loaded.shape if what == "shape" else self._loaded.stopped

    def after_first(self, shape: Value, side: PortSide, number: Value) -> ValueLike:
        return self.most(side) - 1

    def counter(self, side: PortSide, name: str) -> Signal:
        return Signal(range(self.most(side)), init=self.most(side) - 1, name=name)

    def fields_of(self, step: AnyFields, network: ValueLike = 0) -> Struct:
        return self._step

    def drive(self, m: Module, statements: Sequence[Any]) -> None:
        pass

    def connect(self, m: Module, one: AnyInterface, other: AnyInterface, names: Iterable[str]) -> None:
        pass

    def event(self, make: Callable[[], Value]) -> Value:
        return Const(0, 1)

    def when(self, m: Module, event: Value, statements: Sequence[Any], *, otherwise: bool = False) -> None:
        pass

    def unless(self, event: Value, value: Value) -> Value:
        return value

    def choose(self, event: Value, first: Value, other: Value) -> Value:
        return other


class _WritableProgram(ProgramStore):
    """The program is in memories that the host writes through the window."""

    told: Mapping[str, int] = MappingProxyType({"shape": 32, "stopped": 1})
    first_op = 0
    least_beats = 1

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        parameters = manifest.parameters
        layout = _step_layout(manifest)
        self.step_layout = layout
        self.at_reset = dict.fromkeys(layout.members, 0)
        self.latest_results = parameters.preactivation + manifest.timing.slowest
        self.most_drain_cycles = parameters.most_drain_cycles(manifest.timing.norm_values)
        self.most_words = 1 << self.issued().widths["columns"]
        self.drained = OpFields(manifest, drain_widths(parameters, manifest.numerics.unit))

    def issued(self, more: Mapping[str, list[int]] | None = None) -> OpFields:
        return OpFields(self._manifest, issue_widths(self._manifest.parameters, self._manifest.timing))

    def read_issued(
        self, m: Module, part: ProgramPart, fields: OpFields, looked: Value, next_op: NextOp
    ) -> Mapping[str, Value]:
        return self._read(m, part, "program, issued", fields, looked, next_op.upcoming)

    def read_drained(self, m: Module, part: ProgramPart, looked: Value, op: Value) -> Mapping[str, Value]:
        return self._read(m, part, "program, drained", self.drained, looked, op)

    def read_normed(self, m: Module, part: Any, looked: Value, op: Value) -> Callable[[str], Value]:
        manifest, memory = self._manifest, "program, norms"
        fields = OpFields(manifest, manifest.program_memories[memory])
        return self._read(m, part, memory, fields, looked, op).__getitem__

    def _read(
        self, m: Module, part: Any, memory: str, fields: OpFields, looked: Value, op: Value
    ) -> Mapping[str, Value]:
        """Add a memory; return the fields of the operation that ``op`` was a cycle ago."""
        read, write = storage(m, memories(self._manifest)[memory], "program")
        row = Mux(looked, part.window_row, op)
        m.d.comb += read.addr.eq(row)
        found: dict[str, Value] = {}
        low = 0
        for name, width in fields.widths.items():
            found[name] = Signal(width, name=f"program_{name}")
            m.d.comb += found[name].eq(read.data[low : low + width])
            low += width
        m.d.comb += [
            write.addr.eq(part.window_row),
            write.data.eq(part.program_data),
            write.en.eq(part.program_write),
            part.program_word.eq(Cat(found.values())),
        ]
        return found

    def load(self, m: Module, *, touched: Value, write: Value, row: Value, data: Value) -> Loaded:
        m.submodules.step_fields = kept = _StepFields(self._manifest)
        m.d.comb += [
            kept.touched.eq(touched),
            kept.write.eq(write),
            kept.row.eq(row),
            kept.data.eq(data),
        ]
        fields = kept.fields
        return Loaded(fields, kept.stopped, Cat(fields.inputs, fields.outputs))

    def tells(self, core: Any, what: Literal["shape", "stopped"]) -> Value:
        port: Signal = getattr(core, what)
        return port

    def unknown(self, number: Value, shape: Value) -> Value:
        return super().unknown(number, shape) | (self.shape_of(shape, number) == 0)

    def after_first(self, shape: Value, side: PortSide, number: Value) -> ValueLike:
        # Of 16 bits, as SHAPE has: 0 stands for 65,536 values.
        values = shape[:16] if side == "inputs" else shape[16:]
        return (values - 1)[:16]

    def counter(self, side: PortSide, name: str) -> Signal:
        return Signal(range(self.most(side)), reset_less=True, name=name)

    def fields_of(self, step: AnyFields, network: ValueLike = 0) -> Struct:
        return cast(Struct, step)

    def drive(self, m: Module, statements: Sequence[Any]) -> None:
        m.d.comb += statements

    def connect(self, m: Module, one: AnyInterface, other: AnyInterface, names: Iterable[str]) -> None:
        connect_some(m, one, other, names)

    def event(self, make: Callable[[], Value]) -> Value:
        return make()

    def when(self, m: Module, event: Value, statements: Sequence[Any], *, otherwise: bool = False) -> None:
        with m.Elif(event) if otherwise else m.If(event):
            m.d.sync += statements

    def unless(self, event: Value, value: Value) -> Value:
        return value & ~event

    def choose(self, event: Value, first: Value, other: Value) -> Value:
        return Mux(event, first, other)


class _SeveralPrograms(_WritableProgram):
    """The memories hold programs of several networks, each with fields of a step.

    Writing the program stops nobody: a network is there as long as the row of its fields is not zero. So a
    host clears that row, loads the network, and writes the row.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._networks = manifest.parameters.networks
        self.step_layout = ArrayLayout(_step_layout(manifest), self._networks)
        self.told = {"shape": 32 * self._networks, "stopped": 1}

    def load(self, m: Module, *, touched: Value, write: Value, row: Value, data: Value) -> Loaded:
        layout, first = _step_layout(self._manifest), self._manifest.capacity.operations
        kept = cast("View[ArrayLayout]", Signal(self.step_layout, name="step_fields"))
        for network in range(self._networks):
            with m.If(write & (row == first + network)):
                m.d.sync += kept[network].eq(data[: layout.size])
        steps = [kept[network] for network in range(self._networks)]
        shape = Cat(Mux(step.present, Cat(step.inputs, step.outputs), 0) for step in steps)
        return Loaded(kept, ~Cat(step.present for step in steps).any(), shape)

    def after_first(self, shape: Value, side: PortSide, number: Value) -> ValueLike:
        return super().after_first(self.shape_of(shape, number), side, number)

    def shape_of(self, shape: Value, number: Value) -> Value:
        return shape.word_select(self._network(number), 32)

    def _network(self, number: Value) -> Value:
        return number[NETWORK_BIT : NETWORK_BIT + self._manifest.parameters.network_bits]

    def unknown(self, number: Value, shape: Value) -> Value:
        wrong: Value = number[:NETWORK_BIT] >= self._manifest.parameters.streams
        missing = number[NETWORK_BIT:NUMBER_BITS] >= self._networks
        return wrong | missing | (self.shape_of(shape, number) == 0)

    def fields_of(self, step: AnyFields, network: ValueLike = 0) -> Struct:
        fields: Struct = step[network]
        return fields

    def when(self, m: Module, event: Value, statements: Sequence[Any], *, otherwise: bool = False) -> None:
        # What was taken for a network that is gone waits until it is there again.
        pass

    def unless(self, event: Value, value: Value) -> Value:
        return value


def program_store(manifest: Manifest) -> ProgramStore:
    """Return the store of a build's program."""
    if manifest.parameters.capacity is None:
        return _ConstantProgram(manifest)
    return (_WritableProgram if manifest.parameters.networks == 1 else _SeveralPrograms)(manifest)


def _step_layout(manifest: Manifest) -> StructLayout:
    """The fields of a step of a program in a memory."""
    return StructLayout(step_widths(manifest.parameters))


def _look_up(m: Module, index: Value, fields: Mapping[str, list[int]], name: str) -> dict[str, Value]:
    """Return the fields of operation ``index``, without delay."""
    return {each: lookup(m, index, values, f"{name}_{each}") for each, values in fields.items()}


def _look_up_one(m: Module, values: list[int], name: str, index: Value) -> Value:
    """Look up a field of an operation whose number may have fewer bits than the largest number."""
    number = Signal(range(max(2, len(values))), name=f"{name}_number")
    m.d.comb += number.eq(index)
    return lookup(m, number, values, name)


class _StepFields(Component):
    """Keeps a loaded program's fields of a step, and stops the core while there is no whole program.

    The core is stopped by reset, and as soon as any word of the program is written; it goes on when the
    program's last row, these fields, has been. Nothing before that row is looked at: rows, weights and tables
    may come in any order.
    """

    touched: Signal = In(1)
    """A word of the program is being written; the core is idle."""
    write: Signal = In(1)
    row: Signal = In(lambda manifest: row_bits(manifest.capacity.operations + 1))
    data: Signal = In(lambda manifest: _step_layout(manifest).size)
    """Store a row of the program."""
    fields: Struct = Out(lambda manifest: _step_layout(manifest))
    """The last row."""
    stopped: Signal = Out(1)
    """No operation is to be loaded, no input taken."""

    def __init__(self, manifest: Manifest) -> None:
        self._last = manifest.capacity.operations
        super().__init__(manifest)

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


class CorePart(Component):
    """A component whose ports and contents are functions of a build."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        super().__init__(manifest)

    @cached_property
    def _program(self) -> ProgramStore:
        return program_store(self._manifest)


class StepPart(CorePart):
    """A component that counts the values of steps."""

    shape: Signal = In(lambda manifest: 32 * manifest.parameters.networks)
    """Sizes of a step of each network, as in the SHAPE register."""


def tell_shape(m: Module, store: ProgramStore, side: Any, part: StepPart) -> None:
    """Tell a part of a link the sizes of steps, as what drives the core knows them: 0 for no whole program.

    A step that the core does not take would stop the link, and with it what loads the program.
    """
    if store.told:
        m.d.comb += part.shape.eq(Mux(side.stopped, 0, side.shape))


@dataclass(frozen=True)
class StepValues:
    """Where a part is in a step: whether the next transfer is its first, and its last."""

    first: Value
    last: Value


def count_values(
    m: Module, program: ProgramStore, part: StepPart, side: PortSide, moved: Value, number: Value, by: int = 1
) -> StepValues:
    """Count a step's values, ``by`` of them in each cycle with ``moved``.

    With a step's first value, ``number`` is that of its stream.

    Another network is loaded between steps only. Its first step may begin in the cycle after the next.
    """
    begins = program.after_first(part.shape, side, number)
    # How many follow the first value of the next transfer.
    left = program.counter(side, f"{side}_left")
    first = Signal(init=1, name=f"{side}_first")
    if program.several:
        follow = Mux(first, begins, left)
        last = follow < by
        with m.If(moved):
            m.d.sync += [left.eq(follow - by), first.eq(last)]
        return StepValues(first, last)
    last = left < by
    with m.If(moved):
        m.d.sync += [left.eq(Mux(last, begins, left - by)), first.eq(last)]
    program.when(m, first, [left.eq(begins)], otherwise=True)
    return StepValues(first, last)
