"""What harnesses are made of: :mod:`support.proofs` proves components in them.

A harness is an Amaranth module around a real component. Every input of the component is free, reset too, but
for what ``Assume`` says; ``Assert`` says what must hold. What a harness asserts of registers inside the
component are the invariants that its proof takes.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Const,
    Fragment,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
    ValueLike,
)
from amaranth.hdl._mem import MemoryInstance
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In

from rtlstm.hdl.component import Component, flat_ports
from rtlstm.hdl.core.program_store import PortSide, StepPart
from rtlstm.hdl.primitives.pipeline import Memory, Primitive
from rtlstm.spec.manifest import Manifest


class Inside:
    """A component that is to be proven, and what its ``elaborate`` makes.

    ``inside["queue.level"]``: of what is in the variable ``queue``, the variable or attribute ``level``. A
    function that ``elaborate`` calls once is a variable, too: ``inside["count_values.left"]``.
    """

    def __init__(self, m: Module, component: Component, name: str = "dut") -> None:
        self._module, self._component = m, component
        self._variables: dict[int, dict[str, Any]] = {}
        self._functions: dict[str, dict[str, Any]] = {}
        profile = sys.getprofile()
        sys.setprofile(self._note)
        try:
            self._fragment = Fragment.get(component, None)
        finally:
            sys.setprofile(profile)
        m.submodules[name] = self._fragment

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        """Keep the variables of an ``elaborate``, or of another function of the project, when it returns."""
        if event == "return" and frame.f_code.co_name == "elaborate":
            self._variables[id(frame.f_locals["self"])] = dict(frame.f_locals)
        elif event == "return" and frame.f_globals["__name__"].startswith("rtlstm.hdl."):
            self._functions[frame.f_code.co_name] = dict(frame.f_locals)

    def __getitem__(self, path: str) -> Any:
        found: Any = self._component
        function, _, name = path.partition(".")
        if function in self._functions:
            return self._functions[function][name]
        for name in path.split("."):
            variables = self._variables.get(id(found), {})
            found = variables[name] if name in variables else getattr(found, name)
        return found

    def state(self, *names: str) -> Value:
        """Return whether the component's state machine is in one of these states."""
        states = self["m"]._generated["fsm"]
        assert states.encoding.keys() >= set(names), f"{names} are not among {list(states.encoding)}"
        return Cat(states.ongoing(name) for name in names).any()

    def word(self, path: str, address: ValueLike) -> Signal:
        """Return what the memory ``path`` holds at an address."""
        memory = self._part(path.split("."))
        assert isinstance(memory, MemoryInstance), f"{path} is no memory"
        row, word = Signal(range(memory._data.depth)), Signal(memory._data.shape)
        memory.read_port(domain="comb", addr=row, data=word, en=Const(1), transparent_for=())
        self._module.d.comb += row.eq(address)
        return word

    def _part(self, submodules: list[str]) -> Fragment:
        part = self._fragment
        for name in submodules:
            part = next(inner for inner, its_name, _ in part.subfragments if its_name == name)
        return part


def free_inputs(m: Module, component: Component, *driven: str) -> None:
    """Let the inputs of a component be anything in any cycle, but for those that are driven."""
    for path, member, value in component.signature.flatten(component):
        if member.flow is In and path[0] not in driven:
            m.d.comb += Value.cast(value).eq(AnySeq(len(Value.cast(value))))


def implies(condition: ValueLike, fact: ValueLike) -> Value:
    """Whether the fact is true, if the condition is."""
    return ~Value.cast(condition).any() | Value.cast(fact).any()


def distance(end: Value, start: Value) -> Value:
    """How far it is from one place of a ring to another, of as many bits."""
    return (end - start)[: len(start)]


def before(m: Module, value: ValueLike) -> Signal:
    """What a value was a cycle ago; 0 after reset."""
    value = Value.cast(value)
    earlier = Signal(value.shape())
    m.d.sync += earlier.eq(value)
    return earlier


def holds(m: Module, stream: Any) -> Value:
    """Whether a stream keeps its contract: what is offered stays, and stays the same, until it is taken."""
    payload = Value.cast(stream.payload)
    waits = before(m, stream.valid & ~stream.ready)
    same = before(m, payload) == payload
    return ResetSignal() | implies(waits, stream.valid & same)


