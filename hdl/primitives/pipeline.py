"""Small helpers of the datapath: delays, constant tables, and the primitives.

Memories and multipliers are instances of the Verilog modules in ``primitives/``, of which
:mod:`rtlstm.hdl.emit.verilog` adds the family's file to the output. ``docs/primitives.md`` has their
contract; nothing else in ``hdl`` knows of them. Here they are called ``rtlstm_memory`` and so on; in the
output they bear the build's name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import ClockSignal, Instance, Module, Signal, Value, signed

from rtlstm.spec.inventory import MemorySpec, MultiplierSpec
from rtlstm.spec.parameters import ceil_log2

__all__ = [
    "ReadPort",
    "WritePort",
    "delay",
    "delay_event",
    "lookup",
    "multiply",
    "multiply_pair",
    "storage",
    "storage_pair",
]


def delay(m: Module, value: Value, cycles: int) -> Value:
    """Return a datapath value as it was ``cycles`` clock cycles ago; it carries no reset."""
    for _ in range(cycles):
        delayed = Signal(value.shape(), reset_less=True, name=f"{_name(value)}_d")
        m.d.sync += delayed.eq(value)
        value = delayed
    return value


def delay_event(m: Module, event: Value, cycles: int) -> Value:
    """Return bits as they were ``cycles`` clock cycles ago, and 0 after a reset."""
    for _ in range(cycles):
        delayed = Signal(len(event), name=f"{_name(event)}_d")
        m.d.sync += delayed.eq(event)
        event = delayed
    return event


def _name(value: Value) -> str:
    name = getattr(value, "name", "value")
    return str(name).removesuffix("_d")


def lookup(m: Module, index: Value, values: Sequence[int], name: str) -> Value:
    """Return ``values[index]`` as combinational logic (0 past the end)."""
    result = Signal(range(max(1, *values) + 1) if len(values) else 1, name=name)
    with m.Switch(index):
        for position, value in enumerate(values):
            with m.Case(position):
                m.d.comb += result.eq(value)
    return result


@dataclass(frozen=True)
class ReadPort:
    """Clocked: ``data`` is the word that ``addr`` pointed at one cycle before, or two with the
    memory's output register."""

    addr: Signal
    data: Signal


@dataclass(frozen=True)
class WritePort:
    """Clocked: stores ``data`` (or those granules whose ``en`` bit is 1) at ``addr``."""

    addr: Signal
    data: Signal
    en: Signal


def storage(m: Module, spec: MemorySpec, name: str) -> tuple[ReadPort, WritePort]:
    """Add one of the memories of an inventory; return its ports.

    A read gives what was written up to the clock edge before; what it gives of a word that is
    written at the same edge is undefined. Contents are undefined until written: nothing in the
    core relies on initial values. Amaranth's own memories would spell out initial contents bit by
    bit, megabytes of them.
    """
    assert not spec.asynchronous, f"{spec.name} are read without a clock"
    address_bits = ceil_log2(spec.depth)
    read = ReadPort(Signal(address_bits, name=f"{name}_raddr"), Signal(spec.width, name=f"{name}_rdata"))
    write = WritePort(
        Signal(address_bits, name=f"{name}_waddr"),
        Signal(spec.width, name=f"{name}_wdata"),
        Signal(spec.granules, name=f"{name}_wen"),
    )
    m.submodules[name] = Instance(
        "rtlstm_memory",
        p_WIDTH=spec.width,
        p_DEPTH=spec.depth,
        p_ABITS=address_bits,
        p_GRANULES=spec.granules,
        p_OUTREG=int(spec.output_register),
        p_STYLE=spec.style,
        i_clk=ClockSignal(),
        i_read_address=read.addr,
        o_read_data=read.data,
        i_write_address=write.addr,
        i_write_data=write.data,
        i_write_enable=write.en,
    )
    return read, write


def storage_pair(m: Module, spec: MemorySpec, name: str) -> tuple[ReadPort, ReadPort, WritePort]:
    """Add two of the memories of an inventory, with the same contents, as one with two read ports.

    The write port's address is the first read port's. What either port reads in a cycle with a write is
    undefined; else as :func:`storage`.
    """
    assert spec.pairs, f"{spec.name} have one read port each"
    address_bits = ceil_log2(spec.depth)
    first, second = (
        ReadPort(
            Signal(address_bits, name=f"{name}_raddr{index}"), Signal(spec.width, name=f"{name}_rdata{index}")
        )
        for index in range(2)
    )
    write = WritePort(first.addr, Signal(spec.width, name=f"{name}_wdata"), Signal(name=f"{name}_wen"))
    m.submodules[name] = Instance(
        "rtlstm_memory_pair",
        p_WIDTH=spec.width,
        p_DEPTH=spec.depth,
        p_ABITS=address_bits,
        p_OUTREG=int(spec.output_register),
        i_clk=ClockSignal(),
        i_address0=first.addr,
        o_read_data0=first.data,
        i_address1=second.addr,
        o_read_data1=second.data,
        i_write_data=write.data,
        i_write_enable=write.en,
    )
    return first, second, write


def multiply(m: Module, a: Value, b: Value, spec: MultiplierSpec, name: str) -> Signal:
    """Add one of the multipliers of an inventory; return the product, exact, ``spec.stages`` cycles later.

    Throughput: one product per cycle. No reset. With 2 stages there are registers at the inputs
    and at the output, with 3 one in between as well, all inside the hard multiplier if its kind
    is "dsp".
    """
    _check_factors(a, b, spec)
    product = Signal(signed(spec.a_bits + spec.b_bits), name=name)
    m.submodules[f"{name}_multiplier"] = Instance(
        "rtlstm_multiplier",
        p_A_BITS=spec.a_bits,
        p_B_BITS=spec.b_bits,
        p_STAGES=spec.stages,
        p_KIND=spec.kind,
        i_clk=ClockSignal(),
        i_a=a,
        i_b=b,
        o_product=product,
    )
    return product


def multiply_pair(
    m: Module, first: tuple[Value, Value], second: tuple[Value, Value], spec: MultiplierSpec, name: str
) -> tuple[Signal, Signal, Signal]:
    """Return two products, as two :func:`multiply` would, and a carry that belongs to the second.

    Where a family's hard multiplier can be two narrow ones, they take one; on some only if they
    have the same second factor, which ``spec.shared`` promises.
    """
    assert spec.kind == "dsp", f"{spec.name} are no DSP blocks"
    for factors in (first, second):
        _check_factors(*factors, spec)
    products = [Signal(signed(spec.a_bits + spec.b_bits), name=f"{name}_{index}") for index in (0, 1)]
    carry = Signal(name=f"{name}_carry")
    m.submodules[f"{name}_multipliers"] = Instance(
        "rtlstm_multiplier_pair",
        p_A_BITS=spec.a_bits,
        p_B_BITS=spec.b_bits,
        p_STAGES=spec.stages,
        p_KIND=spec.kind,
        p_SHARED=int(spec.shared),
        i_clk=ClockSignal(),
        i_a0=first[0],
        i_b0=first[1],
        i_a1=second[0],
        i_b1=second[1],
        o_product0=products[0],
        o_product1=products[1],
        o_carry1=carry,
    )
    return products[0], products[1], carry


def _check_factors(a: Value, b: Value, spec: MultiplierSpec) -> None:
    """Whoever multiplies and the inventory must agree."""
    found, listed = (len(a), len(b)), (spec.a_bits, spec.b_bits)
    assert found == listed, f"{spec.name} have factors of {listed} bits, not {found}"
