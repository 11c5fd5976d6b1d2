"""The Verilog edge: a component's ports, one by one, under the names that its module gives them.

Inside Amaranth, beats of data are streams of structures. Here alone they become single ports.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from amaranth.hdl import ClockSignal, Instance, Module, Signal, Value
from amaranth.lib import data, wiring

from rtlstm.hdl.component import AnyInterface, Interface

_CONTRACT = {"x_suppress": "x_quiet"}
"""Names that ``docs/ports.md`` has for fields which are called otherwise inside."""
_LAST = "x_last"
"""A port of some cores only: it comes after those that all cores have."""


@dataclass(frozen=True)
class FlatPort:
    """A port of a module: its name, its direction as the module sees it, and its wire."""

    name: str
    flow: wiring.Flow
    value: Value


def flat_ports(ports: AnyInterface) -> list[FlatPort]:
    """Return the ports of a component, or of an instance's wires, in the order of its module's ports.

    A member of an interface ``x`` is ``x_MEMBER``. If ``x`` is a stream of structures, its payload is
    ``x_FIELD`` for each field.
    """
    return sorted(_walk(ports, ()), key=lambda port: port.name == _LAST)


def _walk(ports: AnyInterface, path: tuple[str, ...]) -> Iterator[FlatPort]:
    for name, member in ports.signature.members.items():
        part = getattr(ports, name)
        if member.is_signature:
            yield from _walk(part, (*path, name))
            continue
        fields = {name: Value.cast(part)}
        if name == "payload" and isinstance(part, data.View):
            fields = {field: part[field] for field in part.shape().members}
        for field, value in fields.items():
            flat = "_".join((*path, field))
            yield FlatPort(_CONTRACT.get(flat, flat), member.flow, value)


def lead_out(m: Module, component: AnyInterface) -> list[Value]:
    """Give a component's ports the names that they have in Verilog; return them for the conversion.

    ``m`` holds the component.
    """
    outside: list[Value] = []
    for port in flat_ports(component):
        wire = port.value
        if not isinstance(wire, Signal) or wire.name != port.name:
            wire = Signal(port.value.shape(), name=port.name)
            m.d.comb += port.value.eq(wire) if port.flow is wiring.In else wire.eq(port.value)
        outside.append(wire)
    return outside


def instance_of(module: str, ports: Interface, reset: Value) -> Instance:
    """Make an instance of a component that is converted to a module of its own.

    ``ports`` are the wires to it, of the component's signature.
    """
    wires = {
        f"{'i' if port.flow is wiring.In else 'o'}_{port.name}": port.value for port in flat_ports(ports)
    }
    return Instance(module, i_clk=ClockSignal(), i_rst=reset, **wires)