def follow(m: Module, inside: Inside, path: str) -> None:
    """Assert of a FIFO that any word leaves once, after those before it, as it was written.

    Amaranth's, with a memory that is read in the same cycle, or buffered: then its output register is
    the first place, and fills a cycle after the memory does.
    """
    queue = inside[path]
    buffered = isinstance(queue, SyncFIFOBuffered)
    rows = queue.depth - buffered
    level = inside[f"{path}.inner_level"] if buffered else queue.level
    first, produce = inside[f"{path}.consume"], inside[f"{path}.produce"]
    out = queue.r_rdy if buffered else Const(0)
    writes, reads = queue.w_en & queue.w_rdy, queue.r_en & queue.r_rdy
    # The followed word: it has been written to this row, and so many words are before it.
    follows, ahead, row, word = Signal(), Signal(range(queue.depth)), Signal(range(rows)), Signal(queue.width)
    with m.If(follows & reads):
        m.d.sync += ahead.eq(ahead - 1)
        with m.If(ahead == 0):
            m.d.sync += follows.eq(0)
    with m.Elif(~follows & writes & AnySeq(1)):
        m.d.sync += [follows.eq(1), ahead.eq(queue.level - reads), row.eq(produce), word.eq(queue.w_data)]
    m.d.comb += [
        Assert((first < rows) & (level <= rows) & (produce == (first + level) % rows)),
        Assert(implies(level > 1, queue.r_rdy)),
    ]
    with m.If(follows):
        m.d.comb += Assert(ahead < queue.level)
        with m.If(out & (ahead == 0)):
            m.d.comb += Assert(queue.r_data == word)
        with m.Else():
            m.d.comb += [
                Assert(row == (first + ahead - out) % rows),
                Assert(inside.word(f"{path}.storage", row) == word),
            ]
        with m.If(reads & (ahead == 0)):
            m.d.comb += Assert(queue.r_data == word)


def stored_word(m: Module, memory: Primitive, row: ValueLike) -> Signal:
    """Return what a memory holds in one row, and assume that it reads this row as docs/primitives.md says.

    Other rows read as anything.
    """
    assert isinstance(memory, Memory)
    read, write, word = memory.read, memory.write, Signal(memory.spec.width, reset_less=True)
    writes = write.en.any() & (write.addr == row)
    with m.If(writes):
        m.d.sync += word.eq(write.data)
    known, value = (read.addr == row) & ~writes & ~ResetSignal(), word
    for _ in range(memory.spec.latency):
        known, value = before(m, known), before(m, value)
    m.d.comb += Assume(implies(known, read.data == value))
    return word


def changes_in_reset(m: Module, value: Value) -> Value:
    """Whether reset comes first, lasts two cycles whenever it comes, and the value changes in it alone."""
    begun, one_ago, two_ago = (Signal(reset_less=True) for _ in range(3))
    old = Signal(value.shape(), reset_less=True)
    m.d.sync += [begun.eq(1), one_ago.eq(ResetSignal()), two_ago.eq(one_ago), old.eq(value)]
    stays = implies(value != old, ResetSignal())
    return Mux(begun, stays & (ResetSignal() | ~one_ago | two_ago), ResetSignal())


def stage_of(stage: int, proven: int | None) -> Callable[[ValueLike], list[Any]]:
    """Return what to make of a fact that belongs to a stage of a proof, of which this one is ``proven``.

    It is asserted in its own stage, and assumed in those after it: these take less time one by one than at
    once. Without a number all are asserted.
    """
    if proven is None or stage == proven:
        return lambda fact: [Assert(fact)]
    return lambda fact: [Assume(fact)] if stage < proven else []


def step_size(m: Module, manifest: Manifest, part: StepPart, side: PortSide) -> tuple[Signal, Signal]:
    """Return how many values a step has on a side of the core, and beats.

    With a loadable core it changes in reset only, which begins the part's life and lasts two cycles.
    """
    parameters, inward = manifest.parameters, side == "inputs"
    most = manifest.capacity.inputs if inward else manifest.capacity.outputs
    beat = parameters.beat_in if inward else parameters.beat_out
    values, beats = Signal(range(most + 1), name="values"), Signal(range(most + 1), name="beats")
    m.d.comb += beats.eq((values + beat - 1) // beat)
    if parameters.capacity is None:
        m.d.comb += values.eq(most)
    else:
        shape = part.shape[:16] if inward else part.shape[16:]
        m.d.comb += [
            values.eq(shape),
            Assume((shape >= 1) & (shape <= most)),
            Assume(changes_in_reset(m, shape)),
        ]
    return values, beats


def free_module(name: str, component: Component) -> str:
    """Return the Verilog of a module with a component's ports whose outputs are free."""
    Fragment.get(component, None)  # else Amaranth warns that it is not used
    ports = list(flat_ports(component))
    flows = {port.name: "input" if port.flow is In else "output" for port in ports}
    declared = "".join(f", {flows[port.name]} [{len(port.value) - 1}:0] {port.name}" for port in ports)
    free = "".join(f"assign {name} = $anyseq;\n" for name, flow in flows.items() if flow == "output")
    return f"module {name} (input clk, input rst{declared});\n{free}endmodule\n"
