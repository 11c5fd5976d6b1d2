"""Small helpers of the datapath: delays, constant tables, memories without initial contents."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.memory import Memory, ReadPort, WritePort

__all__ = ["delay", "lookup", "read_twice", "storage"]


def delay(m: Module, value: Value, cycles: int, *, reset: bool = False) -> Value:
    """Return ``value`` as it was ``cycles`` clock cycles ago.

    Datapath values carry no reset; pass ``reset=True`` for control bits that must start at 0.
    """
    for _ in range(cycles):
        later = Signal(value.shape(), reset_less=not reset, name=f"{_name(value)}_d")
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


def storage(
    m: Module, name: str, width: int, depth: int, granularity: int | None = None
) -> tuple[ReadPort, WritePort]:
    """Add a memory with one clocked read port and one write port.

    A read gives what was written up to the clock edge before. Contents are undefined until
    written: nothing in the core relies on initial values.
    """
    memory = Memory(shape=width, depth=max(1, depth), init=[])
    m.submodules[name] = memory
    return memory.read_port(), memory.write_port(granularity=granularity)


def read_twice(m: Module, port: ReadPort, name: str) -> Signal:
    """Return the port's data behind one more register (the block RAM's own, where it has one)."""
    data = Signal(len(port.data), reset_less=True, name=name)
    m.d.comb += port.en.eq(1)
    m.d.sync += data.eq(port.data)
    return data


def mux_or_zero(select: Value, value: Value) -> Value:
    """Return ``value`` where ``select`` is 1, else 0."""
    return Mux(select, value, 0)
