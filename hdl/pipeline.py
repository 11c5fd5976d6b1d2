"""Small helpers of the datapath: delays, constant tables, memories without initial contents."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import ClockSignal, Instance, Module, Signal, Value

from rtlstm.spec.parameters import ceil_log2

__all__ = ["ReadPort", "WritePort", "delay", "lookup", "read_twice", "storage"]


def delay(m: Module, value: Value, cycles: int) -> Value:
    """Return a datapath value as it was ``cycles`` clock cycles ago; it carries no reset."""
    for _ in range(cycles):
        later = Signal(value.shape(), reset_less=True, name=f"{_name(value)}_d")
        m.d.sync += later.eq(value)
        value = later
    return value


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
    """Clocked: ``data`` is the word that ``addr`` pointed at one cycle before."""

    addr: Signal
    data: Signal


@dataclass(frozen=True)
class WritePort:
    """Clocked: stores ``data`` (or those granules whose ``en`` bit is 1) at ``addr``."""

    addr: Signal
    data: Signal
    en: Signal


def storage(
    m: Module, name: str, width: int, depth: int, granularity: int | None = None
) -> tuple[ReadPort, WritePort]:
    """Add a memory with one clocked read port and one write port.

    A read gives what was written up to the clock edge before. Contents are undefined until
    written: nothing in the core relies on initial values. The memory is the module of
    ``memory.v``, whose text :mod:`rtlstm.hdl.verilog` adds to the output: Amaranth's own
    memories would spell out initial contents bit by bit, megabytes of them.
    """
    depth = max(2, depth)
    address_bits = ceil_log2(depth)
    read = ReadPort(Signal(address_bits, name=f"{name}_raddr"), Signal(width, name=f"{name}_rdata"))
    write = WritePort(
        Signal(address_bits, name=f"{name}_waddr"),
        Signal(width, name=f"{name}_wdata"),
        Signal(width // (granularity or width), name=f"{name}_wen"),
    )
    m.submodules[name] = Instance(
        "rtlstm_memory",
        p_WIDTH=width,
        p_DEPTH=depth,
        p_ABITS=address_bits,
        p_GRANULES=len(write.en),
        i_clk=ClockSignal(),
        i_read_address=read.addr,
        o_read_data=read.data,
        i_write_address=write.addr,
        i_write_data=write.data,
        i_write_enable=write.en,
    )
    return read, write


def read_twice(m: Module, port: ReadPort, name: str) -> Signal:
    """Return the port's data behind one more register (the block RAM's own, where it has one)."""
    data = Signal(len(port.data), reset_less=True, name=name)
    m.d.sync += data.eq(port.data)
    return data
