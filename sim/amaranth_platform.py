"""Parts of the hardware in Amaranth's own simulator: no Verilog, no other simulator.

Memories, multipliers and lanes are instances of Verilog modules. Here models in Amaranth take their places.
They keep the contract of ``docs/primitives.md``, cycle by cycle. What it leaves open is X in Verilog.
The simulator has no X: the models give values that are wrong for whoever relies on them.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from amaranth.hdl import Const, Elaboratable, Fragment, Instance, Module, Mux, Signal, Value, unsigned
from amaranth.lib import memory
from amaranth.sim import Simulator

from rtlstm.hdl.primitives.pipeline import (
    ConstantTable,
    Copy,
    Memory,
    MemoryPair,
    Multiplier,
    MultiplierPair,
    Platform,
    Primitive,
    ProductSum,
    ReadPort,
    delay,
)
from rtlstm.spec.inventory import MemorySpec


class AmaranthPlatform(Platform):
    """The platform of Amaranth's simulator: its models of the primitives."""

    def replace(self, primitive: Primitive) -> Elaboratable:
        """Return the model of a primitive. Raises NotImplementedError if there is none."""
        match primitive:
            case Copy():
                return _copy(primitive)
            case Memory():
                return _memory(primitive)
            case MemoryPair():
                return _memory_pair(primitive)
            case ConstantTable():
                return _constant_table(primitive)
            case Multiplier():
                return _multiplier(primitive)
            case MultiplierPair():
                return _multiplier_pair(primitive)
            case ProductSum():
                return _product_sum(primitive)
        raise NotImplementedError(f"{type(primitive).__name__} has no model in {__name__}")


AMARANTH = AmaranthPlatform()


def simulator(top: Elaboratable) -> Simulator:
    """Return Amaranth's simulator of a design, with a clock of 1 MHz for the domain ``sync``.

    Raises NotImplementedError if part of the design is Verilog that has no model, such as the core in a bus
    wrapper: Amaranth would leave it out.
    """
    fragment = Fragment.get(top, AMARANTH)
    missing = sorted({instance.type for instance in _instances(fragment)})
    if missing:
        raise NotImplementedError(
            f"Amaranth's simulator runs no Verilog, but these are: {', '.join(missing)}"
        )
    simulation = Simulator(fragment)
    simulation.add_clock(1e-6)
    return simulation


def _instances(fragment: Any) -> Iterator[Any]:
    for part, _, _ in fragment.subfragments:
        if isinstance(part, Instance):
            yield part
        yield from _instances(part)


def _copy(model: Copy) -> Module:
    m = Module()
    m.d.comb += model.copied.eq(delay(m, model.value, 1))
    return m


def _memory(model: Memory) -> Module:
    """A read of the word that is written at the same edge gives the old word, each bit inverted.

    A memory of style "huge" may have a single port: a write inverts whatever is read.
    """
    m = Module()
    spec, write = model.spec, model.write
    words = _words(m, spec, _random_words(spec))
    port = words.write_port(granularity=spec.width // spec.granules)
    m.d.comb += [port.addr.eq(write.addr), port.data.eq(write.data), port.en.eq(write.en)]
    same = Const(1) if spec.style == "huge" else model.read.addr == write.addr
    _read(m, words, spec, model.read, write.en.any() & same)
    return m


def _memory_pair(model: MemoryPair) -> Module:
    """A write inverts what both ports read."""
    m = Module()
    words, write = _words(m, model.spec, _random_words(model.spec)), model.write
    port = words.write_port()
    m.d.comb += [port.addr.eq(write.addr), port.data.eq(write.data), port.en.eq(write.en)]
    for read in (model.first, model.second):
        _read(m, words, model.spec, read, write.en)
    return m


def _constant_table(model: ConstantTable) -> Module:
    m = Module()
    spec = model.spec.memory
    _read(m, _words(m, spec, model.spec.table.words), spec, model.read, Const(0))
    return m


def _words(m: Module, spec: MemorySpec, contents: Sequence[int]) -> "memory.Memory[Any, Any]":
    """Add a memory's words."""
    words: memory.Memory[Any, Any] = memory.Memory(
        shape=unsigned(spec.width), depth=spec.depth, init=contents
    )
    m.submodules.words = words
    return words


def _random_words(spec: MemorySpec) -> list[int]:
    """Return what a memory holds until it is written, the same in each run."""
    draw = Random(f"{spec.name} {spec.width} {spec.depth}")
    return [draw.getrandbits(spec.width) for _ in range(spec.depth)]


def _read(
    m: Module, words: "memory.Memory[Any, Any]", spec: MemorySpec, read: ReadPort, undefined: Value
) -> None:
    """Add a read port; what it reads in a cycle with ``undefined`` is inverted."""
    if spec.asynchronous:
        at_once = words.read_port(domain="comb")
        m.d.comb += [at_once.addr.eq(read.addr), read.data.eq(at_once.data)]
        return
    port = words.read_port()
    inverts = Signal(reset_less=True)
    m.d.comb += port.addr.eq(read.addr)
    m.d.sync += inverts.eq(undefined)
    word = Mux(inverts, ~port.data, port.data)
    m.d.comb += read.data.eq(delay(m, word, int(spec.output_register)))


def _multiplier(model: Multiplier) -> Module:
    m = Module()
    product = model.a.as_signed() * model.b.as_signed()
    m.d.comb += model.product.eq(delay(m, product, model.spec.stages))
    return m


def _multiplier_pair(model: MultiplierPair) -> Module:
    """Two products with the same factor leave a carry, as on ECP5: 1 below a negative one."""
    m = Module()
    first, second = (a.as_signed() * b.as_signed() for a, b in (model.first, model.second))
    carry = first < 0 if model.spec.shared else Const(0)
    values = zip((*model.products, model.carry), (first, second - carry, carry), strict=True)
    m.d.comb += [signal.eq(delay(m, value, model.spec.stages)) for signal, value in values]
    return m


def _product_sum(model: ProductSum) -> Module:
    m = Module()
    for total, lane in zip(model.sums, model.lanes, strict=True):
        first, second = (a.as_signed() * b.as_signed() for a, b in lane)
        m.d.comb += total.eq(delay(m, first + second, model.spec.stages + 1))
    return m
